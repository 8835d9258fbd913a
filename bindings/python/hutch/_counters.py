"""Counters: ints of 64 bits that are changed in one step."""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Any

from ._codec import INT, Key, key_to_bytes
from ._errors import Status, WrongTypeError, check, failure
from ._library import lib
from ._options import put_options
from ._units import Seconds, int64

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


class Counters:
    """The calls that work on counters."""

    _pointer: Any

    def incr(
        self,
        key: Key,
        delta: int = 1,
        default: int | None = 0,
        *,
        expire: Seconds | None = None,
        idle: Seconds | None = None,
        tag: Key | None = None,
    ) -> int:
        """Add delta to an int, atomically, and return the sum.

        A missing counter is made from default, with expire, idle and tag; default=None:
        KeyError. An existing counter keeps its durations and its tag. In other languages it
        is a counter of hutch_increment with the extended data "py:int".

        WrongTypeError: the value is not an int of 64 bits. CounterOverflowError (or
        OverflowError, for a parameter): the sum does not fit; nothing changed.
        """
        delta = int64(delta)
        initial = 0 if default is None else int64(default)
        name = key_to_bytes(key)
        if default is None:
            if delta == 0:
                return self._counter(key)
            # An impossible sum, so that the call makes no counter.
            initial = INT64_MAX if delta > 0 else INT64_MIN
        result = ctypes.c_int64()
        options = put_options(expire, idle, None, INT, tag=tag)
        status = lib.hutch_increment(
            self._pointer, name, len(name), delta, initial, options, byref(result)
        )
        if status == Status.OVERFLOW and default is None:
            error = failure(status)
            if key not in self:  # type: ignore[operator]
                raise KeyError(key)
            raise error
        check(status)
        return result.value

    def decr(
        self,
        key: Key,
        delta: int = 1,
        default: int | None = 0,
        *,
        expire: Seconds | None = None,
        idle: Seconds | None = None,
        tag: Key | None = None,
    ) -> int:
        """Like incr, with delta subtracted."""
        return self.incr(key, -delta, default, expire=expire, idle=idle, tag=tag)

    def _counter(self, key: Key) -> int:
        """The value of a counter."""
        value = self[key]  # type: ignore[index]
        if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
            raise WrongTypeError(Status.WRONG_TYPE, "the value is no int of 64 bits")
        return value
