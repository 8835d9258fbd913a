"""Any object as a value, by pickle: only for directories that no other user can write to.

    from hutch.pickling import PickleSerializer

    cache = hutch.Cache(directory, serializer=PickleSerializer(key=secret))

Unpickling runs what the bytes say. With a key, values carry an authentication code (HMAC with
SHA-256) that is compared before anything is unpickled, so bytes of other writers are not found.
The code does not cover the entry's key, nor the time of the write.
"""

from __future__ import annotations

import hashlib
import hmac
import pickle
from typing import Any

_SIZE = hashlib.sha256().digest_size


class PickleSerializer:
    """A serializer by pickle.

    Parameters:
        key: at least 16 bytes; None: values are not authenticated.
        protocol: of pickle; None: its default.
    """

    def __init__(self, key: bytes | None = None, protocol: int | None = None) -> None:
        if key is not None and (not isinstance(key, bytes) or len(key) < 16):
            raise ValueError("a key is at least 16 bytes")
        self.name = "pickle" if key is None else "pickle+hmac"
        self._key = key
        self._protocol = protocol

    def dumps(self, value: Any) -> bytes:
        data = pickle.dumps(value, self._protocol)
        return data if self._key is None else self._code(data) + data

    def loads(self, data: bytes) -> Any:
        if not self.is_authentic(data):
            raise ValueError("the value is not authentic")
        return pickle.loads(data if self._key is None else data[_SIZE:])

    def is_authentic(self, data: bytes) -> bool:
        """Whether dumps has made this, of any serializer with this key; without a key, always."""
        if self._key is None:
            return True
        return hmac.compare_digest(data[:_SIZE], self._code(data[_SIZE:]))

    def _code(self, data: bytes) -> bytes:
        assert self._key is not None
        return hmac.digest(self._key, b"hutch.pickling\0" + data, "sha256")
