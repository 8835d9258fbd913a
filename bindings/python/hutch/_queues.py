"""Queues for the host's own functions, groups of their tasks, and completion ports.

As with listeners, one callback of each kind serves all, and a number selects the
task.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import time
import weakref
from ctypes import byref
from dataclasses import dataclass
from typing import Any, Callable

from . import _structs
from ._callbacks import callback, release_of, report
from ._ending import note_queue, pause_if_ended
from ._errors import ClosedError, Status, TimedOutError, check, failure
from ._library import lib
from ._ports import Port
from ._settings import PRIORITIES, choice
from ._units import nanoseconds, uint32, uint64

_WAIT = 2
_NO_THREADS = 1
_ENDED = 4
_CANCELLING = 3
# A wait in C does not react to signals.
_SLICE = 0.1

_tokens = itertools.count(1)
_works: dict[int, Task] = {}
"""Tasks whose function may still be called."""
_completions: dict[int, Any] = {}
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


def _wait(call: Callable[[Any, int], int], pointer: Any, timeout: float | None) -> bool:
    """Whether the awaited event came in time."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = _SLICE if end is None else min(_SLICE, max(end - time.monotonic(), 0))
        status = call(pointer, nanoseconds(left))
        if status == Status.OK:
            return True
        if status != Status.TIMED_OUT:
            raise failure(status)
        if end is not None and time.monotonic() >= end:
            return False


class Task:
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
        weakref.finalize(self, lib.hutch_task_release, self._pointer).atexit = False

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
        return _wait(lib.hutch_task_wait, self._pointer, timeout)

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
        work = _works[token]
        work._know(task)
        work._run()
    except BaseException as error:
        report(error, "a task", None)
        return Status.IO
    return Status.OK


@callback
def _merge(into: int, other: int) -> None:
    try:
        _works[into]._join(_works[other])
    except BaseException as error:
        report(error, "a merge of tasks", None)


@callback
def _complete(token: int, completion: Any) -> None:
    told: Any = None
    try:
        told = _completions[token]
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
        task = _works.pop(token, None)
        if task is not None:
            task._queue = None
    except BaseException as error:
        report(error, "the release of a task", None)


_work_callback = _structs.WorkFunction(_work)
_merge_callback = _structs.MergeFunction(_merge)
_complete_callback = _structs.CompleteFunction(_complete)
_release_work_callback = _structs.ReleaseFunction(_release_work)
_release_completion_callback = release_of(_completions, "a completion")


