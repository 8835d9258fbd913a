"""The calls that work on one entry."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

from ._base import Base, has_expired
from ._constants import ENOVAL, EVICTION_POLICY
from ._keys import HutchKey, hutch_key, is_long, long_key
from ._record import Record, with_expires, with_place, with_value
from ._state import NEVER
from ._store import Store, charge_of, nanoseconds

PORTION = 10
"""How many entries are removed at a time where there is no limit."""


def shaped(value: Any, record: Record | None, expire_time: bool, tag: bool) -> Any:
    """The value, with the end of its time and its tag if they are wanted."""
    if not expire_time and not tag:
        return value
    more = [record.expires if record else None] if expire_time else []
    more += [record.tag if record else None] if tag else []
    return (value, *more)


def end_of(expire: float | None) -> float | None:
    """The Unix time at which so many seconds have passed; None: never."""
    return None if expire is None else time.time() + expire


class Entries(Base):
    """The calls of a mapping."""

    def set(
        self,
        key: Any,
        value: Any,
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> bool:
        """Store value under key. Always True.

        expire: in seconds; None: it does not expire. read: value is a file, of which the bytes
        are stored. tag: for evict. Timeout: other writers take too long, and retry is false.
        """
        expires = end_of(expire)  # First: a wrong duration leaves no file of the value.
        own, columns = self._columns(key, value, read)
        return self._put(own, columns, expires, tag, retry, False)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Like set, with retry."""
        self.set(key, value, retry=True)

    def add(
        self,
        key: Any,
        value: Any,
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> bool:
        """Like set, if there is no entry, atomically. False: there is one."""
        if self._disk._may_have_files() and key in self:
            return False  # Before a file of the same name is written.
        expires = end_of(expire)
        own, columns = self._columns(key, value, read)
        return self._put(own, columns, expires, tag, retry, True)

    def _columns(self, key: Any, value: Any, read: bool) -> tuple[tuple[Any, Any], Any]:
        own = self._disk.put(key)
        return own, self._disk.store(value, read, key=key)

    def _put(
        self,
        own: tuple[Any, Any],
        columns: Any,
        expires: float | None,
        tag: Any,
        retry: bool,
        only_new: bool,
    ) -> bool:
        size, mode, filename, value = columns
        name = hutch_key(*own)
        stored = False
        try:
            with self._transact(retry) as store:
                old = store.find(name)
                if only_new and old is not None and not has_expired(old):
                    return False
                place = 0 if old is None else old.place
                record = Record(mode, value, place, expires, tag, filename, size)
                self._insert(store, name, own, record, old)
                stored = True
                self._count_access(store, name, True)
                self._cull_some(store)
            return True
        finally:
            if not stored and filename is not None:
                self._disk.remove(filename)

    def _insert(
        self, store: Store, name: HutchKey, own: tuple[Any, Any], record: Record, old: Record | None
    ) -> None:
        """Store an entry at its old place, or else at a new one. Needs the lock."""
        if self._ends_at_once(store, name, record, old):
            return
        if old is None:
            place = store.ends.give(store)
            store.widen(name)
        else:
            place = old.place
            store.state.set_moved(place)
        if is_long(name):
            record = record._replace(long_key=long_key(*own))
        if record.place != place:
            record = with_place(record, place)
        self._write(store, name, record, old)

    def _rewrite(self, store: Store, name: HutchKey, record: Record, old: Record) -> None:
        """Store an entry that differs from the old one in its value or its end. Needs the lock."""
        if not self._ends_at_once(store, name, record, old):
            store.state.set_moved(old.place)
            self._write(store, name, record, old)

    def _ends_at_once(
        self, store: Store, name: HutchKey, record: Record, old: Record | None
    ) -> bool:
        """Remove the old entry if the new one would expire before any reader sees it; whether it
        does. Needs the lock."""
        if record.expires is None or not self.cull_limit or not has_expired(record):
            return False
        if record.filename is not None:
            store.replaced_files.append(record.filename)
        self._drop(store, name, old)
        return True

    def _cull_some(self, store: Store) -> None:
        """Remove a few entries that have expired, then a few if all together are too large.

        cull_limit is the most of both; below 0 it is no limit. Needs the lock.
        """
        most = self.cull_limit if self.cull_limit >= 0 else sys.maxsize
        if most and store.state.earliest <= time.time_ns():
            most -= self._remove_lingering(store, most)
        order = EVICTION_POLICY.get(self.eviction_policy)
        if not most or order is None or store.state.most < self.size_limit:
            return
        store.correct(self._disk._may_have_files())
        if self.cull_limit < 0:
            while store.volume() >= self.size_limit and self._remove_first(store, order, PORTION):
                pass
        elif store.volume() >= self.size_limit:
            self._remove_first(store, order, most)

    def _remove_lingering(self, store: Store, most: int) -> int:
        """Remove so many expired entries that hutch leaves to this module; how many there were.

        A walk that has seen all entries knows when the next one expires, and until then there is
        no other walk. Needs the lock.
        """
        expired: list[tuple[HutchKey, Record | None]] = []
        earliest = NEVER
        for name, record in store.records():
            if not record.lingers or record.expires is None:
                continue
            if not has_expired(record):
                earliest = min(earliest, nanoseconds(record.expires))
            elif len(expired) < most:
                expired.append((name, store.find(name)))
            else:
                earliest = 0
                break
        store.state.set_earliest(earliest)
        self._drop_all(store, expired)
        return len(expired)

    def _remove_first(
        self, store: Store, order: Any, most: int, excess: float = math.inf
    ) -> int:
        """Remove the first entries in an order; how many. Needs the lock.

        excess: the bytes that are too many. The entries after those that have them stay, but for
        the rest of a portion.
        """
        store.state.set_total(len(store.entries), store.volume(), store.state.others)
        if order == "access":
            by_number = self.eviction_policy == "least-frequently-used"
            names = store.coldest.take(store, most, by_number)
        else:
            names = store.first_keys(order, most)
        first: list[tuple[HutchKey, Record | None]] = []
        for name in names:
            if excess <= 0 and len(first) % PORTION == 0:
                break
            record = store.find(name)
            first.append((name, record))
            excess -= charge_of(name, record)
        self._drop_all(store, first)
        return len(first)

    def _count_access(self, store: Store, name: HutchKey, is_new: bool) -> None:
        """Note that an entry was stored or read, if the policy goes by it."""
        if EVICTION_POLICY.get(self.eviction_policy) == "access":
            store.accesses.note(name, is_new)

    def touch(self, key: Any, expire: float | None = None, retry: bool = False) -> bool:
        """Make the entry expire this many seconds from now; None: never. False: no entry."""
        own = self._disk.put(key)
        name = hutch_key(*own)
        expires = end_of(expire)
        with self._transact(retry) as store:
            old = self._find(store, name)
            if old is None:
                return False
            if expires is None and old.expires is None:
                return True
            record = with_expires(old, expires)
            lasts = 0.0 if expires is None else expires - time.time()
            if lasts > 0 and self.cull_limit and old.filename is None and not old.lingers:
                # As below, in less time: hutch ends the entry.
                store.state.set_moved(old.place)
                store.put(name, record, old, lasts)
            else:
                self._rewrite(store, name, record, old)
            return True

    def incr(
        self, key: Any, delta: Any = 1, default: Any = 0, retry: bool = False
    ) -> Any:
        """Add delta to a number, atomically, and return the sum.

        A missing number counts as default; default=None: KeyError. TypeError: the value is not a
        number. An existing entry keeps its time to live and its tag.
        """
        own = self._disk.put(key)
        name = hutch_key(*own)
        with self._transact(retry) as store:
            old = store.find(name)
            if old is None or has_expired(old):
                if default is None:
                    raise KeyError(key)
                total = default + delta
                size, mode, filename, value = self._disk.store(total, False, key=key)
                record = Record(mode, value, 0, None, None, filename, size)
                self._insert(store, name, own, record, old)
                self._count_access(store, name, True)
                self._cull_some(store)
                return total
            if not old.is_number:
                raise TypeError(f"the value of {key!r} is no number")
            total = old.value + delta
            self._rewrite(store, name, with_value(old, total), old)
            self._count_access(store, name, False)
            return total

    def decr(
        self, key: Any, delta: Any = 1, default: Any = 0, retry: bool = False
    ) -> Any:
        """Like incr, with delta subtracted."""
        return self.incr(key, -delta, default, retry)

    def get(
        self,
        key: Any,
        default: Any = None,
        read: bool = False,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """The value of key, or default.

        read: returns a large value of bytes as a file that is open for reading. expire_time, tag:
        return a tuple with the time of its expiry (a Unix time, or None) and its tag.
        """
        name = hutch_key(*self._disk.put(key))
        store = self._open()
        record = self._find(store, name)
        value: Any = ENOVAL
        if record is not None:
            try:
                value = self._fetch(store, name, record, read)
            except OSError:
                record = None  # Its file went in the meantime.
            else:
                self._count_access(store, name, False)
        if self.statistics:
            with self._transact(retry):
                store.state.count_access(record is not None)
        return shaped(default if record is None else value, record, expire_time, tag)

    def __getitem__(self, key: Any) -> Any:
        """The value of key. KeyError: there is none."""
        value = self.get(key, default=ENOVAL, retry=True)
        if value is ENOVAL:
            raise KeyError(key)
        return value

    def read(self, key: Any, retry: bool = False) -> Any:
        """A large value of bytes as a file that is open for reading. KeyError: there is none."""
        file = self.get(key, default=ENOVAL, read=True, retry=retry)
        if file is ENOVAL:
            raise KeyError(key)
        return file

    def __contains__(self, key: Any) -> bool:
        """Whether there is an entry that has not expired."""
        return self._find(self._open(), hutch_key(*self._disk.put(key))) is not None

    def pop(
        self,
        key: Any,
        default: Any = None,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Remove the entry and return its value, or default. Of several callers one gets it."""
        name = hutch_key(*self._disk.put(key))
        with self._transact(retry) as store:
            record = self._find(store, name)
            if record is None:
                return shaped(default, None, expire_time, tag)
            return self._taken(store, name, record, default, expire_time, tag)

    def _taken(
        self,
        store: Store,
        name: HutchKey,
        record: Record,
        default: Any,
        expire_time: bool,
        tag: bool,
    ) -> Any:
        """Remove an entry; its value, or default if its file is gone. Needs the lock."""
        try:
            value = self._fetch(store, name, record)
        except OSError:
            self._drop(store, name, record)
            return shaped(default, None, expire_time, tag)
        self._drop(store, name, record)
        return shaped(value, record, expire_time, tag)

    def __delitem__(self, key: Any, retry: bool = True) -> bool:
        """Remove the entry. KeyError: there is none."""
        name = hutch_key(*self._disk.put(key))
        with self._transact(retry) as store:
            record = store.find(name)
            if record is None:
                # An entry that cannot be read goes too, or it would count for ever.
                store.drop(name, None)
            else:
                self._drop(store, name, record)
        if record is None or has_expired(record):
            raise KeyError(key)
        return True

    def delete(self, key: Any, retry: bool = False) -> bool:
        """Remove the entry. False: there is none."""
        # A subclass's del counts for its delete, and not the other way, as in python-diskcache.
        try:
            return self.__delitem__(key, retry=retry)  # type: ignore[call-arg]
        except KeyError:
            return False
