"""Limits are hard: what is above one has gone when the call returns."""

from __future__ import annotations

import math
import random

import hutch
import pytest
from conftest import NO_LIMITS
from native import Status, byref, lib, open_raw, options, put, structs, tier

Limits = hutch.TierLimits
Outcome = hutch.Outcome


def test_defaults(directory):
    with hutch.Cache(directory) as cache:
        limits = cache.limits()
    none, quarter = hutch.NO_LIMIT, hutch.MAX_ENTRY_QUARTER
    assert limits.memory == Limits(64 << 20, none, quarter, none, none, none)
    assert limits.disk == Limits(50_000_000, none, quarter, 30 * 86400, none, none)
    with hutch.Cache() as cache:
        assert cache.limits().disk == Limits(), "there is no such tier"


def test_limits_are_what_was_set(directory):
    none = hutch.NO_LIMIT
    memory = Limits(1 << 20, 100, 5000, 1.5, 9, none)
    with hutch.Cache(directory, memory=memory, disk=Limits(count=7), time_to_idle=3) as cache:
        assert cache.limits().memory == memory
        disk = Limits(50_000_000, 7, hutch.MAX_ENTRY_QUARTER, 30 * 86400, 3, none)
        assert cache.limits().disk == disk
        cache.set_limits(memory=Limits(count=none), disk=Limits(time_to_live=math.inf))
        assert cache.limits().memory == Limits(1 << 20, none, 5000, 1.5, 9, none)
        assert cache.limits().disk.time_to_live == none
        cache.set_limits(memory=Limits(), disk=Limits())
        assert cache.limits().memory == Limits(1 << 20, none, 5000, 1.5, 9, none)
        cache.set_limits(memory=Limits(cost=1e9))
        assert cache.limits().memory.cost == 10**9


@pytest.mark.parametrize(
    "field", ["cost", "count", "max_entry", "time_to_live", "time_to_idle"]
)
def test_zero_is_no_limit_at_all(field):
    with hutch.Cache() as cache, pytest.raises(ValueError, match="NO_LIMIT"):
        cache.set_limits(memory=Limits(**{field: 0}))


def test_numbers_that_would_wrap_around():
    for limits in (Limits(cost=-1), Limits(count=2**64), Limits(max_entry=-5)):
        with pytest.raises(ValueError):
            hutch.Cache(memory=limits)
    with pytest.raises(ValueError):
        hutch.Cache(inline_threshold=-1)
    for count in (1.5, math.nan, "64 MiB"):
        with pytest.raises(TypeError, match="memory.count: a number of entries is whole, not"):
            hutch.Cache(memory=Limits(count=count))  # type: ignore[arg-type]


def test_a_view_changes_its_own_part_only(directory):
    status, cache = open_raw(bytes(directory))
    assert status == Status.OK
    _, memory = tier(cache, 1)
    before, after = structs.CacheLimits(), structs.CacheLimits()
    assert lib.hutch_limits(cache, byref(before)) == Status.OK
    wanted = structs.CacheLimits()
    wanted.memory.count = 5
    wanted.disk.count = 6
    assert lib.hutch_set_limits(memory, byref(wanted)) == Status.OK
    assert lib.hutch_limits(cache, byref(after)) == Status.OK
    before.memory.count = 5
    assert bytes(after.memory) == bytes(before.memory)
    assert bytes(after.disk) == bytes(before.disk)
    lib.hutch_cache_release(memory)
    assert lib.hutch_close(cache) == Status.OK


# ---------------------------------------------------------------------- count


def test_count_in_memory_and_the_least_recently_used_goes():
    with hutch.Cache(memory=Limits(count=10), policy="lru") as cache:
        for number in range(10):
            cache[number] = number
        assert cache[0] == 0 and cache[3] == 3
        for number in range(10, 18):
            cache[number] = number
            assert len(cache) == 10
        assert set(cache) == {0, 3, *range(10, 18)}
        assert cache.stats().memory.evictions == 8


def test_what_is_no_use_does_not_save_an_entry():
    with hutch.Cache(memory=Limits(count=3), policy="lru") as cache:
        for number in range(3):
            cache[number] = number
        assert 0 in cache and cache.info(0) and list(cache.items())
        cache[3] = 3
        assert set(cache) == {1, 2, 3}


@pytest.mark.parametrize("storage", ["mixed", "sqlite", "file"])
def test_count_on_disk(directory, storage):
    with hutch.Cache(directory, storage=storage, disk=Limits(count=10)) as cache:
        for number in range(40):
            cache[number] = b"x" * (number * 1000)
            assert len(cache.disk) <= 10
        assert 39 in cache.disk
        assert cache.stats().disk.evictions == 30
        # Evicted on disk only: memory still has them.
        assert set(cache.memory) == set(range(40))
        assert len(cache) == 40


