"""The tiers as caches of their own, and how they stay coherent."""

from __future__ import annotations

import gc
from pathlib import Path

import hutch
import pytest
from conftest import NO_LIMITS
from native import Status, lib, open_raw, tier


@pytest.fixture(params=["mixed", "sqlite", "file"])
def cache(request, directory):
    with hutch.Cache(directory, storage=request.param, memory=NO_LIMITS, disk=NO_LIMITS) as opened:
        yield opened


def test_a_put_is_in_both(cache):
    cache["k"] = "v"
    assert cache.memory["k"] == cache.disk["k"] == "v"
    assert len(cache.memory) == len(cache.disk) == len(cache) == 1
    assert cache.memory.info("k").tier is hutch.Tier.MEMORY
    assert cache.disk.info("k").tier is hutch.Tier.DISK
    assert cache.memory.info("k").version == cache.disk.info("k").version


def test_what_is_found_on_disk_is_brought_into_memory(cache):
    cache["k"] = "v"
    cache.memory.clear()
    assert "k" in cache and "k" not in cache.memory
    assert cache["k"] == "v"
    assert cache.memory["k"] == "v"
    stats = cache.stats()
    assert (stats.memory.hits, stats.disk.hits, stats.memory.misses) == (1, 1, 1)
    assert stats.memory.puts == 2


def test_promotion_carries_the_whole_record(cache):
    cache.set("k", {"a": 1}, expire=100, idle=50, cost=7)
    before = cache.info("k")
    cache.memory.clear()
    assert cache["k"] == {"a": 1}
    after = cache.memory.info("k")
    assert (after.version, after.created, after.expires) == (
        before.version,
        before.created,
        before.expires,
    )
    assert (after.time_to_idle, after.cost, after.size) == (50, 7, before.size)
    assert cache.memory.cost() == 7


def test_memory_put_removes_the_entry_on_disk(cache):
    cache["k"] = "old"
    cache.memory["k"] = "new"
    assert "k" not in cache.disk
    assert cache["k"] == "new"
    assert len(cache) == 1
    cache.memory.delete("k")
    assert cache.get("k") is None, "the older value must not come back from the disk"


def test_disk_put_drops_the_memory_copy(cache):
    cache["k"] = "old"
    cache.disk["k"] = "new"
    assert "k" not in cache.memory
    assert cache["k"] == "new"


def test_a_put_through_a_view_tells_what_the_other_tier_made_of_it(cache):
    cache["k"] = "old"
    result = cache.memory.put("k", "new")
    assert (result.memory, result.disk) == (hutch.Outcome.STORED, hutch.Outcome.REMOVED)
    result = cache.disk.put("k", "newer")
    assert (result.memory, result.disk) == (hutch.Outcome.REMOVED, hutch.Outcome.STORED)


def test_the_disk_view_brings_nothing_into_memory(cache):
    cache.disk["k"] = "v"
    assert cache.disk["k"] == "v" and "k" in cache.disk
    assert cache.disk.entry("k").value == "v"
    assert len(cache.memory) == 0


def test_the_memory_view_does_not_look_at_the_disk(cache):
    cache.disk["k"] = "v"
    assert cache.memory.get("k") is None
    assert cache.memory.info("k") is None
    assert "k" not in cache.memory and list(cache.memory) == []


def test_removal_in_memory_drops_copies_only(cache):
    cache["k"] = "v"
    assert cache.memory.delete("k") is True
    assert cache.memory.delete("k") is False
    assert cache["k"] == "v"
    cache["l"] = "w"
    cache.memory.clear()
    assert len(cache.memory) == 0
    assert cache["k"] == "v" and cache["l"] == "w"
    assert cache.memory.pop("k") == "v"
    assert cache["k"] == "v"


def test_removal_on_disk_takes_the_copies_with_it(cache):
    cache["k"] = "v"
    assert cache.disk.delete("k") is True
    assert cache.get("k") is None and "k" not in cache.memory
    cache["k"] = "v"
    assert cache.disk.pop("k") == "v"
    assert cache.get("k") is None


