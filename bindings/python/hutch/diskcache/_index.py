"""A mapping in the order of insertion that stays."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from .._process import hint
from ._constants import ENOVAL
from .core import Cache

if TYPE_CHECKING:
    from .._types import DiskMemoizer
else:
    hint(globals(), "DiskMemoizer")


class Index(MutableMapping[Any, Any]):
    """A mapping that a directory keeps. No entry is culled.

        index = Index("~/.cache/index", {"a": 1}, b=2)

    Keys are equal if their stored forms are. Several processes may use it.

    Parameters: a directory (a str or bytes; None or omitted: a new temporary one), then those of
    dict.
    """

    _cache_type: ClassVar[type[Cache]] = Cache

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        directory = None
        if args and (args[0] is None or isinstance(args[0], (str, bytes))):
            directory, args = args[0], args[1:]
        directory = None if directory is None else os.fsdecode(directory)
        self._cache: Any = self._cache_type(directory, eviction_policy="none")
        self._update(*args, **kwargs)

    _update = MutableMapping.update  # Not the update of a subclass, as in python-diskcache.

    @classmethod
    def fromcache(cls, cache: Any, *args: Any, **kwargs: Any) -> Index:
        """An Index on an open cache, which should have eviction_policy "none"."""
        self = cls.__new__(cls)
        self._cache = cache
        self._update(*args, **kwargs)
        return self

    @property
    def cache(self) -> Any:
        """The cache that has the items."""
        return self._cache

    @property
    def directory(self) -> str:
        """The cache's directory."""
        directory: str = self._cache.directory
        return directory

    def __getitem__(self, key: Any) -> Any:
        return self._cache[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._cache[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._cache[key]

    def __contains__(self, key: object) -> bool:
        if type(self).__getitem__ is Index.__getitem__ and self._is_plain("__getitem__", "get"):
            return key in self._cache
        return super().__contains__(key)  # The subclass may have its own form of the keys.

    def __iter__(self) -> Iterator[Any]:
        """The keys in the order in which they were first stored."""
        return iter(self._cache)

    def __reversed__(self) -> Iterator[Any]:
        keys: Iterator[Any] = reversed(self._cache)
        return keys

    def __len__(self) -> int:
        return len(self._cache)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value of key; if there is none, default, which is stored."""
        while True:
            value = self._cache.get(key, default=ENOVAL, retry=True)
            if value is not ENOVAL:
                return value
            if not self._cache.add(key, default, retry=True):
                with self._cache.transact(retry=True):
                    # The file of an entry may be lost: to add there is one, to get there is none.
                    if self._cache.get(key, default=ENOVAL, retry=True) is ENOVAL:
                        self._cache.set(key, default, retry=True)

    def pop(self, key: Any, default: Any = ENOVAL) -> Any:
        """Remove key and return its value, or default. KeyError: neither is there."""
        value = self._cache.pop(key, default=default, retry=True)
        if value is ENOVAL:
            raise KeyError(key)
        return value

    def peekitem(self, last: bool = True) -> tuple[Any, Any]:
        """The key and value that were stored last, or first. KeyError: there is none."""
        item: tuple[Any, Any] = self._cache.peekitem(last, retry=True)
        return item

    def popitem(self, last: bool = True) -> tuple[Any, Any]:
        """Remove the item that was stored last, or first. KeyError: there is none."""
        item: tuple[Any, Any]
        if self._is_plain("__delitem__", "peekitem", "transact"):
            item = self._cache._popitem(last)
            return item
        with self._cache.transact(retry=True):
            item = self._cache.peekitem(last)
            del self._cache[item[0]]
        return item

    def _is_plain(self, *names: str) -> bool:
        """Whether the cache's calls are those of Cache, and no subclass has one of its own."""
        kind = type(self._cache)
        return all(getattr(kind, name, None) is getattr(Cache, name) for name in names)

    def push(self, value: Any, prefix: str | None = None, side: str = "back") -> Any:
        """Like Cache.push."""
        return self._cache.push(value, prefix, side, retry=True)

    def pull(
        self, prefix: str | None = None, default: Any = (None, None), side: str = "front"
    ) -> Any:
        """Like Cache.pull."""
        return self._cache.pull(prefix, default, side, retry=True)

    def clear(self) -> None:
        """Remove all items."""
        self._cache.clear(retry=True)

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> Any:
        return self.directory

    def __setstate__(self, state: Any) -> None:
        self.__init__(state)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        """Whether the items are equal; for an Index or an OrderedDict in the same order, too."""
        if not isinstance(other, Mapping):
            return NotImplemented
        if len(self) != len(other):
            return False
        if isinstance(other, (Index, OrderedDict)):
            return all(mine == its for mine, its in zip(self.items(), other.items()))
        return all(other.get(key, ENOVAL) == value for key, value in self.items())

    def __ne__(self, other: object) -> bool:
        return not self == other

    def memoize(
        self, name: str | None = None, typed: bool = False, ignore: Collection[Any] = ()
    ) -> DiskMemoizer:
        """Like Cache.memoize."""
        decorate: DiskMemoizer = self._cache.memoize(
            name, typed, ignore=ignore
        )
        return decorate

    @contextmanager
    def transact(self) -> Iterator[None]:
        """Exclude other writers: see Cache.transact."""
        with self._cache.transact(retry=True):
            yield

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.directory!r})"
