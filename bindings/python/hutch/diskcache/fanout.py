"""A cache in several directories, so that writers of different keys seldom wait for each other."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Callable, ClassVar, TypeVar

from .._process import hint, late
from ._base import Directory, full_path
from ._constants import DEFAULT_SETTINGS, ENOVAL, Timeout
from ._disk import Disk
from ._memoize import Memoizes
from .core import Cache
from .persistent import Deque, Index

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec, Self

    P = ParamSpec("P")
else:
    hint(globals(), "Self")

R = TypeVar("R")

_MEMORY = 64 << 20


def _of_shard(
    method: Callable[Concatenate[Cache, P], R], otherwise: R
) -> Callable[Concatenate[FanoutCache, P], R]:
    """The method of Cache on the shard of the key. otherwise: other writers took too long."""
    name: str = getattr(method, "__name__")

    @functools.wraps(method)
    def call(self: FanoutCache, /, *args: P.args, **kwargs: P.kwargs) -> R:
        shard = self._shard(args[0] if args else kwargs.get("key"))
        on_shard: Callable[P, R] = getattr(shard, name)
        try:
            return on_shard(*args, **kwargs)
        except Timeout:
            return otherwise

    call.__doc__ = f"Like Cache.{name}. {otherwise} also: other writers took too long."
    return call


class FanoutCache(Memoizes):
    """A cache that spreads its keys over shards, each a Cache in a directory of its own.

    The calls are those of Cache. If other writers take too long and retry is false, they do not
    raise Timeout, but return what they return without an entry, or when nothing was stored.

    Parameters:
        shards: their number.
        timeout: the time in seconds that a write waits for others of its shard.
        directory, disk, settings: as for Cache; size_limit is that of all shards together.
    """

    _cache_type: ClassVar[type[Cache]] = Cache
    _deque_type: ClassVar[type[Deque]] = Deque
    _index_type: ClassVar[type[Index]] = Index

    def __init__(
        self,
        directory: Directory = None,
        shards: int = 8,
        timeout: float = 0.010,
        disk: type[Disk] | None = None,
        **settings: Any,
    ) -> None:
        self._directory = full_path(directory)
        self._count = shards
        self._disk = disk = self._cache_type._disk_type if disk is None else disk
        size_limit = settings.pop("size_limit", DEFAULT_SETTINGS["size_limit"]) / shards
        self._shards = tuple(
            Cache(
                os.path.join(self._directory, f"{number:03d}"),
                timeout=timeout,
                disk=disk,
                size_limit=size_limit,
                _memory=_MEMORY // shards,
                **settings,
            )
            for number in range(shards)
        )
        self._hash = self._shards[0].disk.hash
        self._caches: dict[str, Cache] = {}
        self._deques: dict[str, Deque] = {}
        self._indexes: dict[str, Index] = {}

    @property
    def directory(self) -> str:
        """The directory that contains the shards."""
        return self._directory

    def __getattr__(self, name: str) -> Any:
        if name in DEFAULT_SETTINGS or name in ("timeout", "disk"):
            return getattr(self._shards[0], name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def _shard(self, key: Any) -> Cache:
        return self._shards[self._hash(key) % self._count]

    @contextmanager
    def transact(self, retry: bool = True) -> Iterator[None]:
        """Exclude other writers of all shards: see Cache.transact. It always waits."""
        if not retry:
            raise AssertionError("a FanoutCache's transact always waits: retry must be true")
        with ExitStack() as stack:
            for shard in self._shards:
                stack.enter_context(shard.transact(retry=True))
            yield

    # --------------------------------------------------------------- entries

    set = _of_shard(Cache.set, False)
    add = _of_shard(Cache.add, False)
    touch = _of_shard(Cache.touch, False)
    delete = _of_shard(Cache.delete, False)
    incr = _of_shard(Cache.incr, None)
    decr = _of_shard(Cache.decr, None)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Like set, with retry."""
        self._shard(key)[key] = value

    def get(
        self,
        key: Any,
        default: Any = None,
        read: bool = False,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Like Cache.get. default also: other writers took too long, or the disk failed."""
        shard = self._shard(key)
        try:
            return shard.get(key, default, read, expire_time, tag, retry)
        except Timeout:
            return default
        except Exception as error:
            with late:
                from .._errors import StorageError  # With ctypes, which a program may not need.

            if isinstance(error, StorageError):
                return default
            raise

    def __getitem__(self, key: Any) -> Any:
        """The value of key. KeyError: there is none."""
        return self._shard(key)[key]

    def read(self, key: Any) -> Any:
        """Like Cache.read."""
        file = self.get(key, default=ENOVAL, read=True, retry=True)
        if file is ENOVAL:
            raise KeyError(key)
        return file

    def __contains__(self, key: Any) -> bool:
        """Whether there is an entry that has not expired."""
        return key in self._shard(key)

    def pop(
        self,
        key: Any,
        default: Any = None,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Like Cache.pop. default also: other writers took too long."""
        try:
            return self._shard(key).pop(key, default, expire_time, tag, retry)
        except Timeout:
            return default

    def __delitem__(self, key: Any) -> None:
        """Remove the entry. KeyError: there is none."""
        del self._shard(key)[key]

    # ---------------------------------------------------------------- upkeep

    def check(self, fix: bool = False, retry: bool = False) -> list[Any]:
        """Like Cache.check, of all shards."""
        return list(chain.from_iterable(shard.check(fix, retry) for shard in self._shards))

    def expire(self, retry: bool = False) -> int:
        """Like Cache.expire, of all shards."""
        return self._remove("expire", (None,), retry)

    def evict(self, tag: Any, retry: bool = False) -> int:
        """Like Cache.evict, of all shards."""
        return self._remove("evict", (tag,), retry)

    def cull(self, retry: bool = False) -> int:
        """Like Cache.cull, of all shards."""
        return self._remove("cull", (), retry)

    def clear(self, retry: bool = False) -> int:
        """Like Cache.clear, of all shards."""
        return self._remove("clear", (), retry)

    def _remove(self, name: str, args: tuple[Any, ...], retry: bool) -> int:
        removed = 0
        for shard in self._shards:
            while True:
                try:
                    removed += getattr(shard, name)(*args, retry=retry)
                    break
                except Timeout as timeout:
                    removed += timeout.args[0]
        return removed

    def create_tag_index(self) -> None:
        """Like Cache.create_tag_index."""
        for shard in self._shards:
            shard.create_tag_index()

    def drop_tag_index(self) -> None:
        """Like Cache.drop_tag_index."""
        for shard in self._shards:
            shard.drop_tag_index()

    def stats(self, enable: bool = True, reset: bool = False) -> tuple[int, int]:
        """Like Cache.stats, the sums of all shards."""
        each = [shard.stats(enable, reset) for shard in self._shards]
        return sum(hits for hits, _ in each), sum(misses for _, misses in each)

    def volume(self) -> int:
        """Like Cache.volume, the sum of all shards."""
        return sum(shard.volume() for shard in self._shards)

    def reset(self, key: str, value: Any = ENOVAL) -> Any:
        """Like Cache.reset, on each shard; returns the result of the last one."""
        result = None
        for shard in self._shards:
            while True:
                try:
                    result = shard.reset(key, value)
                    break
                except Timeout:
                    continue
        return result

    def close(self) -> None:
        """Like Cache.close, on all shards. The results of cache, deque and index are forgotten."""
        for shard in self._shards:
            shard.close()
        self._caches.clear()
        self._deques.clear()
        self._indexes.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> Any:
        return self._directory, self._count, self.timeout, type(self.disk)

    def __setstate__(self, state: Any) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __iter__(self) -> Iterator[Any]:
        """The keys, shard by shard."""
        return chain.from_iterable(map(iter, self._shards))

    def __reversed__(self) -> Iterator[Any]:
        """The keys in the opposite order."""
        return chain.from_iterable(map(reversed, reversed(self._shards)))

    def __len__(self) -> int:
        """The entries of all shards."""
        return sum(map(len, self._shards))

    # ------------------------------------------------------- further caches

    def cache(
        self, name: str, timeout: float = 60, disk: type[Disk] | None = None, **settings: Any
    ) -> Cache:
        """A Cache in a directory within this one's; the same object for the same name."""
        if name not in self._caches:
            self._caches[name] = self._further("cache", name, timeout, disk, **settings)
        return self._caches[name]

    def deque(self, name: str, maxlen: int | None = None) -> Deque:
        """A Deque in a directory within this one's; the same object for the same name."""
        if name not in self._deques:
            cache = self._further("deque", name, eviction_policy="none")
            self._deques[name] = self._deque_type.fromcache(cache, maxlen=maxlen)
        return self._deques[name]

    def index(self, name: str) -> Index:
        """An Index in a directory within this one's; the same object for the same name."""
        if name not in self._indexes:
            cache = self._further("index", name, eviction_policy="none")
            self._indexes[name] = self._index_type.fromcache(cache)
        return self._indexes[name]

    def _further(
        self,
        kind: str,
        name: str,
        timeout: float = 60,
        disk: type[Disk] | None = None,
        **settings: Any,
    ) -> Cache:
        if not isinstance(name, str):
            raise TypeError(f"the name of a {kind} is a str, not {name!r}")
        directory = os.path.join(self._directory, kind, *name.split("/"))
        return self._cache_type(directory, timeout, disk or self._disk, **settings)
