"""When and how often entries were read, for the policies that evict by it.

A read does not write to hutch, whose order of accesses is exact to minutes. Under the policies
least-recently-used and least-frequently-used the reads are counted here as well, to the
nanosecond: in a table of fixed size, a file that is mapped into memory, which all processes of a
directory share. Readers write it without a lock: of two accesses at the same moment one may be
lost. A key that the table lacks was never read, or not for a long time, or the policy was another
one.
"""

from __future__ import annotations

import struct
import time
import zlib

from ._keys import HutchKey
from ._state import mapped

# A key has its slot in one bucket: the time of its last access, in nanoseconds, the number of its
# accesses, and the key's checksum. A slot without a time is free.
_BUCKETS, _SLOTS = 8192, 8
_SLOT = struct.Struct("<QII")
_BUCKET = struct.Struct("<" + "QII" * _SLOTS)
_MOST = 2**32 - 1
_KINDS: dict[type, int] = {int: 1, str: 2}


class Accesses:
    """The mapped file of a directory."""

    def __init__(self, path: str) -> None:
        self._map = mapped(path, _BUCKETS * _BUCKET.size)

    def _place(self, key: HutchKey) -> tuple[int, int]:
        """The key's checksum, and the offset of its bucket."""
        data = key if isinstance(key, bytes) else str(key).encode("utf-8", "surrogatepass")
        # 1, "1" and b"1" are different keys.
        check = zlib.crc32(data, _KINDS.get(type(key), 0))
        return check, check % _BUCKETS * _BUCKET.size

    def note(self, key: HutchKey, is_new: bool) -> None:
        """The entry was read; or it was stored (is_new), and its reads begin at none."""
        check, offset = self._place(key)
        bucket = _BUCKET.unpack_from(self._map, offset)
        times, counts, checks = bucket[::3], bucket[1::3], bucket[2::3]
        count = 0 if is_new else 1
        if check in checks:
            slot = checks.index(check)
            if not is_new:
                count = min(counts[slot] + 1, _MOST)
        else:
            slot = times.index(min(times))
        _SLOT.pack_into(self._map, offset + slot * _SLOT.size, time.time_ns(), count, check)

    def of(self, key: HutchKey) -> tuple[int, int]:
        """The time of the last access, and how many there were; zeros: not known."""
        check, offset = self._place(key)
        bucket = _BUCKET.unpack_from(self._map, offset)
        checks = bucket[2::3]
        if check not in checks:
            return 0, 0
        slot = 3 * checks.index(check)
        return bucket[slot], bucket[slot + 1]
