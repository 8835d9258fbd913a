"""Walks: everything that stays is seen once, no lock is held, nothing is an access."""

from __future__ import annotations

import ctypes
import random

import hutch
import pytest
from conftest import NO_LIMITS
from native import Status, byref, lib, open_raw, put, structs


def fill(cache, count: int) -> dict:
    expected = {}
    for number in range(count):
        key = (f"key-{number}", number, b"%d" % number)[number % 3]
        cache[key] = expected[key] = {"n": number, "filler": "x" * (number * 37 % 2000)}
    return expected


def test_everything_is_seen_once(cache):
    expected = fill(cache, 500)
    assert dict(cache.items()) == expected
    keys = list(cache)
    assert len(keys) == len(set(keys)) == 500 and set(keys) == set(expected)


def test_an_empty_cache(cache):
    assert list(cache) == list(cache.items()) == list(cache.values()) == []


def test_a_walk_is_no_access(cache, clock):
    if cache.directory is not None:
        fill(cache, 50)
        cache.memory.clear()
        before = cache.stats()
        assert len(list(cache.items())) == 50
        assert len(cache.memory) == 0
        assert cache.stats().hits == before.hits
    cache.set("k", 1, idle=10)
    clock.advance(6)
    assert "k" in dict(cache.items())
    clock.advance(6)
    assert "k" not in cache


def test_removing_what_the_walk_is_at(cache):
    expected = fill(cache, 300)
    seen = []
    for key in cache:
        seen.append(key)
        assert cache.delete(key) is True
    assert sorted(map(repr, seen)) == sorted(map(repr, expected))
    assert len(cache) == 0


def test_entries_that_come_and_go_meanwhile(cache, seed):
    source = random.Random(seed)
    staying = {f"stays-{number}" for number in range(300)}
    going = [f"goes-{number}" for number in range(300)]
    for key in [*staying, *going]:
        cache[key] = 1
    source.shuffle(going)
    seen = []
    for key in cache:
        seen.append(key)
        if going:
            cache.delete(going.pop())
        if len(seen) < 500:
            cache[f"comes-{len(seen)}"] = 1
        # What stays is written and promoted meanwhile, and is still seen once.
        cache[source.choice(sorted(staying))] = 2
    assert len(seen) == len(set(seen)), "an entry was seen twice"
    assert staying <= set(seen)


def test_a_clear_ends_a_walk(cache):
    fill(cache, 300)
    walk = iter(cache.items())
    next(walk)
    cache.clear()
    # Keys may have been fetched before; values of a cleared cache are not given out.
    assert list(walk) == []


def test_expired_entries_are_not_seen(cache, clock):
    for number in range(100):
        cache.set(number, number, expire=10 if number % 2 else 100)
    clock.advance(11)
    assert set(cache) == set(range(0, 100, 2))


def test_an_iterator_that_is_left(cache):
    fill(cache, 10)
    walk = iter(cache)
    next(walk)
    del walk
    cache["k"] = 1
    assert "k" in cache


def test_an_iterator_after_close(directory):
    cache = hutch.Cache(directory)
    fill(cache, 200)
    walk = iter(cache)
    next(walk)
    cache.close()
    with pytest.raises(hutch.ClosedError):
        for _ in walk:
            pass


def test_keys_of_other_programs(cache):
    raw = [b"\x80\x81", b"\xfe01", b"\xfe", b"\xff", b"plain", b"\x00" * 100]
    for key in raw:
        assert put(cache._pointer, key, b"v") == Status.OK
    keys = list(cache)
    assert {hutch.key_to_bytes(key) for key in keys} == set(raw)
    assert all(cache[key] == b"v" for key in keys)


# ---------------------------------------------------------------------- in C


def open_filled(count: int):
    status, cache = open_raw()
    assert status == Status.OK
    for number in range(count):
        assert put(cache, b"%d" % number, b"v" * number) == Status.OK
    return cache


def test_each():
    cache = open_filled(100)
    seen = {}

    @structs.VisitorFunction
    def visit(context, key, size, info):
        assert context == 77
        seen[ctypes.string_at(key, size)] = info.contents.size
        return 0

    assert lib.hutch_each(cache, visit, 77) == Status.OK
    assert seen == {b"%d" % number: number for number in range(100)}
    assert lib.hutch_close(cache) == Status.OK


def test_each_stops_when_told():
    cache = open_filled(100)
    calls = []

    @structs.VisitorFunction
    def visit(context, key, size, info):
        calls.append(1)
        return 1 if len(calls) == 3 else 0

    assert lib.hutch_each(cache, visit, None) == Status.OK
    assert len(calls) == 3
    assert lib.hutch_close(cache) == Status.OK


