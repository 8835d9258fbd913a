"""The data that writers share beside the entries: counters, and the bounds of queues.

A file that is mapped into memory. The holder of the writer lock reads and writes it; the counters
are also read without the lock. All of it except hits and misses can be rebuilt from the entries:
after a restart of the machine the file is not trusted.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from functools import lru_cache

_MAGIC = b"hutchdc3"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
# Places in the file, in numbers of eight bytes.
_QUEUES, _BEFORE_MOVES = 6, 7
_PLACE, _COUNT, _BYTES, _HITS, _MISSES, _MOVED, _OTHERS, _EARLIEST = range(8, 16)
_TABLE = 128
_SLOTS, _PROBES = 1024, 8
_SLOT = struct.Struct("<16sqq")
_SIZE = _TABLE + _SLOTS * _SLOT.size
_LARGEST = 2**63 - 1
_NO_PREFIX = b"\1" * 16
_EMPTY = bytes(16)
_NO_NUMBERS = 1, 0

NEVER = 2**62
"""The earliest end of no entry, in nanoseconds."""


@lru_cache(maxsize=1)
def _boot() -> bytes:
    """The start of the machine, which no process outlives."""
    try:
        with open(_BOOT_ID, "rb") as file:
            return file.read(36).ljust(36)
    except OSError:
        return b"unknown".ljust(36)


def mapped(path: str, size: int) -> mmap.mmap:
    """A file of this size, which is made if it does not exist, in memory that processes share.
    OSError: it is a link."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        if os.fstat(file).st_size != size:
            os.ftruncate(file, size)
        return mmap.mmap(file, size)
    finally:
        os.close(file)


