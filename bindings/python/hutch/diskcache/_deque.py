"""A sequence with two ends, in a cache's queue."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Callable, ClassVar

from ._base import Directory
from ._constants import ENOVAL
from .core import Cache

_NOTHING = (None, ENOVAL)


class Deque(Sequence[Any]):
    """The values of a queue, fast at both ends, in a directory that keeps them.

        deque = Deque("abc", "~/.cache/jobs")
        deque.append("d")
        deque.popleft()

    No entry is culled. Several processes may use it. Access to values in the middle takes steps
    from the nearer end.

    Parameters:
        iterable: the first values.
        directory: as for Cache.
        maxlen: above it a put removes a value at the other end; None: no limit.
    """

    _cache_type: ClassVar[type[Cache]] = Cache

    def __init__(
        self,
        iterable: Iterable[Any] = (),
        directory: Directory = None,
        maxlen: float | None = None,
    ) -> None:
        self._begin(self._cache_type(directory, eviction_policy="none"), iterable, maxlen)

    @classmethod
    def fromcache(
        cls, cache: Any, iterable: Iterable[Any] = (), maxlen: float | None = None
    ) -> Deque:
        """A Deque on an open cache, which should have eviction_policy "none"."""
        self = cls.__new__(cls)
        self._begin(cache, iterable, maxlen)
        return self

    def _begin(self, cache: Any, iterable: Iterable[Any], maxlen: float | None) -> None:
        self._cache = cache
        self._maxlen = float("inf") if maxlen is None else maxlen
        self._extend(iterable)

    @property
    def cache(self) -> Any:
        """The cache that has the values."""
        return self._cache

    @property
    def directory(self) -> str:
        """The cache's directory."""
        directory: str = self._cache.directory
        return directory

    @property
    def maxlen(self) -> float:
        """The limit on the length; infinity: none. A smaller one removes values from the left."""
        return self._maxlen

    @maxlen.setter
    def maxlen(self, value: float) -> None:
        self._maxlen = value
        with self._cache.transact(retry=True):
            while len(self._cache) > self._maxlen:
                self._popleft()

    # -------------------------------------------------------------- by index

    def _at(self, index: int, call: Callable[[Any], Any]) -> Any:
        """The result of a call with the key at an index, or with the next if that is removed."""
        length = len(self)
        if not -length <= index < length:
            raise IndexError("deque index out of range")
        skip = index if index >= 0 else -index - 1
        for key in self._cache.iterkeys(reverse=index < 0) if index < 0 else self._cache.iterkeys():
            if skip:
                skip -= 1
                continue
            try:
                return call(key)
            except KeyError:
                continue
        raise IndexError("deque index out of range")

    def __getitem__(self, index: Any) -> Any:
        """The value at an index. IndexError: there is none."""
        return self._at(index, self._cache.__getitem__)

    def __setitem__(self, index: int, value: Any) -> None:
        """Replace the value at an index. IndexError: there is none."""
        self._at(index, lambda key: self._cache.__setitem__(key, value))

    def __delitem__(self, index: int) -> None:
        """Remove the value at an index. IndexError: there is none."""
        self._at(index, self._cache.__delitem__)

    # --------------------------------------------------------------- as whole

    def __repr__(self) -> str:
        return f"{type(self).__name__}(directory={self.directory!r})"

    def __len__(self) -> int:
        return len(self._cache)

    def __iter__(self) -> Iterator[Any]:
        """The values from the left, without those that are removed meanwhile."""
        return self._values(self._cache.iterkeys())

    def __reversed__(self) -> Iterator[Any]:
        """The values from the right."""
        return self._values(self._cache.iterkeys(reverse=True))

    def _values(self, keys: Iterable[Any]) -> Iterator[Any]:
        for key in keys:
            try:
                value = self._cache[key]
            except KeyError:
                continue
            yield value

    def _compared(self, other: Any, compare: Callable[[Any, Any], bool]) -> Any:
        """Compares like sequences: by the first values that differ, or else by length."""
        if not isinstance(other, Sequence):
            return NotImplemented
        if compare in (operator.eq, operator.ne) and len(self) != len(other):
            return compare is operator.ne
        for mine, its in zip(self, other):
            if mine != its:
                return compare(mine, its)
        return compare(len(self), len(other))

    def __eq__(self, other: object) -> Any:
        return self._compared(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return self._compared(other, operator.ne)

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, operator.lt)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, operator.gt)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, operator.le)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, operator.ge)

    __hash__ = None  # type: ignore[assignment]

    def __iadd__(self, iterable: Iterable[Any]) -> Deque:
        """Like extend."""
        self._extend(iterable)
        return self

    def __getstate__(self) -> Any:
        return self.directory, self.maxlen

    def __setstate__(self, state: Any) -> None:
        directory, maxlen = state
        self.__init__(directory=directory, maxlen=maxlen)  # type: ignore[misc]

    def copy(self) -> Deque:
        """Another Deque on the same directory: the values are the same ones."""
        return type(self)(directory=self.directory, maxlen=self.maxlen)

    def count(self, value: Any) -> int:
        """The number of values equal to this one."""
        return sum(1 for item in self if item == value)

    @contextmanager
    def transact(self) -> Iterator[None]:
        """Exclude other writers: see Cache.transact."""
        with self._cache.transact(retry=True):
            yield

    # ------------------------------------------------------------- at the ends
    #
    # As in python-diskcache, one method calls another by the name with "_": a subclass that stores
    # other values by an append and extend of its own would have them converted twice.

    def append(self, value: Any) -> None:
        """Add a value at the right."""
        with self._cache.transact(retry=True):
            self._cache.push(value, retry=True)
            if len(self._cache) > self._maxlen:
                self._popleft()

    _append = append

    def appendleft(self, value: Any) -> None:
        """Add a value at the left."""
        with self._cache.transact(retry=True):
            self._cache.push(value, side="front", retry=True)
            if len(self._cache) > self._maxlen:
                self._pop()

    _appendleft = appendleft

    def extend(self, iterable: Iterable[Any]) -> None:
        """Append each value."""
        for value in iterable:
            self._append(value)

    _extend = extend

    def extendleft(self, iterable: Iterable[Any]) -> None:
        """Append each value at the left, so that the last one comes first."""
        for value in iterable:
            self._appendleft(value)

    def pop(self) -> Any:
        """Remove the value at the right. IndexError: there is none."""
        return self._end(self._cache.pull, "back", "pop")

    _pop = pop

    def popleft(self) -> Any:
        """Remove the value at the left. IndexError: there is none."""
        return self._end(self._cache.pull, "front", "pop")

    _popleft = popleft

    def peek(self) -> Any:
        """The value at the right. IndexError: there is none."""
        return self._end(self._cache.peek, "back", "peek")

    def peekleft(self) -> Any:
        """The value at the left. IndexError: there is none."""
        return self._end(self._cache.peek, "front", "peek")

    def _end(self, call: Callable[..., Any], side: str, what: str) -> Any:
        _, value = call(default=_NOTHING, side=side, retry=True)
        if value is ENOVAL:
            raise IndexError(f"{what} from an empty deque")
        return value

    def clear(self) -> None:
        """Remove all values."""
        self._cache.clear(retry=True)

    _clear = clear

    def remove(self, value: Any) -> None:
        """Remove the first value that is equal to this. ValueError: there is none."""
        for key in self._cache.iterkeys():
            try:
                if self._cache[key] == value:
                    del self._cache[key]
                    return
            except KeyError:
                continue
        raise ValueError("deque.remove(value): value not in deque")

    def reverse(self) -> None:
        """Reverse the order. Takes memory for all values."""
        with self._cache.transact(retry=True):
            values = list(reversed(self))
            self._clear()
            self._extend(values)

    def rotate(self, steps: int = 1) -> None:
        """Move this many values from the right to the left; below 0 the other way."""
        if not isinstance(steps, int):
            raise TypeError(f"integer argument expected, got {type(steps).__name__}")
        length = len(self)
        if not length:
            return
        take, give = self._popleft, self._append
        if steps >= 0:
            take, give = self._pop, self._appendleft
        for _ in range(abs(steps) % length):
            try:
                value = take()
            except IndexError:
                return
            give(value)
