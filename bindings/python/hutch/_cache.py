"""The cache.

With the accelerator a Cache begins with its calls alone. All other calls are Control's, which needs
ctypes and most of the package: to import that takes twenty times as long as to open a cache.
Control becomes a base of Cache when the first of its calls is looked up, when the accelerator meets
a call of no common kind, or when there is a subclass.

A program waits for the modules that every opening imports: this one, _accelerator and _process. To
find and read a module takes longer than to run it, so these are few. They do not import __future__,
which is a module too: annotations are texts. Functions import what only they need.
"""

import os
import sys
from _collections_abc import MutableMapping

from . import _accelerator
from ._accelerator import directory_bytes
from ._process import closed_at_end, forget_open, hint, late, note_open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

    from typing_extensions import Self

    from ._codec_hook import Codec
    from ._control import Control
    from ._events import EventKind, Listener, Listening
    from ._queues import Queue
    from ._serializers import Serializer
    from ._tier_view import TierView
    from ._types import Clock, Limits, Path
    from ._units import Seconds


class _Once:
    """An attribute that is made when it is first used, without a lock."""

    def __init__(self, name: str, make: "Callable[[Any], Any]") -> None:
        self._name = name
        self._make = make

    def __get__(self, instance: "Any", owner: "Any") -> "Any":
        if instance is None:
            return self
        return instance.__dict__.setdefault(self._name, self._make(instance))


def _pointer(cache: "Any") -> "Any":
    """The handle, for ctypes. An opening by ctypes sets it."""
    from ._opening import pointer_to

    return pointer_to(cache._handle())


def _forms(cache: "Any") -> "Any":
    """How values become bytes. An opening by ctypes sets it."""
    from ._serializers import forms_of

    return forms_of(cache._options["serializer"])


if TYPE_CHECKING:

    def complete() -> None: ...

elif _accelerator.module is None:
    from . import _logs as _logs  # From the first cache on, warnings go to logging.
    from ._control import Control

else:
    from _thread import RLock

    # Held while Control is imported. A fork waits for it: in the child the thread that imports
    # would not be there, nor would it ever release the locks that imports have. The handlers of
    # _process were registered before, so a fork takes this lock first.
    _completing = RLock()
    os.register_at_fork(
        before=_completing.acquire,
        after_in_parent=_completing.release,
        after_in_child=_completing.release,
    )

    def complete() -> None:
        """Give Cache its base Control, and the accelerator its functions for calls of other kinds."""
        with _completing:
            with late:
                from . import _control
                from ._errors import check

            # Ctrl-C may end this at any step: the next call repeats them.
            if _control.Control not in Cache.__bases__:
                _accelerator.module.set_up(_control.Control, check)
                Cache.__bases__ = (_accelerator.Fast, _control.Control)
                # help and inspect look at the bases that there were when they began.
                for name in _LATER:
                    setattr(Control, name, getattr(_control.Control, name))

    _LATER = """
__aiter__ __iter__ __reversed__ _as_stored _ask _collected _counter _items _put_each _put_object
_read _sized _steps _supply _walk _write aadd acheck aclear acompare_and_swap acontains acopy_to acost
acount add adecr adelete adelete_many aeach aentry aexpire aflush aget aget_many aincr ainfo ainfos
aitems akeys aload amaintain anotify apath apeekitem apin apop apopitem aput aput_file aput_many
aread aremove_prefix aremove_tagged areplace aset aset_limits aset_many aset_options asetdefault
astats atouch atrim aupdate avalue_bytes avalues avolume awriter check clear compare_and_swap
copy_to cost count delete delete_many delete_object each entry expire flush get_many hold_files info
infos items keys limits load maintain memoize notify objects options path peekitem pop popitem put
put_file put_many queue read remove_prefix remove_tagged replace resume set_limits set_many
set_options setdefault stats suspend touch trim update value_bytes values volume writer
""".split()

    class _Later(str):
        """The name of a call of Control, which is not there yet."""

        __slots__ = ()

        def __get__(self, instance: "Any", owner: "Any") -> "Any":
            try:
                complete()
            except ValueError as error:
                # Python would drop an exception that the search for __iter__ raises.
                if not self.startswith("__"):
                    raise
                return _raising(error)
            return getattr(Cache if instance is None else instance, self)

    def _raising(error: ValueError) -> "Callable[..., Any]":
        """A function that raises this error."""

        def fail(*_: "Any") -> "Any":
            raise error

        return fail

    class Control:
        """Stands for Control until that is there."""

        locals().update({name: _Later(name) for name in _LATER})

        def __init_subclass__(cls, **more: "Any") -> None:
            super().__init_subclass__(**more)
            if cls.__module__ != __name__:
                complete()


