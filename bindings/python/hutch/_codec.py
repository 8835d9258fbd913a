"""Python objects as bytes, and back. Nothing here runs code from a cache: no pickle.

Keys

A key is a str, a bytes, an int, or a tuple of natural values: str, bytes, int, float, bool,
None, tuples and frozensets of these, dates and times, Decimal, Fraction, UUID. A natural value
alone is a key too. Keys that are equal in Python are one key, as in a dict: ``1``, ``1.0``,
``True`` and numpy's numbers. ``1``, ``"1"`` and ``b"1"`` are three, and iteration gives back what was put in, or
what is equal to it. As other languages see them:

=======  ===========================================  ==========================
key      its bytes                                    example
=======  ===========================================  ==========================
str      its UTF-8                                    "user:7" is ``user:7``
bytes    0xFF, then the bytes                         b"abc" is ``\\xffabc``
int      0xFE, then the number in hexadecimal         -255 is ``\\xfe-ff``
others   0xFD, then CBOR of the canonical value       see _cbor, _keys
=======  ===========================================  ==========================

str comes first, since text is what programs in every language use for keys;
0xFD to 0xFF never occur in UTF-8, so the kinds never meet. A key that
another program wrote and that is none of these comes out as a str with its odd
bytes escaped, as Python does with file names ("surrogateescape"), and goes in
again the same way. key_to_bytes and key_from_bytes are this table as functions.

Values

=====================================  =====================  ================
value                                  its bytes              extended data
=====================================  =====================  ================
bytes, bytearray, memoryview           as they are            none
str                                    UTF-8                  ``py:str``
int                                    two's complement,      ``py:int``
                                       little-endian: 8
                                       bytes, or more if it
                                       needs them
float, bool, None, list, dict          JSON in UTF-8, if it   ``py:json``
                                       has fewer than 16
                                       floats
other natural values                   CBOR, see _cbor        ``py:cbor``
=====================================  =====================  ================

JSON has lists and dicts with str keys of what it has. Other natural values are tuples, sets,
frozensets, dicts with other keys, bytes within values, dates and times, Decimal, Fraction,
UUID, complex, Path, numpy arrays, and registered enumerations, dataclasses and named tuples;
and lists and dicts with 16 floats or more, such as embeddings: a float has 9 bytes in CBOR, and
its decimal digits take longer to write and to read than all else. JSON is read with any number of
floats.

An int of 8 bytes is a counter: hutch_increment counts it in other languages too, if
its options have the same extended data. The type is told apart by the entry's extended data,
so the value itself is what any other language expects. bytearray and memoryview come back as
bytes; else what comes back equals what went in, with the same type. NaN and infinities are
written as Python's json writes them. Subclasses of these types are refused: they would come
back as something else. A value whose extended data do not begin with ``py:`` comes back as
bytes. A value that cannot be read is not found.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Union

from . import _accelerator
from ._cbor import DEEPEST, MANY_FLOATS, Unreadable, are_floats, dumps
from ._cbor_read import loads
from ._keys import canonical

if TYPE_CHECKING:
    from datetime import date, time, timedelta
    from decimal import Decimal
    from fractions import Fraction
    from pathlib import Path
    from uuid import UUID

    # date is the base of datetime.
    Natural = Union[
        str,
        bytes,
        complex,
        None,
        "tuple[Natural, ...]",
        "frozenset[Natural]",
        date,
        time,
        timedelta,
        Decimal,
        Fraction,
        UUID,
        Path,
    ]
    Key = Natural
else:
    Key = Any

STR = b"py:str"
INT = b"py:int"
JSON = b"py:json"
CBOR = b"py:cbor"
FOREIGN = b"py:"
"""The start of the extended data of this package's values, in any form."""

_CBOR_KEY = 0xFD

EXTENDED, SIZES = 1, 2
"""What a walk over all keys can find beside them."""


def key_to_bytes(key: Key) -> bytes:
    """The bytes under which an entry with this key is found from other languages.

    TypeError: it is not a key, see the table. ValueError: the empty string, or a string with
    surrogates that stand for no byte. The library checks the length, which is at most
    65,535 bytes.
    """
    kind = type(key)
    if kind is str:
        raw: bytes = key.encode("utf-8", "surrogateescape")  # type: ignore[union-attr]
        if not raw:
            raise ValueError("a key cannot be the empty string")
        # Only escapes can give these first bytes: a str that stands for the bytes
        # of another key would be two keys in one.
        if raw[0] >= _CBOR_KEY and type(key_from_bytes(raw)) is not str:
            raise ValueError(f"{key!r} are the bytes of the key {key_from_bytes(raw)!r}")
        return raw
    if kind is bytes:
        return b"\xff" + key  # type: ignore[operator]
    if kind is int:
        return b"\xfe%x" % key  # type: ignore[str-format]
    same = canonical(key)
    if type(same) in (str, bytes, int):
        return key_to_bytes(same)
    return b"\xfd" + dumps(same, sort=True)


