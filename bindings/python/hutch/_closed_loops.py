"""What an event loop leaves behind if it is closed while calls of its coroutines wait.

asyncio.run cancels them first; a program that calls run_until_complete and close does not. No thread
drains the loop's port any more, and none of its coroutines goes on. The calls are let go, as are the
requests of hutch.http, so that the loop and the descriptor of its port are; and where one of its
coroutines was to make a value, another caller that waits makes it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ._aload import works
from ._awaiting import ports, waiting
from ._library import lib

if TYPE_CHECKING:
    import asyncio

_DISCARD = 1
# How soon a caller that waits for another loop's value looks whether that loop is closed; seconds.
_SLICE = 0.1


def let_go() -> None:
    """Let go of the calls of all loops that are closed."""
    for reference in ports.keyrefs():
        loop = reference()
        port = ports.pop(loop, None) if loop is not None and loop.is_closed() else None
        if port is not None:
            lib.hutch_port_close(port.pointer, _DISCARD)
    for token, (future, _) in list(waiting.items()):
        if future is not None and future.get_loop().is_closed():
            waiting.pop(token, None)
    for work in list(works.values()):
        if work.loop.is_closed():
            work.end_with_loop()
    requests = sys.modules.get(f"{__package__}._http_async")
    if requests is not None:
        requests.let_go()


class Watch:
    """Lets go of closed loops from time to time, while a coroutine of this loop waits for a value.

    With one loop there is none to look for.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        if len(ports) > 1:
            self._timer = self._loop.call_later(_SLICE, self._look)

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        let_go()
        self._timer = self._loop.call_later(_SLICE, self._look)
