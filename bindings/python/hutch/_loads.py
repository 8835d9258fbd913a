"""One caller's part in a load, by hutch_load_begin.

The loader runs here and not within a callback of the library, so its
exceptions are ordinary ones and a signal can interrupt a wait.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import time
from ctypes import byref
from types import BuiltinFunctionType
from typing import Any, Callable

from . import _structs
from ._errors import Status, check, failure
from ._handles import Owner
from ._library import lib
from ._serializers import Forms
from ._units import FOREVER, Seconds, named, nanoseconds
from ._values import decode

_DEFAULT_TIMEOUT = 60.0
_STALE_IF_ERROR = 1
# A wait in C does not react to signals.
_SLICE = 0.1
# How long a greenlet sleeps at first.
_FIRST_STEP = 0.001


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


def load(
    pointer: Any,
    name: bytes,
    options: _structs.LoadOptions,
    make: Callable[[], tuple[bytes, Any]],
    forms: Forms,
    background: bool = False,
) -> Any:
    """The value of a key; make returns its bytes and the options of their put.

    background: if there is a value to be refreshed, a thread makes the new one.
    """
    value = _structs.ValuePointer()
    loading = _structs.LoadingPointer()
    try:
        status = check(
            lib.hutch_load_begin(
                pointer, name, len(name), byref(options), byref(value), byref(loading)
            )
        )
        if not loading:
            return decode(value, forms)
        if status == Status.WOULD_BLOCK:
            status = _wait(loading, options, value)
            if status == Status.OK:
                return decode(value, forms)
        if status == Status.OK and background and _lead_later(loading, make):
            return decode(value, forms)
        lib.hutch_value_release(value)
        value = _structs.ValuePointer()
        try:
            _lead(loading, make)
        except Exception:
            # No Ctrl-C, which may come when there is a value.
            if lib.hutch_loading_wait(loading, 0, byref(value)) != Status.OK:
                raise
        else:
            check(lib.hutch_loading_wait(loading, 0, byref(value)))
        return decode(value, forms)
    finally:
        lib.hutch_value_release(value)
        lib.hutch_loading_release(loading)


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


def _lead(loading: Any, make: Callable[[], tuple[bytes, Any]]) -> None:
    outer = _current.loading
    _current.loading = loading
    try:
        data, put_options = make()
    except Exception as error:
        fail(loading, error)
        raise
    except BaseException:
        # An interrupt of this thread is not a failure of the source: another caller may try.
        lib.hutch_loading_abandon(loading)
        raise
    finally:
        _current.loading = outer
    fulfil(loading, data, put_options)


def _lead_later(loading: Any, make: Callable[[], tuple[bytes, Any]]) -> bool:
    """Make the value on a thread of its own. False: no thread could be made."""
    kept = Lead(loading)

    def work() -> None:
        try:
            _lead(kept.pointer, make)
        except Exception:
            # The library logs the failure, and decides about the old value.
            pass

    try:
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(work,), name="hutch refresh").start()
    except RuntimeError:  # the interpreter ends
        return False
    return True


def fail(loading: Any, error: Exception) -> None:
    """Answer a load with an exception."""
    words = f"{type(error).__name__}: {error}".encode("utf-8", "replace")
    lib.hutch_loading_fail(loading, _code(error), words.replace(b"\0", b"?"))


def fulfil(loading: Any, data: bytes, put_options: Any) -> None:
    """Answer a load with a value. The callers get it even if no tier stores it."""
    status = lib.hutch_loading_fulfil(loading, data, len(data), put_options)
    if status in (Status.CLOSED, Status.FORKED, Status.NO_MEMORY, Status.INVALID_ARGUMENT):
        check(status)
