"""The body of a response that is read while it comes."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from typing import Any

from . import _http_library as h

MOST_WAITING = 1 << 20
"""The bytes that wait for a reader until the task is suspended."""


class Incoming:
    """Pieces of a body, from the session's thread to one reader.

    If the reader is slow, the task is suspended, and nothing more is read from its connection.
    """

    def __init__(self) -> None:
        # Protects what follows; the session's thread takes it for a few steps.
        self._changed = threading.Condition()
        self._pieces: deque[bytes] = deque()
        self._waiting = 0
        self._is_suspended = False
        self.has_response = False
        self.has_ended = False
        # ctypes keeps no reference to them; the task uses them until its completion.
        self.complete = h.CompleteFunction(self._end)
        self.on_response = h.ResponseFunction(self._respond)
        self.on_body = h.BodyFunction(self._receive)

    def _end(self, context: Any, completion: Any) -> None:
        with self._changed:
            self.has_ended = True
            self._changed.notify_all()

    def _respond(self, context: Any, task: Any) -> None:
        with self._changed:
            self.has_response = True
            self._changed.notify_all()

    def _receive(self, context: Any, task: Any, data: int, size: int) -> int:
        with self._changed:
            self._pieces.append(ctypes.string_at(data, size))
            self._waiting += size
            is_full = self._waiting > MOST_WAITING and not self._is_suspended
            if is_full:
                self._is_suspended = True
                h.lib.hutch_http_task_suspend(task)
            self._changed.notify_all()
        return 0

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
