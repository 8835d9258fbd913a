"""The cache, its Disks and its constants."""

from __future__ import annotations

# Programs import these from the core of python-diskcache: from diskcache.core import io.
import io as io
import json as json
import os as os
import pickle as pickle
import tempfile as tempfile
import threading as threading
import time as time
import warnings as warnings
import zlib as zlib

from .._public import name_methods
from ._constants import (
    DBNAME,
    DEFAULT_SETTINGS,
    ENOVAL,
    EVICTION_POLICY,
    METADATA,
    MODE_BINARY,
    MODE_NATURAL,
    MODE_NONE,
    MODE_PICKLE,
    MODE_RAW,
    MODE_TEXT,
    UNKNOWN,
    Constant,
    EmptyDirWarning,
    OldDirectoryWarning,
    PickleRefusedError,
    Timeout,
    UnknownFileWarning,
)
from ._disk import Disk, JSONDisk, PickleDisk
from ._memoize import Memoizes, args_to_key, full_name
from ._upkeep import Upkeep

__all__ = [
    "DBNAME",
    "DEFAULT_SETTINGS",
    "ENOVAL",
    "EVICTION_POLICY",
    "METADATA",
    "MODE_BINARY",
    "MODE_NATURAL",
    "MODE_NONE",
    "MODE_PICKLE",
    "MODE_RAW",
    "MODE_TEXT",
    "UNKNOWN",
    "Cache",
    "Constant",
    "Disk",
    "EmptyDirWarning",
    "JSONDisk",
    "OldDirectoryWarning",
    "PickleDisk",
    "PickleRefusedError",
    "Timeout",
    "UnknownFileWarning",
    "args_to_key",
    "full_name",
]


class Cache(Upkeep, Memoizes):
    """A cache in a directory, with the calls of python-diskcache's Cache.

        cache = Cache("~/.cache/example")
        cache.set("key", {"a": 1}, expire=60, tag="examples")

    Any number of threads and processes may use a directory. Writes are made one at a time.

    Parameters:
        directory: made with its parents if it does not exist; None: a new temporary one.
        timeout: the time in seconds that a write waits for others, if it does not retry.
        disk: Disk (natural values; the default), JSONDisk, PickleDisk, or a subclass.
        settings: those of DEFAULT_SETTINGS, and of disk_ for the disk's own parameters. The
            directory stores them; a setting that is not given is the directory's.
    """


name_methods("Cache", *Cache.__mro__)
