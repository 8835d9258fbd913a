"""hutch.diskcache: several processes on one directory, and a process that is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading

import diskcache_workers
import pytest
from diskcache_workers import ROUNDS, add_each, count_up, hold_until_killed
from diskcache_workers import push_and_pull, with_recipes
from processes import environment

from hutch.diskcache import Averager, Cache, Deque, FanoutCache, Timeout

WORKERS = 4
spawn = multiprocessing.get_context("spawn")


@pytest.fixture(scope="module")
def in_processes():
    """Runs a function in four processes at the same time; the list of what each returns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
        with spawn.Pool(WORKERS, diskcache_workers.begin, [spawn.Barrier(WORKERS)]) as pool:

            def run(function, directory):
                calls = [(function, str(directory), number) for number in range(WORKERS)]
                return pool.starmap(diskcache_workers.together, calls, chunksize=1)

            yield run


def test_incr_and_transact(in_processes, tmp_path):
    in_processes(count_up, tmp_path)
    with Cache(tmp_path) as cache:
        assert cache["n"] == WORKERS * ROUNDS
        assert cache["pair"] == [WORKERS * ROUNDS] * 2
        assert cache.check() == []


def test_add_has_one_winner(in_processes, tmp_path):
    FanoutCache(tmp_path, shards=2).close()
    assert sum(in_processes(add_each, tmp_path)) == ROUNDS


def test_each_job_is_pulled_once_and_in_order(in_processes, tmp_path):
    each = in_processes(push_and_pull, tmp_path)
    pulled = [job for jobs in each for job in jobs]
    assert sorted(pulled) == [(n, j) for n in range(WORKERS) for j in range(ROUNDS)]
    for jobs in each:
        for number in range(WORKERS):
            of_one = [job for job in jobs if job[0] == number]
            assert of_one == sorted(of_one)


def test_recipes(in_processes, tmp_path):
    in_processes(with_recipes, tmp_path)
    with Cache(tmp_path) as cache:
        assert cache["a"] == cache["b"] == WORKERS * (ROUNDS // 10)
        assert cache["inside"] == 0
        assert Averager(cache, "average").get() == (ROUNDS // 10 - 1) / 2


def test_a_killed_writer_gives_the_lock_up(tmp_path):
    started = spawn.Event()
    process = spawn.Process(target=hold_until_killed, args=(str(tmp_path), started))
    process.start()
    assert started.wait(60)
    with Cache(tmp_path, timeout=0.01) as cache:
        with pytest.raises(Timeout):
            cache.set("b", 1)
        process.kill()
        process.join()
        assert cache.set("b", 1, retry=True)
        assert cache["half"] == 1
        assert cache.push("job") and cache.pull()[1] == "job"


def test_fork(tmp_path):
    cache = Cache(tmp_path)
    cache["a"] = 1
    deque = Deque(directory=tmp_path / "deque")
    with cache.transact():
        child = os.fork()
        if not child:
            # The lock is the parent's: the child has to wait for it.
            code = 1
            try:
                cache._timeout = 0.01
                try:
                    cache.set("b", 1)
                except Timeout:
                    deque.append("from the child")
                    code = 0 if cache["a"] == 1 else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
    assert list(deque) == ["from the child"]
    assert "b" not in cache and cache.set("b", 1)


def test_threads_of_a_child_that_begin_at_once(tmp_path):
    """The file of the parent's lock is closed once: its number may be another file's by then."""
    cache = Cache(tmp_path)
    child = os.fork()
    if not child:
        lock, close, closed, others = cache._store.lock, os.close, [], []

        def close_slowly(file):
            closed.append(file)
            if not others:
                others.append(threading.Thread(target=cache.set, args=("b", 2)))
                others[0].start()
                others[0].join(0.2)
            close(file)

        code = 1
        try:
            file, os.close = lock._file, close_slowly
            cache["a"] = 1
            others[0].join()
            code = 0 if closed.count(file) == 1 else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert cache["a"] == 1 and cache["b"] == 2


def test_many_threads(tmp_path):
    cache = FanoutCache(tmp_path, shards=2)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def work(number):
        for each in range(ROUNDS):
            cache.incr("n", retry=True)
            cache[number, each] = each
            assert cache[number, each] == each
            cache.delete((number, each), retry=True)

    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert cache["n"] == 8 * ROUNDS
    assert len(cache) == 1
    assert cache.check() == []


def test_a_fork_while_other_threads_open_and_close(tmp_path):
    """A child works with the caches, whatever the parent's threads were in the middle of."""
    caches = [Cache(tmp_path / str(number)) for number in range(3)]
    stop = threading.Event()

    def open_and_close(cache):
        while not stop.is_set():
            cache.close()
            cache["thread"] = 1
            Cache(cache.directory).close()

    threads = [threading.Thread(target=open_and_close, args=(cache,)) for cache in caches]
    for thread in threads:
        thread.start()
    try:
        for number in range(10):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    # An alarm ends a child that hangs.
                    signal.alarm(60)
                    for cache in caches:
                        cache["child"] = number
                        assert cache["child"] == number
                        cache.close()
                        Cache(cache.directory).set("again", number)
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitpid(pid, 0)[1] == 0, number
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_fork_while_another_thread_has_the_locks(tmp_path):
    from hutch.diskcache import _store

    cache = Cache(tmp_path)
    cache["a"] = 1
    held, done = threading.Event(), threading.Event()

    def hold():
        cache["b"] = 1  # A use of this thread, which the fork ends in the child.
        with cache._lock, _store._opening:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(60)
            assert cache["a"] == cache["b"] == 1 and len(cache._uses) == 1
            cache.close()
            assert Cache(tmp_path)["a"] == 1
            status = 0
        finally:
            os._exit(status)
    ended = os.waitpid(pid, 0)[1]
    done.set()
    thread.join()
    assert ended == 0
    assert len(cache._uses) == 1
