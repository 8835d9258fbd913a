"""What a cache and a view of one tier have in common: the calls that work on entries."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Iterator
from ctypes import byref
from typing import Any, BinaryIO, Callable, Literal, NoReturn, TypeVar

from . import _structs
from ._codec import INT, JSON, STR, Key, encode_value, key_from_bytes, key_to_bytes
from ._errors import Status, WrongTypeError, check, failure
from ._files import Hold, Writer
from ._library import lib
from ._loads import load, load_options
from ._memoize import memoize
from ._objects import Objects
from ._options import Path, path_bytes, put_options
from ._records import CacheStats, CheckReport, Entry, EntryInfo, PutResult, Seconds
from ._trim import Trims
from ._units import int64, own_duration, uint64
from ._values import decode, extended_of

F = TypeVar("F", bound=Callable[..., Any])

_FILE_USE = {"copy": 1, "move": 2, "link": 3}

Order = Literal["insertion", "access"]

_ORDERS = {"insertion": 1, "access": 2}
_DESCENDING = 256
_MISSING = object()
_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)


class Entries(Objects, Trims):
    """Entries by key: a mapping with the methods of python-diskcache.

    Of any method: TypeError or ValueError for a key or a value that is none
    (see hutch.key_to_bytes and the README), ClosedError after close, ForkedError
    in a child process, StorageError if the disk cannot be read or written.

    Common parameters:
        expire: the entry's own time to live in seconds, from now. None: that
            of the tier; math.inf: none; 0: gone as soon as the clock moves.
        idle: the entry's own time to idle in seconds, from the last access;
            the same values.
        cost: what the memory tier charges for the entry instead of its bytes;
            None: its bytes.
        suffix: what the name of the value's file ends with, if it gets one
            (".jpg"); at most 15 bytes.
    """

    _pointer: Any

    def __reduce__(self) -> NoReturn:
        # A copy would own no reference to the handle that it points to.
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled")

    # ------------------------------------------------------------------ put

    def __setitem__(self, key: Key, value: Any) -> None:
        """Store value under key, with the tiers' own durations."""
        check(self._write(lib.hutch_put, (), key, value, None, None, None, None))

    def set(
        self,
        key: Key,
        value: Any,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        suffix: str | None = None,
    ) -> bool:
        """Store value under key, in place of what was there. Always True.

        TooLargeError, NoSpaceError: no tier took it, and older values are gone.
        """
        check(self._write(lib.hutch_put, (), key, value, expire, idle, cost, None, suffix))
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
    ) -> PutResult:
        """As set, and tell the version of the write and what each tier made of it."""
        result = _structs.PutResult()
        check(self._write(lib.hutch_put, (), key, value, expire, idle, cost, result, suffix))
        return PutResult._of(result)

    def add(
        self,
        key: Key,
        value: Any,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
    ) -> bool:
        """Store value if there is no entry, as one step. False: there is one."""
        status = self._write(lib.hutch_add, (), key, value, expire, idle, cost, None)
        return check(status) != Status.EXISTS

    def replace(
        self,
        key: Key,
        value: Any,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
    ) -> bool:
        """Store value if there is an entry, as one step. False: there is none."""
        status = self._write(lib.hutch_replace, (), key, value, expire, idle, cost, None)
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
    ) -> bool:
        """Store value if the entry still has this version, as one step.

        version comes from entry, info or put. False: it has another one, or
        there is no entry.
        """
        between = (uint64(version),)
        call = lib.hutch_compare_and_swap
        status = check(self._write(call, between, key, value, expire, idle, cost, None))
        return status in (Status.OK, Status.PARTIAL)

    def _write(
        self,
        call: Any,
        between: tuple[int, ...],
        key: Key,
        value: Any,
        expire: Seconds | None,
        idle: Seconds | None,
        cost: int | None,
        result: _structs.PutResult | None,
        suffix: str | None = None,
    ) -> int:
        name = key_to_bytes(key)
        data, extended = encode_value(value)
        options = put_options(expire, idle, cost, extended, suffix)
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
        """The value of key, or default. What is found on disk is brought into memory."""
        value = self._read(lib.hutch_get, key)
        return default if value is _MISSING else value

    def pop(self, key: Key, default: Any = None) -> Any:
        """Remove the entry and give its value, or default.

        Of several callers at once exactly one gets the value.
        """
        value = self._read(lib.hutch_pop, key)
        return default if value is _MISSING else value

    def entry(self, key: Key) -> Entry | None:
        """The value of key with its record, which belong together; None: no entry.

        The record is as the write fixed it: accessed is created, and expires is
        the entry's own. With compare_and_swap, a value can be changed safely:

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
            info = _structs.EntryInfo()
            check(lib.hutch_value_info(value, byref(info)))
            return Entry(decode(value), EntryInfo._of(info))
        finally:
            lib.hutch_value_release(value)

    def _read(self, call: Any, key: Key) -> Any:
        name = key_to_bytes(key)
        value = _structs.ValuePointer()
        try:
            status = call(self._pointer, name, len(name), byref(value))
            if status and check(status) == Status.NOT_FOUND:
                return _MISSING
            return decode(value)
        finally:
            lib.hutch_value_release(value)

    def __contains__(self, key: Key) -> bool:
        """Whether there is an entry. No access: neither statistics nor times change."""
        name = key_to_bytes(key)
        return check(lib.hutch_contains(self._pointer, name, len(name))) != Status.NOT_FOUND

    def info(self, key: Key) -> EntryInfo | None:
        """The entry's record as it is now; None: no entry. No access."""
        name = key_to_bytes(key)
        info = _structs.EntryInfo()
        status = lib.hutch_info(self._pointer, name, len(name), byref(info))
        return None if check(status) == Status.NOT_FOUND else EntryInfo._of(info)

    # ---------------------------------------------------------------- files

    def put_file(
        self,
        key: Key,
        path: Path,
        use: str = "copy",
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        suffix: str | None = None,
    ) -> PutResult:
        """Store a file's bytes under key; as a value they are bytes.

        use: "copy"; "move": the file is removed once the entry is committed;
        "link": the entry shares its bytes, which must not be changed. On the
        cache's file system the last two copy nothing. A large file is in
        memory at once only if the memory tier takes it.

        StorageError: also, the file cannot be read; ValueError: it is no
        regular file. Either way nothing changed.
        """
        if use not in _FILE_USE:
            raise ValueError(f"use is 'copy', 'move' or 'link', not {use!r}")
        name = key_to_bytes(key)
        options = put_options(expire, idle, cost, None, suffix)
        result = _structs.PutResult()
        check(
            lib.hutch_put_file(
                self._pointer, name, len(name), path_bytes(path), _FILE_USE[use], options, byref(result)
            )
        )
        return PutResult._of(result)

    def writer(
        self,
        key: Key,
        size: int | None = None,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        suffix: str | None = None,
    ) -> Writer:
        """Begin to store a value of bytes that comes in pieces.

            with cache.writer("video") as writer:
                for piece in pieces:
                    writer.write(piece)

        A large one is never wholly in memory. Nobody sees anything of it before
        the commit. size: how large it will be, if that is known.
        """
        options = put_options(expire, idle, cost, None, suffix)
        return Writer(self, key_to_bytes(key), uint64(size or 0), options)

    def read(self, key: Key) -> BinaryIO:
        """The value as a binary file, to be closed. KeyError: no entry.

        It reads the same bytes for as long as it is open, whatever becomes of
        the entry, and a large value is not brought into memory. The bytes of
        a large one are not checked.
        """
        name = key_to_bytes(key)
        number = ctypes.c_int32()
        status = lib.hutch_value_fd(self._pointer, name, len(name), byref(number))
        if check(status) == Status.NOT_FOUND:
            raise KeyError(key)
        return os.fdopen(number.value, "rb")

    def path(self, key: Key) -> str:
        """The path of the value's file, which must not be changed.

        A hint: it may be gone as soon as the entry is replaced, removed or
        evicted, unless files are held. KeyError: no entry on disk.
        WrongTypeError: the value is small and has no file of its own.
        """
        name = key_to_bytes(key)
        size = ctypes.c_size_t()
        room = 256
        while True:
            buffer = ctypes.create_string_buffer(room)
            status = check(
                lib.hutch_value_path(self._pointer, name, len(name), buffer, room, byref(size))
            )
            if status == Status.NOT_FOUND:
                raise KeyError(key)
            if status != Status.BUFFER_TOO_SMALL:
                return os.fsdecode(buffer.value)
            room = size.value + 1

    def hold_files(self) -> Hold:
        """Keep all values' files where they are, until release or the block's end.

            with cache.hold_files():
                subprocess.run(["file", cache.path("photo")])

        Entries come and go meanwhile; their files go when the last hold ends.
        """
        return Hold(self)

    # ------------------------------------------------------- change, remove

    def touch(
        self, key: Key, expire: Seconds | None = None, *, idle: Seconds | None = None
    ) -> bool:
        """Let the entry count as written now, with new durations. False: no entry.

        None keeps the entry's own duration, which starts anew; math.inf: none.
        """
        name = key_to_bytes(key)
        durations = own_duration(expire), own_duration(idle)
        status = lib.hutch_touch(self._pointer, name, len(name), *durations)
        return check(status) != Status.NOT_FOUND

    def incr(self, key: Key, delta: int = 1, default: int | None = 0) -> int:
        """Add delta to an int, as one step, and give the sum.

        A missing one is made from default; default=None: KeyError. One that is
        there keeps its durations. In other languages it is a counter of
        hutch_increment, and a counter made there (8 bytes) can be counted here.

        WrongTypeError: the value is no int of 64 bits. CounterOverflowError (or
        OverflowError, for a parameter): the sum does not fit; nothing changed.
        """
        delta = int64(delta)
        initial = 0 if default is None else int64(default)
        name = key_to_bytes(key)
        # The library tells a counter by its size, and a text can have 8 bytes too.
        value = self._counter(name)
        if default is None:
            if value is None:
                raise KeyError(key)
            if delta == 0:
                return value
            # A sum that cannot be: if the entry goes meanwhile, none is made.
            initial = _INT64_MAX if delta > 0 else _INT64_MIN
        result = ctypes.c_int64()
        options = put_options(None, None, None, INT)
        status = lib.hutch_increment(
            self._pointer, name, len(name), delta, initial, options, byref(result)
        )
        if status == Status.OVERFLOW and default is None:
            error = failure(status)
            if key not in self:
                raise KeyError(key)
            raise error
        check(status)
        return result.value

    def decr(self, key: Key, delta: int = 1, default: int | None = 0) -> int:
        """As incr, with delta subtracted."""
        return self.incr(key, -delta, default)

    def _counter(self, name: bytes) -> int | None:
        """What a counter stands at; None: no entry. WrongTypeError: it is none."""
        value = _structs.ValuePointer()
        try:
            status = check(lib.hutch_get(self._pointer, name, len(name), byref(value)))
            if status == Status.NOT_FOUND:
                return None
            if lib.hutch_value_size(value) != 8 or extended_of(value) in (STR, JSON):
                raise WrongTypeError(Status.WRONG_TYPE, "the value is no int of 64 bits")
            data = ctypes.string_at(lib.hutch_value_data(value), 8)
            return int.from_bytes(data, "little", signed=True)
        finally:
            lib.hutch_value_release(value)

    def __delitem__(self, key: Key) -> None:
        """Remove the entry. KeyError: there is none."""
        if not self.delete(key):
            raise KeyError(key)

    def delete(self, key: Key) -> bool:
        """Remove the entry. False: there is none."""
        name = key_to_bytes(key)
        return check(lib.hutch_remove(self._pointer, name, len(name))) != Status.NOT_FOUND

    def clear(self) -> None:
        """Remove every entry, at once; the space on disk comes back little by little."""
        check(lib.hutch_clear(self._pointer))

    # -------------------------------------------------------------- iterate

    def __iter__(self) -> Iterator[Key]:
        """The keys, in no order, while entries come and go.

        An entry that is there from beginning to end is seen exactly once. An
        iterator is for one thread at a time.
        """
        for _, key in self._walk():
            yield key

    def __reversed__(self) -> Iterator[Key]:
        """The keys, the last written (or touched) first."""
        return self.keys("insertion", reverse=True)

    def keys(self, order: Order | None = None, *, reverse: bool = False) -> Iterator[Key]:
        """The keys, in an order.

        order: "insertion", by the time of the last write or touch; "access", by
        the last access; None: in none. The oldest first; reverse: the newest.
        An entry that is written, touched or, by access, read during the walk is
        seen at most once.
        """
        for _, key in self._walk(order, reverse):
            yield key

    def values(self, order: Order | None = None, *, reverse: bool = False) -> Iterator[Any]:
        """The values, as items."""
        for _, value in self.items(order, reverse=reverse):
            yield value

    def items(
        self, order: Order | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[Key, Any]]:
        """Keys and values. No access: times do not change, nothing is brought into memory."""
        for cursor, key in self._walk(order, reverse):
            value = _structs.ValuePointer()
            try:
                if check(lib.hutch_cursor_value(cursor, byref(value))) == Status.NOT_FOUND:
                    continue
                item = key, decode(value)
            finally:
                lib.hutch_value_release(value)
            yield item

    def _walk(
        self, order: Order | None = None, reverse: bool = False
    ) -> Iterator[tuple[Any, Key]]:
        cursor = _structs.CursorPointer()
        release = lib.hutch_cursor_release
        if order is None:
            if reverse:
                raise ValueError("reverse needs an order")
            check(lib.hutch_cursor_create(self._pointer, byref(cursor)))
        else:
            try:
                number = _ORDERS[order]
            except (KeyError, TypeError):
                raise ValueError(f"order is none of {', '.join(_ORDERS)}: {order!r}") from None
            check(
                lib.hutch_cursor_create_ordered(
                    self._pointer, number | (_DESCENDING if reverse else 0), byref(cursor)
                )
            )
        try:
            name = ctypes.c_void_p()
            size = ctypes.c_size_t()
            while True:
                status = lib.hutch_cursor_next(cursor, byref(name), byref(size))
                if check(status) == Status.NOT_FOUND:
                    return
                yield cursor, key_from_bytes(ctypes.string_at(name, size.value))
        finally:
            release(cursor)

    # ---------------------------------------------------------------- state

    def __len__(self) -> int:
        """How many entries there are; those that expired less than a second ago may count."""
        count = ctypes.c_uint64()
        check(lib.hutch_count(self._pointer, byref(count)))
        return count.value

    def cost(self) -> int:
        """What the entries are charged, in bytes; of a cache, the sum of its tiers."""
        cost = ctypes.c_uint64()
        check(lib.hutch_cost(self._pointer, byref(cost)))
        return cost.value

    def volume(self) -> int:
        """What the entries take up on disk, in bytes; 0 for a cache in memory."""
        return self.stats().disk.cost

    def stats(self) -> CacheStats:
        """What the tiers did since the cache was opened."""
        stats = _structs.CacheStats()
        check(lib.hutch_stats(self._pointer, byref(stats)))
        return CacheStats._of(stats)

    def flush(self) -> None:
        """Wait until everything that was put is in the manifest, access times too."""
        check(lib.hutch_flush(self._pointer))

    def load(
        self,
        key: Key,
        loader: Callable[[Key], Any],
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        timeout: Seconds | None = None,
        refresh: Seconds | None = None,
        remember_errors: Seconds | None = None,
        stale_if_error: bool = False,
    ) -> Any:
        """The value of key; if there is none, what loader(key) makes, which is stored.

        Of all threads that ask at once, one runs its loader and the others wait
        for its value. What is put meanwhile is newer: that is the value then.
        The loader may use the cache, and load other keys.

        timeout: how long to wait for another's loader (None: 60 seconds), and how
            long to run while others wait: then one of them leads.
        refresh: a value that was written so long ago is made anew by one caller,
            and the others get the old one until then.
        remember_errors: so long no loader is run after this one's failure.
        stale_if_error: if it fails to make a value anew, the old one is given.

        Whose loader raises gets its exception, the others a LoadError with its words.
        TimedOutError: another's took too long. DeadlockError: it waits for this one.
        """

        def make() -> tuple[bytes, Any]:
            data, extended = encode_value(loader(key))
            return data, put_options(expire, idle, cost, extended)

        name = key_to_bytes(key)
        options = load_options(timeout, refresh, remember_errors, stale_if_error)
        return load(self._pointer, name, options, make, decode)

    def memoize(
        self,
        name: str | None = None,
        typed: bool = False,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        ignore: Collection[Any] = (),
    ) -> Callable[[F], F]:
        """Decorator: keep what a function returns, None too, by its arguments.

        name: what the keys begin with; None: the function's module and
        qualified name, which should be given for functions that share one
        (lambdas). typed: whether 1, 1.0 and True are three arguments. ignore:
        positions (int) and names (str) of arguments that do not count, such as
        self.

        Arguments may be None, bool, int, float, str, bytes, and tuples, lists,
        dicts, sets and frozensets of these; others are a TypeError, as are
        results that are no values. Since a result may come from the cache, the
        first call too returns it as later ones will: a tuple as a list. Calls
        at the same time may each run the function; an exception is not kept.

        The decorated function has ``__cache_key__(*args, **kwargs)``, the key
        of a call, and ``__wrapped__``.
        """
        return memoize(self, name, typed, expire, idle, ignore)
