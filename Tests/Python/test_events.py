"""The listener, and what a cache does when the host tells it of pressure."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import sys
import threading
import time
import weakref
from pathlib import Path

import hutch
import pytest
from hutch import Cause, EventKind, Tier, _events
from hutch._library import lib
from processes import run

DID = EventKind.DID_ADD | EventKind.DID_REMOVE


class Log(list):
    """A listener that keeps what it is told."""

    __call__ = list.append
    __hash__ = object.__hash__

    def take(self) -> list:
        told = [(event.kind, event.cause, event.key, event.value) for event in self]
        self.clear()
        return told


def test_the_events_of_an_entry(cache):
    log = Log()
    with cache.listen(log):
        first = cache.put("key", {"a": 1})
        assert [event.kind for event in log] == [EventKind.WILL_ADD, EventKind.DID_ADD]
        (_, added) = log
        every = tuple(Tier) if cache.directory else (Tier.MEMORY,)
        assert added.tiers == every and added.version == first.version and added.has_value
        assert log.take()[1] == (EventKind.DID_ADD, Cause.NONE, "key", {"a": 1})
        cache["key"] = 2
        assert log.take() == [
            (EventKind.WILL_ADD, Cause.NONE, "key", 2),
            (EventKind.WILL_REMOVE, Cause.REPLACED, "key", {"a": 1}),
            (EventKind.DID_REMOVE, Cause.REPLACED, "key", {"a": 1}),
            (EventKind.DID_ADD, Cause.NONE, "key", 2),
        ]
        del cache["key"]
        assert log.take() == [
            (EventKind.WILL_REMOVE, Cause.REMOVED, "key", 2),
            (EventKind.DID_REMOVE, Cause.REMOVED, "key", 2),
        ]
        cache.get("key"), cache.delete("key"), cache.touch("key"), cache.info("key")
        assert not log
        cache[b"\0"] = 3
        log.clear()
        cache.clear()
        told = log.take()
        assert told[0] == (EventKind.WILL_CLEAR, Cause.NONE, None, None)
        assert (EventKind.DID_REMOVE, Cause.CLEARED, b"\0", 3) in told
        assert told[-1] == (EventKind.DID_CLEAR, Cause.NONE, None, None)
    cache["key"] = 4
    assert not log


def test_expiry_and_eviction(clock):
    log = Log()
    limits = hutch.TierLimits(count=2)
    with hutch.Cache(memory=limits, policy="fifo", clock=clock) as cache:
        with cache.listen(log, EventKind.DID_REMOVE):
            cache.set("old", 1, expire=5)
            clock.advance(6)
            assert cache.get("old") is None and cache.expire() in (0, 1)
            assert log.take() == [(EventKind.DID_REMOVE, Cause.EXPIRED, "old", 1)]
            for number in range(3):
                cache[number] = number
            assert log.take() == [(EventKind.DID_REMOVE, Cause.EVICTED, 0, 0)]


def test_only_the_kinds_that_are_asked_for(cache):
    log = Log()
    with cache.listen(log, EventKind.DID_ADD):
        cache["a"] = 1
        del cache["a"]
        cache.clear()
        assert log.take() == [(EventKind.DID_ADD, Cause.NONE, "a", 1)]
    with pytest.raises(hutch.UnsupportedError):
        cache.listen(log, 1024)
    with pytest.raises(TypeError):
        cache.listen("no function")


def test_the_value_outlives_the_event_and_the_cache(directory: Path):
    log = Log()
    with hutch.Cache(directory) as cache:
        cache.listen(log, EventKind.DID_ADD)
        cache["large"] = bytes(range(256)) * 1000
        cache.clear()
    (event,) = log
    assert event.value == bytes(range(256)) * 1000
    assert "large" in repr(event) and event == event


def test_one_listener_at_a_time(cache):
    first, second = Log(), Log()
    one = cache.listen(first, DID)
    two = cache.listen(second, DID)
    cache["a"] = 1
    assert not first and len(second) == 1
    one.end()  # is not in place any more
    cache["b"] = 2
    assert not first and len(second) == 2
    two.end(), two.end(), one.end()
    cache["c"] = 3
    assert not first and len(second) == 2
    assert not _events._listeners


def test_a_function_is_let_go_at_the_end_and_at_the_close(directory: Path):
    for end in ("end", "close"):
        log = Log()
        gone = weakref.ref(log)
        cache = hutch.Cache(directory)
        listening = cache.listen(log)
        del log
        cache["a"] = 1
        assert gone() is not None
        listening.end() if end == "end" else cache.close()
        gc.collect()
        assert gone() is None and not _events._listeners
        listening.end()
        cache.close()
        listening.end()
        with pytest.raises(hutch.ClosedError):
            cache.listen(print)
        assert not _events._listeners


def test_a_cache_is_collected_to_which_its_listener_refers(directory: Path):
    class User:
        def __init__(self):
            self.cache = hutch.Cache(directory, sharing="exclusive")
            self.events = []
            self.cache.listen(self.hear, EventKind.DID_ADD)

        def hear(self, event):
            self.events.append((event.key, event.value))

    for number in range(3):
        user = User()
        user.cache["key"] = number
        assert user.events == [("key", number)]
        gone = weakref.ref(user)
        del user
        gc.collect()
        assert gone() is None and not _events._listeners


def test_what_a_listener_raises_goes_to_the_hook(cache, monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    def fail(event):
        raise RuntimeError("of the listener")

    with cache.listen(fail, EventKind.DID_ADD):
        cache["a"] = 1
    assert cache["a"] == 1
    (what,) = told
    assert what.exc_type is RuntimeError and str(what.exc_value) == "of the listener"
    # CPython 3.13 has it in the message, those before as the object.
    named = what.err_msg if what.object is None else repr(what.object)
    assert f"a listener of hutch, {fail!r}" in named


def test_a_listener_may_use_its_cache_but_not_close_it(cache):
    seen = []

    def use(event):
        if event.key == "a":
            cache["b"] = cache["a"] + 1
            cache.set_many({"c": 3})
            assert cache.get_many("abc") == {"a": 1, "b": 2, "c": 3}
            for wait in (cache.close, cache.flush):
                try:
                    wait()
                except hutch.DeadlockError as error:
                    seen.append(error)

    with cache.listen(use, EventKind.DID_ADD):
        cache["a"] = 1
        assert len(seen) == 2 and cache["b"] == 2
    # The close that failed has left the cache as it was; this one works.
    cache.close()
    with pytest.raises(hutch.ClosedError):
        cache["a"]


def test_a_listener_may_end_itself_and_put_another_in_its_place(cache):
    log = Log()

    def once(event):
        log.append(event)
        cache.listen(log, EventKind.DID_ADD)

    cache.listen(once, EventKind.DID_ADD)
    cache["a"] = 1
    cache["b"] = 2
    assert [event.key for event in log] == ["a", "b"]

    def end(event):
        log.append(event)
        listening.end()

    listening = cache.listen(end, EventKind.DID_ADD)
    cache["c"] = 3
    cache["d"] = 4
    assert [event.key for event in log] == ["a", "b", "c"]


def test_threads_that_write_and_one_that_comes_and_goes(cache, seed):
    """Every version of a key is told in order, by any thread; nothing waits for ever."""
    versions: dict = {}
    raised = []

    def check(event):
        if event.version <= versions.get(event.key, 0):
            raised.append(event)
        versions[event.key] = event.version

    def work(number):
        try:
            for turn in range(200):
                cache[turn % 7] = [number, turn]
        except BaseException as error:
            raised.append(error)

    with cache.listen(check, EventKind.DID_ADD):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not raised
    assert versions == {key: cache.info(key).version for key in range(7)}


def test_a_cache_that_is_collected_within_its_own_listener(directory: Path):
    """A close cannot be made there; it is made later, and the directory is free again."""
    cache = [hutch.Cache(directory)]
    pointer = lib.hutch_cache_retain(cache[0]._pointer)

    def drop(event):
        # Nothing else holds it: its finalizers run here.
        cache.clear()
        gc.collect()

    cache[0].listen(drop, EventKind.DID_ADD)._cache = None
    assert lib.hutch_put(pointer, b"key", 3, b"value", 5, None, None) == hutch.Status.OK
    deadline = time.monotonic() + 60
    while _events._listeners and time.monotonic() < deadline:
        time.sleep(0.001)
    assert lib.hutch_put(pointer, b"key", 3, b"value", 5, None, None) == hutch.Status.CLOSED
    lib.hutch_cache_release(pointer)
    assert not _events._listeners
    with hutch.Cache(directory) as again:
        assert again.disk["key"] == b"value"


def test_a_cache_that_is_collected_where_its_listener_waits(directory: Path):
    """The garbage collector runs anywhere, also where the program has a lock. It waits for no
    callback that waits for just that lock: the close ends later."""
    code = """
        import gc, sys, threading, hutch
        from hutch import EventKind
        from hutch._library import lib

        cache = hutch.Cache(sys.argv[1])
        pointer = lib.hutch_cache_retain(cache._pointer)
        lock, has_begun = threading.Lock(), threading.Event()

        def listen(event):
            has_begun.set()
            with lock:
                pass

        def put():
            lib.hutch_put(pointer, b"key", 3, b"value", 5, None, None)

        cache.listen(listen, EventKind.DID_ADD)._cache = None
        with lock:
            thread = threading.Thread(target=put)
            thread.start()
            has_begun.wait()
            # The put is in progress, and a close waits for it.
            del cache
            gc.collect()
        thread.join()
        lib.hutch_cache_release(pointer)
        with hutch.Cache(sys.argv[1]) as again:
            assert again.disk["key"] == b"value"
        print("closed")
    """
    assert run(code, directory) == "closed\n"


@pytest.mark.parametrize("end", ["", "threading.Thread(target=write, daemon=True).start()"])
def test_the_end_of_a_program_that_listens(directory: Path, end: str):
    """Nothing is closed: the interpreter's end does it, also while another thread is told."""
    code = f"""
        import sys, threading, hutch

        cache = hutch.Cache(sys.argv[1])
        log = []
        cache.listen(log.append)
        for number in range(100):
            cache.set(number, number, expire=0.001)

        def write():
            while True:
                try:
                    cache.set("key", "value", expire=0.001)
                except hutch.ClosedError:
                    return

        {end}
        print(len(log) >= 200)
    """
    assert run(code, directory) == "True\n"
    with hutch.Cache(directory) as again:
        assert not again.check()


