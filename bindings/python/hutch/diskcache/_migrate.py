"""Reads a directory of python-diskcache, and stores its entries in one of this module.

The directory is opened read-only and is not changed. Pickles in it are read only on request;
otherwise their entries are left out and counted.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Callable, NamedTuple

from ._constants import (
    DBNAME,
    DEFAULT_SETTINGS,
    EVICTION_POLICY,
    METADATA,
    MODE_BINARY,
    MODE_PICKLE,
    MODE_RAW,
    MODE_TEXT,
)
from ._disk import Disk, PickleDisk
from ._store import stored_settings
from .core import Cache
from .fanout import FanoutCache

_READ = "SELECT key, raw, expire_time, tag, mode, filename, value FROM Cache ORDER BY rowid"


class Report(NamedTuple):
    """The counts of a migration.

    Attributes:
        copied: stored in the new directory.
        expired: left out as expired.
        pickled: left out, since their key or value is a pickle.
        damaged: left out, since their file is missing or they cannot be read.
        size: the bytes copied.
        problems: a line for each of the first entries that were left out.
    """

    copied: int
    expired: int
    pickled: int
    damaged: int
    size: int
    problems: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"copied:  {self.copied} entries, {self.size:,} bytes",
            f"expired: {self.expired}, left out",
            f"pickled: {self.pickled}, left out" + (_HINT if self.pickled else ""),
            f"damaged: {self.damaged}, left out",
        ]
        return "\n".join([*lines, *self.problems])


_HINT = " (--pickle reads them: only if every program that could write to OLD is trusted)"
_MOST_PROBLEMS = 20
Progress = Callable[[int, int], None]


class _Migration:
    """The counts, and the copy of an entry."""

    def __init__(self, pickle: bool, progress: Progress | None, total: int) -> None:
        self._pickle = pickle
        self._progress = progress
        self._total = total
        self._seen = 0
        self._counts = {"copied": 0, "expired": 0, "pickled": 0, "damaged": 0, "size": 0}
        self._problems: list[str] = []

    def fill(self, directories: list[Path], new: Any) -> None:
        """Copy the entries of directories into a cache, which evicts none of them meanwhile."""
        # Not in the stored settings, which would stay if the copy does not come to its end.
        caches = new._shards if isinstance(new, FanoutCache) else (new,)
        _keep_others(directories[0], caches)
        policy = new.eviction_policy
        for cache in caches:
            cache.reset("eviction_policy", "none", update=False)
        for old in directories:
            self._copy_all(old, new)
        for cache in caches:
            cache.reset("eviction_policy", policy, update=False)

    def _copy_all(self, old: Path, new: Any) -> None:
        disk = (PickleDisk if self._pickle else Disk)(str(old))
        left = _count(old)
        try:
            for row in _rows(old):
                kind, words = self._copy(row, old, disk, new)
                left -= 1
                self._note(kind, 1, words)
        except sqlite3.DatabaseError as error:
            self._note("damaged", left, f"the last {left} entries of {old / DBNAME}: {error}")

    def _note(self, kind: str, entries: int, words: str) -> None:
        self._counts[kind] += entries
        if words and len(self._problems) < _MOST_PROBLEMS:
            self._problems.append(words)
        self._seen += entries
        if self._progress is not None:
            self._progress(self._seen, self._total)

    def _copy(self, row: Any, old: Path, disk: Disk, new: Any) -> tuple[str, str]:
        key, raw, expires, tag, mode, filename, value = row
        now = time.time()
        told = repr(key)[:80]
        try:
            if expires is not None and expires <= now:
                return "expired", ""
            if not self._pickle and (not raw or mode == MODE_PICKLE):
                return "pickled", ""
            if mode not in (MODE_RAW, MODE_BINARY, MODE_TEXT, MODE_PICKLE):
                return "damaged", f"{told}: the mode {mode!r} is unknown"
            if filename is not None and not _is_inside(old, filename):
                return "damaged", f"{told}: its file is not in the directory"
            own = disk.get(key, bool(raw))
            found = disk.fetch(mode, filename, value, False)
            left = None if expires is None else expires - now
            new.set(own, found, expire=left, tag=tag, retry=True)
        except Exception as error:  # Unpickling raises anything, and a row can have anything.
            return "damaged", f"{told}: {type(error).__name__}: {error}"
        self._counts["size"] += len(found) if isinstance(found, (str, bytes)) else 8
        return "copied", ""

    def report(self) -> Report:
        return Report(**self._counts, problems=tuple(self._problems))


def _is_inside(directory: Path, filename: Any) -> bool:
    """Whether a file's name leads to a place below the directory, by no link."""
    if not isinstance(filename, str):
        return False
    root = directory.resolve()
    return root in (root / filename).resolve().parents


