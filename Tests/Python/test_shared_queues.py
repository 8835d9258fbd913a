"""One queue for several caches, and the process's shared queue."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading

import hutch
import pytest
from hutch import _tasks
from processes import finished


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    gc.collect()
    assert not _tasks.works and not _tasks.completions


@pytest.fixture
def caches(tmp_path):
    # On disk: a call that memory can do at once takes no queue.
    with hutch.Queue(1) as queue, hutch.Cache(tmp_path / "a", queue=queue) as a:
        with hutch.Cache(tmp_path / "b", queue=queue) as b:
            yield queue, a, b


def test_several_caches_run_on_one_queue_in_order(caches):
    queue, a, b = caches
    told = []

    async def one(cache, number):
        await cache.aset(str(number), number)
        told.append(number)

    async def all_of_them():
        queue.suspend()
        made = [asyncio.ensure_future(one((a, b)[i % 2], i)) for i in range(20)]
        await asyncio.sleep(0)
        assert not queue.wait_all(0) and told == []
        queue.resume()
        await asyncio.gather(*made)

    asyncio.run(all_of_them())
    assert told == list(range(20))
    assert a.get("2") == 2 and b.get("3") == 3
    assert a.queue() == b.queue() == queue and hash(a.queue()) == hash(queue)


def test_a_close_ends_the_calls_of_its_cache_alone(tmp_path):
    with hutch.Queue() as queue, hutch.Cache(tmp_path / "b", queue=queue) as b:
        a = hutch.Cache(tmp_path / "a", queue=queue)

        async def close():
            queue.suspend()
            ours, theirs = (asyncio.ensure_future(cache.aset("key", 1)) for cache in (a, b))
            await asyncio.sleep(0)
            await a.aclose()
            assert await ours and not theirs.done()
            queue.resume()
            assert await theirs

        asyncio.run(close())
        with hutch.Cache(tmp_path / "a") as again:
            assert again["key"] == 1


def test_the_queue_ends_before_its_caches(directory):
    queue = hutch.Queue()
    cache = hutch.Cache(directory, queue=queue)
    cache["key"] = 1
    queue.close()
    with pytest.raises(hutch.ClosedError):
        queue.submit(len, ())
    del queue
    gc.collect()
    assert asyncio.run(cache.aget("key")) == 1
    cache.close()


def test_options_of_a_cache_with_a_queue(tmp_path):
    with hutch.Queue() as queue:
        with hutch.Cache(tmp_path / "a", queue=queue) as cache:
            told = cache.options()
            assert (told.queue, told.workers, told.queue_length) == (queue, None, 0)
            with pytest.raises(hutch.UnsupportedError, match="queue of the host"):
                cache.set_options(workers=3)
            with pytest.warns(hutch.OptionsDifferWarning), hutch.Queue() as other:
                hutch.Cache(tmp_path / "a", queue=other).close()
        with hutch.Cache(tmp_path / "b", queue=told.queue, workers=0) as cache:
            assert cache.options().workers == 0 and cache.options().queue == queue
        for wrong in ({"workers": 2}, {"queue_length": 3}):
            with pytest.raises(hutch.InvalidArgumentError, match=r"options\.queue"):
                hutch.Cache(tmp_path / "c", queue=queue, **wrong)
        with pytest.raises(TypeError, match="queue: a Queue is needed"):
            hutch.Cache(queue=3)
        with hutch.Cache() as cache:
            assert cache.options().queue is None
            with pytest.raises(hutch.InvalidArgumentError, match="a cache's own"):
                hutch.Cache(queue=cache.queue())


def test_a_task_of_the_queue_is_a_callback_of_its_caches(caches):
    queue, a, b = caches
    for call in (a.close, a.flush, b.maintain):
        with pytest.raises(hutch.DeadlockError):
            queue.submit(call).result()
    assert queue.submit(b.set, "key", 1).result()


def test_the_shared_queue_is_one():
    queue = hutch.shared_queue()
    assert queue == hutch.shared_queue() != hutch.Queue()
    width = max(2, os.cpu_count() or 1)
    together = threading.Barrier(width)
    assert sorted(task.result() for task in [queue.submit(together.wait) for _ in range(width)]) == [
        *range(width)
    ]
    queue.close()
    with pytest.raises(hutch.ClosedError):
        queue.submit(len, ())
    with hutch.Cache(queue=queue) as cache:
        assert cache.options().queue == hutch.shared_queue()
        assert asyncio.run(cache.aset("key", 1))
    assert hutch.shared_queue().submit(len, "abc").result() == 3


def test_a_fork_gives_the_caches_of_a_queue_a_new_one(directory):
    queue = hutch.shared_queue()
    with hutch.Cache(directory, queue=queue) as a, hutch.Cache(queue=queue) as b:
        assert asyncio.run(a.aset("parent", 1))
        child = os.fork()
        if child == 0:
            try:
                assert a.queue() == b.queue() == hutch.shared_queue() != queue
                with pytest.raises(hutch.ForkedError):
                    queue.submit(len, ())
                with pytest.raises(hutch.ForkedError):
                    hutch.Cache(queue=queue)
                assert asyncio.run(a.aset("child", 2)) and asyncio.run(b.aset("child", 2))
                os._exit(0)
            except BaseException as error:
                print(error, file=sys.stderr)
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert asyncio.run(a.aget("child")) == 2 and asyncio.run(b.aget("child")) is None


PROGRAM = """
import asyncio, sys
import hutch

queue = hutch.shared_queue() if sys.argv[2] == "shared" else hutch.Queue(2)
cache = hutch.Cache(sys.argv[1], queue=queue)
queue.suspend()

async def put():
    call = asyncio.ensure_future(cache.aset("key", "value"))
    await asyncio.sleep(0)
    return call

loop = asyncio.new_event_loop()
call = loop.run_until_complete(put())
queue.submit(print, "a function that waited")
"""


@pytest.mark.parametrize("which", ["shared", "own"])
def test_the_end_of_the_interpreter_carries_out_what_caches_put(directory, which):
    program = finished("-c", PROGRAM, directory, which)
    assert "function" not in program.stdout and program.returncode == 0, program.stderr
    with hutch.Cache(directory) as cache:
        assert cache["key"] == "value"
