"""Python objects in both tiers: Cache.objects."""

from __future__ import annotations

import gc
import json
import os
import sys
import types
import threading
import time
import weakref

import hutch
import hutch.pickling
import pytest
from hutch import _object_codec, _objects


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    gc.collect()
    end = time.monotonic() + 20
    while _objects._objects and time.monotonic() < end:
        time.sleep(0.001)
    assert not _objects._objects and not _object_codec._encoded


@pytest.fixture
def cache(directory):
    with hutch.Cache(directory, objects=True) as cache:
        yield cache


def empty_memory(cache):
    cache.memory.trim("to_count", 0)
    assert len(cache.memory) == 0


def test_an_object_is_itself_in_memory_and_bytes_on_disk(directory):
    with hutch.Cache(directory, objects=True) as cache:
        value = {"title": "hello", "words": [1, 2.5, None, (3, b"4")]}
        cache.objects["key"] = value
        assert cache.objects["key"] is value is cache.objects.get("key") is cache.get_object("key")
        assert "key" in cache.objects and list(cache) == ["key"] and len(cache) == 1
        copy = cache["key"]
        assert copy == value and copy is not value
        assert cache.disk.get("key") == value
        empty_memory(cache)
        again = cache.objects["key"]
        assert again == value and again is not value and cache.objects["key"] is again
    with hutch.Cache(directory, objects=True) as cache:
        assert cache.objects["key"] == value
    with hutch.Cache(directory) as cache:
        assert cache["key"] == value
        for call in (
            lambda objects: objects.get("key"),
            lambda objects: objects.set("key", 1),
            lambda objects: objects.delete("key"),
            lambda objects: "key" in objects,
        ):
            with pytest.raises(hutch.UnsupportedError, match="objects=True"):
                call(cache.objects)
        assert cache["key"] == value


def test_objects_of_every_natural_kind(cache):
    for value in (b"bytes", "text", 7, -(2**80), None, 2.5, [1], {"a": 1}, (1, frozenset({2}))):
        cache.objects["key"] = value
        assert cache.objects["key"] is value
        empty_memory(cache)
        found = cache.objects["key"]
        assert found == value and type(found) is type(value)


def test_values_and_objects_are_the_same_entries(cache):
    cache["key"] = [1, 2]
    first = cache.objects["key"]
    assert first == [1, 2] and cache.objects["key"] is first
    cache["key"] = [3]
    assert cache.objects["key"] == [3]
    assert cache.touch("key", 100)
    assert cache.info("key").expires is not None
    assert cache.objects.delete("key") and "key" not in cache
    assert not cache.objects.delete("key")
    with pytest.raises(KeyError):
        cache.objects["key"]
    with pytest.raises(KeyError):
        del cache.objects["key"]
    assert cache.objects.get("key", 5) == 5
    with pytest.raises(TypeError, match="not iterable"):
        list(cache.objects)
    cache.objects.set("tagged", [1], tag="tag", expire=100, cost=7)
    assert cache.info("tagged").tag == "tag" and cache.info("tagged").cost == 7
    assert cache.remove_tagged("tag") == 1 and "tagged" not in cache.objects
    assert repr(cache.objects).endswith(".objects")


class Thing:
    """Something that only a serializer can store, and whose end can be watched."""

    def __init__(self, number):
        self.number = number


class Things:
    name = "things"
    loads_before = 0

    def dumps(self, thing):
        return json.dumps(thing.number).encode()

    def loads(self, data):
        self.loads_before += 1
        time.sleep(0.01)
        return Thing(json.loads(data))


def test_a_serializer_makes_each_object_once_for_all_threads(directory):
    serializer = Things()
    with hutch.Cache(directory, objects=True, serializer=serializer) as cache:
        thing = Thing(5)
        watch = weakref.ref(thing)
        cache.objects["key"] = thing
        assert cache.objects["key"] is thing
        del thing
        empty_memory(cache)
        while watch() is not None:
            time.sleep(0.001)
        together = threading.Barrier(8)
        found = []

        def ask():
            together.wait()
            found.append(cache.objects["key"])

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8 and all(each is found[0] for each in found)
        assert found[0].number == 5 and serializer.loads_before == 1
        # A second opening in this process has the same objects.
        with hutch.Cache(directory, objects=True, serializer=serializer) as second:
            assert second.objects["key"] is found[0]
        with pytest.raises(hutch.InvalidArgumentError, match="object codec"):
            hutch.Cache(directory, objects=True, serializer=Things())


def test_pickle_where_it_is_asked_for(directory):
    with hutch.Cache(directory, objects=True) as cache:
        with pytest.raises(TypeError):
            cache.objects["key"] = Thing(1)
        assert "key" not in cache
    with hutch.Cache(directory, objects=True, serializer=hutch.pickling.PickleSerializer()) as cache:
        cache.objects["key"] = Thing(1)
        empty_memory(cache)
        assert cache.objects["key"].number == 1


def test_a_failure_loses_nothing(directory):
    serializer = Things()
    with hutch.Cache(directory, objects=True, serializer=serializer) as cache:
        cache.objects["key"] = Thing(1)
        with pytest.raises(AttributeError, match="number"):
            cache.objects["key"] = [1]
        assert cache.objects["key"].number == 1
        empty_memory(cache)
        right, serializer.loads = serializer.loads, lambda data: 1 // 0
        with pytest.raises(hutch.CorruptError, match="could not decode") as raised:
            cache.objects["key"]
        assert "division" in str(raised.value.__cause__)
        serializer.loads = right
        assert cache.objects["key"].number == 1


@pytest.mark.parametrize("policy", ["through", "memory", "disk", "on_eviction"])
def test_write_policies(directory, policy):
    with hutch.Cache(directory, objects=True, sharing="exclusive") as cache:
        value = [policy]
        cache.objects.set("key", value, write_policy=policy)
        assert ("key" in cache.memory) == (policy != "disk")
        assert ("key" in cache.disk) == (policy in ("through", "disk"))
        assert (cache.objects["key"] is value) == (policy != "disk")
        empty_memory(cache)
        assert cache.objects.get("key") == (None if policy == "memory" else value)


def test_views_and_options(cache):
    value = [1]
    cache.objects["key"] = value
    assert cache.memory.objects["key"] is value
    assert cache.disk.objects["key"] == value
    assert cache.options().objects
    with hutch.Cache(objects=True) as other:
        other.objects["key"] = value
        assert other.objects["key"] is value and other["key"] == value


def test_another_process_replaces_an_object(cache):
    value = ["parent"]
    cache.objects["key"] = value
    child = os.fork()
    if child == 0:
        try:
            assert cache.objects["key"] == ["parent"]
            cache.objects["key"] = ["child"]
            os._exit(0)
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert cache.objects["key"] == ["child"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RecursionError, ValueError])
def test_what_a_decoding_raises(kind):
    """Bytes that could not be read because of Ctrl-C, or for want of stack, are good ones."""

    def loads(data):
        if threading.current_thread() is threading.main_thread():
            raise kind("raised")

    serializer = types.SimpleNamespace(name="raising", dumps=lambda value: b"x", loads=loads)
    with hutch.Cache(serializer=serializer, objects=True) as cache:
        cache["key"] = [1]
        expected = kind if kind is not ValueError else hutch.CorruptError
        with pytest.raises(expected):
            cache.objects["key"]
        assert "key" in cache
