"""A cache backend for Django. Importable only where Django is.

    CACHES = {
        "default": {
            "BACKEND": "hutch.diskcache.DjangoCache",
            "LOCATION": "/var/cache/site",
        }
    }

Django stores responses and rendered templates, which are objects of its own: values are pickled,
with an authentication code by SECRET_KEY, and a value without it is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache

from .._process import hint
from ._constants import ENOVAL
from ._deque import Deque
from ._disk import Disk, PickleDisk
from ._index import Index
from ._memoize import memoizer
from .core import Cache
from .fanout import FanoutCache

__all__ = ["DjangoCache"]

if TYPE_CHECKING:
    from .._types import DiskMemoizer
else:
    hint(globals(), "DiskMemoizer")


def _signed_disk() -> type[Disk]:
    from django.conf import settings

    secret = hashlib.sha256(b"hutch.diskcache\0" + str(settings.SECRET_KEY).encode())
    return PickleDisk.signed(secret.digest())


class DjangoCache(BaseCache):
    """A FanoutCache with the interface of Django.

    Parameters: those of Django, and in CACHES: SHARDS (8), DATABASE_TIMEOUT (0.010 seconds), and
    OPTIONS, which are the settings of FanoutCache. OPTIONS["disk"] takes the place of the
    signed PickleDisk.
    """

    def __init__(self, directory: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        options = {"disk": _signed_disk(), **params.get("OPTIONS", {})}
        self._cache = FanoutCache(
            directory,
            params.get("SHARDS", 8),
            params.get("DATABASE_TIMEOUT", 0.010),
            **options,
        )

    @property
    def directory(self) -> str:
        """The directory."""
        return self._cache.directory

    def cache(self, name: str) -> Cache:
        """Like FanoutCache.cache."""
        return self._cache.cache(name)

    def deque(self, name: str, maxlen: int | None = None) -> Deque:
        """Like FanoutCache.deque."""
        return self._cache.deque(name, maxlen=maxlen)

    def index(self, name: str) -> Index:
        """Like FanoutCache.index."""
        return self._cache.index(name)

    # --------------------------------------------------------------- entries

    def set(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = True,
    ) -> bool:
        """Store value under key.

        timeout: in seconds; None: the entry does not expire. The others are those of Cache.set.
        """
        name = self.make_key(key, version=version)
        return self._cache.set(name, value, self.get_backend_timeout(timeout), read, tag, retry)

    def add(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = True,
    ) -> bool:
        """Like set, if there is no entry. False: there is one."""
        name = self.make_key(key, version=version)
        return self._cache.add(name, value, self.get_backend_timeout(timeout), read, tag, retry)

    def get(
        self,
        key: Any,
        default: Any = None,
        version: int | None = None,
        read: bool = False,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """The value of key, or default; the other parameters are those of Cache.get."""
        name = self.make_key(key, version=version)
        return self._cache.get(name, default, read, expire_time, tag, retry)

    def read(self, key: Any, version: int | None = None) -> Any:
        """Like Cache.read."""
        return self._cache.read(self.make_key(key, version=version))

    def touch(
        self,
        key: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        retry: bool = True,
    ) -> bool:
        """Make the entry expire in this many seconds. False: no entry."""
        name = self.make_key(key, version=version)
        return self._cache.touch(name, self.get_backend_timeout(timeout), retry)

    def pop(
        self,
        key: Any,
        default: Any = None,
        version: int | None = None,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = True,
    ) -> Any:
        """Remove the entry and return its value, or default."""
        name = self.make_key(key, version=version)
        return self._cache.pop(name, default, expire_time, tag, retry)

    def delete(self, key: Any, version: int | None = None, retry: bool = True) -> bool:
        """Remove the entry. False: there is none."""
        return self._cache.delete(self.make_key(key, version=version), retry)

    def incr(
        self,
        key: Any,
        delta: int = 1,
        version: int | None = None,
        default: int | None = None,
        retry: bool = True,
    ) -> Any:
        """Add delta to a number. ValueError: there is none, and no default."""
        name = self.make_key(key, version=version)
        try:
            return self._cache.incr(name, delta, default, retry)
        except KeyError:
            raise ValueError(f"Key '{name}' not found") from None

    def decr(
        self,
        key: Any,
        delta: int = 1,
        version: int | None = None,
        default: int | None = None,
        retry: bool = True,
    ) -> Any:
        """Like incr, with delta subtracted."""
        return self.incr(key, -delta, version, default, retry)

    def has_key(self, key: Any, version: int | None = None) -> bool:
        """Whether there is an entry."""
        return self.make_key(key, version=version) in self._cache

    # ---------------------------------------------------------------- upkeep

    def expire(self) -> int:
        """Like Cache.expire."""
        return self._cache.expire()

    def stats(self, enable: bool = True, reset: bool = False) -> tuple[int, int]:
        """Like Cache.stats."""
        return self._cache.stats(enable=enable, reset=reset)

    def create_tag_index(self) -> None:
        """Like Cache.create_tag_index."""
        self._cache.create_tag_index()

    def drop_tag_index(self) -> None:
        """Like Cache.drop_tag_index."""
        self._cache.drop_tag_index()

    def evict(self, tag: Any) -> int:
        """Like Cache.evict."""
        return self._cache.evict(tag)

    def cull(self) -> int:
        """Like Cache.cull."""
        return self._cache.cull()

    def clear(self) -> int:
        """Remove all entries; returns how many."""
        return self._cache.clear()

    def close(self, **_: Any) -> None:
        """Does nothing: Django calls this after each request, and continues with the cache."""

    def get_backend_timeout(self, timeout: Any = DEFAULT_TIMEOUT) -> Any:
        """The seconds until an entry expires; None: it does not."""
        if timeout == DEFAULT_TIMEOUT:
            return self.default_timeout
        return -1 if timeout == 0 else timeout

    def memoize(
        self,
        name: str | None = None,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        typed: bool = False,
        tag: Any = None,
        ignore: Collection[Any] = (),
    ) -> DiskMemoizer:
        """Decorator: cache the results of a function, like Cache.memoize."""

        def lookup(key: Any) -> Any:
            return self.get(key, ENOVAL, version, retry=True)

        def keep(key: Any, result: Any) -> None:
            if timeout is None or timeout == DEFAULT_TIMEOUT or timeout > 0:
                self.set(key, result, timeout, version, tag=tag, retry=True)

        return memoizer(lookup, keep, name, typed, ignore)
