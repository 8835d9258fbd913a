"""The first and the last keys in their own order, for programs that take them one by one.

hutch has no order of keys: to find the first one, all are looked at and sorted. The first ones are
kept here for the calls that follow. Those of them that are there are still the first ones, as long as
no other key was added; and each entry that is added has a place above all others, so it is known
whether any was. Those that this process has added last are in Ends. The end of a failed
transaction, which brings entries back, gives a place too.
"""

from __future__ import annotations

from bisect import insort
from itertools import chain
from typing import TYPE_CHECKING, Any

from ._keys import Fields, hutch_key, order

if TYPE_CHECKING:
    from ._store import Store

_KEPT = 32_768

Ordered = tuple[int, Any, bool]


class Outermost:
    """The keys at one end, and beyond them none. Protected by the writer lock."""

    def __init__(self, reverse: bool) -> None:
        self._at = -1 if reverse else 0
        self.forget()

    def forget(self) -> None:
        """Know nothing."""
        # The greatest place that was given when they were the outermost ones. -1 comes first, and
        # another number last: a signal may end a call between any two steps.
        self._newest = -1
        self._keys: list[Ordered] = []
        self._is_all = False

    def keep(self, found: list[Fields], newest: int) -> None:
        """These are all keys, the outermost first, but for those with greater places than this."""
        self.forget()
        keys = sorted(map(order, found[:_KEPT]))
        # Keys of a Disk of the program's own, and NaN, have no order here.
        if all(kind and key == key for kind, key, _ in keys):
            self._keys, self._is_all = keys, len(found) <= _KEPT
            self._newest = newest

    def first(self, store: Store) -> tuple[Fields | None, bool]:
        """The outermost key of all, None if there is none; and whether it is known."""
        if not self._add(store):
            self.forget()
        while self._keys:
            _, key, raw = self._keys[self._at]
            if hutch_key(key, raw) in store.entries:
                return (key, raw), True
            self._keys.pop(self._at)
        return None, self._is_all

    def _add(self, store: Store) -> bool:
        """Have the keys that were added since. False: they are not known."""
        newest = store.state.newest
        if newest == self._newest:
            return True
        added = store.ends.since(store, self._newest) if self._newest >= 0 else None
        if added is None or len(self._keys) + len(added) > 2 * _KEPT:
            return False
        for own in chain.from_iterable(store.fields_of(name) for name in added):
            key = order(own)
            if not key[0] or key[1] != key[1]:
                return False
            if not self._is_all and (not self._keys or self._is_beyond(key)):
                continue
            insort(self._keys, key)
        self._newest = newest
        return True

    def _is_beyond(self, key: Ordered) -> bool:
        """Whether keys that are not here may come before this one."""
        return key < self._keys[0] if self._at else key > self._keys[-1]
