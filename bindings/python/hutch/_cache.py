"""The cache, and the views of its tiers."""

from __future__ import annotations

import itertools
import os
import threading
import time
import warnings
import weakref
from ctypes import byref, c_void_p, cast
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _logs as _logs  # From the first cache on, warnings go to logging.
from . import _accelerator, _structs
from ._async import AsyncEntries
from ._awaits import in_thread, threaded
from ._entries import Entries
from ._ending import forget_cache, note_cache
from ._errors import (
    Error,
    NoDiskTierError,
    OptionsDifferWarning,
    Status,
    UnsupportedError,
    check,
    failure,
)
from ._library import lib
from ._options import WRITE_POLICIES, Path, choice, path_bytes
from ._serializers import Forms, Serializer, forms_of
from ._units import Seconds, limit_duration, limit_size, nanoseconds, uint32, uint64

if TYPE_CHECKING:
    from ._clock import Clock
    from ._codec_hook import Codec
    from ._events import EventKind, Listener, Listening
    from ._queues import Queue
    from ._records import CacheLimits, Limits, Tier, TierLimits

# Modules of rare calls are imported by these calls, so that a program starts soon.

_POLICY: dict[str | None, int] = {None: 0, "lru": 1, "lfu": 2, "fifo": 3, "adaptive": 4}
_STORAGE: dict[str | None, int] = {None: 0, "mixed": 1, "sqlite": 2, "file": 3, "log": 4}
_SHARING: dict[str | None, int] = {None: 0, "exclusive": 1, "shared": 2}
_DURABILITY: dict[str | None, int] = {None: 0, "process": 1, "power": 2, "sync": 3}
_CHECKSUMS = {True: 1, False: 2}
_SHRINK: dict[str | None, int] = {None: 0, "empty": 1, "low_water": 2, "expired": 3}
_numbers = itertools.count(1)
_NETWORK_DIRECTORY = 1
_DISK_OPTIONAL = 2
_NO_THREADS = 8
_NONEMPTY = 16


