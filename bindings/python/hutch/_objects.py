"""Python objects in a cache's memory: references, neither copied nor encoded.

C sees a number for each; one callback serves all. So nothing that C calls can be
collected, and an object is let go when the library says so.
"""

from __future__ import annotations

import itertools
from ctypes import byref
from typing import Any

from . import _structs
from ._errors import Status, check
from ._library import lib

_objects: dict[int, Any] = {}
_numbers = itertools.count(1)


def _release(number: int) -> None:
    _objects.pop(number, None)


_release_callback = _structs.ReleaseFunction(_release)


def put(pointer: Any, name: bytes, value: Any, options: Any) -> None:
    """Entries.put_object. A call that fails has released what it was given."""
    number = next(_numbers)
    _objects[number] = value
    call = lib.hutch_put_object
    check(call(pointer, name, len(name), number, _release_callback, options))


def get(pointer: Any, name: bytes, default: Any) -> Any:
    """Entries.get_object."""
    held = _structs.ObjectPointer()
    try:
        status = check(lib.hutch_get_object(pointer, name, len(name), byref(held)))
        if status == Status.NOT_FOUND:
            return default
        return _objects[lib.hutch_object_pointer(held)]
    finally:
        lib.hutch_object_release(held)
