"""Event loops that are closed while calls of theirs wait, which asyncio.run never does."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import warnings

import hutch
import pytest
from hutch import _aload, _awaiting
from processes import run

_LONG = 30


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    gc.collect()
    asyncio.run(a_loop_begins())
    end = time.monotonic() + _LONG
    while (_awaiting.waiting or _aload.works) and time.monotonic() < end:
        time.sleep(0.001)
        gc.collect()
    assert not _awaiting.waiting and not _aload.works


async def a_loop_begins() -> None:
    async with hutch.Cache() as cache:
        await cache.aload("k", lambda key: 1)


def close_midway(begin) -> tuple[asyncio.AbstractEventLoop, asyncio.Task]:
    """A loop that has been closed while the coroutine that begin makes was in it, and its task.

    begin is given an event: the loop ends when it is set.
    """
    loop = asyncio.new_event_loop()

    async def main() -> asyncio.Task:
        entered = asyncio.Event()
        task = asyncio.ensure_future(begin(entered))
        task._log_destroy_pending = False
        await entered.wait()
        for other in asyncio.all_tasks():
            other._log_destroy_pending = False
        return task

    task = loop.run_until_complete(main())
    loop.close()
    return loop, task


def lead_for_ever(cache: hutch.Cache):
    """A load whose loader never ends, for close_midway."""

    def begin(entered: asyncio.Event):
        async def make(key):
            entered.set()
            await asyncio.Event().wait()

        return cache.aload("k", make, timeout=_LONG)

    return begin


def test_a_later_loop_makes_the_value(cache):
    kept = close_midway(lead_for_ever(cache))

    async def make(key):
        return "made"

    async def later():
        return await asyncio.wait_for(cache.aload("k", make), _LONG / 2)

    assert asyncio.run(later()) == "made"
    assert not kept[1].done()


def test_a_lead_passes_on_when_its_coroutine_is_collected_before_it_began(cache):
    loop = asyncio.new_event_loop()

    async def make(key):
        return "made"

    async def main() -> None:
        asyncio.ensure_future(cache.aload("k", make, timeout=_LONG))._log_destroy_pending = False
        # The coroutine of the loader has a task, and no turn of it.
        while not any(work._task is not None for work in _aload.works.values()):
            await asyncio.sleep(0)
        for task in asyncio.all_tasks():
            task._log_destroy_pending = False

    loop.run_until_complete(main())
    loop.close()
    assert cache.load("k", lambda key: "made", timeout=_LONG / 2) == "made"


def test_a_coroutine_that_a_closed_loop_has_not_begun_is_closed(cache):
    loop = asyncio.new_event_loop()
    leads, goes, handed = threading.Event(), threading.Event(), threading.Event()
    hand = loop.call_soon_threadsafe

    async def make(key):
        return "made"

    def loader(key):
        leads.set()
        goes.wait()
        return make(key)

    def hand_over(*args, **kwargs):
        hand(*args, **kwargs)
        handed.set()

    async def main() -> None:
        asyncio.ensure_future(cache.aload("k", loader, timeout=_LONG))._log_destroy_pending = False
        while not leads.is_set():
            await asyncio.sleep(0)

    loop.run_until_complete(main())
    loop.call_soon_threadsafe = hand_over
    goes.set()
    handed.wait()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        loop.close()
        del loop, hand
        gc.collect()
        assert cache.load("k", lambda key: "made", timeout=_LONG / 2) == "made"
        gc.collect()
    assert [str(each.message) for each in warned] == []


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_loop_that_ends_while_a_worker_hands_over_a_coroutine_of_no_caller(is_closed):
    """As that of a refresh in the background. Nothing is left that Python warns of."""
    run(
        f"""
        import asyncio, gc, threading, hutch
        from hutch import _aload
        gc.disable()
        loop = asyncio.new_event_loop()
        leads, goes, handed = threading.Event(), threading.Event(), threading.Event()
        hand = loop.call_soon_threadsafe

        async def make(key):
            return "made"

        def loader(key):
            leads.set()
            goes.wait({_LONG})
            return make(key)

        def handing(callback, *arguments):
            try:
                return hand(callback, *arguments)
            finally:
                if arguments and isinstance(arguments[0], _aload._Unbegun):
                    handed.set()

        loop.call_soon_threadsafe = handing

        async def main(cache):
            load = asyncio.ensure_future(cache.aload("k", loader))
            while not leads.is_set():
                await asyncio.sleep(0)
            load.cancel()
            try:
                await load
            except asyncio.CancelledError:
                pass
            if not {is_closed}:
                # The loop has one turn more, in which it takes what was handed over.
                goes.set()
                handed.wait({_LONG})

        with hutch.Cache() as cache:
            loop.run_until_complete(main(cache))
            loop.close()
            goes.set()
            assert handed.wait({_LONG})
            assert cache.load("k", lambda key: "another", timeout={_LONG}) == "another"
        gc.collect()
        """
    )


def test_a_later_call_of_a_memoized_coroutine_makes_its_result(cache):
    entered = None

    @cache.memoize()
    async def slow(n):
        if entered is not None and not entered.is_set():
            entered.set()
            await asyncio.Event().wait()
        return n * n

    def begin(event):
        nonlocal entered
        entered = event
        return slow(3)

    kept = close_midway(begin)

    async def later():
        return await asyncio.wait_for(slow(3), _LONG)

    assert asyncio.run(later()) == 9
    assert not kept[1].done()


def test_a_thread_that_waits_makes_the_value(cache):
    kept = close_midway(lead_for_ever(cache))
    assert cache.load("k", lambda key: "made", timeout=_LONG / 2) == "made"
    assert not kept[1].done()


def test_a_loop_that_waits_makes_the_value(cache):
    """The loop that waits runs while the other one is closed."""
    are_both, has_asked, results = threading.Event(), threading.Event(), []

    async def make(key):
        return "made"

    async def other_loop() -> None:
        await cache.aget("none")
        await cache.aload("before", make)
        are_both.set()
        while not has_asked.is_set():
            await asyncio.sleep(0.001)
        results.append(await asyncio.wait_for(cache.aload("k", make), _LONG / 2))

    thread = threading.Thread(target=lambda: asyncio.run(other_loop()))
    thread.start()
    are_both.wait()

    def begin(entered):
        inner = asyncio.Event()

        async def lead() -> None:
            load = asyncio.ensure_future(lead_for_ever(cache)(inner))
            load._log_destroy_pending = False
            await inner.wait()
            has_asked.set()
            # The other loop waits once the count of its calls has grown.
            while len(_aload.works) < 2:
                await asyncio.sleep(0.001)
            entered.set()
            await load

        return lead()

    kept = close_midway(begin)
    thread.join()
    assert results == ["made"]
    assert not kept[1].done()


def test_the_lead_passes_over_a_caller_whose_loop_is_closed(cache):
    leads, goes = threading.Event(), threading.Event()

    def lead(key):
        leads.set()
        goes.wait()
        raise KeyboardInterrupt  # no failure of the source: another caller leads

    def leader() -> None:
        with pytest.raises(KeyboardInterrupt):
            cache.load("k", lead)

    first = threading.Thread(target=leader)
    first.start()
    leads.wait()

    async def make(key):
        return "made"

    def begin(entered):
        async def ask():
            load = asyncio.ensure_future(cache.aload("k", make, timeout=_LONG))
            load._log_destroy_pending = False
            await cache.acontains("k")  # done after the look of the load
            entered.set()
            await load

        return ask()

    kept = close_midway(begin)

    async def live():
        load = asyncio.ensure_future(cache.aload("k", make, timeout=_LONG))
        await cache.acontains("k")
        goes.set()
        return await load

    assert asyncio.run(live()) == "made"
    first.join()
    assert not kept[1].done()


def test_a_closed_loop_leaves_no_descriptor(cache):
    def ports() -> int:
        asyncio.run(a_loop_begins())
        gc.collect()
        names = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        return sum("eventfd" in os.readlink(name) for name in names if os.path.islink(name))

    begun = ports()
    for _ in range(10):
        close_midway(lead_for_ever(cache))
        gc.collect()
    # A worker lets go of the last ones.
    end = time.monotonic() + _LONG
    while ports() > begun and time.monotonic() < end:
        time.sleep(0.001)
    assert ports() <= begun
