"""hutch.frameworks.dogpile: the tests that dogpile.cache ships for backends, and some more."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import hutch
import pytest
from dogpile.cache import make_region
from dogpile.cache.api import NO_VALUE
from hutch.frameworks import NaturalSerializer
from hutch.frameworks.dogpile import HutchBackend
from hutch.pickling import PickleSerializer

with warnings.catch_warnings():
    # It uses a mark of dogpile's own configuration of pytest.
    warnings.simplefilter("ignore", pytest.PytestUnknownMarkWarning)
    from dogpile.testing.fixtures import (
        _GenericBackendTestSuite,
        _GenericMutexTestSuite,
        _GenericSerializerTestSuite,
    )


class Suite(_GenericBackendTestSuite):
    """The tests of backends, but for those that sleep: what they are about is tested below."""

    backend = "hutch"
    test_threaded_dogpile = None
    test_threaded_get_multi = None
    test_region_expire = None


class TestInMemory(Suite):
    config_args = {"arguments": {"memory": "8 MiB"}}
    # The suite gives arguments that no backend has, to see that none is changed.
    test_argument_dictionary_unmodified = None


class TestDirectory(Suite):
    test_argument_dictionary_unmodified = None

    @classmethod
    def setup_class(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.cache = hutch.Cache(os.path.join(cls.place.name, "cache"), sharing="shared")
        cls.config_args = {"arguments": {"cache": cls.cache}}
        super().setup_class()

    @classmethod
    def teardown_class(cls):
        cls.cache.close()
        cls.place.cleanup()


class TestSerializer(_GenericSerializerTestSuite, TestDirectory):
    pass


class TestMutex(_GenericMutexTestSuite):
    backend = "hutch"
    config_args = {"arguments": {"distributed_lock": True, "lock_sleep": 0.001}}


def region(**arguments):
    return make_region().configure("hutch", expiration_time=60, arguments=arguments)


@pytest.fixture(params=["directory", "memory"])
def place(request, directory):
    return {"directory": directory} if request.param == "directory" else {}


def test_arguments_stay_as_they_are(directory):
    arguments = {"directory": directory, "expire": 5, "distributed_lock": True, "memory": "8 MiB"}
    copy = dict(arguments)
    backend = HutchBackend(arguments)
    assert arguments == copy
    backend.close()


def test_an_argument_that_is_none_is_an_error():
    with pytest.raises(TypeError, match="arbitrary"):
        HutchBackend({"arbitrary": 1})


@pytest.mark.parametrize("value", ["text", 7, None, [1, (2,)], {"a": {1}}])
def test_values_and_many_of_them(place, value):
    own = region(**place)
    own.set("key", value)
    assert own.get("key") == value
    own.set_multi({"a": value, "b": 2})
    assert own.get_multi(["b", "x", "a"]) == [2, NO_VALUE, value]
    own.delete_multi(["a", "x"])
    assert own.get("a") is NO_VALUE
    own.backend.close()


@pytest.mark.parametrize(
    "key", ["", "a" * 65_520, "a" * 70_000, "\u20ac" * 22_000],
    ids=["empty", "nearly too long", "long", "wide"],
)
def test_any_text_is_a_key(place, key):
    """As with the memory of dogpile.cache, also with a lock of its own for each key."""
    own = region(**place, distributed_lock=True)
    assert own.get(key) is NO_VALUE
    assert own.get_or_create(key, lambda: 1) == 1 and own.get_or_create(key, lambda: 2) == 1
    own.set_multi({key: 3, key + "b": 4})
    assert own.get_multi([key + "b", key]) == [4, 3]
    own.delete(key)
    own.delete_multi([key + "b"])
    assert own.get_multi([key, key + "b"]) == [NO_VALUE, NO_VALUE]
    own.backend.close()


def test_get_or_create_and_expiration(place, monkeypatch):
    own, calls = region(**place), []

    def create():
        calls.append(1)
        return len(calls)

    assert [own.get_or_create("key", create) for _ in range(3)] == [1, 1, 1]
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 61)
    assert own.get("key") is NO_VALUE and own.get("key", ignore_expiration=True) == 1
    assert [own.get_or_create("key", create) for _ in range(2)] == [2, 2]
    monkeypatch.setattr(time, "time", lambda: now + 62)
    own.invalidate()
    monkeypatch.setattr(time, "time", lambda: now + 63)
    assert own.get_or_create("key", create) == 3
    own.backend.close()


def test_the_store_drops_values_itself(place, clock):
    own = region(**place, expire=10, clock=clock)
    ever = region(**{"clock": clock})
    for each in (own, ever):
        each.set("key", 1)
        clock.advance(9)
        assert each.get("key", ignore_expiration=True) == 1
    clock.advance(400 * 24 * 3600)
    assert own.get("key", ignore_expiration=True) is NO_VALUE
    assert ever.get("key", ignore_expiration=True) == 1
    own.backend.close()


def test_what_cannot_be_read_is_made_anew(directory):
    with hutch.Cache(directory, sharing="shared") as cache:
        safe = region(cache=cache, serializer=PickleSerializer(key=b"0123456789abcdef"))
        forged = region(cache=cache, serializer=PickleSerializer(key=b"another key of 16"))
        forged.set("key", "forged")
        assert safe.get("key") is NO_VALUE
        assert safe.get_or_create("key", lambda: "own") == "own" == safe.get("key")
        cache["key"] = "text of another program"
        assert safe.get("key") is NO_VALUE and safe.get_multi(["key"]) == [NO_VALUE]


def unpickled(data, depth=50):
    return pickle.loads(data) if depth == 0 else unpickled(data, depth - 1)


class Unpickling:
    """An object whose pickle needs some of Python's stack to be read, and gives another one."""

    def __init__(self, data):
        self.data = data

    def __reduce__(self):
        return unpickled, (self.data,)


