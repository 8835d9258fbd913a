"""The writer lock: one thread of one process of all that use a directory holds it."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ._constants import Timeout

if TYPE_CHECKING:
    from ._store import Store

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.00005, 0.005
_TAKE, _LEAVE = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN
_flock = fcntl.flock
_PART = 8
"""A pause is this part of the time waited so far, so that a lock that is held for some microseconds
does not stay free for milliseconds while others wait."""

_forks = 0  # How many forks lead to this process.
_beginning = threading.Lock()


def _begin_child() -> None:
    global _forks, _beginning
    _forks += 1
    _beginning = threading.Lock()


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
        self._threads = threading.RLock()
        self._depth = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(self._path, flags, 0o644)
        self._forks = _forks

    def _begin_in_child(self) -> None:
        # Several threads may be the first.
        with _beginning:
            if self._forks != _forks:
                file, self._file = self._file, -1
                if file >= 0:
                    os.close(file)
                self._begin()

    def acquire(self, timeout: float | None) -> int:
        """Wait for the lock for this many seconds; None: no limit. Returns how deep it is held.

        Timeout: another thread or process has it.
        """
        if self._forks != _forks:
            # The parent's threads are not here, and its file would share the parent's lock.
            self._begin_in_child()
        depth = self._depth
        if depth and self._threads._is_owned():  # type: ignore[attr-defined]
            self._depth = depth = depth + 1
            return depth
        try:
            if not self._threads.acquire(True, -1 if timeout is None else timeout):
                raise Timeout
            try:
                _flock(self._file, _TAKE)
            except BlockingIOError:
                self._await_file(timeout)
            self._depth = 1
        except BaseException:
            # A signal's handler may raise after any call, also after one that took a lock.
            self._give_up()
            raise
        return 1

    def _give_up(self) -> None:
        """Release what a call of acquire that raises may have taken."""
        if self._threads._is_owned():  # type: ignore[attr-defined]
            self._depth = 0
            try:
                _flock(self._file, _LEAVE)
            finally:
                self._threads.release()

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

    def __del__(self) -> None:
        file, self._file = getattr(self, "_file", -1), -1
        if file >= 0:
            os.close(file)


class Holding:
    """A block that holds the writer lock of a store.

    A signal's handler may raise at the beginning of each function of Python, and after each call.
    A generator releases the lock, for its end comes in any case: if __exit__ raises at its
    beginning, then when the exception has been handled, and its frames go with this object.
    A generator as the block's manager itself would take longer.
    """

    __slots__ = ("_held",)

    def __init__(self, store: Store, timeout: float | None) -> None:
        self._held = _held(store, timeout)

    def __enter__(self) -> Store:
        return next(self._held)

    def __exit__(self, *_: object) -> None:
        next(self._held, None)


def _held(store: Store, timeout: float | None) -> Iterator[Store]:
    lock = store.lock
    depth = lock.acquire(timeout)
    forks = _forks
    try:
        if depth == 1 and store.undo is not None:
            store.forget_transaction()
        yield store
    finally:
        # A garbage collection in another thread may end a generator that was left behind.
        is_own = True
        try:
            is_own = lock._threads._is_owned()  # type: ignore[attr-defined]
        finally:
            # A child process of os.fork shares the file's lock with its parent.
            if is_own and forks == _forks:
                lock._depth -= 1
                if not lock._depth:
                    try:
                        if lock._file >= 0:  # Else it was collected with this, and closed before.
                            _flock(lock._file, _LEAVE)
                    finally:
                        lock._threads.release()
