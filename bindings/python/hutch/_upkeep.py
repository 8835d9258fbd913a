"""Calls that concern all entries at once."""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import TYPE_CHECKING, Any, Literal

from . import _structs
from ._errors import check
from ._library import lib
from ._options import NOTIFICATIONS
from ._process import hint
from ._settings import choice

if TYPE_CHECKING:
    from ._records import CacheStats, CheckReport, CopyReport
else:
    hint(globals(), "CacheStats", "CheckReport", "CopyReport")


class Upkeep:
    """The calls that count, check and flush."""

    _pointer: Any

    def check(self, *, quick: bool = False) -> CheckReport:
        """Check and repair everything on disk. True if something was wrong.

        quick: read no values, and omit SQLite's own check. Other threads may read
        and write meanwhile. UnsupportedError: there is no disk tier here.
        """
        report = _structs.CheckReport()
        check(lib.hutch_check(self._pointer, 1 if quick else 0, byref(report)))
        from ._records import CheckReport

        return CheckReport._of(report)

    def copy_to(self, target: Upkeep) -> CopyReport:
        """Copy all live entries into another cache, of any storage, with their records.

        An entry keeps its times, cost, tag and extended data, and the bytes of its value:
        open both caches with the same serializer. A key that the target has keeps its
        entry. Both caches may be used meanwhile.
        """
        if not isinstance(target, Upkeep):
            raise TypeError(f"target is a Cache, not {type(target).__name__}")
        report = _structs.CopyReport()
        check(lib.hutch_copy(self._pointer, target._pointer, byref(report)))
        from ._records import CopyReport

        return CopyReport._of(report)

    def notify(self, notification: Literal["memory_warning", "entered_background"]) -> None:
        """Tell the listener of memory pressure, and shrink memory as the cache's options say.

        Entries on disk stay there. Entries in memory only are lost, except those of the write
        policy "on_eviction", which are written to disk.
        """
        number = choice("notification", notification, NOTIFICATIONS)
        check(lib.hutch_notify(self._pointer, number))

    def __len__(self) -> int:
        """The number of entries; it may count entries that expired less than a second ago."""
        count = ctypes.c_uint64()
        check(lib.hutch_count(self._pointer, byref(count)))
        return count.value

    def count(self) -> int:
        """The number of entries, as len tells it."""
        return len(self)

    def cost(self) -> int:
        """The bytes charged for the entries; for a cache, the sum of its tiers."""
        cost = ctypes.c_uint64()
        check(lib.hutch_cost(self._pointer, byref(cost)))
        return cost.value

    def value_bytes(self) -> int:
        """The sum of the sizes of the values, without what keeping them takes; a walk over all."""
        total = ctypes.c_uint64()
        check(lib.hutch_value_bytes(self._pointer, byref(total)))
        return total.value

    def volume(self) -> int:
        """The bytes that the entries occupy on disk; 0 for a cache in memory."""
        return self.stats().disk.cost

    def stats(self) -> CacheStats:
        """What the tiers have done since the cache was opened."""
        stats = _structs.CacheStats()
        check(lib.hutch_stats(self._pointer, byref(stats)))
        from ._records import CacheStats

        return CacheStats._of(stats)

    def flush(self) -> None:
        """Wait until everything that was put is in the manifest, access times too."""
        check(lib.hutch_flush(self._pointer))
