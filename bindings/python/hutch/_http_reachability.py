"""Whether the internet, or a host, can be reached."""

from __future__ import annotations

import ctypes
import weakref
from types import TracebackType
from typing import Any, Callable, Literal, Optional

from . import _http_library as h
from ._callbacks import callback, new_token, release_of, report
from ._handles import Handle
from ._http_errors import check
from ._http_request import nanoseconds, text
from ._units import Seconds

State = Literal["unknown", "unreachable", "reachable"]

_STATES: tuple[State, ...] = ("unknown", "unreachable", "reachable")

_monitors: dict[int, Callable[[State], Any]] = {}
"""The functions to call, by the number that the library carries as the context."""


@callback
def _tell(number: int, state: int) -> None:
    function = _monitors.get(number)
    try:
        if function is not None:
            function(_STATES[state])
    except BaseException as error:
        report(error, "the callback of a monitor", function)


_tell_callback = h.ReachabilityFunction(_tell)
_release_callback = release_of(_monitors, "a monitor")


class Reachability(Handle):
    """A monitor of the internet or of a host.

        with Reachability(on_change=print):  # reachable
            ...

    Without a URL, the internet is reachable if the system has a route for packets to it; nothing
    is sent. With the URL of a host, it is reachable if a connection to its port can be made.

    Args:
        url: the host to connect to, "https://example.org"; None: the internet.
        on_change: called with each new state, in order, and with the first one, on a thread of
            the monitor.
        timeout: seconds for a connection.
        interval: seconds from one connection to the next, if the network does not change;
            float("inf"): connect only when it changes.
    """

    def __init__(
        self, url: str | None = None, *, on_change: Optional[Callable[[State], Any]] = None,
        timeout: Seconds | None = None, interval: Seconds | None = None,
    ) -> None:
        options = h.ReachabilityOptions(
            url=None if url is None else text(url), timeout=nanoseconds("timeout", timeout),
            interval=nanoseconds("interval", interval))
        if on_change is not None:
            options.context = number = new_token()
            options.on_change = _tell_callback
            options.release = _release_callback
            _monitors[number] = on_change
        self._pointer = h.ReachabilityPointer()
        check(h.lib.hutch_http_reachability_start(options, self._pointer))
        self._finalizer = weakref.finalize(
            self, h.lib.hutch_http_reachability_release, self._pointer)

    @property
    def state(self) -> State:
        """What is known: "unknown", "unreachable" or "reachable"."""
        state = ctypes.c_uint32()
        check(h.lib.hutch_http_reachability_state(self._pointer, state))
        return _STATES[state.value]

    @property
    def is_reachable(self) -> bool:
        """The state is "reachable"."""
        return self.state == "reachable"

    def stop(self) -> None:
        """Watch no more. After this, on_change is not called; the state stays what it was."""
        check(h.lib.hutch_http_reachability_stop(self._pointer))

    def __enter__(self) -> Reachability:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.stop()