def key_from_bytes(raw: bytes) -> Key:
    """The key of an entry that other languages find under these bytes.

    key_to_bytes(key_from_bytes(raw)) is raw, for any bytes but none.
    """
    first = raw[:1]
    if first == b"\xff":
        return raw[1:]
    if first == b"\xfe":
        try:
            number = int(raw[1:], 16)
        except ValueError:
            pass
        else:
            # Another spelling of the number is another key.
            if b"%x" % number == raw[1:]:
                return number
    if first == b"\xfd":
        try:
            key: Key = loads(raw[1:])
            if key_to_bytes(key) == raw:
                return key
        except (TypeError, ValueError):
            pass
    return raw.decode("utf-8", "surrogateescape")


def encode_value(value: Any) -> tuple[bytes, bytes | None]:
    """The value's bytes and its extended data (None: none). TypeError: see the table."""
    kind = type(value)
    if kind is bytes:
        return value, None
    if kind is str:
        return value.encode("utf-8", "surrogatepass"), STR
    if kind is int:
        # One bit more for the sign; ~value, since -(2**63) needs no more than 2**63 - 1.
        size = max(8, (value if value >= 0 else ~value).bit_length() // 8 + 1)
        return value.to_bytes(size, "little", signed=True), INT
    if kind is bytearray or kind is memoryview:
        return bytes(value), None
    if _accelerator.module is not None:
        made: tuple[bytes, bytes] | None = _accelerator.module.write(value)
        if made is not None:
            return made
    if value is None or kind in (float, bool, list, dict):
        text = _json(value)
        if text is not None:
            return text.encode("utf-8", "surrogatepass"), JSON
    return dumps(value), CBOR


def _json(value: Any) -> str | None:
    """The value as JSON; None: it would come back as another value, or has many floats."""
    if type(value) is list and are_floats(value):
        return None
    try:
        # First, because it also detects values that contain themselves.
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError):
        return None  # Also for an int with more digits than Python writes: CBOR has its bytes.
    return text if _floats_of(value) < MANY_FLOATS else None


def _levels(text: bytes) -> int:
    """How many lists and dicts of a JSON text are within each other."""
    import re

    level = most = 0
    for mark in re.findall(rb'"(?:[^"\\]|\\.)*"|[][{}]', text):
        if mark in b"[{":
            level += 1
            most = max(most, level)
        elif mark in b"]}":
            level -= 1
    return most


def _floats_of(value: Any) -> int:
    """How many floats a value has. What JSON has no form for counts as too many."""
    kind = type(value)
    if kind is float:
        return 1
    if kind is list:
        return sum(map(_floats_of, value))
    if kind is dict:
        if list(map(type, value)).count(str) < len(value):
            return MANY_FLOATS
        return sum(map(_floats_of, value.values()))
    return 0 if value is None or kind in (str, int, bool) else MANY_FLOATS


def decode_value(data: bytes, extended: bytes) -> Any:
    """The value that was put; with extended data of another program, the bytes.

    Unreadable: the bytes are not such a value, or they are a serializer's.
    """
    if not extended:
        return data
    if extended == STR:
        try:
            return data.decode("utf-8", "surrogatepass")
        except ValueError as error:
            raise Unreadable(str(error)) from None
    if extended == INT:
        return int.from_bytes(data, "little", signed=True)
    if extended == JSON:
        if _accelerator.module is not None:
            value = _accelerator.module.read_json(data, Unreadable)
            if value is not Unreadable:
                return value
        try:
            return json.loads(data.decode("utf-8", "surrogatepass"))
        except ValueError as error:
            raise Unreadable(str(error)) from None
        except RecursionError as error:
            if _levels(data) <= DEEPEST:
                raise  # See loads.
            raise Unreadable(str(error)) from None
    if extended == CBOR:
        return loads(data)
    if extended.startswith(FOREIGN):
        raise Unreadable("the value is of a serializer, or of a newer version")
    return data
