"""A cache as Python's users expect one: a mapping, units, paths, processes, coroutines."""

from __future__ import annotations

import asyncio
import collections.abc
import copy
import datetime
import multiprocessing
import operator
import os
import pickle
from pathlib import Path

import hutch
import pytest
from hutch._units import size
from processes import run

MINUTE = datetime.timedelta(minutes=1)


# ------------------------------------------------------------------ a mapping


def test_a_mutable_mapping(cache):
    assert isinstance(cache, collections.abc.MutableMapping)
    cache.update({"a": 1}, b=2)
    cache.update([("c", 3)])
    cache.update()
    assert dict(cache) == {"a": 1, "b": 2, "c": 3}
    assert cache.setdefault("a", 9) == 1 and cache.setdefault("d") is None
    assert cache.setdefault("e", (1, 2)) == cache["e"]
    assert cache.pop("e") and cache.pop("d") is None and "d" not in cache
    assert [cache.popitem(), cache.popitem(last=False)] == [("c", 3), ("a", 1)]
    assert cache.popitem() == ("b", 2)
    with pytest.raises(KeyError):
        cache.popitem()
    assert cache == cache and cache != {} and len({cache, cache}) == 1


def test_views(cache):
    cache.update({"a": 1, "b": [2]})
    keys, values, items = cache.keys(), cache.values(), cache.items("insertion", reverse=True)
    assert len(keys) == len(values) == len(items) == 2
    assert "a" in keys and "x" not in keys
    assert [2] in values and 3 not in values
    assert ("b", [2]) in items and ("b", 2) not in items and 1 not in items
    assert keys & {"a", "x"} == {"a"} and keys == {"a", "b"}
    assert list(items) == [("b", [2]), ("a", 1)]
    assert list(reversed(cache.keys("insertion"))) == ["b", "a"]
    cache["c"] = 3
    assert len(keys) == 3 and set(keys) == set(cache) == {"a", "b", "c"}
    with pytest.raises(ValueError, match="order"):
        cache.keys("size")


# -------------------------------------------------------------- units, paths


def test_durations(cache, clock):
    cache.set("a", 1, expire=MINUTE, idle=datetime.timedelta(hours=1))
    info = cache.info("a")
    assert info.expires - info.created == 60 and info.time_to_idle == 3600
    cache.touch("a", expire=datetime.timedelta(microseconds=1))
    clock.advance(0.001)
    assert "a" not in cache
    for wrong in ("5", [1], MINUTE.__class__):
        with pytest.raises(TypeError, match="a duration is a number of seconds or a timedelta"):
            cache.set("a", 1, expire=wrong)
    with pytest.raises(ValueError, match="a duration cannot be"):
        cache.set("a", 1, expire=-MINUTE)


def test_sizes():
    assert [size(text) for text in ("7", "64 MiB", "2 GB", "1.5k", "1KiB", "10 b")] == [
        *(7, 64 << 20, 2 * 10**9, 1500, 1024, 10)
    ]
    assert size(1e9) == 10**9 and size(True) == 1
    for wrong in ("", "MiB", "5 XB", "-1", "1 ib"):
        with pytest.raises(ValueError, match="a size is"):
            size(wrong)
    for wrong in (1.5, None, [1]):
        with pytest.raises(TypeError, match="a size is"):
            size(wrong)
    with pytest.raises(ValueError):
        size(-1)


def test_a_limit_by_a_whole_number_of_another_class():
    class Size:
        def __index__(self):
            return 1 << 20

    with hutch.Cache(memory=Size()) as cache:
        assert cache.limits().memory.cost == 1 << 20
        cache.set_limits(memory=Size())
    for wrong in (True, [1], b"1", object()):
        with pytest.raises(TypeError, match="memory is a hutch.TierLimits or a size"):
            hutch.Cache(memory=wrong)


