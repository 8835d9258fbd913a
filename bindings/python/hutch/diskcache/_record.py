"""The stored form of an entry: the columns that a Disk makes, with the entry's times and tag.

The value's bytes are hutch's value. The rest is its extended data: four bytes that name the form,
the mode, the kind of the value, three flags, the place in the order of insertion, the end of the
entry's time to live as a double (infinity: none), and, if a flag says so, CBOR of a list: tag,
name of the value's own file, size of that file, length of a long key. A long key's CBOR comes
before the value.
"""

from __future__ import annotations

import math
import os
import struct
from functools import lru_cache
from typing import Any, NamedTuple

from .._cbor import Unreadable, dumps
from .._cbor_read import loads
from .._serializers import Forms
from ._constants import MODE_RAW

FORM = b"dc1:"
"""How the extended data of an entry begin."""
_HEAD = struct.Struct("<4sBBBQd")
_SIZE = _HEAD.size
PLACE_AT = 7
"""Where in the extended data the place is."""
_PLACE = struct.Struct("<Q")
_new_tuple = tuple.__new__
_DOUBLE = struct.Struct("<d")
_BYTES, _TEXT, _INT, _FLOAT, _NONE = range(5)
_MORE, _LINGERS, _MOVED = 1, 2, 4
_KIND_AT, _FLAGS_AT = 5, 6

OVERHEAD = 128
"""The charge of an entry beyond its bytes, roughly its space in the manifest."""


class Record(NamedTuple):
    """An entry.

    Attributes:
        mode, value, filename, size: as Disk.store has made them.
        place: in the order of insertion.
        expires: a Unix time in seconds, or None.
        tag: its tag, or None.
        long_key: the bytes of a key that is too long for a key of hutch.
        lingers: hutch does not remove the entry when it expires; this module does.
    """

    mode: int
    value: Any
    place: int
    expires: float | None = None
    tag: Any = None
    filename: str | None = None
    size: int = 0
    long_key: bytes = b""
    lingers: bool = False

    def length(self) -> int:
        """The number of bytes of the value for hutch, with those of a long key."""
        value = self.value
        kind = type(value)
        if kind is bytes:
            size = len(value)
        elif kind is int:
            size = _int_size(value)
        else:
            size = len(_bytes_of(value)[1])
        return size + len(self.long_key)

    def encode(self, is_moved: bool) -> tuple[bytes, bytes]:
        """The value and the extended data for hutch. TypeError: the value has no form.

        is_moved: the place is not the greatest one that was given.
        """
        kind, data = _bytes_of(self.value)
        more = b""
        if self.tag is not None or self.filename is not None or self.long_key:
            more = _more(self.tag, self.filename, self.size, len(self.long_key))
            data = self.long_key + data
        expires = math.inf if self.expires is None else self.expires
        flags = (_MORE if more else 0) | (_LINGERS if self.lingers else 0)
        if is_moved:
            flags |= _MOVED
        return data, _HEAD.pack(FORM, self.mode, kind, flags, self.place, expires) + more

    @classmethod
    def decode(cls, data: bytes, extended: bytes) -> Record | None:
        """The record; None: the value is another program's, or damaged."""
        if len(extended) < _SIZE:
            return None
        form, mode, kind, flags, place, expires = _HEAD.unpack_from(extended)
        if form != FORM:
            return None
        tag = filename = None
        size, long_key = 0, b""
        if flags & _MORE:
            parts = _parts(extended[_SIZE:])
            if parts is None:
                return None
            tag, filename, size, length = parts
            long_key, data = data[:length], data[length:]
        try:
            value = data if kind == _BYTES else _value_of(kind, data)
        except (ValueError, struct.error):
            return None
        end = None if expires == math.inf else expires
        lingers = end is not None and (flags & _LINGERS != 0 or filename is not None)
        # As cls(...), in less time.
        return _new_tuple(cls, (mode, value, place, end, tag, filename, size, long_key, lingers))

    @classmethod
    def without_value(cls, extended: bytes) -> Record | None:
        """As decode, with an empty value."""
        return cls.decode(b"", extended[:_KIND_AT] + bytes([_BYTES]) + extended[_FLAGS_AT:])

    @property
    def is_number(self) -> bool:
        """Whether incr can add to it."""
        return self.mode == MODE_RAW and type(self.value) in (int, float)


# As _replace, in a third of the time.


