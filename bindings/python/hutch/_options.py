"""How to put, from Python's units to hutch_put_options."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Union

from . import _structs
from ._units import own_duration, uint64

if TYPE_CHECKING:
    from ._records import Seconds

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def encode_path(path: Path) -> bytes:
    """The bytes of a path, or of a part of one. ValueError: they would end early in C."""
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
    """The options of a put; None, which C takes for the defaults, if all are."""
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
        options.suffix = encode_path(suffix)
    return options