def test_a_visitor_may_change_the_cache_but_not_wait_for_it():
    cache = open_filled(50)
    answers = set()

    @structs.VisitorFunction
    def visit(context, key, size, info):
        assert lib.hutch_remove(cache, key, size) == Status.OK
        answers.add(lib.hutch_flush(cache))
        answers.add(lib.hutch_close(cache))
        return 0

    assert lib.hutch_each(cache, visit, None) == Status.OK
    assert answers == {Status.DEADLOCK}
    count = ctypes.c_uint64()
    assert lib.hutch_count(cache, byref(count)) == Status.OK
    assert count.value == 0
    assert lib.hutch_close(cache) == Status.OK


def test_a_cursor_before_its_first_step_and_after_its_last():
    cache = open_filled(1)
    cursor, value, info = structs.CursorPointer(), structs.ValuePointer(), structs.EntryInfo()
    key, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert lib.hutch_cursor_create(cache, byref(cursor)) == Status.OK
    assert lib.hutch_cursor_value(cursor, byref(value)) == Status.NOT_FOUND and not value
    assert lib.hutch_cursor_info(cursor, byref(info)) == Status.NOT_FOUND
    assert lib.hutch_cursor_next(cursor, byref(key), byref(size)) == Status.OK
    assert ctypes.string_at(key, size.value) == b"0"
    assert lib.hutch_cursor_info(cursor, byref(info)) == Status.OK and info.size == 0
    assert lib.hutch_remove(cache, b"0", 1) == Status.OK
    assert lib.hutch_cursor_value(cursor, byref(value)) == Status.NOT_FOUND
    for _ in range(2):
        assert lib.hutch_cursor_next(cursor, byref(key), byref(size)) == Status.NOT_FOUND
    lib.hutch_cursor_release(cursor)
    assert lib.hutch_close(cache) == Status.OK


def test_a_cursor_keeps_its_cache_alive():
    cache = open_filled(3)
    cursor = structs.CursorPointer()
    key, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert lib.hutch_cursor_create(cache, byref(cursor)) == Status.OK
    assert lib.hutch_close(cache) == Status.OK
    assert lib.hutch_cursor_next(cursor, byref(key), byref(size)) == Status.CLOSED
    lib.hutch_cursor_release(cursor)


def test_orders(cache, clock):
    for number in range(50):
        cache.set(number, number, idle=1000)
        clock.advance(1)
    assert list(cache.keys("insertion")) == list(range(50))
    assert list(reversed(cache)) == list(range(49, -1, -1))
    for number in range(0, 50, 2):
        assert cache.get(number) == number
        clock.advance(1)
    by_access = [*range(1, 50, 2), *range(0, 50, 2)]
    assert list(cache.keys("access")) == by_access
    assert list(cache.values("access", reverse=True)) == by_access[::-1]
    cache.touch(7)
    assert [key for key, _ in cache.items("insertion")][-1] == 7


@pytest.mark.parametrize("storage", ["mixed", "log"])
def test_an_ordered_walk_meets_what_an_earlier_opening_has_written(directory, storage):
    # By the system's clock: each opening has one of its own.
    for number in range(30):
        with hutch.Cache(directory, storage=storage) as cache:
            cache[number] = number
        with hutch.Cache(directory, storage=storage) as cache:
            assert list(cache.keys("insertion")) == list(range(number + 1))


def test_a_bad_order(cache):
    for order in ("", "key", 1, []):
        with pytest.raises(ValueError, match="order is 'insertion' or 'access', not "):
            next(iter(cache.keys(order)))
    with pytest.raises(ValueError):
        next(iter(cache.keys(reverse=True)))


def test_the_numbers_of_orders_are_the_headers():
    from conftest import ROOT
    from hutch import _walks

    header = (ROOT / "include" / "hutch.h").read_text()
    for name, number in {**_walks._ORDERS, "descending": _walks._DESCENDING}.items():
        assert f"HUTCH_ORDER_{name.upper()} = {number}" in header


def test_peekitem(cache, clock):
    with pytest.raises(KeyError):
        cache.peekitem()
    for number in range(5):
        cache[number] = str(number)
        clock.advance(1)
    assert cache.peekitem() == cache.peekitem(last=True) == (4, "4")
    assert cache.peekitem(last=False) == (0, "0")
    cache[0] = "new"
    assert cache.peekitem() == (0, "new")


@pytest.mark.parametrize("kind", ["memory only", "mixed", "sqlite", "file"])
def test_expire_removes_what_has_expired(directory, clock, kind):
    # The cache's own thread would remove some of them first.
    options = {"memory": NO_LIMITS, "disk": NO_LIMITS, "clock": clock, "workers": 0}
    if kind != "memory only":
        options |= {"directory": directory, "storage": kind}
    with hutch.Cache(**options) as cache:
        for number in range(100):
            cache.set(number, number, expire=10 if number % 2 else 100)
        assert cache.expire() == 0
        clock.advance(11)
        tiers = 2 if cache.directory else 1
        assert cache.expire() == 50 * tiers and cache.expire() == 0
        assert set(cache) == set(range(0, 100, 2))