class Group:
    """Tasks that start together, of any queue, with one completion for all.

        group = hutch.Group(queue)
        for url in urls:
            queue.submit(fetch, url, group=group)
        group.start(lambda tally: print(tally.count, "fetched"))

    A group that is dropped without a start cancels its tasks.
    """

    def __init__(self, queue: Queue) -> None:
        self._pointer = _structs.GroupPointer()
        check(lib.hutch_group_create(queue._pointer, byref(self._pointer)))
        weakref.finalize(self, lib.hutch_group_release, self._pointer).atexit = False

    def start(
        self, done: Callable[[Tally], Any] | None = None, *, port: Port | None = None
    ) -> bool:
        """Let its tasks run; after the last has ended, done is called. False: started before."""
        options = _structs.TaskOptions()
        if done is not None:
            _tell(options, done)
        if port is not None:
            options.port = port._pointer
        return check(lib.hutch_group_start(self._pointer, byref(options))) == Status.OK

    def cancel(self) -> None:
        """Cancel every task of it; its completion still comes, once it has been started."""
        check(lib.hutch_group_cancel(self._pointer))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all have ended and done has been called. False: not in this many seconds.

        Starts the group without a done function if nothing else has started it.
        """
        return _wait(lib.hutch_group_wait, self._pointer, timeout)


def _tell(options: _structs.TaskOptions, told: Any) -> None:
    token = next(_tokens)
    _completions[token] = told
    options.context = token
    options.complete = _complete_callback
    options.release = _release_completion_callback


class Queue:
    """Runs functions on threads of the library, and the awaited calls of caches.

        with hutch.Queue(4) as queue:
            task = queue.submit(sum, [1, 2, 3], priority="high")
            assert task.result() == 6
            pages, images = hutch.Cache("pages", queue=queue), hutch.Cache("images", queue=queue)

    One place of the width is for the oldest task whatever its priority, so every task runs in
    the end; the other places are for the highest priority. A queue of width 1 runs tasks in the
    order of submission. Thread-safe. After a fork the queue raises ForkedError in the child,
    which may make new ones; the caches of one queue have one new queue there. At the
    interpreter's end waiting tasks are cancelled. Two objects are equal if they are references
    to one queue.

    Parameters:
        width: how many run at once, at most 256; None: 2.
        length: how many may wait; None: any number.
        threads: False: the queue makes none, and run does the work.
    """

    def __init__(
        self, width: int | None = None, *, length: int | None = None, threads: bool = True
    ) -> None:
        options = _structs.QueueOptions(flags=0 if threads else _NO_THREADS)
        if width is not None:
            options.width = uint32(width)
        if length is not None:
            options.length = uint64(length)
        pointer = _structs.QueuePointer()
        check(lib.hutch_queue_create(byref(options), byref(pointer)))
        self._own(pointer)
        note_queue(self)

    def _own(self, pointer: Any) -> None:
        self._pointer = pointer
        self._address = ctypes.cast(pointer, ctypes.c_void_p).value
        self._is_closed = False
        # Its tasks may be a cache's too.
        self._serves_caches = False
        weakref.finalize(self, lib.hutch_queue_release, pointer).atexit = False

    @classmethod
    def _of(cls, cache: Any) -> Queue:
        queue = cls.__new__(cls)
        pointer = _structs.QueuePointer()
        check(lib.hutch_cache_queue(cache, byref(pointer)))
        queue._own(pointer)
        return queue

    @classmethod
    def _at(cls, pointer: Any) -> Queue:
        """One more reference to a queue."""
        queue = cls.__new__(cls)
        queue._own(lib.hutch_queue_retain(pointer))
        queue._serves_caches = True
        note_queue(queue)
        return queue

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Queue) and other._address == self._address

    def __hash__(self) -> int:
        return hash(self._address)

    def submit(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        priority: str = "default",
        identifier: str | bytes | None = None,
        merge: Callable[[Any, Any], Any] | None = None,
        deadline: float | None = None,
        wait: bool = False,
        done: Callable[[Task], Any] | None = None,
        port: Port | None = None,
        group: Group | None = None,
    ) -> Task:
        """Call function(*arguments) once, on a worker.

        priority: "low", "default" or "high".
        identifier: while a task with the same identifier waits, this one joins it: the
            function of the first is called once for all, at the highest priority of
            those that wait, and all get its result.
        merge: combines the one argument that each has: merge(into, other) returns the
            argument for the call. None: the first one is enough.
        deadline: a task that still waits after this many seconds ends without running.
        wait: if the queue is full, wait, for at most the deadline.
        done: called with the task when it has ended, on a worker, or by the drain of port.
        group: holds the task until its start.

        BlockingIOError: the queue is full. TimedOutError: it was full until the deadline.
        """
        if self._is_closed:
            pause_if_ended()
            raise ClosedError(Status.CLOSED, "the queue has been closed")
        if not callable(function):
            raise TypeError(f"a task is a function, not a {type(function).__name__}")
        if merge is not None and len(arguments) != 1:
            raise TypeError("tasks that are merged have one argument")
        options = _structs.TaskOptions(
            priority=choice("priority", priority, PRIORITIES), flags=_WAIT if wait else 0
        )
        if deadline is not None:
            options.deadline = nanoseconds(deadline)
        if identifier is not None:
            name = identifier.encode() if isinstance(identifier, str) else bytes(identifier)
            options.identifier = name
            options.identifier_size = len(name)
            options.merge = _merge_callback
        if port is not None:
            options.port = port._pointer
        if group is not None:
            options.group = group._pointer
        task = Task(function, arguments, merge, done)
        if done is not None:
            _tell(options, task)
        token = next(_tokens)
        task._queue = self
        _works[token] = task
        pointer = _structs.TaskPointer()
        # The library releases both contexts, whatever it answers.
        status = lib.hutch_queue_submit(
            self._pointer,
            _work_callback,
            token,
            _release_work_callback,
            byref(options),
            byref(pointer),
        )
        if status == Status.WOULD_BLOCK:
            raise BlockingIOError("the queue is full")
        check(status)
        task._know(pointer)
        lib.hutch_task_release(pointer)
        return task

    def set_width(self, width: int) -> None:
        """Change how many run at once; takes effect immediately."""
        check(lib.hutch_queue_set_width(self._pointer, uint32(width)))

    def suspend(self) -> None:
        """Start no task until resume; each suspend needs a resume of its own."""
        check(lib.hutch_queue_suspend(self._pointer))

    def resume(self) -> None:
        """Continue after suspend. InvalidArgumentError: the queue is not suspended."""
        check(lib.hutch_queue_resume(self._pointer))

    def cancel_all(self) -> int:
        """Cancel every task. Returns how many waited."""
        cancelled = ctypes.c_uint64()
        check(lib.hutch_queue_cancel_all(self._pointer, byref(cancelled)))
        return cancelled.value

    def wait_all(self, timeout: float | None = None) -> bool:
        """Wait until no task is left. False: some are left after this many seconds.

        DeadlockError: from a task of the queue.
        """
        return _wait(lib.hutch_queue_wait_all, self._pointer, timeout)

    def run(self, seconds: float | None = None) -> int:
        """Run tasks on this thread, for about this long; None: all. Returns how many."""
        ran = ctypes.c_uint64()
        budget = 0 if seconds is None else nanoseconds(seconds)
        check(lib.hutch_queue_run(self._pointer, budget, byref(ran)))
        return ran.value

    def close(self, *, cancel: bool = False) -> None:
        """Accept no more tasks, and wait until all have ended. The threads end with the object.

        cancel: waiting tasks do not run. Not from a task of its own (DeadlockError). If the
        queue is suspended, another thread has to resume it, or cancel. The tasks of the caches
        that have the queue are among them; the caches may still use it afterwards.
        """
        self._is_closed = True
        if cancel:
            self.cancel_all()
        self.wait_all()

    def _end(self) -> None:
        """Python functions cannot run after the interpreter's end: waits for running ones.

        The tasks of caches are left to the close of the caches, which comes next.
        """
        self._is_closed = True
        if self._serves_caches:
            ours = [task for task in list(_works.values()) if task._queue == self]
            for task in ours:
                if task._pointer is not None:
                    lib.hutch_task_cancel(task._pointer, None)
            for task in ours:
                while task._pointer is not None and lib.hutch_task_wait(
                    task._pointer, nanoseconds(_SLICE)
                ) == Status.TIMED_OUT:
                    pass
            return
        self._end_all()

    def _end_all(self) -> None:
        lib.hutch_queue_cancel_all(self._pointer, None)
        while lib.hutch_queue_wait_all(self._pointer, nanoseconds(_SLICE)) == Status.TIMED_OUT:
            pass

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
