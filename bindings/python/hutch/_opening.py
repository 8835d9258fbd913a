"""An opening by ctypes, and the exceptions of openings and closes."""

from __future__ import annotations

import _thread
import itertools
import os
import warnings
import weakref
from ctypes import byref, c_void_p, cast
from typing import TYPE_CHECKING, Any

from . import _structs
from ._accelerator import directory_bytes
from ._errors import Error, OptionsDifferWarning, Status, check, failure
from ._handles import release_with
from ._library import lib
from ._limits import numbers_of
from ._process import forget_cache, forget_open, hint, note_cache, open_caches
from ._serializers import Forms, forms_of
from ._settings import changes_of, settings_of

if TYPE_CHECKING:
    from ._cache import Cache
    from ._control import Control
    from ._records import Tier
    from ._tier_view import TierView
    from ._types import Limits, Path
else:
    hint(globals(), "Path")

_numbers = itertools.count(1)


def open_with(cache: Cache, directory: Any, path: bytes | None, chosen: dict[str, Any]) -> None:
    """Open a cache with the options that its class documents."""
    if cache._closing is not None:
        raise RuntimeError("the cache has been opened already")
    cache._forms = forms_of(chosen["serializer"])
    options = _options(chosen)
    pointer = _structs.CachePointer()
    status = lib.hutch_open(path, byref(options), byref(pointer))
    if status == Status.BUSY:
        raise _busy(failure(status), directory)
    check(status)

    # Two references. close releases that of the opening, and by then another
    # thread may be in the middle of a call: the object's own one, which keeps
    # the handle valid, is released only with the object. At the interpreter's end
    # the cache is closed, but that reference stays: daemon threads still run.
    cache._pointer = lib.hutch_cache_retain(pointer)
    cache._attach(handle_of(pointer), path is None, type(cache._forms) is Forms, True)
    if chosen["objects"]:
        cache._code_objects()
    release_with(cache, lib.hutch_cache_release, cache._pointer)
    cache._number = next(_numbers)
    _own_closing(cache, pointer)

    if status == Status.OPTIONS_DIFFER and not _differs_by_clock_alone(cache, path, chosen):
        warnings.warn(
            f"{cache.directory} has other options, which hold",
            OptionsDifferWarning,
            stacklevel=3,
        )


def _differs_by_clock_alone(cache: Cache, path: bytes | None, chosen: dict[str, Any]) -> bool:
    """Whether nothing but a clock differs that another opening of the directory has as well.

    The library compares no clocks: each further opening with one differs. So do copies of a cache.
    """
    clock = chosen["clock"]
    if clock is None or not any(
        other is not cache and other._path == cache._path and other._options["clock"] == clock
        for other in open_caches()
    ):
        return False
    # The directory stays open meanwhile, so this opening adds nothing.
    options, pointer = _options({**chosen, "clock": None}), _structs.CachePointer()
    status = lib.hutch_open(path, byref(options), byref(pointer))
    if status >= 0:
        lib.hutch_close(pointer)
    return bool(status == Status.OK)


def _options(chosen: dict[str, Any]) -> _structs.Options:
    """The options of an opening."""
    options = _structs.Options()
    _set(options, settings_of(chosen))
    if chosen["objects"]:
        from ._object_codec import set_object_codec

        set_object_codec(options, chosen["serializer"])
    if chosen["codec"] is not None:
        from ._hooks import set_codec

        set_codec(options, chosen["codec"])
    if chosen["clock"] is not None:
        from ._hooks import set_clock

        set_clock(options, chosen["clock"])
    return options


def _set(struct: Any, settings: dict[str, int]) -> None:
    """Set fields of a struct, of which a name with a dot is a field's of a field."""
    for name, number in settings.items():
        outer, _, inner = name.rpartition(".")
        if inner == "queue":
            struct.queue = cast(c_void_p(number), _structs.QueuePointer)
            continue
        setattr(getattr(struct, outer) if outer else struct, inner, number)


