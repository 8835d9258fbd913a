"""Values that come in pieces, and holds on values' files."""

from __future__ import annotations

import weakref
from ctypes import byref
from types import TracebackType
from typing import Any

from . import _structs
from ._errors import check
from ._library import lib
from ._records import PutResult


class Writer:
    """A value of bytes that comes in pieces: see Entries.writer.

    As a context manager it commits at the end of the block, or aborts if the
    block raises. For one thread at a time.
    """

    def __init__(self, cache: Any, name: bytes, size: int, options: _structs.PutOptions) -> None:
        pointer = _structs.WriterPointer()
        check(lib.hutch_writer_begin(cache._pointer, name, len(name), size, options, byref(pointer)))
        self._cache = cache
        self._pointer = pointer
        self._has_ended = False
        weakref.finalize(self, lib.hutch_writer_release, pointer).atexit = False

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append data; how many bytes they were. TooLargeError: no tier would take so much."""
        piece = data if type(data) is bytes else bytes(data)
        check(lib.hutch_writer_append(self._pointer, piece, len(piece)))
        return len(piece)

    def commit(self) -> PutResult:
        """Store what was written, in place of what was there. The writer ends."""
        self._has_ended = True
        result = _structs.PutResult()
        check(lib.hutch_writer_commit(self._pointer, byref(result)))
        return PutResult._of(result)

    def abort(self) -> None:
        """End without storing anything."""
        self._has_ended = True
        check(lib.hutch_writer_abort(self._pointer))

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._has_ended:
            return
        if kind is None:
            self.commit()
        else:
            self._has_ended = True
            # What the block raised is what its caller is to see.
            lib.hutch_writer_abort(self._pointer)


class Hold:
    """Keeps values' files where they are until it is released: see Entries.hold_files."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache
        self._is_held = False
        check(lib.hutch_hold_files(cache._pointer))
        self._is_held = True

    def release(self) -> None:
        """Let go. A second time does nothing."""
        if self._is_held:
            self._is_held = False
            check(lib.hutch_release_files(self._cache._pointer))

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
