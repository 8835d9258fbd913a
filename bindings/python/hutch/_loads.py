"""One caller's part in a load, by hutch_load_begin.

The loader runs here and not within a callback of the library, so its
exceptions are ordinary ones and a signal can interrupt a wait.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import time
from contextlib import suppress
from ctypes import ArgumentError, byref
from types import BuiltinFunctionType
from typing import Any, Callable

from . import _structs
from ._cbor import Unreadable
from ._codec import key_to_bytes
from ._errors import DeadlockError, Error, LoadError, Status, TimedOutError, check, failure
from ._foreign import reason_of
from ._handles import Owner
from ._library import lib
from ._options import put_options
from ._units import FOREVER, Seconds, named, nanoseconds
from ._values import parts

_DEFAULT_TIMEOUT = 60.0
_STALE_IF_ERROR = 1
# A wait in C does not react to signals.
_SLICE = 0.1
# How long a greenlet sleeps at first.
_FIRST_STEP = 0.001
_NOTHING = object()


class _Current(threading.local):
    """The load whose loader this thread is within; None: none."""

    loading: Any = None


_current = _Current()


class Lead(Owner):
    """A reference to the loading for which a coroutine makes the value."""

    __slots__ = ("__weakref__",)

    def __init__(self, pointer: Any) -> None:
        super().__init__(lib.hutch_loading_retain(pointer), lib.hutch_loading_release)


leading: contextvars.ContextVar[Lead | None] = contextvars.ContextVar("hutch lead", default=None)
"""Like _current, for coroutines."""


def load_options(
    timeout: Seconds | None,
    refresh: Seconds | None,
    remember_errors: Seconds | None,
    stale_if_error: bool,
) -> _structs.LoadOptions:
    """The options of a load, in the library's units."""
    options = _structs.LoadOptions(flags=_STALE_IF_ERROR if stale_if_error else 0)
    if timeout is not None:
        options.timeout = named("timeout", nanoseconds, timeout)
    if refresh is not None:
        options.soft_time_to_live = named("refresh", nanoseconds, refresh)
    if remember_errors is not None:
        options.negative_time_to_live = named("remember_errors", nanoseconds, remember_errors)
    lead = leading.get()
    if _current.loading is not None:
        options.parent = _current.loading
    elif lead is not None:
        options.parent = lead.pointer
    return options


class Loads:
    """A function whose results a cache keeps, and how.

    Attributes:
        put: the options of the puts, as put_options has them: expire, idle, cost, tag.
        times: the options of the loads, as load_options has them.
        background: if there is a value to be refreshed, a thread makes the new one.
        is_alone: a caller for which another one's function fails calls its own; nothing is stored.
        hits, misses: the calls that had a value, and those that called the function.
    """

    is_alone = False

    def __init__(
        self,
        cache: Any,
        function: Callable[..., Any],
        put: tuple[Any, Any, Any, Any],
        times: tuple[Any, Any, Any, bool],
        background: bool,
    ) -> None:
        self.cache = cache
        self.function = function
        self.put = put
        self.times = times
        self.background = background
        self.hits = 0
        self.misses = 0

    def key_of(self, /, *args: Any, **kwargs: Any) -> Any:
        """The key of a call."""
        return args[0]

    def encoded(self, result: Any) -> tuple[bytes, Any]:
        """The bytes of a result, and the options of their put."""
        data, extended = self.cache._forms.encode(result)
        expire, idle, cost, tag = self.put
        return data, put_options(expire, idle, cost, extended, tag=tag)


def load(of: Loads, /, *args: Any, **kwargs: Any) -> Any:
    """The value of a call's key; of.function makes it.

    The function is called here, in no function between, so that one that calls itself has as much
    of Python's stack as can be.
    """
    key = of.key_of(*args, **kwargs)
    name = key_to_bytes(key)
    for _ in range(2):
        value = _structs.ValuePointer()
        loading = _structs.LoadingPointer()
        outer = _current.loading
        leads = False
        made = _NOTHING
        try:
            leads = _begin(of, name, value, loading, args, kwargs)
            if not leads:
                found = _readable(of, key, value)
                if found is _NOTHING:
                    continue
                of.hits += 1
                return found
            of.misses += 1
            # In this order: an interrupt between them leaves nothing to be released again.
            old, value = value, _structs.ValuePointer()
            lib.hutch_value_release(old)
            try:
                _current.loading = loading
                try:
                    made = of.function(*args, **kwargs)
                    data, put = of.encoded(made)
                except BaseException as error:
                    give_up(loading, error)
                    raise
                finally:
                    _current.loading = outer
                fulfil(loading, data, put)
            except Exception:
                # No Ctrl-C, which may come when there is a value.
                if lib.hutch_loading_wait(loading, 0, byref(value)) != Status.OK:
                    raise
            else:
                check(lib.hutch_loading_wait(loading, 0, byref(value)))
            found = _readable(of, key, value)
            if found is not _NOTHING:
                return found
            if made is not _NOTHING:
                return of.cache._as_stored(made)
        except (LoadError, TimedOutError, DeadlockError):
            if leads or not of.is_alone:
                raise
            break
        except ArgumentError as error:
            raise reason_of(error) from None
        finally:
            if value:
                lib.hutch_value_release(value)
            if loading:
                lib.hutch_loading_release(loading)
    # Or another program keeps storing bytes that this one cannot read.
    of.misses += 1
    return of.cache._as_stored(of.function(*args, **kwargs))


