#!/usr/bin/env python3
"""Hits, misses and sets in memory, beside dict, cachebox and lru-dict, in one process.

    Tests/Benchmarks/python/memory.py [ROUNDS]

Each contender runs each operation in every round, in a new order; CPU time of the thread, the
tenth percentile of all rounds, in ns a call with its loop. The last columns are ratios to dict
and to cachebox.LRUCache. Peers that are not installed are left out (pip install cachebox
lru-dict). The row "python" is Hutch without its accelerator.
"""

from __future__ import annotations

import functools
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bindings" / "python"))

import hutch  # noqa: E402
from hutch._entries import SlowEntries  # noqa: E402

try:
    import cachebox
except ImportError:
    cachebox = None
try:
    from lru import LRU
except ImportError:
    LRU = None

ENTRIES = 300
CALLS = 3000
VALUES = {"bytes": b"x" * 100, "str": "x" * 20, "int": 7}


class Slow:
    """A cache by ctypes alone."""

    def __init__(self, cache):
        self.get = functools.partial(SlowEntries.get, cache)
        self.cache = cache

    def __getitem__(self, key):
        return SlowEntries.__getitem__(self.cache, key)

    def __setitem__(self, key, value):
        SlowEntries.__setitem__(self.cache, key, value)

    def __contains__(self, key):
        return SlowEntries.__contains__(self.cache, key)


def get_hit(cache, keys, value):
    get = cache.get
    for key in keys:
        get(key)


def get_item(cache, keys, value):
    for key in keys:
        cache[key]


def get_miss(cache, keys, value):
    get = cache.get
    for key in keys:
        get("none")


def contains(cache, keys, value):
    for key in keys:
        key in cache  # noqa: B015


def set_item(cache, keys, value):
    for key in keys:
        cache[key] = value


OPERATIONS = [
    ("get, hit", get_hit, "bytes"),
    ("get, hit", get_hit, "str"),
    ("get, hit", get_hit, "int"),
    ("c[k]", get_item, "bytes"),
    ("get, miss", get_miss, "bytes"),
    ("k in c", contains, "bytes"),
    ("c[k] = v", set_item, "bytes"),
    ("c[k] = v", set_item, "str"),
    ("c[k] = v", set_item, "int"),
]


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    contenders = {"dict": dict()}
    if cachebox is not None:
        contenders["cachebox"] = cachebox.LRUCache(100_000)
    if LRU is not None:
        contenders["lru-dict"] = LRU(100_000)
    contenders["hutch"] = hutch.Cache()
    contenders["python"] = Slow(hutch.Cache())

    keys = [f"key-{number}" for number in range(ENTRIES)] * (CALLS // ENTRIES)
    measured = {(name, place): [] for name in contenders for place in range(len(OPERATIONS))}
    for _ in range(rounds):
        places = list(measured)
        random.shuffle(places)
        for name, place in places:
            _, operation, kind = OPERATIONS[place]
            cache = contenders[name]
            set_item(cache, keys[:ENTRIES], VALUES[kind])
            begin = time.thread_time_ns()
            operation(cache, keys, VALUES[kind])
            measured[name, place].append((time.thread_time_ns() - begin) / len(keys))

    line = "{:<18}" + " {:>9}" * (len(contenders) + 2)
    print(line.format("ns", *contenders, "/dict", "/cachebox"))
    for place, (words, _, kind) in enumerate(OPERATIONS):
        found = {name: sorted(measured[name, place])[rounds // 10] for name in contenders}
        ratios = [
            f"{found['hutch'] / found[peer]:.2f}" if peer in found else ""
            for peer in ("dict", "cachebox")
        ]
        print(line.format(f"{words}, {kind}", *(f"{it:.1f}" for it in found.values()), *ratios))


if __name__ == "__main__":
    main()
