"""What is done to all entries at once, and what is told of them."""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Any, Literal

from . import _structs
from ._errors import check
from ._library import lib
from ._options import NOTIFICATIONS, choice
from ._records import CacheStats, CheckReport


class Upkeep:
    """What counts, checks and flushes."""

    _pointer: Any

    def check(self, *, quick: bool = False) -> CheckReport:
        """Look through all that is on disk, and repair. True if something was wrong.

        quick: read no values, and leave SQLite's own check out. Others may read
        and write meanwhile. UnsupportedError: there is no disk tier here.
        """
        report = _structs.CheckReport()
        check(lib.hutch_check(self._pointer, 1 if quick else 0, byref(report)))
        return CheckReport._of(report)

    def notify(self, notification: Literal["memory_warning", "entered_background"]) -> None:
        """Tell the listener of pressure, and shrink memory as the cache's options say.

        What the disk tier has stays there; what memory alone has is gone.
        """
        number = choice("notification", notification, NOTIFICATIONS)
        check(lib.hutch_notify(self._pointer, number))

    def __len__(self) -> int:
        """How many entries there are; those that expired less than a second ago may count."""
        count = ctypes.c_uint64()
        check(lib.hutch_count(self._pointer, byref(count)))
        return count.value

    def cost(self) -> int:
        """What the entries are charged, in bytes; of a cache, the sum of its tiers."""
        cost = ctypes.c_uint64()
        check(lib.hutch_cost(self._pointer, byref(cost)))
        return cost.value

    def volume(self) -> int:
        """What the entries take up on disk, in bytes; 0 for a cache in memory."""
        return self.stats().disk.cost

    def stats(self) -> CacheStats:
        """What the tiers did since the cache was opened."""
        stats = _structs.CacheStats()
        check(lib.hutch_stats(self._pointer, byref(stats)))
        return CacheStats._of(stats)

    def flush(self) -> None:
        """Wait until everything that was put is in the manifest, access times too."""
        check(lib.hutch_flush(self._pointer))
