"""Test cases of the caches that Hutch comes from, by their names there: those that found a
difference once. docs/ancestors.md has what is different on purpose."""

from __future__ import annotations

import threading

import hutch
from conftest import NO_LIMITS


def test_PINCache_testObjectRemoveAll(directory):
    with hutch.Cache(directory) as cache:
        for i in range(3):
            cache.set(i, b"x" * 50_000)
        cache.clear()
        assert len(cache) == len(cache.disk) == 0
        assert cache.value_bytes() == cache.disk.value_bytes() == 0


def test_PINCache_testDiskByteCountWithExistingKey(directory):
    with hutch.Cache(directory) as cache:
        cache.set("key", b"x" * 262_144)
        before = cache.disk.value_bytes()
        cache.set("key", b"y" * 262_144)
        assert cache.disk.value_bytes() == before == 262_144


def test_PINCache_testMemoryCostByDate():
    now = [1_700_000_000 * 10**9]
    with hutch.Cache(clock=lambda: now[0], workers=0, memory=NO_LIMITS, policy="lru") as cache:
        for i in range(4):
            cache.set(f"key{i}", b"", cost=1)
            now[0] += 3600 * 10**9
        assert cache.trim("accessed_before", now[0] / 10**9 - 2.5 * 3600) == 2
        assert sorted(cache) == ["key2", "key3"]
        assert cache.cost() == 2


def test_PINOperationGroup_testWaitUntilOperationsComplete():
    queue = hutch.Queue()
    done = []
    group = hutch.Group(queue)
    queue.submit(done.append, 1, group=group)
    queue.submit(done.append, 2, group=group)
    assert group.wait(60)
    assert sorted(done) == [1, 2]


def test_PINOperationGroup_testCancelation():
    queue = hutch.Queue()
    group, told = hutch.Group(queue), []
    queue.submit(told.append, "ran", group=group)
    group.cancel()
    group.start(lambda tally: told.append(tally.cancelled))
    assert group.wait(60)
    assert told == [1], "the completion comes, with what was cancelled"


def test_YYCache_test_mem_default_cost_is_zero():
    with hutch.Cache(memory=NO_LIMITS) as cache:
        cache.set("key", b"value", cost=0)
        cache.set("other", b"value", cost=3)
        assert cache.cost() == 3


def test_YYCache_test_mem_shouldRemove_is_settable():
    with hutch.Cache() as cache:
        cache["key"] = 1
        cache.set_options(on_memory_warning="expired", on_background="expired")
        cache.notify("memory_warning")
        cache.notify("entered_background")
        assert cache["key"] == 1
        cache.set_options(on_memory_warning="empty")
        cache.notify("memory_warning")
        assert "key" not in cache


def test_YYCache_test_disk_totalCost_is_sum_of_sizes(directory):
    with hutch.Cache(directory) as cache:
        for i in range(10):
            cache.set(i, b"x" * 1000)
        assert cache.disk.value_bytes() == 10_000


def test_YYCache_memory_policy_changes_while_threads_read(directory):
    with hutch.Cache(directory, memory=hutch.TierLimits(count=200)) as cache:
        over = threading.Event()

        def read():
            i = 0
            while not over.is_set():
                cache[i % 300] = i
                assert cache.get(i % 300) is not None
                i += 1

        reader = threading.Thread(target=read)
        reader.start()
        for policy in ("lru", "lfu", "fifo", "adaptive") * 5:
            cache.set_options(policy=policy)
            assert cache.options().policy == policy
        over.set()
        reader.join()
