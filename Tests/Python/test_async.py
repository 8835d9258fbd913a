"""What is awaited: the calls on a loop of their own, cancellation, order, close."""

from __future__ import annotations

import asyncio
import gc
import os
import threading

import hutch
import pytest
from conftest import IS_WHOLE, NO_LIMITS
from hutch import _awaiting


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    gc.collect()
    assert not _awaiting.waiting


def test_each_call(cache: hutch.Cache):
    async def main() -> None:
        assert await cache.aget("key") is None
        assert await cache.aget("key", 7) == 7
        assert await cache.aset("key", {"a": [1, 2]})
        assert await cache.aget("key") == {"a": [1, 2]}
        assert await cache.acontains("key")
        assert await cache.adelete("key")
        assert not await cache.adelete("key")
        assert not await cache.acontains("key")
        # Numbers that are statuses too.
        for number in range(-20, 20):
            assert await cache.aset("n", number)
            assert await cache.aget("n", "default") == number
        await cache.aflush()
        await cache.aclear()
        assert len(cache) == 0

    asyncio.run(main())


def test_durations_and_views(cache: hutch.Cache, clock):
    async def main() -> None:
        await cache.memory.aset("key", "value", expire=5)
        assert await cache.memory.aget("key") == "value"
        clock.advance(6)
        assert await cache.aget("key") is None

    asyncio.run(main())


def test_a_failure_is_raised(directory):
    limits = hutch.TierLimits(max_entry=1000)
    with hutch.Cache(directory, memory=limits, disk=limits) as cache:

        async def main() -> None:
            with pytest.raises(hutch.TooLargeError) as caught:
                await cache.aset("key", b"x" * 5000)
            assert caught.value.words
            with pytest.raises(ValueError):
                await cache.aget("")

        asyncio.run(main())


def test_what_was_begun_first_is_done_first(cache: hutch.Cache):
    async def main() -> None:
        results = await asyncio.gather(
            *(
                cache.aset("key", n, priority=("low", "default", "high")[n % 3])
                if n % 2 == 0
                else cache.aget("key", priority="high")
                for n in range(100)
            )
        )
        assert results[1::2] == list(range(0, 100, 2))

    asyncio.run(main())


def test_a_later_call_overtakes(cache: hutch.Cache):
    async def main() -> None:
        cache.suspend()
        task = asyncio.ensure_future(cache.aset("key", "A"))
        await asyncio.sleep(0)
        done_at_once = task.done()
        cache.set("key", "B")
        cache.resume()
        # Where memory is all there is, a set is done when it is begun.
        assert await task is done_at_once
        assert cache["key"] == "B"

    asyncio.run(main())


