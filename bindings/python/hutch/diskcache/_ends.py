"""The ends of the order of insertion: the entries with the least and with the greatest places.

hutch knows the order of the last writes. It is that of the places until an entry is written again.
An entry says whether it had the greatest place of all when it was last written. If it had, those
written before it have lesser places, so the last entry is that one or was written after it. The
state has the least place of all entries that were written again: those with lesser places are in
order. It also has the greatest place that there was before any was: an entry that had the greatest
place of all, and has a lesser place than that one, was written before every entry that was written
again. If no such entry is met soon, the places of all have to be looked at. What was found is kept
here, for the calls that follow, and so are the entries that this process has added last. Places
never come again and are never changed, and a new one is above all others. So an entry that is kept
here is still in its order if it is there and has this place, no matter what other processes have
written; only the last entry is not known once another process has given a place.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from ._keys import HutchKey
from ._record import Record, is_moved, place_of

if TYPE_CHECKING:
    from ._store import Store

_FIRST_STEPS, _MORE_STEPS = 16, 4
_MOST_AHEAD, _MOST_BACK = 256, 1024
_FASTER = 5
"""A step of a walk from an end takes as long as a look at so many entries of all."""
_KEPT = 32_768
"""Of each end so many entries are kept at most."""
_ADDED = 1024
"""Of the last ones, before any call has asked for them."""

Placed = tuple[int, HutchKey]
Walked = tuple[int, HutchKey, bool]
AllPlaced = tuple["list[HutchKey]", "list[int]"]


class Ends:
    """What a process knows of both ends. Protected by the writer lock."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Know nothing: an entry has got an earlier place again."""
        # Each has the entry of its end as its last element.
        self._first: list[Placed] = []
        self._last: list[Placed] = []
        # The greatest place that was given when _last had the last entries; -1: they are not known.
        self._newest = -1
        self._ahead = self._back = _FIRST_STEPS  # The next walk from either end.
        self._most = min(_ADDED, _KEPT)

    def give(self, store: Store) -> int:
        """A place for a new entry."""
        before = store.state.newest
        place = store.state.next_place()
        if self._newest != before:
            self._last = []
        self._newest = place
        return place

    def add(self, place: int, key: HutchKey) -> None:
        """An entry was stored."""
        if place != self._newest:
            return
        last = self._last
        if not last or last[-1][0] != place:
            last.append((place, key))
            if len(last) > 2 * self._most:
                del last[: self._most]

    def since(self, store: Store, place: int) -> list[HutchKey] | None:
        """The keys of the entries with a greater place; None: they are not known. Some may be
        gone."""
        last = self._last
        if self._newest != store.state.newest or not last or last[0][0] > place:
            return None
        added = takewhile(lambda each: each[0] > place, reversed(last))
        return [key for _, key in added]

    def end(
        self, store: Store, is_last: bool, placed: list[AllPlaced] | None = None
    ) -> tuple[HutchKey, Record] | None:
        """The entry at an end, which may have expired; None: there is none. Entries before it that
        cannot be read are removed.

        placed: receives what Store.placed returned, if all entries had to be looked at.
        """
        if is_last:
            self._most = _KEPT
            if self._newest != store.state.newest:
                self._newest = store.state.newest
                self._last = []
        entries = self._last if is_last else self._first
        while True:
            while entries:
                place, key = entries[-1]
                record = store.find(key)
                if record is not None and record.place == place:
                    return key, record
                if record is None and key in store.entries:
                    store.drop(key, None)  # It cannot be read, and would be found again for ever.
                entries.pop()
            entries.extend(self._look(store, is_last, placed))
            if not entries:
                return None

    def _look(
        self, store: Store, is_last: bool, placed: list[AllPlaced] | None
    ) -> list[Placed]:
        """The entries at an end, in the order in which they are kept."""
        found = self._look_back(store) if is_last else self._look_ahead(store)
        if found is not None:
            return found
        keys, places = store.placed()
        if placed is not None:
            placed.append((keys, places))
        if is_last:
            return list(zip(places[-_KEPT:], keys[-_KEPT:]))
        found = list(zip(places[:_KEPT], keys))
        found.reverse()
        return found

    def _look_ahead(self, store: Store) -> list[Placed] | None:
        """The first entries; None: all have to be looked at."""
        moved = store.state.moved
        walked, is_all = _walk(store, False, self._ahead)
        self._ahead = _MOST_AHEAD
        found = [(place, key) for place, key, _ in walked if is_all or not 0 < moved <= place]
        if not is_all and 2 * len(found) < len(walked):
            found = self._with_moved(store, walked) or found
        found.sort(reverse=True)
        return found if found or is_all else None

    def _with_moved(self, store: Store, walked: list[Walked]) -> list[Placed]:
        """The first entries, where some are of those that were written again; none: all have to be
        looked at. walked: the first ones in the order of the last writes."""
        # Half as long as the walk from the other end, which has just been made.
        self._back = max(self._back, len(walked) // 2)
        back = self._walk_back(store, store.state.before_moves)
        if back is None:
            return []
        moved, is_all = back
        # Between the two walks there are greater places only.
        known = [place for place, _, is_moved in walked if not is_moved]
        if not known and not is_all:
            return []
        most = store.state.newest if is_all else max(known)
        found = {place: key for place, key, _ in [*walked, *moved]}
        return [(place, key) for place, key in found.items() if place <= most]

    def _look_back(self, store: Store) -> list[Placed] | None:
        """The last entries; None: all have to be looked at."""
        back = self._walk_back(store, None)
        if back is None:
            return None
        found, is_all = back
        # Those that were not met have lesser places than each of these.
        stayed = [place for place, _, is_moved in found if not is_moved]
        # The next walk meets those that are moved once more.
        more = _MORE_STEPS * (len(found) - len(stayed))
        self._back = min(more + _FIRST_STEPS, _most_back(store))
        least = 0 if is_all else min(stayed)
        return sorted((place, key) for place, key, _ in found if place >= least)

    def _walk_back(self, store: Store, below: int | None) -> tuple[list[Walked], bool] | None:
        """The last entries in the order of the last writes, back to one that had the greatest
        place of all and has a place below this, and whether they are all. None: it is far."""
        steps, most = self._back, _most_back(store)
        while steps <= most:
            found, is_all = _walk(store, True, steps)
            for place, _, is_moved in found:
                if not is_moved and (below is None or place < below):
                    return found, is_all
            if is_all:
                return found, True
            steps *= _MORE_STEPS
        self._back = _FIRST_STEPS
        return None


def _most_back(store: Store) -> int:
    return min(max(_FIRST_STEPS, len(store.entries) // _FASTER), _MOST_BACK)


def _walk(store: Store, is_last: bool, steps: int) -> tuple[list[Walked], bool]:
    """The entries from an end on, as place, key and whether they are moved, and whether these are
    all that there are. Entries of other programs are not among them."""
    walked = store.first("insertion", is_last, steps)
    found = []
    for key, extended in walked:
        place = place_of(extended)
        if place is not None:
            found.append((place, key, is_moved(extended)))
    return found, len(walked) < steps
