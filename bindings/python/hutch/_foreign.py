"""Functions of C as ctypes calls them, and bytes at an address, at the limit of Python's stack.

ctypes raises ArgumentError in place of any exception at an argument. Up to CPython 3.11 each
conversion of an argument counts as a call, so that it can be the one call too much. The caller is
to get the RecursionError of a call in Python.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import ArgumentError
from functools import lru_cache
from typing import Any

_COUNTS_CONVERSIONS = sys.implementation.name == "cpython" and sys.version_info < (3, 12)
_STRING_AT_MOST = 2**31 - 1


def declare(library: Any, name: str, argtypes: tuple[Any, ...], restype: Any) -> Any:
    """A function of a library, with the types of its parameters and of its result.

    Where it is needed, a function in Python is around it. A function without a result has none:
    Ctrl-C could end the call before it has begun, and the call releases what another one has made,
    which needed as much of the stack. A function of loads has none either: a clock in Python, which
    it calls, would lack that part of the stack. _loads.load asks reason_of itself.
    """
    is_plain = restype is None or name.startswith("hutch_load")
    if _COUNTS_CONVERSIONS and not is_plain:
        function = _kind_of(library._FuncPtr)((name, library))
    else:
        function = getattr(library, name)
    function.argtypes = argtypes
    function.restype = restype
    return function


@lru_cache(maxsize=None)
def _kind_of(kind: Any) -> Any:
    """The type of a library's functions, with the exception that the caller is to get."""

    class Function(kind):  # type: ignore[misc]
        _flags_ = kind._flags_
        _restype_ = kind._restype_

        def __call__(self, *arguments: Any, _call: Any = kind.__call__) -> Any:
            try:
                return _call(self, *arguments)
            except ArgumentError as error:
                raise reason_of(error) from None

    return Function


def reason_of(error: ArgumentError) -> Exception:
    """The exception that the caller is to get."""
    # ctypes writes "???" where the stack did not suffice for the words.
    words = str(error)
    is_of_stack = "RecursionError" in words or words.endswith("???")
    return RecursionError(words) if is_of_stack else error


def bytes_at(address: Any, size: int) -> bytes:
    """The bytes at an address of C."""
    if size > _STRING_AT_MOST:  # the size is a C int in older Pythons' string_at
        return (ctypes.c_char * size).from_address(address).raw
    try:
        return ctypes.string_at(address, size)
    except ArgumentError as error:
        raise reason_of(error) from None