def _readable(of: Loads, key: Any, value: Any) -> Any:
    """A value that a load has found; _NOTHING: it cannot be read, and is removed."""
    found = parts(value)
    try:
        return of.cache._forms.decode(*found)
    except Unreadable:
        # A serializer may have taken long, and a newer value stays.
        if _stored(of.cache, key) == found:
            of.cache.delete(key)
        return _NOTHING


def _stored(cache: Any, key: Any) -> tuple[bytes, bytes] | None:
    """The bytes that are stored now, and their extended data."""
    name = key_to_bytes(key)
    value = _structs.ValuePointer()
    try:
        check(lib.hutch_get(cache._pointer, name, len(name), byref(value)))
        return parts(value) if value else None
    finally:
        if value:
            lib.hutch_value_release(value)


def _begin(
    of: Loads, name: bytes, value: Any, loading: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Whether this caller makes the value from here on. False: value is set."""
    options = load_options(*of.times)
    status = check(
        lib.hutch_load_begin(
            of.cache._pointer, name, len(name), byref(options), byref(value), byref(loading)
        )
    )
    if not loading:
        return False
    if status == Status.WOULD_BLOCK:
        return _wait(loading, options, value) != Status.OK
    later = status == Status.OK and of.background
    return not (later and _lead_later(of, loading, args, kwargs))


def _wait(loading: Any, options: _structs.LoadOptions, value: Any) -> int:
    """OK, with the value; NOT_FOUND: this caller leads from here on."""
    timeout = options.timeout / 1e9 if options.timeout else _DEFAULT_TIMEOUT
    end = None if options.timeout == FOREVER else time.monotonic() + timeout
    step = _FIRST_STEP
    while True:
        left = _SLICE if end is None else min(_SLICE, max(end - time.monotonic(), 0))
        if isinstance(time.sleep, BuiltinFunctionType):
            status: int = lib.hutch_loading_wait(loading, nanoseconds(left), byref(value))
        else:
            # gevent and eventlet have replaced it by a function that runs other greenlets. The
            # loader may be one of this thread, which a wait in C would keep from its end.
            status = lib.hutch_loading_wait(loading, 1, byref(value))
            if status == Status.TIMED_OUT:
                time.sleep(min(step, left))
                step = min(2 * step, _SLICE)
        if status in (Status.OK, Status.NOT_FOUND):
            return status
        if status != Status.TIMED_OUT or (end is not None and time.monotonic() >= end):
            raise failure(status)
        # The value may be that of a coroutine whose loop is closed meanwhile.
        if f"{__package__}._aload" in sys.modules:
            from ._closed_loops import let_go

            let_go()


def _code(error: Exception) -> int:
    code = getattr(error, "errno", None)
    return code if isinstance(code, int) and 0 <= code < 2**31 else 0


def _lead_later(of: Loads, loading: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Make the value on a thread of its own. False: no thread could be made."""
    kept = Lead(loading)

    def work() -> None:
        _current.loading = kept.pointer  # The thread makes nothing else.
        try:
            data, put = of.encoded(of.function(*args, **kwargs))
        except BaseException as error:
            # The library logs the failure, and decides about the old value.
            give_up(kept.pointer, error)
            if not isinstance(error, Exception):
                raise
        else:
            with suppress(Error):  # The cache may be closed by now.
                fulfil(kept.pointer, data, put)

    try:
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(work,), name="hutch refresh").start()
    except RuntimeError:  # the interpreter ends
        return False
    return True


def give_up(loading: Any, error: BaseException) -> None:
    """Answer a load whose loader has raised."""
    if isinstance(error, Exception):
        words = f"{type(error).__name__}: {error}".encode("utf-8", "replace")
        lib.hutch_loading_fail(loading, _code(error), words.replace(b"\0", b"?"))
    else:
        # An interrupt of this thread is not a failure of the source: another caller may try.
        lib.hutch_loading_abandon(loading)


def fulfil(loading: Any, data: bytes, put_options: Any) -> None:
    """Answer a load with a value. The callers get it even if no tier stores it."""
    status = lib.hutch_loading_fulfil(loading, data, len(data), put_options)
    if status in (Status.CLOSED, Status.FORKED, Status.NO_MEMORY, Status.INVALID_ARGUMENT):
        check(status)
