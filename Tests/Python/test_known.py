"""Objects that the accelerator keeps of values that are read again: no read shows it.

Without the accelerator, and with HUTCH_PURE=1, every read makes its object, and all but the first
test holds all the same.
"""

from __future__ import annotations

import sys

import hutch
import pytest
from conftest import Clock
from hutch import _accelerator
from processes import run

VALUES = [b"x" * 100, "a text of some length", 2**40, b"", "\u00e9t\u00e9", 300]


def read(cache, key, times=4):
    """What the last of these reads gives, each by another call."""
    found = None
    for number in range(times):
        found = cache.get(key) if number % 2 else cache[key]
    return found


@pytest.fixture(params=["memory", "directory"])
def cache(request, tmp_path):
    path = tmp_path / "cache" if request.param == "directory" else None
    with hutch.Cache(path) as cache:
        yield cache


@pytest.mark.skipif(_accelerator.module is None, reason="it keeps none")
def test_the_second_read_of_a_value_keeps_its_object():
    with hutch.Cache() as cache:
        for number, value in enumerate(VALUES):
            cache[f"key-{number}"] = value
            _, second, third = (cache[f"key-{number}"] for _ in range(3))
            assert third is second == value
        # What may change, and what is large, is made for each read.
        for value in ({"a": [1]}, [1], b"x" * 513, "x" * 513):
            cache["key-x"] = value
            _, second, third = (cache["key-x"] for _ in range(3))
            assert third is not second
            assert third == second == value
        kept = cache["key-0"]
        count = sys.getrefcount(kept)
    assert sys.getrefcount(kept) == count - 1


def test_every_write_is_seen(cache):
    for number, value in enumerate(VALUES):
        cache["the key"] = value
        assert read(cache, "the key") == value
        assert type(read(cache, "the key")) is type(value)
        cache["the key"] = VALUES[number - 1]
        assert cache["the key"] == VALUES[number - 1]
    cache["the key"] = 1
    assert read(cache, "the key") == 1
    assert cache.incr("the key") == 2
    assert read(cache, "the key") == 2
    assert cache.replace("the key", 3)
    assert read(cache, "the key") == 3
    cache.touch("the key", expire=3600)
    assert read(cache, "the key") == 3
    del cache["the key"]
    assert cache.get("the key") is None
    cache["the key"] = 4
    assert read(cache, "the key") == 4
    cache.clear()
    assert "the key" not in cache
    with pytest.raises(KeyError):
        cache["the key"]


def test_other_ways_into_the_cache_are_seen(cache):
    cache["the key"] = "one"
    assert read(cache, "the key") == "one"
    cache.memory["the key"] = "two"
    assert cache["the key"] == cache.memory["the key"] == "two"
    cache.set_many({"the key": "three"})
    assert cache["the key"] == "three"
    assert cache.pop("the key") == "three"
    assert cache.get("the key") is None


def test_writes_of_other_processes_are_seen(tmp_path):
    with hutch.Cache(tmp_path / "cache") as cache:
        for number in range(3):
            cache["the key"] = number
            assert read(cache, "the key") == number
            run(
                "import hutch, sys\n"
                "with hutch.Cache(sys.argv[1]) as cache: cache['the key'] = 'from outside'\n",
                tmp_path / "cache",
            )
            assert read(cache, "the key") == "from outside"


def test_each_read_is_an_access(cache):
    cache["the key"] = "value"
    before = cache.stats().memory.hits
    read(cache, "the key", 7)
    assert cache.stats().memory.hits == before + 7


def test_an_entry_expires():
    clock = Clock()
    with hutch.Cache(clock=clock) as cache:
        cache.set("the key", "value", expire=10)
        assert read(cache, "the key") == "value"
        clock.advance(11)
        assert cache.get("the key") is None


def test_keys_take_each_others_places():
    with hutch.Cache() as cache:
        keys = [f"{number:x}" * 3 for number in range(3000)]
        for _ in range(3):
            for key in keys:
                cache[key] = key
            for key in keys:
                assert cache[key] == key
            assert all(cache[key] == key for key in keys for _ in range(3))


def test_a_serializer_reads_each_time():
    class Counting:
        name = "counting"
        reads = 0

        def dumps(self, value):
            return b"one"

        def loads(self, data):
            assert bytes(data) == b"one"
            self.reads += 1
            return self.reads

    with hutch.Cache(serializer=Counting()) as cache:
        cache["the key"] = [1]
        assert [cache["the key"] for _ in range(5)] == [1, 2, 3, 4, 5]
