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
from typing import Any

from . import _structs
from ._async import AsyncEntries
from ._awaits import in_thread
from ._clock import Clock, set_clock
from ._codec_hook import Codec, set_codec
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
from ._events import EventKind, Listener, Listening
from ._library import lib
from ._options import WRITE_POLICIES, Path, choice, path_bytes
from ._queues import Queue
from ._records import CacheLimits, Limits, Tier, TierLimits
from ._serializers import Serializer, forms_of
from ._units import Seconds, limit_duration, limit_size, nanoseconds, uint32, uint64

_POLICY: dict[str | None, int] = {None: 0, "lru": 1, "lfu": 2, "fifo": 3, "adaptive": 4}
_STORAGE: dict[str | None, int] = {None: 0, "mixed": 1, "sqlite": 2, "file": 3}
_SHARING: dict[str | None, int] = {None: 0, "exclusive": 1, "shared": 2}
_DURABILITY: dict[str | None, int] = {None: 0, "process": 1, "power": 2, "sync": 3}
_CHECKSUMS = {True: 1, False: 2}
_SHRINK: dict[str | None, int] = {None: 0, "empty": 1, "low_water": 2, "expired": 3}
_numbers = itertools.count(1)
_NETWORK_DIRECTORY = 1
_DISK_OPTIONAL = 2
_NO_THREADS = 8
_NONEMPTY = 16


