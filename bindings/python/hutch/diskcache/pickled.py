"""The interface of python-diskcache, with its pickles: any object is a value.

    import hutch.diskcache.pickled as diskcache

Here Disk is PickleDisk, and the caches use it where no other is named. Reading runs what the
bytes of a value say: only for directories that no untrusted program can write to. A subclass of
Disk that guards what it reads itself, by overriding fetch, does so here as in python-diskcache.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from .. import diskcache as _diskcache
from . import (
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
    Averager,
    BoundedSemaphore,
    EmptyDirWarning,
    JSONDisk,
    Lock,
    OldDirectoryWarning,
    PickleDisk,
    PickleRefusedError,
    RLock,
    Timeout,
    UnknownFileWarning,
    barrier,
    install,
    memoize_stampede,
    throttle,
)
from ._constants import BUILD as __build__
from ._constants import VERSION as __version__
from ._disk import Disk as NaturalDisk

_names = ["NaturalDisk", *_diskcache._names]
if TYPE_CHECKING:
    __all__ = ["NaturalDisk"]
    __all__ += _diskcache.__all__

Disk = PickleDisk


class Cache(_diskcache.Cache):
    __doc__ = _diskcache.Cache.__doc__
    _disk_type: ClassVar[type[NaturalDisk]] = PickleDisk


class Deque(_diskcache.Deque):
    __doc__ = _diskcache.Deque.__doc__
    _cache_type: ClassVar[type[_diskcache.Cache]] = Cache


class Index(_diskcache.Index):
    __doc__ = _diskcache.Index.__doc__
    _cache_type: ClassVar[type[_diskcache.Cache]] = Cache


class FanoutCache(_diskcache.FanoutCache):
    __doc__ = _diskcache.FanoutCache.__doc__
    _cache_type: ClassVar[type[_diskcache.Cache]] = Cache
    _deque_type: ClassVar[type[_diskcache.Deque]] = Deque
    _index_type: ClassVar[type[_diskcache.Index]] = Index


def __getattr__(name: str) -> Any:
    # As in hutch.diskcache: of Django and SQLite.
    if name == "__all__":
        return _diskcache._all_names(sys.modules[__name__], _names)
    if name in ("DjangoCache", "migrate"):
        return getattr(_diskcache, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _with_pickles(module: ModuleType) -> ModuleType:
    """A module of python-diskcache's with the classes of this one in place of its own."""
    own = ModuleType(f"{__name__}.{module.__name__.rpartition('.')[2]}", module.__doc__)
    own.__spec__ = module.__spec__  # For importlib.util.find_spec.
    for name, value in vars(module).items():
        if not name.startswith("__") or name == "__all__":
            setattr(own, name, globals().get(name, value) if name in _names else value)
    return own


core = _with_pickles(_diskcache.core)
fanout = _with_pickles(_diskcache.fanout)
persistent = _with_pickles(_diskcache.persistent)
recipes = _with_pickles(_diskcache.recipes)