# ----------------------------------------------------------------------- cost


def test_cost_in_memory():
    with hutch.Cache(memory=Limits(cost=100_000)) as cache:
        for number in range(100):
            cache[number] = b"x" * (number * 97 % 5000)
            assert cache.cost() <= 100_000
        assert cache.cost() > 50_000
        assert 99 in cache


@pytest.mark.parametrize("storage", ["mixed", "sqlite", "file"])
def test_cost_on_disk(directory, storage):
    limit = 2_000_000
    with hutch.Cache(directory, storage=storage, disk=Limits(cost=limit)) as cache:
        for number in range(120):
            cache[number] = b"x" * (number * 7919 % 60_000)
            assert cache.disk.cost() <= limit
        assert 119 in cache.disk and len(cache.disk) < 120
        assert cache.stats().disk.evictions > 0
        assert cache.stats().disk.failures == 0


def test_overwriting_is_charged_once(cache):
    cache["k"] = b"x" * 3000
    once = cache.memory.cost() if cache.directory else cache.cost()
    for number in range(50):
        cache["k"] = b"y" * (number * 500)
    cache["k"] = b"z" * 3000
    assert (cache.memory.cost() if cache.directory else cache.cost()) == once
    cache.delete("k")
    assert (cache.memory.cost() if cache.directory else cache.cost()) == 0


def test_an_explicit_cost_replaces_the_charge_in_memory():
    with hutch.Cache(memory=Limits(cost=10, max_entry=hutch.NO_LIMIT)) as cache:
        for number in range(20):
            cache.set(number, b"x" * 1000, cost=1)
        assert len(cache) == 10 and cache.cost() == 10
        cache.set("heavy", b"", cost=8)
        assert cache.cost() <= 10 and "heavy" in cache and len(cache) == 3


def test_no_limit():
    with hutch.Cache(memory=NO_LIMITS) as cache:
        for number in range(70):
            cache[number] = b"x" * (1 << 20)
        assert len(cache) == 70 and cache.cost() > 70 << 20


# ------------------------------------------------------------- a single entry


def test_too_large_for_memory_alone():
    with hutch.Cache(memory=Limits(max_entry=1000)) as cache:
        cache["k"] = b"small"
        with pytest.raises(hutch.TooLargeError) as caught:
            cache["k"] = b"x" * 2000
        assert isinstance(caught.value, ValueError)
        assert "k" not in cache, "the older value must not stay"
        assert cache.stats().memory.refusals == 1


def test_a_quarter_of_the_cost_as_it_then_is():
    with hutch.Cache(memory=Limits(cost=100_000)) as cache:
        cache["k"] = b"x" * 20_000
        with pytest.raises(hutch.TooLargeError):
            cache["l"] = b"x" * 26_000
        cache.set_limits(memory=Limits(cost=200_000))
        cache["l"] = b"x" * 26_000


def test_too_large_for_memory_but_not_for_the_disk(directory):
    with hutch.Cache(directory, memory=Limits(max_entry=1000)) as cache:
        cache["k"] = b"small"
        result = cache.put("k", b"x" * 2000)
        assert (result.memory, result.disk) == (Outcome.TOO_LARGE, Outcome.STORED)
        assert result.partial
        assert "k" not in cache.memory
        assert cache["k"] == b"x" * 2000
        assert cache.set("k", b"y" * 2000) is True
        assert cache["k"] == b"y" * 2000


@pytest.mark.parametrize("storage", ["mixed", "sqlite", "file"])
def test_too_large_for_the_disk_but_not_for_memory(directory, storage):
    with hutch.Cache(directory, storage=storage, disk=Limits(max_entry=100_000)) as cache:
        cache["k"] = b"small"
        result = cache.put("k", b"x" * 200_000)
        assert (result.memory, result.disk) == (Outcome.STORED, Outcome.TOO_LARGE)
        assert cache["k"] == b"x" * 200_000
        cache.memory.clear()
        assert cache.get("k") is None, "the older value must not come back from the disk"
        assert cache.stats().disk.refusals == 1
    with hutch.Cache(directory, storage=storage) as cache:
        assert cache.get("k") is None


def test_too_large_for_both(directory):
    tight = Limits(max_entry=10_000)
    with hutch.Cache(directory, memory=tight, disk=tight) as cache:
        cache["k"] = b"small"
        with pytest.raises(hutch.TooLargeError):
            cache["k"] = b"x" * 100_000
        assert cache.get("k") is None and len(cache) == 0


