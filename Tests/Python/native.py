"""Raw calls, as a C program would make them: no conversion, no exception."""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Any

from hutch import Status
from hutch import _structs as structs
from hutch._library import FUNCTIONS, lib

SIZE_MAX = 2**64 - 1

__all__ = ["FUNCTIONS", "SIZE_MAX", "Status", "byref", "get", "last_error", "lib", "open_raw"]
__all__ += ["options", "put", "structs", "tier"]


def options() -> structs.Options:
    return structs.Options()


def open_raw(directory: bytes | None = None, chosen: Any = None) -> tuple[int, Any]:
    cache = structs.CachePointer()
    return lib.hutch_open(directory, chosen, byref(cache)), cache


def put(cache: Any, key: bytes, value: bytes, chosen: Any = None, result: Any = None) -> int:
    return lib.hutch_put(cache, key, len(key), value, len(value), chosen, result)


def get(cache: Any, key: bytes) -> tuple[int, bytes | None]:
    value = structs.ValuePointer()
    status = lib.hutch_get(cache, key, len(key), byref(value))
    try:
        if not value:
            return status, None
        data = ctypes.string_at(lib.hutch_value_data(value), lib.hutch_value_size(value))
        return status, data
    finally:
        lib.hutch_value_release(value)


def tier(cache: Any, number: int) -> tuple[int, Any]:
    view = structs.CachePointer()
    return lib.hutch_tier(cache, number, byref(view)), view


def last_error() -> structs.Error:
    error = structs.Error()
    assert lib.hutch_last_error(byref(error)) == Status.OK
    return error