def test_limits_by_a_size(directory):
    with hutch.Cache(directory, memory=1 << 20, disk="3 MB", time_to_live=MINUTE) as cache:
        assert cache.limits().memory.cost == 1 << 20 and cache.limits().disk.cost == 3_000_000
        assert cache.limits().memory.time_to_live == 60
        cache.set_limits(memory="2 MiB", disk=hutch.TierLimits(cost="4 MB", max_entry=1e6))
        assert cache.limits().memory.cost == 2 << 20
        assert cache.limits().disk.max_entry == 10**6
    for wrong in ({"cost": 1}, [1], True):
        with pytest.raises(TypeError, match="memory is a hutch.TierLimits or a size"):
            hutch.Cache(memory=wrong)


def test_directories(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("~/one", Path("~/two"), b"~/three"):
        with hutch.Cache(path) as cache:
            cache["a"] = 1
            assert Path(cache.directory).parent == tmp_path
    assert sorted(os.listdir(tmp_path)) == ["one", "three", "two"]
    with pytest.raises(TypeError, match="directory is a str, bytes, a path or None"):
        hutch.Cache(5)


# ------------------------------------------------------------------ processes


def test_a_second_process_is_told_the_remedy(directory):
    with hutch.Cache(directory):
        out = run(
            """
            import sys, hutch
            try:
                hutch.Cache(sys.argv[1], sharing="exclusive")
            except hutch.BusyError as error:
                print(error)
            """,
            directory,
        )
    if out:
        assert str(directory) in out and 'sharing="shared"' in out


def test_a_cache_is_pickled_by_its_directory(directory, monkeypatch):
    limits = hutch.TierLimits(count=5)
    with hutch.Cache(directory, memory=limits, sharing="shared", low_water=20) as cache:
        cache["a"] = 1
        for make in (copy.copy, copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))):
            with make(cache) as other:
                assert other["a"] == 1 and other is not cache
                assert other.limits().memory.count == 5
        view = pickle.loads(pickle.dumps(cache.disk))
        assert view["a"] == 1
        view._cache.close()
    monkeypatch.chdir(directory.parent)
    with hutch.Cache(directory.name) as cache:
        monkeypatch.chdir("/")
        with pickle.loads(pickle.dumps(cache)) as other:
            assert other["a"] == 1


class Tenant(hutch.Cache):
    def __init__(self, root: Path, name: str) -> None:
        super().__init__(root / name, memory=hutch.TierLimits(count=5))
        self.name = name


def test_a_subclass_is_pickled_with_its_attributes(directory):
    with Tenant(directory, "first") as cache:
        cache["a"] = 1
        cache.listen(print, hutch.EventKind.DID_CLEAR)
        for make in (copy.copy, copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))):
            with make(cache) as other:
                assert type(other) is Tenant and other.name == "first" and other["a"] == 1
                assert other.limits().memory.count == 5


class Shelf(Tenant):
    __slots__ = ("__row", "label", "empty")

    def set_row(self, row: int) -> None:
        self.__row = row

    def row(self) -> int:
        return self.__row


def test_a_subclass_is_pickled_with_its_slots(directory):
    with Shelf(directory, "first") as cache:
        cache.set_row(7)
        cache.label = "top"
        for make in (copy.copy, copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))):
            with make(cache) as other:
                assert (other.row(), other.label, other.name) == (7, "top", "first")
                assert not hasattr(other, "empty")


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_other_processes_are_handed_a_cache(directory, method):
    with hutch.Cache(directory, sharing="shared") as cache:
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            # No function of this module: each process would import it, and pytest.
            count = operator.methodcaller("incr", "n")
            assert sorted(pool.map(count, [cache] * 6)) == [1, 2, 3, 4, 5, 6]
        assert cache["n"] == 6


# ----------------------------------------------------------------- coroutines


