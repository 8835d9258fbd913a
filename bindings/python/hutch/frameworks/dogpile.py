"""A backend of dogpile.cache.

    from dogpile.cache import make_region

    region = make_region().configure(
        "hutch",
        expiration_time=300,
        arguments={"directory": "/var/tmp/cache", "disk": "2 GB"},
    )

dogpile.cache finds the name "hutch" where the package is installed; elsewhere an import of this
module registers it. The region measures expiration_time, and old values stay where they are, so
that one caller makes a new one while the others get the old.

By default the region's values are pickled: see hutch.frameworks on what that means. The argument
serializer, or the region's own serializer and deserializer, choose another form. Bytes that the
serializer cannot read count as missing.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from threading import get_ident
from typing import Any

from .._cache import Cache
from .._errors import Error
from .._serializers import needs_stack
from ..pickling import PickleSerializer
from . import NaturalSerializer
from ._backing import lasting, needs, open_cache, own_key, refused, stored

try:
    from dogpile.cache import register_backend
    from dogpile.cache.api import NO_VALUE, BytesBackend, CacheMutex, CantDeserializeException
except ImportError as error:
    raise needs("dogpile", "dogpile.cache", "dogpile.cache") from error


class HutchBackend(BytesBackend):
    """A backend of dogpile.cache above a hutch.Cache.

    Arguments, of which all that are not named here are options of hutch.Cache:
        directory: None: in memory.
        cache: a hutch.Cache that is open, instead of a directory and options.
        expire: after how many seconds the store drops a value; None: when it is evicted. If it is
            given it should be above the region's expiration_time.
        serializer: an object with dumps and loads; None: natural values.
        distributed_lock: whether one caller of all processes makes a value; False: one of each.
        lock_timeout: after how many seconds another caller may make the value although the lock
            was not released.
        lock_sleep: how often a waiting caller looks for the lock, in seconds.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        options = dict(arguments)
        self._distributed_lock = bool(options.pop("distributed_lock", False))
        self._lock_timeout = float(options.pop("lock_timeout", 60))
        self._lock_sleep = float(options.pop("lock_sleep", 0.05))
        self._expire = lasting(options.pop("expire", None))
        serializer = options.pop("serializer", PickleSerializer()) or NaturalSerializer()

        def deserialize(data: bytes) -> Any:
            try:
                return serializer.loads(data)
            except Exception as error:
                if isinstance(error, RecursionError) and needs_stack(serializer.loads, data):
                    raise  # The value is good, and a region would replace it.
                raise CantDeserializeException(f"{type(error).__name__}: {error}") from error

        self.serializer = serializer.dumps
        self.deserializer = deserialize
        cache = options.pop("cache", None)
        if cache is None:
            # The region stores bytes, and no serializer of the cache has a part in it.
            cache = open_cache(options.pop("directory", None), {**options, "serializer": None})
        self._cache: Cache = cache

    def has_lock_timeout(self) -> bool:
        return self._distributed_lock

    def get_mutex(self, key: str) -> CacheMutex | None:
        if not self._distributed_lock:
            return None
        return Mutex(self._cache, key, self._lock_timeout, self._lock_sleep)

    def get_serialized(self, key: str) -> Any:
        return _bytes(self._cache.get(own_key(key)))

    def get_serialized_multi(self, keys: Iterable[str]) -> Sequence[Any]:
        keys = list(map(own_key, keys))
        found = self._cache.get_many(keys)
        return [_bytes(found.get(key)) for key in keys]

    def set_serialized(self, key: str, value: bytes) -> None:
        stored(self._cache.set, own_key(key), value, self._expire)

    def set_serialized_multi(self, mapping: Mapping[str, bytes]) -> None:
        try:
            own = {own_key(key): value for key, value in mapping.items()}
            self._cache.set_many(own, self._expire)
        except Error as error:
            refused(error)

    def delete(self, key: str) -> None:
        self._cache.delete(own_key(key))

    def delete_multi(self, keys: Iterable[str]) -> None:
        self._cache.delete_many(map(own_key, keys))

    def close(self) -> None:
        """Close the cache; every later call is a hutch.ClosedError."""
        self._cache.close()


def _bytes(value: Any) -> Any:
    """What was stored, if it is bytes: the directory may have other values of others."""
    return value if isinstance(value, bytes) else NO_VALUE


class Mutex(CacheMutex):
    """A lock that is an entry of the cache, and so one for all processes that share it.

    It is a lease: the entry expires after a time, and may be evicted before. Two callers then make
    the same value, which costs time but is no fault.
    """

    def __init__(self, cache: Cache, key: str, timeout: float, sleep: float) -> None:
        self._cache = cache
        self._key = ("hutch.frameworks.dogpile lock", own_key(key))
        # By the thread that acquired: the threads of a process may share this object.
        self._tokens: dict[int, bytes] = {}
        self._timeout = timeout
        self._sleep = sleep

    def acquire(self, wait: bool = True) -> bool:
        token = os.urandom(16)
        while not self._cache.add(self._key, token, self._timeout, idle=math.inf):
            if not wait:
                return False
            time.sleep(self._sleep)
        self._tokens[get_ident()] = token
        return True

    def release(self) -> None:
        # This thread's own; or the first, since a runner of the region may release on its thread.
        for thread in (get_ident(), *self._tokens):
            token = self._tokens.pop(thread, None)
            if token is not None:
                # If the lease has run out the entry is another caller's.
                if self._cache.get(self._key) == token:
                    self._cache.delete(self._key)
                return

    def locked(self) -> bool:
        return self._key in self._cache


register_backend("hutch", __name__, "HutchBackend")