def set_limits(cache: Control, given: dict[str, Limits | None]) -> None:
    """Change limits of an open cache."""
    limits = _structs.CacheLimits()
    for tier, chosen in given.items():
        if chosen is not None:
            _set(getattr(limits, tier), numbers_of(tier, chosen))
    check(lib.hutch_set_limits(cache._pointer, byref(limits)))


def set_options(cache: Control, chosen: dict[str, Any]) -> None:
    """Change options of an open cache."""
    options = _structs.Options()
    _set(options, changes_of(chosen))
    check(lib.hutch_set_options(cache._pointer, byref(options)))


def _busy(error: Error, directory: Any) -> Error:
    """The error, with its remedy."""
    words = (
        f"{error.words}: {os.fsdecode(directory)!r}. Several processes can have it open if each "
        'opens it with sharing="shared", the default, and without write_policy="on_eviction"'
    )
    return type(error)(int(error.status), words, error.system_error, error.sqlite_error)


def open_view(view: TierView, cache: Cache, tier: Tier) -> None:
    """Make a view of one tier of a cache."""
    pointer = _structs.CachePointer()
    check(lib.hutch_tier(cache._pointer, tier, byref(pointer)))
    view._forms = cache._forms
    view._pointer = pointer
    view._attach(handle_of(pointer), False, type(view._forms) is Forms, False)
    if view._has_object_codec:
        view._code_objects()
    release_with(view, lib.hutch_cache_release, pointer)


def handle_of(pointer: Any) -> int:
    """The handle as a number."""
    address = cast(pointer, c_void_p).value
    assert address is not None
    return address


def pointer_to(handle: int) -> Any:
    """A number as a handle. It adds no reference."""
    return cast(c_void_p(handle), _structs.CachePointer)


# ------------------------------------------------------------------------ the end


def _own_closing(cache: Cache, pointer: Any) -> None:
    cache._closing = weakref.finalize(cache, _close, pointer, cache._number)
    cache._closing.atexit = False
    note_cache(cache._number, cache._closing)


# How long the end of a cache waits for its close, in seconds.
_LONGEST_WAIT = 1.0


def _close(pointer: Any, number: int) -> None:
    """Close a cache that has no reference any more.

    The garbage collector runs anywhere: within an import, or where the program holds a lock. The
    close waits for threads of the library. One of them may be in a callback that waits for just
    that lock, so a close on this thread could wait for ever.
    """
    forget_cache(number)
    has_ended = _thread.allocate_lock()
    has_ended.acquire()

    def close_it() -> None:
        try:
            lib.hutch_close(pointer)
        finally:
            has_ended.release()

    try:
        # Not of threading, whose own locks the program may hold.
        _thread.start_new_thread(close_it, ())
    except RuntimeError:
        lib.hutch_close(pointer)  # No thread can be made, as at the interpreter's end.
    else:
        has_ended.acquire(timeout=_LONGEST_WAIT)


def close(cache: Cache) -> None:
    """Close a cache that ctypes has opened."""
    if cache._closing is None or cache._closing.detach() is None:
        return
    forget_cache(cache._number)
    status = lib.hutch_close(cache._pointer)
    if status == Status.DEADLOCK:
        _own_closing(cache, cache._pointer)
    check_closed(cache, status)


def check_closed(cache: Cache, status: int) -> None:
    """Raise what a close has failed with."""
    if status != Status.DEADLOCK:
        forget_open(cache)
    # Another call has closed it, or it is the parent's: there is nothing left to do.
    if status not in (Status.CLOSED, Status.FORKED):
        check(status)


def destroy(directory: Path) -> bool:
    """Remove a cache from a directory: every file that the library has made there.

    The directory goes too if it is empty then; files of other programs stay.
    False: the directory does not exist, or has no cache.
    BusyError: this process or another one has the cache open.
    BadDirectoryError, NewerFormatError: the files are not a cache's, or a newer
    library's, and nothing is changed. No process may open the directory during
    the call.
    """
    return check(lib.hutch_destroy(directory_bytes(directory))) == Status.OK
