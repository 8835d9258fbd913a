#!/usr/bin/env python3
"""Processes that share one directory, against python-diskcache: processes.py [--long]

Each process gets and sets random ones of 1,000 keys with values of 1,000 bytes, 90 gets to 10
sets, as fast as it can, for a fixed number of calls after all have begun. Every round runs each
library once, in a fresh directory of its own, in turn; printed are medians over the rounds of
the calls per second of all processes together, and of their ratio within a round.

Needs the packages hutch and diskcache.
"""

import argparse
import multiprocessing
import random
import shutil
import statistics
import tempfile
import time

KEYS = 1000
VALUE = b"x" * 1000


def make_hutch(directory):
    import hutch

    limits = hutch.TierLimits(cost=None)
    cache = hutch.Cache(directory, sharing="shared", disk=limits)
    return cache.get, cache.set, cache.close


def make_hutch_disk(directory):
    import hutch

    limits = hutch.TierLimits(cost=None)
    cache = hutch.Cache(directory, sharing="shared", disk=limits)
    return cache.disk.get, cache.disk.set, cache.close


def make_diskcache(directory):
    import diskcache

    cache = diskcache.Cache(directory, size_limit=1 << 40)
    return cache.get, cache.set, cache.close


def work(make, directory, index, calls, barrier):
    get, put, close = make(directory)
    generator = random.Random(index)
    plan = [(generator.randrange(10) == 0, generator.randrange(KEYS)) for _ in range(calls)]
    barrier.wait()
    for writes, key in plan:
        if writes:
            put(key, VALUE)
        else:
            get(key)
    barrier.wait()
    close()


def rate(make, processes, calls):
    """Calls per second of all processes."""
    directory = tempfile.mkdtemp(dir=".")
    try:
        _, put, close = make(directory)
        for key in range(KEYS):
            put(key, VALUE)
        close()
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(processes + 1)
        children = [
            context.Process(target=work, args=(make, directory, index, calls, barrier))
            for index in range(processes)
        ]
        for child in children:
            child.start()
        barrier.wait()
        begin = time.monotonic()
        barrier.wait()
        took = time.monotonic() - begin
        for child in children:
            child.join()
            assert child.exitcode == 0
        return processes * calls / took
    finally:
        shutil.rmtree(directory)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="more rounds, more calls")
    long = parser.parse_args().long
    rounds, calls = (9, 20000) if long else (5, 4000)
    makers = {"hutch": make_hutch, "disk view": make_hutch_disk, "diskcache": make_diskcache}
    for processes in (4, 8):
        rates = {name: [] for name in makers}
        for _ in range(rounds):
            for name, make in makers.items():
                rates[name].append(rate(make, processes, calls))
        print(f"{processes} processes, {rounds} rounds of {calls} calls each, 90 gets to 10 sets")
        for name in makers:
            ratio = statistics.median(a / b for a, b in zip(rates[name], rates["diskcache"]))
            print(f"  {name:10} {statistics.median(rates[name]):10,.0f} calls/s {ratio:6.1f} x")


if __name__ == "__main__":
    main()
