"""SIGKILL at a random moment: every key has its old value or its new one, whole.

A C program overwrites and removes few keys, and tells each operation that it has
completed. It is killed; what the directory then holds is compared with what was
told: nothing that was completed is lost, and of the one operation that may have
been under way either all is there or nothing.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import hutch
import pytest
from conftest import NO_LIMITS
from hutch import _library
from values import LOOP_INLINE_THRESHOLD, LOOP_KEYS, loop_removes, loop_size, make_value

KILLS = 1000 if os.environ.get("HUTCH_LONG") else 25
OPTIONS = {"disk": NO_LIMITS, "inline_threshold": LOOP_INLINE_THRESHOLD}


def after(seed: int, number: int) -> bytes | None:
    """What operation number leaves its key with."""
    if loop_removes(seed, number):
        return None
    return make_value(seed, number, loop_size(seed, number))


class Writer:
    """The program at work, and the numbers of the operations that it said are done."""

    def __init__(self, tool: Path, directory: Path, seed: int, first: int) -> None:
        command = [tool, _library.lib._name, "loop", directory, str(seed), str(first)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )

    def wait_until_it_works(self) -> bytes:
        return self.process.stdout.read(8)

    def kill(self) -> bytes:
        """Everything that it said, up to the last whole number."""
        self.process.send_signal(signal.SIGKILL)
        said, complaints = self.process.communicate()
        assert self.process.returncode == -signal.SIGKILL, complaints.decode()
        return said


def numbers(said: bytes) -> list[int]:
    return [int.from_bytes(said[at : at + 8], "little") for at in range(0, len(said) - 7, 8)]


def content_files(directory: Path) -> list[Path]:
    ours = ("manifest.sqlite", "hutch")
    return [
        path
        for path in directory.rglob("*")
        if path.is_file() and not (path.parent == directory and path.name.startswith(ours))
    ]


def check_integrity(directory: Path, storage: str) -> None:
    if storage == "log":
        return
    database = sqlite3.connect(directory / "manifest.sqlite")
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()


@pytest.mark.parametrize("storage", ["log", "mixed"])
def test_kills(tool: Path, directory: Path, seed: int, storage: str) -> None:
    # The program opens what is there.
    hutch.Cache(directory, storage=storage, **OPTIONS).close()
    source = random.Random(seed)
    state: dict[int, bytes | None] = {key: None for key in range(LOOP_KEYS)}
    first = completed = in_the_middle = 0

    for kill in range(KILLS):
        writer = Writer(tool, directory, seed, first)
        # Some are killed while they open and recover, most while they write.
        said = b"" if kill % 4 == 0 else writer.wait_until_it_works()
        time.sleep(source.uniform(0, 0.02))
        said += writer.kill()

        done = numbers(said)
        assert done == list(range(first, first + len(done)))
        for number in done:
            state[number % LOOP_KEYS] = after(seed, number)
        completed += len(done)
        first += len(done)

        with hutch.Cache(directory, **OPTIONS) as cache:
            for key in range(LOOP_KEYS):
                found = cache.get(f"key-{key}")
                if found == state[key]:
                    continue
                # The operation that was under way may be done without having been told.
                assert key == first % LOOP_KEYS, f"kill {kill}: key-{key} is not what was completed"
                assert found == after(seed, first), f"kill {kill}: key-{key} is neither old nor new"
                state[key] = found
                in_the_middle += 1
            live = {f"key-{key}" for key, value in state.items() if value is not None}
            assert set(cache) == live and len(cache) == len(live), f"kill {kill}"
            stats = cache.stats().disk
            assert stats.damaged == stats.failures == 0, f"kill {kill}"
            # A check also sweeps up orphans: some are left for the end.
            if kill % 2 == 0:
                assert cache.check(quick=True).counters == 0, f"kill {kill}"
        if kill % 10 == 9:
            check_integrity(directory, storage)
        first += 1

    assert completed > KILLS, "the writers were killed before they had done anything"
    print(f"{completed} operations completed, {in_the_middle} done but not told")

    # What no entry names is removed in the background, in whatever opening has the time:
    # those above were closed at once.
    large = sum(
        value is not None and len(value) > LOOP_INLINE_THRESHOLD for value in state.values()
    )
    with hutch.Cache(directory, **OPTIONS):
        deadline = time.monotonic() + 30
        while len(content_files(directory)) != large and time.monotonic() < deadline:
            time.sleep(0.05)
    assert len(content_files(directory)) == large, "orphans stay"
    check_integrity(directory, storage)
    with hutch.Cache(directory, **OPTIONS) as cache:
        for key, value in state.items():
            assert cache.get(f"key-{key}") == value
