"""Values that JSON has no form for, as CBOR (RFC 8949), and back. The bytes cannot choose code
to run here.

Numbers, text, bytes, arrays, maps, true, false and null are CBOR's own. The rest is tagged:

==============  ==================================  =====================================
type            tag                                 its content
==============  ==================================  =====================================
int             2, 3 (beyond 64 bits)               its bytes
datetime        0 (aware, by an offset)             RFC 3339
date            1004                                RFC 3339
UUID            37                                  16 bytes
Fraction        30                                  [numerator, denominator]
set             258                                 the items
tuple           1213464577                          the items
frozenset       1213464578                          the items
datetime        1213464579 (naive, or by a zone)    [ISO 8601, fold, zone's name or null]
time            1213464580                          [ISO 8601, fold]
timedelta       1213464581                          [days, seconds, microseconds]
Decimal         1213464582                          its text
complex         1213464583                          [real, imaginary]
Path            1213464584                          its text
str             1213464585 (with surrogates)        its bytes, WTF-8
Enum            1213464586                          [registered name, member's name], or of
                                                    several flags at once their number
dataclass       1213464587                          [registered name, {field: value}]
namedtuple      1213464588                          [registered name, {field: value}], or of an
                                                    earlier version [registered name, [values]]
numpy array     1213464589                          [dtype, [lengths], bytes in C order]
numpy scalar    1213464590                          [dtype, bytes]
==============  ==================================  =====================================

Enumerations, dataclasses and named tuples come back if this program has registered them. Their
fields are set as they are, without a call of __init__. When it writes, the module ignores types
of modules that are not imported; when it reads, it imports only modules of this list.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Collection, Iterator
from types import MemberDescriptorType
from typing import Any, Callable

DEEPEST = 200
MANY_FLOATS = 16
_OWN = 1213464576
ZONED, NAIVE, TIME, DELTA, DECIMAL, COMPLEX, PATH, WTF8 = (
    *(0, _OWN + 3, _OWN + 4, _OWN + 5, _OWN + 6, _OWN + 7, _OWN + 8, _OWN + 9),
)
DATE, UUID, FRACTION, SET, TUPLE, FROZENSET = 1004, 37, 30, 258, _OWN + 1, _OWN + 2
ENUM, DATACLASS, NAMEDTUPLE, ARRAY, SCALAR = (_OWN + n for n in range(10, 15))
DTYPE = re.compile(r"[<>|=][biufcSUmM]\d{1,6}(\[\d{0,9}[a-zA-Zμ]{1,2}\])?")


class Unreadable(ValueError):
    """Bytes of which this program can make no value."""


classes: dict[str, type] = {}
names: dict[type, str] = {}


_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class of Python. A builtin one has content of its own.


def register(cls: Any, name: str | None = None) -> Any:
    """Allow values of a class to be stored and read: an Enum, a dataclass or a named tuple.

        @hutch.register
        @dataclasses.dataclass
        class Point: ...

    name: the stored name; None: the class's module and qualified name. To read a value, its
    class has to be registered under the name with which it was stored.
    """
    if not isinstance(cls, type) or kind_of(cls) is None:
        raise TypeError(f"an Enum, a dataclass or a named tuple can be registered, not {cls!r}")
    if kind_of(cls) == DATACLASS and not has_fields_alone(cls):
        base = next(base for base in cls.__mro__ if not base.__flags__ & _HEAP_TYPE)
        raise TypeError(
            f"a dataclass that is a {base.__name__} cannot be registered: "
            "its fields are not all that it holds"
        )
    chosen = f"{cls.__module__}.{cls.__qualname__}" if name is None else name
    if not isinstance(chosen, str):
        raise TypeError(f"the name of a class is a str, not a {type(chosen).__name__}")
    chosen.encode()  # ValueError: a value with this name would have no bytes.
    other = classes.get(chosen)
    if other is not None and (other.__module__, other.__qualname__) != (
        cls.__module__,
        cls.__qualname__,
    ):
        raise ValueError(f"{chosen} is registered already, for {other!r}")
    classes[chosen] = cls
    names[cls] = chosen
    return cls


def has_fields_alone(cls: type) -> bool:
    """Whether a dataclass is none that has more than its fields, as one that is a dict."""
    return all(base.__flags__ & _HEAP_TYPE for base in cls.__mro__[:-1])


def kind_of(cls: type) -> int | None:
    enum = sys.modules.get("enum")
    if enum is not None and issubclass(cls, enum.Enum):
        return ENUM
    dataclasses = sys.modules.get("dataclasses")
    if dataclasses is not None and dataclasses.is_dataclass(cls):
        return DATACLASS
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return NAMEDTUPLE
    return None


# -------------------------------------------------------------------- to bytes


def dumps(value: Any, sort: bool = False) -> bytes:
    """The bytes of a value. TypeError: it has no form. ValueError: it contains itself.

    sort: sets in the order of their items' bytes.
    """
    out: list[bytes | bytearray] = []
    _Writer(out, sort).write(value, 0)
    return b"".join(out)


def _head(kind: int, number: int) -> bytes:
    if number < 24:
        return bytes((kind << 5 | number,))
    for size, code in ((1, 24), (2, 25), (4, 26), (8, 27)):
        if number < 1 << 8 * size:
            return bytes((kind << 5 | code,)) + number.to_bytes(size, "big")
    raise ValueError("too large")


def are_floats(values: Any) -> bool:
    """Whether a list or tuple is one of many floats, which a loop in Python would take long for."""
    return len(values) >= MANY_FLOATS and list(map(type, values)).count(float) == len(values)


def _floats(values: Any) -> bytearray:
    """The bytes of items that are floats: of each a byte that says so, and its 8."""
    count = len(values)
    out = bytearray(b"\xfb") * (9 * count)
    packed = struct.pack(f">{count}d", *values)
    for place in range(8):
        out[place + 1 :: 9] = packed[place::8]
    return out


class _Writer:
    def __init__(self, out: list[bytes | bytearray], sort: bool) -> None:
        self._out = out
        self._sort = sort

    def write(self, value: Any, depth: int) -> None:
        if depth > DEEPEST:
            raise ValueError("a value contains itself, or is nested too deeply")
        kind = type(value)
        call = _WRITERS.get(kind)
        if call is not None:
            call(self, value, depth + 1)
            return
        kept = _of_library(value, kind)
        if kept is None:
            told = kind.__name__
            if (kind.__module__, told) == ("numpy", "ndarray"):
                told = f"an array of the dtype {value.dtype}"
            if kind_of(kind) is not None:
                raise TypeError(
                    f"a value of the class {told} is stored once the class is registered: "
                    f"hutch.register({told})"
                )
            raise TypeError(f"{told} cannot be part of a value: it would come back as another")
        self._tagged(kept[0], kept[1], depth + 1)

    def _tagged(self, tag: int, content: Any, depth: int) -> None:
        self._out.append(_head(6, tag))
        self.write(content, depth)

    def _int(self, value: int, depth: int) -> None:
        size = value if value >= 0 else ~value
        kind = 0 if value >= 0 else 1
        if size < 1 << 64:
            self._out.append(_head(kind, size))
        else:
            self._tagged(*_of_int(value), depth)

    def _bool(self, value: bool, depth: int) -> None:
        self._out.append(b"\xf5" if value else b"\xf4")

    def _none(self, value: None, depth: int) -> None:
        self._out.append(b"\xf6")

    def _float(self, value: float, depth: int) -> None:
        self._out.append(b"\xfb" + struct.pack(">d", value))

    def _str(self, value: str, depth: int) -> None:
        try:
            raw = value.encode()
        except UnicodeEncodeError:
            self._tagged(*_of_str(value), depth)
        else:
            self._out.append(_head(3, len(raw)))
            self._out.append(raw)

    def _bytes(self, value: Any, depth: int) -> None:
        raw = bytes(value)
        self._out.append(_head(2, len(raw)))
        self._out.append(raw)

    # The items are taken at once: another thread may change the value while they are written,
    # and the head has their number.

    def _list(self, value: Any, depth: int) -> None:
        items = tuple(value)
        self._out.append(_head(4, len(items)))
        if are_floats(items):
            self._out.append(_floats(items))
            return
        for item in items:
            self.write(item, depth)

    def _dict(self, value: dict[Any, Any], depth: int) -> None:
        pairs = tuple(value.items())
        self._out.append(_head(5, len(pairs)))
        for key, item in pairs:
            self.write(key, depth)
            self.write(item, depth)

    def _tuple(self, value: tuple[Any, ...], depth: int) -> None:
        self._out.append(_head(6, TUPLE))
        self._list(value, depth)

    def _set(self, value: Any, depth: int) -> None:
        items = tuple(value)
        self._out.append(_head(6, SET if type(value) is set else FROZENSET))
        self._out.append(_head(4, len(items)))
        if not self._sort:
            for item in items:
                self.write(item, depth)
            return
        written = []
        for item in items:
            out: list[bytes | bytearray] = []
            _Writer(out, True).write(item, depth)
            written.append(b"".join(out))
        self._out += sorted(written)

    def _complex(self, value: complex, depth: int) -> None:
        self._tagged(COMPLEX, [value.real, value.imag], depth)


_WRITERS: dict[type, Callable[[_Writer, Any, int], None]] = {
    int: _Writer._int,
    bool: _Writer._bool,
    type(None): _Writer._none,
    float: _Writer._float,
    str: _Writer._str,
    bytes: _Writer._bytes,
    bytearray: _Writer._bytes,
    memoryview: _Writer._bytes,
    list: _Writer._list,
    dict: _Writer._dict,
    tuple: _Writer._tuple,
    set: _Writer._set,
    frozenset: _Writer._set,
    complex: _Writer._complex,
}


def tagged(value: Any) -> tuple[int, Any] | None:
    """The tag and the content of a value that the accelerator does not know; None: it has none."""
    kind = type(value)
    if kind is int:
        return _of_int(value)
    return _of_str(value) if kind is str else _of_library(value, kind)


def _of_int(value: int) -> tuple[int, bytes]:
    """Of an int beyond 64 bits."""
    kind, size = (2, value) if value >= 0 else (3, ~value)
    return kind, size.to_bytes((size.bit_length() + 7) // 8, "big")


def _of_str(value: str) -> tuple[int, bytes]:
    """Of a str with surrogates."""
    return WTF8, value.encode("utf-8", "surrogatepass")


def _of_library(value: Any, kind: type) -> tuple[int, Any] | None:
    """The tag and the content of a value of the standard library's types, of a registered
    class, or of numpy's."""
    if kind in names:
        return _registered(value, kind)
    form = _forms.get(kind)
    if form is not None:
        return form(value)
    of = kind.__module__, kind.__name__
    if of in _FORMS:
        form = _forms[kind] = _FORMS[of]
        return form(value)
    if of[0].startswith("pathlib") and of[1] == "PosixPath":
        return PATH, str(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if kind is numpy.ndarray and DTYPE.fullmatch(value.dtype.str):
            data = numpy.ascontiguousarray(value).tobytes()
            return ARRAY, [value.dtype.str, list(value.shape), data]
        is_scalar = of[0] == "numpy" and isinstance(value, numpy.generic)
        if is_scalar and DTYPE.fullmatch(value.dtype.str):
            return SCALAR, [value.dtype.str, value.tobytes()]
    return None


def _registered(value: Any, kind: type) -> tuple[int, Any]:
    name = names[kind]
    of = kind_of(kind)
    if of == ENUM:
        member: Any = value
        if member.name is not None and member.name in kind.__members__:  # type: ignore[attr-defined]
            return ENUM, [name, member.name]
        import enum

        if isinstance(value, enum.Flag) and type(member.value) is int:
            return ENUM, [name, member.value]
        raise TypeError(f"{value!r} is no member of its class with a name of its own")
    if of == DATACLASS:
        return DATACLASS, [name, fields_of(value, kind)]
    check_attributes(value, kind, value._fields)
    return NAMEDTUPLE, [name, dict(zip(value._fields, value))]


def fields_of(value: Any, kind: type) -> dict[str, Any]:
    """The fields of a dataclass's object. TypeError: one has no value, or see check_attributes."""
    import dataclasses

    fields = {}
    for each in dataclasses.fields(kind):
        try:
            fields[each.name] = getattr(value, each.name)
        except AttributeError:
            raise TypeError(f"{kind.__name__} has no value in its field {each.name!r}") from None
    check_attributes(value, kind, fields)
    return fields


def _slots(kind: type) -> Iterator[str]:
    """The names of the slots that a class and its bases have."""
    for base in kind.__mro__:
        if "__slots__" in vars(base):
            for name, each in vars(base).items():
                if type(each) is MemberDescriptorType:
                    yield name


def check_attributes(value: Any, kind: type, fields: Collection[str]) -> None:
    """TypeError: the object has an attribute that is no field: it would be missing from the object
    that is read, and does not distinguish the key of a call."""
    others = []
    for name in getattr(value, "__dict__", ()):
        # A cached_property is made again; Python itself notes the parameters of a generic class.
        made = getattr(kind, name, None)
        is_made = hasattr(type(made), "__get__") and not callable(made)
        if name not in fields and not name.startswith("__") and not is_made:
            others.append(name)
    others += [name for name in _slots(kind) if name not in fields and hasattr(value, name)]
    for name in others:
        raise TypeError(
            f"{kind.__name__} has the attribute {name!r}, which is no field: "
            "it would be missing from the object that is read, and from the key of a call"
        )


def _of_datetime(value: Any) -> tuple[int, Any] | None:
    zone = value.tzinfo
    if zone is None:
        return NAIVE, [value.isoformat(), value.fold, None]
    of = type(zone).__module__
    if of == "datetime":
        return ZONED, value.isoformat()
    if of.startswith("zoneinfo") and zone.key is not None:
        return NAIVE, [value.replace(tzinfo=None).isoformat(), value.fold, zone.key]
    return None


def _of_time(value: Any) -> tuple[int, Any] | None:
    zone = value.tzinfo
    if zone is None or type(zone).__module__ == "datetime":
        return TIME, [value.isoformat(), value.fold]
    return None


_FORMS: dict[tuple[str, str], Callable[[Any], tuple[int, Any] | None]] = {
    ("datetime", "date"): lambda value: (DATE, value.isoformat()),
    ("datetime", "datetime"): _of_datetime,
    ("datetime", "time"): _of_time,
    ("datetime", "timedelta"): lambda value: (
        DELTA, [value.days, value.seconds, value.microseconds],
    ),
    ("decimal", "Decimal"): lambda value: (DECIMAL, str(value)),
    ("uuid", "UUID"): lambda value: (UUID, value.bytes),
    ("fractions", "Fraction"): lambda value: (FRACTION, [value.numerator, value.denominator]),
}
_forms: dict[type, Callable[[Any], tuple[int, Any] | None]] = {}
"""Those of _FORMS whose types were met."""
