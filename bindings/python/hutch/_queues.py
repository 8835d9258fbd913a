"""Queues for the host's own functions, and groups of their tasks."""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Any, Callable

from . import _structs
from ._callbacks import new_token
from ._errors import ClosedError, Status, check
from ._handles import Handle, release_with
from ._library import lib
from ._ports import Port
from ._process import note_queue, pause_if_ended
from ._settings import PRIORITIES, choice
from ._tasks import (
    SLICE,
    Tally,
    Task,
    merge_callback,
    release_work_callback,
    tell,
    wait,
    work_callback,
    works,
)
from ._units import named, nanoseconds, uint32, uint64

_WAIT = 2
_NO_THREADS = 1


class Group(Handle):
    """Tasks that start together, of any queue, with one completion for all.

        group = hutch.Group(queue)
        for url in urls:
            queue.submit(fetch, url, group=group)
        group.start(lambda tally: print(tally.count, "fetched"))

    A group that is dropped without a start cancels its tasks.
    """

    def __init__(self, queue: Queue) -> None:
        self._pointer = _structs.GroupPointer()
        release_with(self, lib.hutch_group_release, self._pointer)
        check(lib.hutch_group_create(queue._pointer, byref(self._pointer)))

    def start(
        self, done: Callable[[Tally], Any] | None = None, *, port: Port | None = None
    ) -> bool:
        """Let its tasks run; after the last has ended, done is called. False: started before."""
        options = _structs.TaskOptions()
        if done is not None:
            tell(options, done)
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
        return wait(lib.hutch_group_wait, self._pointer, timeout)


class Queue(Handle):
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
        release_with(self, lib.hutch_queue_release, pointer)

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
            options.deadline = named("deadline", nanoseconds, deadline)
        if identifier is not None:
            name = identifier.encode() if isinstance(identifier, str) else bytes(identifier)
            options.identifier = name
            options.identifier_size = len(name)
            options.merge = merge_callback
        if port is not None:
            options.port = port._pointer
        if group is not None:
            options.group = group._pointer
        task = Task(function, arguments, merge, done)
        if done is not None:
            tell(options, task)
        token = new_token()
        task._queue = self
        works[token] = task
        pointer = _structs.TaskPointer()
        # The library releases both contexts, whatever it answers.
        status = lib.hutch_queue_submit(
            self._pointer,
            work_callback,
            token,
            release_work_callback,
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
        return wait(lib.hutch_queue_wait_all, self._pointer, timeout)

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
            ours = [task for task in list(works.values()) if task._queue == self]
            for task in ours:
                if task._pointer is not None:
                    lib.hutch_task_cancel(task._pointer, None)
            for task in ours:
                while task._pointer is not None and lib.hutch_task_wait(
                    task._pointer, nanoseconds(SLICE)
                ) == Status.TIMED_OUT:
                    pass
            return
        self._end_all()

    def _end_all(self) -> None:
        lib.hutch_queue_cancel_all(self._pointer, None)
        while lib.hutch_queue_wait_all(self._pointer, nanoseconds(SLICE)) == Status.TIMED_OUT:
            pass

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
