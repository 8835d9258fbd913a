"""The keys that a Disk makes (a value of SQLite's types, and whether it is the key itself) as
keys of hutch, and their order."""

from __future__ import annotations

from typing import Any, Union

from .._cbor_read import loads
from .._cbor import dumps

Fields = tuple[Any, bool]
"""What Disk.put returns: the key as it is stored, and whether it is the caller's key itself."""

HutchKey = Union[str, bytes, int, float]

_LONGEST = 60_000
_BEYOND = 2.0**63
_PLAIN, _MADE, _OTHER, _LONG = b"r", b"p", b"o", b"l"

QUEUE_START = 500_000_000_000_000
QUEUE_END = 999_999_999_999_999
_DIGITS = 15


def hutch_key(key: Any, raw: Any) -> HutchKey:
    """The key of hutch of what Disk.put has made."""
    kind = type(key)
    if kind is int or kind is float:
        # A float beyond 64 bits is another key than the int that it is equal to, which is not raw.
        is_whole = kind is float and key.is_integer()
        if raw and not (is_whole and not -_BEYOND <= key < _BEYOND):
            number: HutchKey = int(key) if is_whole else key
            return number
    elif kind is str:
        if raw and key:
            return key if len(key) < _LONGEST // 4 else _short(key, key.encode("utf-8"))
    elif kind is bytes or kind is memoryview or kind is bytearray:
        name = (_PLAIN if raw else _MADE) + key
        return _short(name, name)
    name = _OTHER + dumps([key, bool(raw)])
    return _short(name, name)


def _short(key: HutchKey, data: bytes) -> HutchKey:
    """The key, or for one that is too long its digest."""
    if len(data) < _LONGEST:
        return key
    import hashlib

    return _LONG + hashlib.sha256(data).digest()


def is_long(key: HutchKey) -> bool:
    """Whether this is a digest, so that the entry itself has the key."""
    return type(key) is bytes and key[:1] == _LONG


def fields(key: HutchKey) -> Fields:
    """What Disk.put made, of a key of hutch that is no digest. ValueError: it is none of these."""
    if isinstance(key, bytes):
        kind, rest = key[:1], key[1:]
        if kind == _OTHER:
            own, raw = loads(rest)
            return own, bool(raw)
        if kind not in (_PLAIN, _MADE):
            raise ValueError("a key of another program")
        return rest, kind == _PLAIN
    return key, True


def long_key(key: Any, raw: Any) -> bytes:
    """The bytes of a long key that its entry has, for long_fields."""
    return dumps([bytes(key) if isinstance(key, (memoryview, bytearray)) else key, bool(raw)])


def long_fields(data: bytes) -> Fields:
    """What Disk.put made of a long key."""
    key, raw = loads(data)
    return key, bool(raw)


def order(own: Fields) -> tuple[int, Any, bool]:
    """Sorts keys as SQLite does: numbers, text, bytes."""
    key, raw = own
    if isinstance(key, (int, float)):
        return 1, key, raw
    if isinstance(key, str):
        return 2, key, raw  # Its characters are in the order of its UTF-8.
    if isinstance(key, (bytes, bytearray, memoryview)):
        return 3, bytes(key), raw
    return 0, 0, raw


def queue_place(key: HutchKey) -> tuple[str | None, int] | None:
    """The prefix and number of a key that could be in a queue; None: it is none of these."""
    if type(key) is int:
        return (None, key) if 0 < key < QUEUE_END else None
    if type(key) is str and len(key) > _DIGITS and key[-_DIGITS - 1] == "-":
        digits = key[-_DIGITS:]
        if digits.isdigit() and digits.isascii() and 0 < int(digits) < QUEUE_END:
            return key[: -_DIGITS - 1], int(digits)
    return None


def queue_key(prefix: str | None, number: int) -> HutchKey:
    """The key of a place in a queue."""
    return number if prefix is None else f"{prefix}-{number:0{_DIGITS}d}"
