"""Results that one thread computes again before they expire.

After Vattani, Chierichetti and Lowenstein, "Optimal Probabilistic Cache Stampede Prevention",
VLDB 2015: the nearer the expiry of a result, and the longer its computation takes, the more
likely a call computes it again.
"""

from __future__ import annotations

import functools
import math
import random
import threading
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Callable

from .._process import hint
from ._constants import ENOVAL
from ._memoize import args_to_key, full_name

if TYPE_CHECKING:
    from .._types import DiskMemoizer
else:
    hint(globals(), "DiskMemoizer")


def memoize_stampede(
    cache: Any,
    expire: float,
    name: str | None = None,
    typed: bool = False,
    tag: Any = None,
    beta: float = 1,
    ignore: Collection[Any] = (),
) -> DiskMemoizer:
    """Decorator: like Cache.memoize, with early renewal by a thread in the background.

    expire: of a result, in seconds. beta: above 1 renews earlier, below 1 later.
    """

    def decorate(func: Callable[..., Any]) -> Any:
        base = (full_name(func) if name is None else name,)

        def cache_key(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
            return args_to_key(base, args, kwargs, typed, ignore)

        def make(key: Any, args: Any, kwargs: Any) -> Any:
            start = time.time()
            result = func(*args, **kwargs)
            pair = (result, time.time() - start)
            cache.set(key, pair, expire=expire, tag=tag, retry=True)
            return result

        def renew(key: Any, args: Any, kwargs: Any) -> None:
            try:
                make(key, args, kwargs)
            finally:
                cache.close()

        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            key = cache_key(*args, **kwargs)
            pair, end = cache.get(key, default=ENOVAL, expire_time=True, retry=True)
            if pair is ENOVAL:
                return make(key, args, kwargs)
            result, took = pair
            early = -took * beta * math.log(1 - random.random())
            if end - time.time() <= early:
                # Of several callers, the one that adds this entry starts a thread.
                if cache.add((*key, ENOVAL), None, expire=took, retry=True):
                    threading.Thread(target=renew, args=(key, args, kwargs), daemon=True).start()
            return result

        wrapper.__cache_key__ = cache_key  # type: ignore[attr-defined]
        return wrapper

    return decorate
