"""A cache without limits against a dictionary: random calls, one clock, every storage kind.

Hypothesis chooses the calls. HUTCH_SEED repeats a run, HUTCH_LONG=1 makes it longer,
and HUTCH_SHRINK=1 takes minutes to make a failure shorter. The model knows of each
entry what decides whether it is there: its times, and whether the disk has it.
"""

from __future__ import annotations

import functools
import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import hutch
import hypothesis
import pytest
from conftest import IS_WHOLE, KINDS, NO_LIMITS, SEED, Clock
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

EXAMPLES = 500 if os.environ.get("HUTCH_LONG") else 15 if IS_WHOLE else 8
PHASES = [Phase.generate, *([Phase.shrink] if os.environ.get("HUTCH_SHRINK") else [])]
THRESHOLD = 1000

# The clock goes in whole seconds and every duration ends between two of them, so
# that no answer hangs on what happens at the very moment of an end.
SECONDS = st.sampled_from([1, 6])
DURATIONS = st.sampled_from([None, 0.5, 10.5, math.inf])
KEYS = st.sampled_from(["a", b"a", 1])
COUNTERS = st.just("n")
TAGS = st.sampled_from([None, "red", "blue"])
SIZES = st.sampled_from([0, 10, THRESHOLD, THRESHOLD + 1, 30_000])


@dataclass
class Model:
    value: object
    version: int
    written: float
    accessed: float
    live: float | None
    idle: float | None
    on_disk: bool
    tag: str | None

    def there(self, now: float) -> bool:
        lives = self.live is None or now < self.written + self.live
        return lives and (self.idle is None or now < self.accessed + self.idle)


