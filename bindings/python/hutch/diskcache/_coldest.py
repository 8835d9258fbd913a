"""What the policies evict that go by reads.

hutch has no index of its accesses: to find the entries that were not used for the longest time it
looks at all. Many of them are therefore kept for the evictions that follow. An entry that is not
among them was used later than they were; one of them that has been used since is passed over.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ._keys import HutchKey

if TYPE_CHECKING:
    from ._store import Store

_CANDIDATES = 100
"""Of so many entries that were not used for the longest time those with the fewest reads go."""

_LEAST_KEPT, _MOST_KEPT, _PART_KEPT = 1000, 32_768, 4


class Coldest:
    """The entries that a process knows to go next. Protected by the writer lock."""

    def __init__(self) -> None:
        # The next one is the last element.
        self._names: list[HutchKey] = []
        self._since = 0  # When they were looked for, in nanoseconds.

    def take(self, store: Store, most: int, by_number: bool) -> list[HutchKey]:
        """So many entries that are to go; fewer: there are no others.

        by_number: those with the fewest reads of the next hundred.
        """
        wanted = max(_CANDIDATES, most) if by_number else most
        found = self._next(store, wanted)
        if len(found) < min(most, len(store.entries)):
            self._look(store)
            found = self._next(store, wanted)
        if not by_number:
            return found
        chosen = sorted(found, key=lambda name: store.accesses.of(name)[::-1])[:most]
        going = set(chosen)
        self._names.extend(name for name in reversed(found) if name not in going)
        return chosen

    def _next(self, store: Store, wanted: int) -> list[HutchKey]:
        found: list[HutchKey] = []
        while self._names and len(found) < wanted:
            name = self._names.pop()
            if store.accesses.of(name)[0] <= self._since and name in store.entries:
                found.append(name)
        return found

    def _look(self, store: Store) -> None:
        self._since = time.time_ns()
        kept = min(max(_LEAST_KEPT, len(store.entries) // _PART_KEPT), _MOST_KEPT)
        # hutch knows the order of accesses to minutes.
        self._names = store.first_keys("access", kept)
        self._names.sort(key=lambda name: store.accesses.of(name)[0])
        self._names.reverse()
