"""Hutch, an embeddable cache: a memory tier above a disk tier.

    import hutch

    with hutch.Cache("/var/tmp/example") as cache:
        cache["greeting"] = "hello"
        cache.set("token", b"...", expire=60)

        @cache.memoize(expire=3600)
        def slow(n):
            return n * n

The class Cache has the documentation. The library is libhutch; this package calls it by
ctypes, and for the common calls by an extension in C, if that was built.
"""

import atexit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._cache import Cache
    from ._cbor import register
    from ._codec import Key, key_from_bytes, key_to_bytes
    from ._codec_hook import Codec
    from ._errors import (
        BadDirectoryError,
        BusyError,
        ClosedError,
        CorruptError,
        CounterOverflowError,
        DeadlockError,
        Error,
        ForkedError,
        InvalidArgumentError,
        LoadError,
        NewerFormatError,
        NoDiskTierError,
        NoSpaceError,
        OptionsDifferWarning,
        OutOfMemoryError,
        Status,
        StorageError,
        TierDownError,
        TimedOutError,
        TooLargeError,
        UnsupportedError,
        WrongTypeError,
    )
    from ._events import Cause, Event, EventKind, Listening
    from ._files import Hold, Writer
    from ._limits import MAX_ENTRY_QUARTER, TierLimits
    from ._logs import log
    from ._object_codec import CachedObjects
    from ._opening import destroy
    from ._ports import Port
    from ._queues import Group, Queue
    from ._records import (
        CacheLimits,
        CacheOptions,
        CacheStats,
        CheckReport,
        CopyReport,
        Entry,
        EntryInfo,
        Outcome,
        PutResult,
        State,
        Tier,
        TierStats,
    )
    from ._units import NO_LIMIT
    from ._serializers import Serializer
    from ._shared_queues import shared_queue
    from ._tasks import CancelledError, Tally, Task
    from ._tier_view import TierView

    __version__: str
    """The version of the library."""

_MODULES = {
    "_cache": ("Cache",),
    "_cbor": ("register",),
    "_codec": ("Key", "key_from_bytes", "key_to_bytes"),
    "_codec_hook": ("Codec",),
    "_errors": (
        "BadDirectoryError",
        "BusyError",
        "ClosedError",
        "CorruptError",
        "CounterOverflowError",
        "DeadlockError",
        "Error",
        "ForkedError",
        "InvalidArgumentError",
        "LoadError",
        "NewerFormatError",
        "NoDiskTierError",
        "NoSpaceError",
        "OptionsDifferWarning",
        "OutOfMemoryError",
        "Status",
        "StorageError",
        "TierDownError",
        "TimedOutError",
        "TooLargeError",
        "UnsupportedError",
        "WrongTypeError",
    ),
    "_events": (
        "Cause",
        "Event",
        "EventKind",
        "Listening",
    ),
    "_files": ("Hold", "Writer"),
    "_limits": ("MAX_ENTRY_QUARTER", "TierLimits"),
    "_logs": ("log",),
    "_queues": ("Group", "Queue"),
    "_object_codec": ("CachedObjects",),
    "_opening": ("destroy",),
    "_ports": ("Port",),
    "_records": (
        "CacheLimits",
        "CacheOptions",
        "CacheStats",
        "CheckReport",
        "CopyReport",
        "Entry",
        "EntryInfo",
        "Outcome",
        "PutResult",
        "State",
        "Tier",
        "TierStats",
    ),
    "_serializers": ("Serializer",),
    "_shared_queues": ("shared_queue",),
    "_tasks": ("CancelledError", "Tally", "Task"),
    "_tier_view": ("TierView",),
    "_units": ("NO_LIMIT",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


@atexit.register
def _end() -> None:
    # Registered now, so that it runs after the handlers of a program that imports the package
    # first. They may use caches.
    process = globals().get("_process")
    if process is not None:
        process.end()


def __getattr__(name: str) -> object:
    """A name of the package, whose module is imported when the name is first used.

    An import of the package itself takes no time that a program would notice.
    """
    if name == "__version__":
        from ._library import lib

        found: object = lib.hutch_version().decode()
    elif name in _HOMES:
        # importlib's import_module would take longer than all else of the package.
        home = __import__(f"{__name__}.{_HOMES[name]}", fromlist=[name])
        found = getattr(home, name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    dunders = (name for name in globals() if name.startswith("__"))
    return sorted({*dunders, *__all__, "__version__"})


__all__ = [
    "MAX_ENTRY_QUARTER",
    "NO_LIMIT",
    "BadDirectoryError",
    "BusyError",
    "Cache",
    "CacheLimits",
    "CacheOptions",
    "CacheStats",
    "CachedObjects",
    "CancelledError",
    "Cause",
    "CheckReport",
    "ClosedError",
    "Codec",
    "CopyReport",
    "CorruptError",
    "CounterOverflowError",
    "DeadlockError",
    "Entry",
    "EntryInfo",
    "Error",
    "Event",
    "EventKind",
    "ForkedError",
    "Group",
    "Hold",
    "InvalidArgumentError",
    "Key",
    "Listening",
    "LoadError",
    "NewerFormatError",
    "NoDiskTierError",
    "NoSpaceError",
    "OptionsDifferWarning",
    "OutOfMemoryError",
    "Outcome",
    "Port",
    "PutResult",
    "Queue",
    "Serializer",
    "State",
    "Status",
    "StorageError",
    "Tally",
    "Task",
    "Tier",
    "TierDownError",
    "TierLimits",
    "TierStats",
    "TierView",
    "TimedOutError",
    "TooLargeError",
    "UnsupportedError",
    "Writer",
    "WrongTypeError",
    "destroy",
    "key_from_bytes",
    "key_to_bytes",
    "log",
    "register",
    "shared_queue",
]