def test_a_child_that_ends_its_parents_listener(directory: Path):
    code = """
        import os, sys, hutch

        log = []
        cache = hutch.Cache(sys.argv[1])
        listening = cache.listen(log.append, hutch.EventKind.DID_ADD)
        child = os.fork()
        if child == 0:
            cache["told"] = 1
            listening.end()
            cache["untold"] = 1
            own = []
            with cache.listen(own.append, hutch.EventKind.DID_ADD):
                cache["own"] = 1
            os._exit(7 if [len(log), len(own)] == [1, 1] else 8)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        cache["key"] = 1
        print([event.value for event in log])
        cache.close()
    """
    assert run(code, directory) == "[1]\n"


def test_copies_of_events(cache):
    log = Log()
    with cache.listen(log, EventKind.DID_ADD):
        cache["key"] = [1, 2]
    copies = [copy.copy(log[0]), copy.deepcopy(log[0])]
    assert dataclasses.asdict(log[0])["key"] == "key"
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(log[0])
    log.clear()
    cache.close()
    assert [event.value for event in copies] == [[1, 2], [1, 2]]


@pytest.mark.parametrize("storage", ["None", "'mixed'", "'file'"])
def test_a_batch_is_told(directory: Path, storage: str):
    """In a process of its own, where a batch that waits for itself can be stopped."""
    code = f"""
        import faulthandler, sys, hutch

        faulthandler.dump_traceback_later(20, exit=True)
        told = []
        storage = {storage}
        cache = hutch.Cache(sys.argv[1], storage=storage) if storage else hutch.Cache()
        cache.listen(told.append)
        numbers = range(300)
        cache.set_many({{number: bytes(number) for number in numbers}})
        for kind in (hutch.EventKind.WILL_ADD, hutch.EventKind.DID_ADD):
            assert sorted(event.key for event in told if event.kind is kind) == list(numbers)
        assert cache.delete_many(numbers) == 300
        for kind in (hutch.EventKind.WILL_REMOVE, hutch.EventKind.DID_REMOVE):
            assert sorted(event.key for event in told if event.kind is kind) == list(numbers)
        cache.close()
    """
    assert run(code, directory) == ""


