"""Time to live and time to idle, on a clock that is set by hand."""

from __future__ import annotations

import math

import hutch
import pytest
from conftest import NO_LIMITS


def gone(cache, key) -> bool:
    """Whether every call agrees that there is no entry, or that there is one."""
    answers = {
        key not in cache,
        cache.info(key) is None,
        key not in list(cache),
        key not in dict(cache.items()),
        cache.get(key) is None,
        cache.entry(key) is None,
    }
    assert len(answers) == 1, "the calls disagree"
    return answers.pop()


def forget_memory(cache) -> None:
    if cache.directory is not None:
        cache.memory.clear()


def test_time_to_live(cache, clock):
    cache.set("k", "v", expire=10)
    clock.advance(9.5)
    assert not gone(cache, "k")
    clock.advance(1)
    assert gone(cache, "k")
    assert cache.delete("k") is False
    assert cache.touch("k") is False
    assert cache.replace("k", 1) is False
    assert cache.compare_and_swap("k", 1, 1) is False
    assert cache.pop("k", "none") == "none"
    assert cache.add("k", "anew") is True


def test_an_expired_counter_starts_anew(cache, clock):
    cache.set("n", 100, expire=10)
    clock.advance(11)
    with pytest.raises(KeyError):
        cache.incr("n", default=None)
    assert cache.incr("n") == 1
    clock.advance(1000)
    assert cache["n"] == 1


def test_on_disk_alone(cache, clock):
    cache.set("k", "v", expire=10)
    forget_memory(cache)
    clock.advance(9.5)
    assert "k" in cache
    clock.advance(1)
    assert gone(cache, "k")


def test_promotion_carries_the_expiry(cache, clock):
    cache.set("k", "v", expire=5)
    forget_memory(cache)
    assert cache["k"] == "v"
    clock.advance(4)
    assert cache["k"] == "v"
    clock.advance(2)
    assert gone(cache, "k")


def test_a_get_does_not_lengthen_a_time_to_live(cache, clock):
    cache.set("k", "v", expire=10)
    for _ in range(3):
        clock.advance(3)
        assert cache["k"] == "v"
    clock.advance(3)
    assert gone(cache, "k")


def test_a_put_renews_everything(cache, clock):
    cache.set("k", "v", expire=5, idle=5, cost=9)
    cache.set("k", "w")
    clock.advance(1000)
    assert cache["k"] == "w"
    assert cache.info("k").cost == 0


def test_time_to_idle(cache, clock):
    cache.set("k", "v", idle=10)
    for _ in range(10):
        clock.advance(6)
        assert cache["k"] == "v"
    clock.advance(11)
    assert gone(cache, "k")


def test_what_is_no_access_does_not_lengthen_a_time_to_idle(cache, clock):
    cache.set("k", "v", idle=10)
    clock.advance(6)
    assert "k" in cache and cache.info("k") is not None
    assert list(cache.items()) == [("k", "v")]
    clock.advance(6)
    assert gone(cache, "k")


def evict(cache) -> None:
    cache.set_limits(memory=hutch.TierLimits(cost=1))
    cache.set_limits(memory=NO_LIMITS)


@pytest.mark.parametrize(
    "forget",
    [
        lambda cache: cache.memory.clear(),
        lambda cache: cache.memory.delete("k"),
        lambda cache: cache.memory.pop("k"),
        evict,
    ],
    ids=["clear", "delete", "pop", "evict"],
)
@pytest.mark.parametrize("storage", ["mixed", "sqlite", "file"])
def test_an_access_in_memory_counts_on_disk(directory, clock, storage, forget):
    options = {"memory": NO_LIMITS, "disk": NO_LIMITS, "clock": clock}
    with hutch.Cache(directory, storage=storage, **options) as cache:
        cache.set("k", "v", idle=10)
        for _ in range(3):
            clock.advance(6)
            assert cache["k"] == "v"
            forget(cache)
            assert "k" not in cache.memory
        clock.advance(11)
        assert gone(cache, "k")


def test_time_to_live_ends_though_there_are_accesses(cache, clock):
    cache.set("k", "v", expire=15, idle=10)
    clock.advance(8)
    assert cache["k"] == "v"
    clock.advance(8)
    assert gone(cache, "k")


def test_touch_starts_the_durations_anew(cache, clock):
    cache.set("k", "v", expire=10)
    version = cache.info("k").version
    clock.advance(8)
    assert cache.touch("k") is True
    assert cache.info("k").created == pytest.approx(clock.now / 1e9)
    assert cache.info("k").version == version
    clock.advance(8)
    assert cache["k"] == "v"
    forget_memory(cache)
    assert cache["k"] == "v"
    clock.advance(3)
    assert gone(cache, "k")


def test_touch_sets_durations(cache, clock):
    cache.set("k", "v", expire=10)
    assert cache.touch("k", 100)
    clock.advance(50)
    assert cache.touch("k", math.inf)
    clock.advance(10**6)
    assert cache["k"] == "v"
    assert cache.touch("k", idle=5)
    clock.advance(6)
    assert gone(cache, "k")
    assert cache.touch("absent", 5) is False


def test_increment_keeps_the_expiry(cache, clock):
    cache.set("n", 1, expire=10)
    created = cache.info("n").created
    clock.advance(6)
    assert cache.incr("n") == 2
    assert cache.info("n").created == created
    clock.advance(6)
    assert gone(cache, "n")


def test_zero_seconds_have_ended_when_the_call_returns(cache, clock):
    cache.set("k", "v", expire=0)
    assert gone(cache, "k")
    cache.set("k", "v")
    assert cache.touch("k", 0)
    assert gone(cache, "k")