@_accelerator.adopt
class Cache(_accelerator.Fast, Control):
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
    close, the end of a with block or the collection of this object closes a cache. The library
    keeps the clock, the codec and the objects of put_object, where the garbage collector does not
    see them: a cache to which one of them refers is not collected, and needs a close.

    Parameters:
        directory: made with its parents if it does not exist; "~" is the home
            directory. None: in memory.
        memory, disk: the tiers' limits, or only the sizes: 64 << 20, "64 MiB".
            A limit that is not given is the directory's, or else the default:
            memory 64 MiB, disk 50,000,000 bytes and a time to live of 30 days,
            an entry at most a quarter of its tier. NO_LIMIT: none.
        time_to_live, time_to_idle: in seconds or as timedelta, for entries without their
            own; for both tiers, unless memory or disk set them.
        storage: "log" (no database: the fastest, with limits and orders of its own;
            see THE LOG STORE in hutch.h), or a SQLite database with large values in
            files of their own ("mixed"), with all values ("sqlite") or with none
            ("file"). Fixed at the first opening of a directory; None: the directory's;
            for a new one "log", or "mixed" on file systems that do not suit a log.
        policy: how the memory tier evicts: "adaptive" (follows the best of several
            policies and weighs use against cost; the default), "lru", "lfu" or "fifo".
        disk_policy: how the disk tier evicts, by the same names; "adaptive" is what
            the storage is made for ("log": an entry that was read more than once is kept for
            longer; the others: "lru").
        sharing: which processes may have the directory open at one time: "shared"
            (several; all see a completed write, and the disk limits are those in
            force; the default) or "exclusive" (one process; the default with
            write_policy "on_eviction").
        inline_threshold: with "log" and "mixed", a value with more bytes gets its
            own file (None: "log": 1 MiB, and never more than a quarter of a segment;
            "mixed": 20,480); with "mixed" and NO_LIMIT no value does.
        write_policy: for puts that name none: "through" (in both tiers; the
            default), "memory", "disk", or "on_eviction" (in memory, and on disk on
            eviction, flush() and close(): fast, but a kill of the process loses
            entries that were not yet written. In a cache that shares its directory,
            a set with this policy stores in both tiers).
        durability: what a completed put survives: "process", the end of the
            process, killed or not (the default); "power", also a loss of power,
            except for the last writes; "sync", also a loss of power. Of several
            openings of a directory the strongest holds.
        checksums: whether a read from disk verifies the checksum of the value; with "log" it
            always does.
        codec: converts between values and their bytes on disk: see Codec.
        serializer: makes bytes of all values except bytes, str and int: an object with
            dumps, loads and a name. None: the package's own forms, without pickle;
            hutch.pickling has pickle. A value of one serializer is not found by another.
        objects: True: cache.objects keeps Python objects, themselves in memory and as the
            bytes that set makes of them on disk.
        network_directory: also accept a directory on a network file system. Only
            this machine may have it open, which the library cannot check.
        disk_optional: also open if the directory cannot be used: the disk tier
            is then down (stats().disk.state), and in service as soon as it can be; if
            other processes have opened the directory by then, once they have closed it.
        nonempty: the directory may contain other files although it is not yet a
            cache's; without this, that is a BadDirectoryError. The library leaves
            such files alone in either case.
        ages_on_trim: the tiers' times to live and to idle act in trims alone, such as
            expire(); an entry's own times act always.
        on_memory_warning, on_background: what notify removes from memory: "empty"
            (every entry; the default), "low_water" (down to low_water percent of
            the cost limit, by default 50) or "expired".
        workers: how many awaited calls run at once, each on a thread of the cache;
            one more thread does its maintenance when all are busy. 0: no threads,
            and maintain does all of it. None: 2.
        queue_length: how many awaited calls may wait, one more is a BlockingIOError; 0: any number.
        queue: a Queue that runs the awaited calls, and may do so for several caches: see
            shared_queue. Then workers is None, or 0 (no thread for maintenance).
        close_deadline: how long close waits for them, in seconds; None: 30;
            NO_LIMIT: until all have ended.
        clock: the time in Unix nanoseconds, in place of the system's clocks;
            for tests. Must not use the cache.

    Raises BadDirectoryError, BusyError (another process has the directory open, and one of
    the two has it exclusively), ForkedError (the parent process had it open at a fork that
    could not hand it on), NewerFormatError, UnsupportedError (a network file system),
    NoSpaceError, StorageError; ValueError for a limit below 0.
    Warns with OptionsDifferWarning if the directory has another storage than the one
    asked for, if this process has the directory open with other options (both handles
    then share that cache), or if other processes have it open with other limits.
    """

    # Of an opening by ctypes: what closes the cache when it is collected, and its number.
    _closing: "Any" = None  # A weakref.finalize.
    _number: int

    _pointer: "Any" = _Once("_pointer", _pointer)
    _forms: "Any" = _Once("_forms", _forms)

    def __init__(
        self,
        directory: "Path | None" = None,
        *,
        memory: "Limits | None" = None,
        disk: "Limits | None" = None,
        time_to_live: "Seconds | None" = None,
        time_to_idle: "Seconds | None" = None,
        storage: "str | None" = None,
        policy: "str | None" = None,
        disk_policy: "str | None" = None,
        sharing: "str | None" = None,
        inline_threshold: "int | None" = None,
        write_policy: "str | None" = None,
        durability: "str | None" = None,
        checksums: bool = True,
        codec: "Codec | None" = None,
        serializer: "Serializer | None" = None,
        objects: bool = False,
        network_directory: bool = False,
        disk_optional: bool = False,
        nonempty: bool = False,
        ages_on_trim: bool = False,
        on_memory_warning: "str | None" = None,
        on_background: "str | None" = None,
        low_water: "int | None" = None,
        workers: "int | None" = None,
        queue_length: "int | None" = None,
        queue: "Queue | None" = None,
        close_deadline: "Seconds | None" = None,
        clock: "Clock | None" = None,
    ) -> None:
        chosen = {name: value for name, value in locals().items() if name in _OPTIONS}
        self._options = chosen
        self._has_object_codec = bool(chosen["objects"])
        path = None if directory is None else directory_bytes(directory)
        # The working directory may have changed when the cache is opened again.
        self._path = None if path is None else os.fsdecode(os.path.abspath(path))
        self._listening: Listening | None = None
        if _accelerator.module is not None and self._open_without_ctypes(path):
            note_open(self)
            return
        # An opening that failed is repeated by ctypes, which raises its exception.
        with late:
            from ._opening import open_with

        open_with(self, directory, path, chosen)

    def _open_without_ctypes(self, path: "bytes | None") -> bool:
        """False: the opening has failed, or it takes ctypes; nothing is open."""
        if self._has_object_codec:
            return False
        settings = clock = codec = None
        is_natural = self._options["serializer"] is None
        if self._options != _OPTIONS:
            with late:
                from ._settings import settings_of

            settings = settings_of(self._options)
            if self._options["clock"] is not None:
                from ._callbacks import guarded
                from ._clock import Reading

                clock = guarded(Reading(self._options["clock"]))
            if self._options["codec"] is not None:
                from ._callbacks import guarded
                from ._codec_hook import conversions_of

                codec_id, encode, decode = conversions_of(self._options["codec"])
                codec = codec_id, guarded(encode), guarded(decode)
            if not is_natural:
                self._forms  # It is made now, or refused.
        opened: bool = self._open(path, settings, clock, codec, is_natural)
        return opened

    def close(self) -> None:
        """Shut the cache down: complete the work in progress, close the directory.

        A second close has no effect. StorageError: closed, but not cleanly.
        DeadlockError: a listener or a codec of the cache made the call; it is still open.
        """
        if self._closing is not None:
            try:
                from ._opening import close
            except ImportError as error:
                closed_at_end(error)
                return
            close(self)
            return
        status = self._close()
        if status == 0:
            forget_open(self)
        elif status is not None:
            from ._opening import check_closed

            check_closed(self, status)

    def __enter__(self) -> "Self":
        return self

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        error: "BaseException | None",
        trace: "TracebackType | None",
    ) -> None:
        self.close()

    async def aclose(self) -> None:
        """As close, without blocking the event loop."""
        from ._awaits import in_thread

        await in_thread(self.close)

    async def __aenter__(self) -> "Self":
        return self

    async def __aexit__(
        self,
        kind: "type[BaseException] | None",
        error: "BaseException | None",
        trace: "TracebackType | None",
    ) -> None:
        await self.aclose()

    def __reduce__(self) -> "tuple[Any, ...]":
        """A pickled cache is opened again, by its directory and options. The attributes that others
        have given it come with it, and the __init__ of a subclass is not called."""
        from ._copies import parts_of

        return parts_of(self)

    def __repr__(self) -> str:
        return f"hutch.Cache({self.directory!r})"

    def _now(self) -> int:
        import time

        clock: Clock = self._options["clock"] or time.time_ns
        return clock()

    @property
    def directory(self) -> "str | None":
        """The directory as it was given, as a str; None for a cache in memory."""
        try:
            from ._library import lib
        except ImportError as error:
            closed_at_end(error)
            return self._path
        path: bytes | None = lib.hutch_directory(self._pointer)
        return None if path is None else os.fsdecode(path)

    @property
    def memory(self) -> "TierView":
        """The memory tier as a cache of its own.

        set stores in memory and removes the entry on disk; get, in and info see
        memory only; delete and clear remove the copies in memory only.
        """
        with late:
            from ._records import Tier
            from ._tier_view import TierView

        return TierView(self, Tier.MEMORY)

    @property
    def disk(self) -> "TierView":
        """The disk tier as a cache of its own. NoDiskTierError: there is none.

        set stores on disk and removes the copy in memory; get, in and info see the
        disk only and bring nothing into memory; delete and clear remove the entries
        on disk and their copies in memory.
        """
        with late:
            from ._errors import NoDiskTierError, UnsupportedError
            from ._records import Tier
            from ._tier_view import TierView

        try:
            return TierView(self, Tier.DISK)
        except UnsupportedError as error:
            raise NoDiskTierError(*error.args) from None

    def listen(self, function: "Listener", kinds: "EventKind | None" = None) -> "Listening":
        """Call a function for each event of these kinds (None: of all), until the listener's
        end or the block's.

            with cache.listen(print, hutch.EventKind.DID_REMOVE):
                cache.clear()

        A cache has one listener: a new one replaces the old one, also if that came
        through another Cache on the same directory. The close of the cache ends it, and so does
        the collection of this object, to which the function may refer. The events of a key come
        in the order of its versions, each once; include/hutch.h has the details.

        The thread whose call made the event calls the function; or a thread that is
        delivering other events already, or a thread of the library. The function may use
        the cache, but not close or flush it, and must not wait for a thread that
        uses it. Its exceptions go to sys.unraisablehook, except Ctrl-C, which is
        raised in the main thread after the listener has returned.
        """
        if not (kinds is None or isinstance(kinds, int)):
            raise TypeError(f"kinds: an EventKind is needed, not {kinds!r}")
        # Before the first event: a put may have to wait for a thread that delivers one.
        self._let_go_of_the_gil()
        with late:
            from ._events import EventKind, Listening

        return Listening(self, function, EventKind.ALL if kinds is None else kinds)


# The options of a cache, and their defaults.
_OPTIONS: "dict[str, Any]" = dict(Cache.__init__.__kwdefaults__ or {})

if not TYPE_CHECKING:
    MutableMapping.register(Cache)
    hint(
        globals(), "Any", "Clock", "Codec", "EventKind", "Limits", "Listener", "Listening", "Path",
        "Queue", "Seconds", "Self", "Serializer", "TierView", "TracebackType",
    )
    if _accelerator.module is not None:
        # A program that has imported _logs has called hutch.log.
        _accelerator.module.begin(complete, f"{__package__}._logs" not in sys.modules)
