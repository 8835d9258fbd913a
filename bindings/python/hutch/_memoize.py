"""The decorator that caches the results of functions."""

from __future__ import annotations

import contextvars
import functools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, TypeVar

from . import _accelerator
from ._call_keys import call_key, name_of
from ._errors import DeadlockError, LoadError, TimedOutError
from ._loads import Loads, load
from ._units import Seconds, nanoseconds

if TYPE_CHECKING:
    from ._types import Memoizer

_MISSING = object()
# The failure of a caller that waits for the function's result in another thread.
_OF_ANOTHER = (LoadError, TimedOutError, DeadlockError)
# How often a call may make its result itself within calls that do. A coroutine that awaits its own
# result does so without end, since coroutines that await each other do not reach Python's limit.
_DEEPEST = 100
_depth: contextvars.ContextVar[int] = contextvars.ContextVar("hutch depth", default=0)


class CacheInfo(NamedTuple):
    """Statistics of a memoized function, in the form of functools.

    Attributes:
        hits, misses: of this decorated function, in this process.
        maxsize: None: the cache has the limits.
        currsize: how many results the cache has, counted by a walk over all keys.
    """

    hits: int
    misses: int
    maxsize: int | None
    currsize: int


class Choices(NamedTuple):
    """The parameters of memoize."""

    typed: bool
    expire: Seconds | None
    idle: Seconds | None
    ignore: frozenset[int | str]
    refresh: Seconds | None
    stale_if_error: bool
    tag: Any


class _Function(Loads):
    """A memoized function: the common part of both kinds of wrapper."""

    is_alone = True

    def __init__(
        self, cache: Any, function: Any, name: str | None, choices: Choices
    ) -> None:
        put = choices.expire, choices.idle, None, choices.tag
        times = math.inf, choices.refresh, None, choices.stale_if_error
        super().__init__(cache, function, put, times, choices.refresh is not None)
        self.choices = choices
        self.fast: Any = None  # The wrapper, if it is in C, with the hits that C has counted.
        inner = function
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        while isinstance(inner, functools.partial):
            self._args = inner.args + self._args
            self._kwargs = {**inner.keywords, **self._kwargs}
            inner = inner.func
        self.is_coroutine = _is_coroutine(inner)
        # The first parenthesis of a key ends its name, so that no name begins another one's keys.
        start = name_of(inner) if name is None else name
        self.name = start.replace("%", "%25").replace("(", "%28")
        self.ignore = _positions_and_names(inner, choices.ignore)

    def has_parameters(self) -> bool:
        """Whether each call has parameters of a partial, besides its own."""
        return bool(self._args or self._kwargs)

    def key_of(self, /, *args: Any, **kwargs: Any) -> str:
        """The key of a call."""
        if self.has_parameters():
            args, kwargs = self._args + args, {**self._kwargs, **kwargs}
        return call_key(self.name, args, kwargs, self.choices.typed, self.ignore)

    def info(self) -> CacheInfo:
        hits = self.hits + (0 if self.fast is None else self.fast._hits)
        return CacheInfo(hits, self.misses, None, len(self._keys()))

    def parameters(self) -> dict[str, Any]:
        """As functools.lru_cache has them; the cache has the limits."""
        return {"maxsize": None, "typed": self.choices.typed}

    def clear(self) -> None:
        self.hits = self.misses = 0
        if self.fast is not None:
            self.fast._hits = 0
        self.cache.remove_prefix(self.name + "(")

    def _keys(self) -> list[str]:
        start = self.name + "("
        return [key for key in self.cache if type(key) is str and key.startswith(start)]


def _is_coroutine(function: Any) -> bool:
    import inspect

    call = function if hasattr(function, "__code__") else getattr(function, "__call__", None)
    kinds = inspect.isasyncgenfunction, inspect.isgeneratorfunction
    if any(is_one(each) for is_one in kinds for each in (function, call)):
        raise TypeError("what a generator function returns is no value: it can be read once")
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _positions_and_names(function: Any, ignore: frozenset[Any]) -> frozenset[Any]:
    """The ignored parameters, by position and by name, in whichever way they were given.
    ValueError: the function has no such parameter, so that the name may be misspelt."""
    if not ignore:
        return ignore
    import inspect

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ignore
    both = set(ignore)
    unknown = set(ignore)
    for place, parameter in enumerate(parameters):
        if parameter.kind is parameter.VAR_POSITIONAL:
            unknown = {word for word in unknown if isinstance(word, str)}
        elif parameter.kind is parameter.VAR_KEYWORD:
            unknown = {word for word in unknown if not isinstance(word, str)}
        elif parameter.kind is parameter.KEYWORD_ONLY:
            unknown.discard(parameter.name)
        elif parameter.name in ignore or place in ignore:
            both |= {parameter.name, place}
            unknown -= {parameter.name, place}
    if unknown:
        words = ", ".join(sorted(map(repr, unknown)))
        raise ValueError(f"ignore names {words}, of which {function!r} has no parameter")
    return frozenset(both)


