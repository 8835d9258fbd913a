"""The reader of what _cbor writes. It allocates in proportion to the bytes it reads, and the
bytes cannot choose code for it to call."""

from __future__ import annotations

import struct
import sys
from typing import Any, Callable

from . import _accelerator
from . import _cbor as tags
from ._cbor import DEEPEST, MANY_FLOATS, Unreadable


def loads(data: bytes) -> Any:
    """The value. Unreadable: dumps did not make the bytes, or a class is not registered.

    RecursionError: the caller has too little of Python's stack left for it. It may be a good value,
    which must not be taken for a missing one and replaced.
    """
    if _accelerator.module is not None:
        value = _accelerator.module.read_cbor(data, MAKERS, MAKERS_OF_TEXT, Unreadable)
        if value is not Unreadable:
            return value
    reader = _Reader(data)
    try:
        value = reader.read(0)
    except (Unreadable, RecursionError):
        raise
    except Exception as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from None
    if reader.place != len(data):
        raise Unreadable("there are bytes behind the value")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def _raw(self, size: int) -> bytes:
        end = self.place + size
        if end > len(self._data):
            raise Unreadable("the value ends early")
        piece = self._data[self.place : end]
        self.place = end
        return piece

    def _number(self, code: int) -> int:
        if code < 24:
            return code
        if code > 27:
            raise Unreadable("a length of no known form")
        return int.from_bytes(self._raw(1 << code - 24), "big")

    def _count(self, code: int) -> int:
        # Each item takes at least a byte: the length cannot demand more memory than that.
        count = self._number(code)
        if count > len(self._data) - self.place:
            raise Unreadable("the value ends early")
        return count

    def _floats(self, count: int) -> list[float] | None:
        """So many items, if they are all floats, as _cbor.are_floats says."""
        start, end = self.place, self.place + 9 * count
        if self._data[start:end:9] != b"\xfb" * count:
            return None
        packed = bytearray(8 * count)
        items = self._raw(9 * count)
        for place in range(8):
            packed[place::8] = items[place + 1 :: 9]
        return list(struct.unpack(f">{count}d", packed))

    def read(self, depth: int) -> Any:
        # A tag is a level of its own here, and an empty tuple at the deepest level has one too.
        if depth > 2 * DEEPEST + 1:
            raise Unreadable("the value is nested too deeply")
        first = self._raw(1)[0]
        kind, code = first >> 5, first & 31
        if kind == 0:
            return self._number(code)
        if kind == 1:
            return ~self._number(code)
        if kind == 2:
            return self._raw(self._count(code))
        if kind == 3:
            return self._raw(self._count(code)).decode()
        if kind == 4:
            count = self._count(code)
            floats = self._floats(count) if count >= MANY_FLOATS else None
            # No function between two calls of this: they have little room on Python's stack.
            return floats if floats else [self.read(depth + 1) for _ in range(count)]
        if kind == 5:
            pairs = range(self._count(code))
            made = {self.read(depth + 1): self.read(depth + 1) for _ in pairs}
            if len(made) != len(pairs):
                raise Unreadable("a map has a key twice")
            return made
        if kind == 6:
            tag = self._number(code)
            make = MAKERS.get(tag)
            if make is None:
                raise Unreadable(f"the tag {tag} is none of hutch's")
            return make(self.read(depth + 1))
        if code in (20, 21):
            return code == 21
        if code == 22:
            return None
        if code == 27:
            return struct.unpack(">d", self._raw(8))[0]
        raise Unreadable("a simple value of no known form")


def _exactly(content: Any, *kinds: type) -> Any:
    if type(content) is not list or tuple(map(type, content)) != kinds:
        raise Unreadable("a tag's content is of another type")
    return content


def _of(kind: type, content: Any) -> Any:
    if type(content) is not kind:
        raise Unreadable("a tag's content is of another type")
    return content


def _keep(tag: int, kind: Any) -> None:
    """From now on the accelerator makes these itself; not of a class that stands in for Python's
    own for a while, as in tests that set the clock."""
    if not kind.__flags__ & tags._HEAP_TYPE:
        MAKERS_OF_TEXT[tag] = kind.fromisoformat


def _zoned(content: Any) -> Any:
    import datetime

    made = datetime.datetime.fromisoformat(_of(str, content))
    if made.tzinfo is None:
        raise Unreadable("a time without its offset")
    _keep(tags.NAIVE, datetime.datetime)
    return made


def _naive(content: Any) -> Any:
    import datetime

    text, fold, zone = _of(list, content)
    if type(text) is not str or type(fold) is not int:
        raise Unreadable("a tag's content is of another type")
    made = datetime.datetime.fromisoformat(text)
    if fold:
        made = made.replace(fold=fold)
    if made.tzinfo is not None:
        raise Unreadable("a time with an offset where none belongs")
    _keep(tags.NAIVE, datetime.datetime)
    if zone is not None:
        from zoneinfo import ZoneInfo

        made = made.replace(tzinfo=ZoneInfo(_of(str, zone)))
    return made


def _date(content: Any) -> Any:
    import datetime

    _keep(tags.DATE, datetime.date)
    return datetime.date.fromisoformat(_of(str, content))


