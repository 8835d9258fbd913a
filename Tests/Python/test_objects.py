"""References to Python objects in the memory tier."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import hutch
import pytest
from conftest import NO_LIMITS
from hutch import _objects


class Thing:
    """Something that can be watched going."""


def await_end(watch: weakref.ref) -> None:
    while watch() is not None:
        time.sleep(0.001)


def test_an_object_is_itself(cache):
    thing = Thing()
    cache.put_object("key", thing)
    assert cache.get_object("key") is thing
    assert cache.get_object("other") is None
    assert cache.get_object("other", thing) is thing
    assert "key" not in cache
    cache["key"] = "value"
    assert cache["key"] == "value" and cache.get_object("key") is thing
    assert len(cache) == 2 and list(cache) == ["key"]
    assert cache.delete("key")
    assert cache.get_object("key") is thing
    assert cache.delete_object("key")
    assert not cache.delete_object("key")
    assert len(cache) == 0


def test_what_the_cache_lets_go_is_collected(clock):
    with hutch.Cache(memory=NO_LIMITS, clock=clock) as cache:
        things = [Thing() for _ in range(6)]
        watches = [weakref.ref(thing) for thing in things]
        for i, thing in enumerate(things):
            cache.put_object(i, thing, expire=5 if i == 0 else None)
        del things, thing
        gc.collect()
        assert all(watch() is not None for watch in watches)
        clock.advance(5)
        assert cache.get_object(0) is None
        cache.delete_object(1)
        cache.put_object(2, None)
        cache.trim("to_count", 1)
        cache.clear()
        for watch in watches:
            await_end(watch)


def test_close_lets_go(directory):
    numbers = set(_objects._objects)
    for where in (None, directory):
        thing = Thing()
        watch = weakref.ref(thing)
        with hutch.Cache(where) as cache:
            cache.put_object("key", thing)
            del thing
        assert watch() is None
        with pytest.raises(hutch.ClosedError):
            cache.put_object("key", Thing())
    assert set(_objects._objects) == numbers


def test_limits(clock):
    limits = hutch.TierLimits(cost=100, max_entry=50)
    with hutch.Cache(memory=limits, policy="lru", clock=clock) as cache:
        for i in range(10):
            cache.put_object(i, Thing(), cost=30)
        assert len(cache) == 3 and cache.cost() == 90
        with pytest.raises(hutch.TooLargeError):
            cache.put_object("large", Thing(), cost=51)
        with pytest.raises(ValueError):
            cache.put_object("key", Thing(), expire=-1)
        with pytest.raises(ValueError):
            cache.put_object("key", Thing(), cost=-1)


def test_the_disk_has_no_objects(directory):
    with hutch.Cache(directory) as cache:
        with pytest.raises(hutch.UnsupportedError):
            cache.disk.put_object("key", Thing())
        cache.memory.put_object("key", 1)
        assert cache.get_object("key") == 1


def test_an_end_that_calls_back():
    with hutch.Cache() as cache:

        class Last:
            def __del__(self) -> None:
                cache["gone"] = True

        cache.put_object("key", Last())
        cache.delete_object("key")
        while "gone" not in cache:
            time.sleep(0.001)


def test_threads():
    numbers = set(_objects._objects)
    with hutch.Cache(memory=hutch.TierLimits(count=20)) as cache:

        def work(seed: int) -> None:
            for i in range(2000):
                key = (i * 7 + seed) % 50
                if i % 3:
                    found = cache.get_object(key)
                    assert found is None or found == [key]
                else:
                    cache.put_object(key, [key])

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(cache) == 20
    assert set(_objects._objects) == numbers
