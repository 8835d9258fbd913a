"""Backends for frameworks: a hutch.Cache behind the cache interface of each.

================================  ================================================
module                            what it has
================================  ================================================
hutch.frameworks.django           a backend for CACHES in Django's settings
hutch.frameworks.cachelib         a cachelib.BaseCache, for Werkzeug, Flask-Session
hutch.frameworks.flask            a CACHE_TYPE of Flask-Caching
hutch.frameworks.dogpile          a backend of dogpile.cache, with a lock over
                                  processes
hutch.frameworks.aiocache         a cache of aiocache
hutch.frameworks.requests_cache   a backend of requests-cache
hutch.frameworks.joblib           a store backend of joblib.Memory
hutch.frameworks.requests         an adapter of requests over hutch.http
hutch.frameworks.httpx            transports of httpx over hutch.http
================================  ================================================

A module imports its framework when it is imported itself, and no other.

Values. Programs expect that any object can be a value in these frameworks. The backends therefore
store by pickle, through hutch.pickling. Unpickling runs code that the bytes choose: a directory
must be one that no other user can write to. There are two safe ways for other directories:

    serializer=None                       natural values only, in the package's own forms
    serializer=PickleSerializer(key=...)  pickle, and bytes without the key's code are not read

In aiocache this option is called cache_serializer, since serializer is aiocache's own. Values of
bytes, str and int are never pickled. joblib has a format of its own, which is always pickle, and
the backend of requests-cache stores JSON, and takes the serializers of requests-cache.

Options. They are those of hutch.Cache: memory, disk, storage, durability and the others. As with
it, several processes may have a directory open.

Refusals. A value that is too large for every tier, or finds no space, is not stored, and the old
value of its key is removed. The backends treat this as an immediate eviction.
"""

from __future__ import annotations

from typing import Any

from .._cbor import dumps
from .._cbor_read import loads

__all__ = ["NaturalSerializer"]


class NaturalSerializer:
    """A serializer of natural values, for places that ask for dumps and loads.

    It makes CBOR, and a read never runs code that the bytes choose. TypeError of dumps: the
    object is not a natural value. ValueError of loads: the bytes are not such a value.
    """

    name = "natural"

    def dumps(self, value: Any) -> bytes:
        return dumps(value)

    def loads(self, data: bytes) -> Any:
        return loads(data)
