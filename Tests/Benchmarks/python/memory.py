#!/usr/bin/env python3
"""Calls that memory answers, beside dict, cachebox, lru-dict and lru_cache, in one process.

    Tests/Benchmarks/python/memory.py [ROUNDS]

Each contender runs each operation in every round, in a new order, on entries that the processor
has in its caches; CPU time of the thread, the tenth percentile of all rounds, in ns a call with
its loop. The last columns are ratios to dict (of memoized functions, to functools.lru_cache) and
to cachebox. Beside get_object and put_object stand the peers' get and set, which keep references
too. Peers that are not installed are left out (pip install cachebox lru-dict). The column "python"
is Hutch without its accelerator, "directory" a cache above a directory, of which memory answers.
Below the table: gets of 200,000 entries in random order, which the processor's caches do not hold;
and gets in a second on one thread, on two, and beside a thread that computes in Python.
"""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
import timeit
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
MANY = 200_000
VALUES = {
    "bytes": b"x" * 100,
    "str": "x" * 20,
    "int": 7,
    "dict": {"id": 17, "name": "a name", "tags": ["x", "y"], "score": 0.5, "ok": True},
}


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

    def incr(self, key):
        return SlowEntries.incr(self.cache, key)

    def get_object(self, key):
        return SlowEntries.get_object(self.cache, key)

    def put_object(self, key, value):
        SlowEntries.put_object(self.cache, key, value)


def get_hit(cache, keys, value):
    get = cache.get
    for key in keys:
        get(key)


def get_by_name(cache, keys, value):
    for key in keys:
        cache.get(key)


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


def increment(cache, keys, value):
    if isinstance(cache, (hutch.Cache, Slow)):
        for key in keys:
            cache.incr(key)
    else:
        for key in keys:
            cache[key] += 1


def get_object(cache, keys, value):
    get = cache.get_object if isinstance(cache, (hutch.Cache, Slow)) else cache.get
    if get(keys[0]) is None:  # Objects have keys of their own.
        put_object(cache, keys[:ENTRIES], value)
    for key in keys:
        get(key)


def put_object(cache, keys, value):
    if isinstance(cache, (hutch.Cache, Slow)):
        put = cache.put_object
        for key in keys:
            put(key, value)
    else:
        set_item(cache, keys, value)


def memoized(argument):
    """The calls of a memoized function with this argument, of which each is a hit."""
    functions = {}

    def calls(cache, keys, value):
        function = functions.get(id(cache))
        if function is None:
            function = functions[id(cache)] = decorated(cache)
        function(argument)
        for _ in keys:
            function(argument)

    return calls


def decorated(cache):
    def function(argument):
        return 1

    if isinstance(cache, dict):
        return functools.lru_cache(None)(function)
    if isinstance(cache, hutch.Cache):
        return cache.memoize()(function)
    return cachebox.cached(cachebox.LRUCache(1000))(function)


OPERATIONS = [
    ("get, hit", get_hit, "bytes"),
    ("get, hit", get_hit, "str"),
    ("get, hit", get_hit, "int"),
    ("get, hit", get_hit, "dict"),
    ("c.get(k)", get_by_name, "bytes"),
    ("c[k]", get_item, "bytes"),
    ("get, miss", get_miss, "bytes"),
    ("k in c", contains, "bytes"),
    ("c[k] = v", set_item, "bytes"),
    ("c[k] = v", set_item, "str"),
    ("c[k] = v", set_item, "int"),
    ("c[k] = v", set_item, "dict"),
    ("incr", increment, "int"),
    ("get_object", get_object, "dict"),
    ("put_object", put_object, "dict"),
    ("memoized(7)", memoized(7), "int"),
    ("memoized('text')", memoized("text"), "int"),
    ("memoized((7, 'a'))", memoized((7, "a")), "int"),
]


def has(name, place):
    """Whether this contender has this operation here."""
    words = OPERATIONS[place][0]
    if "memo" in words:
        return name not in ("lru-dict", "python")
    # The writes of a cache with a directory are disk.py's.
    return name != "directory" or ("= v" not in words and words != "incr")


