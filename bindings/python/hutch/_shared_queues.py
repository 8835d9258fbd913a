"""Queues that serve several caches: the process's, and those that a cache is given."""

from __future__ import annotations

from ctypes import byref
from typing import Any

from . import _structs
from ._errors import check
from ._library import lib
from ._queues import Queue


def shared_queue() -> Queue:
    """The queue that the process has once, for functions and for caches (Cache(queue=...)).

    It is made at the first call, and is as wide as there are processors, at least 2. Each call
    returns an object of its own for it, whose close does not end the queue for others. The child
    of a fork has another one.
    """
    pointer = _structs.QueuePointer()
    check(lib.hutch_shared_queue(byref(pointer)))
    queue = Queue._at(pointer)
    lib.hutch_queue_release(pointer)
    return queue


def address_for_cache(queue: Any) -> int:
    """The queue that a cache is to have, as a number."""
    if not isinstance(queue, Queue):
        raise TypeError(f"queue: a Queue is needed, not {queue!r}")
    queue._serves_caches = True
    assert queue._address is not None
    return queue._address
