"""Calls that decide and act as one."""

from __future__ import annotations

import threading
from typing import Any, Callable

import hutch
import pytest


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Run work(0) .. work(count - 1) in threads that start together; their results."""
    results: list[Any] = [None] * count
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        barrier.wait()
        results[number] = work(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_add(cache):
    assert cache.add("k", 1) is True
    assert cache.add("k", 2) is False
    assert cache["k"] == 1
    if cache.directory is not None:
        cache.memory.clear()
        assert cache.add("k", 3) is False
        assert cache["k"] == 1


def test_replace(cache):
    assert cache.replace("k", 1) is False and "k" not in cache
    cache["k"] = 1
    assert cache.replace("k", 2) is True and cache["k"] == 2
    if cache.directory is not None:
        cache.memory.clear()
        assert cache.replace("k", 3) is True and cache["k"] == 3


def test_compare_and_swap(cache):
    assert cache.compare_and_swap("k", 1, "x") is False
    assert "k" not in cache
    first = cache.put("k", "a").version
    assert cache.compare_and_swap("k", first + 1000, "x") is False
    assert cache["k"] == "a"
    assert cache.compare_and_swap("k", first, "b") is True
    assert cache.compare_and_swap("k", first, "c") is False
    assert cache["k"] == "b"
    if cache.directory is not None:
        cache.memory.clear()
    assert cache.compare_and_swap("k", cache.info("k").version, "d") is True
    cache.touch("k", 1000)
    assert cache.compare_and_swap("k", cache.entry("k").info.version, "e") is True
    assert cache["k"] == "e"


def test_a_removed_entry_has_no_version(cache):
    version = cache.put("k", "a").version
    cache.delete("k")
    cache["k"] = "b"
    assert cache.compare_and_swap("k", version, "c") is False
    assert cache["k"] == "b"


def test_versions_grow(cache):
    versions = [cache.put("k", 1).version, cache.put("l", 1).version]
    cache.incr("k")
    versions.append(cache.info("k").version)
    cache.delete("k")
    cache.add("k", 2)
    versions.append(cache.info("k").version)
    cache.clear()
    versions.append(cache.put("k", 3).version)
    assert versions == sorted(set(versions))


def test_versions_are_never_used_twice_in_a_directory(directory):
    highest = 0
    for _ in range(3):
        with hutch.Cache(directory) as cache:
            version = cache.put("k", 1).version
            assert version > highest
            highest = cache.put("l", 1).version


def test_increment(cache):
    assert cache.incr("n") == 1
    assert cache.incr("n", 10) == 11
    assert cache.decr("n", 20) == -9
    assert cache["n"] == -9
    assert cache.incr("m", 5, default=100) == 105
    assert cache.decr("o", default=3) == 2
    if cache.directory is not None:
        cache.memory.clear()
    assert cache.incr("n") == -8
    cache["n"] = 2**40
    assert cache.incr("n", -1) == 2**40 - 1
    assert cache.incr("n", 0) == 2**40 - 1


def test_increment_of_a_missing_entry_without_default(cache):
    for delta in (1, -1, 0, 2**63 - 1, -(2**63)):
        with pytest.raises(KeyError):
            cache.incr("n", delta, default=None)
        assert "n" not in cache
    cache["n"] = 5
    assert cache.incr("n", default=None) == 6
    assert cache.incr("n", 0, default=None) == 6
    assert cache.decr("n", 7, default=None) == -1


def test_increment_of_what_is_no_counter(cache):
    texts = "12345678", "text", b"12345678", b"short"
    for value in (*texts, 1.5, [1], None, True, 2**63, 10**30):
        cache["n"] = value
        with pytest.raises(hutch.WrongTypeError) as caught:
            cache.incr("n")
        assert isinstance(caught.value, TypeError)
        assert repr(cache["n"]) == repr(value)


def test_increment_beyond_64_bits(cache):
    for value, delta in ((2**63 - 1, 1), (-(2**63), -1), (2**62, 2**62)):
        cache["n"] = value
        for default in (0, None):
            with pytest.raises(hutch.CounterOverflowError) as caught:
                cache.incr("n", delta, default=default)
            assert isinstance(caught.value, OverflowError)
        assert cache["n"] == value
    with pytest.raises(OverflowError):
        cache.incr("new", 2**63 - 1, default=1)
    assert "new" not in cache


def test_a_text_that_comes_and_goes_is_never_counted(cache):
    stop = threading.Event()

    def write():
        while not stop.is_set():
            cache["k"] = "ABCDEFGH"
            cache.delete("k")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3000):
            try:
                cache.incr("k")
            except hutch.WrongTypeError:
                pass
            value = cache.get("k")
            assert value is None or value == "ABCDEFGH" or type(value) is int
    finally:
        stop.set()
        writer.join()


def test_a_count_is_one_access(cache):
    cache["n"] = 1
    before = cache.stats()
    cache.incr("n")
    assert (cache.stats().hits, cache.stats().misses) == (before.hits, before.misses)


def test_pop(cache):
    cache["k"] = "v"
    assert cache.pop("k") == "v"
    assert cache.pop("k") is None
    assert "k" not in cache
    if cache.directory is not None:
        cache["k"] = "v"
        cache.memory.clear()
        assert cache.pop("k") == "v"
        assert cache.get("k") is None


def test_add_by_many_at_once(cache):
    for key in range(20):
        assert sorted(at_once(6, lambda n, key=key: cache.add(key, n))) == [False] * 5 + [True]


def test_increment_by_many_at_once(cache):
    at_once(5, lambda n: [cache.incr("n", n) for _ in range(100)])
    assert cache["n"] == 100 * (0 + 1 + 2 + 3 + 4)


def test_pop_by_many_at_once(cache):
    for key in range(20):
        cache[key] = "prize"
        assert sorted(at_once(6, lambda n, key=key: cache.pop(key, ""))) == [""] * 5 + ["prize"]


def test_compare_and_swap_by_many_at_once(cache):
    cache["list"] = []

    def append(name: int) -> None:
        for number in range(20):
            while True:
                entry = cache.entry("list")
                grown = entry.value + [[name, number]]
                if cache.compare_and_swap("list", entry.info.version, grown):
                    break

    at_once(4, append)
    found = cache["list"]
    assert len(found) == 80
    for name in range(4):
        assert [number for who, number in found if who == name] == list(range(20))