def test_clear_on_disk_leaves_what_memory_alone_has(cache):
    cache["both"] = 1
    cache.memory["only"] = 2
    cache.disk.clear()
    assert cache.get("both") is None
    assert cache["only"] == 2
    assert list(cache) == ["only"] and len(cache) == 1


def test_remove_and_clear_of_the_whole(cache):
    cache["both"] = 1
    cache.memory["memory"] = 2
    cache.disk["disk"] = 3
    assert set(cache) == {"both", "memory", "disk"}
    assert len(cache) == 3
    assert dict(cache.items()) == {"both": 1, "memory": 2, "disk": 3}
    for key in ("both", "memory", "disk"):
        assert cache.delete(key) is True
        assert key not in cache.memory and key not in cache.disk
    cache.memory["memory"] = 2
    cache.disk["disk"] = 3
    cache.clear()
    assert len(cache) == len(cache.memory) == len(cache.disk) == 0


def test_a_walk_sees_each_entry_once_wherever_it_is(cache):
    expected = {f"key-{number}": "x" * number for number in range(200)}
    for number, (key, value) in enumerate(expected.items()):
        if number % 3 == 0:
            cache.disk[key] = value
        elif number % 3 == 1:
            cache.memory[key] = value
        else:
            cache[key] = value
    assert len(list(cache)) == len(cache) == 200
    assert dict(cache.items()) == expected
    assert {*cache.memory, *cache.disk} == set(expected)


def test_conditional_calls_on_views(cache):
    cache["k"] = "both"
    cache.memory.delete("k")
    assert cache.memory.add("k", "memory") is True
    assert "k" not in cache.disk
    assert cache.disk.add("k", "disk") is True
    assert cache["k"] == "disk"
    assert cache.disk.replace("k", "disk 2") and cache["k"] == "disk 2"
    version = cache.disk.info("k").version
    assert cache.disk.compare_and_swap("k", version, "disk 3") and cache["k"] == "disk 3"
    assert cache.disk.incr("n") == 1
    assert cache["n"] == 1
    assert cache.memory.touch("n", 10) is True
    assert cache.disk.touch("absent", 10) is False


def test_increment_through_the_whole_reaches_the_disk(cache):
    cache["n"] = 5
    assert cache.incr("n") == 6
    cache.memory.clear()
    assert cache["n"] == 6


def test_touch_through_the_whole_reaches_the_disk(cache):
    cache.set("k", "v", expire=10)
    assert cache.touch("k", 1000)
    assert cache.disk.info("k").expires == cache.memory.info("k").expires
    assert cache.disk.info("k").expires > cache.disk.info("k").created + 900


def test_stats_and_costs_of_views(cache):
    cache["k"] = b"x" * 1000
    assert cache.cost() == cache.memory.cost() + cache.disk.cost()
    assert cache.memory.cost() == cache.stats().memory.cost
    assert cache.disk.cost() == cache.stats().disk.cost
    cache.disk.flush()
    cache.memory.flush()


def test_a_cache_in_memory_has_no_disk():
    with hutch.Cache() as cache:
        with pytest.raises(hutch.UnsupportedError):
            cache.disk
        cache.memory["k"] = "v"
        assert cache["k"] == "v"
        cache.memory.clear()
        assert len(cache) == 0


def test_a_view_keeps_its_cache_open():
    view = hutch.Cache().memory
    gc.collect()
    view["k"] = "v"
    assert view["k"] == "v"


def test_a_view_of_a_closed_cache(directory):
    cache = hutch.Cache(directory)
    memory, disk = cache.memory, cache.disk
    cache["k"] = "v"
    cache.close()
    for view in (memory, disk):
        with pytest.raises(hutch.ClosedError):
            view["k"]
        with pytest.raises(hutch.ClosedError):
            view["k"] = 1
    with pytest.raises(hutch.ClosedError):
        cache.memory


