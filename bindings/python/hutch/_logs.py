"""The library's log, passed to Python's logging."""

from __future__ import annotations

import os
from typing import Any

from . import _accelerator, _structs
from ._callbacks import callback, refuse_in_subinterpreter, report
from ._errors import check
from ._interpreters import is_main
from ._library import lib

# Python's numbers, so that logging is imported only for a message.
_DEBUG, _INFO, _WARNING, _ERROR = 10, 20, 30, 40
_LEVELS = {1: _ERROR, 2: _WARNING, 3: _INFO, 4: _DEBUG}


@callback
def tell(
    level: int, tiers: int, status: int, left_out: int, directory: bytes | None, text: bytes
) -> None:
    """Log a line of the library, of which these are the parts. Raises nothing."""
    try:
        import logging

        where = "memory" if directory is None else os.fsdecode(directory)
        words = text.decode("utf-8", "replace")
        if left_out:
            words += f" ({left_out} messages before this one were left out)"
        logging.getLogger("hutch").log(
            _LEVELS.get(level, _WARNING),
            "%s: %s",
            where,
            words,
            extra={"directory": where, "status": status, "tiers": tiers},
        )
    except BaseException as error:
        report(error, "logging", None)


@callback
def interrupt(error: BaseException) -> None:
    """What the accelerator's import of this module was interrupted by."""
    report(error, "logging", None)


@callback
def _log(_: Any, told: Any) -> None:
    try:
        line = told.contents
        tell(line.level, line.tiers, line.status, line.left_out, line.directory, line.words)
    except BaseException as error:
        report(error, "logging", None)


_log_callback = _structs.LoggerFunction(_log)
_nobody = _structs.LoggerFunction(), None, _structs.ReleaseFunction()


def log(level: int | None = _INFO) -> None:
    """Set what every cache logs to the logger "hutch" of the standard logging.

        logging.basicConfig(level=logging.INFO)
        hutch.log(logging.INFO)

    level: less severe messages are dropped. The default is logging.WARNING; None: no
    messages. Warnings are a disk tier that goes out of service, an entry that is damaged, a
    value that the disk did not store. Information is a tier that comes back, or a loader
    that failed. A cache logs at most 32 messages a second. Handlers run on the thread
    whose call met the cause, or on a thread of the library; they must not wait for a thread
    that uses the cache.
    """
    refuse_in_subinterpreter()
    number = 0
    if level is not None:
        number = max((n for n, its in _LEVELS.items() if its >= level), default=0)
    if number == 0:
        check(lib.hutch_set_default_logger(0, *_nobody))
    else:
        none = _structs.ReleaseFunction()
        check(lib.hutch_set_default_logger(number, _log_callback, None, none))


if _accelerator.module is None and is_main:
    log(_WARNING)
