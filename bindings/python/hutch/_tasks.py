"""The tasks of queues: a function, its result, and what is done when it has ended.

As with listeners, one callback of each kind serves all, and a number selects the task.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from ctypes import byref
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Any, Callable

from . import _structs
from ._callbacks import callback, new_token, release_of, report
from ._errors import Status, TimedOutError, check, failure
from ._handles import Handle, release_with
from ._library import lib
from ._process import hint
from ._settings import PRIORITIES, choice
from ._units import nanoseconds

if TYPE_CHECKING:
    from ._queues import Queue
else:
    hint(globals(), "Queue")

_ENDED = 4
_CANCELLING = 3
# A wait in C does not react to signals.
SLICE = 0.1
"""Seconds."""

works: dict[int, Task] = {}
"""Tasks whose function may still be called."""
completions: dict[int, Any] = {}
"""The receivers of completions: a Task, or the function of a group."""
# Makes the state of a task change in one step. No function is called within it.
_knowing = threading.Lock()


def _begin_child() -> None:
    """In the child of a fork: a thread of the parent may have had the lock."""
    global _knowing
    _knowing = threading.Lock()


os.register_at_fork(after_in_child=_begin_child)


class CancelledError(Exception):
    """The task was cancelled before it ran."""


@dataclass(frozen=True)
class Tally:
    """The result of a group.

    Attributes:
        count: how many tasks it had.
        cancelled: how many of them were cancelled.
    """

    count: int
    cancelled: int


def wait(call: Callable[[Any, int], int], pointer: Any, timeout: float | None) -> bool:
    """Whether the awaited event came in time."""
    if timeout is not None and isnan(timeout):
        raise ValueError("timeout: a duration cannot be nan seconds")
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = SLICE if end is None else min(SLICE, max(end - time.monotonic(), 0))
        status = call(pointer, nanoseconds(left))
        if status == Status.OK:
            return True
        if status != Status.TIMED_OUT:
            raise failure(status)
        if end is not None and time.monotonic() >= end:
            return False


class Task(Handle):
    """A function submitted to a queue. It runs whether or not the program keeps this object."""

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        merge: Callable[[Any, Any], Any] | None,
        done: Callable[[Task], Any] | None,
    ) -> None:
        self._function = function
        self._arguments = arguments
        self._merge = merge
        self._done = done
        self._joined: list[Task] = []
        self._result: Any = None
        self._error: BaseException | None = None
        self._pointer: Any = None
        # A reference to its completion, if any: the function called then may ask for the result.
        self._status: int | None = None
        # A queue stays while a function of it may be called.
        self._queue: Queue | None = None

    def _know(self, pointer: Any) -> None:
        with _knowing:
            if self._pointer is not None:
                return
            self._pointer = lib.hutch_task_retain(pointer)
        release_with(self, lib.hutch_task_release, self._pointer)

    def _run(self) -> None:
        try:
            self._result = self._function(*self._arguments)
        except BaseException as error:
            self._error = error
            if isinstance(error, KeyboardInterrupt):
                report(error, "a task", self._function)
        for other in self._joined:
            other._result, other._error = self._result, self._error

    def _join(self, other: Task) -> None:
        """This task does the work of other too."""
        self._joined.append(other)
        if self._merge is not None:
            try:
                self._arguments = (self._merge(self._arguments[0], other._arguments[0]),)
            except BaseException as error:
                report(error, "a merge of tasks", self._merge)

    def _state(self) -> tuple[int, int]:
        if self._status is not None:
            return _ENDED, self._status
        state = ctypes.c_uint32()
        result = ctypes.c_int32()
        check(lib.hutch_task_status(self._pointer, byref(state), byref(result)))
        return state.value, result.value

    def done(self) -> bool:
        """Whether it has ended: it ran, was cancelled, or passed its deadline."""
        return self._state()[0] == _ENDED

    def cancelled(self) -> bool:
        """Whether it has ended without having run, by a cancel."""
        return self._state() == (_ENDED, Status.CANCELLED)

    def is_asked(self) -> bool:
        """Whether it runs and every submission of it was cancelled: for long functions."""
        return self._state()[0] == _CANCELLING

    def cancel(self) -> bool:
        """Keep it from running. False: it runs, and has been asked to end; or has ended.

        Of tasks that are coalesced, each is cancelled by itself.
        """
        was = ctypes.c_uint32()
        check(lib.hutch_task_cancel(self._pointer, byref(was)))
        return was.value == 1

    def set_priority(self, priority: str) -> None:
        """Change its priority, "low", "default" or "high", if it still waits."""
        check(lib.hutch_task_set_priority(self._pointer, choice("priority", priority, PRIORITIES)))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended. False: it has not within this many seconds.

        DeadlockError: from a task of the same queue.
        """
        if self._status is not None:
            return True
        return wait(lib.hutch_task_wait, self._pointer, timeout)

    def result(self, timeout: float | None = None) -> Any:
        """What the function returned; raises what the function raised.

        CancelledError: it was cancelled. TimedOutError: its deadline passed before it
        ran, or it has not ended within this many seconds.
        """
        if not self.wait(timeout):
            raise TimedOutError(Status.TIMED_OUT, "the task has not ended")
        status = self._state()[1]
        if status == Status.CANCELLED:
            raise CancelledError
        if status == Status.TIMED_OUT:
            raise TimedOutError(Status.TIMED_OUT, "the deadline passed while the task waited")
        if self._error is not None:
            raise self._error
        return self._result


@callback
def _work(token: int, task: Any) -> int:
    try:
        work = works[token]
        work._know(task)
        work._run()
    except BaseException as error:
        report(error, "a task", None)
        return Status.IO
    return Status.OK


@callback
def _merge(into: int, other: int) -> None:
    try:
        works[into]._join(works[other])
    except BaseException as error:
        report(error, "a merge of tasks", None)


@callback
def _complete(token: int, completion: Any) -> None:
    told: Any = None
    try:
        told = completions[token]
        if not isinstance(told, Task):
            told(Tally(completion.contents.count, completion.contents.cancelled))
        elif told._done is not None:
            told._know(completion.contents.task)
            told._status = completion.contents.status
            told._done(told)
    except BaseException as error:
        report(error, "what is done at the end of a task", told)


@callback
def _release_work(token: int) -> None:
    try:
        task = works.pop(token, None)
        if task is not None:
            task._queue = None
    except BaseException as error:
        report(error, "the release of a task", None)


work_callback = _structs.WorkFunction(_work)
merge_callback = _structs.MergeFunction(_merge)
_complete_callback = _structs.CompleteFunction(_complete)
release_work_callback = _structs.ReleaseFunction(_release_work)
_release_completion_callback = release_of(completions, "a completion")


def tell(options: _structs.TaskOptions, told: Any) -> None:
    """Have this Task, or this function of a group, told of the end."""
    token = new_token()
    completions[token] = told
    options.context = token
    options.complete = _complete_callback
    options.release = _release_completion_callback
