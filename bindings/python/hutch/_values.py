"""The bytes of a hutch_value, and the Python value that they stand for."""

from __future__ import annotations

from typing import Any

from ._foreign import bytes_at
from ._library import lib
from ._serializers import Forms


def extended_of(value: Any) -> bytes:
    """The extended data of a hutch_value."""
    size = lib.hutch_value_extended_size(value)
    return bytes_at(lib.hutch_value_extended(value), size) if size else b""


def parts(value: Any) -> tuple[bytes, bytes]:
    """The bytes and the extended data of a hutch_value."""
    data = bytes_at(lib.hutch_value_data(value), lib.hutch_value_size(value))
    return data, extended_of(value)


def decode(value: Any, forms: Forms) -> Any:
    """The Python value of a hutch_value. Unreadable: it has none in these forms."""
    return forms.decode(*parts(value))
