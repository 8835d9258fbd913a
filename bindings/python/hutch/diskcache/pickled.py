"""The interface of python-diskcache, with its pickles: any object is a value.

    import hutch.diskcache.pickled as diskcache

Here Disk is PickleDisk, and the caches use it where no other is named. Reading runs what the
bytes of a value say: only for directories that no untrusted program can write to. A subclass of
Disk that guards what it reads itself, by overriding fetch, does so here as in python-diskcache.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, ClassVar

from . import core as _core
from . import fanout as _fanout
from . import persistent as _persistent
from . import recipes as _recipes
from ._constants import BUILD as __build__
from ._constants import VERSION as __version__
from ._constants import (
    DEFAULT_SETTINGS,
    ENOVAL,
    EVICTION_POLICY,
    MODE_BINARY,
    MODE_NATURAL,
    MODE_NONE,
    MODE_PICKLE,
    MODE_RAW,
    MODE_TEXT,
    UNKNOWN,
    EmptyDirWarning,
    OldDirectoryWarning,
    PickleRefusedError,
    Timeout,
    UnknownFileWarning,
)
from ._disk import Disk as NaturalDisk
from ._disk import JSONDisk, PickleDisk
from .recipes import (
    Averager,
    BoundedSemaphore,
    Lock,
    RLock,
    barrier,
    memoize_stampede,
    throttle,
)

__all__ = [
    "DEFAULT_SETTINGS",
    "ENOVAL",
    "EVICTION_POLICY",
    "MODE_BINARY",
    "MODE_NATURAL",
    "MODE_NONE",
    "MODE_PICKLE",
    "MODE_RAW",
    "MODE_TEXT",
    "UNKNOWN",
    "Averager",
    "BoundedSemaphore",
    "Cache",
    "Deque",
    "Disk",
    "EmptyDirWarning",
    "FanoutCache",
    "Index",
    "JSONDisk",
    "Lock",
    "NaturalDisk",
    "OldDirectoryWarning",
    "PickleDisk",
    "PickleRefusedError",
    "RLock",
    "Timeout",
    "UnknownFileWarning",
    "barrier",
    "memoize_stampede",
    "throttle",
]

Disk = PickleDisk


class Cache(_core.Cache):
    __doc__ = _core.Cache.__doc__
    _disk_type: ClassVar[type[NaturalDisk]] = PickleDisk


class Deque(_persistent.Deque):
    __doc__ = _persistent.Deque.__doc__
    _cache_type: ClassVar[type[_core.Cache]] = Cache


class Index(_persistent.Index):
    __doc__ = _persistent.Index.__doc__
    _cache_type: ClassVar[type[_core.Cache]] = Cache


class FanoutCache(_fanout.FanoutCache):
    __doc__ = _fanout.FanoutCache.__doc__
    _cache_type: ClassVar[type[_core.Cache]] = Cache
    _deque_type: ClassVar[type[_persistent.Deque]] = Deque
    _index_type: ClassVar[type[_persistent.Index]] = Index


def __getattr__(name: str) -> Any:
    # As in hutch.diskcache: of Django and SQLite.
    if name in ("DjangoCache", "migrate"):
        from .. import diskcache

        return getattr(diskcache, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _with_pickles(module: ModuleType) -> ModuleType:
    """A module of python-diskcache's with the classes of this one in place of its own."""
    own = ModuleType(f"{__name__}.{module.__name__.rpartition('.')[2]}", module.__doc__)
    for name, value in vars(module).items():
        if not name.startswith("__") or name == "__all__":
            setattr(own, name, globals().get(name, value) if name in __all__ else value)
    return own


core = _with_pickles(_core)
fanout = _with_pickles(_fanout)
persistent = _with_pickles(_persistent)
recipes = _with_pickles(_recipes)
