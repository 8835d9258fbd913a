"""The bytes of a hutch_value, and the Python value that they stand for."""

from __future__ import annotations

import ctypes
from typing import Any

from ._library import lib
from ._serializers import Forms

_STRING_AT_MOST = 2**31 - 1


def _bytes_at(address: int, size: int) -> bytes:
    if size > _STRING_AT_MOST:  # the size is a C int in older Pythons' string_at
        return (ctypes.c_char * size).from_address(address).raw
    return ctypes.string_at(address, size)


def extended_of(value: Any) -> bytes:
    """The extended data of a hutch_value."""
    size = lib.hutch_value_extended_size(value)
    return ctypes.string_at(lib.hutch_value_extended(value), size) if size else b""


def parts(value: Any) -> tuple[bytes, bytes]:
    """The bytes and the extended data of a hutch_value."""
    data = _bytes_at(lib.hutch_value_data(value), lib.hutch_value_size(value))
    return data, extended_of(value)


def decode(value: Any, forms: Forms) -> Any:
    """The Python value of a hutch_value. Unreadable: it has none in these forms."""
    return forms.decode(*parts(value))
