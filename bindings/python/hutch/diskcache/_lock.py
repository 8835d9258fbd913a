"""The writer lock: one thread of one process of all that use a directory holds it."""

from __future__ import annotations

import fcntl
import os
import threading
import time

from ._constants import Timeout

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.00005, 0.005
_TAKE, _LEAVE = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN
_flock = fcntl.flock
_PART = 8
"""A pause is this part of the time waited so far, so that a lock that is held for some microseconds
does not stay free for milliseconds while others wait."""

_forks = 0  # How many forks lead to this process.


def _begin_child() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_begin_child)


class WriterLock:
    """A lock on a file (flock) beneath a lock of this process's threads. Reentrant.

    The order: the threads' lock is taken first, and released last. When the process ends, the
    system releases the file's. A child process of os.fork begins without it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self._forks = _forks
        self._threads = threading.RLock()
        self._depth = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(self._path, flags, 0o644)

    def acquire(self, timeout: float | None) -> int:
        """Wait for the lock for this many seconds; None: no limit. Returns how deep it is held.

        Timeout: another thread or process has it.
        """
        if self._forks != _forks:
            # The parent's threads are not here, and its file would share the parent's lock.
            os.close(self._file)
            self._begin()
        if not self._threads.acquire(True, -1 if timeout is None else timeout):
            raise Timeout
        if not self._depth:
            try:
                try:
                    _flock(self._file, _TAKE)
                except BlockingIOError:
                    self._await_file(timeout)
            except BaseException:
                self._threads.release()
                raise
        self._depth += 1
        return self._depth

    def _await_file(self, timeout: float | None) -> None:
        if timeout is None:
            _flock(self._file, fcntl.LOCK_EX)
            return
        start = time.monotonic()
        while True:
            waited = time.monotonic() - start
            if waited >= timeout:
                raise Timeout
            pause = min(max(waited / _PART, _SHORTEST_PAUSE), _LONGEST_PAUSE)
            time.sleep(min(pause, timeout - waited))
            try:
                _flock(self._file, _TAKE)
                return
            except BlockingIOError:
                pass

    def release(self) -> None:
        """Release it, once for each acquire, in the thread that holds it."""
        self._depth -= 1
        if not self._depth:
            _flock(self._file, _LEAVE)
        self._threads.release()

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None:
            os.close(file)
