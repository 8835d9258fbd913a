"""The part that the caches on one directory share in a process: entries, lock and counters.

    DIRECTORY/hutch/            the entries, a directory of hutch
    DIRECTORY/diskcache.lock    the writer lock
    DIRECTORY/diskcache.state   counters and bounds of queues
    DIRECTORY/diskcache.json    the settings
    DIRECTORY/diskcache.reads   reads, if a policy evicts by them
    DIRECTORY/.../NAME          files of a Disk that names its own

The directory may contain any other file.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .._cache import Cache as HutchCache
from .._cache import _Once
from .._codec import EXTENDED, SIZES
from .._limits import TierLimits
from .._units import NO_LIMIT
from ._accesses import Accesses
from ._coldest import Coldest
from ._ends import Ends
from ._keys import Fields, HutchKey, fields, is_long, long_fields, queue_place
from ._lock import Holding, WriterLock
from ._ordered import Outermost
from ._record import FORM, PLACE_AT, Record, RecordForms, charge, file_of
from ._state import NEVER, State
from ._tags import stored_tag

if TYPE_CHECKING:
    from .._walks import Order

ENTRIES = "hutch"
LOCK, STATE, SETTINGS = "diskcache.lock", "diskcache.state", "diskcache.json"
READS = "diskcache.reads"
OWN = frozenset((ENTRIES, LOCK, STATE, SETTINGS, SETTINGS + ".new", READS))
"""The names in a directory that are the module's."""

_MEASURE_EACH = 60
"""Seconds between two walks that only correct the volume."""

_stores: weakref.WeakValueDictionary[tuple[int, int], Store] = weakref.WeakValueDictionary()
# Protects _stores and the opening of one.
_opening = threading.Lock()


def _begin_child() -> None:
    global _opening
    # A thread of the parent may have had the lock.
    _opening = threading.Lock()
    for store in list(_stores.values()):
        # A thread of the parent may have been about to store what they were told of.
        store.ends, store.coldest = Ends(), Coldest()
        store.outermost = Outermost(False), Outermost(True)
        store.forget_transaction()


os.register_at_fork(after_in_child=_begin_child)


