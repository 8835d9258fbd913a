"""What goes wrong, told to Python's logging."""

from __future__ import annotations

import logging
import os
from typing import Any

from . import _structs
from ._callbacks import report
from ._errors import check
from ._library import lib

_LEVELS = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO, 4: logging.DEBUG}

logger = logging.getLogger("hutch")
logger.addHandler(logging.NullHandler())


def _log(_: Any, told: Any) -> None:
    record = told.contents
    try:
        where = "memory" if record.directory is None else os.fsdecode(record.directory)
        words = record.words.decode("utf-8", "replace")
        if record.left_out:
            words += f" ({record.left_out} messages before this one were left out)"
        logger.log(
            _LEVELS.get(record.level, logging.WARNING),
            "%s: %s",
            where,
            words,
            extra={"directory": where, "status": record.status, "tiers": record.tiers},
        )
    except BaseException as error:
        report(error, "logging", logger)


_log_callback = _structs.LoggerFunction(_log)
_nobody = _structs.LoggerFunction(), None, _structs.ReleaseFunction()


def log(level: int | None = logging.INFO) -> None:
    """Have every cache tell what goes wrong to the logger "hutch" of the standard logging.

        logging.basicConfig()
        hutch.log()

    level: what is less grave is not told; None: nothing any more, which is how it
    begins. A cache tells of a disk tier that goes out of service or comes back, of
    damage and what became of it, of values that were not stored, of loaders that
    failed: 32 messages a second at most. Handlers are called by the thread whose call
    met it, or by one of the library's; they must not wait for a thread that uses the
    cache.
    """
    if level is None:
        check(lib.hutch_set_default_logger(0, *_nobody))
        return
    number = max((n for n, its in _LEVELS.items() if its >= level), default=0)
    if number == 0:
        check(lib.hutch_set_default_logger(0, *_nobody))
        return
    check(lib.hutch_set_default_logger(number, _log_callback, None, _structs.ReleaseFunction()))
