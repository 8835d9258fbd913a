"""Python's numbers as the library's: seconds as nanoseconds, and what ctypes would wrap around."""

from __future__ import annotations

import math
import operator

FOREVER = 2**63 - 1
"""HUTCH_FOREVER, in nanoseconds: an entry's own duration is none."""

_SECOND = 10**9


def nanoseconds(seconds: float) -> int:
    """Seconds as nanoseconds, rounded up, at least 1; FOREVER for infinity and beyond 292 years.

    Raises ValueError for a negative number or NaN.
    """
    if not seconds >= 0:
        raise ValueError(f"a duration cannot be {seconds!r} seconds")
    if seconds >= FOREVER / _SECOND:
        return FOREVER
    return max(1, math.ceil(seconds * _SECOND))


def own_duration(seconds: float | None) -> int:
    """An entry's own duration: None is 0, which leaves it to the tier."""
    return 0 if seconds is None else nanoseconds(seconds)


def limit_duration(seconds: float) -> int:
    """A tier's duration: 0 and infinity mean none, which is 0."""
    if seconds == 0:
        return 0
    duration = nanoseconds(seconds)
    return 0 if duration == FOREVER else duration


def uint64(number: int) -> int:
    """The number, if it fits; ctypes would wrap it around in silence."""
    number = operator.index(number)
    if not 0 <= number < 2**64:
        raise ValueError(f"{number} is not between 0 and 2**64 - 1")
    return number


def uint32(number: int) -> int:
    """As uint64, of 32 bits."""
    number = operator.index(number)
    if not 0 <= number < 2**32:
        raise ValueError(f"{number} is not between 0 and 2**32 - 1")
    return number


def int64(number: int) -> int:
    """The number, if it fits, else OverflowError."""
    number = operator.index(number)
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"{number} does not fit in 64 bits")
    return number
