"""A cache in tasks of Dask: each worker process opens the cache's directory again.

With dask[distributed] of PyPI, and workers that are processes of this machine.
"""

from __future__ import annotations

import os
import time

import hutch
import pytest
from processes import environment

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

WORKERS = 2


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Two worker processes, which find the package and this module. Forks of one process that has
    imported Dask, which takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
        with dask.config.set({
            "distributed.worker.multiprocessing-method": "forkserver"
        }), distributed.LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=2,
            processes=True,
            dashboard_address=None,
            local_directory=str(tmp_path_factory.mktemp("dask")),
        ) as cluster, distributed.Client(cluster) as client:
            yield client


def put_and_get(cache, number):
    cache[("of a worker", number)] = {"square": number * number, "process": os.getpid()}
    return os.getpid(), cache["of the parent"], cache._path


def test_a_cache_is_an_argument_of_tasks(client, directory):
    with hutch.Cache(directory, time_to_live=3600) as cache:
        cache["of the parent"] = (1, {2})
        tasks = [
            client.submit(put_and_get, cache, number, workers=[name], pure=False)
            for number in range(4)
            for name in client.scheduler_info()["workers"]
        ]
        answers = client.gather(tasks)
        processes = {process for process, _, _ in answers}
        assert len(processes) == WORKERS and os.getpid() not in processes
        assert {path for _, _, path in answers} == {str(directory)}
        assert all(value == (1, {2}) for _, value, _ in answers)
        for number in range(4):
            entry = cache[("of a worker", number)]
            assert entry["square"] == number * number and entry["process"] in processes


def slow_square(number, log):
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{number}\n")
    time.sleep(0.05)
    return number * number


def memoized_square(cache, number, log):
    return cache.memoize(name="square", ignore={"log"})(slow_square)(number, log=log)


def test_memoized_results_are_shared_by_workers(client, directory, tmp_path):
    log = str(tmp_path / "log")
    with hutch.Cache(directory) as cache:
        for _ in range(2):
            tasks = [
                client.submit(memoized_square, cache, number, log, pure=False)
                for number in range(10)
            ]
            assert client.gather(tasks) == [number * number for number in range(10)]
        calls = (tmp_path / "log").read_text().split()
        assert sorted(calls, key=int) == [str(number) for number in range(10)]


def count(cache, times):
    return [cache.incr("n") for _ in range(times)]


def test_counters_of_workers_lose_nothing(client, directory):
    with hutch.Cache(directory) as cache:
        lists = client.gather([client.submit(count, cache, 50, pure=False) for _ in range(4)])
        assert sorted(number for each in lists for number in each) == list(range(1, 201))
        assert cache["n"] == 200


def use_diskcache(cache, number):
    with cache.transact(retry=True):
        cache["numbers"] = [*cache.get("numbers", []), number]
    return True


def test_a_cache_of_the_diskcache_module(client, directory):
    from hutch.diskcache import Cache, FanoutCache

    for kind in (Cache, FanoutCache):
        with kind(str(directory / kind.__name__)) as cache:
            if kind is FanoutCache:
                tasks = [client.submit(cache_set, cache, n, pure=False) for n in range(8)]
                assert all(client.gather(tasks)) and sorted(cache) == list(range(8))
                continue
            tasks = [client.submit(use_diskcache, cache, n, pure=False) for n in range(8)]
            assert all(client.gather(tasks))
            assert sorted(cache["numbers"]) == list(range(8))


def cache_set(cache, number):
    return cache.set(number, number, retry=True)


def test_a_cache_in_memory_is_refused_with_words(client):
    with hutch.Cache() as cache, pytest.raises(TypeError) as raised:
        client.submit(count, cache, 1).result()
    error, words = raised.value, ""
    while error is not None:
        words, error = words + str(error), error.__cause__ or error.__context__
    assert "has no directory" in words
