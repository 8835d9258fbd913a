"""Awaitable forms of the calls that have no tasks of their own in the library.

They run in a thread of the event loop's executor, since a call may wait for the disk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from ._codec import Key
from ._entries import SlowEntries
from ._process import hint

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    from ._files import Writer
    from ._records import PutResult
    from ._walks import Order

    P = ParamSpec("P")
else:
    hint(globals(), "Order", "PutResult", "Writer")

R = TypeVar("R")
V = TypeVar("V")

# What an asynchronous walk reads ahead at most: entries, and bytes of all values but the last.
_AT_ONCE = 256
_BYTES_AT_ONCE = 1 << 20


async def in_thread(function: Callable[..., V], *args: Any, **kwargs: Any) -> V:
    """Call a function in a thread of the event loop's executor."""
    import asyncio

    return await asyncio.to_thread(function, *args, **kwargs)


def threaded(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    name: str = getattr(method, "__name__")

    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await in_thread(getattr(self, name), *args, **kwargs)

    call.__name__ = f"a{name}"
    call.__wrapped__ = method  # type: ignore[attr-defined]  # Its parameters are those of the call.
    call.__annotations__ = method.__annotations__
    call.__doc__ = f"As {name}, without blocking the event loop."
    return call


class AsyncWriter:
    """A Writer whose calls are awaited: see AwaitedEntries.awriter."""

    def __init__(self, begin: Callable[[], Writer]) -> None:
        self._begin = begin
        self._writer: Writer | None = None

    async def _begun(self) -> Writer:
        if self._writer is None:
            self._writer = await in_thread(self._begin)
        return self._writer

    async def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append data; returns its size in bytes. TooLargeError: no tier accepts so much."""
        return await in_thread((await self._begun()).write, data)

    async def commit(self) -> PutResult:
        """Store the written bytes, in place of the older value. The writer ends."""
        return await in_thread((await self._begun()).commit)

    async def abort(self) -> None:
        """End without storing anything."""
        await in_thread((await self._begun()).abort)

    async def __aenter__(self) -> AsyncWriter:
        await self._begun()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await in_thread((await self._begun()).__exit__, *raised)


def _written(
    method: Callable[Concatenate[Any, P], Writer],
) -> Callable[Concatenate[Any, P], AsyncWriter]:
    def awriter(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> AsyncWriter:
        """As writer, without blocking the event loop.

        async with cache.awriter("video") as writer:
            await writer.write(piece)
        """
        return AsyncWriter(lambda: self.writer(*args, **kwargs))

    awriter.__wrapped__ = method  # type: ignore[attr-defined]
    awriter.__annotations__ = {**method.__annotations__, "return": AsyncWriter}
    return awriter


def _page(walk: Iterator[tuple[int, R]]) -> tuple[list[R], bool]:
    """The next items, and whether there may be more."""
    page: list[R] = []
    left = _BYTES_AT_ONCE
    for size, item in walk:
        page.append(item)
        left -= size
        if len(page) == _AT_ONCE or left <= 0:
            return page, True
    return page, False


async def _pages(walk: Iterator[tuple[int, R]]) -> AsyncIterator[R]:
    """The items of pairs of a size and an item."""
    is_more = True
    while is_more:
        page, is_more = await in_thread(_page, walk)
        for item in page:
            yield item


class AwaitedEntries:
    """The calls on entries that are made in a thread, each with the arguments and the meaning of
    the call without the a."""

    aput = threaded(SlowEntries.put)
    apopitem = threaded(SlowEntries.popitem)
    apeekitem = threaded(SlowEntries.peekitem)
    asetdefault = threaded(SlowEntries.setdefault)
    aupdate = threaded(SlowEntries.update)
    aentry = threaded(SlowEntries.entry)
    awriter = _written(SlowEntries.writer)
    apin = threaded(SlowEntries.pin)
    aread = threaded(SlowEntries.read)
    atrim = threaded(SlowEntries.trim)
    aexpire = threaded(SlowEntries.expire)
    acheck = threaded(SlowEntries.check)
    acopy_to = threaded(SlowEntries.copy_to)
    anotify = threaded(SlowEntries.notify)
    avalue_bytes = threaded(SlowEntries.value_bytes)
    avolume = threaded(SlowEntries.volume)
    astats = threaded(SlowEntries.stats)
    ainfos = threaded(SlowEntries.infos)
    aremove_prefix = threaded(SlowEntries.remove_prefix)
    aremove_tagged = threaded(SlowEntries.remove_tagged)

    def akeys(
        self: Any, order: Order | None = None, *, reverse: bool = False
    ) -> AsyncIterator[Key]:
        """The keys, as keys gives them, for async for."""
        return _pages((0, key) for key in self.keys(order, reverse=reverse))

    def avalues(
        self: Any, order: Order | None = None, *, reverse: bool = False
    ) -> AsyncIterator[Any]:
        """The values, as values gives them, for async for. It reads ahead as aitems."""
        found = self.values(order, reverse=reverse).sized()
        return _pages((size, value) for size, _, value in found)

    def aitems(
        self: Any, order: Order | None = None, *, reverse: bool = False
    ) -> AsyncIterator[tuple[Key, Any]]:
        """Keys and values, as items gives them, for async for. It reads up to 256 entries ahead,
        fewer of large values: it stops at the one with which they have 1 MiB."""
        found = self.items(order, reverse=reverse).sized()
        return _pages((size, (key, value)) for size, key, value in found)

    def __aiter__(self: Any) -> AsyncIterator[Key]:
        """The keys, in no order."""
        return _pages((0, key) for key in self)
