"""Walks over the entries: in the order of insertion, and in that of the keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ._entries import shaped
from ._keys import Fields, HutchKey, fields, is_long, long_fields, order
from ._queues import Queues
from ._record import Record
from ._store import Store


_DENSE = 4
_CLOCKS_APART = 10**9
"""The largest difference of hutch's clock, which is coarse, and that of places, in nanoseconds."""


class Walks(Queues):
    """The calls that iterate."""

    def __iter__(self) -> Iterator[Any]:
        """The keys in the order in which they were first stored, as they are now.

        A value that is replaced keeps its place. Takes memory for all keys.
        """
        return self._own_keys(self._places(False))

    def __reversed__(self) -> Iterator[Any]:
        """Like iteration, the last first."""
        return self._own_keys(self._places(True))

    def iterkeys(self, reverse: bool = False) -> Iterator[Any]:
        """The keys in their own order: numbers, text, bytes. Takes memory for all keys."""
        store = self._open()
        bounds = store.state.bounds(None)
        if bounds is not None and not store.state.others:
            # All keys are numbers of one queue, most likely a Deque's: no scan is needed.
            low, high = bounds
            if high - low < _DENSE * len(store.entries):
                for number in range(high, low - 1, -1) if reverse else range(low, high + 1):
                    if number in store.entries:
                        yield number
                return
        for key, raw in sorted(self._all_fields(store), key=order, reverse=reverse):
            yield self._disk.get(key, raw)

    def _all_fields(self, store: Store) -> Iterator[Fields]:
        """The stored forms of all keys."""
        for name in list(store.entries.keys()):
            if is_long(name):  # type: ignore[arg-type]
                record = store.find(name)  # type: ignore[arg-type]
                if record is not None:
                    yield long_fields(record.long_key)
            elif _is_ours(name):
                yield fields(name)  # type: ignore[arg-type]

    def _own_keys(self, names: list[HutchKey]) -> Iterator[Any]:
        store = self._open()
        for name in names:
            record = store.find(name) if is_long(name) else None
            if record is not None or not is_long(name):
                yield self._own_key(name, record)

    def _places(self, reverse: bool) -> list[HutchKey]:
        """The keys of hutch in the order of insertion."""
        store = self._open()
        if not store.state.moved:
            names: Any = list(store.entries.disk.keys("insertion", reverse=reverse))
            return [name for name in names if _is_ours(name)]
        placed = []
        for name, found in store.entries.disk.items("insertion"):
            record = Record.decode(*found)
            if record is not None:
                placed.append((record.place, name))
        placed.sort(key=_place, reverse=reverse)
        return [name for _, name in placed]  # type: ignore[misc]

    def peekitem(
        self,
        last: bool = True,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """The key and value that were stored last, or first. KeyError: there is none."""
        failed = None
        with self._transact(retry) as store:
            while True:
                name = self._last(store) if last else self._first(store)
                if name is None:
                    raise KeyError("the cache is empty")
                record = self._find(store, name)
                if record is None:
                    self._drop(store, name, store.find(name))
                    continue
                key = self._own_key(name, record)
                try:
                    value = self._fetch(store, name, record)
                except OSError:
                    if failed == name:
                        self._drop(store, name, record)
                    failed = name
                    continue
                return shaped((key, value), record, expire_time, tag)

    def _last(self, store: Store) -> HutchKey | None:
        """The key of the greatest place.

        The walk is in the order of the last write, which is never before a place: once a write
        is before the greatest place seen so far, no later place can be above it.
        """
        best: HutchKey | None = None
        place = -1
        moved = store.state.moved
        for name in store.entries.disk.keys("insertion", reverse=True):
            record = store.find(name)  # type: ignore[arg-type]
            if record is None:
                continue
            info = store.entries.info(name)
            if info is not None and info.created * 1e9 < place - _CLOCKS_APART:
                break
            if record.place > place:
                best, place = name, record.place  # type: ignore[assignment]
            if not moved:
                break
        return best

    def _first(self, store: Store) -> HutchKey | None:
        """The key of the least place."""
        if store.state.moved:
            names = self._places(False)
            return names[0] if names else None
        for name in store.entries.disk.keys("insertion"):
            if _is_ours(name):
                return name  # type: ignore[return-value]
        return None


def _place(placed: tuple[int, Any]) -> int:
    return placed[0]


def _is_ours(name: Any) -> bool:
    """Whether a key of hutch is one of this module."""
    if is_long(name):
        return True
    try:
        fields(name)
    except ValueError:
        return False
    return True
