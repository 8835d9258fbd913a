"""What a trim removes, from Python's units to hutch_trim_spec."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Optional, Union

from . import _structs
from ._callbacks import callback, refuse_in_subinterpreter
from ._errors import check
from ._library import lib
from ._units import Seconds, Size, int64, nanoseconds, size, uint64

Amount = Union[Size, Seconds]
Progress = Callable[[int, Optional[int]], Any]
"""Called with the entries removed so far and in all (None: not known); True stops the trim."""

KINDS = {
    "expired": 1,
    "to_cost": 2,
    "to_count": 3,
    "largest_first": 4,
    "least_recent": 5,
    "least_frequent": 6,
    "written_before": 7,
    "older_than": 8,
    "idle_for": 9,
    "larger_than": 10,
    "accessed_before": 11,
}


def trim(pointer: Any, kind: str, amount: Any, progress: Progress | None) -> int:
    """Entries.trim, of the handle behind the pointer."""
    if kind not in KINDS:
        raise ValueError(f"kind is one of {', '.join(KINDS)}, not {kind!r}")
    if (amount is None) != (kind == "expired"):
        raise TypeError(f"a trim {kind!r} takes {'no' if kind == 'expired' else 'an'} amount")
    spec = _structs.TrimSpec(kind=KINDS[kind])
    if kind in ("written_before", "accessed_before"):
        if not isinstance(amount, (int, float)):
            raise TypeError(f"a Unix time is a number of seconds, not a {type(amount).__name__}")
        spec.time = int64(int(amount * 10**9))
    elif kind in ("older_than", "idle_for"):
        spec.time = 0 if amount == 0 else nanoseconds(amount)
    elif amount is not None:
        spec.amount = uint64(amount) if kind == "to_count" else size(amount)

    raised: list[BaseException] = []

    @callback
    def report(_: int, removed: int, total: int) -> int:
        # An exception cannot pass through C: it waits for the end of the call.
        try:
            return 1 if progress is not None and progress(removed, total or None) else 0
        except BaseException as error:
            raised.append(error)
            return 1

    if progress is not None:
        refuse_in_subinterpreter()
        spec.progress = _structs.ProgressFunction(report)
    removed = ctypes.c_uint64()
    status = lib.hutch_trim(pointer, ctypes.byref(spec), ctypes.byref(removed))
    if raised:
        raise raised[0]
    check(status)
    return removed.value


class Trims:
    """The calls that remove entries of a kind."""

    _pointer: Any

    def trim(
        self, kind: str, amount: Amount | None = None, *, progress: Progress | None = None
    ) -> int:
        """Remove entries of a kind, or down to a size, from each tier.

        Returns the sum over the tiers: a key that memory and disk both had
        counts twice. A view (cache.memory, cache.disk) counts its own tier's.

        kind and amount:
            "expired": expired entries; counts are exact afterwards.
            "to_cost", "to_count": to this many bytes or entries, in the order of
                the tier's policy. 0 leaves none.
            "largest_first", "least_recent", "least_frequent": to this many bytes, or to a size
                such as "64 MiB".
            "written_before", "accessed_before": a Unix time in seconds. "older_than", "idle_for":
                seconds, or a timedelta, since the write, or since the last access.
            "larger_than": entries with values of more bytes than this.
        progress: called now and then with the entries removed so far and in all
            (None: not known); a true result stops the trim.
        """
        return trim(self._pointer, kind, amount, progress)

    def expire(self) -> int:
        """Remove expired entries from each tier; no read returns them in any case.

        Returns the sum over the tiers, as trim() does.
        """
        return self.trim("expired")
