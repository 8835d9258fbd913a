"""The package hutch beside python-diskcache, on disk.

    python3 disk.py [rounds]

Values of bytes through both caches, in fresh directories below TMPDIR: set, get, get of what is
not there, delete. Hutch is measured as the whole cache, with its memory tier, and as the view of
its disk tier, where every get reads the disk as diskcache's does. The contenders take turns, round
by round; printed are medians over the rounds in microseconds, and in brackets how many times as
long it takes as Hutch's whole cache. Needs diskcache from PyPI, and libhutch as the package finds it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bindings" / "python"))

import diskcache  # noqa: E402
import hutch  # noqa: E402

SIZES = {100: 3000, 10_000: 1000, 100_000: 200, 1_000_000: 30}
OPERATIONS = ("set", "get", "miss", "delete")


def one_round(cache: Any, value: bytes, count: int) -> list[float]:
    def timed(work: Callable[[str], Any], prefix: str = "key") -> float:
        keys = [f"{prefix}-{number}" for number in range(count)]
        start = time.perf_counter()
        for key in keys:
            work(key)
        return (time.perf_counter() - start) / count * 1e6

    times = [timed(lambda key: cache.set(key, value)), timed(cache.get)]
    assert cache.get("key-0") == value
    times.append(timed(cache.get, "absent"))
    times.append(timed(cache.delete))
    return times


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    limits = hutch.TierLimits(cost=hutch.NO_LIMIT, max_entry=hutch.NO_LIMIT)
    base = tempfile.mkdtemp(prefix="hutch-python-")

    def whole(path: str) -> tuple[Any, Any]:
        cache = hutch.Cache(path, memory=limits, disk=limits)
        return cache, cache

    def disk(path: str) -> tuple[Any, Any]:
        cache = hutch.Cache(path, memory=limits, disk=limits)
        return cache.disk, cache

    def theirs(path: str) -> tuple[Any, Any]:
        cache = diskcache.Cache(path, size_limit=1 << 40)
        return cache, cache

    contenders = {"hutch": whole, "hutch.disk": disk, "diskcache": theirs}
    for size, count in SIZES.items():
        value = os.urandom(size)
        times: dict[str, list[list[float]]] = {name: [] for name in contenders}
        for number in range(rounds):
            names = list(contenders)
            for name in names[number % 3 :] + names[: number % 3]:
                path = os.path.join(base, name)
                cache, owner = contenders[name](path)
                times[name].append(one_round(cache, value, count))
                owner.close()
                shutil.rmtree(path)
        print(f"\n{size} bytes" + "".join(f"{name:>20}" for name in contenders))
        for index, operation in enumerate(OPERATIONS):
            medians = {
                name: statistics.median(one[index] for one in all_rounds)
                for name, all_rounds in times.items()
            }
            row = "".join(
                f"{value:13.1f} ({value / medians['hutch']:4.1f})" for value in medians.values()
            )
            print(f"{operation:<10}{row}")
    shutil.rmtree(base)


if __name__ == "__main__":
    main()
