"""Quiet: between suspend and resume a cache does nothing of its own."""

from __future__ import annotations

import time

import hutch
from conftest import NO_LIMITS


class Subject:
    """A cache with everything to do that maintenance does."""

    def __init__(self, path, clock) -> None:
        self.path = path
        self.expired: list[hutch.Event] = []
        options = {"memory": NO_LIMITS, "disk": NO_LIMITS, "inline_threshold": 20_480}
        self.cache = hutch.Cache(path, clock=clock, workers=1, **options)
        self.cache.listen(self.hear, hutch.EventKind.DID_REMOVE)

    def hear(self, event) -> None:
        if event.cause == hutch.Cause.EXPIRED:
            self.expired.append(event)

    def leave_work(self, clock) -> None:
        self.cache.set("short", 1, expire=1)
        self.cache["file"] = b"x" * 50_000
        del self.cache["file"]
        clock.advance(60)
        # Maintenance goes by the time of the last call.
        assert "nothing" not in self.cache

    def trash(self) -> int:
        return sum(1 for _ in (self.path / "trash").iterdir())

    def await_maintenance(self, times: int) -> None:
        while len(self.expired) < 2 * times or self.trash():
            time.sleep(0.01)


def test_a_suspended_cache_does_nothing_of_its_own(tmp_path, clock):
    quiet, busy = Subject(tmp_path / "quiet", clock), Subject(tmp_path / "busy", clock)
    with quiet.cache, busy.cache:
        # On its only worker: nothing else runs at that moment.
        quiet.cache.queue().submit(quiet.cache.suspend).result()
        quiet.leave_work(clock)
        # As often as the other has done its maintenance, this one would have.
        for times in (1, 2):
            busy.leave_work(clock)
            busy.await_maintenance(times)
        assert quiet.expired == [] and quiet.trash() == 1
        assert "short" not in quiet.cache
        quiet.cache["served"] = 1
        assert quiet.cache["served"] == 1
        quiet.cache.resume()
        quiet.await_maintenance(1)
