"""Walks over the entries, in no order or by age."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from ctypes import byref
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Callable, Literal

from . import _structs
from ._callbacks import callback, new_token, report
from ._cbor import Unreadable
from ._codec import EXTENDED, SIZES, Key, key_from_bytes
from ._errors import Status, check
from ._foreign import bytes_at
from ._library import lib
from ._process import hint
from ._serializers import Forms
from ._tags import tag_of
from ._values import extended_of, parts

if TYPE_CHECKING:
    from ._records import EntryInfo
else:
    hint(globals(), "EntryInfo")

Order = Literal["insertion", "access"]

_ORDERS = {"insertion": 1, "access": 2}
_DESCENDING = 256


def number_of(order: Order | None, reverse: bool) -> int | None:
    """The number of an order; None: no order."""
    if order is None:
        if reverse:
            raise ValueError("reverse needs an order")
        return None
    try:
        return _ORDERS[order] | (_DESCENDING if reverse else 0)
    except (KeyError, TypeError):
        raise ValueError(f"order is 'insertion' or 'access', not {order!r}") from None


class Visit:
    """One walk that calls a function of the program; the error that the function raised."""

    def __init__(self, cache: Any, visit: Callable[[Key, EntryInfo], Any]) -> None:
        if not callable(visit):
            raise TypeError(f"a visitor is a function, not {type(visit).__name__}")
        self._cache = cache
        self._visit = visit
        self._error: BaseException | None = None

    def see(self, name: bytes, info: Any) -> bool:
        """Whether the walk is to end."""
        from ._records import EntryInfo

        try:
            record = EntryInfo._of(info, tag_of(self._cache, name, info))
            return bool(self._visit(key_from_bytes(name), record))
        except BaseException as error:
            self._error = error
            return True

    def done(self) -> None:
        """Raise what the function raised."""
        if self._error is not None:
            raise self._error


visits: dict[int, Visit] = {}
"""The walks under way, by the number that the library carries as the context."""


@callback
def _see(token: int, key: int, size: int, info: Any) -> int:
    try:
        walk = visits.get(token)
        return 1 if walk is None else walk.see(bytes_at(key, size), info.contents)
    except BaseException as error:
        report(error, "a visitor", None)
        return 1


VISIT = _structs.VisitorFunction(_see)


class _View:
    """A cache, and the order of a walk over it."""

    def __init__(self, cache: Any, order: Order | None, reverse: bool) -> None:
        number_of(order, reverse)
        self._cache = cache
        self._order: Order | None = order
        self._reverse = reverse

    def sized(self) -> Iterator[tuple[int, Key, Any]]:
        """How many bytes each value has, its key and the value."""
        found: Iterator[tuple[int, Key, Any]] = self._cache._sized(self._order, self._reverse)
        return found

    def __len__(self) -> int:
        return len(self._cache)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._cache!r}>"


class Keys(_View, KeysView[Key]):
    """The keys of a cache: see Cache.keys."""

    def __contains__(self, key: object) -> bool:
        return key in self._cache

    def __iter__(self) -> Iterator[Key]:
        return (key for _, key in self._cache._walk(self._order, self._reverse))

    def __reversed__(self) -> Iterator[Key]:
        return iter(Keys(self._cache, self._order or "insertion", not self._reverse))


class Values(_View, ValuesView[Any]):
    """The values of a cache: see Cache.values."""

    def __contains__(self, value: object) -> bool:
        return any(each is value or each == value for each in self)

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._cache._items(self._order, self._reverse))


class Items(_View, ItemsView[Key, Any]):
    """The keys and values of a cache: see Cache.items."""

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, tuple) or len(item) != 2:
            return False
        missing = object()
        found = self._cache.get(item[0], missing)
        return found is not missing and bool(found == item[1])

    def __iter__(self) -> Iterator[tuple[Key, Any]]:
        items: Iterator[tuple[Key, Any]] = self._cache._items(self._order, self._reverse)
        return items


class Walks:
    """The calls that iterate."""

    _pointer: Any
    _forms: Forms

    def __iter__(self) -> Iterator[Key]:
        """The keys, in no order, while other threads change the cache.

        A key whose entry is present from beginning to end is seen exactly once. Only
        one thread at a time may use an iterator.
        """
        for _, key in self._walk():
            yield key

    def __reversed__(self) -> Iterator[Key]:
        """The keys, the one written (or touched) last first."""
        return iter(self.keys("insertion", reverse=True))

    def keys(self, order: Order | None = None, *, reverse: bool = False) -> Keys:
        """A view of the keys, to iterate over in an order.

        order: "insertion", by the time of the last write or touch; "access", by
        the last access; None: no order. The oldest come first; reverse: the newest.
        An entry that is written, touched or, with "access", read during the walk is
        seen at most once.
        """
        return Keys(self, order, reverse)

    def values(self, order: Order | None = None, *, reverse: bool = False) -> Values:
        """A view of the values, like items."""
        return Values(self, order, reverse)

    def items(self, order: Order | None = None, *, reverse: bool = False) -> Items:
        """A view of keys and values. Iteration is not an access: times do not change, and no
        value is brought into memory."""
        return Items(self, order, reverse)

    def each(self, visit: Callable[[Key, EntryInfo], Any]) -> None:
        """Call visit(key, info) for every entry, in no order; a result that is true ends the walk.

        No value is read. An entry that is present from beginning to end is seen exactly once.
        visit may change the cache; an exception of it ends the walk, and is raised here.
        """
        walk = Visit(self._pointer, visit)
        token = new_token()
        visits[token] = walk
        try:
            check(lib.hutch_each(self._pointer, VISIT, token))
        finally:
            del visits[token]
        walk.done()

    def peekitem(self, last: bool = True) -> tuple[Key, Any]:
        """The key and value written last, or first. KeyError: there is none.

        On the disk view of a database this is one step; elsewhere it scans all entries.
        """
        for item in self._items("insertion", last):
            return item
        raise KeyError("the cache is empty")

    def _items(self, order: Order | None, reverse: bool) -> Iterator[tuple[Key, Any]]:
        return ((key, value) for _, key, value in self._sized(order, reverse))

    def _sized(self, order: Order | None, reverse: bool) -> Iterator[tuple[int, Key, Any]]:
        for cursor, key in self._walk(order, reverse):
            value = _structs.ValuePointer()
            try:
                if check(lib.hutch_cursor_value(cursor, byref(value))) == Status.NOT_FOUND:
                    continue
                data, extended = parts(value)
                item = len(data), key, self._forms.decode(data, extended)
            except Unreadable:
                continue
            finally:
                if value:
                    lib.hutch_value_release(value)
            yield item

    def _all_keys(self, order: int | None, wanted: int, most: int | None = None) -> list[Any]:
        """See the accelerator's."""
        return list(islice(self._collected(order, wanted), most))

    def _collected(self, order: int | None, wanted: int) -> Iterator[Any]:
        info = _structs.EntryInfo()
        for cursor, key in self._steps(order):
            if not wanted:
                yield key
                continue
            if wanted == SIZES:
                if check(lib.hutch_cursor_info(cursor, byref(info))) != Status.NOT_FOUND:
                    yield key, info.size
                continue
            value = _structs.ValuePointer()
            try:
                if check(lib.hutch_cursor_value(cursor, byref(value))) == Status.NOT_FOUND:
                    continue
                pair = key, extended_of(value)
            finally:
                if value:
                    lib.hutch_value_release(value)
            yield pair

    def _placed_keys(self, form: bytes, offset: int) -> tuple[list[Any], list[int]]:
        """See the accelerator's."""
        end = offset + 8
        placed = [
            (int.from_bytes(extended[offset:end], sys.byteorder), key)
            for key, extended in self._all_keys(None, EXTENDED)
            if len(extended) >= end and extended.startswith(form)
        ]
        placed.sort(key=itemgetter(0))
        return [key for _, key in placed], [number for number, _ in placed]

    def _walk(
        self, order: Order | None = None, reverse: bool = False
    ) -> Iterator[tuple[Any, Key]]:
        return self._steps(number_of(order, reverse))

    def _steps(self, number: int | None) -> Iterator[tuple[Any, Key]]:
        cursor = _structs.CursorPointer()
        release = lib.hutch_cursor_release
        try:
            if number is None:
                check(lib.hutch_cursor_create(self._pointer, byref(cursor)))
            else:
                create = lib.hutch_cursor_create_ordered
                check(create(self._pointer, number, byref(cursor)))
            name = ctypes.c_void_p()
            size = ctypes.c_size_t()
            while True:
                status = lib.hutch_cursor_next(cursor, byref(name), byref(size))
                if check(status) == Status.NOT_FOUND:
                    return
                yield cursor, key_from_bytes(bytes_at(name, size.value))
        finally:
            if cursor:
                release(cursor)
