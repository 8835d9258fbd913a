"""The common part of the backends: opening a cache, and calls that frameworks need."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable
from datetime import timedelta
from hashlib import sha256
from typing import Any, Callable

from .._cache import Cache
from .._errors import (
    CounterOverflowError,
    DeadlockError,
    Error,
    LoadError,
    NoSpaceError,
    TierDownError,
    TimedOutError,
    TooLargeError,
    WrongTypeError,
)
from .._units import Seconds
from ..pickling import PickleSerializer

MISSING = object()
"""A default that is not a value."""

REFUSALS = (TooLargeError, NoSpaceError, TierDownError)
"""No tier has stored the value. The backends treat that as an immediate eviction."""

Plus = Callable[[Any, Any], Any]

_opened: list[tuple[str, dict[str, Any], Cache]] = []
# Protects _opened. A thread that holds it opens caches; no call of a cache takes it.
_lock = threading.Lock()


def _free_lock() -> None:
    """In a child process: the thread that held the lock at the fork is not there."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_free_lock)


def needs(module: str, framework: str, package: str) -> ImportError:
    """The error of a module whose framework is not installed."""
    return ImportError(
        f"hutch.frameworks.{module} needs {framework}, which is not installed: "
        f"pip install {package}"
    )


def open_cache(directory: Any, options: dict[str, Any]) -> Cache:
    """A cache of a backend: with pickle, unless the options name a serializer."""
    return Cache(directory, **{"serializer": PickleSerializer(), **options})


def process_cache(directory: str | None, options: dict[str, Any]) -> Cache:
    """The one cache that this process has for a directory and its options, open to its end.

    For frameworks that make a backend for each thread. None: the one in memory.
    """
    name = "" if directory is None else os.path.abspath(os.path.expanduser(directory))
    with _lock:
        for place, own, cache in _opened:
            if place == name and own == options:
                return cache
        cache = open_cache(directory, options)
        _opened.append((name, options, cache))
        return cache


_EMPTY = ("",)
"""The key of hutch.Cache for the empty string, which is none there and one in frameworks."""

_LONGEST = 65_000
"""The most bytes of a text that is a key itself, and has room for more, as a part of a tuple."""

_KEPT = 16_000
"""How many characters a longer one keeps. They have fewer than _LONGEST bytes, as has a digest."""


def own_key(key: Any) -> Any:
    """The key of hutch.Cache for one of a framework, where a text may be empty or of any length.

    The digest of a long one is preceded by its beginning, by which a namespace is cleared.
    """
    if key == "":
        return _EMPTY
    if not isinstance(key, (str, bytes)) or len(key) <= _KEPT:
        return key
    if len(_raw(key)) <= _LONGEST:
        return key
    return shortened(key, _KEPT)


def shortened(key: Any, kept: int) -> Any:
    """The beginning of a text or of bytes, and the digest of the whole."""
    digest = sha256(_raw(key)).hexdigest()
    return key[:kept] + (digest if isinstance(key, str) else digest.encode())


def _raw(key: str | bytes) -> bytes:
    return key if isinstance(key, bytes) else key.encode("utf-8", "surrogatepass")


def stored(call: Callable[..., bool], *args: Any, **options: Any) -> bool:
    """The result of a call that stores; False: no tier has stored the value."""
    try:
        return call(*args, **options)
    except REFUSALS:
        return False


def refused(error: Error) -> Iterable[Any]:
    """The keys of a set_many that no tier has stored. Raises the error of any other failure."""
    if not error.failures:
        raise error
    for failure in error.failures.values():
        if not isinstance(failure, REFUSALS):
            raise failure
    return error.failures


def increment(cache: Cache, key: Any, delta: Any, plus: Plus | None = None) -> Any:
    """Add to the number of a key atomically, and keep its time to live. KeyError: no entry.

    A number of 64 bits is a counter of the library. Any other, a float or a larger int, is replaced
    by compare_and_swap. plus: adds, instead of the operator.
    """
    try:
        if type(delta) is int:
            return cache.incr(key, delta, default=None)
    except (WrongTypeError, CounterOverflowError, OverflowError):
        pass
    while True:
        entry, info = cache.entry(key), cache.info(key)
        if entry is None or info is None:
            raise KeyError(key)
        if entry.info.version != info.version:
            continue
        total = entry.value + delta if plus is None else plus(entry.value, delta)
        left = math.inf if info.expires is None else max(info.expires - cache._now() / 1e9, 0)
        idle = math.inf if info.time_to_idle is None else info.time_to_idle
        if cache.compare_and_swap(key, info.version, total, left, idle=idle):
            return total


def increment_or_add(
    cache: Cache, key: Any, delta: Any, expire: Seconds, plus: Plus | None = None
) -> Any:
    """Like increment; if there is no entry that can be read, stores delta."""
    while True:
        try:
            return increment(cache, key, delta, plus)
        except KeyError:
            if cache._supply(key, delta, expire):
                return delta


def load(cache: Cache, key: Any, make: Callable[[], Any], expire: Seconds) -> Any:
    """The value of a key; if there is none, one of the concurrent callers makes it.

    A caller that fails to get another caller's value makes its own, which is not stored.
    """
    called = False

    def loader(_: Any) -> Any:
        nonlocal called
        called = True
        return make()

    try:
        return cache.load(key, loader, expire, timeout=math.inf)
    except (LoadError, TimedOutError, DeadlockError):
        if called:
            raise
        return make()


def lasting(seconds: float | timedelta | None) -> Seconds:
    """A duration of frameworks in which None or 0 means no end."""
    if seconds is None or not seconds:
        return math.inf
    return seconds