def with_value(record: Record, value: Any) -> Record:
    mode, _, place, expires, tag, filename, size, long_key, lingers = record
    new = mode, value, place, expires, tag, filename, size, long_key, lingers
    return _new_tuple(Record, new)


def with_place(record: Record, place: int) -> Record:
    mode, value, _, expires, tag, filename, size, long_key, lingers = record
    new = mode, value, place, expires, tag, filename, size, long_key, lingers
    return _new_tuple(Record, new)


def with_expires(record: Record, expires: float | None) -> Record:
    mode, value, place, _, tag, filename, size, long_key, lingers = record
    new = mode, value, place, expires, tag, filename, size, long_key, lingers
    return _new_tuple(Record, new)


def place_of(extended: bytes) -> int | None:
    """The place of an entry with these extended data; None: it is another program's."""
    if len(extended) < _SIZE or extended[:4] != FORM:
        return None
    place: int = _PLACE.unpack_from(extended, PLACE_AT)[0]
    return place


def is_moved(extended: bytes) -> bool:
    """Of an entry with a place: whether a greater one was given before it was last written."""
    return extended[_FLAGS_AT] & _MOVED != 0


def file_of(extended: bytes) -> tuple[str | None, int]:
    """The name and the size of the own file of an entry with these extended data; None: it has
    none, or it is another program's."""
    is_more = len(extended) > _SIZE and extended.startswith(FORM) and extended[_FLAGS_AT] & _MORE
    if not is_more:
        return None, 0
    parts = _parts(extended[_SIZE:])
    return (None, 0) if parts is None else (parts[1], parts[2])


# Many entries have the same tag and nothing else here: CBOR takes longer than to remember it.


@lru_cache(maxsize=64, typed=True)
def _more(tag: Any, filename: str | None, size: int, length: int) -> bytes:
    """What follows the head of the extended data."""
    return dumps([tag, filename, size, length])


@lru_cache(maxsize=64)
def _parts(more: bytes) -> tuple[Any, str | None, int, int] | None:
    """The arguments of _more; None: they are damaged."""
    try:
        tag, filename, size, length = loads(more)
    except (Unreadable, ValueError, TypeError):
        return None
    if not _are_sizes(size, length) or not (filename is None or _is_below(filename)):
        return None
    return tag, filename, size, length


def _int_size(value: int) -> int:
    return value.bit_length() // 8 + 1


def _are_sizes(*numbers: Any) -> bool:
    return all(type(number) is int and 0 <= number < 2**62 for number in numbers)


def _is_below(filename: Any) -> bool:
    """Whether the name of a file leads to a place below the directory."""
    if not isinstance(filename, str) or os.path.isabs(filename) or "\0" in filename:
        return False
    return ".." not in filename.split("/")


def _bytes_of(value: Any) -> tuple[int, bytes]:
    kind = type(value)
    if kind is bytes:
        return _BYTES, value
    if kind is str:
        return _TEXT, value.encode("utf-8", "surrogatepass")
    if kind is int or kind is bool:
        return _INT, int(value).to_bytes(_int_size(value), "little", signed=True)
    if kind is float:
        return _FLOAT, _DOUBLE.pack(value)
    if value is None:
        return _NONE, b""
    if kind is memoryview or kind is bytearray:
        return _BYTES, bytes(value)
    raise TypeError(f"Disk.store made a {kind.__name__}, which is no value of a column")


def _value_of(kind: int, data: bytes) -> Any:
    if kind == _BYTES:
        return data
    if kind == _TEXT:
        return data.decode("utf-8", "surrogatepass")
    if kind == _INT:
        return int.from_bytes(data, "little", signed=True)
    if kind == _FLOAT:
        return _DOUBLE.unpack(data)[0]
    if kind == _NONE:
        return None
    raise ValueError("no kind of a column")


class RecordForms(Forms):
    """Makes hutch's calls accept and return a value with its extended data."""

    def encode(self, value: Any) -> tuple[bytes, bytes | None]:
        pair: tuple[bytes, bytes | None] = value
        return pair

    def decode(self, data: bytes, extended: bytes) -> Any:
        return data, extended


def charge(key: Any, length: int, size: int) -> int:
    """The charge of an entry, of a value of so many bytes and a file of so many."""
    return (len(key) if isinstance(key, (str, bytes)) else 8) + length + size + OVERHEAD
