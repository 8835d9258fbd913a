"""A response, and the task that it came by."""

from __future__ import annotations

import codecs
import ctypes
import json as _json
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import _http_library as h
from ._foreign import bytes_at
from ._handles import Handle
from ._http_errors import BadResponse, Closed, HTTPError, StreamConsumed, check, failure
from ._process import hint
from ._structs import Error

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._http_body import Stream
else:
    hint(globals(), "Self", "Stream")

_OK, _CANCELLED = 0, 9


class Headers(Mapping[str, str]):
    """The headers of a response. Names have no case; several of one name are joined by commas."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.pairs: tuple[tuple[str, str], ...] = tuple(pairs)
        """Each header as it came."""
        # A server may send thousands of them.
        self._values: dict[str, list[str]] = {}
        for name, value in self.pairs:
            self._values.setdefault(name.lower(), []).append(value)

    def get_list(self, name: str) -> list[str]:
        """The values of all headers of a name."""
        return list(self._values.get(name.lower(), ()))

    def __getitem__(self, name: str) -> str:
        values = self._values.get(name.lower())
        if values is None:
            raise KeyError(name)
        return ", ".join(values)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Headers({list(self.pairs)!r})"


class Task(Handle):
    """A reference to a task, and what its callbacks need."""

    def __init__(self, session: Any, request: h.Request, keep: list[Any],
                 incoming: Any) -> None:
        self.incoming = incoming
        """An End, a Stream or an AsyncIncoming."""
        if _dropped:
            _sweep()
        self.pointer: Any = h.TaskPointer()
        incoming.prepare(request)
        status = h.lib.hutch_http_task_create(session, request, self.pointer)
        if status != _OK:
            incoming.forget()
            check(status)
        self._finalizer = weakref.finalize(self, _drop, (self.pointer, incoming, keep))
        check(h.lib.hutch_http_task_resume(self.pointer))

    def cancel(self) -> None:
        h.lib.hutch_http_task_cancel(self.pointer, None)

    def result(self) -> int:
        state, status = ctypes.c_uint32(), ctypes.c_int32()
        h.lib.hutch_http_task_status(self.pointer, state, status)
        return status.value

    def check(self, response: Response | None) -> None:
        """Raises the failure of a task that has ended."""
        status = self.result()
        if status < 0:
            error = Error()
            h.lib.hutch_http_task_error(self.pointer, error)
            raise failure(status, error, response)
        if status == _CANCELLED:
            raise Closed("the session was closed", "HUTCH_CANCELLED", response)


_dropped: deque[tuple[Any, Any, list[Any]]] = deque()
"""Tasks without a user, and their callbacks, which live until the completion has been made."""


def _drop(task: tuple[Any, Any, list[Any]]) -> None:
    """The last user of a task has gone.

    A garbage collection may run this on the session's thread, so it does not wait.
    """
    h.lib.hutch_http_task_cancel(task[0], None)
    _dropped.append(task)
    _sweep()


def _sweep() -> None:
    """Releases the dropped tasks that have ended."""
    for _ in range(len(_dropped)):
        try:
            task = _dropped.popleft()
        except IndexError:  # Another thread had it.
            return
        if h.lib.hutch_http_task_wait(task[0], 0) == _OK:
            h.lib.hutch_http_task_release(task[0])
        else:
            _dropped.append(task)


class Cutter:
    """Cuts a body into pieces of chunk_size bytes; None: as they come."""

    def __init__(self, chunk_size: int | None) -> None:
        if chunk_size is not None and chunk_size <= 0:
            raise ValueError("chunk_size is not positive")
        self._size = chunk_size
        # What is less than a piece. It is joined once there is one.
        self._rest: list[bytes] = []
        self._waiting = 0

    def cut(self, piece: bytes) -> Iterator[bytes]:
        if self._size is None:
            yield piece
            return
        self._rest.append(piece)
        self._waiting += len(piece)
        if self._waiting < self._size:
            return
        joined = b"".join(self._rest)
        end = len(joined) - len(joined) % self._size
        self._rest, self._waiting = [joined[end:]], len(joined) - end
        for start in range(0, end, self._size):
            yield joined[start:start + self._size]

    def rest(self) -> Iterator[bytes]:
        if self._waiting:
            yield b"".join(self._rest)


def _codec(encoding: str | None) -> str:
    """The name of the codec of a text: UTF-8, if there is none or Python does not know it."""
    name = encoding or "utf-8"
    try:
        b" ".decode(name, "replace")
    except LookupError:
        return "utf-8"
    return name


class Lines:
    """Cuts a body into lines of text, without their ends."""

    def __init__(self, encoding: str | None) -> None:
        self._decoder = codecs.getincrementaldecoder(_codec(encoding))("replace")
        # The parts of the last line, which has no end yet.
        self._rest: list[str] = []

    def cut(self, piece: bytes, is_last: bool = False) -> Iterator[str]:
        first, *more = self._decoder.decode(piece, is_last).split("\n")
        self._rest.append(first)
        if more:
            lines = ["".join(self._rest), *more]
            self._rest = [lines.pop()]
            for line in lines:
                yield line.removesuffix("\r")

    def rest(self) -> Iterator[str]:
        yield from self.cut(b"", True)
        if line := "".join(self._rest):
            yield line


class Response:
    """A response. `content`, `text` and `json` read the rest of one that is streamed.

    If iter_bytes or iter_lines has read it to its end, they raise StreamConsumed.
    """

    def __init__(self, task: Task, is_streamed: bool) -> None:
        self._task = task
        self._is_streamed = is_streamed
        self._content: bytes | None = None
        self._is_consumed = False
        # What a read of the whole body had when an interrupt or a lost connection ended it.
        self._kept: deque[bytes] = deque()
        # Of several threads the first reads a streamed body, and the others get what it has read.
        self._reading = threading.Lock()
        told = h.Response()
        status = h.lib.hutch_http_task_response(task.pointer, told)
        if status != _OK:
            raise BadResponse("there is no response")
        self.status_code: int = told.code
        self.url: str = told.url.decode("latin-1")
        self.http_version: str = {10: "HTTP/1.0", 11: "HTTP/1.1", 20: "HTTP/2"}.get(
            told.version, "HTTP/3")
        self.redirects: int = told.redirects
        """How many redirects led here."""
        self.from_cache: bool = bool(told.from_cache)
        """The session's cache had it; the server may have confirmed it."""
        self._header_count = told.header_count
        self._headers: Headers | None = None
        self._encoding: str | None = None
        self._has_encoding = False

    @property
    def headers(self) -> Headers:
        if self._headers is None:
            pairs = []
            header = h.Header()
            for index in range(self._header_count):
                h.lib.hutch_http_task_header_at(self._task.pointer, index, header)
                pairs.append((header.name.decode("latin-1"), header.value.decode("latin-1")))
            self._headers = Headers(pairs)
        return self._headers

    @property
    def encoding(self) -> str | None:
        """The charset of `text`: that of Content-Type, or the one that was set."""
        if not self._has_encoding:
            self.encoding = self._charset()
        return self._encoding

    @encoding.setter
    def encoding(self, name: str | None) -> None:
        self._encoding, self._has_encoding = name, True

    def _charset(self) -> str | None:
        for part in self.headers.get("content-type", "").split(";")[1:]:
            name, _, value = part.strip().partition("=")
            if name.lower() == "charset":
                return value.strip('" ')
        return None

    @property
    def ok(self) -> bool:
        """The code is below 400."""
        return self.status_code < 400

    is_success = ok

    def raise_for_status(self) -> Self:
        """HTTPError for a code from 400; else the response itself."""
        if not self.ok:
            raise HTTPError(f"{self.status_code} for {self.url}", "", self)
        return self

    @property
    def content(self) -> bytes:
        """The whole body."""
        if self._content is None:
            if self._is_streamed:
                with self._reading:
                    if self._content is None:
                        pieces: list[bytes] = []
                        try:
                            pieces.extend(self._pieces())
                            self._content = b"".join(pieces)
                        finally:
                            self._keep(pieces)
            else:
                told = h.Response()
                h.lib.hutch_http_task_response(self._task.pointer, told)
                self._content = bytes_at(told.body, told.body_size) if told.body else b""
        return self._content

    @property
    def text(self) -> str:
        """The body as text of `encoding`; UTF-8 if that is None or not known."""
        return self.content.decode(_codec(self.encoding), "replace")

    def json(self, **options: Any) -> Any:
        """The body as json.loads makes it."""
        return _json.loads(self.content, **options)

    def iter_bytes(self, chunk_size: int | None = None) -> Iterator[bytes]:
        """The body in pieces: as they come, or of chunk_size bytes but for the last.

        A body that is streamed is there once: after its end, StreamConsumed. A connection that is
        lost within it is an exception.
        """
        cutter = Cutter(chunk_size)
        for piece in self._pieces():
            yield from cutter.cut(piece)
        yield from cutter.rest()

    iter_content = iter_bytes

    def _pieces(self) -> Iterator[bytes]:
        if not self._is_streamed or self._content is not None:
            if self.content:
                yield self.content
            return
        self._must_have_more()
        while self._kept:
            yield self._kept.popleft()
        incoming: Stream = self._task.incoming
        while (piece := incoming.next_piece(self._task.pointer)) is not None:
            yield piece
        self._task.check(self)
        self._is_consumed = True

    def _keep(self, pieces: list[bytes]) -> None:
        """What was read of a body is read once more, unless it is whole."""
        if self._content is None:
            self._kept.extendleft(reversed(pieces))

    def _must_have_more(self) -> None:
        if self._is_consumed:
            raise StreamConsumed

    def iter_lines(self) -> Iterator[str]:
        """The body as `text`, line by line, without the ends of the lines."""
        lines = Lines(self.encoding)
        for piece in self._pieces():
            yield from lines.cut(piece)
        yield from lines.rest()

    def open_body(self) -> tuple[int, int, int] | None:
        """A descriptor of a large body that the cache has in a file, which the caller closes, and
        where the body is in it: its offset and its size. None: it is in no file. See
        hutch_http_task_open_body. A body that is streamed has to be read first."""
        descriptor, offset, size = ctypes.c_int32(), ctypes.c_uint64(), ctypes.c_uint64()
        status = h.lib.hutch_http_task_open_body(self._task.pointer, descriptor, offset, size)
        if status == _OK:
            return descriptor.value, offset.value, size.value
        if status < 0:
            check(status)
        return None

    @property
    def metrics(self) -> dict[str, float]:
        """Seconds and counts, as hutch_http_metrics; of a response that is there whole."""
        told = h.Metrics()
        check(h.lib.hutch_http_task_metrics(self._task.pointer, told))
        return {name: getattr(told, name) / (1e9 if index < 5 else 1)
                for index, name in enumerate(h.METRICS)}

    def close(self) -> None:
        """Reads no more of a body that is streamed."""
        self._task.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Response [{self.status_code}]>"


R = TypeVar("R", bound=Response)


def respond(kind: type[R], task: Task, is_streamed: bool) -> R:
    """The response of a task: one that has ended, or, if streamed, has its headers."""
    try:
        response = kind(task, is_streamed)
    except BadResponse:
        task.check(None)
        raise
    if not is_streamed:
        task.check(response)
    return response


def pairs_for_jar(response: Response, sent: str | bytes) -> list[tuple[str, str]]:
    """The headers of a response, for a client that keeps cookies itself and has sent these.

    A stored response may be older than the cookies of the client. Unless a server has confirmed it
    just now, it sets none that the client has.
    """
    pairs = list(response.headers.pairs)
    told = response.headers.get_list("cache-status")
    if not response.from_cache or "; fwd-status=" in told[-1]:
        return pairs
    cookies = sent.decode("latin-1") if isinstance(sent, bytes) else sent
    names = {part.partition("=")[0].strip() for part in cookies.split(";")}
    return [(name, value) for name, value in pairs
            if name.lower() != "set-cookie" or value.partition("=")[0].strip() not in names]
