"""Calls that are awaited: tasks of the library, whose completions come through the loop.

Each event loop has one completion port, whose descriptor the loop watches; completions are
made on the loop's own thread. A call that memory can answer at once makes no task.
"""

from __future__ import annotations

import itertools
import weakref
from ctypes import byref, pointer
from typing import TYPE_CHECKING, Any, Callable, TypeVar, overload

from . import _structs
from ._awaits import AwaitedEntries
from ._callbacks import callback, report
from ._cbor import Unreadable
from ._codec import Key, key_to_bytes
from ._errors import LoadError, Status, check, described
from ._library import lib
from ._loads import load_options
from ._options import put_options
from ._settings import PRIORITIES, choice
from ._units import Seconds, own_duration
from ._serializers import Forms
from ._values import parts

if TYPE_CHECKING:
    # Not at run time: to import asyncio takes longer than all else of the package.
    import asyncio
    from collections.abc import Coroutine

K = TypeVar("K", bound=Key)
V = TypeVar("V")

_MAY_FINISH_NOW = 1
_TOUCH, _ADD, _REPLACE = 15, 16, 17

_waiting: dict[int, asyncio.Future[Any]] = {}
"""The awaited calls, by the token that the library carries as the context."""

_tokens = itertools.count(1)


def _result(completion: Any) -> tuple[int, Any]:
    """The result of a completion: its status, and a value's parts. Raises its failure."""
    status = completion.status
    if status < 0:
        raise described(status, completion.error.contents if completion.error else None)
    if completion.value:
        return status, parts(completion.value)
    return status, None


@callback
def _complete(token: int, completion: Any) -> None:
    try:
        future = _waiting.pop(token, None)
        if future is None or future.done():
            return  # its coroutine has been cancelled meanwhile
        try:
            result = _result(completion.contents)
        except Exception as error:
            future.set_exception(error)
            return
        if result[0] == Status.CANCELLED:
            future.cancel()
        else:
            future.set_result(result)
    except BaseException as error:
        report(error, "the end of an awaited call", None)


_complete_callback = _structs.CompleteFunction(_complete)


class _Port:
    """The completion port of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.pointer = _structs.PortPointer()
        check(lib.hutch_port_create(byref(self.pointer)))
        weakref.finalize(self, lib.hutch_port_release, self.pointer).atexit = False
        loop.add_reader(lib.hutch_port_fd(self.pointer), self.drain)

    def drain(self) -> None:
        check(lib.hutch_port_drain(self.pointer, 0, None))


_ports: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Port] = weakref.WeakKeyDictionary()


def port_of(loop: asyncio.AbstractEventLoop) -> _Port:
    port = _ports.get(loop)
    if port is None:
        port = _ports[loop] = _Port(loop)
    return port


async def _awaited(call: Any, arguments: tuple[Any, ...], priority: str) -> tuple[int, Any]:
    """Submit a call, and wait for its result: a status, and for a get the value.

    If the coroutine is cancelled, so is the task, unless it runs already.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    now = _structs.Completion()
    token = next(_tokens)
    options = _structs.TaskOptions(
        priority=choice("priority", priority, PRIORITIES),
        flags=_MAY_FINISH_NOW,
        complete=_complete_callback,
        context=token,
        port=port_of(loop).pointer,
        now=pointer(now),
    )
    task = _structs.TaskPointer()
    future: asyncio.Future[Any] = loop.create_future()
    _waiting[token] = future
    try:
        status = check(call(*arguments, options, byref(task)))
    except BaseException:
        del _waiting[token]
        raise
    if status != Status.OK or now.operation:
        del _waiting[token]
        if status != Status.OK:  # a queue that is full
            raise described(status, None)
        try:
            return _result(now)
        finally:
            lib.hutch_value_release(now.value)
    try:
        completed: tuple[int, Any] = await future
        return completed
    except asyncio.CancelledError:
        lib.hutch_task_cancel(task, None)
        raise
    finally:
        # If no thread drains the port any more, this would keep the loop, and the loop the port.
        _waiting.pop(token, None)
        lib.hutch_task_release(task)


async def _of_key(
    cache: AsyncEntries, call: Any, key: Key, priority: str, *more: Any
) -> tuple[int, Any]:
    """As _awaited, of a call for one key."""
    name = key_to_bytes(key)
    return await _awaited(call, (cache._pointer, name, len(name), *more), priority)


