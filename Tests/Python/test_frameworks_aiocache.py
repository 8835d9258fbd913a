"""hutch.frameworks.aiocache: what aiocache asks of a backend, with its decorators and locks."""

from __future__ import annotations

import asyncio

import aiocache
import pytest
from aiocache.lock import OptimisticLock, OptimisticLockError, RedLock
from aiocache.serializers import JsonSerializer, PickleSerializer, StringSerializer
from hutch.frameworks.aiocache import HutchCache
from hutch.pickling import PickleSerializer as Pickle
from native import put_unreadable


@pytest.fixture(params=["directory", "memory"])
def options(request, directory, clock):
    return {"directory": directory if request.param == "directory" else None, "clock": clock}


def run(work, options, **more):
    """Runs a coroutine function with a cache."""

    async def main():
        async with HutchCache(**options, **more) as cache:
            return await work(cache)

    return asyncio.run(main())


@pytest.mark.parametrize("value", ["text", b"bytes", 7, 1.5, True, [1, (2,)], {"a": {1}}])
def test_a_value_comes_back_with_its_type(options, value):
    async def work(cache):
        assert await cache.set("key", value) is True
        found = await cache.get("key")
        assert found == value and type(found) is type(value)
        assert await cache.exists("key") is True

    run(work, options)


def test_of_nothing(options):
    async def work(cache):
        assert await cache.get("key") is None
        assert await cache.get("key", "default") == "default"
        assert await cache.exists("key") is False
        assert await cache.delete("key") == 0
        assert await cache.expire("key", 5) is False
        assert await cache.multi_get(["a", "b"]) == [None, None]

    run(work, options)


def test_add_set_delete(options):
    async def work(cache):
        assert await cache.add("key", 1) is True
        with pytest.raises(ValueError, match="already exists"):
            await cache.add("key", 2)
        assert await cache.get("key") == 1
        assert await cache.set("key", 3) is True and await cache.get("key") == 3
        assert await cache.delete("key") == 1 and await cache.get("key") is None

    run(work, options)


def test_many(options):
    async def work(cache):
        assert await cache.multi_set([("a", 1), ("b", [2])]) is True
        assert await cache.multi_get(["b", "x", "a"]) == [[2], None, 1]

    run(work, options)


def test_times_to_live(options, clock):
    async def work(cache):
        await cache.set("default", 1)
        await cache.set("short", 1, ttl=2)
        await cache.add("added", 1, ttl=2)
        await cache.multi_set([("many", 1)], ttl=2)
        await cache.set("ever", 1, ttl=None)
        await cache.set("moved", 1, ttl=2)
        assert await cache.expire("moved", 50) is True
        await cache.set("freed", 1, ttl=2)
        assert await cache.expire("freed", 0) is True
        assert await cache.set("past", 1, ttl=-1) is True
        assert await cache.add("past added", 1, ttl=-0.5) is True
        assert await cache.multi_set([("past many", 1)], ttl=-1) is True
        await cache.set("past moved", 1)
        assert await cache.expire("past moved", -1) is True
        clock.advance(1.9)
        for key in ("default", "short", "added", "many"):
            assert await cache.exists(key), key
        clock.advance(0.2)
        for key in ("short", "added", "many"):
            assert not await cache.exists(key), key
        for key in ("past", "past added", "past many", "past moved"):
            assert not await cache.exists(key), key
        assert await cache.exists("moved") and await cache.exists("default")
        clock.advance(101)
        assert not await cache.exists("moved") and not await cache.exists("default")
        clock.advance(400 * 24 * 3600)
        assert await cache.exists("ever") and await cache.exists("freed")

    run(work, options, ttl=100)


@pytest.mark.parametrize("serializer", [None, JsonSerializer(), StringSerializer()])
def test_increment(options, serializer):
    async def work(cache):
        assert await cache.increment("n") == 1
        assert await cache.increment("n", 9) == 10
        assert await cache.increment("n", -4) == 6
        assert int(await cache.get("n")) == 6
        await cache.set("m", 41)
        assert await cache.increment("m") == 42
        assert int(await cache.get("m")) == 42
        if serializer is None:  # As in the memory of aiocache.
            await cache.set("part", 1.5)
            assert await cache.increment("part", 2) == await cache.get("part") == 3
        await cache.set("text", "seven")
        with pytest.raises(TypeError, match="not an integer"):
            await cache.increment("text")
        await asyncio.gather(*[cache.increment("many") for _ in range(50)])
        assert int(await cache.get("many")) == 50

    run(work, options, serializer=serializer)


def test_increment_of_what_cannot_be_read(options):
    async def work(cache):
        put_unreadable(cache._cache, "n")
        assert await cache.increment("n", 3) == 3 and await cache.get("n") == 3

    run(work, options)


@pytest.mark.parametrize("serializer", [JsonSerializer(), PickleSerializer()])
def test_serializers_of_aiocache(options, serializer):
    async def work(cache):
        await cache.set("key", {"a": [1]})
        assert await cache.get("key") == {"a": [1]}
        assert await cache.get("x") is None
        assert cache._cache["key"] == serializer.dumps({"a": [1]})

    run(work, options, serializer=serializer)


def test_natural_values_only(options):
    async def work(cache):
        await cache.set("key", {"a": (1, 2)})
        assert await cache.get("key") == {"a": (1, 2)}
        with pytest.raises(TypeError):
            await cache.set("key", object())

    run(work, options, cache_serializer=None)


