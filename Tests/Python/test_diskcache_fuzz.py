"""hutch.diskcache: mutated entries and counters are misses or errors with words, never a crash."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hutch.diskcache import Cache, PickleRefusedError
from hutch.diskcache._record import Record

VALUES = [1, "text", b"bytes", 2.5, None, (1, {2}), {"a": [1.5]}, "x" * 40_000, 2**80]


@given(data=st.binary(max_size=80), extended=st.binary(max_size=60), long=st.booleans())
def test_any_bytes_are_a_record_or_none(data, extended, long):
    record = Record.decode(data, b"dc1:" + extended if long else extended)
    assert record is None or record.encode(False)


def test_mutated_entries(tmp_path, seed):
    chance = random.Random(seed)
    with Cache(tmp_path) as cache:
        entries = cache._open().entries
        for number in range(1500):
            value = VALUES[number % len(VALUES)]
            cache.set("key", value, tag="tag", expire=1000)
            data, extended = entries["key"]
            which = bytearray(data if chance.random() < 0.5 else extended)
            for _ in range(chance.randint(1, 3)):
                if which:
                    which[chance.randrange(min(len(which), 200))] = chance.randrange(256)
            if chance.random() < 0.2:
                del which[chance.randrange(len(which) + 1) :]
            if len(which) and bytes(which[:2]) == bytes(data[:2]):
                entries["key"] = bytes(which), extended
            else:
                entries["key"] = data, bytes(which)
            try:
                cache.get("key", expire_time=True, tag=True)
                list(cache)
                cache.pop("key")
            except PickleRefusedError:
                pass
            cache.delete("key")
            assert len(cache) == 0


@pytest.mark.parametrize("name", ["diskcache.state", "diskcache.json"])
def test_mutated_files(tmp_path, seed, name):
    chance = random.Random(seed)
    path = tmp_path / name
    for _ in range(40):
        with Cache(tmp_path) as cache:
            cache.push("job")
            cache["a"] = 1
        content = bytearray(path.read_bytes())
        for _ in range(20):
            content[44 + chance.randrange(len(content) - 44)] = chance.randrange(256)
        path.write_bytes(content)
        with Cache(tmp_path) as cache:
            assert cache["a"] == 1
            cache.clear()
            assert cache.push("job") and cache.pull()[1] == "job"
            assert list(cache) == list(cache.iterkeys()) == []
        path.unlink()
