"""Completion ports."""

from __future__ import annotations

import ctypes
from ctypes import byref

from . import _structs
from ._errors import Status, check
from ._handles import Handle, release_with
from ._library import lib
from ._units import uint64


class Port(Handle):
    """Completions of tasks that wait until a thread of yours drains them.

        port = hutch.Port()
        loop.add_reader(port, port.drain)
        queue.submit(work, done=on_loop, port=port)

    select, poll and event loops accept it while it is not closed.
    """

    def __init__(self) -> None:
        self._pointer = _structs.PortPointer()
        release_with(self, lib.hutch_port_release, self._pointer)
        check(lib.hutch_port_create(byref(self._pointer)))

    def fileno(self) -> int:
        """A descriptor that is readable while completions wait: poll it, do not read it."""
        return int(lib.hutch_port_fd(self._pointer))

    def drain(self, most: int = 0) -> int:
        """Make up to this many completions; 0: all that wait now."""
        drained = ctypes.c_uint64()
        check(lib.hutch_port_drain(self._pointer, uint64(most), byref(drained)))
        return drained.value

    def close(self, *, discard: bool = False) -> None:
        """Accept no more. Waiting completions are drained or discarded. May be repeated."""
        status = lib.hutch_port_close(self._pointer, 1 if discard else 0)
        if status != Status.CLOSED:
            check(status)

    def __enter__(self) -> Port:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
