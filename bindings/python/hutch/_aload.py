"""A load that is awaited: what hutch_load_async calls, and its result.

A loader that is a plain function runs on a worker of the cache. A coroutine runs on the
event loop of its caller; it answers when it has ended, and no worker waits for it.
"""

from __future__ import annotations

import contextvars
import inspect
import weakref
from typing import TYPE_CHECKING, Any, Callable

from . import _structs
from ._callbacks import callback, new_token, release_of, report
from ._errors import Status
from ._library import lib
from ._loads import Lead, fulfil, give_up, leading

if TYPE_CHECKING:
    import asyncio

works: dict[int, Work] = {}


def _close(result: Any) -> None:
    if inspect.iscoroutine(result):
        result.close()


class _Unbegun:
    """What a loader has returned for its loop to await. A loop that is closed before it comes to
    that drops it, and a coroutine is closed then: Python would warn that nothing awaited it."""

    __slots__ = ("_result",)

    def __init__(self, result: Any) -> None:
        self._result = result

    def take(self) -> Any:
        result, self._result = self._result, None
        return result

    def __del__(self) -> None:
        _close(self._result)


class Work:
    """One caller's loader.

    Attributes:
        made: a list of what it returned, or empty.
        error: what it raised.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        loader: Callable[[], Any],
        encode: Callable[[Any], tuple[bytes, Any]],
    ) -> None:
        self.token = new_token()
        self.made: list[Any] = []
        self.error: BaseException | None = None
        self.loop = loop
        self._loader = loader
        self._encode = encode
        # That of the caller: the loader sees its context variables on a worker and in a task.
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[None] | None = None
        # Weak: the coroutine alone keeps its lead, which passes on when it is collected.
        self._lead: weakref.ref[Lead] | None = None
        self._is_left = False
        self._has_begun = False
        works[self.token] = self

    def leave(self) -> None:
        """No caller waits for it: a coroutine is cancelled."""
        self._is_left = True
        if self._task is not None:
            self._task.cancel()

    def end_with_loop(self) -> None:
        """The loop has been closed, and no coroutine of it goes on: another caller leads."""
        lead = None if self._lead is None else self._lead()
        if lead is not None:
            lib.hutch_loading_abandon(lead.pointer)

    def lead(self, loading: Any) -> int:
        """On a worker: the status that the loader returns."""
        if self.loop.is_closed():
            lib.hutch_loading_abandon(loading)
            return Status.OK
        try:
            result = self._context.run(self._loader)
            if not inspect.isawaitable(result):
                self._answer(loading, result)
                return Status.OK
        except BaseException as error:
            self._give_up(loading, error)
            return Status.OK
        try:
            self.loop.call_soon_threadsafe(self._begin, _Unbegun(result), Lead(loading))
        except RuntimeError as error:  # the loop is closed
            # This caller is gone, and the source has not failed.
            self.error = error
            # Not by _Unbegun, which is in a cycle now: the error has its frames.
            _close(result)
            lib.hutch_loading_abandon(loading)
            return Status.OK
        return Status.WOULD_BLOCK

    def _answer(self, loading: Any, result: Any) -> None:
        self.made = [result]
        data, options = self._encode(result)
        fulfil(loading, data, options)

    def _give_up(self, loading: Any, error: BaseException) -> None:
        self.error = error
        give_up(loading, error)

    def _begin(self, unbegun: _Unbegun, lead: Lead) -> None:
        import asyncio

        result = unbegun.take()
        if self._is_left:
            # The loop may be about to end, and a task would not come to its first step.
            _close(result)
            self._give_up(lead.pointer, asyncio.CancelledError())
            return

        def end(_: Any) -> None:
            self._task = None
            # A task that is cancelled before its first step never comes to its own end. One of an
            # eager task factory may have come to it before the loop has returned the task.
            if not self._has_begun:
                _close(result)
                self._give_up(lead.pointer, asyncio.CancelledError())

        self._lead = weakref.ref(lead)
        self._task = self._context.run(self.loop.create_task, self._run(result, lead))
        self._task.add_done_callback(end)

    async def _run(self, result: Any, lead: Lead) -> None:
        self._has_begun = True
        leading.set(lead)
        try:
            self._answer(lead.pointer, await result)
        except BaseException as error:
            # The callers that wait for the value are told; this task has none.
            self._give_up(lead.pointer, error)
        finally:
            self._task = None
            _close(result)


@callback
def _lead(token: int, key: int, size: int, loading: Any) -> int:
    try:
        return int(works[token].lead(loading))
    except BaseException as error:
        report(error, "a loader", None)
        return Status.IO


lead_callback = _structs.LoaderFunction(_lead)
release_callback = release_of(works, "a loader")