def test_a_cancelled_coroutine_cancels_its_task(directory):
    with hutch.Cache(directory, memory=NO_LIMITS, disk=NO_LIMITS) as cache:

        async def main() -> None:
            cache.suspend()
            task = asyncio.ensure_future(cache.aset("key", "value"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            cache.resume()
            await cache.aflush()
            assert "key" not in cache

        asyncio.run(main())


def test_a_close_carries_out_writes_and_cancels_reads(directory):
    cache = hutch.Cache(directory, memory=NO_LIMITS, disk=NO_LIMITS)

    async def main() -> None:
        cache.suspend()
        put = asyncio.ensure_future(cache.aset("key", "value"))
        get = asyncio.ensure_future(cache.aget("other"))
        await asyncio.sleep(0)
        cache.close()
        assert await put
        with pytest.raises(asyncio.CancelledError):
            await get
        with pytest.raises(hutch.ClosedError):
            await cache.aget("key")

    asyncio.run(main())
    with hutch.Cache(directory) as again:
        assert again["key"] == "value"


def test_one_loop_after_the_other_and_several_at_once(cache: hutch.Cache):
    entries = cache.disk if cache.directory else cache

    async def main(name: str) -> None:
        for n in range(50):
            await entries.aset(f"{name}{n}", n)
            assert await cache.aget(f"{name}{n}") == n

    for _ in range(3):
        asyncio.run(main("one"))
    threads = [threading.Thread(target=lambda n=n: asyncio.run(main(f"t{n}"))) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache) == 200


def test_a_loop_drives_a_hundred_thousand_tasks(tmp_path):
    """With one thread of its own; what memory answers is no task, so it asks the disk."""
    count = 10_000 if IS_WHOLE else 3_000
    if os.environ.get("HUTCH_LONG"):
        count = 100_000
    with hutch.Cache(tmp_path / "cache", memory=NO_LIMITS, disk=NO_LIMITS, workers=1) as cache:
        cache["key"] = "value"
        disk = cache.disk
        done = 0

        async def work(share: int) -> None:
            nonlocal done
            for _ in range(share):
                assert await disk.aget("key") == "value"
                done += 1

        async def main() -> None:
            await asyncio.gather(*(work(count // 100) for _ in range(100)))

        before = threading.active_count()
        asyncio.run(main())
        assert done == count
        assert threading.active_count() == before


def test_without_workers_the_host_maintains(directory):
    with hutch.Cache(directory, memory=NO_LIMITS, disk=NO_LIMITS, workers=0) as cache:

        async def main() -> None:
            task = asyncio.ensure_future(cache.aset("key", "value"))
            await asyncio.sleep(0)
            assert not task.done()
            cache.maintain(1)
            assert await task

        asyncio.run(main())
        cache.maintain()
        assert cache["key"] == "value"


def test_a_resume_too_many(cache: hutch.Cache):
    with pytest.raises(hutch.InvalidArgumentError):
        cache.resume()


def test_a_writer_that_is_awaited(directory):
    async def main():
        async with hutch.Cache(directory) as cache:
            async with cache.awriter("video", expire=60) as writer:
                for number in range(10):
                    assert await writer.write(bytes([number]) * 10_000) == 10_000
                assert "video" not in cache
            assert cache["video"] == b"".join(bytes([n]) * 10_000 for n in range(10))
            with pytest.raises(ZeroDivisionError):
                async with cache.awriter("video") as writer:
                    await writer.write(b"half")
                    1 / 0
            assert len(cache["video"]) == 100_000
            alone = cache.awriter("other")
            await alone.write(b"a")
            assert (await alone.commit()).version and cache["other"] == b"a"
            aborted = cache.awriter("aborted")
            await aborted.write(b"a")
            await aborted.abort()
            assert "aborted" not in cache
            with pytest.raises(ValueError):
                await cache.awriter("").write(b"a")

    asyncio.run(main())


def test_limits_and_maintenance_that_are_awaited():
    async def main():
        async with hutch.Cache() as cache:
            await cache.aset_many({number: b"x" * 100 for number in range(50)})
            await cache.aset_limits(memory=hutch.TierLimits(count=10))
            await cache.amaintain()
            assert len(cache) <= 10 and cache.limits().memory.count == 10

    asyncio.run(main())


def test_conditional_puts_and_touches_are_tasks_of_their_key(directory):
    async def program():
        with hutch.Cache(directory) as cache:
            assert not await cache.areplace("a", 0)
            assert await cache.aadd("a", {"b": 1}, 60, tag="t")
            assert not await cache.aadd("a", 2)
            assert cache.info("a").tag == "t"
            assert await cache.areplace("a", "next")
            assert await cache.atouch("a", 3600)
            assert not await cache.atouch("none")
            left = cache.info("a").expires - cache.info("a").created
            assert abs(left - 3600) < 1
            # In the order in which they were begun, whatever their priorities.
            calls = [cache.aset("k", 1, priority="low"), cache.aadd("k", 2, priority="high")]
            calls += [cache.areplace("k", 3), cache.atouch("k", priority="high")]
            assert await asyncio.gather(*calls) == [True, False, True, True]
            assert cache["k"] == 3

    asyncio.run(program())


def test_a_call_for_which_the_queue_has_no_room():
    began, may_end = threading.Event(), threading.Event()

    def loader(key):
        began.set()
        may_end.wait()
        return key

    async def main() -> None:
        with hutch.Cache(workers=1, queue_length=1) as cache:
            first = asyncio.ensure_future(cache.aload("first", loader))
            await asyncio.to_thread(began.wait)
            second = asyncio.ensure_future(cache.aload("second", loader))
            await asyncio.sleep(0)
            try:
                for call in (lambda: cache.aload("third", loader), lambda: cache.aincr("n")):
                    with pytest.raises(BlockingIOError, match="^the queue is full$"):
                        await call()
            finally:
                may_end.set()
            assert await asyncio.gather(first, second) == ["first", "second"]
            assert await cache.aload("third", loader) == "third" and "n" not in cache

    asyncio.run(main())
