"""How a cache is copied and pickled: another process opens the directory again."""

from __future__ import annotations

from types import MemberDescriptorType
from typing import Any

from ._cache import Cache

# The attributes that an opening makes.
_OWN = frozenset(
    ("_closing", "_forms", "_has_object_codec", "_listening", "_number", "_options", "_path",
     "_pointer")
)


def parts_of(cache: Any) -> tuple[Any, ...]:
    """What __reduce__ returns. TypeError: the cache has no directory."""
    if cache._path is None:
        raise TypeError("a cache in memory cannot be copied or pickled: it has no directory")
    # A copy of them all is made in one step: the first call of another thread adds some.
    attributes = dict(vars(cache))
    more = {name: value for name, value in attributes.items() if name not in _OWN}
    in_slots = {name: getattr(cache, name) for name in _slots(type(cache)) if hasattr(cache, name)}
    # Pickle and copy know such a pair.
    state = (more or None, in_slots) if in_slots else more or None
    return open_again, (type(cache), cache._path, cache._options), state


def _slots(kind: type[Cache]) -> list[str]:
    """The attributes for which a subclass has slots."""
    return [
        name
        for base in kind.__mro__
        if base not in Cache.__mro__
        for name, member in vars(base).items()
        if isinstance(member, MemberDescriptorType)
    ]


def open_again(kind: type[Cache], directory: str, options: dict[str, Any]) -> Cache:
    """The cache that another process has pickled, without the attributes of others."""
    cache = kind.__new__(kind)
    Cache.__init__(cache, directory, **options)
    return cache