def gets_of_many(rounds):
    """ns a get of each contender, of entries that are in main memory: medians."""
    keys = [f"key-{number}" for number in range(MANY)]
    contenders = {"dict": {}, "hutch": hutch.Cache(memory=1 << 30)}
    if cachebox is not None:
        contenders["cachebox"] = cachebox.LRUCache(2 * MANY)
    for key in keys:
        for cache in contenders.values():
            cache[key] = os.urandom(100)
    random.shuffle(keys)
    measured = {name: [] for name in contenders}
    for _ in range(rounds):
        for name in random.sample(list(contenders), len(contenders)):
            begin = time.thread_time_ns()
            get_hit(contenders[name], keys, None)
            measured[name].append((time.thread_time_ns() - begin) / MANY)
    return {name: statistics.median(each) for name, each in measured.items()}


def gets_in_a_second(threads, busy):
    """Gets of a hit in a second of all these threads, beside so many that compute."""
    cache = hutch.Cache()
    cache["key"] = b"x" * 100
    done, stop = [], threading.Event()

    def get():
        get, count = cache.get, 0
        end = time.perf_counter() + 1
        while time.perf_counter() < end:
            for _ in range(1000):
                get("key")
            count += 1000
        done.append(count)

    def compute():
        while not stop.is_set():
            sum(range(1000))

    others = [threading.Thread(target=compute) for _ in range(busy)]
    getters = [threading.Thread(target=get) for _ in range(threads)]
    for thread in others + getters:
        thread.start()
    for thread in getters:
        thread.join()
    stop.set()
    for thread in others:
        thread.join()
    return sum(done)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    contenders = {"dict": dict()}
    if cachebox is not None:
        contenders["cachebox"] = cachebox.LRUCache(100_000)
    if LRU is not None:
        contenders["lru-dict"] = LRU(100_000)
    contenders["hutch"] = hutch.Cache()
    base = tempfile.mkdtemp(prefix="hutch-python-")
    contenders["directory"] = hutch.Cache(os.path.join(base, "cache"))
    contenders["python"] = Slow(hutch.Cache())

    keys = [f"key-{number}" for number in range(ENTRIES)] * (CALLS // ENTRIES)
    measured = {(name, place): [] for name in contenders for place in range(len(OPERATIONS))}
    for _ in range(rounds):
        places = [at for at in measured if has(*at)]
        random.shuffle(places)
        for name, place in places:
            _, operation, kind = OPERATIONS[place]
            cache = contenders[name]
            set_item(cache, keys[:ENTRIES], VALUES[kind])
            # The writes of a directory have put much else into the processor's caches.
            operation(cache, keys[:ENTRIES], VALUES[kind])
            begin = time.thread_time_ns()
            operation(cache, keys, VALUES[kind])
            measured[name, place].append((time.thread_time_ns() - begin) / len(keys))

    line = "{:<22}" + " {:>9}" * (len(contenders) + 2)
    text = json.dumps(VALUES["dict"])
    loads = min(timeit.repeat(lambda: json.loads(text), number=1000, repeat=20)) * 1e6
    print(line.format("ns", *contenders, "/dict", "/cachebox"))
    for place, (words, _, kind) in enumerate(OPERATIONS):
        found = {
            name: sorted(measured[name, place])[rounds // 10] if measured[name, place] else 0.0
            for name in contenders
        }
        ratios = [
            f"{found['hutch'] / found[peer]:.2f}" if peer in found else ""
            for peer in ("dict", "cachebox")
        ]
        print(line.format(words if "memo" in words else f"{words}, {kind}", *(f"{it:.1f}" if it else "" for it in found.values()), *ratios))

    print(f"json.loads of the text of the dict: {loads:.0f} ns")
    many = gets_of_many(max(3, rounds // 4))
    ratios = [f"{many['hutch'] / ns:.2f} x {name}" for name, ns in many.items() if name != "hutch"]
    print(f"get of {MANY:,} entries: {many['hutch']:.0f} ns, {', '.join(ratios)}")
    for words, threads, busy in (
        ("one thread", 1, 0), ("two threads", 2, 0), ("beside a busy thread", 1, 1)
    ):
        print(f"{words:<22} {gets_in_a_second(threads, busy):>12,} gets/s")
    contenders["directory"].close()
    shutil.rmtree(base)


if __name__ == "__main__":
    main()