def _connect(directory: Path) -> sqlite3.Connection:
    path = (directory / DBNAME).resolve()
    # Without a log the database is complete, and SQLite need not write beside it.
    has_log = os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal") > 0
    mode = "mode=ro" if has_log else "mode=ro&immutable=1"
    connection = sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True)
    # One text that is damaged does not end the walk.
    connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
    return connection


def _rows(directory: Path) -> Iterator[Any]:
    connection = _connect(directory)
    try:
        yield from connection.execute(_READ)
    finally:
        connection.close()


def _count(directory: Path) -> int:
    connection = _connect(directory)
    try:
        count: int = connection.execute("SELECT COUNT(*) FROM Cache").fetchone()[0]
        return count
    finally:
        connection.close()


def _stored_in(directory: Path) -> dict[str, Any]:
    """The old directory's settings."""
    connection = _connect(directory)
    try:
        return dict(connection.execute("SELECT key, value FROM Settings"))
    finally:
        connection.close()


def _settings(directory: Path) -> dict[str, Any]:
    """The old directory's settings that have an effect here."""
    stored = _stored_in(directory)
    kept = {name: stored[name] for name in DEFAULT_SETTINGS if name in stored}
    if kept.get("eviction_policy") not in EVICTION_POLICY:
        kept.pop("eviction_policy", None)
    return kept


def _keep_others(old: Path, caches: Iterable[Cache]) -> None:
    """Store the settings of a program's own Cache or Disk, as JSONDisk's disk_compress_level, which
    has a part in the keys. The Disk of a migration does not take them."""
    others = {
        name: value
        for name, value in _stored_in(old).items()
        if isinstance(name, str)
        and name not in DEFAULT_SETTINGS
        and name not in METADATA
        and (value is None or isinstance(value, (int, float, str)))
    }
    if others:
        for cache in caches:
            with cache._transact(retry=True) as store:
                store.set_settings({**stored_settings(cache.directory), **others})


def _directories(old: Path) -> tuple[list[Path], int]:
    """The directories of a Cache or of a FanoutCache's shards, and the number of these, of which
    one may be missing; 0: it is a Cache's."""
    if (old / DBNAME).is_file():
        return [old], 0
    shards = [old / f"{number:03d}" for number in range(1000)]
    found = [shard for shard in shards if (shard / DBNAME).is_file()]
    if not found:
        raise FileNotFoundError(
            f"{old} is no directory of python-diskcache: neither it nor 000 in it has {DBNAME}"
        )
    return found, int(found[-1].name) + 1


def migrate(
    old: str | os.PathLike[str],
    new: str | os.PathLike[str],
    pickle: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Copy the entries of a directory of python-diskcache into a new directory.

    A FanoutCache's directory becomes one, with as many shards. Expiry times, tags and the order
    of insertion stay. The settings are copied to a directory that is new.

    Parameters:
        pickle: read pickles, which can run any code, and store them for PickleDisk.
        progress: called after each entry with the number processed and the number in all.

    FileNotFoundError: old is not a cache's. FileExistsError: new is in use, or the same directory.
    sqlite3.DatabaseError: its database is damaged.
    """
    source, target = Path(old).expanduser(), Path(new).expanduser()
    if target.exists() and (source.samefile(target) or any(target.iterdir())):
        raise FileExistsError(f"{target} is not empty: give the path of a new directory")
    directories, shards = _directories(source)
    disk = PickleDisk if pickle else Disk
    further = []
    if shards:
        folders = [source / kind for kind in ("cache", "deque", "index")]
        further = [each.parent for folder in folders for each in sorted(folder.rglob(DBNAME))]
    migration = _Migration(pickle, progress, sum(map(_count, directories + further)))
    settings = _settings(directories[0])
    if shards:
        if "size_limit" in settings:
            settings["size_limit"] *= shards
        with FanoutCache(target, shards=shards, disk=disk, **settings) as fanout:
            migration.fill(directories, fanout)
    else:
        with Cache(target, disk=disk, **settings) as cache:
            migration.fill(directories, cache)
    for folder in further:
        path = target / folder.relative_to(source)
        with Cache(path, disk=disk, **_settings(folder)) as cache:
            migration.fill([folder], cache)
    return migration.report()
