"""A cache of aiocache.

    from hutch.frameworks.aiocache import HutchCache

    cache = HutchCache("/var/tmp/cache", disk="2 GB", namespace="site:", ttl=300)
    await cache.set("key", {"any": "value"})

Values that memory has are answered without leaving the event loop's thread; the disk is read on
threads of the library. increment is one step over all processes. By default any object that
pickles can be a value: see hutch.frameworks on what that means. cache_serializer chooses another
form, as does the serializer of aiocache.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable
from typing import Any

from .._cache import Cache
from .._errors import Error
from .._units import Seconds
from ..pickling import PickleSerializer
from ._backing import REFUSALS, increment_or_add, lasting, needs, open_cache, own_key, refused

try:
    from aiocache import AIOCACHE_CACHES
    from aiocache.base import BaseCache
    from aiocache.serializers import NullSerializer
except ImportError as error:
    raise needs("aiocache", "aiocache", "aiocache") from error

_OPTIONS = ("plugins", "namespace", "key_builder", "timeout", "ttl")


class HutchCache(BaseCache):
    """An aiocache cache above a hutch.Cache.

    Parameters:
        directory: None: in memory.
        serializer: of aiocache; None: its NullSerializer, which leaves values as they are.
        cache_serializer: of hutch.Cache; None: natural values only. By default pickle.
        options: plugins, namespace, key_builder, timeout and ttl of aiocache, and the options of
            hutch.Cache.
    """

    NAME = "hutch"

    def __init__(self, directory: Any = None, serializer: Any = None, **options: Any) -> None:
        own = {name: options.pop(name) for name in _OPTIONS if name in options}
        if isinstance(serializer, PickleSerializer):
            raise TypeError("serializer is of aiocache: cache_serializer names one of hutch")
        if "cache_serializer" in options:
            options["serializer"] = options.pop("cache_serializer")
        super().__init__(serializer=serializer or NullSerializer(), **own)
        self._directory = directory
        self._options = options
        self._opened: Cache | None = open_cache(directory, options)
        self._turns: weakref.WeakValueDictionary[Any, asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )

    @property
    def _cache(self) -> Cache:
        if self._opened is None:
            self._opened = open_cache(self._directory, self._options)
        return self._opened

    async def _get(self, key: Any, encoding: str | None = "utf-8", _conn: Any = None) -> Any:
        return self._as_written(await self._cache.aget(own_key(key)))

    async def _gets(self, key: Any, encoding: str | None = "utf-8", _conn: Any = None) -> Any:
        """The version of the entry, which an optimistic lock compares; None: no entry."""
        info = await self._cache.ainfo(own_key(key))
        return None if info is None else info.version

    async def _multi_get(
        self, keys: Iterable[Any], encoding: str | None = "utf-8", _conn: Any = None
    ) -> list[Any]:
        keys = list(map(own_key, keys))
        found = await self._cache.aget_many(keys)
        return [self._as_written(found.get(key)) for key in keys]

    def _as_written(self, value: Any) -> Any:
        """What aiocache's serializer reads. It has not written the numbers of increment."""
        if type(value) is int and not isinstance(self.serializer, NullSerializer):
            return str(value)
        return value

    async def _set(
        self, key: Any, value: Any, ttl: Any = None, _cas_token: Any = None, _conn: Any = None
    ) -> Any:
        try:
            if _cas_token is None:
                await self._cache.aset(own_key(key), value, _duration(ttl))
                return True
            swap = self._cache.acompare_and_swap
            return int(await swap(own_key(key), _cas_token, value, _duration(ttl)))
        except REFUSALS:
            return False

    async def _multi_set(
        self, pairs: Iterable[tuple[Any, Any]], ttl: Any = None, _conn: Any = None
    ) -> bool:
        try:
            await self._cache.aset_many(
                {own_key(key): value for key, value in pairs}, _duration(ttl)
            )
        except Error as error:
            refused(error)
            return False
        return True

    async def _add(self, key: Any, value: Any, ttl: Any = None, _conn: Any = None) -> bool:
        async with self._turn(key):
            try:
                if await self._cache.aadd(own_key(key), value, _duration(ttl)):
                    return True
            except REFUSALS:
                return False
        raise ValueError(f"Key {key} already exists, use .set to update the value")

    async def _exists(self, key: Any, _conn: Any = None) -> bool:
        return await self._cache.acontains(own_key(key))

    async def _increment(self, key: Any, delta: int, _conn: Any = None) -> Any:
        total = await asyncio.to_thread(
            increment_or_add, self._cache, own_key(key), delta, lasting(None), _plus
        )
        return int(total)

    async def _expire(self, key: Any, ttl: Any, _conn: Any = None) -> bool:
        return await self._cache.atouch(own_key(key), _duration(ttl))

    async def _delete(self, key: Any, _conn: Any = None) -> int:
        return int(await self._cache.adelete(own_key(key)))

    async def _clear(self, namespace: str | None = None, _conn: Any = None) -> bool:
        """Remove the entries whose keys begin with the namespace; all, if there is none."""
        if namespace:
            await self._cache.aremove_prefix(namespace)
        else:
            await self._cache.aclear()
        return True

    async def _raw(
        self,
        command: str,
        *args: Any,
        encoding: str | None = "utf-8",
        _conn: Any = None,
        **kwargs: Any,
    ) -> Any:
        """What a method of the hutch.Cache gives; it is awaited if it is a coroutine function."""
        result = getattr(self._cache, command)(*args, **kwargs)
        return await result if asyncio.iscoroutine(result) else result

    async def _redlock_release(self, key: Any, value: Any) -> int:
        async with self._turn(key):
            if await self._cache.aget(own_key(key)) != value:
                return 0
            return int(await self._cache.adelete(own_key(key)))

    def _turn(self, key: Any) -> asyncio.Lock:
        """Has the adds and releases of a key made one after another.

        aiocache's RedLock takes for granted that a caller whose add or release has succeeded goes
        on before the next call for the key is made.
        """
        return self._turns.setdefault((asyncio.get_running_loop(), key), asyncio.Lock())

    async def _close(self, *args: Any, **kwargs: Any) -> None:
        """Close a cache with a directory, which the next call opens again."""
        if self._directory is not None and self._opened is not None:
            opened, self._opened = self._opened, None
            await opened.aclose()

    @classmethod
    def parse_uri_path(cls, path: str) -> dict[str, str]:
        """The directory of a URL: hutch:///var/tmp/cache."""
        return {"directory": path}


def _duration(ttl: Any) -> Seconds:
    """The duration of a ttl. A negative one is over at once, as in the memory of aiocache."""
    return 0 if isinstance(ttl, (int, float)) and ttl < 0 else lasting(ttl)


def _plus(value: Any, delta: int) -> Any:
    """The sum: whole, as in the memory of aiocache, and text if a serializer has made it text."""
    try:
        total = int(value) + delta
        return type(value)(total) if isinstance(value, str) else total
    except (TypeError, ValueError):
        raise TypeError("Value is not an integer") from None


AIOCACHE_CACHES[HutchCache.NAME] = HutchCache