def test_the_trouble_of_a_tier(tmp_path: Path):
    log = Log()
    place = tmp_path / "place"
    place.write_bytes(b"a file")
    with hutch.Cache(place / "cache", disk_optional=True) as cache:
        assert cache.stats().disk.state is hutch.State.DOWN
        with cache.listen(log, EventKind.TIER_DOWN | EventKind.TIER_UP):
            place.unlink()
            # Unless the tier has made it already: it is tried again in the background.
            place.mkdir(exist_ok=True)
            # The tier is up a moment before another thread tells it.
            while not any(event.kind is EventKind.TIER_UP for event in log):
                cache["key"] = 1
            assert cache.stats().disk.state is hutch.State.UP
            assert log[-1].kind is EventKind.TIER_UP and log[-1].status is hutch.Status.OK
            assert all(event.status < 0 for event in log[:-1])
            assert all(event.tiers == (Tier.DISK,) and not event.has_value for event in log)


# ------------------------------------------------------------------- pressure


@pytest.mark.parametrize("notification", ["memory_warning", "entered_background"])
@pytest.mark.parametrize("shrink", [None, "empty", "low_water", "expired"])
def test_notify(directory: Path, clock, notification: str, shrink: str):
    chosen = {"on_memory_warning" if notification == "memory_warning" else "on_background": shrink}
    limits = hutch.TierLimits(cost=100_000, max_entry=hutch.NO_LIMIT)
    log = Log()
    with hutch.Cache(directory, memory=limits, low_water=30, clock=clock, **chosen) as cache:
        cache.set_many({number: bytes(1000) for number in range(50)})
        cache.set("short", 1, expire=1)
        clock.advance(2)
        listening = cache.listen(log, EventKind.MEMORY_WARNING | EventKind.ENTERED_BACKGROUND)
        cache.disk.notify(notification)
        assert cache.memory.cost() > 50_000
        cache.notify(notification)
        assert [event.kind.name.lower() for event in log] == [notification] * 2
        listening.end()
        if shrink == "expired":
            assert len(cache.memory) == 50
        elif shrink == "low_water":
            assert 20_000 < cache.memory.cost() <= 30_000
        else:
            assert len(cache.memory) == 0 == cache.memory.cost()
        assert len(cache.disk.get_many(range(50))) == 50


