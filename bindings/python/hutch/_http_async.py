"""hutch.http for asyncio: requests that are awaited, without a thread for each.

A completion comes through the port of the event loop, as those of the cache do (_awaiting.py). The
headers and the pieces of a body that is streamed come on the session's thread, which wakes the
loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable

from . import _http_library as h
from ._awaiting import port_of
from ._awaits import in_thread
from ._http_incoming import Incoming, Pieces, under_way
from ._http_request import DownloadOptions, Path, RequestOptions, download_of, request_of
from ._http_response import Cutter, Lines, Response, Task, respond
from ._process import hint
from .http import Session

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack
else:
    hint(globals(), "Self", "Unpack")


class AsyncIncoming(Incoming):
    """What has come for one request, and the coroutines that wait for it."""

    def __init__(self, is_streamed: bool) -> None:
        self.loop = asyncio.get_running_loop()
        super().__init__(is_streamed, port_of(self.loop).pointer)
        self._thread = threading.get_ident()
        # Of each coroutine that waits; one that was cancelled stays until the next wake.
        self.waiters: list[asyncio.Future[None]] = []
        self.reading = asyncio.Lock()
        # Protects what follows; the session's thread takes it for a few steps.
        self._lock = threading.Lock()
        self.pieces = Pieces()
        self._is_waking = False
        self.has_response = False
        self.has_ended = False

    # On the thread of the session or of the loop.

    def end(self) -> None:
        self._change(lambda: setattr(self, "has_ended", True))

    def respond(self) -> None:
        self._change(lambda: setattr(self, "has_response", True))

    def receive(self, task: Any, piece: bytes) -> None:
        self._change(lambda: self.pieces.add(task, piece))

    def _change(self, change: Callable[[], None]) -> None:
        with self._lock:
            change()
            is_first, self._is_waking = not self._is_waking, True
        if threading.get_ident() == self._thread:
            self._wake()
        elif is_first and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._wake)

    # On the loop's thread.

    def _wake(self) -> None:
        with self._lock:
            self._is_waking = False
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _until(self, is_done: Callable[[], Any]) -> None:
        # A change after the look schedules a wake, which comes after the wait has begun.
        while not is_done():
            waiter = self.loop.create_future()
            self.waiters.append(waiter)
            await waiter

    async def until_response(self) -> None:
        await self._until(lambda: self.has_response or self.has_ended)

    async def until_end(self) -> None:
        await self._until(lambda: self.has_ended)

    async def next_piece(self, task: Any) -> bytes | None:
        """The next piece; None: the task has ended."""
        await self._until(lambda: self.pieces or self.has_ended)
        with self._lock:
            return self.pieces.take(task)


def let_go() -> None:
    """Let go of the requests of all loops that are closed: see _closed_loops.py."""
    for incoming in list(under_way.values()):
        if isinstance(incoming, AsyncIncoming) and incoming.loop.is_closed():
            incoming.forget()
            incoming.waiters.clear()  # By these it would keep the task that it is kept by.


class AsyncResponse(Response):
    """A response. The body of one that is streamed is awaited: aread, aiter_bytes, aiter_lines.

    It is there once: what reads it after its end raises StreamConsumed.
    """

    def _pieces(self) -> Iterator[bytes]:
        if self._is_streamed and self._content is None:
            self._must_have_more()
            raise RuntimeError("the body is streamed: it is read with aread or aiter_bytes")
        return super()._pieces()

    async def _apieces(self) -> AsyncIterator[bytes]:
        if not self._is_streamed or self._content is not None:
            if self.content:
                yield self.content
            return
        self._must_have_more()
        while self._kept:
            yield self._kept.popleft()
        incoming: AsyncIncoming = self._task.incoming
        while (piece := await incoming.next_piece(self._task.pointer)) is not None:
            yield piece
        self._task.check(self)
        self._is_consumed = True

    async def aread(self) -> bytes:
        """The whole body, which is `content` from then on. If it is cancelled, another call has the
        whole body too."""
        if self._is_streamed and self._content is None:
            incoming: AsyncIncoming = self._task.incoming
            # Of several coroutines the first reads, and the others get what it has read.
            async with incoming.reading:
                if self._content is None:
                    pieces: list[bytes] = []
                    try:
                        async for piece in self._apieces():
                            pieces.append(piece)
                        self._content = b"".join(pieces)
                    finally:
                        self._keep(pieces)
        return self.content

    async def aiter_bytes(self, chunk_size: int | None = None) -> AsyncIterator[bytes]:
        """The body in pieces, as iter_bytes."""
        cutter = Cutter(chunk_size)
        async for piece in self._apieces():
            for part in cutter.cut(piece):
                yield part
        for part in cutter.rest():
            yield part

    async def aiter_lines(self) -> AsyncIterator[str]:
        """The body as text, line by line, as iter_lines."""
        lines = Lines(self.encoding)
        async for piece in self._apieces():
            for line in lines.cut(piece):
                yield line
        for line in lines.rest():
            yield line

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.aiter_bytes()

    async def aclose(self) -> None:
        """Reads no more of a body that is streamed."""
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None,
                        trace: TracebackType | None) -> None:
        self.close()


class AsyncSession:
    """A Session whose requests are awaited.

        async with AsyncSession(timeout=10) as session:
            response = await session.get("https://example.org/api")
            async with session.stream("GET", "https://example.org/large") as response:
                async for piece in response.aiter_bytes():
                    ...

    The arguments are those of Session. A request belongs to the event loop that awaits it; if its
    coroutine is cancelled, so is the transfer. Any number of loops may share a session.
    """

    def __init__(self, **options: Any) -> None:
        self._session = Session(**options)

    async def aclose(self) -> None:
        """Cancels what runs, and closes the connections."""
        await in_thread(self._session.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.aclose()

    async def _done(
        self, request: h.Request, keep: list[Any], is_streamed: bool = False
    ) -> AsyncResponse:
        incoming = AsyncIncoming(is_streamed)
        try:
            task = Task(self._session._usable(), request, keep, incoming)
            try:
                if is_streamed:
                    await incoming.until_response()
                else:
                    await incoming.until_end()
            except BaseException:
                task.cancel()
                raise
            return respond(AsyncResponse, task, is_streamed)
        except BaseException:
            incoming.forget()
            raise

    async def request(
        self, method: str, url: str, **options: Unpack[RequestOptions]
    ) -> AsyncResponse:
        """Makes a request and returns its response; otherwise as Session.request."""
        return await self._done(*request_of(method, url, **options))

    async def get(self, url: str, **options: Unpack[RequestOptions]) -> AsyncResponse:
        return await self.request("GET", url, **options)

    async def head(self, url: str, **options: Unpack[RequestOptions]) -> AsyncResponse:
        return await self.request("HEAD", url, **options)

    async def options(self, url: str, **options: Unpack[RequestOptions]) -> AsyncResponse:
        return await self.request("OPTIONS", url, **options)

    async def post(self, url: str, **options: Unpack[RequestOptions]) -> AsyncResponse:
        return await self.request("POST", url, **options)

    async def put(self, url: str, **options: Unpack[RequestOptions]) -> AsyncResponse:
        return await self.request("PUT", url, **options)

    async def patch(self, url: str, **options: Unpack[RequestOptions]) -> AsyncResponse:
        return await self.request("PATCH", url, **options)

    async def delete(self, url: str, **options: Unpack[RequestOptions]) -> AsyncResponse:
        return await self.request("DELETE", url, **options)

    @contextlib.asynccontextmanager
    async def stream(
        self, method: str, url: str, **options: Unpack[RequestOptions]
    ) -> AsyncIterator[AsyncResponse]:
        """request(stream=True), for an `async with`."""
        options["stream"] = True
        async with await self.request(method, url, **options) as response:
            yield response

    async def download(
        self, url: str, path: Path, **options: Unpack[DownloadOptions]
    ) -> AsyncResponse:
        """Stores a body in a file, as Session.download."""
        return (await self._done(*download_of(url, path, **options))).raise_for_status()
