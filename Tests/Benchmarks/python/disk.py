"""The package hutch beside python-diskcache and py-lmdb, on disk.

    python3 disk.py [rounds] [cpu]

Values of bytes through each cache, in fresh directories below TMPDIR: set, replace by another value
of the same size, get, get again, get of what is not there, delete. The first get of a value also
pays for the pages that the process has not mapped or read yet; "get again" is the second get of
each value. The contenders:

    hutch          with storage="mixed", and its memory tier
    hutch.disk     the view of its disk tier: every get reads the disk
    log, log.disk  the same with storage="log"
    module         hutch.diskcache
    diskcache      python-diskcache
    lmdb           py-lmdb with sync=False, a transaction for each call

The contenders take turns, round by round; printed are medians over the rounds in microseconds,
and in brackets the ratio to python-diskcache. With cpu they are CPU time of the process, the
library's threads included, which other processes disturb less. Then queues, counters, tags and
walks of both diskcaches, their ends and their evictions with few and with many entries, and four
processes on one directory, with 90 gets to 10 sets. Needs
diskcache and lmdb from PyPI, and libhutch as the package finds it.
"""

from __future__ import annotations

import multiprocessing
import os
import random
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
import hutch.diskcache  # noqa: E402
import lmdb  # noqa: E402

SIZES = {100: 2000, 10_000: 500, 100_000: 100}
PROCESSES, KEYS, SECONDS = 4, 2000, 1.0


class Lmdb:
    """A database of LMDB with the calls of a cache."""

    def __init__(self, path: str) -> None:
        self._all = lmdb.open(path, map_size=1 << 30, sync=False)
        self.close = self._all.close

    def set(self, key: str, value: bytes) -> None:
        with self._all.begin(write=True) as transaction:
            transaction.put(key.encode(), value)

    def get(self, key: str) -> bytes | None:
        with self._all.begin() as transaction:
            found: bytes | None = transaction.get(key.encode())
        return found

    def delete(self, key: str) -> None:
        with self._all.begin(write=True) as transaction:
            transaction.delete(key.encode())


def opened(name: str, path: str) -> tuple[Any, Any]:
    """The contender, and what closes it."""
    limits = hutch.TierLimits(cost=hutch.NO_LIMIT, max_entry=hutch.NO_LIMIT)
    kind, _, view = name.partition(".")
    if kind == "lmdb":
        cache: Any = Lmdb(path)
    elif kind == "diskcache":
        cache = diskcache.Cache(path, size_limit=1 << 40)
    elif kind == "module":
        cache = hutch.diskcache.Cache(path, size_limit=1 << 40)
    else:
        storage = "log" if kind == "log" else "mixed"
        cache = hutch.Cache(path, memory=limits, disk=limits, storage=storage)
    return (cache.disk if view else cache), cache


clock = time.process_time if "cpu" in sys.argv[1:] else time.perf_counter


def timed(work: Callable[[str], Any], keys: list[str]) -> float:
    """Microseconds a call."""
    start = clock()
    for key in keys:
        work(key)
    return (clock() - start) / len(keys) * 1e6


def one_round(cache: Any, value: bytes, count: int) -> dict[str, float]:
    keys = [f"key-{number}" for number in range(count)]
    # SQLite writes no page of a row that is replaced by the same one.
    other = value[::-1]
    times = {
        "set": timed(lambda key: cache.set(key, value), keys),
        "replace": timed(lambda key: cache.set(key, other), keys),
        "get": timed(cache.get, keys),
    }
    assert cache.get("key-0") == other
    times["get again"] = timed(cache.get, keys)
    times["miss"] = timed(cache.get, [f"absent-{number}" for number in range(count)])
    times["delete"] = timed(cache.delete, keys)
    return times


def queue_round(cache: Any, value: bytes, count: int) -> dict[str, float]:
    keys = [f"key-{number}" for number in range(count)]
    times = {
        "push": timed(lambda _: cache.push(value), keys),
        "pull": timed(lambda _: cache.pull(), keys),
        "incr": timed(lambda _: cache.incr("n"), keys),
        "set, tag": timed(lambda key: cache.set(key, value, tag="tag"), keys),
    }
    start = clock()
    assert cache.evict("tag") == count
    times["evict, each"] = (clock() - start) / count * 1e6
    for _ in range(2):
        for key in keys:
            cache.set(key, value)
    times["touch"] = timed(lambda key: cache.touch(key, 100), keys)
    for name, walk in ("iterate, each", cache.__iter__), ("iterkeys, each", cache.iterkeys):
        start = clock()
        assert len(list(walk())) == count + 1
        times[name] = (clock() - start) / count * 1e6
    start = clock()
    assert cache.clear() == count + 1
    times["clear, each"] = (clock() - start) / count * 1e6
    return times


