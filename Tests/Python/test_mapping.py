"""A cache as a mapping, with python-diskcache's methods: the plain path of each."""

from __future__ import annotations

import math
import threading

import hutch
import pytest


def test_set_get_delete(cache):
    cache["a"] = b"one"
    assert cache["a"] == b"one"
    assert "a" in cache and "b" not in cache
    assert cache.get("a") == b"one"
    cache["a"] = b"two"
    assert cache["a"] == b"two" and len(cache) == 1
    del cache["a"]
    assert "a" not in cache and len(cache) == 0
    with pytest.raises(KeyError):
        cache["a"]
    with pytest.raises(KeyError):
        del cache["a"]
    assert cache.delete("a") is False
    assert cache.get("a") is None and cache.get("a", 7) == 7


def test_set_returns_true_and_put_the_outcomes(cache):
    assert cache.set("a", 1) is True
    result = cache.put("a", 2)
    assert result.version == cache.info("a").version
    on_disk = hutch.Outcome.NONE if cache.directory is None else hutch.Outcome.STORED
    assert (result.memory, result.disk, result.partial) == (hutch.Outcome.STORED, on_disk, False)


@pytest.mark.parametrize(
    "value",
    [b"", b"\x00", "", "naïve", 0, -(10**40), 2**63 - 1, 1.5, -0.0, math.inf, True, False, None]
    + [[], {}, [1, [2.5, None]], {"a": {"b": ["c"]}}],
    ids=repr,
)
def test_a_value_keeps_its_type(cache, value):
    cache["k"] = value
    for _ in range(2):
        found = cache["k"]
        assert type(found) is type(value) and repr(found) == repr(value)
        if cache.directory is not None:
            cache.memory.clear()
    assert repr(cache.pop("k")) == repr(value)


def test_a_value_of_none_is_no_missing_value(cache):
    cache["k"] = None
    assert cache.get("k", "default") is None
    assert cache.pop("k", "default") is None
    assert cache.pop("k", "default") == "default"


def test_keys_of_three_types(cache):
    keys = [1, "1", b"1", -1, 0, 10**30, "é", b"\x00\xff", b"", "k" * 65535, b"k" * 65534]
    for number, key in enumerate(keys):
        cache[key] = number
    assert len(cache) == len(keys)
    assert {key: cache[key] for key in keys} == {key: n for n, key in enumerate(keys)}
    assert dict(cache.items()) == {key: n for n, key in enumerate(keys)}
    assert set(cache) == set(cache.keys()) == set(keys)
    assert sorted(cache.values()) == list(range(len(keys)))


def test_a_key_that_is_too_long(cache):
    for key in ("k" * 65536, b"k" * 65535):
        with pytest.raises(hutch.InvalidArgumentError) as caught:
            cache[key] = b""
        assert isinstance(caught.value, ValueError)
        assert caught.value.status is hutch.Status.INVALID_ARGUMENT
        assert caught.value.words
        with pytest.raises(ValueError):
            key in cache


@pytest.mark.parametrize("key", [["a"], {"a"}, object(), (1, [2])])
def test_no_key(cache, key):
    for call in (
        lambda: cache[key],
        lambda: cache.set(key, 1),
        lambda: key in cache,
        lambda: cache.delete(key),
        lambda: cache.incr(key),
        lambda: cache.touch(key),
        lambda: cache.info(key),
    ):
        with pytest.raises(TypeError):
            call()


def test_no_value_changes_nothing(cache):
    cache["k"] = "before"
    for value in (object(), {1: range(2)}, {"a", len}):
        with pytest.raises(TypeError):
            cache["k"] = value
    assert cache["k"] == "before"


def test_clear(cache):
    for number in range(100):
        cache[number] = b"x" * number * 500
    cache.clear()
    assert len(cache) == 0 and list(cache) == [] and 5 not in cache
    cache[5] = "anew"
    assert list(cache.items()) == [(5, "anew")]
    cache.clear()
    cache.clear()
    assert cache.get(5) is None


