"""The calls that work on one entry."""

from __future__ import annotations

import time
from typing import Any

from ._base import Base, has_expired
from ._constants import ENOVAL, EVICTION_POLICY, MODE_RAW
from ._keys import HutchKey, hutch_key, is_long, long_key, queue_place
from ._record import Record
from ._store import Store


def shaped(value: Any, record: Record | None, expire_time: bool, tag: bool) -> Any:
    """The value, with the end of its time and its tag if they are wanted."""
    if not expire_time and not tag:
        return value
    more = [record.expires if record else None] if expire_time else []
    more += [record.tag if record else None] if tag else []
    return (value, *more)


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
        own, columns = self._columns(key, value, read)
        return self._put(own, columns, expire, tag, retry, False)

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
        if self._disk._names_files() and key in self:
            return False  # Before a file of the same name is written.
        own, columns = self._columns(key, value, read)
        return self._put(own, columns, expire, tag, retry, True)

    def _columns(self, key: Any, value: Any, read: bool) -> tuple[tuple[Any, Any], Any]:
        own = self._disk.put(key)
        return own, self._disk.store(value, read, key=key)

    def _put(
        self,
        own: tuple[Any, Any],
        columns: Any,
        expire: float | None,
        tag: Any,
        retry: bool,
        only_new: bool,
    ) -> bool:
        expires = None if expire is None else time.time() + expire
        size, mode, filename, value = columns
        name = hutch_key(*own)
        stored = False
        try:
            with self._transact(retry) as store:
                old = store.find(name)
                if only_new and old is not None and not has_expired(old):
                    return False
                record = Record(mode, value, 0, expires, tag, filename, size)
                self._insert(store, name, own, record, old)
                stored = True
                self._cull_some(store)
            return True
        finally:
            if not stored and filename is not None:
                self._disk.remove(filename)

    def _insert(
        self, store: Store, name: HutchKey, own: tuple[Any, Any], record: Record, old: Record | None
    ) -> None:
        """Store an entry at its old place, or else at a new one. Needs the lock."""
        if has_expired(record):
            # It would expire before any reader sees it.
            if record.filename is not None:
                store.replaced_files.append(record.filename)
            self._drop(store, name, old)
            return
        if old is None:
            place = store.state.next_place()
            self._widen(store, name)
        else:
            place = old.place
            store.state.set_moved(True)
        if is_long(name):
            record = record._replace(long_key=long_key(*own))
        if record.place != place:
            record = record._replace(place=place)
        self._write(store, name, record, old)

    def _widen(self, store: Store, name: HutchKey) -> None:
        """Let a queue know of a key of its kind, that is about to be stored. Needs the lock."""
        place = queue_place(name)
        if place is None:
            return
        prefix, number = place
        bounds = store.state.bounds(prefix)
        if bounds is not None and not bounds[0] <= number <= bounds[1]:
            low, high = bounds
            if low > high:
                low = high = number
            store.state.set_bounds(prefix, min(low, number), max(high, number))

    def _cull_some(self, store: Store) -> None:
        """Remove a few entries, if all together are too large. Needs the lock."""
        order = EVICTION_POLICY.get(self.eviction_policy)
        if not self.cull_limit or order is None or store.volume() < self.size_limit:
            return
        store.correct(self._disk._names_files())
        if store.volume() >= self.size_limit:
            self._remove_first(store, order, self.cull_limit)

    def _remove_first(self, store: Store, order: Any, most: int) -> int:
        """Remove the first entries in an order; how many. Needs the lock."""
        store.state.set_total(len(store.entries), store.volume(), store.state.others)
        names = []
        for name in store.entries.disk.keys(order):
            names.append(name)
            if len(names) == most:
                break
        for name in names:
            self._drop(store, name, store.find(name))  # type: ignore[arg-type]
        return len(names)

    def touch(self, key: Any, expire: float | None = None, retry: bool = False) -> bool:
        """Make the entry expire this many seconds from now; None: never. False: no entry."""
        own = self._disk.put(key)
        name = hutch_key(*own)
        expires = None if expire is None else time.time() + expire
        with self._transact(retry) as store:
            old = self._find(store, name)
            if old is None:
                return False
            self._insert(store, name, own, old._replace(expires=expires), old)
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
                self._cull_some(store)
                return total
            if not old.is_number:
                raise TypeError(f"the value of {key!r} is no number")
            total = old.value + delta
            self._insert(store, name, own, old._replace(mode=MODE_RAW, value=total), old)
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

    def __delitem__(self, key: Any, retry: bool = True) -> None:
        """Remove the entry. KeyError: there is none."""
        if not self.delete(key, retry=retry):
            raise KeyError(key)

    def delete(self, key: Any, retry: bool = False) -> bool:
        """Remove the entry. False: there is none."""
        name = hutch_key(*self._disk.put(key))
        with self._transact(retry) as store:
            record = store.find(name)
            if record is None:
                # What cannot be read goes too, or the key would count as an entry for ever.
                store.drop(name, None)
                return False
            self._drop(store, name, record)
            return not has_expired(record)
