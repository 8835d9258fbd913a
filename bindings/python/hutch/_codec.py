"""Python objects as bytes, and back. Nothing here runs code from a cache: no pickle.

Keys

A key is a str, a bytes or an int. ``1``, ``"1"`` and ``b"1"`` are three keys,
and iteration gives back what was put in. As other languages see them:

=======  ===========================================  ==========================
key      its bytes                                    example
=======  ===========================================  ==========================
str      its UTF-8                                    "user:7" is ``user:7``
bytes    0xFF, then the bytes                         b"abc" is ``\\xffabc``
int      0xFE, then the number in hexadecimal         -255 is ``\\xfe-ff``
=======  ===========================================  ==========================

str comes first, since text is what programs in every language use for keys;
0xFE and 0xFF never occur in UTF-8, so the three kinds never meet. A key that
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
                                       bytes, as a counter of
                                       hutch_increment, or
                                       more if it needs them
float, bool, None, list, tuple, dict   JSON in UTF-8          ``py:json``
=====================================  =====================  ================

The type is told apart by the entry's extended data, so the value itself is what
any other language expects. bytearray and memoryview come back as bytes, tuples
as lists; else what comes back equals what went in, with the same type. Dict
keys must be str; NaN and infinities are written as Python's json writes them.
Subclasses of these types are refused: they would come back as something else.
A value with extended data that is none of these comes back as bytes.
"""

from __future__ import annotations

import json
from typing import Any, Union

Key = Union[str, bytes, int]

STR = b"py:str"
INT = b"py:int"
JSON = b"py:json"

_BYTES_KEY = 0xFF
_INT_KEY = 0xFE


def key_to_bytes(key: Key) -> bytes:
    """The bytes under which an entry with this key is found from other languages.

    TypeError: no str, bytes or int (a bool is none). ValueError: the empty
    string, or a string with surrogates that stand for no byte. The length is
    left to the library, which takes 65,535 bytes.
    """
    kind = type(key)
    if kind is str:
        raw = key.encode("utf-8", "surrogateescape")  # type: ignore[union-attr]
        if not raw:
            raise ValueError("a key cannot be the empty string")
        # Only escapes can give these first bytes: a str that stands for the bytes
        # of another key would be two keys in one.
        if raw[0] >= _INT_KEY and type(key_from_bytes(raw)) is not str:
            raise ValueError(f"{key!r} are the bytes of the key {key_from_bytes(raw)!r}")
        return raw
    if kind is bytes:
        return b"\xff" + key  # type: ignore[operator]
    if kind is int:
        return b"\xfe%x" % key  # type: ignore[str-format]
    raise TypeError(f"a key must be a str, bytes or int, not {kind.__name__}")


def key_from_bytes(raw: bytes) -> Key:
    """The key of an entry that other languages find under these bytes.

    key_to_bytes(key_from_bytes(raw)) is raw, for any bytes but none.
    """
    if raw[:1] == b"\xff":
        return raw[1:]
    if raw[:1] == b"\xfe":
        try:
            number = int(raw[1:], 16)
        except ValueError:
            pass
        else:
            # Another spelling of the number is another key.
            if b"%x" % number == raw[1:]:
                return number
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
    if value is None or kind in (float, bool, list, tuple, dict):
        # First, since it also finds values that contain themselves.
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        _check_json(value)
        return text.encode("utf-8", "surrogatepass"), JSON
    raise TypeError(
        "a value must be bytes, str, int, float, bool, None or a list or dict of these "
        f"with str keys, not {kind.__name__}"
    )


def _check_json(value: Any) -> None:
    """TypeError if JSON would change the value into another."""
    kind = type(value)
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError(f"the keys of a dict value must be str, not {type(key).__name__}")
            _check_json(item)
    elif kind is list or kind is tuple:
        for item in value:
            _check_json(item)
    elif value is not None and kind not in (str, int, float, bool):
        raise TypeError(f"{kind.__name__} cannot be part of a value: it would come back as another")


def decode_value(data: bytes, extended: bytes) -> Any:
    """The value that was put; of extended data that is not ours, the bytes."""
    if extended == STR:
        return data.decode("utf-8", "surrogatepass")
    if extended == INT:
        return int.from_bytes(data, "little", signed=True)
    if extended == JSON:
        return json.loads(data.decode("utf-8", "surrogatepass"))
    return data