def test_views_of_views_and_no_such_tier(directory):
    status, cache = open_raw(bytes(directory))
    assert status == Status.OK
    assert tier(cache, 0)[0] == tier(cache, 3)[0] == Status.UNSUPPORTED
    status, disk = tier(cache, 2)
    assert status == Status.OK
    status, memory = tier(disk, 1)
    assert status == Status.OK
    assert lib.hutch_put(cache, b"k", 1, b"v", 1, None, None) == Status.OK
    assert lib.hutch_remove(memory, b"k", 1) == Status.OK
    assert lib.hutch_contains(disk, b"k", 1) == Status.OK
    # Closing a view gives up the view, not the cache.
    assert lib.hutch_close(memory) == Status.OK
    lib.hutch_cache_release(disk)
    assert lib.hutch_contains(cache, b"k", 1) == Status.OK
    assert lib.hutch_close(cache) == Status.OK


WHERE = {"through": (True, True), "memory": (True, False), "disk": (False, True)}


def writes(cache: hutch.Cache, file: Path, policy: str | None) -> dict:
    """Each call that stores, by the key that it has stored."""
    for key in ("replaced", "swapped"):
        cache[key] = b"old"
    own = {} if policy is None else {"write_policy": policy}
    cache.set("set", b"new", **own)
    cache.put("put", b"new", **own)
    cache.add("added", b"new", **own)
    cache.replace("replaced", b"new", **own)
    cache.compare_and_swap("swapped", cache.info("swapped").version, b"new", **own)
    cache.set_many({"many": b"new"}, **own)
    cache.put_file("file", file, **own)
    with cache.writer("written", **own) as writer:
        writer.write(b"new")
    return dict.fromkeys(
        ["set", "put", "added", "replaced", "swapped", "many", "file", "written"], b"new"
    )


@pytest.mark.parametrize("policy", list(WHERE))
@pytest.mark.parametrize("whose", ["the put's", "the cache's"])
def test_write_policies(tmp_path, policy, whose):
    file = tmp_path / "file"
    file.write_bytes(b"new")
    chosen = {"write_policy": policy} if whose == "the cache's" else {}
    with hutch.Cache(tmp_path / "cache", **chosen) as cache:
        expected = writes(cache, file, None if chosen else policy)
        in_memory, on_disk = WHERE[policy]
        assert cache.disk.get_many(expected) == (expected if on_disk else {})
        assert cache.memory.get_many(expected) == (expected if in_memory else {})
        for call in (cache.set, cache.put, cache.add, cache.replace):
            with pytest.raises(ValueError, match="write_policy is"):
                call("set", b"newer", write_policy="both")
        assert cache["set"] == b"new"


def test_writing_on_eviction(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"new")
    # The log store writes at once.
    with hutch.Cache(tmp_path / "cache", storage="mixed", write_policy="on_eviction") as cache:
        expected = writes(cache, file, None)
        at_once = {key: expected[key] for key in ("file", "written")}
        assert cache.memory.get_many(expected) == expected
        assert cache.disk.get_many(expected) == at_once
        assert len(cache) == len(expected)
        assert sorted(cache) == sorted(expected)
        cache.memory.clear()
        assert cache.memory.get_many(expected) == {}
        assert cache.disk.get_many(expected) == expected
        cache.set("set", b"newer")
        assert "set" not in cache.disk
    with hutch.Cache(tmp_path / "cache") as cache:
        assert cache.get_many(expected) == {**expected, "set": b"newer"}
    with pytest.raises(hutch.InvalidArgumentError):
        hutch.Cache(tmp_path / "shared", sharing="shared", write_policy="on_eviction")


@pytest.mark.parametrize("storage", ["log", "mixed"])
def test_a_value_of_any_size_is_read_from_disk_in_one_access(storage, directory):
    """The accelerator copies values up to 1,024 bytes to its stack, and asks for the size of others."""
    sizes = [0, 1, 1000, 1023, 1024, 1025, 5000, 100_000, 3_000_000]
    values = {f"bytes {size}": b"b" * size for size in sizes}
    values |= {f"text {size}": "é" * size for size in sizes}
    values["list"] = ["x" * 2000, 1, None]
    with hutch.Cache(directory, storage=storage, memory=NO_LIMITS, disk=NO_LIMITS) as cache:
        for key, value in values.items():
            cache[key] = value
        before = cache.stats().disk.hits
        for key, value in values.items():
            assert cache.disk[key] == value
            assert cache.disk.get(key) == value
        assert cache.stats().disk.hits == before + 2 * len(values)
        assert cache.disk.get("bytes") is None
