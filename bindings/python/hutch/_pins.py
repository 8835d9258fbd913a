"""Values that are read without a copy."""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Any, NoReturn

from . import _structs
from ._codec import FOREIGN, Key, key_to_bytes
from ._errors import Status, WrongTypeError, check
from ._handles import Owner
from ._library import lib
from ._values import extended_of


def refuse() -> NoReturn:
    """Raise the exception of a value that is not bytes. The accelerator calls it."""
    raise WrongTypeError(Status.WRONG_TYPE, "the value is not bytes")


class Pins:
    """The call that pins a value."""

    _pointer: Any

    def pin(self, key: Key, default: Any = None) -> Any:
        """A read-only memoryview of a value of bytes, which is not copied; or default.

        The view shows the same bytes as long as it exists, whatever becomes of the entry
        and of the cache, and keeps them in memory. A value found on disk is brought into
        memory. WrongTypeError: the value is not bytes.
        """
        name = key_to_bytes(key)
        value = _structs.ValuePointer()
        try:
            status = check(lib.hutch_get(self._pointer, name, len(name), byref(value)))
            if status == Status.NOT_FOUND:
                return default
            if extended_of(value).startswith(FOREIGN):
                refuse()
            size = lib.hutch_value_size(value)
            if size == 0:
                return memoryview(b"")
            pinned: Any = (ctypes.c_ubyte * size).from_address(lib.hutch_value_data(value))
            pinned._owner = Owner(lib.hutch_value_retain(value), lib.hutch_value_release)
            return memoryview(pinned).toreadonly().cast("B")
        finally:
            if value:
                lib.hutch_value_release(value)
