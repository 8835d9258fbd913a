"""A backend of requests-cache: answers of HTTP servers, for requests.

    from hutch.frameworks.requests_cache import HutchCache
    from requests_cache import CachedSession

    session = CachedSession(backend=HutchCache("/var/tmp/http", disk="2 GB"), expire_after=3600)

requests-cache decides what is fresh, and may want an answer that is not, for instance while a
server is down: answers stay until they are replaced, deleted or evicted. They are stored as JSON,
from which a read never runs code. Several processes may have the directory open.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from .._cache import Cache
from ._backing import needs, own_key, stored

try:
    from requests_cache.backends.base import BaseCache, BaseStorage
except ImportError as error:
    raise needs("requests_cache", "requests-cache", "requests-cache") from error


class HutchDict(BaseStorage[str, Any]):
    """A mapping of requests-cache: the entries of a cache whose keys begin with a prefix.

    An answer that no tier takes is evicted at once. One that the serializer cannot read is None, as
    with every backend.
    """

    def __init__(self, cache: Cache, prefix: str, **options: Any) -> None:
        super().__init__(**options)
        self._cache = cache
        self._prefix = prefix

    def _key(self, key: str) -> str:
        name: str = own_key(self._prefix + key)
        return name

    def __getitem__(self, key: str) -> Any:
        found = self._cache.get(self._key(key))
        if found is None:
            raise KeyError(key)
        return self.deserialize(key, found)

    def __setitem__(self, key: str, value: Any) -> None:
        stored(self._cache.set, self._key(key), self.serialize(value), math.inf)

    def __delitem__(self, key: str) -> None:
        if not self._cache.delete(self._key(key)):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._key(key) in self._cache

    def __iter__(self) -> Iterator[str]:
        # All at once, since callers delete as they go.
        keys = [key for key in self._cache if type(key) is str]
        return (key[len(self._prefix) :] for key in keys if key.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def clear(self) -> None:
        self._cache.remove_prefix(self._prefix)

    def bulk_delete(self, keys: Any) -> None:
        self._cache.delete_many([self._key(key) for key in keys])


class HutchCache(BaseCache):
    """A cache of requests-cache above a hutch.Cache.

    Parameters:
        directory: as of hutch.Cache; None: in memory.
        serializer, decode_content: as of requests-cache's own backends; with "pickle", a read
            runs code that the stored bytes choose.
        options: those of hutch.Cache, but serializer.
    """

    def __init__(
        self,
        directory: Any = "http_cache",
        serializer: Any = "json",
        decode_content: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(cache_name=str(directory))
        self._cache = Cache(directory, **options)
        self.responses = HutchDict(
            self._cache, "response:", serializer=serializer, decode_content=decode_content
        )
        self.redirects = HutchDict(self._cache, "redirect:")

    def close(self) -> None:
        """Close the cache. It cannot be used afterwards."""
        super().close()
        self._cache.close()
