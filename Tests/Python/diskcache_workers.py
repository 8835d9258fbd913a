"""What the worker processes of test_diskcache_processes.py do.

A module of its own: a process that is spawned imports it, and none of the tests' modules.
"""

from __future__ import annotations

import signal

from hutch.diskcache import Averager, BoundedSemaphore, Cache, FanoutCache, Lock, RLock

ROUNDS = 50


def begin(barrier):
    """A worker process keeps the barrier that all of them pass at the same time."""
    global start
    start = barrier


def together(function, directory, number):
    """Each worker takes one call, since a call waits until every worker has one."""
    start.wait(60)
    return function(directory, number)


def count_up(directory, number):
    cache = Cache(directory)
    for _ in range(ROUNDS):
        cache.incr("n", retry=True)
        with cache.transact(retry=True):
            cache["pair"] = [each + 1 for each in cache.get("pair", [0, 0])]


def add_each(directory, number):
    cache = FanoutCache(directory, shards=2)
    return sum(cache.add(each, number, retry=True) for each in range(ROUNDS))


def push_and_pull(directory, number):
    cache = Cache(directory)
    for each in range(ROUNDS):
        cache.push((number, each), prefix="jobs", retry=True)
    taken = []
    while True:
        key, value = cache.pull(prefix="jobs", retry=True)
        if key is None:
            return taken
        taken.append(value)


def with_recipes(directory, number):
    cache = Cache(directory, eviction_policy="none")
    lock, again = Lock(cache, "lock"), RLock(cache, "rlock")
    semaphore = BoundedSemaphore(cache, "semaphore", value=2)
    average = Averager(cache, "average")
    for each in range(ROUNDS // 10):
        with lock:
            cache["a"] = cache.get("a", 0) + 1
        with again, again:
            cache["b"] = cache.get("b", 0) + 1
        with semaphore:
            inside = cache.incr("inside", retry=True)
            assert 1 <= inside <= 2
            cache.decr("inside", retry=True)
        average.add(each)


def hold_until_killed(directory, started):
    cache = Cache(directory)
    with cache.transact():
        cache["half"] = 1
        started.set()
        signal.pause()