def _time(content: Any) -> Any:
    import datetime

    text, fold = _exactly(content, str, int)
    return datetime.time.fromisoformat(text).replace(fold=fold)


def _delta(content: Any) -> Any:
    import datetime

    return datetime.timedelta(*_exactly(content, int, int, int))


def _decimal(content: Any) -> Any:
    import decimal

    MAKERS_OF_TEXT[tags.DECIMAL] = decimal.Decimal
    return decimal.Decimal(_of(str, content))


def _uuid(content: Any) -> Any:
    import uuid

    return uuid.UUID(bytes=_of(bytes, content))


def _fraction(content: Any) -> Any:
    import fractions

    return fractions.Fraction(*_exactly(content, int, int))


def _path(content: Any) -> Any:
    import pathlib

    return pathlib.Path(_of(str, content))


def _class(name: Any, kind: int) -> Any:
    cls = tags.classes.get(_of(str, name))
    if cls is None or tags.kind_of(cls) != kind:
        raise Unreadable(f"{name} is not registered")
    return cls


def _enum(content: Any) -> Any:
    import enum

    name, member = content if type(content) is list and len(content) == 2 else (None, None)
    cls = _class(name, tags.ENUM)
    if type(member) is str:
        return cls.__members__[member]
    flags = cls(member) if type(member) is int and issubclass(cls, enum.Flag) else None
    if type(flags) is not cls:
        raise Unreadable(f"no member of {name}")
    return flags


def _dataclass(content: Any) -> Any:
    import dataclasses

    name, values = _exactly(content, str, dict)
    cls = _class(name, tags.DATACLASS)
    if {each.name for each in dataclasses.fields(cls)} != set(values):
        raise Unreadable(f"{name} has other fields now")
    made = object.__new__(cls)
    for field, value in values.items():
        object.__setattr__(made, field, value)
    return made


def _namedtuple(content: Any) -> Any:
    name, values = content if type(content) is list and len(content) == 2 else (None, None)
    cls = _class(name, tags.NAMEDTUPLE)
    if type(values) is dict and set(values) == set(cls._fields):
        values = [values[field] for field in cls._fields]
    elif type(values) is not list or len(values) != len(cls._fields):
        raise Unreadable(f"{name} has other fields now")
    return tuple.__new__(cls, values)


def _dtype(name: str) -> Any:
    import numpy

    if not tags.DTYPE.fullmatch(name):
        raise Unreadable("no type of plain numbers")
    return numpy.dtype(name)


def _plain(data: bytes, dtype: Any) -> Any:
    """The elements. Unreadable: a number in a text stands for no character, which numpy would say
    by a SystemError when the element is used."""
    import numpy

    if dtype.kind == "U" and (numpy.frombuffer(data, f"{dtype.str[0]}u4") > sys.maxunicode).any():
        raise Unreadable("an array of texts with a character that is none")
    return numpy.frombuffer(data, dtype)


def _array(content: Any) -> Any:
    import numpy

    name, shape, data = _exactly(content, str, list, bytes)
    dtype = _dtype(name)
    count = dtype.itemsize
    for length in shape:
        if type(length) is not int or length < 0:
            raise Unreadable("a length of an array that is none")
        count *= length
    if count != len(data):
        raise Unreadable("an array of another size")
    if not data:
        return numpy.empty(shape, dtype)
    return _plain(data, dtype).reshape(shape).copy()


def _scalar(content: Any) -> Any:
    name, data = _exactly(content, str, bytes)
    dtype = _dtype(name)
    if dtype.kind in "SU" and dtype.itemsize == 0 and not data.strip(b"\0"):
        # An empty text, of which numpy gives the bytes of one character, or empty bytes.
        return dtype.type()
    if len(data) != dtype.itemsize or not data:
        raise Unreadable("a number of another size")
    return _plain(data, dtype)[0]


# By the tag, what makes an object of a text alone: the accelerator calls it itself, once the module
# that has it is imported.
MAKERS_OF_TEXT: dict[int, Callable[[str], Any]] = {}

# By the tag.
MAKERS: dict[int, Callable[[Any], Any]] = {
    2: lambda content: int.from_bytes(_of(bytes, content), "big"),
    3: lambda content: ~int.from_bytes(_of(bytes, content), "big"),
    tags.ZONED: _zoned,
    tags.NAIVE: _naive,
    tags.DATE: _date,
    tags.TIME: _time,
    tags.DELTA: _delta,
    tags.DECIMAL: _decimal,
    tags.UUID: _uuid,
    tags.FRACTION: _fraction,
    tags.COMPLEX: lambda content: complex(*_exactly(content, float, float)),
    tags.PATH: _path,
    tags.WTF8: lambda content: _of(bytes, content).decode("utf-8", "surrogatepass"),
    tags.TUPLE: lambda content: tuple(_of(list, content)),
    tags.SET: lambda content: set(_of(list, content)),
    tags.FROZENSET: lambda content: frozenset(_of(list, content)),
    tags.ENUM: _enum,
    tags.DATACLASS: _dataclass,
    tags.NAMEDTUPLE: _namedtuple,
    tags.ARRAY: _array,
    tags.SCALAR: _scalar,
}
