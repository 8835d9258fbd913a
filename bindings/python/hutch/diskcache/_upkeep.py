"""Calls on many entries at once, and statistics."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ._constants import (
    DBNAME,
    EVICTION_POLICY,
    EmptyDirWarning,
    Timeout,
    UnknownFileWarning,
)
from ._entries import PORTION
from ._keys import HutchKey
from ._store import LOCK, OWN, Store
from ._tags import stored_tag
from ._walks import Walks

_PORTION = 100


@contextmanager
def _counted(before: int = 0) -> Iterator[None]:
    """A call that removes many: args of a Timeout has how many it has removed, with those before."""
    try:
        yield
    except Timeout as timeout:
        raise Timeout(before + sum(timeout.args)) from None


# A directory with one of these files is a cache's: of python-diskcache, of this module, of hutch.
_OF_CACHES = frozenset((DBNAME, LOCK, "hutch.lock"))


class Upkeep(Walks):
    """The calls that remove many, count and check."""

    def __len__(self) -> int:
        """The number of entries.

        It may count entries that expired less than a second ago; with a cull_limit of 0 all that
        have expired since the last expire().
        """
        return len(self._open().entries)

    def volume(self) -> int:
        """The bytes of the entries: keys, values and roughly their space in the manifest."""
        return self._open().volume()

    def stats(self, enable: bool = True, reset: bool = False) -> tuple[int, int]:
        """Return the hits and misses counted so far; enable decides about counting from now on."""
        with self._transact(retry=True) as store:
            hits = store.state.hits()
            if reset:
                store.state.set_hits(0, 0)
        self.reset("statistics", int(enable))
        return hits

    # --------------------------------------------------------------- removal

    @_counted()
    def clear(self, retry: bool = False) -> int:
        """Remove all entries; returns how many. args of a Timeout has the number removed before."""
        with self._transact(retry) as store:
            if self._may_remove_at_once(store):
                return store.clear()
        removed = self._remove_all(Store.keys, retry)
        with self._transact(retry=True) as store:
            if not len(store.entries):
                store.begin_empty()
        return removed

    def _may_remove_at_once(self, store: Store) -> bool:
        """Whether nothing goes with entries but themselves: no transaction that could bring them
        back is under way, and no entry has a file."""
        return store.undo is None and not self._disk._may_have_files()

    @_counted()
    def evict(self, tag: Any, retry: bool = False) -> int:
        """Remove the entries with a tag; returns how many. Timeout: as in clear."""
        name = stored_tag(tag)
        if name is None:
            return 0
        with self._transact(retry) as store:
            if self._may_remove_at_once(store):
                return store.entries.remove_tagged(name)

        def tagged(store: Store) -> list[Any]:
            return [own for own, record in store.records() if stored_tag(record.tag) == name]

        return self._remove_all(tagged, retry)

    @_counted()
    def expire(self, now: float | None = None, retry: bool = False) -> int:
        """Remove expired entries; returns how many were still stored. Timeout: as in clear.

        Expired entries are never returned. They are removed within about a second in any case;
        with a cull_limit of 0, and those with files that a Disk has named, here and in cull, and
        by sets with another cull_limit.
        """
        end = time.time() if now is None else now
        with self._transact(retry) as store:
            gone: int = store.disk.expire()
            store.memory.expire()
            now_too = time.time_ns()
            # By the clock of hutch the only expired entries left are those that linger.
            if end <= now_too / 1e9 and store.state.earliest > now_too:
                return gone

        def expired(store: Store) -> list[Any]:
            return [
                name
                for name, record in store.records()
                if record.expires is not None and record.expires < end
            ]

        with _counted(gone):
            return gone + self._remove_all(expired, retry)

    def cull(self, retry: bool = False) -> int:
        """Remove expired entries, then others down to size_limit; returns how many.

        Timeout: as in clear.
        """
        now = time.time()
        removed = self.expire(now, retry=True) if retry else self.expire(now)
        order = EVICTION_POLICY.get(self.eviction_policy)
        if order is None:
            return removed
        try:
            with self._transact(retry) as store:
                store.correct(self._disk._may_have_files())
            while self.volume() > self.size_limit:
                with self._transact(retry) as store:
                    # What is taken of the coldest entries is removed.
                    most = PORTION if order == "access" else _PORTION
                    gone = self._remove_first(store, order, most, self.volume() - self.size_limit)
                if not gone:
                    break
                removed += gone
        except Timeout:
            raise Timeout(removed) from None
        return removed

    def _remove_all(self, choose: Any, retry: bool) -> int:
        """Remove entries, in portions between which other writers can write."""
        removed = 0
        names: list[HutchKey] = []
        chosen = False
        try:
            while names or not chosen:
                with self._transact(retry) as store:
                    if not chosen:
                        names, chosen = choose(store), True
                    portion, names = names[:_PORTION], names[_PORTION:]
                    there = [(name, store.find(name)) for name in portion if name in store.entries]
                    self._drop_all(store, there)
                    removed += len(there)
        except Timeout:
            raise Timeout(removed) from None
        return removed

    def create_tag_index(self) -> None:
        """Set tag_index. It has no other effect."""
        self.reset("tag_index", 1)

    def drop_tag_index(self) -> None:
        """Clear tag_index."""
        self.reset("tag_index", 0)

    # ----------------------------------------------------------------- check

    def check(self, fix: bool = False, retry: bool = False) -> list[Any]:
        """Check the directory; returns the warnings that were given. fix: repair it.

        The check itself removes damaged entries, with or without fix. Only a file that no entry
        names, and an empty folder, need fix. Writers wait.
        """
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            with self._transact(retry) as store:
                report = store.entries.check()
                if report.damaged or report.orphans or report.manifest:
                    warnings.warn(f"hutch has put right {report}", stacklevel=2)
                self._check_files(store, fix)
                store.state.set_total(*store.measure())
        for each in given:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        return given

    def _check_files(self, store: Store, fix: bool) -> None:
        known = set()
        for name, filename, _ in store.files():
            path = os.path.join(self.directory, filename)
            if not os.path.exists(path):
                warnings.warn(f"file not found: {path}", stacklevel=3)
                if fix:
                    self._drop(store, name, store.find(name))
            known.add(os.path.normpath(path))
        for folder, folders, files in os.walk(self.directory, topdown=True):
            if folder == self.directory:
                folders[:] = [each for each in folders if each != "hutch"]
                files = [each for each in files if each not in OWN]
                if DBNAME in files:
                    return  # The rest may belong to a cache of python-diskcache.
            elif not _OF_CACHES.isdisjoint(files):
                folders.clear()  # Of another cache, which the program has put in this directory.
                continue
            for each in files:
                path = os.path.join(folder, each)
                if os.path.normpath(path) not in known:
                    warnings.warn(f"unknown file: {path}", UnknownFileWarning, stacklevel=3)
                    if fix:
                        os.remove(path)
            if not folders and not files and folder != self.directory:
                warnings.warn(f"empty directory: {folder}", EmptyDirWarning, stacklevel=3)
                if fix:
                    os.rmdir(folder)