def test_the_result_is_told_with_the_failure():
    status, cache = open_raw(None, options())
    assert status == Status.OK
    limits = structs.CacheLimits()
    limits.memory.max_entry = 500
    assert lib.hutch_set_limits(cache, byref(limits)) == Status.OK
    result = structs.PutResult()
    assert put(cache, b"k", b"x" * 1000, None, byref(result)) == Status.TOO_LARGE
    assert (result.memory, result.disk) == (Outcome.TOO_LARGE, Outcome.NONE)
    assert lib.hutch_close(cache) == Status.OK


# ----------------------------------------------------------------- new limits


def test_a_smaller_limit_takes_effect_at_once(directory):
    with hutch.Cache(directory) as cache:
        for number in range(100):
            cache[number] = b"x" * 1000
        cache.set_limits(memory=Limits(count=10))
        assert len(cache.memory) == 10 and len(cache.disk) == 100
        cache.set_limits(disk=Limits(count=20))
        assert len(cache.disk) <= 20
        cache.set_limits(memory=Limits(cost=5000))
        assert cache.memory.cost() <= 5000
        none = hutch.NO_LIMIT
        cache.set_limits(memory=Limits(cost=none, count=none), disk=Limits(count=none))
        for number in range(100):
            cache[number] = b"x"
        assert len(cache.memory) == len(cache.disk) == len(cache) == 100


def test_small_popular_entries_stay_under_the_default_policy():
    """Each fifth request is for one of 50 entries of which ten fill the cache."""
    numbers = random.Random(3)
    limits = Limits(cost=1_000_000)
    with hutch.Cache(memory=limits) as cache, hutch.Cache(memory=limits, policy="lru") as lru:
        hits = [0, 0]
        for step in range(10_000):
            key, cost = numbers.randrange(400), 1000
            if step % 5 == 4:
                key, cost = 1000 + numbers.randrange(50), 100_000
            for number, each in enumerate((cache, lru)):
                if each.get(key) is None:
                    each.put(key, b"value", cost=cost)
                    assert each.cost() <= 1_000_000
                elif cost == 1000 and step >= 5000:
                    hits[number] += 1
        assert hits[0] > 0.9 * 4000 and hits[1] < 0.4 * 4000


@pytest.mark.parametrize("storage", ["mixed", "log"])
def test_a_smaller_cost_on_disk(directory, storage):
    # Less than two segments of the log that an unlimited directory has.
    with hutch.Cache(directory, storage=storage, disk=Limits(cost=hutch.NO_LIMIT)) as cache:
        for number in range(200):
            cache[number] = b"x" * 30_000
        cache.set_limits(disk=Limits(cost=2_000_000))
        assert cache.disk.cost() <= 2_000_000
        assert 0 < len(cache.disk) < 100


def test_a_cost_below_two_segments_of_a_log_keeps_what_fits(directory):
    disk = Limits(cost=hutch.NO_LIMIT)
    with hutch.Cache(directory, storage="log", disk=disk, workers=0) as cache:
        for number in range(2000):
            cache.disk.set(number, b"x" * 1000)
        cache.set_limits(disk=Limits(500_000))
        kept = len(cache.disk)
        assert 495_000 < cache.disk.cost() <= 500_000 and 400 < kept < 500
        assert sorted(cache.disk) == list(range(2000 - kept, 2000))
        for number in range(2000, 3000):
            cache.disk.set(number, b"x" * 1000)
            assert cache.disk.cost() <= 500_000
        assert len(cache.disk) >= kept - 1


def test_min_free(tmp_path):
    """No file system has so much: everything goes, and a put is refused, until less is wanted."""
    # The log store evicts for it in maintenance.
    with hutch.Cache(tmp_path / "cache", storage="mixed", memory=Limits()) as cache:
        cache["k"] = b"value"
        cache.set_limits(disk=Limits(min_free=2**60 - 1))
        assert cache.limits().disk.min_free == 2**60 - 1
        assert len(cache.disk) == 0 and cache.stats().disk.evictions == 1
        assert cache.put("new", b"value").disk.name == "NO_SPACE"
        assert cache.get("new") == b"value" and "new" not in cache.disk
        cache.set_limits(disk=Limits(min_free=0))
        assert cache.put("new", b"value").disk.name == "STORED"


def test_a_cost_of_0_and_the_sum_of_the_sizes():
    with hutch.Cache() as cache:
        for i in range(10):
            cache.set(i, b"x" * 1000, cost=0)
        assert cache.cost() == 0
        assert cache.info(3).cost == 0
        cache.set("costly", b"x" * 500, cost=7)
        assert cache.cost() == 7
        assert cache.value_bytes() == 10_500
        cache.clear()
        assert cache.value_bytes() == 0