def test_natural_values(place):
    own = region(**place, serializer=None)
    own.set("key", {"a": (1, {2})})
    assert own.get("key") == {"a": (1, {2})}
    with pytest.raises(TypeError):
        own.set("key", object())
    serializer = NaturalSerializer()
    assert serializer.loads(serializer.dumps("text")) == "text"
    with pytest.raises(ValueError):
        serializer.loads(b"\xff")
    own.backend.close()


def test_a_serializer_of_the_region(directory):
    own = make_region(
        serializer=lambda value: json.dumps(value).encode(), deserializer=json.loads
    ).configure("hutch", arguments={"directory": directory})
    own.set("key", [1])
    assert own.get("key") == [1] and own.backend._cache["key"].endswith(b"|[1]")
    own.backend.close()


def test_a_value_for_which_the_stack_is_too_short_is_not_replaced(place):
    """A pickle needs the stack of its caller for an object that unpickles another one."""
    own, replaced = region(**place), []
    own.set("key", Unpickling(pickle.dumps("value")))

    def get_at(depth):
        if depth == 0:
            return own.get_or_create("key", lambda: replaced.append(True))
        return get_at(depth - 1)

    found = []
    for depth in range(0, sys.getrecursionlimit(), 2):
        try:
            found.append(get_at(depth))
        except RecursionError:
            pass
    assert not replaced and set(found) == {"value"}
    own.backend.close()


def test_a_value_that_is_too_large_is_given_all_the_same(place):
    own, large = region(**place), bytes(30_000_000)
    assert own.get_or_create("key", lambda: large) == large
    assert own.get("key") is NO_VALUE
    own.set_multi({"a": 1, "b": large})
    assert own.get_multi(["a", "b"]) == [1, NO_VALUE]
    own.backend.close()


def test_a_lock_whose_lease_has_run_out_is_another_callers(place, clock):
    backend = HutchBackend({**place, "distributed_lock": True, "lock_timeout": 5, "clock": clock})
    first, second = backend.get_mutex("key"), backend.get_mutex("key")
    assert first.acquire() and not second.acquire(False)
    clock.advance(6)
    assert second.acquire(False)
    first.release()
    assert second.locked()
    second.release()
    assert not second.locked()
    backend.close()


@pytest.mark.parametrize("is_run_elsewhere", [False, True])
def test_a_lock_whose_lease_has_run_out_is_another_threads(place, clock, is_run_elsewhere):
    """Of one mutex, which a region gives to all of its threads. A runner may release the lock on a
    thread of its own."""
    backend = HutchBackend({**place, "distributed_lock": True, "lock_timeout": 5, "clock": clock})
    mutex = backend.get_mutex("key")
    with ThreadPoolExecutor(1) as another, ThreadPoolExecutor(1) as runner:

        def release():
            runner.submit(mutex.release).result() if is_run_elsewhere else mutex.release()

        assert mutex.acquire()
        clock.advance(6)
        assert another.submit(mutex.acquire, False).result()
        release()
        assert mutex.locked()
        another.submit(mutex.release).result()
        assert not mutex.locked()
        mutex.release()  # No thread has it.
        assert mutex.acquire(False)
        release()
        assert not mutex.locked()
    backend.close()


def test_one_of_several_processes_makes_the_value(directory):
    context = multiprocessing.get_context("spawn")
    with hutch.Cache(directory, sharing="shared"):
        calls, ready, go = context.Value("i", 0), context.Semaphore(0), context.Event()
        processes = [
            context.Process(target=ask_in_process, args=(str(directory), ready, go, calls))
            for _ in range(2)
        ]
        for process in processes:
            process.start()
        for _ in processes:
            assert ready.acquire(timeout=60)
        go.set()
        for process in processes:
            process.join(60)
    assert [process.exitcode for process in processes] == [0, 0] and calls.value == 1


def ask_in_process(directory, ready, go, calls):
    """One process: it asks as soon as all are ready."""
    own = region(directory=directory, distributed_lock=True, lock_sleep=0.001)

    def create():
        with calls.get_lock():
            calls.value += 1
        return "made"

    ready.release()
    go.wait(60)
    assert own.get_or_create("key", create) == "made"
    own.backend.close()
