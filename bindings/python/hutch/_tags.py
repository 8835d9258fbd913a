"""Tags: what entries are put with, to be removed together.

A tag is any natural value that can be a key, in the bytes that a key of this value has: a tag
that is a str is the same for C, which calls it by its UTF-8.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint64
from typing import Any

from . import _structs
from ._codec import Key, key_from_bytes, key_to_bytes
from ._errors import Status, check
from ._foreign import bytes_at
from ._library import lib

_LONGEST = 255


def tag_to_bytes(tag: Key) -> bytes:
    """The bytes of a tag. ValueError: the empty string, or None."""
    if tag is None or tag == "":
        raise ValueError("a tag cannot be None or the empty string")
    return key_to_bytes(tag)


def tag_of_value(value: Any) -> Key | None:
    """The tag of a value; None: none."""
    size = lib.hutch_value_tag_size(value)
    if not size:
        return None
    return key_from_bytes(bytes_at(lib.hutch_value_tag(value), size))


def tag_of(pointer: Any, name: bytes, info: _structs.EntryInfo) -> Key | None:
    """The tag of the entry that info is about; None: none, or it has gone meanwhile."""
    if not info.tag_size:
        return None
    buffer = ctypes.create_string_buffer(_LONGEST)
    size = ctypes.c_size_t()
    status = lib.hutch_tag(pointer, name, len(name), buffer, _LONGEST, byref(size))
    if check(status) == Status.NOT_FOUND or not size.value:
        return None
    return key_from_bytes(buffer.raw[: size.value])


class Tags:
    """What works on tags."""

    _pointer: Any

    def remove_tagged(self, tag: Key) -> int:
        """Remove the entries that were put with this tag. How many there were.

        An entry that was put with it before the call is gone from every tier afterwards,
        also if the process is killed; an entry that is put meanwhile goes or stays. An
        entry that has been put again with another tag, or none, stays. Objects go too.
        """
        name = tag_to_bytes(tag)
        removed = c_uint64()
        check(lib.hutch_remove_tagged(self._pointer, name, len(name), byref(removed)))
        return removed.value
