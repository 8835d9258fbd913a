"""How a call is awaited: as a task of the library, whose completion comes through the loop.

Each event loop has one completion port, whose descriptor the loop watches; completions are
made on the loop's own thread. A call that memory can answer at once makes no task.
"""

from __future__ import annotations

import contextvars
import weakref
from ctypes import byref, pointer
from typing import TYPE_CHECKING, Any, Callable

from . import _structs
from ._callbacks import callback, finalizer, new_token, report
from ._errors import Status, check, described
from ._handles import release_with
from ._library import lib
from ._settings import PRIORITIES, choice
from ._values import parts

if TYPE_CHECKING:
    # Not at run time: to import asyncio takes longer than all else of the package.
    import asyncio

Take = Callable[[Any], Any]
"""Takes what a call is to return out of its completion, which is there for the call only."""

_MAY_FINISH_NOW = 1

waiting: dict[int, tuple[asyncio.Future[Any], Take]] = {}
"""The awaited calls, by the token that the library carries as the context."""


def parts_of(completion: Any) -> Any:
    """The bytes and the extended data of a completion's value; None: it has none."""
    return parts(completion.value) if completion.value else None


def _result(completion: Any, take: Take) -> tuple[int, Any]:
    """The result of a completion: its status, and what take makes of it. Raises its failure."""
    status = completion.status
    if status < 0:
        raise described(status, completion.error.contents if completion.error else None)
    return status, take(completion)


@callback
def _complete(token: int, completion: Any) -> None:
    try:
        future, take = waiting.pop(token, (None, parts_of))
        if future is None or future.done():
            return  # its coroutine has been cancelled meanwhile
        if completion.contents.status == Status.CANCELLED:
            future.cancel()  # There is no result to take.
            return
        try:
            future.set_result(_result(completion.contents, take))
        except Exception as error:
            future.set_exception(error)
    except BaseException as error:
        report(error, "the end of an awaited call", None)


_complete_callback = _structs.CompleteFunction(_complete)


class _Port:
    """The completion port of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.pointer = _structs.PortPointer()
        release_with(self, lib.hutch_port_release, self.pointer)
        check(lib.hutch_port_create(byref(self.pointer)))
        # In a new context, since the loop keeps it: the caller's has what belongs to its request.
        context = contextvars.Context()
        context.run(loop.add_reader, lib.hutch_port_fd(self.pointer), self.drain)

    def drain(self) -> None:
        check(lib.hutch_port_drain(self.pointer, 0, None))


ports: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Port] = weakref.WeakKeyDictionary()


def port_of(loop: asyncio.AbstractEventLoop) -> _Port:
    port = ports.get(loop)
    if port is None:
        if ports:
            from ._closed_loops import let_go

            let_go()
        port = ports[loop] = _Port(loop)
    return port


class _Task(_structs.TaskPointer):  # type: ignore[misc,valid-type,unused-ignore]
    """The reference to a task, which keeps the port. It is released whenever Ctrl-C comes."""

    _type_ = _structs.TaskHandle

    @finalizer
    def __del__(self, release: Callable[[Any], Any] = lib.hutch_task_release) -> None:
        release(self)


async def awaited(
    call: Any,
    arguments: tuple[Any, ...],
    priority: str,
    take: Take = parts_of,
    token: int | None = None,
) -> tuple[int, Any]:
    """Submit a call, and wait for its result: a status, and what take makes of the completion.

    token: the context of the task; None: one of its own. If the coroutine is cancelled, so is
    the task; if it runs already, it is asked to end.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    now = _structs.Completion()
    if token is None:
        token = new_token()
    options = _structs.TaskOptions(
        priority=choice("priority", priority, PRIORITIES),
        flags=_MAY_FINISH_NOW,
        complete=_complete_callback,
        context=token,
        port=port_of(loop).pointer,
        now=pointer(now),
    )
    task = _Task()
    future: asyncio.Future[Any] = loop.create_future()
    try:
        waiting[token] = future, take
        if check(call(*arguments, options, byref(task))) == Status.WOULD_BLOCK:
            raise BlockingIOError("the queue is full")
        if now.operation:
            return _result(now, take)
        completed: tuple[int, Any] = await future
        return completed
    except asyncio.CancelledError:
        lib.hutch_task_cancel(task, None)
        raise
    finally:
        # If no thread drains the port any more, this would keep the loop, and the loop the port.
        waiting.pop(token, None)
        if now.operation:
            lib.hutch_value_release(now.value)
