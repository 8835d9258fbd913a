"""What the library calls for a request: its end, its headers, the pieces of its body.

A fresh response of the cache comes on the thread that makes the request, any other on the
session's.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from . import _http_library as h
from ._callbacks import callback, new_token, report
from ._foreign import bytes_at

_CANCELLED = 9

under_way: dict[int, Incoming] = {}
"""The requests that wait, by the token that the library carries as the context."""


@callback
def _complete(token: int, completion: Any) -> None:
    try:
        incoming = under_way.pop(token, None)
        if incoming is not None:
            incoming.end()
    except BaseException as error:
        report(error, "the end of a request", None)


@callback
def _respond(token: int, task: Any) -> None:
    try:
        incoming = under_way.get(token)
        if incoming is not None:
            incoming.respond()
    except BaseException as error:
        report(error, "the headers of a response", None)


@callback
def _receive(token: int, task: Any, data: int, size: int) -> int:
    try:
        incoming = under_way.get(token)
        if incoming is not None:
            incoming.receive(task, bytes_at(data, size))
            return 0
    except BaseException as error:
        report(error, "the body of a response", None)
    return _CANCELLED


# They exist as long as the process, since the library may call them at any time.
_complete_callback = h.CompleteFunction(_complete)
_respond_callback = h.ResponseFunction(_respond)
_receive_callback = h.BodyFunction(_receive)

MOST_WAITING = 1 << 20
"""The bytes that wait for a reader until the task is suspended."""


class Pieces:
    """Pieces of a body, from the session's thread to one reader, whose lock protects them.

    If the reader is slow, the task is suspended, and nothing more is read from its connection.
    """

    __slots__ = ("_is_suspended", "_pieces", "waiting")

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._is_suspended = False
        self.waiting = 0
        """Their bytes."""

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, task: Any, piece: bytes) -> None:
        self._pieces.append(piece)
        self.waiting += len(piece)
        if self.waiting > MOST_WAITING and not self._is_suspended:
            self._is_suspended = True
            h.lib.hutch_http_task_suspend(task)

    def take(self, task: Any) -> bytes | None:
        """The next one; None: there is none."""
        if not self._pieces:
            return None
        piece = self._pieces.popleft()
        self.waiting -= len(piece)
        if self._is_suspended and self.waiting <= MOST_WAITING // 2:
            self._is_suspended = False
            h.lib.hutch_http_task_resume(task)
        return piece


class Incoming:
    """What comes for one request. Its subclasses say what to do with it.

    is_streamed: it gets the headers and the body. port: where its end comes; None: on any thread.
    """

    __slots__ = ("_is_streamed", "_port", "token")

    def __init__(self, is_streamed: bool, port: Any = None) -> None:
        self.token = new_token()
        self._is_streamed = is_streamed
        self._port = port

    def prepare(self, request: h.Request) -> None:
        """Writes the callbacks into a request."""
        under_way[self.token] = self
        request.context = self.token
        request.complete = _complete_callback
        if self._is_streamed:
            request.on_response = _respond_callback
            request.on_body = _receive_callback
        if self._port is None:
            request.flags |= h.ANY_THREAD
        else:
            request.port = self._port

    def forget(self) -> None:
        """No callback has an effect any more."""
        under_way.pop(self.token, None)

    def end(self) -> None:
        """The task has ended."""
        raise NotImplementedError

    def respond(self) -> None:
        """The headers are there."""
        raise NotImplementedError

    def receive(self, task: Any, piece: bytes) -> None:
        """A piece of the body. The task may be suspended."""
        raise NotImplementedError
