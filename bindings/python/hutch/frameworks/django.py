"""A cache backend of Django.

    CACHES = {
        "default": {
            "BACKEND": "hutch.frameworks.django.HutchCache",
            "LOCATION": "/var/tmp/site-cache",
            "TIMEOUT": 300,
            "OPTIONS": {"disk": "2 GB", "memory": "128 MiB"},
        }
    }

LOCATION is a directory; processes and threads share it, and each process has one cache for it.
Without LOCATION the cache is in memory, one for each process, as Django's locmem. OPTIONS are
those of hutch.Cache. MAX_ENTRIES is a limit of both tiers, if there is one; CULL_FREQUENCY has no
meaning, since limits hold always.

get_or_set calls a function once for all threads of the process that miss at the same time. incr
and decr are one step over all processes, and keep the time to live. Their awaitable forms do the
same, on a thread of asgiref's.

By default any object that pickles can be a value: see hutch.frameworks on what that means, and on
the option serializer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Callable, TypeVar

from .._errors import Error
from .._limits import TierLimits
from ._backing import MISSING, increment, load, needs, own_key, process_cache, refused, stored

try:
    from asgiref.sync import sync_to_async
    from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
except ImportError as error:
    raise needs("django", "Django", "django") from error

V = TypeVar("V")


def _counted(limits: Any, count: int) -> TierLimits:
    """The limits of a tier, or its size, with a number of entries if they have none."""
    if not isinstance(limits, TierLimits):
        return TierLimits(cost=limits, count=count)
    return limits if limits.count is not None else limits.__replace__(count=count)


class HutchCache(BaseCache):
    """A backend of CACHES; Django makes one for each thread.

    Parameters:
        location: the directory; "" or None: in memory.
        params: the entry of CACHES.
    """

    def __init__(self, location: str | None, params: dict[str, Any]) -> None:
        super().__init__(params)
        options = dict(params.get("OPTIONS", {}))
        options.pop("CULL_FREQUENCY", None)
        count = options.pop("MAX_ENTRIES", None)
        if count is not None:
            for tier in ("memory", "disk") if location else ("memory",):
                options[tier] = _counted(options.get(tier), int(count))
        self._cache = process_cache(str(location) if location else None, options)

    def _expire(self, timeout: Any) -> float:
        """Seconds from now, infinity for ever; 0 or less: the value is not to be kept."""
        if timeout is DEFAULT_TIMEOUT:
            timeout = self.default_timeout
        return math.inf if timeout is None else float(timeout)

    def _name(self, key: str, version: int | None) -> Any:
        """The key in the cache: with prefix and version, or what KEY_FUNCTION makes of them."""
        return own_key(self.make_and_validate_key(key, version=version))

    def _keys(self, keys: Iterable[str], version: int | None) -> dict[str, str]:
        """The keys as they were given, by those in the cache."""
        return {self._name(key, version): key for key in keys}

    def add(
        self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        name, expire = self._name(key, version), self._expire(timeout)
        if expire <= 0:
            self._cache._forms.encode(value)  # An object that is no value is an error all the same.
            return name not in self._cache
        return stored(self._cache.add, name, value, expire)

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        return self._cache.get(self._name(key, version), default)

    def set(
        self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> None:
        name, expire = self._name(key, version), self._expire(timeout)
        if expire <= 0:
            self._cache._forms.encode(value)
            self._cache.delete(name)
        else:
            stored(self._cache.set, name, value, expire)

    def touch(
        self, key: str, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        name, expire = self._name(key, version), self._expire(timeout)
        return self._cache.delete(name) if expire <= 0 else self._cache.touch(name, expire)

    def delete(self, key: str, version: int | None = None) -> bool:
        return self._cache.delete(self._name(key, version))

    def has_key(self, key: str, version: int | None = None) -> bool:
        return self._name(key, version) in self._cache

    def incr(self, key: str, delta: Any = 1, version: int | None = None) -> Any:
        name = self._name(key, version)
        try:
            return increment(self._cache, name, delta)
        except KeyError:
            raise ValueError(f"Key '{key}' not found") from None

    def get_many(self, keys: Iterable[str], version: int | None = None) -> dict[str, Any]:
        names = self._keys(keys, version)
        return {names[name]: value for name, value in self._cache.get_many(names).items()}

    def set_many(
        self,
        data: Mapping[str, Any],
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> list[str]:
        names, expire = self._keys(data, version), self._expire(timeout)
        if expire <= 0:
            self._cache.delete_many(names)
            return []
        try:
            self._cache.set_many({name: data[key] for name, key in names.items()}, expire)
        except Error as error:
            return [names[name] for name in refused(error)]
        return []

    def delete_many(self, keys: Iterable[str], version: int | None = None) -> None:
        self._cache.delete_many(self._keys(keys, version))

    def get_or_set(
        self, key: str, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Any:
        expire = self._expire(timeout)
        if not callable(default) or expire <= 0:
            return super().get_or_set(key, default, timeout=timeout, version=version)
        name = self._name(key, version)
        value = self._cache.get(name, MISSING)
        return load(self._cache, name, default, expire) if value is MISSING else value

    # Django makes the awaitable forms of these out of several calls, which are not one step. Those
    # of the others, and adecr, are one call already.

    async def ahas_key(self, key: str, version: int | None = None) -> bool:
        return await _awaited(self.has_key, key, version)

    async def aincr(self, key: str, delta: Any = 1, version: int | None = None) -> Any:
        return await _awaited(self.incr, key, delta, version)

    async def aget_many(self, keys: Iterable[str], version: int | None = None) -> dict[str, Any]:
        return await _awaited(self.get_many, keys, version)

    async def aset_many(
        self,
        data: Mapping[str, Any],
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> list[str]:
        return await _awaited(self.set_many, data, timeout, version)

    async def adelete_many(self, keys: Iterable[str], version: int | None = None) -> None:
        await _awaited(self.delete_many, keys, version)

    async def aget_or_set(
        self, key: str, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Any:
        return await _awaited(self.get_or_set, key, default, timeout, version)

    def clear(self) -> None:
        """Remove every entry of the directory, those with other prefixes too."""
        self._cache.clear()


async def _awaited(call: Callable[..., V], *args: Any) -> V:
    """What a call returns, on the thread that Django's own awaitable forms use."""
    result: V = await sync_to_async(call, thread_sensitive=True)(*args)
    return result