class Machine(RuleBasedStateMachine):
    def __init__(self, kind: str, root: Path) -> None:
        super().__init__()
        self.clock = Clock()
        self.options = {"memory": NO_LIMITS, "disk": NO_LIMITS, "clock": self.clock}
        self.directory = None
        if kind != "memory only":
            self.directory = tempfile.mkdtemp(dir=root)
            self.options.update(storage=kind, inline_threshold=THRESHOLD)
        self.cache = hutch.Cache(self.directory, **self.options)
        self.entries: dict[object, Model] = {}
        self.number = 0
        self.newest = 0

    def teardown(self) -> None:
        self.cache.close()

    # ------------------------------------------------------------- the model

    @property
    def now(self) -> float:
        return self.clock.now / 10**9

    @property
    def has_disk(self) -> bool:
        return self.directory is not None

    def find(self, key) -> Model | None:
        entry = self.entries.get(key)
        if entry is not None and not entry.there(self.now):
            del self.entries[key]
            return None
        return entry

    def fresh(self, size: int) -> bytes:
        """A value that no other call writes."""
        self.number += 1
        return b"%d:" % self.number + b"x" * size

    def wrote(self, key, value, live, idle, on_disk: bool | None = None, tag=None) -> None:
        if on_disk is None:
            on_disk = self.has_disk
        version = self.cache.info(key).version
        assert version > self.newest, "a version was used twice, or went back"
        self.newest = version
        live = None if live == math.inf else live
        idle = None if idle == math.inf else idle
        self.entries[key] = Model(value, version, self.now, self.now, live, idle, on_disk, tag)

    def accessed(self, key) -> Model | None:
        entry = self.find(key)
        if entry is not None:
            entry.accessed = self.now
        return entry

    # ---------------------------------------------------------------- writes

    @rule(key=KEYS, size=SIZES, live=DURATIONS, idle=DURATIONS, tag=TAGS)
    def set(self, key, size, live, idle, tag):
        value = self.fresh(size)
        self.cache.set(key, value, live, idle=idle, tag=tag)
        self.wrote(key, value, live, idle, tag=tag)

    @rule(key=KEYS, size=SIZES, live=DURATIONS, tag=TAGS)
    def set_in_memory(self, key, size, live, tag):
        value = self.fresh(size)
        self.cache.memory.set(key, value, live, tag=tag)
        self.wrote(key, value, live, None, on_disk=False, tag=tag)

    @precondition(lambda self: self.has_disk)
    @rule(key=KEYS, size=SIZES, live=DURATIONS, tag=TAGS)
    def set_on_disk(self, key, size, live, tag):
        value = self.fresh(size)
        self.cache.disk.set(key, value, live, tag=tag)
        self.wrote(key, value, live, None, tag=tag)

    @rule(key=KEYS, size=SIZES, live=DURATIONS, tag=TAGS)
    def add(self, key, size, live, tag):
        value = self.fresh(size)
        expected = self.find(key) is None
        assert self.cache.add(key, value, live, tag=tag) is expected
        if expected:
            self.wrote(key, value, live, None, tag=tag)

    @rule(key=KEYS, size=SIZES, idle=DURATIONS, tag=TAGS)
    def replace(self, key, size, idle, tag):
        value = self.fresh(size)
        expected = self.find(key) is not None
        assert self.cache.replace(key, value, idle=idle, tag=tag) is expected
        if expected:
            self.wrote(key, value, None, idle, tag=tag)

    @rule(key=KEYS, size=SIZES, right=st.booleans())
    def compare_and_swap(self, key, size, right):
        value = self.fresh(size)
        entry = self.find(key)
        version = entry.version if entry and right else self.newest + 1
        expected = entry is not None and right
        assert self.cache.compare_and_swap(key, version, value) is expected
        if expected:
            self.wrote(key, value, None, None)

    @rule(key=COUNTERS, delta=st.integers(-5, 5), tag=TAGS)
    def increment(self, key, delta, tag):
        entry = self.find(key)
        if entry is None:
            assert self.cache.incr(key, delta, default=100, tag=tag) == 100 + delta
            self.wrote(key, 100 + delta, None, None, tag=tag)
        else:
            assert self.cache.incr(key, delta, tag=tag) == entry.value + delta
            entry.value += delta
            entry.on_disk = self.has_disk
            entry.version = self.newest = self.cache.info(key).version

    @rule(key=COUNTERS, value=st.integers(-100, 100), live=DURATIONS)
    def set_counter(self, key, value, live):
        self.cache.set(key, value, live)
        self.wrote(key, value, live, None)

    @rule(key=st.one_of(KEYS, COUNTERS), live=DURATIONS, idle=DURATIONS)
    def touch(self, key, live, idle):
        entry = self.find(key)
        assert self.cache.touch(key, live, idle=idle) is (entry is not None)
        if entry is not None:
            entry.written = entry.accessed = self.now
            if live is not None:
                entry.live = None if live == math.inf else live
            if idle is not None:
                entry.idle = None if idle == math.inf else idle
            # A counter's accesses are not modelled: incr is one, or is not.
            if key == "n" and idle not in (None, math.inf):
                assert self.cache.touch(key, idle=math.inf)
                entry.idle = None

    # -------------------------------------------------------------- removals

    @rule(key=st.one_of(KEYS, COUNTERS))
    def delete(self, key):
        assert self.cache.delete(key) is (self.find(key) is not None)
        self.entries.pop(key, None)

    @rule(key=st.one_of(KEYS, COUNTERS))
    def pop(self, key):
        entry = self.find(key)
        assert self.cache.pop(key, "none") == (entry.value if entry else "none")
        self.entries.pop(key, None)

    @rule()
    def clear(self):
        self.cache.clear()
        self.entries.clear()

    @rule(tag=st.sampled_from(["red", "blue"]))
    def remove_tagged(self, tag):
        goes = [key for key in list(self.entries) if self.find(key) and self.entries[key].tag == tag]
        assert self.cache.remove_tagged(tag) == len(goes)
        for key in goes:
            del self.entries[key]

    @rule(tag=st.sampled_from(["red", "blue"]))
    def remove_tagged_in_memory(self, tag):
        self.cache.memory.remove_tagged(tag)
        self.forget(lambda entry: entry.tag == tag and not entry.on_disk)

    @precondition(lambda self: self.has_disk)
    @rule(tag=st.sampled_from(["red", "blue"]))
    def remove_tagged_on_disk(self, tag):
        goes = [
            key
            for key in list(self.entries)
            if self.find(key) and self.entries[key].tag == tag and self.entries[key].on_disk
        ]
        assert self.cache.disk.remove_tagged(tag) == len(goes)
        for key in goes:
            del self.entries[key]

    @rule()
    def clear_memory(self):
        self.cache.memory.clear()
        self.forget(lambda entry: not entry.on_disk)

    @rule(key=st.one_of(KEYS, COUNTERS))
    def delete_in_memory(self, key):
        entry = self.find(key)
        deleted = self.cache.memory.delete(key)
        if entry is None or not entry.on_disk:
            assert deleted is (entry is not None)
            self.entries.pop(key, None)

    @precondition(lambda self: self.has_disk)
    @rule()
    def clear_disk(self):
        self.cache.disk.clear()
        self.forget(lambda entry: entry.on_disk)

    @precondition(lambda self: self.has_disk)
    @rule(key=st.one_of(KEYS, COUNTERS))
    def delete_on_disk(self, key):
        entry = self.find(key)
        expected = entry is not None and entry.on_disk
        assert self.cache.disk.delete(key) is expected
        if expected:
            del self.entries[key]

    def forget(self, goes) -> None:
        self.entries = {key: entry for key, entry in self.entries.items() if not goes(entry)}

    # ------------------------------------------------------ time and openings

    @rule(seconds=SECONDS)
    def advance(self, seconds):
        self.clock.advance(seconds)

    @rule()
    def flush(self):
        self.cache.flush()

    @precondition(lambda self: self.has_disk)
    @rule()
    def reopen(self):
        self.cache.close()
        self.cache = hutch.Cache(self.directory, **self.options)
        self.forget(lambda entry: not entry.on_disk)

    @rule(key=KEYS, live=DURATIONS, how=st.sampled_from(["clear", "delete", "reopen", "stay"]))
    def use_and_forget(self, key, live, how):
        """A story that single steps seldom tell: used in time, forgotten by memory, used again."""
        self.set(key, 10, live, 10.5, None)
        for _ in range(2):
            self.advance(6)
            self.get(key)
            if how == "clear":
                self.clear_memory()
            elif how == "delete":
                self.delete_in_memory(key)
            elif how == "reopen" and self.has_disk:
                self.reopen()
        self.advance(6)
        self.look(key)

    # ----------------------------------------------------------------- reads

    @rule(key=st.one_of(KEYS, COUNTERS))
    def get(self, key):
        entry = self.accessed(key)
        assert self.cache.get(key, "none") == (entry.value if entry else "none")

    @rule(key=KEYS)
    def get_with_record(self, key):
        entry = self.accessed(key)
        found = self.cache.entry(key)
        assert (found is None) is (entry is None)
        if entry is not None:
            assert (found.value, found.info.version) == (entry.value, entry.version)
            assert found.info.tag == entry.tag

    @precondition(lambda self: self.has_disk)
    @rule(key=KEYS)
    def get_in_a_tier(self, key):
        entry = self.find(key)
        on_disk = entry is not None and entry.on_disk
        assert self.cache.disk.get(key, "none") == (entry.value if on_disk else "none")
        if on_disk:
            entry.accessed = self.now
        elif entry is not None:
            assert self.cache.memory[key] == entry.value
            entry.accessed = self.now

    @rule(key=st.one_of(KEYS, COUNTERS))
    def look(self, key):
        entry = self.find(key)
        assert (key in self.cache) is (entry is not None)
        info = self.cache.info(key)
        assert (info is None) is (entry is None)
        if entry is None:
            return
        assert info.version == entry.version
        assert info.tag == entry.tag
        assert info.created == pytest.approx(entry.written)
        assert info.time_to_idle == entry.idle
        if entry.live is None:
            assert info.expires is None
        else:
            assert info.expires == pytest.approx(entry.written + entry.live)

    @rule()
    def walk(self):
        live = {key: e.value for key, e in self.entries.items() if e.there(self.now)}
        found = list(self.cache.items())
        assert len(found) == len(dict(found)), "an entry was seen twice"
        assert dict(found) == live
        assert sorted(map(repr, self.cache)) == sorted(map(repr, live))

    @invariant()
    def count(self):
        live = sum(entry.there(self.now) for entry in self.entries.values())
        assert len(self.cache) == live


@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_a_dictionary(kind, tmp_path):
    factory = functools.partial(Machine, kind, tmp_path)
    hypothesis.seed(SEED)(factory)
    run_state_machine_as_test(
        factory,
        settings=hypothesis.settings(
            max_examples=EXAMPLES, stateful_step_count=40, phases=PHASES, report_multiple_bugs=False
        ),
    )
