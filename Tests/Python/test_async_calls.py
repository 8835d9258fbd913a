"""The awaitable forms of what hutch_submit makes: each is a task of the cache, none a thread's."""

from __future__ import annotations

import asyncio
import gc
import threading
import uuid

import hutch
import pytest
from conftest import NO_LIMITS
from hutch import _awaiting, _calls, _walks


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch):
    async def in_thread(*_: object) -> None:
        raise AssertionError("a thread of the loop's executor makes the call")

    monkeypatch.setattr(_calls, "in_thread", in_thread)
    yield
    gc.collect()
    assert not _awaiting.waiting and not _walks.visits


def run(program) -> None:
    asyncio.run(program())


def test_calls_on_one_key(cache: hutch.Cache):
    async def program() -> None:
        assert await cache.ainfo("n") is None
        assert await cache.aincr("n", 3, default=10) == 13
        assert await cache.aincr("n", 4) == 17 and await cache.adecr("n", 7) == 10
        info = await cache.ainfo("n")
        assert info == cache.info("n") and info.version
        assert not await cache.acompare_and_swap("n", info.version + 1, "other")
        assert await cache.acompare_and_swap("n", info.version, {"a": 1}, expire=60)
        assert cache["n"] == {"a": 1} and cache.info("n").expires
        with pytest.raises(hutch.WrongTypeError) as caught:
            await cache.aincr("n")
        assert caught.value.words
        assert await cache.apop("n") == {"a": 1}
        assert await cache.apop("n") is None and await cache.apop("n", 7) == 7
        assert "n" not in cache

    run(program)


def test_a_counter_that_must_exist(cache: hutch.Cache):
    async def program() -> None:
        for delta in (1, -1):
            with pytest.raises(KeyError):
                await cache.aincr("n", delta, default=None)
        assert "n" not in cache
        cache["n"] = 2**63 - 1
        with pytest.raises(hutch.CounterOverflowError):
            await cache.aincr("n", 1, default=None)
        assert await cache.adecr("n", 1, default=None) == 2**63 - 2
        with pytest.raises(OverflowError):
            await cache.aincr("n", 2**63)

    run(program)


def test_the_record_has_its_tag(cache: hutch.Cache, monkeypatch):
    monkeypatch.undo()  # the tag of a record is asked for in a thread
    cache.set("key", 1, tag="t")

    async def program() -> None:
        assert (await cache.ainfo("key")).tag == "t"
        for key in ("a\0b", b"\0", uuid.UUID(int=1)):  # Keys with a zero byte.
            cache.set(key, 1, tag="t")
            assert (await cache.ainfo(key)).tag == "t"
            cache.delete(key)
        seen = []
        await cache.aeach(lambda key, info: seen.append((key, info.tag)))
        assert seen == [("key", "t")]

    run(program)


def test_many_keys(cache: hutch.Cache):
    async def program() -> None:
        values = {n: (n, str(n), b"x" * n)[n % 3] for n in range(3000)}
        await cache.aset_many(values, expire=60)
        assert await cache.aget_many([*values, "none"]) == values
        assert await cache.acount() == len(cache) == cache.count() == 3000
        assert await cache.acost() == cache.cost()
        assert await cache.adelete_many([*range(0, 3000, 2), "none"]) == 1500
        results = await cache.aput_many({"a": 1, "b": "2"})
        assert list(results) == ["a", "b"]
        assert results["b"].version == cache.info("b").version and not results["a"].partial
        assert await cache.aget_many([]) == {} and await cache.aput_many({}) == {}

    run(program)


def test_failures_of_many_keys_are_told_by_key(directory):
    limits = hutch.TierLimits(max_entry=1000)
    with hutch.Cache(directory, memory=limits, disk=limits) as cache:

        async def program() -> None:
            with pytest.raises(hutch.TooLargeError) as caught:
                await cache.aset_many({"a": 1, "b": b"x" * 5000, "c": 3})
            assert list(caught.value.failures) == ["b"] and caught.value.words
            assert await cache.aget_many("abc") == {"a": 1, "c": 3}
            with pytest.raises(ValueError):
                await cache.aset_many({"d": 4, "": 5})
            assert "d" not in cache

        run(program)


def test_a_walk(cache: hutch.Cache):
    cache.set_many({n: n for n in range(100)})
    seen: list[object] = []

    def visit(key: object, info: hutch.EntryInfo) -> bool:
        assert info.version == cache.info(key).version
        seen.append(key)
        return len(seen) == 60

    cache.each(visit)
    assert len(seen) == 60
    cache.each(visit)
    assert len(seen) == 160 and set(seen[60:]) == set(range(100))

    def fails(key: object, info: object) -> None:
        raise ZeroDivisionError

    async def program() -> None:
        seen.clear()
        threads = set()
        await cache.aeach(lambda *_: threads.add(threading.get_ident()))
        assert len(threads) == 1 and threads != {threading.get_ident()}
        await cache.aeach(visit)
        assert len(seen) == 60
        with pytest.raises(ZeroDivisionError):
            await cache.aeach(fails)
        with pytest.raises(TypeError):
            await cache.aeach(None)

    with pytest.raises(ZeroDivisionError):
        cache.each(fails)
    with pytest.raises(TypeError):
        cache.each("visit")
    run(program)


