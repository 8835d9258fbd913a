"""A Python function as the clock of a cache."""

from __future__ import annotations

from _operator import index

from ._callbacks import marked, report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Reading:
    """A clock as the library calls it, through ctypes or the accelerator. Raises nothing."""

    __slots__ = ("_function", "_last")

    def __init__(self, clock: Any) -> None:
        if not callable(clock):
            raise TypeError(
                "clock is a function that gives the time in Unix nanoseconds, "
                f"not a {type(clock).__name__}"
            )
        self._function: Any = clock
        self._last = 0

    @marked
    def __call__(self) -> int:
        try:
            self._last = index(self._function())
        except BaseException as error:
            report(error, "a clock", self._function)
        return self._last