def test_a_serializer_of_hutch_is_named_by_another_option():
    with pytest.raises(TypeError, match="cache_serializer"):
        HutchCache(serializer=Pickle(key=b"0123456789abcdef"))


def test_namespaces(options):
    async def work(cache):
        await cache.set("key", 1)
        await cache.set("key", 2, namespace="b:")
        assert await cache.get("key") == 1 and await cache.get("key", namespace="b:") == 2
        assert sorted(cache._cache) == ["a:key", "b:key"]
        assert await cache.clear(namespace="b:") is True
        assert await cache.get("key", namespace="b:") is None and await cache.get("key") == 1
        assert await cache.clear() is True
        assert await cache.get("key") is None

    run(work, options, namespace="a:")


@pytest.mark.parametrize(
    "key", ["", "a" * 65_520, "a" * 70_000, "\u20ac" * 22_000],
    ids=["empty", "nearly too long", "long", "wide"],
)
def test_any_text_is_a_key(options, key):
    async def work(cache):
        assert await cache.get(key) is None and not await cache.exists(key)
        assert await cache.set(key, 1) and await cache.get(key) == 1 and await cache.exists(key)
        with pytest.raises(ValueError, match="already exists"):
            await cache.add(key, 2)
        assert await cache.increment(key) == 2 and await cache.expire(key, 50)
        assert await cache.multi_set([(key, 3), (key + "b", 4)])
        assert await cache.multi_get([key + "b", key]) == [4, 3]
        async with OptimisticLock(cache, key) as lock:
            await lock.cas(5)
        async with RedLock(cache, key, 2):
            assert await cache.get(key) == 5
        await cache.set(key, 6, namespace="n:")
        assert await cache.get(key, namespace="n:") == 6
        await cache.clear(namespace="n:")
        assert await cache.get(key, namespace="n:") is None and await cache.get(key) == 5
        assert await cache.delete(key) == 1 and await cache.delete(key) == 0

    run(work, options)


def test_raw_calls(options):
    async def work(cache):
        assert await cache.raw("set", "key", 1) is True
        assert await cache.raw("aget", "key") == 1

    run(work, options)


def test_an_optimistic_lock(options):
    async def work(cache):
        await cache.set("key", 1)
        async with OptimisticLock(cache, "key") as lock:
            assert await lock.cas(2) is True
        async with OptimisticLock(cache, "key") as lock:
            await cache.set("key", 3)
            with pytest.raises(OptimisticLockError):
                await lock.cas(4)
        assert await cache.get("key") == 3

    run(work, options)


def test_a_red_lock_lets_one_make_the_value(options):
    calls = []

    async def ask(cache):
        async with RedLock(cache, "key", lease=30):
            found = await cache.get("key")
            if found is not None:
                return found
            calls.append(1)
            await asyncio.sleep(0)
            await cache.set("key", "made")
            return "made"

    async def work(cache):
        assert await asyncio.gather(*[ask(cache) for _ in range(5)]) == ["made"] * 5

    run(work, options)
    assert calls == [1]


# Two caches with a clock each are two with other options.
@pytest.mark.filterwarnings("ignore::hutch.OptionsDifferWarning")
def test_decorators(options):
    calls = []
    kept = {"cache": HutchCache, "serializer": None, **options}

    @aiocache.cached(key_builder=lambda function, n: f"double{n}", **kept)
    async def double(n):
        calls.append(n)
        return [2 * n]

    @aiocache.cached_stampede(lease=30, key_builder=lambda function, n: f"half{n}", **kept)
    async def half(n):
        calls.append(n)
        await asyncio.sleep(0)
        return [n / 2]

    async def main():
        assert [await double(n) for n in (2, 2, 3)] == [[4], [4], [6]]
        assert await asyncio.gather(*[half(6) for _ in range(5)]) == [[3.0]] * 5
        await double.cache.close()
        await half.cache.close()

    asyncio.run(main())
    assert calls == [2, 3, 6]


def test_a_cache_is_used_again_after_close(directory):
    async def main():
        cache = HutchCache(directory)
        await cache.set("key", 1)
        await cache.close()
        assert await cache.get("key") == 1
        await cache.close()
        await cache.close()
        memory = HutchCache()
        await memory.set("key", 1)
        await memory.close()
        assert await memory.get("key") == 1

    asyncio.run(main())


def test_by_name_and_url(directory):
    async def main():
        cache = aiocache.Cache.from_url(f"hutch://{directory}?namespace=x:&disk=1 MB")
        assert isinstance(cache, HutchCache)
        await cache.set("key", 1)
        assert cache._cache.directory == str(directory) and list(cache._cache) == ["x:key"]
        assert cache._cache.limits().disk.cost == 1_000_000
        await cache.close()
        aliases = aiocache.factory.CacheHandler()
        aliases.set_config(
            {"default": {"cache": "hutch.frameworks.aiocache.HutchCache", "memory": "8 MiB"}}
        )
        assert aliases.get("default")._cache.limits().memory.cost == 8 << 20

    asyncio.run(main())


def test_a_value_that_is_too_large(options):
    large = bytes(30_000_000)

    async def work(cache):
        assert await cache.set("key", large) is False
        assert await cache.add("key", large) is True  # aiocache does not look at the answer.
        await cache.multi_set([("a", 1), ("b", large)])
        assert await cache.get("a") == 1
        assert await cache.multi_get(["key", "b"]) == [None, None]

    run(work, options)