def test_notifications_and_reactions_that_there_are_not(cache):
    for wrong in ("low memory", None, 1, []):
        with pytest.raises(ValueError, match="notification is"):
            cache.notify(wrong)
    for option in ("on_memory_warning", "on_background", "write_policy"):
        with pytest.raises(ValueError, match=f"{option} is"):
            hutch.Cache(**{option: "all"})
    with pytest.raises(ValueError):
        hutch.Cache(low_water=101)


@pytest.mark.parametrize("storage", ["mixed", "log"])
def test_what_is_written_on_eviction_is_told(tmp_path, storage):
    options = {"storage": storage, "write_policy": "on_eviction", "policy": "lru"}
    with hutch.Cache(tmp_path, **options) as cache:
        cache.set_limits(memory=hutch.TierLimits(count=1))
        log = Log()
        kinds = EventKind.DID_ADD | EventKind.DID_REMOVE
        with cache.listen(log, kinds):
            cache["a"] = 1
            cache["b"] = 2
            # What a put evicts may be told by another thread, after the put has returned.
            while len(log) < 4:
                pass
            told = [(event.kind, event.cause, event.key, event.tiers) for event in log]
            log.clear()
            cache.flush()
            flushed = [(event.kind, event.cause, event.key, event.tiers) for event in log]
    memory, disk = (Tier.MEMORY,), (Tier.DISK,)
    of_a = [event for event in told if event[2] == "a"]
    assert of_a == [
        (EventKind.DID_ADD, Cause.NONE, "a", memory),
        (EventKind.DID_ADD, Cause.WRITTEN_BACK, "a", disk),
        (EventKind.DID_REMOVE, Cause.EVICTED, "a", memory),
    ]
    assert (EventKind.DID_ADD, Cause.NONE, "b", memory) in told
    assert flushed == [(EventKind.DID_ADD, Cause.WRITTEN_BACK, "b", disk)]


def test_an_event_that_is_collected_with_its_user_has_its_value():
    run(
        """
        import gc
        import hutch
        gc.disable()
        seen = []
        class User:
            def __init__(self, event):
                self.event = event
                self.itself = self
            def __del__(self):
                seen.append(self.event.value[-3:])
        events = []
        with hutch.Cache(memory="200 MB") as cache:
            with cache.listen(events.append, hutch.EventKind.DID_ADD):
                # So large that its memory goes back to the system at once.
                cache["key"] = b"x" * 40_000_000
                User(events.pop())
                del cache["key"]
                gc.collect()
            assert seen == [b"xxx"] and cache.stats().memory.held_count == 0
        """
    )