class Store:
    """The open directory."""

    # A view takes longer to make than a call on it, and few calls need one.
    disk: Any = _Once("disk", lambda store: store.entries.disk)
    memory: Any = _Once("memory", lambda store: store.entries.memory)

    def __init__(self, directory: str, inline: int, memory: int | None) -> None:
        self.directory = directory
        self.lock = WriterLock(os.path.join(directory, LOCK))
        self.state = State(os.path.join(directory, STATE))
        unlimited = TierLimits(
            cost=NO_LIMIT, count=NO_LIMIT, max_entry=NO_LIMIT, time_to_live=NO_LIMIT
        )
        entries = os.path.join(directory, ENTRIES)
        if os.path.islink(entries):  # Another program has put it there, as any other link.
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), entries)
        self.entries = HutchCache(
            entries,
            # Its index finds the first and the last entry; a log would be read for each of them.
            storage="mixed",
            sharing="shared",
            memory=memory,
            disk=unlimited,
            inline_threshold=inline,
            workers=1,
        )
        self.entries._forms = RecordForms()
        self.entries._keep_pairs()
        # By key the entries before the current transaction; None: no transaction.
        # Protected by the writer lock, like all fields below.
        self.undo: dict[HutchKey, Record | None] | None = None
        self.replaced_files: list[str] = []
        self.made_files: list[str] = []
        self.ends = Ends()
        self.coldest = Coldest()
        # The keys at the beginning of the order of keys, and those at its end.
        self.outermost = Outermost(False), Outermost(True)
        self._measure_after = 0.0
        self._accesses: Accesses | None = None
        self._trust()

    def _trust(self) -> None:
        if self.state.is_trusted():
            return
        with Holding(self, None):
            if not self.state.is_trusted():
                places: dict[str | None, tuple[int, int]] = {}
                self.state.begin(*self.measure(places=places))
                self._note_queues(places)

    def _note_queues(self, found: dict[str | None, tuple[int, int]]) -> None:
        """Have the bounds of all queues in the state, if it has room. Needs the lock."""
        for prefix, bounds in found.items():
            self.state.set_bounds(prefix, *bounds)
        if all(self.state.bounds(prefix) == bounds for prefix, bounds in found.items()):
            self.state.set_has_queues()

    def measure(
        self,
        with_files: bool = True,
        places: dict[str | None, tuple[int, int]] | None = None,
    ) -> tuple[int, int, int]:
        """The number and the bytes of the entries, and how many are not of the queue without a
        prefix, by a walk over all.

        with_files: count the files that a Disk has named, which needs the values.
        places: receives the lowest and the highest number of each queue, by its prefix.
        """
        sized = self._all(SIZES)
        total = sum(charge(key, size, 0) for key, size in sized)
        if with_files:
            total += sum(size for _, _, size in self.files())
        others = 0
        for key, _ in sized:
            place = queue_place(key)
            if place is None:
                others += 1
                continue
            prefix, number = place
            others += prefix is not None
            if places is not None:
                low, high = places.get(prefix, (number, number))
                places[prefix] = min(low, number), max(high, number)
        return len(sized), total, others

    def correct(self, with_files: bool) -> None:
        """Measure anew, if entries expired since or a kill came between a write and its count, but
        not often. Needs the lock."""
        count = len(self.entries)
        if count != self.state.count and time.monotonic() >= self._measure_after:
            self.state.set_total(*self.measure(with_files))
            self._measure_after = time.monotonic() + _MEASURE_EACH

    @property
    def accesses(self) -> Accesses:
        """The reads of the entries. The first use makes the file."""
        if self._accesses is None:
            self._accesses = Accesses(os.path.join(self.directory, READS))
        return self._accesses

    def forget_transaction(self) -> None:
        """Be in none: that of the parent process, or one that has ended."""
        self.undo = None
        self.replaced_files, self.made_files = [], []

    # -------------------------------------------------------------- entries

    def find(self, key: HutchKey) -> Record | None:
        """The entry, which may have expired."""
        found = self.entries.get(key)
        return Record.decode(*found) if type(found) is tuple else None

    def keys(self) -> list[HutchKey]:
        """The keys of all entries, in no order."""
        return self._all(0)

    def _all(self, wanted: int) -> list[Any]:
        # Not of the disk's view, which looks for each key again.
        entries: Any = self.entries
        found: list[Any] = entries._all_keys(None, wanted)
        return found

    def first_keys(self, order: Order, most: int) -> list[HutchKey]:
        """The keys of the first entries in an order of hutch."""
        from .._walks import number_of

        found: list[HutchKey] = self.disk._all_keys(number_of(order, False), 0, most)
        return found

    def first(self, order: Order, reverse: bool, most: int) -> list[tuple[HutchKey, bytes]]:
        """The keys and the extended data of the first entries in an order of hutch."""
        from .._walks import number_of

        number = number_of(order, reverse)
        found: list[tuple[HutchKey, bytes]] = self.disk._all_keys(number, EXTENDED, most)
        return found

    def fields_of(self, name: HutchKey) -> list[Fields]:
        """What Disk.put made of a key; none: it is not of this module."""
        if is_long(name):
            record = self.find(name)
            return [] if record is None else [long_fields(record.long_key)]
        try:
            return [fields(name)]
        except ValueError:
            return []

    def files(self) -> Iterator[tuple[HutchKey, str, int]]:
        """The keys of the entries that have files, with the names of these and their sizes."""
        for key, extended in self._all(EXTENDED):
            name, size = file_of(extended)
            if name is not None:
                yield key, name, size

    def placed(self) -> tuple[list[HutchKey], list[int]]:
        """The keys of all entries of this module by their places, and the places."""
        entries: Any = self.entries
        found: tuple[list[HutchKey], list[int]] = entries._placed_keys(FORM, PLACE_AT)
        return found

    def clear(self) -> int:
        """Remove all entries. How many there were. Needs the lock, outside a transaction."""
        self.entries.expire()
        count = len(self.entries)
        self.entries.clear()
        self.begin_empty()
        return count

    def begin_empty(self) -> None:
        """The state of a directory without an entry. Needs the lock."""
        self.state.set_unmoved()
        self.state.forget_bounds()
        self.state.set_has_queues()
        self.state.set_total(0, 0, 0)
        self.state.set_earliest(NEVER)

    def records(self) -> Iterator[tuple[HutchKey, Record]]:
        """All entries of this module, without their values. Some may have expired."""
        for key, extended in self._all(EXTENDED):
            record = Record.without_value(extended)
            if record is not None:
                yield key, record

    def put(self, key: HutchKey, record: Record, old: Record | None, lasts: float | None) -> None:
        """Store an entry in place of the old one, for this many seconds. Needs the lock."""
        tag = None if record.tag is None else stored_tag(record.tag)
        data, extended = record.encode(record.place != self.state.newest)
        if self.undo is not None:
            self.undo.setdefault(key, old)
        if record.lingers and record.expires is not None:
            self.state.set_earliest(min(self.state.earliest, nanoseconds(record.expires)))
        # First: a signal or a kill may end this after the entry is stored.
        self.ends.add(record.place, key)
        if old is None and _is_other(key):
            self.state.add(0, 0, 1)
        if lasts is None and tag is None:
            self.entries[key] = data, extended  # The accelerator's own call.
        else:
            self.entries.set(key, (data, extended), lasts, tag=tag)
        if old is None:
            self.state.add(1, charge(key, len(data), record.size), 0)
        elif record.value is not old.value or record.size != old.size:
            more = len(data) + record.size - old.length() - old.size
            if more:
                self.state.add(0, more, 0)

    def widen(self, key: HutchKey) -> None:
        """Let a queue know of a key of its kind, that is about to be stored. Needs the lock."""
        place = queue_place(key)
        if place is None:
            return
        prefix, number = place
        bounds = self.state.bounds(prefix)
        if bounds is not None and not bounds[0] <= number <= bounds[1]:
            low, high = bounds
            if low > high:
                low = high = number
            self.state.set_bounds(prefix, min(low, number), max(high, number))

    def drop(self, key: HutchKey, old: Record | None) -> None:
        """Remove an entry. Needs the lock."""
        if self.undo is not None:
            self.undo.setdefault(key, old)
        self.entries.delete(key)
        if old is not None:
            self.state.add(-1, -charge_of(key, old), -_is_other(key))

    def drop_all(self, entries: list[tuple[HutchKey, Record | None]]) -> None:
        """Remove entries, which share a commit. Needs the lock."""
        if self.undo is not None:
            for key, old in entries:
                self.undo.setdefault(key, old)
        self.entries.delete_many(key for key, _ in entries)
        there = [(key, old) for key, old in entries if old is not None]
        total = sum(charge_of(key, old) for key, old in there)
        others = sum(_is_other(key) for key, _ in there)
        self.state.add(-len(there), -total, -others)

    def volume(self) -> int:
        """The bytes of the entries, roughly."""
        return self.state.total(len(self.entries))

    # ------------------------------------------------------------- settings

    def set_settings(self, settings: dict[str, Any]) -> None:
        """Replace the stored settings. Needs the lock."""
        path = os.path.join(self.directory, SETTINGS)
        with suppress(FileNotFoundError):
            os.remove(path + ".new")  # Of a writer that was killed, or a link.
        with open(path + ".new", "x", encoding="utf-8") as file:
            json.dump(settings, file)
        os.replace(path + ".new", path)


