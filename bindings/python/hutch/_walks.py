"""The entries one after the other, in no order or by age."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import byref
from typing import Any, Literal

from . import _structs
from ._codec import Key, key_from_bytes
from ._errors import Status, check
from ._library import lib
from ._values import decode

Order = Literal["insertion", "access"]

_ORDERS = {"insertion": 1, "access": 2}
_DESCENDING = 256


class Walks:
    """What iterates."""

    _pointer: Any

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

    def peekitem(self, last: bool = True) -> tuple[Key, Any]:
        """The key and value that were written last, or first. KeyError: there is none.

        On the disk view this is a step; elsewhere it looks through all entries.
        """
        for item in self.items("insertion", reverse=last):
            return item
        raise KeyError("the cache is empty")

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
