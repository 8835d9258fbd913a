"""Locks between threads and processes, each an entry of a cache.

The entry must not be culled: use a cache with eviction_policy "none". expire frees a lock after
its holder was killed. All of them wait by a poll every millisecond.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Callable

from .._process import hint
from .._public import name_methods
from ._memoize import full_name

if TYPE_CHECKING:
    from .._types import Decorator
else:
    hint(globals(), "Decorator")

_PAUSE = 0.001


class _Entry:
    """The common part of the locks.

    Parameters:
        cache: a Cache or a FanoutCache.
        key: of the entry.
        expire: the time to live of the entry in seconds; None: it stays.
        tag: of the entry.
    """

    def __init__(
        self, cache: Any, key: Any, expire: float | None = None, tag: Any = None
    ) -> None:
        self._cache = cache
        self._key = key
        self._expire = expire
        self._tag = tag

    def _set(self, value: Any) -> None:
        self._cache.set(self._key, value, expire=self._expire, tag=self._tag, retry=True)

    def _try(self) -> bool:
        """Take the lock, if it is free."""
        raise NotImplementedError

    def acquire(self) -> None:
        """Wait for the lock."""
        while not self._try():
            time.sleep(_PAUSE)

    def release(self) -> None:
        """Release the lock."""
        raise NotImplementedError

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


name_methods("Lock", _Entry)


class Lock(_Entry):
    """A lock of one holder. Any thread may release it."""

    def _try(self) -> bool:
        added: bool = self._cache.add(
            self._key, None, expire=self._expire, tag=self._tag, retry=True
        )
        return added

    def release(self) -> None:
        """Release the lock, whichever thread holds it."""
        self._cache.delete(self._key, retry=True)

    def locked(self) -> bool:
        """Whether the lock is held."""
        return self._key in self._cache


class RLock(_Entry):
    """A lock that its holder, a thread, may take again."""

    def _try(self) -> bool:
        me = _me()
        with self._cache.transact(retry=True):
            holder, depth = self._cache.get(self._key, default=(None, 0))
            if depth and holder != me:
                return False
            self._set((me, depth + 1))
            return True

    def release(self) -> None:
        """Release it once. AssertionError: this thread does not hold it."""
        with self._cache.transact(retry=True):
            holder, depth = self._cache.get(self._key, default=(None, 0))
            if holder != _me() or depth <= 0:
                raise AssertionError("cannot release un-acquired lock")
            self._set((holder, depth - 1))


class BoundedSemaphore(_Entry):
    """A lock of several holders.

    Parameters:
        value: the number of holders.
        cache, key, expire, tag: as for the other locks.
    """

    def __init__(
        self,
        cache: Any,
        key: Any,
        value: int = 1,
        expire: float | None = None,
        tag: Any = None,
    ) -> None:
        super().__init__(cache, key, expire, tag)
        self._value = value

    def _try(self) -> bool:
        with self._cache.transact(retry=True):
            free = self._cache.get(self._key, default=self._value)
            if free <= 0:
                return False
            self._set(free - 1)
            return True

    def release(self) -> None:
        """Release it. AssertionError: it is not held."""
        with self._cache.transact(retry=True):
            free = self._cache.get(self._key, default=self._value)
            if free >= self._value:
                raise AssertionError("cannot release un-acquired semaphore")
            self._set(free + 1)


def _me() -> str:
    return f"{os.getpid()}-{threading.get_ident()}"


def barrier(
    cache: Any,
    lock_factory: Callable[..., Any],
    name: str | None = None,
    expire: float | None = None,
    tag: Any = None,
) -> Decorator:
    """Decorator: calls of a function hold a lock, which lock_factory makes (Lock, say)."""

    def decorate(func: Callable[..., Any]) -> Any:
        key = full_name(func) if name is None else name
        lock = lock_factory(cache, key, expire=expire, tag=tag)

        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with lock:
                return func(*args, **kwargs)

        return wrapper

    return decorate