def ends_round(cache: Any, value: bytes, count: int) -> dict[str, float]:
    """What goes by the order of entries, of which some have been written again."""
    keys = [f"key-{number}" for number in range(count)]
    with cache.transact():
        for key in keys:
            cache.set(key, value)
    some = random.sample(keys, 100)
    times = {"replace": timed(lambda key: cache.set(key, value), some)}
    times["touch"] = timed(cache.touch, some)
    index = (diskcache if isinstance(cache, diskcache.Cache) else hutch.diskcache).Index
    items = index.fromcache(cache)
    for words, last in ("last", True), ("first", False):
        times[f"peek, {words}"] = timed(lambda _: cache.peekitem(last=last), some)
        times[f"pop, {words}"] = timed(lambda _: items.popitem(last=last), some)
    for words, walk in ("iterate, each", cache.__iter__), ("reversed, each", cache.__reversed__):
        start = clock()
        assert len(list(walk())) == count - 200
        times[words] = (clock() - start) / count * 1e6
    more = [f"more-{number}" for number in range(300)]
    for policy in "stored", "used":
        cache.reset("eviction_policy", f"least-recently-{policy}")
        cache.reset("size_limit", 1 << 40)
        for key in keys[:300]:
            cache.set(key, value)
        cache.reset("size_limit", cache.volume())
        for key in more[:100]:  # A database evicts only when a page more is full.
            cache.set(key, value)
        times[f"full, {policy}"] = timed(lambda key: cache.set(key, value), more[100:])
    return times


def compared(
    title: str, names: list[str], base: str, rounds: int, work: Callable[[Any], dict[str, float]]
) -> None:
    """Print the medians of all contenders, which take turns."""
    times: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            path = os.path.join(base, name)
            cache, owner = opened(name, path)
            for operation, measured in work(cache).items():
                times.setdefault((operation, name), []).append(measured)
            owner.close()
            shutil.rmtree(path)
    print(f"\n{title:<14}" + "".join(f"{name:>16}" for name in names))
    for operation in dict.fromkeys(operation for operation, _ in times):
        medians = {name: statistics.median(times[operation, name]) for name in names}
        theirs = medians["diskcache"]
        row = "".join(f"{each:9.1f} ({each / theirs:4.2f})" for each in medians.values())
        print(f"{operation:<14}{row}")


def process(name: str, path: str, seed: int, ready: Any, counts: Any) -> None:
    """Gets and sets, popular keys more often."""
    cache, owner = opened(name, path)
    chance = random.Random(seed)
    value = os.urandom(100)
    calls = [
        (f"key-{int(KEYS * chance.random() ** 3)}", chance.random() < 0.1) for _ in range(10_000)
    ]
    ready.wait()
    done, end = 0, time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for key, is_set in calls[done % 10_000 :][:100]:
            if is_set:
                cache.set(key, value)
            else:
                cache.get(key)
        done += 100
    counts.put(done)
    owner.close()


def by_processes(names: list[str], base: str, rounds: int) -> None:
    context = multiprocessing.get_context("spawn")
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            path = os.path.join(base, name)
            cache, owner = opened(name, path)
            for number in range(KEYS):
                cache.set(f"key-{number}", bytes(100))
            owner.close()
            ready, counts = context.Barrier(PROCESSES), context.Queue()
            workers = [
                context.Process(target=process, args=(name, path, seed, ready, counts))
                for seed in range(PROCESSES)
            ]
            for worker in workers:
                worker.start()
            found[name].append(sum(counts.get() for _ in workers) / SECONDS)
            for worker in workers:
                worker.join()
            shutil.rmtree(path)
    theirs = statistics.median(found["diskcache"])
    print(f"\n{PROCESSES} processes, 90 gets to 10 sets: calls a second, and times python-diskcache's")
    for name, rates in found.items():
        rate = statistics.median(rates)
        print(f"{name:<12}{rate:12,.0f}{rate / theirs:9.1f}")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    base = tempfile.mkdtemp(prefix="hutch-python-")
    names = ["hutch", "hutch.disk", "log", "log.disk", "module", "diskcache", "lmdb"]
    for size, count in SIZES.items():
        value = os.urandom(size)
        compared(
            f"{size} bytes", names, base, rounds, lambda cache: one_round(cache, value, count)
        )
    compared(
        "100 bytes", ["module", "diskcache"], base, rounds,
        lambda cache: queue_round(cache, bytes(100), 1000),
    )
    for count in 300, 10_000:
        compared(
            f"{count:,} entries", ["module", "diskcache"], base, rounds,
            lambda cache: ends_round(cache, bytes(100), count),
        )
    by_processes(["hutch", "log", "module", "diskcache", "lmdb"], base, max(1, rounds // 2))
    shutil.rmtree(base)


if __name__ == "__main__":
    main()