def stored_settings(directory: str) -> dict[str, Any]:
    """The settings that a directory has."""
    try:
        with open(os.path.join(directory, SETTINGS), "rb", 0) as file:
            data = file.read()
        # What a caller can change is read anew for each.
        is_flat = b"[" not in data and data.count(b"{") == 1
        return dict((_parsed if is_flat else _parsed.__wrapped__)(data))
    except (OSError, ValueError, RecursionError):
        return {}


@lru_cache(maxsize=16)
def _parsed(data: bytes) -> dict[str, Any]:
    stored = json.loads(data)
    return stored if isinstance(stored, dict) else {}


def nanoseconds(seconds: float) -> int:
    """A Unix time as State has it."""
    return int(max(0.0, seconds) * 1e9) if seconds < NEVER / 1e9 else NEVER


def charge_of(key: HutchKey, old: Record | None) -> int:
    """The charge of an entry; 0: it is no entry of this module."""
    return 0 if old is None else charge(key, old.length(), old.size)


def _is_other(key: Any) -> int:
    """1: a key that is not of the queue without a prefix."""
    place = queue_place(key)
    return int(place is None or place[0] is not None)


def open_store(directory: str, inline: int, memory: int | None = None) -> Store:
    """The store of a directory, which is made if it does not exist."""
    with _opening:
        os.makedirs(directory, 0o755, exist_ok=True)
        status = os.stat(directory)
        key = status.st_dev, status.st_ino
        store = _stores.get(key)
        if store is None:
            store = Store(directory, inline, memory)
            _stores[key] = store
        return store
