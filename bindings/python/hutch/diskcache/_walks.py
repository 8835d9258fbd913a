"""Walks over the entries: in the order of insertion, and in that of the keys."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from ._base import has_expired
from ._constants import Timeout
from ._ends import AllPlaced
from ._entries import shaped
from ._keys import Fields, HutchKey, fields, is_long, order
from ._lock import Holding
from ._queues import Queues
from ._record import Record
from ._store import Store


_DENSE = 4
_FEW = 64
"""A look at so many entries takes as long as one for the first of them."""


class Walks(Queues):
    """The calls that iterate."""

    def __iter__(self) -> Iterator[Any]:
        """The keys in the order in which they were first stored, as they are now.

        A value that is replaced keeps its place. Takes memory for all keys.
        """
        return self._own_keys(self._from_end(False))

    def __reversed__(self) -> Iterator[Any]:
        """Like iteration, the last first."""
        return self._own_keys(self._from_end(True))

    def iterkeys(self, reverse: bool = False) -> Iterator[Any]:
        """The keys in their own order: numbers, text, bytes. Takes memory for all keys."""
        store = self._open()
        bounds = store.state.bounds(None)
        if bounds is not None and not store.state.others:
            # All keys are numbers of one queue, most likely a Deque's: no scan is needed.
            low, high = bounds
            if high - low < _DENSE * len(store.entries):
                numbers = range(high, low - 1, -1) if reverse else range(low, high + 1)
                yield from self._own_keys(each for each in numbers if each in store.entries)
                return
        for key, raw in self._sorted(store, reverse):
            yield self._disk.get(key, raw)

    def _sorted(self, store: Store, reverse: bool) -> Iterator[Fields]:
        """The stored forms of all keys, in their order. Until it is asked for a second one, it looks
        for the first one alone, if that is known: programs call next(cache.iterkeys())."""
        outermost = store.outermost[reverse]
        is_known, first, newest = False, None, -1
        with suppress(Timeout), Holding(store, 0):
            # With the lock: no other process has a place for an entry that is not stored yet.
            newest = store.state.newest
            first, is_known = outermost.first(store)
        if not is_known:
            found = _in_order(store, store.keys(), reverse)
            if newest >= 0:
                with suppress(Timeout), Holding(store, 0):
                    outermost.keep(found, newest)
            yield from found
        elif first is not None:
            yield first
            names, places = store.placed()
            # Not those that were stored since the beginning.
            found = _in_order(store, names[: bisect_right(places, newest)], reverse)
            if first in found:
                del found[: found.index(first) + 1]
            yield from found

    def _own_keys(self, names: Iterable[HutchKey]) -> Iterator[Any]:
        is_plain = self._disk._returns_plain_keys()
        store = self._open()
        for name in names:
            if is_plain and type(name) is not bytes:
                yield name
                continue
            if not is_long(name):
                yield self._disk.get(*fields(name))
                continue
            record = store.find(name)
            if record is not None:
                yield self._own_key(name, record)

    def _from_end(self, reverse: bool) -> Iterable[HutchKey]:
        """The keys of hutch in the order of insertion. Until it is asked for a second one, it looks
        for that at the end alone: programs call next(iter(cache))."""
        store = self._open()
        newest = store.state.newest
        found = None
        placed: list[AllPlaced] = []
        if len(store.entries) > _FEW:
            with suppress(Timeout), Holding(store, 0):  # A reader waits for no writer.
                found = store.ends.end(store, reverse, placed)
        if found is None or placed:
            names, _ = placed[-1] if placed else store.placed()
            return reversed(names) if reverse else names
        return self._after(*found, newest, reverse)

    def _after(
        self, name: HutchKey, record: Record, newest: int, reverse: bool
    ) -> Iterator[HutchKey]:
        yield name
        names, places = self._open().placed()
        if reverse:
            yield from reversed(names[: bisect_left(places, record.place)])
        else:
            # Not those that were stored since the beginning.
            start, end = bisect_right(places, record.place), bisect_right(places, newest)
            yield from names[start:end]

    def peekitem(
        self,
        last: bool = True,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """The key and value that were stored last, or first. KeyError: there is none."""
        with self._transact(retry) as store:
            name, key, value, record = self._end_item(store, last)
            return shaped((key, value), record, expire_time, tag)

    def _popitem(self, last: bool) -> tuple[Any, Any]:
        """Like peekitem, and the entry is removed. Index.popitem."""
        with self._transact(retry=True) as store:
            name, key, value, record = self._end_item(store, last)
            self._drop(store, name, record)
            return key, value

    def _end_item(self, store: Store, last: bool) -> tuple[HutchKey, Any, Any, Record]:
        """The entry that was stored last, or first: hutch's key, key, value and record. Entries
        before it that have expired, or whose files are gone, are removed. Needs the lock."""
        failed = None
        while True:
            found = store.ends.end(store, last)
            if found is None:
                raise KeyError("the cache is empty")
            name, record = found
            if has_expired(record):
                self._drop(store, name, record)
                continue
            key = self._own_key(name, record)
            try:
                return name, key, self._fetch(store, name, record), record
            except OSError:
                if failed == name:
                    self._drop(store, name, record)
                failed = name


def _in_order(store: Store, names: list[HutchKey], reverse: bool) -> list[Fields]:
    """The stored forms of keys, in their order."""
    numbers: list[Any] = []
    texts: list[Any] = []
    others: list[Fields] = []
    for name in names:
        if type(name) is bytes:
            others.extend(store.fields_of(name))
        elif type(name) is str:
            texts.append(name)
        else:
            numbers.append(name)
    # Text in the order of its UTF-8 is in the order of its characters.
    numbers.sort()
    texts.sort()
    others.sort(key=order)
    found = [(key, True) for key in (*numbers, *texts)] + others
    if others and type(others[0][0]) is not bytes:
        # Keys of a Disk of the program's own, which come between these.
        found.sort(key=order)
    if reverse:
        found.reverse()
    return found
