"""An opening with options, or by ctypes: what each option means, and what a failure is."""

from __future__ import annotations

import itertools
import os
import threading
import warnings
import weakref
from ctypes import byref, c_void_p, cast
from typing import TYPE_CHECKING, Any

from . import _structs
from ._ending import forget_cache, forget_open, note_cache
from ._errors import Error, OptionsDifferWarning, Status, check, failure
from ._library import lib
from ._options import WRITE_POLICIES, choice
from ._serializers import Forms, forms_of
from ._units import limit_duration, limit_size, nanoseconds, uint32, uint64

if TYPE_CHECKING:
    from ._cache import Cache, TierView
    from ._records import Limits, Tier

_SHRINK: dict[str | None, int] = {None: 0, "empty": 1, "low_water": 2, "expired": 3}
_CHOICES: dict[str, dict[str | None, int]] = {
    "storage": {None: 0, "mixed": 1, "sqlite": 2, "file": 3, "log": 4},
    "policy": {None: 0, "lru": 1, "lfu": 2, "fifo": 3, "adaptive": 4},
    "sharing": {None: 0, "exclusive": 1, "shared": 2},
    "write_policy": WRITE_POLICIES,
    "durability": {None: 0, "process": 1, "power": 2, "sync": 3},
    "on_memory_warning": _SHRINK,
    "on_background": _SHRINK,
}
_CHECKSUMS = {True: 1, False: 2}
_FLAGS = {"network_directory": 1, "disk_optional": 2, "nonempty": 16}
_NO_THREADS = 8
_numbers = itertools.count(1)


def open_with(cache: Cache, directory: Any, path: bytes | None, chosen: dict[str, Any]) -> None:
    """Open a cache with the options that its class documents."""
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
    weakref.finalize(cache, lib.hutch_cache_release, pointer).atexit = False
    cache._number = next(_numbers)
    _own_closing(cache, pointer)

    if status == Status.OPTIONS_DIFFER:
        warnings.warn(
            f"{cache.directory} is open already with other options, which go on",
            OptionsDifferWarning,
            stacklevel=3,
        )


def _options(chosen: dict[str, Any]) -> _structs.Options:
    """The options of an opening."""
    options = _structs.Options()
    for name, table in _CHOICES.items():
        setattr(options, name, choice(name, chosen[name], table))
    options.checksums = _CHECKSUMS[bool(chosen["checksums"])]
    if (low_water := chosen["low_water"]) is not None:
        options.low_water = uint32(low_water)
    if (inline_threshold := chosen["inline_threshold"]) is not None:
        options.inline_threshold = limit_size(inline_threshold)
    if (workers := chosen["workers"]) is not None:
        options.workers = uint32(workers)
        options.flags |= 0 if workers else _NO_THREADS
    if (queue_length := chosen["queue_length"]) is not None:
        options.queue_length = uint64(queue_length)
    if (close_deadline := chosen["close_deadline"]) is not None:
        options.close_deadline = nanoseconds(close_deadline)
    for name, flag in _FLAGS.items():
        if chosen[name]:
            options.flags |= flag
    for what, limits in (("memory", options.memory), ("disk", options.disk)):
        if chosen["time_to_live"] is not None:
            limits.time_to_live = limit_duration(chosen["time_to_live"])
        if chosen["time_to_idle"] is not None:
            limits.time_to_idle = limit_duration(chosen["time_to_idle"])
        _change(what, limits, chosen[what])
    if chosen["codec"] is not None:
        from ._codec_hook import set_codec

        set_codec(options, chosen["codec"])
    if chosen["clock"] is not None:
        from ._clock import set_clock

        set_clock(options, chosen["clock"])
    return options


def _change(what: str, limits: _structs.TierLimits, given: Limits | None) -> None:
    """Set what a caller has given of a tier's limits."""
    if given is not None:
        from ._records import TierLimits

        TierLimits._from(what, given)._change(limits)


def set_limits(cache: Cache, given: dict[str, Limits | None]) -> None:
    """Change limits of an open cache."""
    limits = _structs.CacheLimits()
    _change("memory", limits.memory, given["memory"])
    _change("disk", limits.disk, given["disk"])
    check(lib.hutch_set_limits(cache._pointer, byref(limits)))


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
    weakref.finalize(view, lib.hutch_cache_release, pointer).atexit = False


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


def _close(pointer: Any, number: int) -> None:
    """Close a cache that has no reference any more."""
    forget_cache(number)
    if lib.hutch_close(pointer) == Status.DEADLOCK:
        # Collected within a callback of its own, which has to end first.
        threading.Thread(target=lib.hutch_close, args=(pointer,), name="hutch close").start()


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
