"""Queues in a cache: push, pull and peek.

The entries of a queue have the keys 1 to 999,999,999,999,998, or with a prefix "prefix-" and 15
digits. The state has the bounds of a queue's keys. A number within the bounds may be missing,
since entries expire, are culled and are deleted. A call therefore finds an end of a queue by
steps from its bound, and after many steps without success by a scan of all keys.
"""

from __future__ import annotations

from typing import Any

from ._base import has_expired
from ._entries import Entries, end_of, shaped
from ._keys import QUEUE_END, QUEUE_START, hutch_key, queue_key, queue_place
from ._record import Record
from ._store import Store

_STEPS = 1000
_SIDES = ("front", "back")


class Queues(Entries):
    """The calls of queues."""

    def push(
        self,
        value: Any,
        prefix: str | None = None,
        side: str = "back",
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> Any:
        """Store value at an end of a queue; returns its key. Further parameters: those of set."""
        _check(prefix, side)
        expires = end_of(expire)
        size, mode, filename, stored = self._disk.store(value, read)
        is_written = False
        try:
            with self._transact(retry) as store:
                low, high, _ = self._end_of(store, prefix, side, False)
                if low > high:
                    number = low = high = QUEUE_START
                elif side == "back":
                    number = high = high + 1
                else:
                    number = low = low - 1
                if not 0 < number < QUEUE_END:
                    raise OverflowError(f"the queue has no key at its {side} any more")
                # Wider before the entry is there: a kill in between loses no entry.
                store.state.set_bounds(prefix, low, high)
                key = queue_key(prefix, number)
                name = hutch_key(key, True)
                place = store.ends.give(store)
                record = Record(mode, stored, place, expires, tag, filename, size)
                if not self.cull_limit or not has_expired(record):
                    self._write(store, name, record, None)  # It is beyond the bounds.
                    is_written = True
                    self._count_access(store, name, True)
                    self._cull_some(store)
                return key
        finally:
            if not is_written and filename is not None:
                self._disk.remove(filename)

    def pull(
        self,
        prefix: str | None = None,
        default: Any = (None, None),
        side: str = "front",
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Remove the entry at an end of a queue; returns its key and value, or default."""
        return self._end(prefix, default, side, expire_time, tag, retry, True)

    def peek(
        self,
        prefix: str | None = None,
        default: Any = (None, None),
        side: str = "front",
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """The key and value of the entry at an end of a queue, or default."""
        return self._end(prefix, default, side, expire_time, tag, retry, False)

    def _end(
        self,
        prefix: str | None,
        default: Any,
        side: str,
        expire_time: bool,
        tag: bool,
        retry: bool,
        remove: bool,
    ) -> Any:
        _check(prefix, side)
        with self._transact(retry) as store:
            failed = None
            while True:
                low, high, record = self._end_of(store, prefix, side, True)
                if record is None:
                    store.state.set_bounds(prefix, low, high)
                    return shaped(default, None, expire_time, tag)
                key = queue_key(prefix, low if side == "front" else high)
                name = hutch_key(key, True)
                try:
                    value = self._fetch(store, name, record)
                except OSError:
                    # Its file is gone: twice, and so is the entry.
                    if remove or failed == name:
                        self._drop(store, name, record)
                    failed = name
                    continue
                if remove:
                    self._drop(store, name, record)
                    low, high = (low + 1, high) if side == "front" else (low, high - 1)
                store.state.set_bounds(prefix, low, high)
                return shaped((key, value), record, expire_time, tag)

    # ------------------------------------------------------------------ ends

    def _end_of(
        self, store: Store, prefix: str | None, side: str, removes: bool
    ) -> tuple[int, int, Record | None]:
        """The bounds of a queue, of which the one on this side is the number of an entry, and that
        entry; in an empty queue the first is greater, and there is no entry.

        removes: entries beyond it that have expired are removed; else it may have expired itself.
        """
        bounds = store.state.bounds(prefix)
        is_front = side == "front"
        if bounds is None:
            return self._looked_for(store, prefix, is_front, removes)
        low, high = bounds
        way = (low, high, 1) if is_front else (high, low, -1)
        number, record = self._step(store, prefix, *way, removes)
        now = (number, high) if is_front else (low, number)
        if now != bounds:
            # Usually an entry has expired: it must not count any longer.
            store.entries.expire()
        if record is None and low <= number <= high:
            return self._looked_for(store, prefix, is_front, removes)
        return (*now, record) if now[0] <= now[1] else (QUEUE_START, QUEUE_START - 1, None)

    def _step(
        self, store: Store, prefix: str | None, first: int, last: int, step: int, removes: bool
    ) -> tuple[int, Record | None]:
        """The first number with an entry, and that; or without one the number beyond the last, or
        one within: too many are missing."""
        number, end = first, first + _STEPS * step
        while (last - number) * step >= 0 and number != end:
            record = self._numbered(store, prefix, number, removes)
            if record is not None:
                return number, record
            number += step
        return number, None

    def _looked_for(
        self, store: Store, prefix: str | None, is_front: bool, removes: bool
    ) -> tuple[int, int, Record | None]:
        """As _end_of, by a look at all keys."""
        places = map(queue_place, store.keys())
        numbers = [place[1] for place in places if place is not None and place[0] == prefix]
        numbers.sort(reverse=is_front)
        while numbers:
            record = self._numbered(store, prefix, numbers[-1], removes)
            if record is not None:
                low, high = sorted((numbers[0], numbers[-1]))
                return low, high, record
            numbers.pop()
        return QUEUE_START, QUEUE_START - 1, None

    def _numbered(
        self, store: Store, prefix: str | None, number: int, removes: bool
    ) -> Record | None:
        """The entry of a number. removes: if it has expired, it is removed, and there is none."""
        name = hutch_key(queue_key(prefix, number), True)
        record = store.find(name)
        if removes and record is not None and has_expired(record):
            self._drop(store, name, record)
            return None
        return record


def _check(prefix: object, side: str) -> None:
    if not (prefix is None or isinstance(prefix, str)):
        raise TypeError(f"prefix is a str or None, not {prefix!r}")
    if side not in _SIDES:
        raise KeyError(f"side is 'front' or 'back', not {side!r}")