class Cache(Entries, AsyncEntries):
    """A cache: a memory tier above a directory, or in memory only.

        with hutch.Cache("/var/tmp/thumbnails") as cache:
            cache["logo"] = b"..."
            cache.set("session", {"user": 7}, expire=3600)

    Keys are str, bytes, int and tuples of natural values; values are natural
    values (see the README), arrays and what hutch.register names. What a cache holds it may forget at any time;
    it never gives an older value than the newest one put, nor a part of one.
    May be used from any thread. After os.fork parent and child both go on with
    it; on disk they share the directory, in memory each has its own. Queues,
    tasks, ports and iterators that the parent has made are the parent's: in the
    child they raise ForkedError. os.fork waits for calls of other threads that
    use the disk, for a second at most, but not for their callbacks in Python; if
    that is not enough, or os.fork is called in a callback, the cache raises
    ForkedError in the child.

    Parameters:
        directory: made with its parents if it is not there; "~" is the home
            directory. None: in memory.
        memory, disk: the tiers' limits, or only the sizes: 64 << 20, "64 MiB".
            A limit that is not given is the directory's, or else the default:
            memory 64 MiB, disk 50,000,000 bytes and a time to live of 30 days,
            an entry at most a quarter of its tier. NO_LIMIT: none.
        time_to_live, time_to_idle: in seconds or as timedelta, for entries without their own;
            of both tiers, where memory and disk do not say otherwise.
        storage: "mixed" (large values in files of their own), "sqlite" (all in
            the database) or "file". Settled when a directory is first used;
            None: what it has, "mixed" for a new one.
        policy: how the memory tier chooses what goes: "adaptive" (follows the
            best of several and weighs use against cost; the default), "lru",
            "lfu" or "fifo".
        sharing: who may have the directory open at one time: "shared" (several
            processes; what one completes all see, and the disk limits are those in
            force; the default) or "exclusive" (one process; the default with
            write_policy "on_eviction").
        inline_threshold: with "mixed", a value of more bytes gets its own file;
            NO_LIMIT: none does.
        write_policy: where puts store that do not say: "through" (in both tiers;
            the default), "memory", "disk", or "on_eviction" (in memory, and on disk
            when memory lets it go, with flush() and close(): fast, and a kill of the
            process loses what was not yet written. A set that asks for it in a cache
            that shares its directory stores in both tiers).
        durability: what a completed put survives: "process", the end of the
            process, killed or not (the default); "power", a loss of power too,
            but for what was written last; "sync", that too.
        checksums: whether reads from disk compare a value with its checksum.
        codec: what stands between values and the disk: see Codec.
        serializer: makes bytes of values, but of bytes, str and int: an object with
            dumps, loads and a name. None: the package's own forms, without pickle;
            hutch.pickling has pickle. What is stored by one is not found by another.
        network_directory: use a directory on a network file system all the
            same; only this machine may have it open, which nothing can check.
        disk_optional: open also if the directory cannot be used: the disk tier
            is down then (stats().disk.state), and in service as soon as it can.
        nonempty: the directory may have other files in it although it is not
            yet a cache's, which is a BadDirectoryError otherwise. They are left
            alone, either way.
        on_memory_warning, on_background: what notify takes from memory: "empty"
            (every entry; the default), "low_water" (down to so many percent of
            its cost limit, 50 if low_water does not say) or "expired".
        workers: the most threads that the cache makes, for what is awaited and
            for its own maintenance; 0: none, and maintain does it all. None: 2.
        queue_length: how many awaited calls may wait; 0: any number.
        close_deadline: how long close waits for them, in seconds; None: 30;
            NO_LIMIT: until all have ended.
        clock: the time in Unix nanoseconds, instead of the system's clocks;
            for tests. Must not use the cache.

    Raises BadDirectoryError, BusyError (another process has it open, and one of the
    two wants it for itself),
    ForkedError (the parent process had it open at a fork that could not hand it
    on), NewerFormatError, UnsupportedError (a network file system), NoSpaceError, StorageError;
    ValueError for a limit below 0 or another storage than the directory has.
    Warns with OptionsDifferWarning if this process has the directory open with
    other options (both share the cache that is there), or other processes do
    with other limits.
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
        memory = TierLimits._from("memory", memory)
        disk = TierLimits._from("disk", disk)
        self._forms = forms_of(serializer)
        path = None if directory is None else _directory(directory)
        # The working directory may be another one when it is opened again.
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
            set_codec(options, codec)
        if clock is not None:
            set_clock(options, clock)

        pointer = _structs.CachePointer()
        status = lib.hutch_open(path, byref(options), byref(pointer))
        if status == Status.BUSY:
            raise _busy(failure(status), directory)
        check(status)

        # Two references. The opening's is given up by close, and by then another
        # thread may be in the middle of a call: the object's own one, which keeps
        # the handle valid, goes only with the object. At the interpreter's end
        # the cache is closed, but that reference stays: daemon threads still run.
        self._pointer = lib.hutch_cache_retain(pointer)
        self._attach(handle_of(pointer), path is None)
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
        """Shut the cache down: complete what is under way, close the directory.

        Closing twice is fine. StorageError: closed, but the end was not clean.
        DeadlockError: called by a listener or a codec of it; it is still open.
        """
        if self._closing.detach() is None:
            return
        forget_cache(self._number)
        status = lib.hutch_close(self._pointer)
        if status == Status.DEADLOCK:
            self._own_closing(self._pointer)
        # Closed by somebody else, or the parent's: either way there is nothing left to do.
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
        memory only; delete and clear drop memory copies only.
        """
        return TierView(self, Tier.MEMORY)

    @property
    def disk(self) -> TierView:
        """The disk tier as a cache of its own. NoDiskTierError: there is none.

        set stores on disk and drops the memory copy; get, in and info see the
        disk only and bring nothing into memory; delete and clear do away with
        the memory copies of what was on disk.
        """
        try:
            return TierView(self, Tier.DISK)
        except UnsupportedError as error:
            raise NoDiskTierError(*error.args) from None

    def suspend(self) -> None:
        """Start nothing in the background until resume; each suspend asks for one."""
        check(lib.hutch_suspend(self._pointer))

    def resume(self) -> None:
        """Go on after suspend. InvalidArgumentError: it was not suspended."""
        check(lib.hutch_resume(self._pointer))

    def maintain(self, seconds: Seconds | None = None) -> None:
        """Do what waits, on this thread, for about so long. None: all of it."""
        check(lib.hutch_maintain(self._pointer, 0 if seconds is None else nanoseconds(seconds)))

    def listen(self, function: Listener, kinds: EventKind = EventKind.ALL) -> Listening:
        """Have a function told what happens, until its end or the block's.

            with cache.listen(print, hutch.EventKind.DID_REMOVE):
                cache.clear()

        A cache has one listener: it takes the place of the one that was there,
        also if that came through another Cache on the same directory. With the
        cache's close it ends. The events of a key come in the order of its
        versions, each once; include/hutch.h has the whole of it.

        The function is called by the thread whose call made it happen, or by one
        that is telling others already, or by one of the library's. It may use
        the cache, but not close or flush it, and must not wait for a thread that
        uses it. What it raises goes to sys.unraisablehook, but for Ctrl-C, which is
        raised in the main thread once it is in no listener.
        """
        # Before the first event: a put may have to wait for another thread that tells one.
        self._let_go_of_the_gil()
        return Listening(self, function, kinds)

    def queue(self) -> Queue:
        """The queue that its awaited calls run on, for functions of yours too.

        With the cache's close it ends.
        """
        return Queue._of(self._pointer)

    def limits(self) -> CacheLimits:
        """The limits in force."""
        limits = _structs.CacheLimits()
        check(lib.hutch_limits(self._pointer, byref(limits)))
        return CacheLimits._of(limits)

    def set_limits(self, *, memory: Limits | None = None, disk: Limits | None = None) -> None:
        """Change limits of a cache in use. What is above a new limit has gone on return."""
        limits = _structs.CacheLimits()
        for what, given, own in (
            ("memory", memory, limits.memory),
            ("disk", disk, limits.disk),
        ):
            chosen = TierLimits._from(what, given)
            if chosen is not None:
                chosen._change(own)
        check(lib.hutch_set_limits(self._pointer, byref(limits)))


def _directory(path: Path) -> bytes:
    """The bytes of the directory's path. TypeError: it is none."""
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
    """Close a cache that nobody can use any more."""
    forget_cache(number)
    if lib.hutch_close(pointer) == Status.DEADLOCK:
        # Collected within a callback of its own, which has to end first.
        threading.Thread(target=lib.hutch_close, args=(pointer,), name="hutch close").start()


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
        self._attach(handle_of(pointer), False)
        weakref.finalize(self, lib.hutch_cache_release, pointer).atexit = False

    def _now(self) -> int:
        return self._cache._now()

    def __repr__(self) -> str:
        return f"{self._cache!r}.{self._tier.name.lower()}"

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._cache, self._tier.name.lower())


# What opens a cache again, but for its directory.
_OPTIONS = frozenset(Cache.__init__.__kwdefaults__ or ())
