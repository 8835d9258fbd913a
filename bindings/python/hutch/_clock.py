"""A Python function as the clock of a cache.

One callback serves all clocks; a number, the context, tells which is meant. So
nothing that C calls can be collected, and a clock is let go when the library
says so by the release function.
"""

from __future__ import annotations

import itertools
from typing import Callable

from . import _structs

Clock = Callable[[], int]
"""Gives the time in Unix nanoseconds. Must not use the cache it is the clock of."""

_clocks: dict[int, Clock] = {}
_numbers = itertools.count(1)


def _read(number: int) -> int:
    return _clocks[number]()


def _release(number: int) -> None:
    _clocks.pop(number, None)


_read_callback = _structs.ClockFunction(_read)
_release_callback = _structs.ReleaseFunction(_release)


def set_clock(options: _structs.Options, clock: Clock) -> None:
    """Make this the clock of the cache that will be opened with these options."""
    number = next(_numbers)
    _clocks[number] = clock
    options.clock = _read_callback
    options.clock_context = number
    options.clock_release = _release_callback
