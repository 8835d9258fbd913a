"""Awaitable forms of the calls that have no tasks of their own in the library.

They run in a thread of the event loop's executor, since a call may wait for the disk.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from ._codec import Key
from ._entries import Entries

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    from ._walks import Order

    P = ParamSpec("P")

R = TypeVar("R")
V = TypeVar("V")

_AT_ONCE = 256


async def in_thread(function: Callable[..., V], *args: Any, **kwargs: Any) -> V:
    """Call a function in a thread of the event loop's executor."""
    import asyncio

    return await asyncio.to_thread(function, *args, **kwargs)


def _threaded(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    name: str = getattr(method, "__name__")

    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await in_thread(getattr(self, name), *args, **kwargs)

    call.__name__ = f"a{name}"
    call.__qualname__ = f"AwaitedEntries.a{name}"
    call.__doc__ = f"As {name}, without blocking the event loop."
    return call


async def _pages(items: Iterable[R]) -> AsyncIterator[R]:
    walk = iter(items)
    while True:
        page: list[R] = await in_thread(list, itertools.islice(walk, _AT_ONCE))
        for item in page:
            yield item
        if len(page) < _AT_ONCE:
            return


class AwaitedEntries:
    """The calls on entries, each with the arguments and the meaning of the call without the a."""

    aput = _threaded(Entries.put)
    aadd = _threaded(Entries.add)
    areplace = _threaded(Entries.replace)
    acompare_and_swap = _threaded(Entries.compare_and_swap)
    apop = _threaded(Entries.pop)
    apopitem = _threaded(Entries.popitem)
    apeekitem = _threaded(Entries.peekitem)
    asetdefault = _threaded(Entries.setdefault)
    aupdate = _threaded(Entries.update)
    aentry = _threaded(Entries.entry)
    ainfo = _threaded(Entries.info)
    atouch = _threaded(Entries.touch)
    aincr = _threaded(Entries.incr)
    adecr = _threaded(Entries.decr)
    adelete_many = _threaded(Entries.delete_many)
    aput_file = _threaded(Entries.put_file)
    apin = _threaded(Entries.pin)
    aread = _threaded(Entries.read)
    apath = _threaded(Entries.path)
    atrim = _threaded(Entries.trim)
    aexpire = _threaded(Entries.expire)
    acheck = _threaded(Entries.check)
    anotify = _threaded(Entries.notify)
    acost = _threaded(Entries.cost)
    avolume = _threaded(Entries.volume)
    astats = _threaded(Entries.stats)
    aget_many = _threaded(Entries.get_many)
    ainfos = _threaded(Entries.infos)
    aset_many = _threaded(Entries.set_many)
    aput_many = _threaded(Entries.put_many)
    aremove_prefix = _threaded(Entries.remove_prefix)
    aremove_tagged = _threaded(Entries.remove_tagged)

    def akeys(
        self: Any, order: Order | None = None, *, reverse: bool = False
    ) -> AsyncIterator[Key]:
        """The keys, as keys gives them, for async for."""
        return _pages(self.keys(order, reverse=reverse))

    def avalues(
        self: Any, order: Order | None = None, *, reverse: bool = False
    ) -> AsyncIterator[Any]:
        """The values, as values gives them, for async for."""
        return _pages(self.values(order, reverse=reverse))

    def aitems(
        self: Any, order: Order | None = None, *, reverse: bool = False
    ) -> AsyncIterator[tuple[Key, Any]]:
        """Keys and values, as items gives them, for async for."""
        return _pages(self.items(order, reverse=reverse))

    def __aiter__(self: Any) -> AsyncIterator[Key]:
        """The keys, in no order."""
        return _pages(self)
