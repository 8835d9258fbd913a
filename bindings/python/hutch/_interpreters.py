"""The interpreter that has imported the package: the main one of the process, or another one."""

from __future__ import annotations

import ctypes
import importlib


def _number() -> int:
    """The interpreter's number; 0: the main one, or the only one."""
    own = ctypes.PyDLL(None)
    try:
        current, number_of = own.PyInterpreterState_Get, own.PyInterpreterState_GetID
    except AttributeError:  # Not CPython.
        return 0
    current.restype = ctypes.c_void_p
    number_of.argtypes = (ctypes.c_void_p,)
    number_of.restype = ctypes.c_int64
    return int(number_of(current()))


is_main: bool = _number() == 0


def shares_its_lock() -> bool:
    """Whether the interpreter has the lock that the main one has: the GIL."""
    if is_main:
        return True
    try:
        _interpreters = importlib.import_module("_interpreters")
    except ImportError:  # Before Python 3.13 an interpreter with a lock of its own has no ctypes.
        return True
    try:
        found: bool = _interpreters.get_config(_interpreters.get_current()[0]).gil != "own"
        return found
    except (AttributeError, TypeError, ValueError):
        return False