@_accelerator.adopt
class Cache(Entries, AsyncEntries):
    """A cache: a memory tier above a directory, or in memory only.

        with hutch.Cache("/var/tmp/thumbnails") as cache:
            cache["logo"] = b"..."
            cache.set("session", {"user": 7}, expire=3600)

    Keys are str, bytes, int and tuples of natural values; values are natural values
    (see the README), arrays and classes that hutch.register knows. A cache may evict
    an entry at any time. It never returns an older value than the newest one put, and
    never a part of a value.
    Thread-safe. After os.fork, parent and child both continue with the cache: on disk
    they share the directory, in memory each has its own tier. Queues, tasks, ports and
    iterators of the parent raise ForkedError in the child. os.fork waits at most a
    second for calls of other threads that use the disk, but not for their callbacks in
    Python. If that is not enough, or a callback calls os.fork, the cache raises
    ForkedError in the child.

    Parameters:
        directory: made with its parents if it does not exist; "~" is the home
            directory. None: in memory.
        memory, disk: the tiers' limits, or only the sizes: 64 << 20, "64 MiB".
            A limit that is not given is the directory's, or else the default:
            memory 64 MiB, disk 50,000,000 bytes and a time to live of 30 days,
            an entry at most a quarter of its tier. NO_LIMIT: none.
        time_to_live, time_to_idle: in seconds or as timedelta, for entries without their
            own; for both tiers, unless memory or disk set them.
        storage: "mixed" (large values in files of their own), "sqlite" (all in
            the database), "file", or "log" (no database: the fastest, with limits and
            orders of its own; see THE LOG STORE in hutch.h). Fixed at the first
            opening of a directory; None: the directory's, "mixed" for a new one.
        policy: how the memory tier evicts: "adaptive" (follows the best of several
            policies and weighs use against cost; the default), "lru", "lfu" or "fifo".
        sharing: which processes may have the directory open at one time: "shared"
            (several; all see a completed write, and the disk limits are those in
            force; the default) or "exclusive" (one process; the default with
            write_policy "on_eviction").
        inline_threshold: with "mixed", a value with more bytes gets its own file;
            NO_LIMIT: no value does.
        write_policy: for puts that name none: "through" (in both tiers; the
            default), "memory", "disk", or "on_eviction" (in memory, and on disk on
            eviction, flush() and close(): fast, but a kill of the process loses
            entries that were not yet written. In a cache that shares its directory,
            a set with this policy stores in both tiers).
        durability: what a completed put survives: "process", the end of the
            process, killed or not (the default); "power", also a loss of power,
            except for the last writes; "sync", also a loss of power. Of several
            openings of a directory the strongest holds.
        checksums: whether a read from disk verifies the checksum of the value.
        codec: converts between values and their bytes on disk: see Codec.
        serializer: makes bytes of all values except bytes, str and int: an object with
            dumps, loads and a name. None: the package's own forms, without pickle;
            hutch.pickling has pickle. A value of one serializer is not found by another.
        network_directory: also accept a directory on a network file system. Only
            this machine may have it open, which the library cannot check.
        disk_optional: also open if the directory cannot be used: the disk tier
            is then down (stats().disk.state), and in service as soon as it can be.
        nonempty: the directory may contain other files although it is not yet a
            cache's; without this, that is a BadDirectoryError. The library leaves
            such files alone in either case.
        on_memory_warning, on_background: what notify removes from memory: "empty"
            (every entry; the default), "low_water" (down to low_water percent of
            the cost limit, by default 50) or "expired".
        workers: the largest number of threads that the cache makes, for awaited
            calls and for its maintenance; 0: none, and maintain does all of it.
            None: 2.
        queue_length: how many awaited calls may wait; 0: any number.
        close_deadline: how long close waits for them, in seconds; None: 30;
            NO_LIMIT: until all have ended.
        clock: the time in Unix nanoseconds, in place of the system's clocks;
            for tests. Must not use the cache.

    Raises BadDirectoryError, BusyError (another process has the directory open, and one of
    the two has it exclusively), ForkedError (the parent process had it open at a fork that
    could not hand it on), NewerFormatError, UnsupportedError (a network file system),
    NoSpaceError, StorageError; ValueError for a limit below 0 or another storage than the
    directory's.
    Warns with OptionsDifferWarning if this process has the directory open with other
    options (both handles then share that cache), or if other processes have it open with
    other limits.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        memory: Limits | None = None,
        disk: Limits | None = None,
        time_to_live: Seconds | None = None,
        time_to_idle: Seconds | None = None,
        storage: str | None = None,
        policy: str | None = None,
        sharing: str | None = None,
        inline_threshold: int | None = None,
        write_policy: str | None = None,
        durability: str | None = None,
        checksums: bool = True,
        codec: Codec | None = None,
        serializer: Serializer | None = None,
        network_directory: bool = False,
        disk_optional: bool = False,
        nonempty: bool = False,
        on_memory_warning: str | None = None,
        on_background: str | None = None,
        low_water: int | None = None,
        workers: int | None = None,
        queue_length: int | None = None,
        close_deadline: Seconds | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._options = {name: value for name, value in locals().items() if name in _OPTIONS}
        memory = _limits("memory", memory)
        disk = _limits("disk", disk)
        self._forms = forms_of(serializer)
        path = None if directory is None else _directory(directory)
        # The working directory may have changed when the cache is opened again.
        self._path = None if path is None else os.fsdecode(os.path.abspath(path))
        options = _structs.Options()
        options.storage = choice("storage", storage, _STORAGE)
        options.policy = choice("policy", policy, _POLICY)
        options.sharing = choice("sharing", sharing, _SHARING)
        options.write_policy = choice("write_policy", write_policy, WRITE_POLICIES)
        options.durability = choice("durability", durability, _DURABILITY)
        options.on_memory_warning = choice("on_memory_warning", on_memory_warning, _SHRINK)
        options.on_background = choice("on_background", on_background, _SHRINK)
        options.checksums = _CHECKSUMS[bool(checksums)]
        if low_water is not None:
            options.low_water = uint32(low_water)
        if inline_threshold is not None:
            options.inline_threshold = limit_size(inline_threshold)
        if workers is not None:
            options.workers = uint32(workers)
            options.flags |= 0 if workers else _NO_THREADS
        if queue_length is not None:
            options.queue_length = uint64(queue_length)
        if close_deadline is not None:
            options.close_deadline = nanoseconds(close_deadline)
        if network_directory:
            options.flags |= _NETWORK_DIRECTORY
        if disk_optional:
            options.flags |= _DISK_OPTIONAL
        if nonempty:
            options.flags |= _NONEMPTY
        for limits, own in ((options.memory, memory), (options.disk, disk)):
            if time_to_live is not None:
                limits.time_to_live = limit_duration(time_to_live)
            if time_to_idle is not None:
                limits.time_to_idle = limit_duration(time_to_idle)
            if own is not None:
                own._change(limits)
        if codec is not None:
            from ._codec_hook import set_codec

            set_codec(options, codec)
        if clock is not None:
            from ._clock import set_clock

            set_clock(options, clock)

        pointer = _structs.CachePointer()
        status = lib.hutch_open(path, byref(options), byref(pointer))
        if status == Status.BUSY:
            raise _busy(failure(status), directory)
        check(status)

        # Two references. close releases that of the opening, and by then another
        # thread may be in the middle of a call: the object's own one, which keeps
        # the handle valid, is released only with the object. At the interpreter's end
        # the cache is closed, but that reference stays: daemon threads still run.
        self._pointer = lib.hutch_cache_retain(pointer)
        self._attach(handle_of(pointer), path is None, type(self._forms) is Forms, True)
        weakref.finalize(self, lib.hutch_cache_release, pointer).atexit = False
        self._number = next(_numbers)
        self._own_closing(pointer)
        self._listening: Listening | None = None

        if status == Status.OPTIONS_DIFFER:
            warnings.warn(
                f"{self.directory} is open already with other options, which go on",
                OptionsDifferWarning,
                stacklevel=2,
            )

    def _own_closing(self, pointer: Any) -> None:
        self._closing = weakref.finalize(self, _close, pointer, self._number)
        self._closing.atexit = False
        note_cache(self._number, self._closing)

    def close(self) -> None:
        """Shut the cache down: complete the work in progress, close the directory.

        A second close has no effect. StorageError: closed, but not cleanly.
        DeadlockError: a listener or a codec of the cache made the call; it is still open.
        """
        if self._closing.detach() is None:
            return
        forget_cache(self._number)
        status = lib.hutch_close(self._pointer)
        if status == Status.DEADLOCK:
            self._own_closing(self._pointer)
        # Another call has closed it, or it is the parent's: there is nothing left to do.
        if status not in (Status.CLOSED, Status.FORKED):
            check(status)

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def aclose(self) -> None:
        """As close, without blocking the event loop."""
        await in_thread(self.close)

    async def __aenter__(self) -> Cache:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled cache is opened again, by its directory and options."""
        if self._path is None:
            raise TypeError("a cache in memory cannot be copied or pickled: it has no directory")
        return _open_again, (type(self), self._path, self._options)

    def __repr__(self) -> str:
        return f"hutch.Cache({self.directory!r})"

    def _now(self) -> int:
        clock: Clock = self._options["clock"] or time.time_ns
        return clock()

    @property
    def directory(self) -> str | None:
        """The directory as it was given, as a str; None for a cache in memory."""
        path = lib.hutch_directory(self._pointer)
        return None if path is None else os.fsdecode(path)

    @property
    def memory(self) -> TierView:
        """The memory tier as a cache of its own.

        set stores in memory and removes the entry on disk; get, in and info see
        memory only; delete and clear remove the copies in memory only.
        """
        from ._records import Tier

        return TierView(self, Tier.MEMORY)

    @property
    def disk(self) -> TierView:
        """The disk tier as a cache of its own. NoDiskTierError: there is none.

        set stores on disk and removes the copy in memory; get, in and info see the
        disk only and bring nothing into memory; delete and clear remove the entries
        on disk and their copies in memory.
        """
        from ._records import Tier

        try:
            return TierView(self, Tier.DISK)
        except UnsupportedError as error:
            raise NoDiskTierError(*error.args) from None

    def suspend(self) -> None:
        """Start no background work until resume; each suspend needs a resume of its own."""
        check(lib.hutch_suspend(self._pointer))

    def resume(self) -> None:
        """Continue after suspend. InvalidArgumentError: the cache is not suspended."""
        check(lib.hutch_resume(self._pointer))

    def maintain(self, seconds: Seconds | None = None) -> None:
        """Do the work that is due, on this thread, for at most about this long. None: all."""
        check(lib.hutch_maintain(self._pointer, 0 if seconds is None else nanoseconds(seconds)))

    def listen(self, function: Listener, kinds: EventKind | None = None) -> Listening:
        """Call a function for each event of these kinds (None: of all), until the listener's
        end or the block's.

            with cache.listen(print, hutch.EventKind.DID_REMOVE):
                cache.clear()

        A cache has one listener: a new one replaces the old one, also if that came
        through another Cache on the same directory. The close of the cache ends it. The
        events of a key come in the order of its versions, each once; include/hutch.h has
        the details.

        The thread whose call made the event calls the function; or a thread that is
        delivering other events already, or a thread of the library. The function may use
        the cache, but not close or flush it, and must not wait for a thread that
        uses it. Its exceptions go to sys.unraisablehook, except Ctrl-C, which is
        raised in the main thread after the listener has returned.
        """
        # Before the first event: a put may have to wait for a thread that delivers one.
        self._let_go_of_the_gil()
        from ._events import EventKind, Listening

        return Listening(self, function, EventKind.ALL if kinds is None else kinds)

    def queue(self) -> Queue:
        """The queue on which the cache's awaited calls run; it also runs functions of yours.

        The close of the cache ends it.
        """
        from ._queues import Queue

        return Queue._of(self._pointer)

    def limits(self) -> CacheLimits:
        """The limits in force."""
        from ._records import CacheLimits

        limits = _structs.CacheLimits()
        check(lib.hutch_limits(self._pointer, byref(limits)))
        return CacheLimits._of(limits)

    def set_limits(self, *, memory: Limits | None = None, disk: Limits | None = None) -> None:
        """Change limits of an open cache. On return, entries above a new limit are evicted."""
        limits = _structs.CacheLimits()
        for what, given, own in (
            ("memory", memory, limits.memory),
            ("disk", disk, limits.disk),
        ):
            chosen = _limits(what, given)
            if chosen is not None:
                chosen._change(own)
        check(lib.hutch_set_limits(self._pointer, byref(limits)))

    amaintain = threaded(maintain)
    aset_limits = threaded(set_limits)