async def _submitted(
    cache: AsyncEntries, call: _structs.Call, key: Key, priority: str
) -> int:
    """The status of a call of hutch_submit on one key."""
    name = key_to_bytes(key)
    call.key = name
    call.key_size = len(name)
    status, _ = await _awaited(lib.hutch_submit, (cache._pointer, call), priority)
    return status


async def _put_if(
    cache: AsyncEntries,
    operation: int,
    key: Key,
    value: Any,
    own: tuple[Any, ...],
    priority: str,
) -> int:
    """The status of a put under a condition; OK also if not every tier has stored the value."""
    data, extended = cache._forms.encode(value)
    expire, idle, cost, write_policy, tag = own
    call = _structs.Call(operation=operation, value=data, value_size=len(data))
    options = put_options(expire, idle, cost, extended, None, write_policy, tag)
    if options is not None:
        call.put_options = pointer(options)
    status = await _submitted(cache, call, key, priority)
    return Status.OK if status == Status.PARTIAL else status


class AsyncEntries(AwaitedEntries):
    """The awaitable calls on entries: each has the arguments and the meaning of the call without
    the a, and a priority, "low", "default" or "high".

    Calls for one key are done in the order in which they were begun, and concurrently with
    calls for other keys. When the cache is closed, reads that wait are cancelled
    (asyncio.CancelledError), and writes are carried out.
    """

    _pointer: Any
    _forms: Forms

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
        tag: Key | None = None,
        priority: str = "default",
    ) -> bool:
        """Store value under key. False: a later write of the key was done first."""
        data, extended = self._forms.encode(value)
        options = put_options(expire, idle, cost, extended, None, write_policy, tag)
        put = lib.hutch_put_async
        status, _ = await _of_key(self, put, key, priority, data, len(data), options)
        return status != Status.SUPERSEDED

    async def aadd(
        self,
        key: Key,
        value: Any,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        write_policy: str | None = None,
        tag: Key | None = None,
        priority: str = "default",
    ) -> bool:
        """Store value if there is none. False: there is one, or a later write was done first."""
        own = expire, idle, cost, write_policy, tag
        return await _put_if(self, _ADD, key, value, own, priority) == Status.OK

    async def areplace(
        self,
        key: Key,
        value: Any,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        write_policy: str | None = None,
        tag: Key | None = None,
        priority: str = "default",
    ) -> bool:
        """Store value if there is one. False: there is none, or a later write was done first."""
        own = expire, idle, cost, write_policy, tag
        return await _put_if(self, _REPLACE, key, value, own, priority) == Status.OK

    async def atouch(
        self,
        key: Key,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        priority: str = "default",
    ) -> bool:
        """Make the entry count as written now, with new durations. False: no entry."""
        call = _structs.Call(
            operation=_TOUCH, time_to_live=own_duration(expire), time_to_idle=own_duration(idle)
        )
        return await _submitted(self, call, key, priority) == Status.OK

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

        name = key_to_bytes(key)
        choice("priority", priority, PRIORITIES)
        options = load_options(timeout, refresh, remember_errors, stale_if_error)
        work = Work(asyncio.get_running_loop(), lambda: loader(key), encode)
        arguments = self._pointer, name, len(name), lead_callback, work.token, release_callback
        try:
            _, found = await _awaited(lib.hutch_load_async, (*arguments, options), priority)
        except asyncio.CancelledError:
            work.leave()
            if work.error is not None and not isinstance(work.error, asyncio.CancelledError):
                raise work.error from None
            raise
        except LoadError:
            if isinstance(work.error, Exception):
                raise work.error from None
            raise
        try:
            return self._forms.decode(*found)
        except Unreadable:
            # A stored value that cannot be read counts as absent, and is replaced.
            await self.adelete(key)
            made = loader(key)
            if inspect.isawaitable(made):
                made = await made
            await self.aset(key, made, expire, idle=idle, cost=cost, tag=tag)
            data, extended = self._forms.encode(made)
            return self._forms.decode(data, extended or b"")

    async def aclear(self, *, priority: str = "default") -> None:
        """Remove every entry that was put before."""
        await _awaited(lib.hutch_clear_async, (self._pointer,), priority)

    async def aflush(self, *, priority: str = "default") -> None:
        """Wait until everything that was put is in the manifest."""
        await _awaited(lib.hutch_flush_async, (self._pointer,), priority)
