"""A program that uses the package with types. mypy --strict and pyright find nothing wrong in
it, and know the types that reveal_type tells; test_typing.py compares both."""

from __future__ import annotations

from collections.abc import MutableMapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hutch
from hutch import diskcache

if TYPE_CHECKING:
    from typing_extensions import reveal_type


def fetch(url: str) -> bytes:
    return url.encode()


async def afetch(url: str) -> bytes:
    return url.encode()


def size_of(number: int) -> str:
    return str(number)


class Reader:
    cache = hutch.Cache(memory="64 MiB")

    @cache.memoize(ignore={"self"}, refresh=60)
    def read(self, name: str, verbose: bool = False) -> list[str]:
        return [name]


def entries(cache: hutch.Cache) -> None:
    cache["a"] = 1
    cache.set("b", b"x", expire=timedelta(minutes=5))
    cache.set_many({"a": 1, "b": "two"})
    cache.set_many([(1, 2), (3, 4)])
    reveal_type(cache.get_many(["a", "b"]))  # dict[str, Any]
    reveal_type(cache.load("url", fetch))  # bytes
    reveal_type(cache.load(7, size_of))  # str
    reveal_type(cache.incr("n"))  # int
    reveal_type("a" in cache)  # bool
    mapping: MutableMapping[hutch.Key, Any] = cache
    reveal_type(len(mapping))  # int
    value, info = cache.entry("a") or (None, None)
    if info is not None:
        reveal_type(info.expires)  # float | None
    for key, each in cache.items("insertion", reverse=True):
        print(key, each)
    cache[("user", 7)] = cache.popitem()[1]
    cache.update(a=1)
    with cache.listen(lambda event: print(event.key), hutch.EventKind.DID_ADD):
        cache.disk.clear()


def functions(cache: hutch.Cache) -> None:
    @cache.memoize(expire=60)
    def square(n: int, *, exact: bool = True) -> float:
        return n * n

    reveal_type(square(3, exact=False))  # float
    reveal_type(square.__cache_key__(3))  # str
    reveal_type(square.cache_info().hits)  # int
    reveal_type(square.cache_parameters())  # dict[str, Any]
    square.cache_clear()
    reveal_type(square.__wrapped__(2))  # float
    reveal_type(Reader().read("x"))  # list[str]
    reveal_type(Reader.read.cache_info().misses)  # int
    reveal_type(Reader.read.__cache_key__(Reader(), "x"))  # str
    Reader().read.cache_clear()


class Pages(hutch.Cache):
    title = "pages"


def subclasses() -> None:
    with Pages() as pages:
        reveal_type(pages.title)  # str


def as_diskcache() -> None:
    with diskcache.Cache("pages") as cache:
        reveal_type(cache.volume())  # int

        @cache.memoize(expire=60)
        def square(n: int) -> float:
            return n * n

        @diskcache.memoize_stampede(cache, expire=60)
        def size(text: str) -> int:
            return len(text)

        @diskcache.throttle(cache, 1, 1)
        @diskcache.barrier(cache, diskcache.Lock)
        def late(text: str) -> bytes:
            return text.encode()

        reveal_type(square(3))  # float
        reveal_type(size("x"))  # int
        reveal_type(late("x"))  # bytes
        del cache[square.__cache_key__(3)]
    with diskcache.FanoutCache("pages") as shards:
        reveal_type(shards.volume())  # int


async def awaited() -> None:
    async with hutch.Cache(Path("~/.cache/example"), disk=1 << 30) as cache:
        reveal_type(await cache.aload("url", afetch))  # bytes
        reveal_type(await cache.aload("url", fetch))  # bytes
        reveal_type(await cache.aadd("a", 1, expire=5.0))  # bool
        reveal_type(await cache.aincr("n", 2))  # int
        await cache.aset_many({"a": 1})
        async for key in cache.akeys():
            print(key)

        @cache.memoize()
        async def slow(n: int) -> str:
            return str(n)

        reveal_type(await slow(1))  # str


def queues() -> None:
    with hutch.Queue(4) as queue:
        task = queue.submit(fetch, "url", priority="high")
        task.result(timeout=5)
        group = hutch.Group(queue)
        group.start(lambda tally: print(tally.count))
