"""The awaitable calls that have a function of their own in the library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, TypeVar, overload

from ._awaiting import awaited, port_of
from ._calls import SubmittedEntries
from ._cbor import Unreadable
from ._codec import Key, key_to_bytes
from ._errors import LoadError, Status
from ._library import lib
from ._loads import load_options
from ._options import put_options
from ._settings import PRIORITIES, choice
from ._units import Seconds
from ._serializers import Forms

if TYPE_CHECKING:
    from collections.abc import Coroutine

K = TypeVar("K", bound=Key)
V = TypeVar("V")

async def _of_key(
    cache: AsyncEntries, call: Any, key: Key, priority: str, *more: Any
) -> tuple[int, Any]:
    """As awaited, of a call for one key."""
    name = key_to_bytes(key)
    return await awaited(call, (cache._pointer, name, len(name), *more), priority)


class AsyncEntries(SubmittedEntries):
    """The awaitable calls on entries: each has the arguments and the meaning of the call without
    the a, and a priority, "low", "default" or "high".

    Calls for one key are done in the order in which they were begun, and concurrently with
    calls for other keys. When the cache is closed, reads that wait are cancelled
    (asyncio.CancelledError), and writes are carried out.
    """

    _pointer: Any
    _forms: Forms
    _as_stored: Callable[[Any], Any]

    async def aget(self, key: Key, default: Any = None, *, priority: str = "default") -> Any:
        """The value of key, or default."""
        status, found = await _of_key(self, lib.hutch_get_async, key, priority)
        try:
            return default if status == Status.NOT_FOUND else self._forms.decode(*found)
        except Unreadable:
            return default

    async def aset(
        self,
        key: Key,
        value: Any,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        write_policy: str | None = None,
        suffix: str | None = None,
        tag: Key | None = None,
        priority: str = "default",
    ) -> bool:
        """Store value under key. False: a later write of the key was done first."""
        data, extended = self._forms.encode(value)
        options = put_options(expire, idle, cost, extended, suffix, write_policy, tag)
        put = lib.hutch_put_async
        status, _ = await _of_key(self, put, key, priority, data, len(data), options)
        return status != Status.SUPERSEDED

    async def adelete(self, key: Key, *, priority: str = "default") -> bool:
        """Remove the entry. False: there is none, or a later write was done first."""
        status, _ = await _of_key(self, lib.hutch_remove_async, key, priority)
        return status == Status.OK

    async def acontains(self, key: Key, *, priority: str = "default") -> bool:
        """Whether there is an entry."""
        status, _ = await _of_key(self, lib.hutch_contains_async, key, priority)
        return status == Status.OK

    @overload
    async def aload(
        self,
        key: K,
        loader: Callable[[K], Coroutine[Any, Any, V]],
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        timeout: Seconds | None = None,
        refresh: Seconds | None = None,
        remember_errors: Seconds | None = None,
        stale_if_error: bool = False,
        tag: Key | None = None,
        priority: str = "default",
    ) -> V: ...

    @overload
    async def aload(
        self,
        key: K,
        loader: Callable[[K], V],
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        timeout: Seconds | None = None,
        refresh: Seconds | None = None,
        remember_errors: Seconds | None = None,
        stale_if_error: bool = False,
        tag: Key | None = None,
        priority: str = "default",
    ) -> V: ...

    async def aload(
        self,
        key: Key,
        loader: Callable[[Any], Any],
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        timeout: Seconds | None = None,
        refresh: Seconds | None = None,
        remember_errors: Seconds | None = None,
        stale_if_error: bool = False,
        tag: Key | None = None,
        priority: str = "default",
    ) -> Any:
        """The value of key; if there is none, what loader(key) returns, which is stored.

        The loader is a coroutine function, which runs on this loop, or a function,
        which runs on a worker of the cache and must not wait for other tasks of the
        cache. It runs once for all callers of load or aload; otherwise as in load. If the
        leader is cancelled, so is its coroutine, and the loader of another waiting
        caller runs.
        """

        def encode(result: Any) -> tuple[bytes, Any]:
            data, extended = self._forms.encode(result)
            return data, put_options(expire, idle, cost, extended, tag=tag)

        import asyncio
        import inspect

        from ._aload import Work, lead_callback, release_callback
        from ._closed_loops import Watch

        name = key_to_bytes(key)
        choice("priority", priority, PRIORITIES)
        options = load_options(timeout, refresh, remember_errors, stale_if_error)
        loop = asyncio.get_running_loop()
        port_of(loop)  # May fail, and nothing would release the loader.
        for _ in range(2):
            work = Work(loop, lambda: loader(key), encode)
            arguments = self._pointer, name, len(name), lead_callback, work.token, release_callback
            try:
                with Watch(loop):
                    _, found = await awaited(
                        lib.hutch_load_async, (*arguments, options), priority
                    )
            except asyncio.CancelledError:
                work.leave()
                # What ends a loader without being a failure of it cancels the load. Any other
                # exception of the loader comes too late, such as that of an answer which was not
                # waited for.
                error = work.error
                if error is None or isinstance(error, (Exception, asyncio.CancelledError)):
                    raise
                raise error from None
            except LoadError:
                if isinstance(work.error, Exception):
                    raise work.error from None
                raise
            try:
                return self._forms.decode(*found)
            except Unreadable:
                # A stored value that cannot be read counts as absent, and is replaced; a newer one
                # stays.
                _, stored = await _of_key(self, lib.hutch_get_async, key, priority)
                if stored == found:
                    await self.adelete(key)
                if work.made:
                    return self._as_stored(work.made[0])
        # Another program keeps storing bytes that this one cannot read.
        made = loader(key)
        return self._as_stored(await made if inspect.isawaitable(made) else made)

    async def aclear(self, *, priority: str = "default") -> None:
        """Remove every entry that was put before."""
        await awaited(lib.hutch_clear_async, (self._pointer,), priority)

    async def aflush(self, *, priority: str = "default") -> None:
        """Wait until everything that was put is in the manifest."""
        await awaited(lib.hutch_flush_async, (self._pointer,), priority)
