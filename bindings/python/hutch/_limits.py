"""The limits of a tier, in Python's units. A cache is opened with this module: it imports little."""

from __future__ import annotations

from ._process import hint
from ._units import (
    limit_count,
    limit_duration,
    limit_size,
    named,
    seconds_of_limit,
    size_of_limit,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._types import Limits
    from ._units import Seconds, Size
else:
    hint(globals(), "Any", "Seconds", "Size")

MAX_ENTRY_QUARTER = 2**64 - 2
"""As a tier's max_entry: a quarter of the tier's current cost limit."""

# The library's fields, in the order of hutch_tier_limits, and how a limit becomes a number.
_FIELDS = {
    "cost": (limit_size, size_of_limit),
    "count": (limit_count, size_of_limit),
    "max_entry": (limit_size, size_of_limit),
    "time_to_live": (limit_duration, seconds_of_limit),
    "time_to_idle": (limit_duration, seconds_of_limit),
    "min_free": (limit_size, size_of_limit),
}


class TierLimits:
    """The limits of one tier. None: not set, or no such tier; NO_LIMIT: no limit.

    A limit that is not set is the directory's when a cache is opened, or else the
    library's default; set_limits leaves it as it is. Immutable.

    Attributes:
        cost: bytes charged. Memory: what the entry takes there, of key, value and
            the rest, or its explicit cost; disk: the space of the entries.
        count: entries.
        max_entry: the largest charge of one entry; the tier does not store a larger
            one. MAX_ENTRY_QUARTER: a quarter of cost.
        time_to_live: seconds from the write, for entries without their own.
        time_to_idle: seconds from the last access, for entries without their own.
        min_free: disk only: bytes to keep free on the file system; 0 is no limit.
    """

    # By hand what a dataclass would be: to import dataclasses takes longer than to open a cache.
    # Literals, which type checkers need: the names of _FIELDS.
    __match_args__ = ("cost", "count", "max_entry", "time_to_live", "time_to_idle", "min_free")
    __slots__ = __match_args__

    cost: Size | None
    count: float | None
    max_entry: Size | None
    time_to_live: Seconds | None
    time_to_idle: Seconds | None
    min_free: Size | None

    def __init__(
        self,
        cost: Size | None = None,
        count: float | None = None,
        max_entry: Size | None = None,
        time_to_live: Seconds | None = None,
        time_to_idle: Seconds | None = None,
        min_free: Size | None = None,
    ) -> None:
        given = (cost, count, max_entry, time_to_live, time_to_idle, min_free)
        for name, limit in zip(_FIELDS, given):
            object.__setattr__(self, name, limit)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"limits are immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"limits are immutable: {name} cannot be deleted")

    def _all(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in _FIELDS)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TierLimits):
            return NotImplemented
        return self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        limits = ", ".join(f"{name}={limit!r}" for name, limit in zip(_FIELDS, self._all()))
        return f"TierLimits({limits})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._all()

    def __replace__(self, **changes: Any) -> TierLimits:
        """For copy.replace."""
        return type(self)(**{**dict(zip(_FIELDS, self._all())), **changes})

    @classmethod
    def _of(cls, limits: Any) -> TierLimits:
        """Those of a hutch_tier_limits."""
        return cls(**{name: of(getattr(limits, name)) for name, (_, of) in _FIELDS.items()})


def numbers_of(what: str, given: Limits) -> dict[str, int]:
    """What a caller has given of a tier's limits, by the library's names and in its units.

    A size alone is the limit of the tier's cost. what: the tier, for the words of an error.
    """
    size: Any = given
    is_size = isinstance(given, (int, float, str)) or hasattr(type(given), "__index__")
    if is_size and not isinstance(given, bool):
        given = TierLimits(cost=size)
    if not isinstance(given, TierLimits):
        raise TypeError(
            f"{what} is a hutch.TierLimits or a size such as 64 << 20 or '64 MiB', "
            f"not a {type(given).__name__}"
        )
    limits = {name: getattr(given, name) for name in _FIELDS}
    if limits["min_free"] == 0:
        limits["min_free"] = float("inf")
    return {
        name: named(f"{what}.{name}", _FIELDS[name][0], limit)
        for name, limit in limits.items()
        if limit is not None
    }
