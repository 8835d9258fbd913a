"""The tags of this module as tags of hutch, which finds their entries by an index."""

from __future__ import annotations

from typing import Any

from .._cbor import dumps
from .._codec import Key, key_to_bytes

_LONGEST = 200


def stored_tag(tag: Any) -> Key | None:
    """The tag of hutch for a tag; None: none. TypeError: it is no number, text or bytes."""
    if tag is None:
        return None
    if not isinstance(tag, (str, bytes, int, float)):
        raise TypeError(f"a tag is a number, text or bytes, not a {type(tag).__name__}")
    if tag != "" and len(key_to_bytes(tag)) <= _LONGEST:
        return tag
    import hashlib

    return "hutch.diskcache", hashlib.sha256(dumps(tag)).digest()
