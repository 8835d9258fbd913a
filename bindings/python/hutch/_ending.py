"""The interpreter's end: first queues end, since their tasks may use caches, then caches close.
Of a queue that caches have, only the functions of Python end before the caches.

One handler does both, since the order in which handlers were registered is an accident of
imports. Handlers of atexit that were registered before hutch was imported run after it.
"""

from __future__ import annotations

from _weakref import ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    import weakref
    from typing import Any

# Objects by their id, as long as they exist. Changed by single operations of a dict.
_queues: dict[int, ref[Any]] = {}
_caches: dict[int, ref[Any]] = {}
# A cache's number and what closes it. Changed by single operations of a dict.
_closings: dict[int, weakref.finalize[..., Any]] = {}
_has_ended = False


def _note(table: dict[int, ref[Any]], item: Any) -> None:
    number = id(item)
    table[number] = ref(item, lambda _: table.pop(number, None))


def note_queue(queue: Any) -> None:
    """A queue is there."""
    _note(_queues, queue)


def note_open(cache: Any) -> None:
    """A cache is open, and closes itself when it is collected."""
    _note(_caches, cache)


def forget_open(cache: Any) -> None:
    """Such a cache is closed."""
    _caches.pop(id(cache), None)


def note_cache(number: int, closing: weakref.finalize[..., Any]) -> None:
    """A cache is open."""
    _closings[number] = closing


def forget_cache(number: int) -> None:
    """A cache is closed."""
    _closings.pop(number, None)


def has_ended() -> bool:
    """Whether the interpreter ends, and all caches are closed."""
    return _has_ended


def pause_if_ended() -> None:
    """Called before a ClosedError is raised. After the interpreter's end a daemon thread stops
    here, as in any other call that needs the interpreter: it has done nothing wrong.

    A thread of the library does not: it runs a task of a cache, for which the close waits.
    """
    if not _has_ended:
        return
    import threading

    thread = threading.current_thread()
    # A thread that threading has not started is a dummy: one of the library, or of another one.
    if thread.daemon and not isinstance(thread, threading._DummyThread):
        threading.Event().wait()


def end() -> None:
    """The interpreter ends: the handler that the package registers when it is imported."""
    global _has_ended
    queues = [queue for queue in [each() for each in list(_queues.values())] if queue is not None]
    for queue in queues:
        queue._end()
    _has_ended = True
    for cache in [each() for each in list(_caches.values())]:
        if cache is not None:
            cache._close()
    for closing in list(_closings.values()):
        # Not by a call: after the end of the module weakref a call does nothing.
        found = closing.detach()
        if found is not None:
            _, close, arguments, _ = found
            close(*arguments)
    for queue in queues:
        queue._end_all()
