"""Raw calls, as a C program would make them: no conversion, no exception."""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Any

import hutch
from hutch import Status
from hutch import _structs as structs
from hutch._library import FUNCTIONS, lib

SIZE_MAX = 2**64 - 1

__all__ = ["FUNCTIONS", "SIZE_MAX", "Status", "byref", "get", "last_error", "lib", "open_raw"]
__all__ += ["options", "put", "put_unreadable", "structs", "tier"]


def options() -> structs.Options:
    return structs.Options()


def open_raw(directory: bytes | None = None, chosen: Any = None) -> tuple[int, Any]:
    cache = structs.CachePointer()
    return lib.hutch_open(directory, chosen, byref(cache)), cache


def put(cache: Any, key: bytes, value: bytes, chosen: Any = None, result: Any = None) -> int:
    return lib.hutch_put(cache, key, len(key), value, len(value), chosen, result)


def put_unreadable(cache: Any, key: Any) -> None:
    """Have a hutch.Cache store what another program's serializer has made."""
    form = b"py:x:of another program"
    chosen = structs.PutOptions(extended=form, extended_size=len(form))
    assert put(cache._pointer, hutch.key_to_bytes(key), b"\xff", chosen) == Status.OK
    assert key in cache and cache.get(key) is None


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
