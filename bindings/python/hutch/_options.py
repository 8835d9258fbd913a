"""The caller's choices, by name and in Python's units, as hutch_put_options has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _structs
from ._accelerator import path_bytes
from ._settings import WRITE_POLICIES, choice
from ._tags import tag_to_bytes
from ._units import UINT64_MAX, named, nanoseconds, uint64

if TYPE_CHECKING:
    from ._codec import Key
    from ._units import Seconds

NOTIFICATIONS: dict[str | None, int] = {"memory_warning": 1, "entered_background": 2}


def put_options(
    expire: Seconds | None,
    idle: Seconds | None,
    cost: int | None,
    extended: bytes | None,
    suffix: str | None = None,
    write_policy: str | None = None,
    tag: Key | None = None,
) -> _structs.PutOptions | None:
    """The options of a put; None, which C reads as the defaults, if all are."""
    own = extended, expire, idle, cost, suffix, write_policy, tag
    if own.count(None) == len(own):
        return None
    options = _structs.PutOptions()
    if expire is not None:
        options.time_to_live = named("expire", nanoseconds, expire)
    if idle is not None:
        options.time_to_idle = named("idle", nanoseconds, idle)
    if cost is not None:
        # 0 is none in the library, and HUTCH_NO_COST a cost of 0.
        options.cost = named("cost", uint64, cost) or UINT64_MAX
    if extended is not None:
        options.extended = extended
        options.extended_size = len(extended)
    if suffix is not None:
        options.suffix = named("suffix", path_bytes, suffix)
    if write_policy is not None:
        options.write_policy = choice("write_policy", write_policy, WRITE_POLICIES)
    if tag is not None:
        raw = named("tag", tag_to_bytes, tag)
        options.tag = raw
        options.tag_size = len(raw)
    return options
