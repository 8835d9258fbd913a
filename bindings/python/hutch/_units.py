"""Python's numbers in the library's units, with checks, since ctypes wraps numbers silently.

A cache is opened with this module: it imports nothing that takes long.
"""

from __future__ import annotations

from _operator import index

from ._process import late

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from typing import Any, TypeVar, Union

    T = TypeVar("T")
    Seconds = Union[float, timedelta]
    """A duration: a number of seconds, or a timedelta."""

    Size = Union[float, str]
    """A number of bytes, which is whole, or one with a unit: "64 MiB" (of 1,024), "2 GB" (of
    1,000)."""
else:

    def __getattr__(name: str) -> Any:
        if name not in ("Seconds", "Size"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from datetime import timedelta
        from typing import Union

        return Union[float, timedelta] if name == "Seconds" else Union[float, str]


FOREVER = 2**63 - 1
"""HUTCH_FOREVER, in nanoseconds: a duration without end."""

UINT64_MAX = 2**64 - 1
"""HUTCH_NO_LIMIT and HUTCH_NO_COST."""

NO_LIMIT = float("inf")
"""As a limit: no limit. The library has two numbers for it, FOREVER and 2**64 - 1."""

_SECOND = 10**9
_UNITS = {"k": 1, "m": 2, "g": 3, "t": 4}


def nanoseconds(seconds: Seconds) -> int:
    """Seconds as nanoseconds, rounded up, at least 1; FOREVER for infinity and beyond 292 years.

    Raises ValueError for a negative number or NaN, TypeError if it is not a duration.
    """
    if not isinstance(seconds, (int, float)):
        with late:
            from datetime import timedelta

        if isinstance(seconds, timedelta):
            if seconds < timedelta(0):
                raise ValueError(f"a duration cannot be {seconds!r}")
            return min(max(1, seconds // timedelta(microseconds=1) * 1000), FOREVER)
        try:
            seconds = float(index(seconds))
        except TypeError:
            raise TypeError(
                f"a duration is a number of seconds or a timedelta, not {_told(seconds)}"
            ) from None
    if not seconds >= 0:
        raise ValueError(f"a duration cannot be {seconds!r} seconds")
    if seconds >= FOREVER / _SECOND:
        return FOREVER
    from math import ceil

    return max(1, ceil(seconds * _SECOND))


def own_duration(seconds: Seconds | None) -> int:
    """An entry's own duration: None is 0, which means the tier's."""
    return 0 if seconds is None else nanoseconds(seconds)


def limit_duration(seconds: Seconds) -> int:
    """A tier's duration. ValueError for 0, which is neither a limit nor a duration."""
    duration = nanoseconds(seconds)
    if not seconds:
        raise ValueError("a limit of 0 seconds: hutch.NO_LIMIT stands for no limit")
    return duration


def limit_size(amount: Size) -> int:
    """A tier's limit on a size; a float must be whole. ValueError for 0."""
    if amount == NO_LIMIT:
        return UINT64_MAX
    number = size(amount)
    if number == 0:
        raise ValueError("a limit of 0: hutch.NO_LIMIT stands for no limit")
    return number


def limit_count(number: float) -> int:
    """A tier's limit on the number of entries, which is whole and never a text. ValueError for 0."""
    if not isinstance(number, str):
        try:
            return limit_size(number)
        except TypeError:
            pass  # The words are for bytes.
    raise TypeError(f"a number of entries is whole, not {_told(number)}")


def size_of_limit(number: int) -> float | None:
    """The library's limit on a size or a count in Python's form. None: there is no such tier."""
    return NO_LIMIT if number == UINT64_MAX else number or None


def seconds_of_limit(duration: int) -> float | None:
    """The same, for a duration."""
    return NO_LIMIT if duration == FOREVER else duration / _SECOND or None


def size(amount: Size) -> int:
    """A number of bytes. ValueError, TypeError: it is not one."""
    if isinstance(amount, str):
        return uint64(_size_in_words(amount))
    other: Any = amount
    is_whole = isinstance(amount, float) and float(amount).is_integer()
    try:
        return uint64(int(amount) if is_whole else other)
    except TypeError:
        raise TypeError(
            f'a size is a number of bytes or a text such as "64 MiB", not {_told(amount)}'
        ) from None


def _size_in_words(text: str) -> int:
    """A size as text. ValueError: it is not one."""
    words = text.lower().strip().removesuffix("b")
    is_binary = words.endswith("i")
    words = words.removesuffix("i")
    power = _UNITS.get(words[-1:], 0)
    number = (words[:-1] if power else words).rstrip()
    whole, point, part = number.partition(".")
    is_number = whole.isdecimal() and (part.isdecimal() if point else not part)
    if not is_number or (is_binary and not power):
        raise ValueError(f'a size is a number of bytes or a text such as "64 MiB", not {text!r}')
    factor: int = (1024 if is_binary else 1000) ** power
    return round(float(number) * factor) if point else int(number) * factor


def _told(value: object) -> str:
    """The value, if it is short, or its type."""
    if isinstance(value, (str, float)):
        return f"{value!r}"
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


def named(name: str, unit: Callable[[Any], T], value: Any) -> T:
    """An argument in the library's units; the words of its error begin with its name."""
    try:
        return unit(value)
    except (TypeError, ValueError) as error:
        # Not type(error): that of a text which has no UTF-8 takes five arguments.
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}: {error}") from None


def _whole(number: int) -> int:
    try:
        return index(number)
    except TypeError:
        raise TypeError(f"a whole number is needed, not {_told(number)}") from None


def uint64(number: int) -> int:
    """The number, if it fits; ctypes would wrap it silently."""
    number = _whole(number)
    if not 0 <= number <= UINT64_MAX:
        raise ValueError(f"{number} is not between 0 and 2**64 - 1")
    return number


def uint32(number: int) -> int:
    """Like uint64, for 32 bits."""
    number = _whole(number)
    if not 0 <= number < 2**32:
        raise ValueError(f"{number} is not between 0 and 2**32 - 1")
    return number


def int64(number: int) -> int:
    """The number, if it fits, else OverflowError."""
    number = index(number)
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"{number} does not fit in 64 bits")
    return number
