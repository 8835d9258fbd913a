"""The interface of python-diskcache, on hutch.

    import hutch.diskcache as diskcache

    cache = diskcache.Cache("~/.cache/example")

A replacement for python-diskcache. It does not read pickles, unless disk=PickleDisk or the
module hutch.diskcache.pickled asks for it; install gives it to packages that import diskcache.
docs/python/diskcache.md lists the other differences, and explains how to move a directory.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from . import core as core
from . import fanout as fanout
from . import persistent as persistent
from . import recipes as recipes
from ._constants import BUILD as __build__
from ._constants import VERSION as __version__
from ._install import install
from .core import (
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
    Cache,
    Disk,
    EmptyDirWarning,
    JSONDisk,
    OldDirectoryWarning,
    PickleDisk,
    PickleRefusedError,
    Timeout,
    UnknownFileWarning,
)
from .fanout import FanoutCache
from .persistent import Deque, Index
from .recipes import (
    Averager,
    BoundedSemaphore,
    Lock,
    RLock,
    barrier,
    memoize_stampede,
    throttle,
)

if TYPE_CHECKING:
    from ._migrate import migrate as migrate
    from .djangocache import DjangoCache as DjangoCache

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
    "OldDirectoryWarning",
    "PickleDisk",
    "PickleRefusedError",
    "RLock",
    "Timeout",
    "UnknownFileWarning",
    "barrier",
    "install",
    "memoize_stampede",
    "throttle",
]

# In a program with Django, a star import has DjangoCache as well: __getattr__ makes the list.
_names: list[str] = vars().pop("__all__")


def _all_names(package: Any, names: list[str]) -> list[str]:
    """The names of a star import, as python-diskcache has them: DjangoCache if it can be imported."""
    try:
        return [*names, package.DjangoCache.__name__]
    except Exception:  # Django is missing, or has no settings.
        return names


def __getattr__(name: str) -> Any:
    # Django and SQLite are imported only by programs that use them.
    if name == "__all__":
        return _all_names(sys.modules[__name__], _names)
    if name == "migrate":
        from ._migrate import migrate

        return migrate
    if name == "DjangoCache":
        try:
            from .djangocache import DjangoCache
        except ImportError as error:  # As in python-diskcache, for hasattr.
            raise AttributeError(f"{__name__} has no DjangoCache: {error}") from error
        return DjangoCache
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
