"""Cache.aload: a load that is awaited, by coroutines and functions."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import gc
import math
import os
import threading
import time
import warnings
import weakref

import hutch
import pytest
from hutch import _aload, _awaiting


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    gc.collect()
    # What a loop left behind when it ended is let go by a worker, and the loop's port with it.
    while _awaiting.waiting or _aload.works:
        time.sleep(0.001)
        gc.collect()


def test_a_loader_runs_on_a_miss_only(cache):
    calls = []

    async def make(key):
        await asyncio.sleep(0)
        calls.append((key, threading.get_ident()))
        return {"made": [1, 2]}

    async def main() -> None:
        assert await cache.aload("k", make) == {"made": [1, 2]}
        assert await cache.aload("k", make) == {"made": [1, 2]}
        assert calls == [("k", threading.get_ident())]
        # A function runs on a worker.
        assert await cache.aload("n", lambda key: threading.get_ident()) != threading.get_ident()
        assert await cache.aload("none", lambda key: None) is None
        assert await cache.aload("pair", make, expire=5, idle=3, cost=7)
        assert cache.info("pair").cost == 7

    asyncio.run(main())


@pytest.mark.parametrize("begins", [False, True])
def test_a_loader_sees_the_context_of_its_caller(begins):
    """As a call of the loader would: also if the loop has made its first call in another one."""
    cache = hutch.Cache()
    request = contextvars.ContextVar("request", default=None)

    async def make(key):
        await asyncio.sleep(0)
        return request.get()

    @cache.memoize()
    async def memoized(number):
        return request.get()

    async def handle(number):
        request.set(number)
        return [
            await cache.aload(("coroutine", number), make),
            await cache.aload(("function", number), lambda key: request.get()),
            await memoized(number),
            request.get(),
        ]

    async def main():
        if begins:
            await cache.aload("first", make)
        return await asyncio.gather(*map(handle, range(3)))

    assert asyncio.run(main()) == [[number] * 4 for number in range(3)]


def test_no_context_of_a_caller_is_kept(directory):
    request = contextvars.ContextVar("request")

    class Request:
        pass

    async def handle():
        kept = Request()
        request.set(kept)
        await cache.aset("a", 1)
        await cache.aload("b", lambda key: 1)
        return weakref.ref(kept)

    async def main():
        # The first task makes what the loop keeps.
        kept = await asyncio.create_task(handle())
        while kept() is not None and time.monotonic() < end:
            await asyncio.sleep(0.001)
            gc.collect()
        assert kept() is None

    end = time.monotonic() + 60
    with hutch.Cache(directory) as cache:
        asyncio.run(main())


def test_one_loader_runs_for_all(cache):
    """Many more than there are workers, and a thread beside them."""
    calls = []

    async def main() -> None:
        go = asyncio.Event()

        async def make(key):
            calls.append(key)
            await go.wait()
            return "made"

        def ask():
            return cache.load("k", lambda key: "thread's")

        loop = asyncio.get_running_loop()
        asked = [asyncio.ensure_future(cache.aload("k", make)) for _ in range(50)]
        while not calls:
            await asyncio.sleep(0.001)
        thread = loop.run_in_executor(None, ask)
        # No worker waits for the coroutine: others of the cache's calls go on.
        assert await cache.aload("other", lambda key: 1) == 1
        go.set()
        assert await asyncio.gather(*asked, thread) == ["made"] * 51
        assert calls == ["k"]

    asyncio.run(main())


def test_an_exception_is_its_own_and_an_error_for_the_others(cache):
    async def main() -> None:
        entered = []

        async def fail(key):
            entered.append(key)
            while len(entered) < 1:
                await asyncio.sleep(0)
            await ready.wait()
            raise OSError(5, "no such page")

        ready = asyncio.Event()
        asked = [asyncio.ensure_future(cache.aload("k", fail)) for _ in range(5)]
        while not entered:
            await asyncio.sleep(0.001)
        # All five have looked when something later of the key is answered.
        await cache.acontains("k")
        ready.set()
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(type(r) is OSError for r in results) == len(entered)
        for result in results:
            if type(result) is not OSError:
                assert isinstance(result, hutch.LoadError) and result.system_error == 5
                assert result.words == "the loader failed: OSError: [Errno 5] no such page"
        with pytest.raises(KeyError):
            await cache.aload("k", lambda key: {}[key], remember_errors=10)
        with pytest.raises(hutch.LoadError, match="KeyError: 'k'"):
            await cache.aload("k", lambda key: 1)
        with pytest.raises(TypeError):
            await cache.aload("x", lambda key: object())

    asyncio.run(main())


def eager_task_factory(loop, coroutine, **options):
    """That of Python 3.12, for loaders that do not wait."""
    if coroutine.__name__ != "_run":
        return asyncio.Task(coroutine, loop=loop, **options)
    ended = loop.create_future()
    try:
        coroutine.send(None)
    except StopIteration:
        ended.set_result(None)
    return ended


def test_an_exception_is_its_own_where_tasks_begin_at_once(cache):
    async def fail(key):
        raise KeyError("its own")

    async def make(key):
        return "made"

    async def main() -> None:
        factory = getattr(asyncio, "eager_task_factory", eager_task_factory)
        asyncio.get_running_loop().set_task_factory(factory)
        with pytest.raises(KeyError, match="its own"):
            await cache.aload("k", fail)
        assert await cache.aload("k", make) == "made"

    asyncio.run(main())


def test_a_value_is_refreshed(cache, clock):
    def fail(key):
        raise ValueError("source is down")

    async def main() -> None:
        cache["k"] = "old"
        clock.advance(5)
        assert await cache.aload("k", fail, refresh=6) == "old"
        assert await cache.aload("k", fail, refresh=5, stale_if_error=True) == "old"
        with pytest.raises(ValueError):
            await cache.aload("k", fail, refresh=5)
        assert await cache.aload("k", lambda key: "new", refresh=5) == "new"

    asyncio.run(main())


def test_a_load_without_a_descriptor_for_its_loop_keeps_no_loader(cache, monkeypatch):
    def fail(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(_awaiting, "_Port", fail)
    with pytest.raises(OSError):
        asyncio.run(cache.aload("k", lambda key: "made"))
    assert not _aload.works


def test_a_put_during_the_load_is_newer(cache):
    async def main() -> None:
        async def make(key):
            await cache.aset(key, "newer")
            return "made"

        assert await cache.aload("k", make) == "newer" == cache["k"]

        async def gone(key):
            await cache.adelete(key)
            return "made"

        del cache["k"]
        assert await cache.aload("k", gone) == "made" and "k" not in cache

    asyncio.run(main())


def test_loads_within_loads(cache):
    async def main() -> None:
        async def fibonacci(n):
            if n < 2:
                return n
            return sum(
                await asyncio.gather(
                    cache.aload(n - 1, fibonacci), cache.aload(n - 2, fibonacci)
                )
            )

        assert await cache.aload(25, fibonacci) == 75025

        async def around(key):
            return await cache.aload({"a": "b", "b": "c", "c": "a"}[key], around)

        with pytest.raises(hutch.DeadlockError):
            await cache.aload("a", around)
        assert await cache.aload("a", lambda key: 1) == 1

    asyncio.run(main())


def test_a_coroutine_that_is_cancelled_before_it_runs_is_closed(cache):
    async def main() -> None:
        called = threading.Event()

        async def make(key):
            return "made"

        def first(key):
            made = make(key)
            called.set()
            return made

        lead = asyncio.ensure_future(cache.aload("k", first))
        await asyncio.sleep(0)
        called.wait()  # The loop stands meanwhile: the coroutine has not begun.
        lead.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lead
        assert await cache.aload("k", make, timeout=math.inf) == "made"

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert [str(each.message) for each in told] == []


def test_a_cancelled_coroutine_passes_the_lead_on(cache):
    async def main() -> None:
        entered = []
        ended = []

        async def make(key):
            entered.append(key)
            try:
                if len(entered) == 1:
                    await asyncio.Event().wait()
                return "made"
            finally:
                ended.append(key)

        lead = asyncio.ensure_future(cache.aload("k", make))
        while not entered:
            await asyncio.sleep(0.001)
        waits = asyncio.ensure_future(cache.aload("k", make, timeout=math.inf))
        leaves = asyncio.ensure_future(cache.aload("k", make))
        await cache.acontains("k")
        leaves.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaves
        lead.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lead
        assert await waits == "made"
        assert len(entered) == 2
        while len(ended) < 2:
            await asyncio.sleep(0.001)

    asyncio.run(main())


def test_a_wait_ends_by_its_time(cache):
    async def main() -> None:
        entered = asyncio.Event()
        go = asyncio.Event()

        async def make(key):
            entered.set()
            await go.wait()
            return "made"

        lead = asyncio.ensure_future(cache.aload("k", make, timeout=math.inf))
        await entered.wait()
        with pytest.raises(hutch.TimedOutError):
            await cache.aload("k", make, timeout=0.01)
        go.set()
        assert await lead == "made"

    asyncio.run(main())


def test_a_close_ends_the_waiting(directory):
    cache = hutch.Cache(directory)

    async def main() -> None:
        entered = asyncio.Event()
        go = asyncio.Event()

        async def make(key):
            entered.set()
            await go.wait()
            return "made"

        lead = asyncio.ensure_future(cache.aload("k", make))
        await entered.wait()
        cache.close()
        with pytest.raises((asyncio.CancelledError, hutch.ClosedError)):
            await lead
        go.set()
        with pytest.raises(hutch.ClosedError):
            await cache.aload("k", make)

    asyncio.run(main())


def test_a_loop_that_ends_gives_up_its_leads(cache):
    async def main() -> None:
        entered = asyncio.Event()

        async def make(key):
            entered.set()
            await asyncio.Event().wait()

        asked = asyncio.ensure_future(cache.aload("k", make))
        await entered.wait()
        assert not asked.done()

    asyncio.run(main())  # which cancels what is left
    assert cache.load("k", lambda key: "made") == "made"


def test_bad_arguments(cache):
    async def main() -> None:
        for bad in ({"timeout": -1}, {"refresh": -1}, {"priority": "urgent"}):
            with pytest.raises(ValueError):
                await cache.aload("k", lambda key: 1, **bad)
        with pytest.raises(TypeError):
            await cache.aload([1.5], lambda key: 1)

    asyncio.run(main())


def test_a_caller_is_cancelled_whose_loader_answers_too_late(cache):
    """Its time has passed, another caller leads, and it is cancelled before it hears of that."""
    late = begins = is_asked = None
    another_leads = threading.Event()

    async def make(key):
        begins.set()
        await is_asked.wait()
        # The loop hears of nothing meanwhile.
        another_leads.wait()
        late.cancel()
        return "late"

    def other(key):
        another_leads.set()
        return "made"

    async def program() -> None:
        nonlocal late, begins, is_asked
        begins, is_asked = asyncio.Event(), asyncio.Event()
        late = asyncio.ensure_future(cache.aload("k", make, timeout=0.05))
        await begins.wait()
        second = asyncio.ensure_future(cache.aload("k", other, timeout=30))
        await asyncio.sleep(0)
        is_asked.set()
        with pytest.raises(asyncio.CancelledError):
            await late
        assert await second == "made"

    asyncio.run(program())