def _limits(what: str, given: Limits | None) -> TierLimits | None:
    """The caller's limits of a tier."""
    if given is None:
        return None
    from ._records import TierLimits

    return TierLimits._from(what, given)


def _directory(path: Path) -> bytes:
    """The bytes of the directory's path. TypeError: it is not a path."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(
            f"directory is a str, bytes, a path or None, not a {type(path).__name__}"
        )
    return path_bytes(os.path.expanduser(os.fspath(path)))


def destroy(directory: Path) -> bool:
    """Remove a cache from a directory: every file that the library has made there.

    The directory goes too if it is empty then; files of other programs stay.
    False: the directory does not exist, or has no cache.
    BusyError: this process or another one has the cache open.
    BadDirectoryError, NewerFormatError: the files are not a cache's, or a newer
    library's, and nothing is changed. No process may open the directory during
    the call.
    """
    return check(lib.hutch_destroy(_directory(directory))) == Status.OK


def _busy(error: Error, directory: Any) -> Error:
    """The error, with its remedy."""
    words = (
        f"{error.words}: {os.fsdecode(directory)!r}. Several processes can have it open if each "
        'opens it with sharing="shared", the default, and without write_policy="on_eviction"'
    )
    return type(error)(int(error.status), words, error.system_error, error.sqlite_error)


def _open_again(kind: type[Cache], directory: str, options: dict[str, Any]) -> Cache:
    return kind(directory, **options)


def handle_of(pointer: Any) -> int:
    """The handle as a number."""
    address = cast(pointer, c_void_p).value
    assert address is not None
    return address


def _close(pointer: Any, number: int) -> None:
    """Close a cache that has no reference any more."""
    forget_cache(number)
    if lib.hutch_close(pointer) == Status.DEADLOCK:
        # Collected within a callback of its own, which has to end first.
        threading.Thread(target=lib.hutch_close, args=(pointer,), name="hutch close").start()


@_accelerator.adopt
class TierView(Entries, AsyncEntries):
    """One tier of a cache, as a cache: see Cache.memory and Cache.disk.

    Keeps its cache from being collected. After the cache's close: ClosedError.
    """

    def __init__(self, cache: Cache, tier: Tier) -> None:
        pointer = _structs.CachePointer()
        check(lib.hutch_tier(cache._pointer, tier, byref(pointer)))
        self._cache = cache
        self._forms = cache._forms
        self._tier = tier
        self._pointer: Any = pointer
        self._attach(handle_of(pointer), False, type(self._forms) is Forms, False)
        weakref.finalize(self, lib.hutch_cache_release, pointer).atexit = False

    def _now(self) -> int:
        return self._cache._now()

    def __repr__(self) -> str:
        return f"{self._cache!r}.{self._tier.name.lower()}"

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._cache, self._tier.name.lower())


# The arguments that open a cache again, except its directory.
_OPTIONS = frozenset(Cache.__init__.__kwdefaults__ or ())