class State:
    """The mapped file of a directory."""

    def __init__(self, path: str) -> None:
        self._map = mapped(path, _SIZE)
        self._numbers = memoryview(self._map).cast("q")

    def is_trusted(self) -> bool:
        """Whether this was written since the machine started."""
        return self._map[: len(_MAGIC) + 36] == _MAGIC + _boot()

    def begin(self, count: int, total: int, others: int) -> None:
        """Start again with the result of Store.measure. Needs the lock."""
        if self._map[: len(_MAGIC)] != _MAGIC:
            self._map[:_TABLE] = bytes(_TABLE)
        self.forget_bounds()
        self.set_total(count, total, others)
        self.set_unmoved()
        if count:
            self.next_place()
            self.set_moved(1)
            self._numbers[_BEFORE_MOVES] = 0
        self.set_earliest(0 if count else NEVER)
        self._map[: len(_MAGIC) + 36] = _MAGIC + _boot()

    def next_place(self) -> int:
        """The place of a new entry: above all others. Needs the lock."""
        place = max(time.time_ns(), self._numbers[_PLACE] + 1)
        self._numbers[_PLACE] = place
        return place

    @property
    def newest(self) -> int:
        """The greatest place that was given."""
        return self._numbers[_PLACE]

    @property
    def moved(self) -> int:
        """Each entry that was written again has this place or a greater one; 0: no entry was. The
        entries with lesser places are in the order of their places."""
        return self._numbers[_MOVED]

    @property
    def before_moves(self) -> int:
        """The greatest place that was given before the first entry was written again; 0: it is not
        known, or no entry was."""
        return self._numbers[_BEFORE_MOVES]

    def set_moved(self, place: int) -> None:
        """The entry with this place is written again. Needs the lock."""
        numbers = self._numbers
        if not numbers[_MOVED]:
            numbers[_BEFORE_MOVES] = numbers[_PLACE]
        if not 0 < numbers[_MOVED] <= place:
            numbers[_MOVED] = max(1, place)

    def set_unmoved(self) -> None:
        """There is no entry. Needs the lock."""
        self._numbers[_MOVED] = 0
        self._numbers[_BEFORE_MOVES] = 0

    @property
    def earliest(self) -> int:
        """No entry that lingers ends before this Unix time in nanoseconds; 0: it is not known."""
        return self._numbers[_EARLIEST]

    def set_earliest(self, earliest: int) -> None:
        """Needs the lock."""
        self._numbers[_EARLIEST] = earliest

    @property
    def count(self) -> int:
        """How many entries were put and not removed: those that expired are among them."""
        return self._numbers[_COUNT]

    @property
    def most(self) -> int:
        """The bytes of the entries, with those of entries that have expired: total is no more."""
        return self._numbers[_BYTES]

    @property
    def others(self) -> int:
        """The number of keys outside the queue without a prefix. It is too high if some expired, or
        were not stored after all; it is never too low, for iterkeys goes by it."""
        return self._numbers[_OTHERS]

    def add(self, count: int, total: int, others: int) -> None:
        """Add to, or subtract from, the entries, bytes and other keys. Needs the lock."""
        numbers = self._numbers
        for place, more in (_OTHERS, others), (_COUNT, count), (_BYTES, total):
            if more:
                numbers[place] = max(0, min(numbers[place] + more, _LARGEST))

    def set_total(self, count: int, total: int, others: int) -> None:
        """Needs the lock."""
        self._numbers[_OTHERS] = others
        self._numbers[_COUNT] = count
        self._numbers[_BYTES] = total

    def total(self, count: int) -> int:
        """The bytes of this many entries.

        Entries expire without being counted here: the result is then their share of the whole.
        """
        counted, total = self._numbers[_COUNT], self._numbers[_BYTES]
        if count >= counted or not counted:
            return total
        return total * count // counted

    def hits(self) -> tuple[int, int]:
        """Hits and misses that were counted."""
        return self._numbers[_HITS], self._numbers[_MISSES]

    def count_access(self, hit: bool) -> None:
        """Add a hit or a miss. Needs the lock."""
        self._numbers[_HITS if hit else _MISSES] += 1

    def set_hits(self, hits: int | None, misses: int | None) -> None:
        """None: as it is. Needs the lock."""
        if hits is not None:
            self._numbers[_HITS] = hits
        if misses is not None:
            self._numbers[_MISSES] = misses

    # The bounds of queues: every key of a queue is within its bounds, and some keys within may be
    # missing. A queue that is not in the table is empty if the table has all queues; else its
    # bounds are found by a scan of all keys.

    def set_has_queues(self) -> None:
        """The table has the bounds of every queue that has an entry. Needs the lock."""
        self._numbers[_QUEUES] = 1

    def _slot(self, prefix: str | None) -> tuple[bytes, int]:
        """The name of a queue, and the place in the file of its slot, or of one to use."""
        name = _NO_PREFIX
        if prefix is not None:
            import hashlib  # Here as elsewhere: few calls need it, and it takes long.

            name = hashlib.blake2b(prefix.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        first = int.from_bytes(name[:4], "little") % _SLOTS
        free = None
        for step in range(_PROBES):
            offset = _TABLE + (first + step) % _SLOTS * _SLOT.size
            there = self._map[offset : offset + 16]
            if there == name:
                return name, offset
            if free is None and there == _EMPTY:
                free = offset
        return name, _TABLE + first * _SLOT.size if free is None else free

    def bounds(self, prefix: str | None) -> tuple[int, int] | None:
        """The least and the greatest number that the queue can have, the first one greater if the
        queue is empty; None: they are not known. Needs the lock."""
        name, offset = self._slot(prefix)
        found, low, high = _SLOT.unpack_from(self._map, offset)
        if found == name:
            return low, high
        return _NO_NUMBERS if self._numbers[_QUEUES] else None

    def set_bounds(self, prefix: str | None, low: int, high: int) -> None:
        """Needs the lock."""
        name, offset = self._slot(prefix)
        there = self._map[offset : offset + 16]
        if there != name and self._numbers[_QUEUES]:
            if low > high:
                return  # As bounds says of a queue that is not in the table.
            if there != _EMPTY:
                self._numbers[_QUEUES] = 0  # Another queue loses its place.
        _SLOT.pack_into(self._map, offset, name, low, high)

    def forget_bounds(self) -> None:
        """Of all queues. Needs the lock."""
        self._numbers[_QUEUES] = 0
        self._map[_TABLE:] = bytes(_SIZE - _TABLE)
