"""How to put, from Python's units to hutch_put_options."""

from __future__ import annotations

import os
from typing import Union

from . import _structs
from ._records import Seconds
from ._units import own_duration, uint64

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def path_bytes(path: Path) -> bytes:
    raw = os.fsencode(path)
    if b"\0" in raw:
        raise ValueError("a path cannot have a NUL in it")
    return raw


def put_options(
    expire: Seconds | None,
    idle: Seconds | None,
    cost: int | None,
    extended: bytes | None,
    suffix: str | None = None,
) -> _structs.PutOptions | None:
    """hutch_put_options in Python's units; None, where there is nothing but defaults."""
    if extended is None and expire is None and idle is None and cost is None and suffix is None:
        return None
    options = _structs.PutOptions()
    options.time_to_live = own_duration(expire)
    options.time_to_idle = own_duration(idle)
    if cost is not None:
        options.cost = uint64(cost)
    if extended is not None:
        options.extended = extended
        options.extended_size = len(extended)
    if suffix is not None:
        options.suffix = path_bytes(suffix)
    return options
