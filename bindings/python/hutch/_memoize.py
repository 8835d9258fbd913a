"""Keys made of a function's name and arguments, and the decorator that uses them."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Callable

from ._codec import decode_value, encode_value

if TYPE_CHECKING:
    from ._entries import Entries
    from ._records import Seconds

_LONGEST = 1000
_MISSING = object()


def call_key(
    name: str, args: tuple[Any, ...], kwargs: Any, typed: bool, ignore: Collection[Any]
) -> str:
    """The key of a call, "module.function(1, 'a', b=2.5)"; a digest in place of long arguments.

    Different arguments give different keys: each is written as its literal,
    and a digest is SHA-256. TypeError: an argument that has no such form.
    """
    parts = [_literal(arg, typed) for place, arg in enumerate(args) if place not in ignore]
    parts += [
        f"{key}={_literal(kwargs[key], typed)}" for key in sorted(kwargs) if key not in ignore
    ]
    text = ", ".join(parts)
    if len(text) > _LONGEST:
        # No literal begins with a hash sign, so a digest is no argument's own text.
        text = "#" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name}({text})"


def _literal(value: Any, typed: bool) -> str:
    kind = type(value)
    if not typed and (kind is bool or kind is float and value.is_integer()):
        value, kind = int(value), int
    if kind is int:
        # Hexadecimal where decimal is slow, and where Python refuses it.
        return repr(value) if -(2**63) <= value < 2**63 else hex(value)
    if value is None or kind in (bool, float, str, bytes):
        return repr(value)
    if kind is list:
        return "[" + ", ".join(_literal(item, typed) for item in value) + "]"
    if kind is tuple:
        return "(" + "".join(_literal(item, typed) + "," for item in value) + ")"
    if kind is dict:
        pairs = ((_literal(key, typed), _literal(item, typed)) for key, item in value.items())
        return "{" + ", ".join(f"{key}: {item}" for key, item in sorted(pairs)) + "}"
    if kind is set or kind is frozenset:
        # Not a set display: {} is a dict's.
        return (
            kind.__name__ + "(" + ", ".join(sorted(_literal(item, typed) for item in value)) + ")"
        )
    raise TypeError(
        f"cannot make a key of an argument of type {kind.__name__}; "
        "leave it out by ignore, or pass what it stands for"
    )


def memoize(
    cache: Entries,
    name: str | None,
    typed: bool,
    expire: Seconds | None,
    idle: Seconds | None,
    ignore: Collection[Any],
) -> Callable[[Any], Any]:
    """See Entries.memoize."""
    if callable(name):
        raise TypeError("use @cache.memoize(), with parentheses")

    def decorate(function: Any) -> Any:
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("what a coroutine function returns at first is no value")
        prefix = f"{function.__module__}.{function.__qualname__}" if name is None else name

        def key_of(*args: Any, **kwargs: Any) -> str:
            return call_key(prefix, args, kwargs, typed, ignore)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            key = key_of(*args, **kwargs)
            result = cache.get(key, _MISSING)
            if result is _MISSING:
                result = function(*args, **kwargs)
                cache.set(key, result, expire, idle=idle)
                data, extended = encode_value(result)
                result = decode_value(data, extended or b"")
            return result

        wrapper.__cache_key__ = key_of  # type: ignore[attr-defined]
        return wrapper

    return decorate