@pytest.mark.parametrize("end", ["cancel_all", "close"])
@pytest.mark.parametrize("name", ["aset_many", "aput_many", "aget_many", "adelete_many"])
def test_a_call_for_many_keys_that_is_cancelled(directory, name, end):
    async def program() -> None:
        cache = hutch.Cache(directory)
        queue = cache.queue()
        queue.suspend()
        keys = {"a": 1} if name in ("aset_many", "aput_many") else ["a"]
        task = asyncio.create_task(getattr(cache, name)(keys))
        await asyncio.sleep(0)
        if end == "close":
            await asyncio.to_thread(queue.close, cancel=True)
        else:
            assert queue.cancel_all() == 1
        with pytest.raises(asyncio.CancelledError):
            await task
        await cache.aclose()

    run(program)


def test_a_walk_that_is_cancelled_ends(cache: hutch.Cache):
    cache.set_many({n: n for n in range(1000)})
    seen: list[object] = []
    begun = threading.Event()
    left = threading.Event()

    def visit(key: object, info: object) -> None:
        seen.append(key)
        begun.set()
        assert left.wait(60)

    async def program() -> None:
        task = asyncio.ensure_future(cache.aeach(visit))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        left.set()
        assert cache.queue().wait_all(60)
        assert len(seen) == 1

    run(program)


def test_files(directory, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"x" * 100_000)
    options = {"memory": NO_LIMITS, "disk": NO_LIMITS, "inline_threshold": 20_480}
    with hutch.Cache(directory, **options) as cache:

        async def program() -> None:
            with pytest.raises(KeyError):
                await cache.apath("key")
            put = await cache.aput_file("key", file, "move", suffix=".jpg", tag="t")
            assert put.version == cache.info("key").version and put.disk == hutch.Outcome.STORED
            assert not file.exists() and cache.info("key").tag == "t"
            path = await cache.apath("key")
            assert path == cache.path("key") and path.endswith(".jpg")
            with open(path, "rb") as stored:
                assert stored.read() == b"x" * 100_000
            cache["small"] = 1
            with pytest.raises(hutch.WrongTypeError):
                await cache.apath("small")
            with pytest.raises(hutch.StorageError):
                await cache.aput_file("key", tmp_path / "none")
            with pytest.raises(ValueError):
                await cache.aput_file("key", file, "steal")
            assert len(cache["key"]) == 100_000

        run(program)


def test_a_later_write_is_done_first(directory):
    """A call counts from where it was begun: what a later one has written stays."""
    with hutch.Cache(directory, memory=NO_LIMITS, disk=NO_LIMITS) as cache:

        async def overtaken(coroutine: object) -> object:
            cache.suspend()
            task = asyncio.ensure_future(coroutine)
            await asyncio.sleep(0)
            cache["key"] = 7
            cache.resume()
            return await task

        async def program() -> None:
            cache["key"] = 1
            version = cache.info("key").version
            assert not await overtaken(cache.acompare_and_swap("key", version, 2))
            assert await overtaken(cache.apop("key", "gone")) == "gone"
            put = await overtaken(cache.aput_file("key", __file__))
            assert put == (0, hutch.Outcome.NONE, hutch.Outcome.NONE)
            assert cache["key"] == 7
            assert await overtaken(cache.aincr("key", 5)) == 12
            assert cache["key"] == 12

        run(program)


def test_order_priorities_and_the_end(directory):
    cache = hutch.Cache(directory, memory=NO_LIMITS, disk=NO_LIMITS)

    async def program() -> None:
        calls = [
            cache.aincr("n", 1, priority="low"), cache.apop("n", priority="high"),
            cache.aincr("n", 5, priority="default"), cache.ainfo("n", priority="high"),
        ]
        first, popped, second, info = await asyncio.gather(*calls)
        assert (first, popped, second) == (1, 1, 5) and info.version
        with pytest.raises(ValueError):
            await cache.acount(priority="soon")
        cache.suspend()
        tasks = [cache.aincr("n", 2), cache.aset_many({"m": 1}), cache.ainfo("m"), cache.acount()]
        begun = [asyncio.ensure_future(task) for task in tasks]
        await asyncio.sleep(0)
        cache.close()
        assert await begun[0] == 7 and await begun[1] is None
        for read in begun[2:]:
            with pytest.raises(asyncio.CancelledError):
                await read
        with pytest.raises(hutch.ClosedError):
            await cache.apop("n")

    run(program)
    with hutch.Cache(directory) as again:
        assert again["n"] == 7 and again["m"] == 1


def test_views_have_their_tier(directory):
    with hutch.Cache(directory, memory=NO_LIMITS, disk=NO_LIMITS) as cache:

        async def program() -> None:
            await cache.aset_many({"a": 1, "b": 2})
            assert await cache.memory.adelete_many(["a"]) == 1
            assert await cache.memory.acount() == 1 and await cache.disk.acount() == 2
            assert await cache.memory.aget_many("ab") == {"b": 2}
            assert await cache.disk.apop("a") == 1 and await cache.acount() == 1

        run(program)
