"""The common part of a cache and a view of one tier: the calls that work on entries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, MutableMapping
from ctypes import byref
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from . import _structs
from ._cbor import Unreadable
from ._codec import Key, key_to_bytes
from ._counters import Counters
from ._errors import Status, check
from ._files import Files
from ._process import hint
from ._library import lib
from ._loads import Loads, load, load_options
from ._many import Many
from ._memoize import Choices, ignored, memoize
from ._objects import Objects
from ._options import put_options
from ._pins import Pins
from ._tags import Tags, tag_of, tag_of_value
from ._trim import Trims
from ._units import Seconds, named, own_duration, uint64
from ._upkeep import Upkeep
from ._serializers import Forms
from ._values import decode
from ._walks import Walks

if TYPE_CHECKING:
    from ._records import Entry, EntryInfo, PutResult
    from ._types import Memoizer
else:
    hint(globals(), "Entry", "EntryInfo", "Memoizer", "PutResult")

K = TypeVar("K", bound=Key)
V = TypeVar("V")

_MISSING = object()


if TYPE_CHECKING:
    _Mapping = MutableMapping[Key, Any]
else:
    _Mapping = object


class SlowEntries(Many, Tags, Files, Pins, Counters, Objects, Walks, Trims, Upkeep, _Mapping):
    """Entries by key: a mutable mapping with the methods of python-diskcache.

    Complete in itself, by ctypes. hutch._fast has some of the calls for the common kinds of
    arguments, and calls these methods for all others.

    Any method raises TypeError or ValueError for an argument that is not a key or a value
    (see hutch.key_to_bytes and the README), ClosedError after close, ForkedError
    in a child process to which the cache could not be handed on, StorageError if
    the disk cannot be read or written.

    Common parameters:
        expire: the entry's own time to live from now, in seconds or as a
            timedelta. None: that of the tier; math.inf: none; 0: expires as soon as
            the clock moves.
        idle: the entry's own time to idle in seconds, from the last access;
            the same values.
        cost: the charge of the entry in the memory tier, in place of its bytes (0 too);
            None: its bytes.
        suffix: the end of the name of the value's file, if it gets one
            (".jpg"); at most 15 bytes.
        write_policy: "through" stores in both tiers; "memory" or "disk" stores in
            that tier only, and removes the key from the other; "on_eviction" stores
            in memory, and on disk on eviction. None: the cache's policy. A view of a
            tier stores in its tier.
        tag: the name by which remove_tagged removes the entry: a key of at most 255
            bytes; None: no tag.
    """

    _pointer: Any
    _forms: Forms

    # Unlike other mappings, caches are equal only if they are the same object.
    __eq__: Callable[[object, object], bool] = object.__eq__
    __hash__ = object.__hash__  # type: ignore[assignment,unused-ignore]

    def _attach(
        self, handle: int, is_in_memory: bool, is_natural: bool, is_whole: bool
    ) -> None:
        """Tell the accelerator the cache, whether every put returns without a wait, whether
        values are in the package's own forms, and whether it has both tiers."""

    def _open(
        self,
        path: bytes | None,
        settings: dict[str, int] | None,
        clock: Any,
        codec: tuple[int, Any, Any] | None,
        is_natural: bool,
    ) -> bool:
        """Open without ctypes. False: the accelerator has not."""
        return False

    def _handle(self) -> int:
        """The handle of a cache that the accelerator has opened."""
        raise ValueError("the cache has not been opened")

    def _close(self) -> int | None:
        """End the opening of _open: its status. None: it has ended before."""
        return None

    def _code_objects(self) -> None:
        """The accelerator leaves the calls on objects to these."""

    def _keep_pairs(self) -> None:
        """Tell the accelerator that a value is a tuple of its bytes and its extended data, which
        the cache's Forms return as they are."""

    def _let_go_of_the_gil(self) -> None:
        """Tell the accelerator that puts may wait from now on."""

    # ------------------------------------------------------------------ put

    def __setitem__(self, key: Key, value: Any) -> None:
        """Store value under key, with the tiers' own durations."""
        check(self._write(lib.hutch_put, (), key, value))

    def set(
        self,
        key: Key,
        value: Any,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        suffix: str | None = None,
        write_policy: str | None = None,
        tag: Key | None = None,
    ) -> bool:
        """Store value under key, in place of the older value. Always True.

        TooLargeError, NoSpaceError: no tier has stored it, and older values are removed.
        """
        own = expire, idle, cost, suffix, write_policy, tag
        check(self._write(lib.hutch_put, (), key, value, *own))
        return True

    def put(
        self,
        key: Key,
        value: Any,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        suffix: str | None = None,
        write_policy: str | None = None,
        tag: Key | None = None,
    ) -> PutResult:
        """Like set; returns the version of the write and the outcome in each tier."""
        result = _structs.PutResult()
        own = expire, idle, cost, suffix, write_policy, tag
        check(self._write(lib.hutch_put, (), key, value, *own, result))
        from ._records import PutResult

        return PutResult._of(result)

    def add(
        self,
        key: Key,
        value: Any,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        write_policy: str | None = None,
        tag: Key | None = None,
    ) -> bool:
        """Store value if there is no entry, atomically. False: there is one."""
        own = expire, idle, cost, None, write_policy, tag
        status = self._write(lib.hutch_add, (), key, value, *own)
        return check(status) != Status.EXISTS

    def replace(
        self,
        key: Key,
        value: Any,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        write_policy: str | None = None,
        tag: Key | None = None,
    ) -> bool:
        """Store value if there is an entry, atomically. False: there is none."""
        own = expire, idle, cost, None, write_policy, tag
        status = self._write(lib.hutch_replace, (), key, value, *own)
        return check(status) != Status.NOT_FOUND

    def compare_and_swap(
        self,
        key: Key,
        version: int,
        value: Any,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        write_policy: str | None = None,
        tag: Key | None = None,
    ) -> bool:
        """Store value if the entry still has this version, atomically.

        version comes from entry, info or put. False: it has another one, or
        there is no entry.
        """
        between = (uint64(version),)
        own = expire, idle, cost, None, write_policy, tag
        status = check(self._write(lib.hutch_compare_and_swap, between, key, value, *own))
        return status in (Status.OK, Status.PARTIAL)

    def _write(
        self,
        call: Any,
        between: tuple[int, ...],
        key: Key,
        value: Any,
        expire: Seconds | None = None,
        idle: Seconds | None = None,
        cost: int | None = None,
        suffix: str | None = None,
        write_policy: str | None = None,
        tag: Key | None = None,
        result: _structs.PutResult | None = None,
    ) -> int:
        name = key_to_bytes(key)
        data, extended = self._forms.encode(value)
        options = put_options(expire, idle, cost, extended, suffix, write_policy, tag)
        status: int = call(
            self._pointer, name, len(name), *between, data, len(data), options, result
        )
        return status

    # ------------------------------------------------------------------ get

    def __getitem__(self, key: Key) -> Any:
        """The value of key. KeyError: no entry."""
        value = self._read(lib.hutch_get, key)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def get(self, key: Key, default: Any = None) -> Any:
        """The value of key, or default. A value found on disk is brought into memory."""
        value = self._read(lib.hutch_get, key)
        return default if value is _MISSING else value

    def pop(self, key: Key, default: Any = None) -> Any:
        """Remove the entry and return its value, or default.

        Of several concurrent callers, exactly one gets the value.
        """
        value = self._read(lib.hutch_pop, key)
        return default if value is _MISSING else value

    def entry(self, key: Key) -> Entry | None:
        """The value of key with its record, which belong together; None: no entry.

        The record is as the write made it: accessed is created, and expires is
        the entry's own. With compare_and_swap, a program can change a value safely:

            while True:
                entry = cache.entry("seen")
                if cache.compare_and_swap("seen", entry.info.version, entry.value + ["x"]):
                    break
        """
        name = key_to_bytes(key)
        value = _structs.ValuePointer()
        try:
            status = check(lib.hutch_get(self._pointer, name, len(name), byref(value)))
            if status == Status.NOT_FOUND:
                return None
            from ._records import Entry, EntryInfo

            info = _structs.EntryInfo()
            check(lib.hutch_value_info(value, byref(info)))
            return Entry(decode(value, self._forms), EntryInfo._of(info, tag_of_value(value)))
        except Unreadable:
            return None
        finally:
            if value:
                lib.hutch_value_release(value)

    def _read(self, call: Any, key: Key) -> Any:
        name = key_to_bytes(key)
        value = _structs.ValuePointer()
        try:
            status = call(self._pointer, name, len(name), byref(value))
            if status and check(status) == Status.NOT_FOUND:
                return _MISSING
            return decode(value, self._forms)
        except Unreadable:
            return _MISSING
        finally:
            if value:
                lib.hutch_value_release(value)

    def __contains__(self, key: Any) -> bool:
        """Whether there is an entry. No access: neither statistics nor times change."""
        name = key_to_bytes(key)
        return check(lib.hutch_contains(self._pointer, name, len(name))) != Status.NOT_FOUND

    def info(self, key: Key) -> EntryInfo | None:
        """The entry's record as it is now; None: no entry. No access."""
        name = key_to_bytes(key)
        info = _structs.EntryInfo()
        status = lib.hutch_info(self._pointer, name, len(name), byref(info))
        if check(status) == Status.NOT_FOUND:
            return None
        from ._records import EntryInfo

        return EntryInfo._of(info, tag_of(self._pointer, name, info))

    # ------------------------------------------------------- change, remove

    def touch(
        self, key: Key, expire: Seconds | None = None, *, idle: Seconds | None = None
    ) -> bool:
        """Make the entry count as written now, with new durations. False: no entry.

        None keeps the entry's own duration, which starts anew; math.inf: none.
        """
        name = key_to_bytes(key)
        durations = named("expire", own_duration, expire), named("idle", own_duration, idle)
        status = lib.hutch_touch(self._pointer, name, len(name), *durations)
        return check(status) != Status.NOT_FOUND

    def __delitem__(self, key: Key) -> None:
        """Remove the entry. KeyError: there is none."""
        if not self.delete(key):
            raise KeyError(key)

    def delete(self, key: Key) -> bool:
        """Remove the entry. False: there is none."""
        name = key_to_bytes(key)
        return check(lib.hutch_remove(self._pointer, name, len(name))) != Status.NOT_FOUND

    def clear(self) -> None:
        """Remove every entry, at once; the space on disk is freed gradually."""
        check(lib.hutch_clear(self._pointer))

    def setdefault(
        self,
        key: Key,
        default: Any = None,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        tag: Key | None = None,
    ) -> Any:
        """The value of key; if there is no entry, default, which is stored."""
        while True:
            value = self._read(lib.hutch_get, key)
            if value is not _MISSING:
                return value
            if self._supply(key, default, expire, idle=idle, tag=tag):
                return self._as_stored(default)

    def _supply(self, key: Key, value: Any, expire: Seconds | None, **own: Any) -> bool:
        """Store value if there is no entry that can be read, atomically. False: there may be one.

        add alone would fail for ever on one that this program cannot read.
        """
        if self.add(key, value, expire, **own):
            return True
        info = self.info(key)
        # In this order: what is read is of the version that is swapped, or of a later one.
        if info is None or self._read(lib.hutch_get, key) is not _MISSING:
            return False
        return self.compare_and_swap(key, info.version, value, expire, **own)

    def popitem(self, last: bool = True) -> tuple[Key, Any]:
        """Remove the entry written last, or first; its key and value. KeyError: none.

        Of several concurrent callers, exactly one gets an entry. It scans all entries, as
        peekitem does.
        """
        for key in self.keys("insertion", reverse=last):
            value = self._read(lib.hutch_pop, key)
            if value is not _MISSING:
                return key, value
        raise KeyError("the cache is empty")

    def update(  # type: ignore[override]
        self, values: Mapping[Any, Any] | Iterable[tuple[Any, Any]] = (), /, **more: Any
    ) -> None:
        """Store the values of a mapping, or of pairs of key and value, like set_many."""
        together: dict[Any, Any] = dict(values)
        together.update(more)
        self.set_many(together)

    # ----------------------------------------------------------------- make

    def _as_stored(self, value: Any) -> Any:
        """The value as a get would return it."""
        data, extended = self._forms.encode(value)
        return self._forms.decode(data, extended or b"")

    def _now(self) -> int:
        """The cache's time in Unix nanoseconds."""
        raise NotImplementedError

    def load(
        self,
        key: K,
        loader: Callable[[K], V],
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        timeout: Seconds | None = None,
        refresh: Seconds | None = None,
        remember_errors: Seconds | None = None,
        stale_if_error: bool = False,
        background: bool = False,
        tag: Key | None = None,
    ) -> V:
        """The value of key; if there is none, what loader(key) returns, which is stored.

        Of all threads that call at once, one runs its loader and the others wait
        for its value. A put during the load is newer: the callers get its value.
        The loader may use the cache, and load other keys.

        timeout: how long to wait for another caller's loader (None: 60 seconds), and how
            long this caller keeps the lead while others wait.
        refresh: one caller makes a value of this age or more anew, and the others get
            the old one until then.
        background: that caller gets the old value too, and a thread makes the new one.
        remember_errors: for this long after a failure of this loader, no loader runs.
        stale_if_error: if the refresh fails, its caller gets the old value.

        A caller whose loader raises gets its exception, the others a LoadError with its
        words. TimedOutError: another caller's loader took too long. DeadlockError: that
        loader waits for this one.
        """

        put = expire, idle, cost, tag
        times = timeout, refresh, remember_errors, stale_if_error
        value: V = load(Loads(self, loader, put, times, background), key)
        return value

    def memoize(
        self,
        name: str | None = None,
        typed: bool = False,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        ignore: Collection[int | str] = (),
        refresh: Seconds | None = None,
        stale_if_error: bool = False,
        tag: Key | None = None,
    ) -> Memoizer:
        """Decorator: cache the results of a function, also None, by its arguments.

        name: the start of the keys, in which "(" is written as "%28" and "%" as "%25"; None: the
        function's module and qualified name, for a lambda with a digest of its code. typed: whether
        1, 1.0 and True are three arguments. ignore: positions (int) and names
        (str) of parameters that do not count, such as {"self"}; ValueError: the
        function has no such parameter. refresh: a result of this age is returned
        once more and made anew in the background. stale_if_error: if that fails, the
        old result stays in use until it expires; otherwise the next call fails.

        Of concurrent calls with the same arguments, one runs the function
        and the others wait for its result; exceptions are not cached. Functions
        may be coroutine functions, partials, methods and other callable objects
        (which need a name). Arguments may be natural values: None, numbers, str,
        bytes, tuples, lists, dicts, sets, dates and times, Decimal, UUID, paths,
        enumerations, dataclasses and numpy arrays; others are a TypeError, and so
        are results that are not values. Since a result may come from the cache,
        the first call also returns it in the form that later calls will return. A result
        that cannot be stored, for example because it is too large, is returned too.

        Of a subclass its own get, aget and aload are called, and not its load.

        The decorated function has ``cache_info()``, ``cache_clear()`` and ``cache_parameters()``,
        ``__cache_key__(*args, **kwargs)``, the key of a call, and ``__wrapped__``. Those of a
        method take the object too, also of a bound one.
        """
        # Refused here, and not by the first call once the function has been run.
        put_options(expire, idle, None, None, tag=tag)
        load_options(None, refresh, None, stale_if_error)
        choices = Choices(typed, expire, idle, ignored(ignore), refresh, stale_if_error, tag)
        memoizer: Memoizer = memoize(self, name, choices)
        return memoizer
