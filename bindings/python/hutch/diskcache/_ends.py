"""The ends of the order of insertion: the entries with the least and with the greatest places.

hutch knows the order of the last writes. It is that of the places until an entry is written again;
then the places of all entries have to be looked at. What was found is kept here, for the calls
that follow. Places never come again and are never changed, and a new one is above all others.
So an entry that is kept here is still in its order if it is there and has this place, no matter
what other processes have written; only the last entry is not known once another process has given
a place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._keys import HutchKey
from ._record import Record, place_of

if TYPE_CHECKING:
    from ._store import Store

_FIRST_STEPS, _MOST_STEPS = 16, 1024
_KEPT = 32_768
"""Of each end so many entries are kept at most."""

Placed = tuple[int, HutchKey]


class Ends:
    """What a process knows of both ends. Protected by the writer lock."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Know nothing: an entry has got an earlier place again."""
        # Each has the entry of its end as its last element.
        self._first: list[Placed] = []
        self._last: list[Placed] = []
        # The greatest place that was given when _last was complete; -1: _last is not known.
        self._newest = -1
        self._steps = _FIRST_STEPS

    def give(self, store: Store) -> int:
        """A place for a new entry."""
        before = store.state.newest
        place = store.state.next_place()
        if self._newest == before:
            self._newest = place
        return place

    def add(self, place: int, key: HutchKey) -> None:
        """An entry was stored."""
        if place != self._newest:
            return
        last = self._last
        if not last or last[-1][0] != place:
            last.append((place, key))
            if len(last) > 2 * _KEPT:
                del last[:_KEPT]

    def end(self, store: Store, is_last: bool) -> tuple[HutchKey, Record] | None:
        """The entry at an end, which may have expired; None: there is none."""
        if is_last and self._newest != store.state.newest:
            self._newest = store.state.newest
            self._last = []
        entries = self._last if is_last else self._first
        while True:
            while entries:
                place, key = entries[-1]
                record = store.find(key)
                if record is not None and record.place == place:
                    return key, record
                entries.pop()
            entries.extend(self._look(store, is_last))
            if not entries:
                return None

    def _look(self, store: Store, is_last: bool) -> list[Placed]:
        """The entries at an end, in the order in which they are kept."""
        moved = store.state.moved
        found: list[Placed] = []
        if is_last or not moved:
            steps, self._steps = self._steps, min(4 * self._steps, _MOST_STEPS)
            walked = store.first("insertion", is_last, steps)
            for key, extended in walked:
                place = place_of(extended)
                if place is None:
                    continue
                if place <= moved:
                    break
                found.append((place, key))
            # Entries of other programs may be all that was met.
            if found or (len(walked) < steps and not moved):
                found.reverse()
                return found
        keys, places = store.placed()
        found = list(zip(places[-_KEPT:], keys[-_KEPT:]) if is_last else zip(places[:_KEPT], keys))
        if not is_last:
            found.reverse()
        return found
