"""Numbers that several processes share in an entry of a cache: an average, and a rate of calls.

The entry must not be culled: use a cache with eviction_policy "none".
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, Callable

from .._process import hint
from ._memoize import full_name

if TYPE_CHECKING:
    from .._types import Decorator
else:
    hint(globals(), "Decorator")

_NONE_YET = (0.0, 0)


class Averager:
    """The average of numbers that come one by one.

    Parameters:
        cache: a Cache or a FanoutCache.
        key, expire, tag: of the entry.
    """

    def __init__(
        self, cache: Any, key: Any, expire: float | None = None, tag: Any = None
    ) -> None:
        self._cache = cache
        self._key = key
        self._expire = expire
        self._tag = tag

    def add(self, value: float) -> None:
        """Add a number."""
        with self._cache.transact(retry=True):
            total, count = self._cache.get(self._key, default=_NONE_YET)
            pair = (total + value, count + 1)
            self._cache.set(self._key, pair, expire=self._expire, tag=self._tag, retry=True)

    def get(self) -> float | None:
        """The average; None: there is no number yet."""
        return _average(self._cache.get(self._key, default=_NONE_YET, retry=True))

    def pop(self) -> float | None:
        """Return the average, and start again."""
        return _average(self._cache.pop(self._key, default=_NONE_YET, retry=True))


def _average(pair: Any) -> float | None:
    total, count = pair
    return total / count if count else None


def throttle(
    cache: Any,
    count: int,
    seconds: float,
    name: str | None = None,
    expire: float | None = None,
    tag: Any = None,
    time_func: Callable[[], float] = time.time,
    sleep_func: Callable[[float], Any] = time.sleep,
) -> Decorator:
    """Decorator: allow count calls of a function in this many seconds, over all processes.

    A bucket that holds count calls fills at that rate; a call that finds it empty waits.
    """

    def decorate(func: Callable[..., Any]) -> Any:
        rate = count / float(seconds)
        key = full_name(func) if name is None else name
        cache.set(key, (time_func(), count), expire=expire, tag=tag, retry=True)

        def wait() -> float:
            """Take a call from the bucket; otherwise the seconds until there is one."""
            with cache.transact(retry=True):
                now = time_func()
                last, left = cache.get(key, default=(now, count), retry=True)
                left = min(count, left + (now - last) * rate)
                if left < 1:
                    return float((1 - left) / rate)
                cache.set(key, (now, left - 1), expire=expire, tag=tag, retry=True)
                return 0.0

        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            while True:
                delay = wait()
                if not delay:
                    return func(*args, **kwargs)
                sleep_func(delay)

        return wrapper

    return decorate
