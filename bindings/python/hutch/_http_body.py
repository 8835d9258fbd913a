"""What comes for a request: its end, and the body of one that is read while it comes.

A fresh response of the cache comes on the thread that makes the request, any other on the
session's.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections import deque
from typing import Any

from . import _http_library as h
from ._callbacks import callback, report

_CANCELLED = 9

_incoming: dict[int, Incoming] = {}
"""The requests that wait, by the token that the library carries as the context."""

_tokens = itertools.count(1)


@callback
def _complete(token: int, completion: Any) -> None:
    try:
        incoming = _incoming.pop(token, None)
        if incoming is not None:
            incoming.end()
    except BaseException as error:
        report(error, "the end of a request", None)


@callback
def _respond(token: int, task: Any) -> None:
    try:
        incoming = _incoming.get(token)
        if isinstance(incoming, Stream):
            incoming.respond()
    except BaseException as error:
        report(error, "the headers of a response", None)


@callback
def _receive(token: int, task: Any, data: int, size: int) -> int:
    try:
        incoming = _incoming.get(token)
        if isinstance(incoming, Stream):
            incoming.receive(task, ctypes.string_at(data, size))
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


class Incoming:
    """The end of a request, for the one thread that waits for it."""

    __slots__ = ("_ended", "token")

    def __init__(self) -> None:
        # Held until the end.
        self._ended = threading.Lock()
        self._ended.acquire()
        self.token = next(_tokens)

    def prepare(self, request: h.Request) -> None:
        """Writes the callbacks into a request."""
        _incoming[self.token] = self
        request.context = self.token
        request.complete = _complete_callback
        request.flags |= h.ANY_THREAD

    def forget(self) -> None:
        """There is no task: no callback comes."""
        _incoming.pop(self.token, None)

    def end(self) -> None:
        self._ended.release()

    def await_end(self) -> None:
        self._ended.acquire()


class Stream(Incoming):
    """Pieces of a body, from the session's thread to one reader.

    If the reader is slow, the task is suspended, and nothing more is read from its connection.
    """

    __slots__ = ("_changed", "_is_suspended", "_pieces", "_waiting", "has_ended", "has_response")

    def __init__(self) -> None:
        self.token = next(_tokens)
        # Protects what follows; the session's thread takes it for a few steps.
        self._changed = threading.Condition()
        self._pieces: deque[bytes] = deque()
        self._waiting = 0
        self._is_suspended = False
        self.has_response = False
        self.has_ended = False

    def prepare(self, request: h.Request) -> None:
        super().prepare(request)
        request.on_response = _respond_callback
        request.on_body = _receive_callback

    def end(self) -> None:
        with self._changed:
            self.has_ended = True
            self._changed.notify_all()

    def respond(self) -> None:
        with self._changed:
            self.has_response = True
            self._changed.notify_all()

    def receive(self, task: Any, piece: bytes) -> None:
        with self._changed:
            self._pieces.append(piece)
            self._waiting += len(piece)
            is_full = self._waiting > MOST_WAITING and not self._is_suspended
            if is_full:
                self._is_suspended = True
                h.lib.hutch_http_task_suspend(task)
            self._changed.notify_all()

    def await_response(self) -> None:
        with self._changed:
            while not (self.has_response or self.has_ended):
                self._changed.wait()

    def await_end(self) -> None:
        with self._changed:
            while not self.has_ended:
                self._changed.wait()

    def next_piece(self, task: Any) -> bytes | None:
        """The next piece; None: the task has ended."""
        with self._changed:
            while not self._pieces and not self.has_ended:
                self._changed.wait()
            if not self._pieces:
                return None
            piece = self._pieces.popleft()
            self._waiting -= len(piece)
            if self._is_suspended and self._waiting <= MOST_WAITING // 2:
                self._is_suspended = False
                h.lib.hutch_http_task_resume(task)
            return piece
