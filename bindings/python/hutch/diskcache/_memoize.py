"""Functions with cached results, under keys as python-diskcache makes them."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Callable

from .._process import hint
from ._constants import ENOVAL

if TYPE_CHECKING:
    from .._types import DiskMemoizer
else:
    hint(globals(), "DiskMemoizer")


def full_name(func: Callable[..., Any]) -> str:
    """The module and the qualified name of a function."""
    return f"{func.__module__}.{func.__qualname__}"


def args_to_key(
    base: tuple[Any, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    typed: bool,
    ignore: Collection[Any],
) -> tuple[Any, ...]:
    """The key of a call: base, the positional arguments, None, names and values by name.

    typed: the types of all arguments follow. ignore: positions and names that do not count.
    """
    positional = tuple(arg for place, arg in enumerate(args) if place not in ignore)
    named = sorted((name, value) for name, value in kwargs.items() if name not in ignore)
    key = (*base, *positional, None)
    for pair in named:
        key += pair
    if typed:
        key += tuple(map(type, positional)) + tuple(type(value) for _, value in named)
    return key


def memoizer(
    lookup: Callable[[Any], Any],
    keep: Callable[[Any, Any], Any],
    name: str | None,
    typed: bool,
    ignore: Collection[Any],
) -> DiskMemoizer:
    """A decorator that looks a result up (ENOVAL: there is none), and stores a new one."""
    if callable(name):
        raise TypeError("name cannot be callable: write @cache.memoize(), with parentheses")

    def decorate(func: Callable[..., Any]) -> Any:
        base = (full_name(func) if name is None else name,)

        def cache_key(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
            return args_to_key(base, args, kwargs, typed, ignore)

        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            key = cache_key(*args, **kwargs)
            result = lookup(key)
            if result is ENOVAL:
                result = func(*args, **kwargs)
                keep(key, result)
            return result

        wrapper.__cache_key__ = cache_key  # type: ignore[attr-defined]
        return wrapper

    return decorate


class Memoizes:
    """The call of a cache."""

    get: Any
    set: Any

    def memoize(
        self,
        name: str | None = None,
        typed: bool = False,
        expire: float | None = None,
        tag: Any = None,
        ignore: Collection[Any] = (),
    ) -> DiskMemoizer:
        """Decorator: cache the results of a function, by its arguments.

        name: None: the function's module and qualified name. typed: whether arguments of
        different types are different. expire, tag: as in set; results are not cached if expire
        is 0. ignore: positions and names of arguments that do not count. The key of a call is
        __cache_key__(*args, **kwargs) of the decorated function, which is __wrapped__.
        """

        def lookup(key: Any) -> Any:
            return self.get(key, default=ENOVAL, retry=True)

        def keep(key: Any, result: Any) -> None:
            if expire is None or expire > 0:
                self.set(key, result, expire=expire, tag=tag, retry=True)

        return memoizer(lookup, keep, name, typed, ignore)