def test_info_and_entry(cache, clock):
    assert cache.info("a") is None and cache.entry("a") is None
    cache.set("a", "four", expire=100, idle=50, cost=7)
    clock.advance(1)
    info = cache.info("a")
    assert info.created == clock.now / 1e9 - 1
    assert info.expires == pytest.approx(info.created + 100)
    assert (info.time_to_idle, info.cost, info.size, info.tier) == (50, 7, 4, hutch.Tier.MEMORY)
    value, record = cache.entry("a")
    assert value == "four" and record.version == info.version and record.size == 4
    if cache.directory is not None:
        cache.memory.clear()
        from_disk = cache.info("a")
        assert from_disk.tier is hutch.Tier.DISK
        assert (from_disk.version, from_disk.created) == (info.version, info.created)
        assert (from_disk.expires, from_disk.cost) == (info.expires, 7)
    cache["b"] = 1
    plain = cache.info("b")
    assert (plain.expires, plain.time_to_idle, plain.cost, plain.size) == (None, None, 0, 8)
    assert plain.version > info.version


def test_stats(cache):
    before = cache.stats()
    assert (before.hits, before.misses) == (0, 0)
    cache["a"] = b"1"
    cache.get("a")
    cache.get("a")
    cache.get("b")
    assert "a" in cache and cache.info("a") and len(list(cache.items())) == 1
    cache.delete("a")
    stats = cache.stats()
    assert (stats.hits, stats.misses) == (2, 1)
    assert (stats.memory.hits, stats.memory.misses) == (2, 1)
    assert stats.memory.puts == 1 and stats.memory.removals == 1 and stats.memory.count == 0
    assert stats.memory.state is hutch.State.UP
    if cache.directory is None:
        assert stats.disk.state is hutch.State.NONE and cache.volume() == 0
    else:
        assert stats.disk.state is hutch.State.UP
        assert (stats.disk.hits, stats.disk.misses, stats.disk.puts) == (0, 1, 1)
        assert cache.volume() == cache.stats().disk.cost


def test_cost_grows_with_what_is_held(cache):
    empty = cache.cost()
    cache["a"] = b"x" * 10_000
    once = cache.cost()
    assert once >= empty + 10_000
    assert cache.cost() == sum(t.cost for t in (cache.stats().memory, cache.stats().disk))


def test_numbers_that_would_wrap_around(cache):
    with pytest.raises(ValueError):
        cache.set("a", 1, cost=-1)
    with pytest.raises(ValueError):
        cache.compare_and_swap("a", -1, 1)
    with pytest.raises(OverflowError):
        cache.incr("a", 2**63)
    with pytest.raises(OverflowError):
        cache.incr("a", 1, default=2**64)
    with pytest.raises(TypeError):
        cache.incr("a", 1.5)
    assert "a" not in cache


def test_many_threads_each_with_its_keys(cache):
    failures = []

    def work(name: int) -> None:
        for number in range(200):
            key = f"{name}-{number % 20}"
            cache[key] = {"n": number}
            found = cache[key]
            if found != {"n": number}:
                failures.append((key, number, found))
            if number % 7 == 0:
                cache.delete(key)
                if cache.get(key) is not None:
                    failures.append((key, "removed"))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_reader_never_sees_a_value_older_than_the_newest_completed_put(cache):
    done = [0]
    failures = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            least = done[0]
            found = cache["k"]
            if found["n"] < least or found["filler"] != "x" * (found["n"] * 97 % 30_000):
                failures.append((least, found["n"]))

    cache["k"] = {"n": 0, "filler": ""}
    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1, 200):
        cache["k"] = {"n": number, "filler": "x" * (number * 97 % 30_000)}
        done[0] = number
        if cache.directory is not None and number % 5 == 0:
            cache.memory.delete("k")
    stop.set()
    for reader in readers:
        reader.join()
    assert failures == []
