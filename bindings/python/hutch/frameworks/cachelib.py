"""A cache of cachelib, for Werkzeug, Flask-Session and all that takes a cachelib.BaseCache.

    from hutch.frameworks.cachelib import HutchCache

    cache = HutchCache("/var/tmp/cache", default_timeout=300, disk="2 GB")

inc and dec are one step over all processes. By default any object that pickles can be a value:
see hutch.frameworks on what that means, and on the option serializer.
"""

from __future__ import annotations

import math
from typing import Any

from .._errors import Error
from ._backing import increment_or_add, needs, open_cache, own_key, refused, stored

try:
    from cachelib import BaseCache
except ImportError as error:
    raise needs("cachelib", "cachelib", "cachelib") from error


class HutchCache(BaseCache):
    """A cachelib.BaseCache above a hutch.Cache.

    Parameters:
        directory: as of hutch.Cache; None: in memory.
        default_timeout: in seconds, for calls without a timeout; 0: entries do not expire.
        ignore_delete_many_errors: has no meaning: a deletion removes the entry, or it raises
            hutch.Error.
        options: those of hutch.Cache.
    """

    def __init__(
        self,
        directory: Any = None,
        default_timeout: Any = 300,
        ignore_delete_many_errors: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(default_timeout)
        self.ignore_delete_many_errors = ignore_delete_many_errors
        self._cache = open_cache(directory, options)

    def _expire(self, timeout: Any) -> float:
        """Seconds from now; infinity: for ever; below 0: the value has expired already."""
        return self._normalize_timeout(timeout) or math.inf

    def get(self, key: str) -> Any:
        return self._cache.get(own_key(key))

    def get_many(self, *keys: str) -> list[Any]:
        own = list(map(own_key, keys))
        found = self._cache.get_many(own)
        return [found.get(key) for key in own]

    def set(self, key: str, value: Any, timeout: Any = None) -> bool:
        expire = self._expire(timeout)
        if expire < 0:
            self._cache.delete(own_key(key))
            return True
        return stored(self._cache.set, own_key(key), value, expire)

    def add(self, key: str, value: Any, timeout: Any = None) -> bool:
        expire = self._expire(timeout)
        if expire < 0:
            return own_key(key) not in self._cache
        return stored(self._cache.add, own_key(key), value, expire)

    def set_many(self, mapping: dict[str, Any], timeout: Any = None) -> list[Any]:
        expire = self._expire(timeout)
        if expire < 0:
            self._cache.delete_many(map(own_key, mapping))
            return list(mapping)
        try:
            self._cache.set_many({own_key(key): value for key, value in mapping.items()}, expire)
        except Error as error:
            failed = set(refused(error))
            return [key for key in mapping if own_key(key) not in failed]
        return list(mapping)

    def delete(self, key: str) -> bool:
        return self._cache.delete(own_key(key))

    def delete_many(self, *keys: str) -> list[Any]:
        """Remove the entries. All keys: of none there is an entry afterwards."""
        self._cache.delete_many(map(own_key, keys))
        return list(keys)

    def has(self, key: str) -> bool:
        return own_key(key) in self._cache

    def clear(self) -> bool:
        self._cache.clear()
        return True

    def inc(self, key: str, delta: int = 1) -> int | None:
        expire = max(self._expire(None), 0)  # What has expired already is over at once.
        total: int = increment_or_add(self._cache, own_key(key), delta, expire, _plus)
        return total

    def dec(self, key: str, delta: int = 1) -> int | None:
        return self.inc(key, -delta)

    def close(self) -> None:
        """Close the cache; every later call is a hutch.ClosedError."""
        self._cache.close()


def _plus(value: Any, delta: int) -> Any:
    """The sum. None and all that is false count as 0, as with cachelib."""
    return (value or 0) + delta
