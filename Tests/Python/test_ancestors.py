"""Test cases of the caches that Hutch comes from, by their names there: those that found a
difference once, or had no counterpart. docs/ancestors.md has what is in another form."""

from __future__ import annotations

import asyncio
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


def test_PINCache_testTTLCacheIsSet(directory):
    with hutch.Cache(directory) as cache:
        assert not cache.options().ages_on_trim
    with hutch.Cache(directory, ages_on_trim=True) as cache:
        assert cache.options().ages_on_trim


def test_PINCache_testTTLCacheObjectAccess(directory):
    now = [1_700_000_000 * 10**9]
    for ages_on_trim in (False, True):
        chosen = {"ages_on_trim": ages_on_trim, "time_to_live": 2, "clock": lambda: now[0]}
        with hutch.Cache(directory, **chosen) as cache:
            cache.clear()
            cache["key"] = "value"
            now[0] += 3 * 10**9
            found = "value" if ages_on_trim else None
            assert cache.get("key") == cache.disk.get("key") == found
            assert list(cache) == (["key"] if ages_on_trim else [])
            cache.expire()
            assert cache.get("key") is None and list(cache) == []


class Archive:
    """A serializer: of one kind of object, and by the names of NSCoder."""

    name = "archive"

    def dumps(self, image):
        return image.pixels

    def loads(self, data):
        return Image(data)


class Image:
    def __init__(self, pixels):
        self.pixels = pixels


def test_PINCache_initWithSerializer(directory):
    image = Image(b"x" * 262_144)
    with hutch.Cache(directory, objects=True, serializer=Archive()) as cache:
        cache.objects["key"] = image
        assert cache.objects["key"] is image, "memory has the object itself"
        assert cache.value_bytes() == 262_144
        cache.memory.clear()
        again = cache.objects["key"]
        assert again is not image and again.pixels == image.pixels
        assert cache.objects["key"] is again


def test_YYCache_test_mem_object_in_composed_cache_falls_to_disk(directory):
    memory = hutch.TierLimits(count=1)
    chosen = {"objects": True, "serializer": Archive(), "memory": memory}
    with hutch.Cache(directory, write_policy="on_eviction", **chosen) as cache:
        for name in ("first", "second"):
            cache.objects[name] = Image(name.encode())
        cache.flush()
        assert len(cache.memory) == 1 and sorted(cache.disk) == ["first", "second"]
        assert cache.objects["first"].pixels == b"first"
    with hutch.Cache(directory, **chosen) as cache:
        assert cache.objects["second"].pixels == b"second"


def test_YYCache_test_disk_customArchive(directory):
    with hutch.Cache(directory, objects=True, serializer=Archive(), storage="file") as cache:
        cache.objects.set("key", Image(b"pixels"), write_policy="disk")
        with open(cache.path("key"), "rb") as file:
            assert file.read() == b"pixels"


def test_YYCache_test_mem_setObject_nil_removes():
    with hutch.Cache() as cache:
        cache["key"] = "value"
        assert cache.delete("key") and "key" not in cache


def test_YYCache_test_disk_totalCountWithBlock(directory):
    with hutch.Cache(directory) as cache:
        cache["key"] = "value"
        assert asyncio.run(cache.disk.acount()) == 1
        assert asyncio.run(cache.disk.acost()) == cache.disk.cost()


def test_PINCache_initWithName_operationQueue(tmp_path):
    queue = hutch.Queue(1)
    with hutch.Cache(tmp_path / "a", queue=queue) as a, hutch.Cache(queue=queue) as b:
        assert a.queue() == b.queue() == queue
        queue.suspend()
        order = [queue.submit(len, "abc"), a.queue().submit(len, "ab"), b.queue().submit(len, "a")]
        assert not queue.wait_all(0)
        queue.resume()
        assert [task.result() for task in order] == [3, 2, 1]


def test_PINOperationQueue_sharedOperationQueue():
    done = []
    shared = hutch.shared_queue()
    assert shared == hutch.shared_queue()
    tasks = [shared.submit(done.append, i) for i in range(10)]
    assert all(task.wait(60) for task in tasks)
    assert sorted(done) == list(range(10))


def test_PINCache_sharedCache(directory):
    with hutch.Cache(directory) as one, hutch.Cache(directory) as other:
        one["key"] = "value"
        assert other.memory.get("key") == "value", "one cache for all of the process"