def test_the_awaitable_form_of_every_call(directory):
    native = {"aget", "aset", "adelete", "acontains", "aload", "aclear", "aflush"}
    calls = {name for name in dir(hutch.Cache) if name[0] == "a" and name[1:] in dir(hutch.Cache)}
    # Neither the disk nor another thread is waited for by these.
    at_once = {
        *("disk", "directory", "limits", "options", "listen", "memoize", "memory", "queue"),
        *("resume", "hold_files", "suspend", "put_object", "get_object", "delete_object", "objects"),
    }
    public = {name for name in dir(hutch.Cache) if name[0] != "_"} - calls - at_once
    assert native <= calls | {"acontains"}
    without = {name for name in public if f"a{name}" not in calls and name != "acontains"}
    assert without == set()

    async def main():
        async with hutch.Cache(directory) as cache:
            assert await cache.aset("a", 1)
            assert not await cache.aadd("a", 2)
            assert (await cache.aput("b", 2, expire=5)).version
            assert await cache.aincr("a", 4) == 5 and await cache.adecr("a") == 4
            assert await cache.apop("b") == 2
            await cache.aset_many({"c": 3, "d": 4})
            assert await cache.aget_many(["c", "d", "x"]) == {"c": 3, "d": 4}
            assert {key async for key in cache} == {"a", "c", "d"}
            assert [pair async for pair in cache.aitems("insertion")][-1] == ("d", 4)
            assert (await cache.aentry("c")).value == 3
            assert await cache.adelete_many(["c", "x"]) == 1
            with pytest.raises(KeyError):
                await cache.aincr("x", default=None)
            assert await cache.apopitem() == ("d", 4)
            await cache.aupdate({n: n for n in range(1000)})
            assert sorted([key async for key in cache.akeys() if key != "a"]) == list(range(1000))
        with pytest.raises(hutch.ClosedError):
            cache.get("a")

    asyncio.run(main())


class Counting:
    """A serializer that counts what it reads."""

    name = "counting"

    def __init__(self):
        self.read = []

    def dumps(self, size):
        return bytes(int(size))

    def loads(self, data):
        self.read.append(data)
        return [len(data)]


@pytest.mark.parametrize("size, ahead", [(1.0, 256), (400_000.0, 3), (3_000_000.0, 1)])
def test_an_asynchronous_walk_reads_few_large_values_ahead(size, ahead):
    count = 2 * ahead + 1
    counting = Counting()

    async def main():
        with hutch.Cache(serializer=counting, memory="1 GB") as cache:
            cache.set_many(dict.fromkeys(range(count), size))
            values = cache.avalues()
            assert await values.__anext__() == [size] and len(counting.read) == ahead
            assert len([value async for value in values]) == count - 1
            assert len([item async for item in cache.aitems()]) == count
            assert len(counting.read) == 2 * count

    asyncio.run(main())


def test_asyncio_is_imported_when_it_is_used():
    run("import sys, hutch; hutch.Cache()['a'] = 1; assert 'asyncio' not in sys.modules")


@pytest.mark.parametrize(
    "words, options",
    [
        ("workers: a whole number is needed, not 'a'", {"workers": "a"}),
        ("low_water: -1 is not between 0 and 2**32 - 1", {"low_water": -1}),
        ("inline_threshold: a size is a number of bytes", {"inline_threshold": "k"}),
        ("close_deadline: a duration is a number of seconds", {"close_deadline": b""}),
        ("time_to_live: a duration cannot be -1 seconds", {"time_to_live": -1}),
        ("disk.cost: a size is a number of bytes", {"disk": "many"}),
        ("memory.count: a limit of 0", {"memory": hutch.TierLimits(count=0)}),
        ("expire: a duration is a number of seconds or a timedelta, not an object",
         {"expire": object()}),
        ("idle: a duration cannot be nan seconds", {"idle": float("nan")}),
        ("cost: a whole number is needed, not 1.5", {"cost": 1.5}),
        ("suffix: expected str, bytes or os.PathLike object, not int", {"suffix": 3}),
        ("tag: a key must be a str, bytes, int", {"tag": []}),
    ],
)
def test_an_error_names_the_argument(words, options):
    with pytest.raises((TypeError, ValueError)) as told:
        if set(options) <= {"expire", "idle", "cost", "suffix", "tag"}:
            hutch.Cache().set("key", "value", **options)
        else:
            hutch.Cache(**options)
    assert str(told.value).startswith(words)


@pytest.mark.parametrize("name", ["expire", "idle"])
def test_an_error_of_touch_names_the_argument(name):
    cache = hutch.Cache()
    with pytest.raises(ValueError, match=f"^{name}: a duration cannot be nan seconds"):
        cache.touch("key", **{name: float("nan")})
    with pytest.raises(ValueError, match=f"^{name}: a duration cannot be nan seconds"):
        asyncio.run(cache.atouch("key", **{name: float("nan")}))
