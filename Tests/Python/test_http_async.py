"""hutch.http.AsyncSession against the servers of Tests/HTTP."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import time
import weakref

import pytest
from http_servers import server  # noqa: F401, which skips this module without the library
from hutch import _http_incoming, http
from hutch.http import AsyncSession


def run(function, **options):
    """Calls a coroutine function with a session, on a loop of its own."""

    async def main():
        async with AsyncSession(timeout=30, **options) as session:
            await function(session)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert not _http_incoming.under_way


def test_a_response_is_as_that_of_a_session(server):
    async def main(session):
        response = await session.get(server("plain", "/hello.txt"))
        assert response.status_code == 200 and response.ok
        assert response.content == b"hello\n" and response.text == "hello\n"
        assert response.raise_for_status() is response
        assert await response.aread() == b"hello\n"
        assert [piece async for piece in response] == [b"hello\n"]
        assert list(response.iter_bytes(4)) == [b"hell", b"o\n"]
        assert response.metrics["requests"] == 1
        with pytest.raises(http.HTTPError, match="404"):
            (await session.get(server("plain", "/none"))).raise_for_status()
        for name in ("post", "put", "patch", "delete", "options"):
            response = await getattr(session, name)(server("wire", "/echo"))
            assert response.text.startswith(name.upper())
        assert (await session.head(server("plain", "/hello.txt"))).content == b""
        response = await session.post(server("wire", "/echo"), json={"a": 1}, params={"q": 2})
        head, _, body = response.content.partition(b"\n\n")
        assert head.startswith(b"POST /echo?q=2 ") and json.loads(body) == {"a": 1}
        with pytest.raises(TypeError):
            await session.get(server("plain"), unknown=1)

    run(main)


def test_many_requests_take_no_thread_each(server):
    before = threading.active_count()

    async def main(session):
        responses = await asyncio.gather(
            *(session.get(server("plain", "/ten")) for _ in range(300)))
        assert [len(response.content) for response in responses] == [10240] * 300
        assert threading.active_count() == before

    run(main)


@pytest.mark.parametrize("options", [{}, {"stream": True}])
def test_a_closed_loop_leaves_no_request(server, options):
    """One that was closed in the midst of it, which asyncio.run never does."""
    loop = asyncio.new_event_loop()
    session = AsyncSession(timeout=30)

    async def begin():
        request = asyncio.ensure_future(session.get(server("wire", "/stall"), **options))
        request._log_destroy_pending = False
        while not _http_incoming.under_way:
            await asyncio.sleep(0)

    async def another(_):
        assert (await session.get(server("plain", "/hello.txt"))).content == b"hello\n"

    loop.run_until_complete(begin())
    loop.close()
    left = weakref.ref(loop)
    del loop
    end = time.monotonic() + 30
    while left() is not None and time.monotonic() < end:
        run(another)  # A later request sweeps up the one before.
        gc.collect()
    assert left() is None
    session._session.close()


def test_a_cancelled_coroutine_cancels_its_transfer(server):
    async def main(session):
        for options in ({}, {"stream": True}):
            task = asyncio.create_task(session.get(server("wire", "/stall"), **options))
            # Another request goes all the way while this one waits.
            await session.get(server("plain", "/hello.txt"))
            assert not task.done() and len(_http_incoming.under_way) == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not _http_incoming.under_way
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(session.get(server("wire", "/stall"), **options), 0.05)
        # The transfers have ended: only one runs at a time, and this one has its turn.
        assert (await session.get(server("wire", "/echo"))).ok

    run(main, max_connections_per_host=1)


def test_a_streamed_body_waits_for_its_reader(server):
    async def main(session):
        async with session.stream("GET", server("wire", "/large?n=20000000")) as response:
            assert response.status_code == 200
            with pytest.raises(RuntimeError, match="aread"):
                response.content
            with pytest.raises(RuntimeError, match="aread"):
                response.json()
            pieces = response.aiter_bytes(100_000)
            assert len(await pieces.__anext__()) == 100_000
            await asyncio.sleep(0.1)
            incoming = response._task.incoming
            assert incoming.pieces.waiting < 2 * _http_incoming.MOST_WAITING
            total = 100_000
            async for piece in pieces:
                total += len(piece)
            assert total == 20_000_000
        async with session.stream("GET", server("plain", "/hello.txt")) as response:
            assert [line async for line in response.aiter_lines()] == ["hello"]
            with pytest.raises(http.StreamConsumed):
                await response.aread()
            with pytest.raises(http.StreamConsumed):
                response.content
            with pytest.raises(http.StreamConsumed):
                await response.aiter_bytes().__anext__()
        async with session.stream("GET", server("plain", "/ten")) as response:
            assert len(await response.aread()) == 10240
            assert len(response.content) == 10240 and len(await response.aread()) == 10240
        with pytest.raises(ValueError):
            async for _ in response.aiter_bytes(0):
                pass

    run(main)


def test_a_read_that_was_cancelled_loses_nothing(server):
    """As under asyncio.timeout: aread has taken pieces from the stream by then."""

    async def main(session):
        for read_first in (True, False):
            async with session.stream("GET", server("plain", "/million")) as response:
                incoming = response._task.incoming
                taken, next_piece = [], incoming.next_piece

                async def cancelled_at_the_second(task):
                    if taken:
                        raise asyncio.CancelledError
                    taken.append(await next_piece(task))
                    return taken[0]

                incoming.next_piece = cancelled_at_the_second
                for _ in range(2):
                    with pytest.raises(asyncio.CancelledError):
                        await response.aread()
                incoming.next_piece = next_piece
                if read_first:
                    body = await response.aread()
                else:
                    body = b"".join([piece async for piece in response.aiter_bytes()])
                assert taken[0] and body == bytes(range(250)) * 4000

    run(main)


def test_failures_have_classes(server):
    async def main(session):
        with pytest.raises(http.ConnectionError):
            await session.get(server("nobody"))
        with pytest.raises(http.ConnectionError):
            async with session.stream("GET", server("nobody")):
                pass
        with pytest.raises(http.InvalidRequest):
            await session.get("ftp://example.org")
        with pytest.raises(http.TLSError):
            await session.get(server("good"))
        with pytest.raises(http.Timeout):
            await session.get(server("wire", "/stall"), timeout=0.05)
        async with session.stream("GET", server("wire", "/stall_within"), timeout=2) as response:
            assert response.ok
            with pytest.raises(http.Timeout):
                await response.aread()

    run(main)


def test_a_close_ends_what_waits(server):
    async def main():
        session = AsyncSession()
        waiting = asyncio.create_task(session.get(server("wire", "/stall")))
        await session.get(server("plain", "/hello.txt"))
        await session.aclose()
        with pytest.raises(http.Closed):
            await waiting
        with pytest.raises(http.Closed):
            await session.get(server("plain"))
        assert not _http_incoming.under_way

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_download(server, tmp_path):
    async def main(session):
        seen = []
        path = tmp_path / "file"
        response = await session.download(
            server("plain", "/million"), path, progress=lambda *told: seen.append(told))
        assert response.ok and path.stat().st_size == 1_000_000 == seen[-1][0]
        with pytest.raises(http.HTTPError):
            await session.download(server("plain", "/none"), tmp_path / "none")

    run(main)


def test_loops_of_several_threads_share_a_session(server):
    session = AsyncSession()
    found = []

    async def main():
        for _ in range(20):
            found.append(len((await session.get(server("plain", "/ten"))).content))

    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(session.aclose())
    assert found == [10240] * 80


def test_what_a_closed_loop_leaves_is_harmless(server, monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    session, left = AsyncSession(), []

    async def main():
        left.append(await session.request("GET", server("wire", "/large?n=3000000"), stream=True))
        left.append(await session.request("GET", server("wire", "/stall_within"), stream=True))

    asyncio.run(main())
    session._session.close()
    left.clear()
    gc.collect()
    assert not reported
    _http_incoming.under_way.clear()


def test_several_coroutines_read_one_body(server):
    async def main(session):
        for reader in ("aread", "pieces"):
            may_end = asyncio.Event()

            async def answer(incoming, outgoing):
                await incoming.readuntil(b"\r\n\r\n")
                outgoing.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
                await may_end.wait()
                outgoing.write(b"body")
                outgoing.close()

            async def pieces(response):
                return b"".join([piece async for piece in response.aiter_bytes()])

            async with await asyncio.start_server(answer, "127.0.0.1", 0) as origin:
                url = f"http://127.0.0.1:{origin.sockets[0].getsockname()[1]}/"
                async with session.stream("GET", url) as response:
                    reads = [asyncio.ensure_future(
                        response.aread() if reader == "aread" else pieces(response))
                        for _ in range(3)]
                    await asyncio.sleep(0)
                    may_end.set()
                    read = await asyncio.gather(*reads)
            # Each has the whole; or each piece has come to one of them.
            assert read == [b"body"] * 3 if reader == "aread" else b"".join(read) == b"body"

    run(main)
