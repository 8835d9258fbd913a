"""The calls of a cache: those on entries; its limits and options, queue and background work."""

from __future__ import annotations

from ctypes import byref
from typing import TYPE_CHECKING

from . import _opening, _structs
from ._async import AsyncEntries
from ._awaits import threaded
from ._entries import SlowEntries
from ._errors import check
from ._library import lib
from ._process import hint, late
from ._public import name_methods
from ._units import nanoseconds

if TYPE_CHECKING:
    from ._queues import Queue
    from ._records import CacheLimits, CacheOptions
    from ._types import Limits
    from ._units import Seconds
else:
    hint(globals(), "CacheLimits", "CacheOptions", "Limits", "Queue", "Seconds")


class Entries(SlowEntries, AsyncEntries):
    """Every call that works on entries: a base of Control and of TierView."""


class Control(Entries):
    """Every call of a cache."""

    def suspend(self) -> None:
        """Start no background work until resume; each suspend needs a resume of its own."""
        check(lib.hutch_suspend(self._pointer))

    def resume(self) -> None:
        """Continue after suspend. InvalidArgumentError: the cache is not suspended."""
        check(lib.hutch_resume(self._pointer))

    def maintain(self, seconds: Seconds | None = None) -> None:
        """Do the work that is due, on this thread, for at most about this long. None: all."""
        check(lib.hutch_maintain(self._pointer, 0 if seconds is None else nanoseconds(seconds)))

    def queue(self) -> Queue:
        """The queue on which the cache's awaited calls run; it also runs functions of yours.

        The close of the cache ends it, unless it is the one that the cache was opened with.
        """
        with late:
            from ._queues import Queue

        return Queue._of(self._pointer)

    def limits(self) -> CacheLimits:
        """The limits in force."""
        limits = _structs.CacheLimits()
        check(lib.hutch_limits(self._pointer, byref(limits)))
        from ._records import CacheLimits

        return CacheLimits._of(limits)

    def set_limits(self, *, memory: Limits | None = None, disk: Limits | None = None) -> None:
        """Change limits of an open cache. On return, entries above a new limit are evicted."""
        _opening.set_limits(self, {"memory": memory, "disk": disk})

    def options(self) -> CacheOptions:
        """The options in force, whatever has set them: this opening, the directory, a change."""
        options = _structs.Options()
        check(lib.hutch_get_options(self._pointer, byref(options)))
        from ._records import CacheOptions

        return CacheOptions._of(options)

    def set_options(
        self,
        *,
        policy: str | None = None,
        disk_policy: str | None = None,
        workers: int | None = None,
        on_memory_warning: str | None = None,
        on_background: str | None = None,
        low_water: int | None = None,
    ) -> None:
        """Change options of an open cache; None: as it is. See Cache for their meaning.

        With another policy, the entries in memory stay. UnsupportedError: workers, of a cache
        without threads.
        """
        chosen = {name: value for name, value in locals().items() if name != "self"}
        _opening.set_options(self, chosen)

    amaintain = threaded(maintain)
    aset_limits = threaded(set_limits)
    aset_options = threaded(set_options)


name_methods("Cache", *Control.__mro__)