def ignored(words: Any) -> frozenset[int | str]:
    """memoize's ignore, checked. TypeError: it is no collection of positions and names."""
    if isinstance(words, (str, bytes)) or not isinstance(words, Iterable):
        raise TypeError(f"ignore is a collection of names and positions, not {words!r}")
    found = frozenset(words)
    for word in found:
        if not isinstance(word, (int, str)):
            raise TypeError(f"ignore has names and positions, not a {type(word).__name__}")
    return found


def memoize(cache: Any, name: str | None, choices: Choices) -> Any:
    """See Entries.memoize."""
    if callable(name):
        raise TypeError("use @cache.memoize(), with parentheses")
    if not (name is None or isinstance(name, str)):
        raise TypeError(f"the name of a function is a str, not a {type(name).__name__}")

    def decorate(function: Any) -> Any:
        kind = type(function)
        if isinstance(function, (classmethod, staticmethod)):
            raise TypeError(f"memoize decorates a function: @{kind.__name__} goes above it")
        if not callable(function):
            raise TypeError(f"memoize decorates a function, not a {kind.__name__}")
        own = _Function(cache, function, name, choices)
        wrapper: Any = _coroutine_wrapper(own) if own.is_coroutine else _wrapper(own)
        wrapper.__cache_key__ = own.key_of
        wrapper.cache_info = own.info
        wrapper.cache_clear = own.clear
        wrapper.cache_parameters = own.parameters
        return wrapper

    return decorate


def _wrapper(own: _Function) -> Any:
    def loading(*args: Any, **kwargs: Any) -> Any:
        return load(own, *args, **kwargs)

    def whole(*args: Any, **kwargs: Any) -> Any:
        result = own.cache.get(own.key_of(*args, **kwargs), _MISSING)
        if result is _MISSING:
            return load(own, *args, **kwargs)
        own.hits += 1
        return result

    if own.background:
        return functools.update_wrapper(loading, own.function)
    own.fast = _in_c(own, whole)
    return functools.update_wrapper(whole if own.fast is None else own.fast, own.function)


def _in_c(own: _Function, whole: Any) -> Any:
    """The wrapper whose hits are in C; None: there is none for this cache and this function."""
    module = _accelerator.module
    if module is None or own.has_parameters() or not _accelerator.has_fast_get(own.cache):
        return None
    try:
        return module.Memoized(
            own.cache, own.name, own.choices.typed, own.ignore, whole, functools.partial(load, own)
        )
    except UnicodeEncodeError:
        return None


def _coroutine_wrapper(own: _Function) -> Any:
    cache, function = own.cache, own.function
    expire, idle, _, tag = own.put
    timeout, soft, _, stale_if_error = own.times
    options: dict[str, Any] = {
        "idle": idle,
        "timeout": timeout,
        "refresh": soft,
        "stale_if_error": stale_if_error,
        "tag": tag,
    }
    refresh = None if soft is None else nanoseconds(soft)
    refreshing: dict[str, Any] = {}

    def refresh_later(key: str, make: Any) -> None:
        import asyncio

        under_way = refreshing.get(key)
        # A task of a loop that is closed goes on no more, and never ends.
        if under_way is not None and not under_way.get_loop().is_closed():
            return
        task = asyncio.ensure_future(cache.aload(key, make, expire, **options))
        refreshing[key] = task

        def end(ended: Any) -> None:
            if refreshing.get(key) is ended:
                del refreshing[key]
            # The library has logged its exception, and no caller reads it.
            if not ended.cancelled():
                ended.exception()

        task.add_done_callback(end)

    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        key = own.key_of(*args, **kwargs)
        called = False  # A miss if the function was called, else a hit.

        async def make(_: Any) -> Any:
            nonlocal called
            called = True
            return await function(*args, **kwargs)

        result = await cache.aget(key, _MISSING)
        if result is not _MISSING:
            own.hits += 1
            if refresh is not None:
                info = cache.info(key)
                if info is not None and cache._now() - info.created * 1e9 >= refresh:
                    refresh_later(key, make)
            return result
        try:
            try:
                return await cache.aload(key, make, expire, **options)
            except _OF_ANOTHER:
                if called:
                    raise
            return cache._as_stored(await make_within(key, make))
        finally:
            own.misses += called
            own.hits += not called

    async def make_within(key: str, make: Any) -> Any:
        depth = _depth.get()
        if depth >= _DEEPEST:
            raise RecursionError(f"{key} awaits its own result")
        _depth.set(depth + 1)
        try:
            return await make(key)
        finally:
            # The collection of a coroutine ends it in the context of another one.
            if _depth.get() == depth + 1:
                _depth.set(depth)

    return wrapper
