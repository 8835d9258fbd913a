"""An entry that another program has stored and this one cannot read counts as absent, and what
stores a value if there is none takes its place."""

from __future__ import annotations

import asyncio

import pytest

import hutch
from native import put_unreadable


@pytest.fixture(params=["cache", "memory", "disk"])
def entries(request, cache):
    """The cache, and the view of each tier that it has."""
    if request.param == "cache" or cache._path is None:
        return cache
    return getattr(cache, request.param)


def test_setdefault(entries):
    put_unreadable(entries, "key")
    assert entries.setdefault("key", [1], 60, tag="of tests") == [1]
    assert entries["key"] == [1]
    info = entries.info("key")
    assert info.expires == info.created + 60 and info.tag == "of tests"
    assert entries.setdefault("key", [2]) == [1]


def test_setdefault_that_is_awaited(cache):
    put_unreadable(cache, "key")
    assert asyncio.run(cache.asetdefault("key", 1)) == 1
    assert cache["key"] == 1


@pytest.mark.parametrize("by_another", ["delete", "replace", "replace unreadable"])
def test_setdefault_while_another_caller_writes(entries, monkeypatch, by_another):
    put_unreadable(entries, "key")
    looks = []

    def info(key):
        found = type(entries).info(entries, key)
        if not looks:
            if by_another == "delete":
                del entries[key]
            elif by_another == "replace":
                entries[key] = "another"
            else:
                put_unreadable(entries, key)
        looks.append(found)
        return found

    monkeypatch.setattr(entries, "info", info, raising=False)
    value = "another" if by_another == "replace" else "own"
    assert entries.setdefault("key", "own") == entries["key"] == value


async def make(key):
    return [key]


@pytest.mark.parametrize("loader", [make, lambda key: [key]])
def test_an_awaited_load(cache, loader):
    async def main() -> None:
        assert await cache.aload("key", loader, 60, tag="of tests") == ["key"] == cache["key"]
        assert await cache.aload("key", None) == ["key"]

    put_unreadable(cache, "key")
    asyncio.run(main())
    assert cache.info("key").tag == "of tests"


def test_an_awaited_load_of_a_value_that_no_tier_takes():
    async def large(key):
        return "x" * 2000

    with hutch.Cache(memory=hutch.TierLimits(max_entry=1000)) as cache:
        put_unreadable(cache, "key")
        assert asyncio.run(cache.aload("key", large)) == "x" * 2000
        assert "key" not in cache


def test_awaited_loads_together_make_one_value(cache):
    made = []

    async def main() -> None:
        async def slow(key):
            made.append(key)
            await asyncio.sleep(0.01)
            return made

        found = await asyncio.gather(*[cache.aload("key", slow) for _ in range(5)])
        assert found == [["key"]] * 5

    put_unreadable(cache, "key")
    cache.get("key")
    asyncio.run(main())
    assert made == ["key"]


def test_an_awaited_load_while_another_program_stores_what_cannot_be_read(cache):
    made = []

    async def main() -> None:
        async def slow(key):
            made.append(key)
            put_unreadable(cache, key)
            return made

        assert await cache.aload("key", slow) == ["key"]

    asyncio.run(main())


class Serializer:
    """One that cannot read what it writes. meanwhile: what another caller does while it tries."""

    name = "unreadable"

    def __init__(self, meanwhile=lambda: None):
        self.meanwhile = meanwhile

    def dumps(self, value):
        return b"unreadable"

    def loads(self, data):
        self.meanwhile()
        raise ValueError("unreadable")


async def awaited_load(cache, loader):
    return await cache.aload("key", loader)


LOADS = [
    lambda cache, loader: cache.load("key", loader),
    lambda cache, loader: asyncio.run(awaited_load(cache, loader)),
]


@pytest.mark.parametrize("load", LOADS)
def test_a_load_keeps_a_newer_value(directory, load):
    def put():
        cache["key"] = "newer"

    with hutch.Cache(directory, serializer=Serializer(put)) as cache:
        cache["key"] = [1]
        assert load(cache, lambda key: pytest.fail("the loader was called")) == "newer"
        assert cache["key"] == "newer"


def test_setdefault_of_a_value_that_cannot_be_read_back():
    with hutch.Cache(serializer=Serializer()) as cache:
        with pytest.raises(ValueError, match="ValueError: unreadable"):
            cache.setdefault("key", [1])
