"""The options in force, told and changed."""

from __future__ import annotations

import hutch
import pytest


def test_the_defaults_are_told(directory):
    with hutch.Cache(directory) as cache:
        told = cache.options()
    assert told.policy == "adaptive"
    assert told.storage in ("mixed", "log")
    assert (told.sharing, told.durability, told.checksums) == ("shared", "process", True)
    assert (told.workers, told.queue_length, told.close_deadline) == (2, 0, 30)
    assert (told.on_memory_warning, told.on_background, told.low_water) == ("empty", "empty", 50)
    assert told.memory.cost == 64 << 20
    assert told.disk.time_to_live == 30 * 86400
    assert not (told.network_directory or told.disk_optional or told.nonempty)


def test_a_cache_in_memory_has_none_of_a_disk_tier():
    with hutch.Cache(policy="fifo", workers=0) as cache:
        told = cache.options()
    assert (told.policy, told.workers, told.write_policy) == ("fifo", 0, "memory")
    assert told.storage is told.sharing is told.durability is told.checksums is None
    assert told.inline_threshold is None
    assert told.disk == hutch.TierLimits()


def test_what_is_told_opens_another_cache(directory, tmp_path):
    chosen = {
        "policy": "lfu",
        "workers": 3,
        "inline_threshold": 1000,
        "write_policy": "disk",
        "on_background": "expired",
        "low_water": 30,
        "queue_length": 9,
        "close_deadline": 4,
        "nonempty": True,
    }
    with hutch.Cache(directory, **chosen) as cache:
        told = cache.options()
        names = [name for name in told.__dataclass_fields__ if name != "checksums"]
        with hutch.Cache(tmp_path / "other", **{name: getattr(told, name) for name in names}) as b:
            assert b.options() == told
    assert {name: getattr(told, name) for name in chosen} == chosen


def test_options_change_in_use(directory):
    with hutch.Cache(directory) as cache:
        before = cache.options()
        cache["a"] = 1
        cache.set_options(policy="lru", workers=4, on_memory_warning="expired", low_water=10)
        told = cache.options()
        assert (told.policy, told.workers, told.low_water) == ("lru", 4, 10)
        assert (told.on_memory_warning, told.on_background) == ("expired", "empty")
        assert cache.memory.get("a") == 1
        cache.notify("memory_warning")
        assert cache.memory.get("a") == 1
        cache.set_options()
        assert cache.options() == told
        cache.set_options(
            policy="adaptive", workers=2, on_memory_warning="empty", low_water=before.low_water
        )
        assert cache.options() == before


@pytest.mark.parametrize("storage", ["mixed", "log"])
def test_the_disk_tier_evicts_by_its_policy(directory, storage):
    now = 1_700_000_000_000_000_000
    hot = [str(number) for number in range(10)]
    with hutch.Cache(
        directory,
        storage=storage,
        disk=hutch.TierLimits(count=100),
        disk_policy="fifo",
        clock=lambda: now,
    ) as cache:
        assert cache.options().disk_policy == "fifo"
        disk = cache.disk

        def left_after(policy: str) -> int:
            nonlocal now
            cache.clear()
            cache.set_options(disk_policy=policy)
            for number in range(100):
                disk[str(number)] = number
            now += 10**9
            assert [disk[key] for key in hot] == list(range(10))
            now += 10**9
            for number in range(100, 190):
                disk[str(number)] = number
            return sum(key in disk for key in hot)

        assert left_after("fifo") == 0
        assert left_after("lru") == 10
        assert left_after("fifo") == 0
        assert left_after("lfu") == 10
        with pytest.raises(ValueError, match="disk_policy is"):
            cache.set_options(disk_policy="random")
    with hutch.Cache() as cache:
        assert cache.options().disk_policy is None
        with pytest.raises(hutch.UnsupportedError):
            cache.set_options(disk_policy="lru")


def test_what_cannot_change(directory):
    with hutch.Cache(directory) as cache:
        with pytest.raises(ValueError, match="policy is"):
            cache.set_options(policy="random")
        with pytest.raises(ValueError, match="workers"):
            cache.set_options(workers=0)
        with pytest.raises(ValueError, match="low_water"):
            cache.set_options(low_water=101)
    with hutch.Cache(workers=0) as cache, pytest.raises(hutch.UnsupportedError):
        cache.set_options(workers=2)
    with pytest.raises(hutch.ClosedError):
        cache.options()
