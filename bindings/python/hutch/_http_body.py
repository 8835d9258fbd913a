"""The end of a request, and the body of one that is read while it comes, for one thread."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from . import _http_library as h
from ._http_incoming import MOST_WAITING, Incoming


class End(Incoming):
    """The end of a request, for the one thread that waits for it."""

    __slots__ = ("_ended",)

    def __init__(self) -> None:
        super().__init__()
        # Held until the end.
        self._ended = threading.Lock()
        self._ended.acquire()

    def prepare(self, request: h.Request) -> None:
        """Writes the callbacks into a request."""
        self.register(request, is_streamed=False)
        request.flags |= h.ANY_THREAD

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
        super().__init__()
        # Protects what follows; the session's thread takes it for a few steps.
        self._changed = threading.Condition()
        self._pieces: deque[bytes] = deque()
        self._waiting = 0
        self._is_suspended = False
        self.has_response = False
        self.has_ended = False

    def prepare(self, request: h.Request) -> None:
        """Writes the callbacks into a request."""
        self.register(request, is_streamed=True)
        request.flags |= h.ANY_THREAD

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
