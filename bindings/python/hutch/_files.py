"""Values that come as files or in pieces, and values that a program reads as files."""

from __future__ import annotations

import ctypes
import io
import os
from ctypes import byref
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

from . import _structs
from ._accelerator import path_bytes
from ._codec import Key, key_to_bytes
from ._errors import Status, check
from ._handles import Handle, release_with
from ._library import lib
from ._options import put_options
from ._process import hint
from ._units import Seconds, uint64

if TYPE_CHECKING:
    from ._records import PutResult
    from ._types import Path
else:
    hint(globals(), "Path", "PutResult")

FILE_USE = {"copy": 1, "move": 2, "link": 3}


def _bytes_of(data: Any) -> bytes:
    try:
        return bytes(memoryview(data))  # bytes(5) would be five zeroes.
    except TypeError:
        raise TypeError(f"a writer writes bytes, not a {type(data).__name__}") from None


class Writer(Handle):
    """A value of bytes that comes in pieces: see Entries.writer.

    As a context manager it commits at the end of the block, or aborts if the
    block raises. For one thread at a time.
    """

    def __init__(self, cache: Any, name: bytes, size: int, options: Any) -> None:
        self._cache = cache
        self._pointer = pointer = _structs.WriterPointer()
        self._has_ended = False
        release_with(self, lib.hutch_writer_release, pointer)
        begin = lib.hutch_writer_begin
        check(begin(cache._pointer, name, len(name), size, options, byref(pointer)))

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append data; returns its size in bytes. TooLargeError: no tier accepts so much."""
        piece = data if type(data) is bytes else _bytes_of(data)
        check(lib.hutch_writer_append(self._pointer, piece, len(piece)))
        return len(piece)

    def commit(self) -> PutResult:
        """Store the written bytes, in place of the older value. The writer ends."""
        self._has_ended = True
        result = _structs.PutResult()
        check(lib.hutch_writer_commit(self._pointer, byref(result)))
        from ._records import PutResult

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
            # The caller gets the exception of the block.
            lib.hutch_writer_abort(self._pointer)


class Hold(Handle):
    """Keeps the files of values in place until it is released: see Entries.hold_files."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache
        self._is_held = False
        check(lib.hutch_hold_files(cache._pointer))
        self._is_held = True

    def release(self) -> None:
        """End the hold. A second release has no effect."""
        if self._is_held:
            self._is_held = False
            check(lib.hutch_unhold_files(self._cache._pointer))

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Files:
    """The calls that work on values as files."""

    _pointer: Any

    def put_file(
        self,
        key: Key,
        path: Path,
        use: str = "copy",
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        suffix: str | None = None,
        write_policy: str | None = None,
        tag: Key | None = None,
    ) -> PutResult:
        """Store a file's bytes under key; as a value they are bytes.

        use: "copy"; "move": the file is removed once the entry is committed;
        "link": the entry shares its bytes, which must not be changed. On the
        cache's file system the last two copy nothing. A large file is read into
        memory as a whole only if the memory tier accepts it.

        StorageError: also if the file cannot be read; ValueError: it is not a
        regular file. In both cases nothing changed.
        """
        if use not in FILE_USE:
            raise ValueError(f"use is 'copy', 'move' or 'link', not {use!r}")
        name = key_to_bytes(key)
        file = path_bytes(path)
        options = put_options(expire, idle, cost, None, suffix, write_policy, tag)
        result = _structs.PutResult()
        check(
            lib.hutch_put_file(
                self._pointer, name, len(name), file, FILE_USE[use], options, byref(result)
            )
        )
        from ._records import PutResult

        return PutResult._of(result)

    def writer(
        self,
        key: Key,
        size: int | None = None,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        suffix: str | None = None,
        write_policy: str | None = None,
        tag: Key | None = None,
    ) -> Writer:
        """Begin to store a value of bytes that comes in pieces.

            with cache.writer("video") as writer:
                for piece in pieces:
                    writer.write(piece)

        A large value is never in memory as a whole. No call sees it before the
        commit. size: the size of the value, if it is known.
        """
        options = put_options(expire, idle, cost, None, suffix, write_policy, tag)
        return Writer(self, key_to_bytes(key), uint64(size or 0), options)

    def read(self, key: Key) -> BinaryIO:
        """The value as a binary file, which the caller closes. KeyError: no entry.

        It reads the same bytes as long as it is open, whatever becomes of the
        entry, and does not bring a large value into memory. The bytes of a large
        value are not checked.
        """
        name = key_to_bytes(key)
        number = ctypes.c_int32(-1)
        # It owns the descriptor once it is not closed. Ctrl-C may come after any step.
        file = io.FileIO.__new__(io.FileIO)
        try:
            status = lib.hutch_open_fd(self._pointer, name, len(name), byref(number))
            if check(status) == Status.NOT_FOUND:
                raise KeyError(key)
            file.__init__(number.value)  # type: ignore[misc]
        finally:
            if file.closed and number.value >= 0:
                os.close(number.value)
        return io.BufferedReader(file)

    def path(self, key: Key) -> str:
        """The path of the value's file, which must not be changed.

        A hint: the file may be deleted as soon as the entry is replaced, removed or
        evicted, unless files are held. KeyError: no entry on disk.
        WrongTypeError: the value is small and has no file of its own.
        """
        name = key_to_bytes(key)
        size = ctypes.c_size_t()
        room = 256
        while True:
            buffer = ctypes.create_string_buffer(room)
            status = check(
                lib.hutch_path(self._pointer, name, len(name), buffer, room, byref(size))
            )
            if status == Status.NOT_FOUND:
                raise KeyError(key)
            if status != Status.BUFFER_TOO_SMALL:
                return os.fsdecode(buffer.value)
            room = size.value + 1

    def hold_files(self) -> Hold:
        """Keep the files of all values in place, until release or the block's end.

            with cache.hold_files():
                subprocess.run(["file", cache.path("photo")])

        Entries change meanwhile; their files are deleted when the last hold ends.
        """
        return Hold(self)
