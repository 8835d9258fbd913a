"""The end of a request, and the body of one that is read while it comes, for one thread."""

from __future__ import annotations

import threading
from typing import Any

from ._http_incoming import Incoming, Pieces


class End(Incoming):
    """The end of a request, for the one thread that waits for it."""

    __slots__ = ("_ended",)

    def __init__(self) -> None:
        super().__init__(is_streamed=False)
        # Held until the end.
        self._ended = threading.Lock()
        self._ended.acquire()

    def end(self) -> None:
        self._ended.release()

    def await_end(self) -> None:
        self._ended.acquire()


class Stream(Incoming):
    """The headers and the body of a response, for one reader."""

    __slots__ = ("_changed", "has_ended", "has_response", "pieces")

    def __init__(self) -> None:
        super().__init__(is_streamed=True)
        # Protects what follows; the session's thread takes it for a few steps.
        self._changed = threading.Condition()
        self.pieces = Pieces()
        self.has_response = False
        self.has_ended = False

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
            self.pieces.add(task, piece)
            self._changed.notify_all()

    def await_response(self) -> None:
        with self._changed:
            while not (self.has_response or self.has_ended):
                self._changed.wait()

    def next_piece(self, task: Any) -> bytes | None:
        """The next piece; None: the task has ended."""
        with self._changed:
            while not self.pieces and not self.has_ended:
                self._changed.wait()
            return self.pieces.take(task)
