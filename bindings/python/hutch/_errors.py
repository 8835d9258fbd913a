"""Status codes as exceptions.

An answer (a status above 0, such as "no such entry") is not an error; each
method documents its answers. A failure is raised as a subclass of Error,
which is also the builtin exception that Python users expect.
"""

from __future__ import annotations

import ctypes
import enum
from typing import Any

from . import _structs
from ._library import lib
from ._process import pause_if_ended


class Status(enum.IntEnum):
    """hutch_status, by name."""

    OK = 0
    NOT_FOUND = 1
    EXISTS = 2
    CONFLICT = 3
    PARTIAL = 4
    SUPERSEDED = 5
    OPTIONS_DIFFER = 6
    WOULD_BLOCK = 7
    BUFFER_TOO_SMALL = 8
    CANCELLED = 9
    INVALID_ARGUMENT = -1
    NO_MEMORY = -2
    CLOSED = -3
    FORKED = -4
    BUSY = -5
    IO = -6
    NO_SPACE = -7
    TOO_LARGE = -8
    CORRUPT = -9
    NEWER_FORMAT = -10
    UNSUPPORTED = -11
    WRONG_TYPE = -12
    OVERFLOW = -13
    DEADLOCK = -14
    BAD_DIRECTORY = -15
    TIER_DOWN = -16
    TIMED_OUT = -17
    LOAD_FAILED = -18


class Error(Exception):
    """A failure of a call.

    Attributes:
        status: the status code, a Status if it is a known one.
        name: its name, "HUTCH_BUSY".
        words: what failed and why, in the library's words; may be empty.
        system_error: the errno behind it, or 0; of a LoadError the loader's code.
        sqlite_error: SQLite's extended result code behind it, or 0.
        failures: for a call with many keys all failures, by key; otherwise empty.
    """

    def __init__(
        self, status: int, words: str = "", system_error: int = 0, sqlite_error: int = 0
    ) -> None:
        # Not through super(): OSError would take the first arguments for its own.
        # With args as the parameters, an error survives pickling.
        self.args: tuple[Any, ...] = (status, words, system_error, sqlite_error)
        self.status: Status | int = _known(status)
        self.name: str = lib.hutch_status_name(status).decode()
        self.words = words
        self.system_error = system_error
        self.sqlite_error = sqlite_error
        self.failures: dict[Any, Error] = {}

    def __str__(self) -> str:
        return f"{self.words} ({self.name})" if self.words else self.name


class SystemFailure(Error, OSError):
    """A failure of the system or the disk: an OSError with its errno, if there is one."""

    def __init__(
        self, status: int, words: str = "", system_error: int = 0, sqlite_error: int = 0
    ) -> None:
        super().__init__(status, words, system_error, sqlite_error)
        self.errno: int | None = system_error or None
        self.strerror: str | None = words


class InvalidArgumentError(Error, ValueError):
    """An argument that no call accepts: an empty key, a key above 65,535 bytes, ..."""


class OutOfMemoryError(Error, MemoryError):
    """An allocation failed; nothing changed."""


class ClosedError(Error, ValueError):
    """The cache has been closed."""


class ForkedError(Error, RuntimeError):
    """The object belongs to the parent process."""


class BusyError(SystemFailure):
    """Another process has the directory open, and one of the two has it exclusively."""


class StorageError(SystemFailure):
    """A call of the file system or of the database failed."""


class NoSpaceError(SystemFailure):
    """The file system or the quota is full."""


class TooLargeError(Error, ValueError):
    """The value is larger than any tier accepts."""


class CorruptError(SystemFailure):
    """The directory's manifest is damaged."""


class NewerFormatError(SystemFailure):
    """The directory was written by a newer Hutch; nothing was touched."""


class UnsupportedError(Error, NotImplementedError):
    """Not in this library, or not for this cache."""


# Newer Pythons have a name of their own in AttributeError, which is this one's.
class NoDiskTierError(UnsupportedError, AttributeError):  # type: ignore
    """The cache is in memory only. hasattr(cache, "disk") is False then."""


class WrongTypeError(Error, TypeError):
    """The value is not of the kind that the call works on: not a counter, for example."""


class CounterOverflowError(Error, OverflowError):
    """The sum does not fit in 64 bits; nothing changed."""


class DeadlockError(Error, RuntimeError):
    """The call would wait for itself: it was made from a callback."""


class BadDirectoryError(SystemFailure):
    """The directory cannot be made, read or written, or it is not a cache's."""


class TierDownError(SystemFailure):
    """The disk tier is out of service."""


class TimedOutError(Error, TimeoutError):
    """The timeout passed before the awaited event."""


class LoadError(Error, RuntimeError):
    """The loader of another caller failed; words has its exception."""


class OptionsDifferWarning(UserWarning):
    """The directory has, or is open with, other options, which stay in force."""


_CLASSES: dict[int, type[Error]] = {
    Status.INVALID_ARGUMENT: InvalidArgumentError,
    Status.NO_MEMORY: OutOfMemoryError,
    Status.CLOSED: ClosedError,
    Status.FORKED: ForkedError,
    Status.BUSY: BusyError,
    Status.IO: StorageError,
    Status.NO_SPACE: NoSpaceError,
    Status.TOO_LARGE: TooLargeError,
    Status.CORRUPT: CorruptError,
    Status.NEWER_FORMAT: NewerFormatError,
    Status.UNSUPPORTED: UnsupportedError,
    Status.WRONG_TYPE: WrongTypeError,
    Status.OVERFLOW: CounterOverflowError,
    Status.DEADLOCK: DeadlockError,
    Status.BAD_DIRECTORY: BadDirectoryError,
    Status.TIER_DOWN: TierDownError,
    Status.TIMED_OUT: TimedOutError,
    Status.LOAD_FAILED: LoadError,
}


def _known(status: int) -> Status | int:
    try:
        return Status(status)
    except ValueError:
        return status


def failure(status: int) -> Error:
    """The exception for a status below 0 that this thread's last call returned."""
    if status == Status.CLOSED:
        pause_if_ended()
    details = _structs.Error()
    lib.hutch_last_error(ctypes.byref(details))
    # Otherwise a finalizer ran on this thread in between and failed by itself.
    return described(status, details if details.status == status else None)


def described(status: int, details: _structs.Error | None) -> Error:
    """The exception for a status below 0, with these details; None: without any."""
    kind: type[Error] = _CLASSES.get(status, Error)
    if details is None:
        return kind(status)
    words: Any = details.words
    return kind(
        status, words.decode("utf-8", "replace"), details.system_error, details.sqlite_error
    )


def check(status: int) -> int:
    """Return an answer, raise a failure."""
    if status < 0:
        raise failure(status)
    return status
