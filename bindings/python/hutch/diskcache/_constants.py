"""The names, defaults and warnings of python-diskcache."""

from __future__ import annotations

import pickle
from typing import Any


class Constant(tuple):  # type: ignore[type-arg]
    """A marker, identified by its name."""

    def __new__(cls, name: str) -> Constant:
        return tuple.__new__(cls, (name,))

    def __repr__(self) -> str:
        return str(self[0])


VERSION = "5.6.3"
"""The version of python-diskcache whose interface this is."""
BUILD = 0x050603

DBNAME = "cache.db"
"""The file that identifies a directory of python-diskcache."""

ENOVAL = Constant("ENOVAL")
UNKNOWN = Constant("UNKNOWN")

MODE_NONE = 0
MODE_RAW = 1
MODE_BINARY = 2
MODE_TEXT = 3
MODE_PICKLE = 4
MODE_NATURAL = 5
"""Not in python-diskcache: a natural value in a form of hutch's own, which runs no code."""

DEFAULT_SETTINGS: dict[str, Any] = {
    "statistics": 0,
    "tag_index": 0,
    "eviction_policy": "least-recently-stored",
    "size_limit": 2**30,
    "cull_limit": 10,
    "sqlite_auto_vacuum": 1,
    "sqlite_cache_size": 2**13,
    "sqlite_journal_mode": "wal",
    "sqlite_mmap_size": 2**26,
    "sqlite_synchronous": 1,
    "disk_min_file_size": 2**15,
    "disk_pickle_protocol": pickle.HIGHEST_PROTOCOL,
}
"""The settings of a cache. The settings of sqlite_ are stored, and have no effect here."""

METADATA = {"count": 0, "size": 0, "hits": 0, "misses": 0}
"""The settings that reset() returns but does not store."""

EVICTION_POLICY: dict[str, Any] = {
    "none": None,
    "least-recently-stored": "insertion",
    "least-recently-used": "access",
    "least-frequently-used": "access",
}
"""For each policy the order of eviction, one of hutch.Cache.keys; None: no eviction."""


class Timeout(Exception):
    """Another writer has had the cache for too long.

    args has the number of entries removed before, if the call removes many.
    """


class UnknownFileWarning(UserWarning):
    """check() found a file that belongs to no entry."""


class EmptyDirWarning(UserWarning):
    """check() found a directory without files."""


class OldDirectoryWarning(UserWarning):
    """The directory also has a cache of python-diskcache, which is not read."""


class PickleRefusedError(pickle.UnpicklingError):
    """A stored value is a pickle, which can run any code when it is read.

    disk=PickleDisk reads it. The directory must then be one that only trusted programs can
    write to.
    """


def refused(what: str) -> PickleRefusedError:
    """The error for a pickled key or value, with its remedy."""
    return PickleRefusedError(
        f"{what} is a pickle, and reading a pickle can run any code. Open the cache with "
        "disk=hutch.diskcache.PickleDisk if only trusted programs can write to its directory; "
        "otherwise delete the entry or call clear()"
    )
