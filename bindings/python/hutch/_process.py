"""The process: imports that are made late, forks, and the interpreter's end.

The package imports most of its modules, and some of Python's own, when a call first needs them. If
a thread does so at a fork, the lock of the module is never released in the child, where that thread
is not: a call that needs the module there would wait without end. So a fork waits for such imports.

At the interpreter's end first queues end, since their tasks may use caches, then caches close. Of a
queue that caches have, only the functions of Python end before the caches. One handler does both,
since the order in which handlers were registered is an accident of imports. Handlers of atexit that
were registered before hutch was imported run after it.
"""

import _imp
from _thread import get_ident
from _weakref import ref
from os import register_at_fork
from sys import version_info

TYPE_CHECKING = False
if TYPE_CHECKING:
    import weakref
    from typing import Any

# ---------------------------------------------------------------------- types of annotations

# Types are imported for type checkers alone: at run time it would take longer than to open a cache,
# and modules that need each other's types could not be imported. typing.get_type_hints evaluates an
# annotation with the names of its module. A name that hint has made is a text, which get_type_hints
# evaluates in turn: an expression that imports the type.


class Hint(str):
    """The expression for a type. As a part of another type it becomes the type at once."""

    __slots__ = ()

    def __or__(self, other: "Any") -> "Any":
        return eval(self) | other

    def __ror__(self, other: "Any") -> "Any":
        return other | eval(self)

    def __getitem__(self, item: "Any") -> "Any":
        if isinstance(item, (int, slice)):  # typing looks at the first character of a text.
            return super().__getitem__(item)
        return eval(self)[item]


_TYPE = f"__import__('{__package__}._types', fromlist=['']).%s"


def hint(module: "dict[str, Any]", *names: str) -> None:
    """Give a module, by its globals, names of types that _types has."""
    for name in names:
        module[name] = Hint(_TYPE % name)


# ------------------------------------------------------------------------------- late imports

# The handlers of forks stay to the interpreter's very end, with all that this module refers to. Of os
# and sys, which that would keep too, it has the names that it needs.

# What imports lock, by module. There is no public name for it.
_locks: "dict[str, Any]" = getattr(__import__("_frozen_importlib"), "_module_locks", {})


def _held() -> "list[str]":
    """The modules that other threads import."""
    import sys

    # Modules of others may wait for the thread that forks, and those of Python never do.
    standard = getattr(sys, "stdlib_module_names", ("asyncio", "inspect"))
    held = []
    for name, reference in list(_locks.items()):
        owner = getattr(reference(), "owner", None)
        if owner in (None, get_ident()):
            continue
        top = name.partition(".")[0]
        if top == __package__ or top in standard:
            held.append(name)
    return held


def _before() -> None:
    # With this lock no thread begins an import. The interpreter takes it for a fork as well.
    _imp.acquire_lock()
    held = _held()
    while held:
        _imp.release_lock()
        for name in held:
            try:
                __import__(name)
            except ImportError:
                pass  # It is not there for the child either.
        _imp.acquire_lock()
        held = _held()


register_at_fork(
    before=_before, after_in_parent=_imp.release_lock, after_in_child=_imp.release_lock
)


def _before_warning() -> None:
    from ._forks import before_fork

    before_fork()


if version_info >= (3, 12):
    register_at_fork(before=_before_warning)

# ---------------------------------------------------------------------------------- the end

# Objects by their id, as long as they exist. Changed by single operations of a dict.
_queues: "dict[int, ref[Any]]" = {}
_caches: "dict[int, ref[Any]]" = {}
# A cache's number and what closes it. Changed by single operations of a dict.
_closings: "dict[int, weakref.finalize[..., Any]]" = {}
_has_ended = False


def _note(table: "dict[int, ref[Any]]", item: "Any") -> None:
    number = id(item)
    table[number] = ref(item, lambda _: table.pop(number, None))


def note_queue(queue: "Any") -> None:
    """A queue is there."""
    _note(_queues, queue)


def note_open(cache: "Any") -> None:
    """A cache is open, and closes itself when it is collected."""
    _note(_caches, cache)


def forget_open(cache: "Any") -> None:
    """Such a cache is closed."""
    _caches.pop(id(cache), None)


def note_cache(number: int, closing: "weakref.finalize[..., Any]") -> None:
    """A cache is open."""
    _closings[number] = closing


def forget_cache(number: int) -> None:
    """A cache is closed."""
    _closings.pop(number, None)


def open_caches() -> "list[Any]":
    """The caches that are open."""
    found = [each() for each in list(_caches.values())]
    found += [(each.peek() or (None,))[0] for each in list(_closings.values())]
    return [cache for cache in found if cache is not None]


def has_ended() -> bool:
    """Whether the interpreter ends, and all caches are closed."""
    return _has_ended


def closed_at_end(error: ImportError) -> ValueError:
    """What a call raises that could not import what it needs.

    At the interpreter's end nothing can be imported, so a __del__ that uses a cache cannot have
    ClosedError. It gets ValueError, a base of that. Any other ImportError is raised.
    """
    if not _has_ended:
        raise error
    return ValueError("the cache is closed: the interpreter ends")


class _Late:
    """A block of imports, whose error at the interpreter's end is that of a closed cache."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: "Any", error: "Any", trace: "Any") -> None:
        if isinstance(error, ImportError):
            raise closed_at_end(error) from None


late = _Late()


def pause_if_ended() -> None:
    """Called before a ClosedError is raised. After the interpreter's end a daemon thread stops
    here, as in any other call that needs the interpreter: it has done nothing wrong.

    A thread of the library does not: it runs a task of a cache, for which the close waits.
    """
    if not _has_ended:
        return
    try:
        import threading
    except ImportError:
        # The interpreter has dropped its modules. This is its last thread, within some __del__.
        return
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
