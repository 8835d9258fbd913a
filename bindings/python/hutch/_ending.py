"""The interpreter's end: first queues end, since their tasks may use caches, then caches close.

One handler does both, since the order in which handlers were registered is an accident of
imports. Handlers of atexit that were registered before hutch was imported run after it.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from typing import Any, Callable

_queues: weakref.WeakSet[Any] = weakref.WeakSet()
# A cache's number and the function that closes it. Changed by single operations of a dict.
_closings: dict[int, Callable[[], Any]] = {}
_has_ended = False


def note_queue(queue: Any) -> None:
    """A queue is there."""
    _queues.add(queue)


def note_cache(number: int, close: Callable[[], Any]) -> None:
    """A cache is open."""
    _closings[number] = close


def forget_cache(number: int) -> None:
    """A cache is closed."""
    _closings.pop(number, None)


def pause_if_ended() -> None:
    """Called before a ClosedError is raised. After the interpreter's end a daemon thread stops
    here, as in any other call that needs the interpreter: it has done nothing wrong."""
    if _has_ended and threading.current_thread().daemon:
        threading.Event().wait()


def _end() -> None:
    global _has_ended
    for queue in list(_queues):
        queue._end()
    _has_ended = True
    for close in list(_closings.values()):
        close()


atexit.register(_end)
