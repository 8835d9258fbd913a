"""The values of a cache and their bytes: in the package's own forms, or by a serializer."""

from __future__ import annotations

import _thread
from typing import Any, Callable, Protocol

from ._cbor import Unreadable
from ._codec import FOREIGN, INT, STR, decode_value, encode_value

_SERIALIZED = b"py:x:"
_CALLS = "dumps", "loads"
_LONGEST_NAME = 100


class Serializer(Protocol):
    """Converts values to bytes: an object with a name and two functions, such as msgpack's.

    A value for which loads raises an exception is not found, with a warning. The exception is a
    RecursionError: if another thread can read the value, the caller gets the exception, since it
    lacks room on its stack and the value is good.

    Attributes:
        name: stored with each value; a value of another serializer is not found.
    """

    @property
    def name(self) -> str: ...
    def dumps(self, value: Any, /) -> bytes: ...
    def loads(self, data: bytes, /) -> Any: ...


class Forms:
    """How values are stored. Also the forms of a cache without a serializer."""

    def encode(self, value: Any) -> tuple[bytes, bytes | None]:
        """The value's bytes and its extended data (None: none). TypeError: it has no form."""
        try:
            return encode_value(value)
        except TypeError as error:
            raise TypeError(
                f"{error}. A cache with a serializer takes any object: "
                "hutch.Cache(directory, serializer=...)"
            ) from None

    def decode(self, data: bytes, extended: bytes) -> Any:
        """The value that was put. Unreadable: it is another serializer's, or damaged."""
        return decode_value(data, extended)

    def read(self, data: bytes, extended: bytes) -> tuple[Any] | None:
        """The value of bytes that the accelerator has read; None: it cannot be read."""
        try:
            return (self.decode(data, extended),)
        except Unreadable:
            return None


class SerializedForms(Forms):
    """bytes, str and int in the package's forms, so that they are counters and text in all
    languages; all other values by a serializer."""

    def __init__(self, serializer: Any) -> None:
        name = getattr(serializer, "name", "")
        is_named = isinstance(name, str) and 0 < len(name.encode()) <= _LONGEST_NAME
        if not is_named or not all(callable(getattr(serializer, c, None)) for c in _CALLS):
            raise TypeError(
                "serializer is an object such as hutch.pickling.PickleSerializer(): it has the "
                "functions dumps and loads, and a name, a str of at most 100 bytes, by which its "
                f"values are known; not {serializer!r}"
            )
        self._serializer = serializer
        self._extended = _SERIALIZED + name.encode()

    def encode(self, value: Any) -> tuple[bytes, bytes | None]:
        if type(value) in (bytes, str, int):
            return encode_value(value)
        data = self._serializer.dumps(value)
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"a serializer's dumps makes bytes, not {type(data).__name__}")
        return bytes(data), self._extended

    def decode(self, data: bytes, extended: bytes) -> Any:
        if extended == self._extended:
            try:
                return self._serializer.loads(data)
            except Exception as error:
                if isinstance(error, RecursionError) and needs_stack(self._serializer.loads, data):
                    raise  # As in _cbor_read.loads.
                _warn(self._extended, error)
                raise Unreadable(f"{type(error).__name__}: {error}") from None
        if extended in (b"", STR, INT) or not extended.startswith(FOREIGN):
            return decode_value(data, extended)
        raise Unreadable("the value is of another serializer")


def needs_stack(loads: Callable[[bytes], Any], data: bytes) -> bool:
    """Whether loads, which had too little of Python's stack, reads the data with a stack of its own.

    If not, the data is nested so deeply that no caller can read it, or loads calls itself without
    end. Such data may come from another writer: it is a missing value, and no error of each read.
    """
    read: list[bool] = []
    ended = _thread.allocate_lock()

    def try_again() -> None:
        try:
            loads(data)
            read.append(True)
        except BaseException:
            pass  # The caller has the exception that counts.
        finally:
            ended.release()

    ended.acquire()
    try:
        _thread.start_new_thread(try_again, ())
    except RuntimeError:
        return True  # No thread can be made: the value may be a good one.
    ended.acquire()
    return bool(read)


def _warn(extended: bytes, error: Exception) -> None:
    import logging

    logging.getLogger("hutch").warning(
        "a value could not be read by the serializer %s: %s: %s",
        extended[len(_SERIALIZED) :].decode("utf-8", "replace"),
        type(error).__name__,
        error,
    )


def forms_of(serializer: Serializer | None) -> Forms:
    """The forms of a cache with this serializer, or without one."""
    return Forms() if serializer is None else SerializedForms(serializer)
