"""Events of entries, delivered to a Python function.

As with clocks, one callback serves all listeners, and a number selects the listener.
"""

from __future__ import annotations

import enum
import os
import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable

from . import _structs
from ._callbacks import callback, new_token, report
from ._cbor import Unreadable
from ._codec import Key, key_from_bytes
from ._errors import Status, check
from ._foreign import bytes_at
from ._handles import Handle, Owner
from ._library import lib
from ._process import hint
from ._records import Tier
from ._serializers import Forms
from ._values import decode

if TYPE_CHECKING:
    from ._cache import Cache
else:
    hint(globals(), "Cache")


class EventKind(enum.IntFlag):
    """The kinds of events; | joins them."""

    WILL_ADD = 1
    DID_ADD = 2
    WILL_REMOVE = 4
    DID_REMOVE = 8
    WILL_CLEAR = 16
    DID_CLEAR = 32
    TIER_DOWN = 64
    TIER_UP = 128
    MEMORY_WARNING = 256
    ENTERED_BACKGROUND = 512
    ALL = 1023


class Cause(enum.IntEnum):
    """Why an entry is removed; WRITTEN_BACK: why the disk tier gets one."""

    NONE = 0
    REPLACED = 1
    REMOVED = 2
    EVICTED = 3
    EXPIRED = 4
    CLEARED = 5
    DAMAGED = 6
    WRITTEN_BACK = 7


class _Pin(Owner):
    """A reference to a hutch_value."""

    __slots__ = ("forms",)

    def __init__(self, pointer: Any, forms: Forms) -> None:
        super().__init__(lib.hutch_value_retain(pointer), lib.hutch_value_release)
        self.forms = forms

    # The value does not change, so that a copy of its event has the same reference.
    def __copy__(self) -> _Pin:
        return self

    def __deepcopy__(self, memo: Any) -> _Pin:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("an Event that has a value cannot be pickled: the value is in memory here")


@dataclass(frozen=True)
class Event:
    """One event.

    Attributes:
        kind: the kind of event.
        cause: why an entry is removed; Cause.NONE for other kinds.
        tiers: the tiers concerned.
        version: of the entry added or removed; 0 if there is none yet.
        key: None for events that are not about an entry.
        status: for TIER_DOWN: the reason.
        has_value: whether the value is in memory. It is not for an entry that the
            disk tier alone removes by eviction, expiry or damage.
    """

    kind: EventKind
    cause: Cause
    tiers: tuple[Tier, ...]
    version: int
    key: Key | None
    status: Status
    has_value: bool
    _pin: _Pin | None = field(repr=False, compare=False)

    @property
    def value(self) -> Any:
        """The value of the entry added or removed, as get returns it; None: see has_value.

        It is decoded at each use, also after the listener has returned.
        """
        if self._pin is None:
            return None
        try:
            return decode(self._pin.pointer, self._pin.forms)
        except Unreadable:
            return None


Listener = Callable[[Event], Any]


class _Told:
    """What a Listening keeps, which its cache keeps: the garbage collector sees both, where it would
    not see what C has."""

    __slots__ = ("__weakref__", "forms", "function")

    def __init__(self, function: Listener, forms: Forms) -> None:
        self.function: Listener | None = function  # None: the listener has ended
        self.forms = forms


_listeners: dict[int, weakref.ref[_Told]] = {}
# Makes the registration and the cache's record of it one step. Within it the library neither
# waits nor calls a listener, and a release takes no lock.
_registering = threading.RLock()


def _begin_child() -> None:
    """In the child of a fork: a thread of the parent may have had the lock."""
    global _registering
    _registering = threading.RLock()


os.register_at_fork(after_in_child=_begin_child)


def _event(told: Any, forms: Forms) -> Event:
    pin = _Pin(told.value, forms) if told.value else None
    return Event(
        EventKind(told.kind),
        Cause(told.cause),
        tuple(tier for tier in Tier if told.tiers & tier),
        told.version,
        key_from_bytes(bytes_at(told.key, told.key_size)) if told.key else None,
        Status(told.status),
        pin is not None,
        pin,
    )


@callback
def _tell(number: int, told: Any) -> None:
    function: Listener | None = None
    try:
        listener = _listeners.get(number)
        kept = None if listener is None else listener()
        function = None if kept is None else kept.function
        if kept is not None and function is not None:
            function(_event(told.contents, kept.forms))
    except BaseException as error:
        report(error, "a listener", function)


def _let_go(number: int) -> bool:
    """Drop a listener's function. False: it has been dropped before."""
    listener = _listeners.pop(number, None)
    kept = None if listener is None else listener()
    if kept is not None:
        kept.function = None
    return listener is not None


@callback
def _release(number: int) -> None:
    try:
        _let_go(number)
    except BaseException as error:
        report(error, "the release of a listener", None)


_tell_callback = _structs.ListenerFunction(_tell)
_release_callback = _structs.ReleaseFunction(_release)
_nobody = _structs.ListenerFunction(), None, _structs.ReleaseFunction()


class Listening(Handle):
    """A listener that is in place until its end, or the block's: see Cache.listen."""

    def __init__(self, cache: Cache, function: Listener, kinds: EventKind) -> None:
        if not callable(function):
            raise TypeError(f"a listener is a function, not a {type(function).__name__}")
        self._cache = cache
        self._number = new_token()
        self._told = _Told(function, cache._forms)
        with _registering:
            _listeners[self._number] = weakref.ref(self._told)
            call = lib.hutch_set_listener
            context = self._number
            check(call(cache._pointer, kinds, _tell_callback, context, _release_callback))
            cache._listening = self

    def end(self) -> None:
        """Stop calling the function. A second end has no effect.

        A call of the function on another thread continues. If another listener has
        replaced this one already, that one stays.
        """
        with _registering:
            if not _let_go(self._number) or self._cache._listening is not self:
                return
            self._cache._listening = None
            status = lib.hutch_set_listener(self._cache._pointer, 0, *_nobody)
        if status not in (Status.CLOSED, Status.FORKED):
            check(status)

    def __enter__(self) -> Listening:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
