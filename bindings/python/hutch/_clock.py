"""A Python function as the clock of a cache.

One callback serves all clocks; a number, the context, selects the clock. No object that C
calls can therefore be collected, and a clock is dropped when the library calls the
release function.
"""

from __future__ import annotations

import itertools
import operator
from typing import Callable

from . import _structs
from ._callbacks import callback, release_of, report

Clock = Callable[[], int]
"""Gives the time in Unix nanoseconds. Must not use its cache.

Its exceptions go to sys.unraisablehook; the time is then that of the call before.
"""


class _Clock:
    """A clock, and its last reading."""

    __slots__ = ("function", "last")

    def __init__(self, function: Clock) -> None:
        self.function = function
        self.last = 0


_clocks: dict[int, _Clock] = {}
_numbers = itertools.count(1)


@callback
def _read(number: int) -> int:
    try:
        clock = _clocks[number]
    except BaseException as error:
        report(error, "a clock", None)
        return 0
    try:
        clock.last = operator.index(clock.function())
    except BaseException as error:
        report(error, "a clock", clock.function)
    return clock.last


_read_callback = _structs.ClockFunction(_read)
_release_callback = release_of(_clocks, "a clock")


def set_clock(options: _structs.Options, clock: Clock) -> None:
    """Set this as the clock of the cache that will be opened with these options."""
    if not callable(clock):
        raise TypeError(
            "clock is a function that gives the time in Unix nanoseconds, "
            f"not a {type(clock).__name__}"
        )
    number = next(_numbers)
    _clocks[number] = _Clock(clock)
    options.clock = _read_callback
    options.clock_context = number
    options.clock_release = _release_callback