def test_a_counter_is_made_with_durations(cache, clock):
    assert cache.incr("requests", expire=60, idle=50) == 1
    clock.advance(40)
    # They are those of the counter that is there.
    assert cache.incr("requests", expire=600) == 2
    clock.advance(30)
    assert cache.incr("requests", expire=5) == 1
    assert cache.decr("left", 1, 10, expire=5) == 9
    clock.advance(6)
    assert gone(cache, "requests")
    assert gone(cache, "left")


@pytest.mark.parametrize("seconds", [-1, -0.001, math.nan])
def test_no_duration(cache, seconds):
    cache["k"] = 1
    for call in (
        lambda: cache.set("k", 2, expire=seconds),
        lambda: cache.set("k", 2, idle=seconds),
        lambda: cache.add("new", 2, expire=seconds),
        lambda: cache.touch("k", seconds),
        lambda: cache.set_limits(memory=hutch.TierLimits(time_to_live=seconds)),
        lambda: hutch.Cache(time_to_live=seconds),
    ):
        with pytest.raises(ValueError):
            call()
    assert cache["k"] == 1 and "new" not in cache


# ------------------------------------------------------------- the tiers' own


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_caches_time_to_live_and_an_entrys_own(directory, clock, on_disk):
    with hutch.Cache(directory if on_disk else None, time_to_live=10, clock=clock) as cache:
        cache["plain"] = 1
        cache.set("shorter", 2, expire=5)
        cache.set("longer", 3, expire=20)
        cache.set("for ever", 4, expire=math.inf)
        assert cache.info("plain").expires == pytest.approx(clock.now / 1e9 + 10)
        assert cache.info("for ever").expires is None
        for seconds, left in ((6, {"plain", "longer", "for ever"}), (6, {"longer", "for ever"})):
            clock.advance(seconds)
            assert set(cache) == left
            forget_memory(cache)
            assert {
                key for key in ("plain", "shorter", "longer", "for ever") if key in cache
            } == left
        clock.advance(10**7)
        assert list(cache) == ["for ever"]


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_caches_time_to_idle_and_an_entrys_own(directory, clock, on_disk):
    with hutch.Cache(directory if on_disk else None, time_to_idle=10, clock=clock) as cache:
        cache["plain"] = 1
        cache.set("own", 2, idle=20)
        cache.set("for ever", 3, idle=math.inf)
        clock.advance(6)
        assert cache["plain"] == 1
        clock.advance(6)
        assert cache["plain"] == 1
        clock.advance(11)
        assert set(cache) == {"for ever"}


@pytest.mark.parametrize("storage", ["log", "mixed"])
def test_a_read_in_memory_is_an_access_for_the_disk_tiers_time_to_idle(directory, clock, storage):
    limits = hutch.TierLimits(time_to_idle=10)
    with hutch.Cache(directory, disk=limits, storage=storage, clock=clock) as cache:
        cache["key"] = "value"
        for _ in range(10):
            clock.advance(8)
            assert cache["key"] == "value"
        cache.memory.clear()
        clock.advance(8)
        assert cache["key"] == "value"
        cache.memory.clear()
        clock.advance(11)
        assert "key" not in cache



def test_on_disk_thirty_days_are_the_default(directory, clock):
    with hutch.Cache(directory, clock=clock) as cache:
        cache["k"] = 1
        cache.set("for ever", 2, expire=math.inf)
        cache.memory.clear()
        clock.advance(29 * 86400)
        assert "k" in cache
        clock.advance(2 * 86400)
        assert gone(cache, "k")
        assert cache["for ever"] == 2


def test_in_memory_there_is_no_default(clock):
    with hutch.Cache(clock=clock) as cache:
        cache["k"] = 1
        clock.advance(10**9)
        assert cache["k"] == 1


def test_a_new_limit_counts_for_what_is_there(cache, clock):
    cache["k"] = 1
    cache.set("own", 2, expire=100)
    clock.advance(20)
    limits = hutch.TierLimits(time_to_live=10)
    cache.set_limits(memory=limits, disk=limits)
    assert gone(cache, "k")
    assert cache["own"] == 2


def test_across_two_openings(directory, clock):
    options = {"memory": NO_LIMITS, "disk": NO_LIMITS, "clock": clock}
    with hutch.Cache(directory, **options) as cache:
        cache.set("short", 1, expire=10)
        cache.set("long", 2, expire=100)
        cache.set("idle", 3, idle=10)
        clock.advance(6)
        assert cache["idle"] == 3
    clock.advance(6)
    with hutch.Cache(directory, **options) as cache:
        assert gone(cache, "short")
        assert cache["long"] == 2
        assert cache["idle"] == 3
        clock.advance(11)
        assert gone(cache, "idle")
        clock.advance(100)
        assert gone(cache, "long")


def test_expirations_are_counted(cache, clock):
    for number in range(10):
        cache.set(number, number, expire=1)
    clock.advance(2)
    assert [cache.get(number) for number in range(10)] == [None] * 10
    stats = cache.stats()
    assert stats.memory.expirations == 10
    assert stats.memory.evictions == stats.disk.evictions == 0
    assert stats.memory.removals == stats.disk.removals == 0


def test_by_a_clock_of_the_hosts_the_count_is_exact(cache, clock):
    for number in range(10):
        cache.set(number, number, expire=number + 0.5)
    for number in range(10):
        assert len(cache) == 10 - number
        clock.advance(1)
    assert len(cache) == 0
