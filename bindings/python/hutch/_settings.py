"""The options of an opening as numbers of hutch_options. It imports little: see _cache."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

WRITE_POLICIES: "dict[str | None, int]" = {
    None: 0,
    "through": 1,
    "memory": 2,
    "disk": 3,
    "on_eviction": 4,
}
PRIORITIES: "dict[str | None, int]" = {"low": -1, "default": 0, "high": 1}
_SHRINK: "dict[str | None, int]" = {None: 0, "empty": 1, "low_water": 2, "expired": 3}
_POLICIES: "dict[str | None, int]" = {None: 0, "lru": 1, "lfu": 2, "fifo": 3, "adaptive": 4}
_CHOICES: "dict[str, dict[str | None, int]]" = {
    "storage": {None: 0, "mixed": 1, "sqlite": 2, "file": 3, "log": 4},
    "policy": _POLICIES,
    "disk_policy": _POLICIES,
    "sharing": {None: 0, "exclusive": 1, "shared": 2},
    "write_policy": WRITE_POLICIES,
    "durability": {None: 0, "process": 1, "power": 2, "sync": 3},
    "on_memory_warning": _SHRINK,
    "on_background": _SHRINK,
}
_CHECKSUMS = {True: 1, False: 2}
_FLAGS = {"network_directory": 1, "disk_optional": 2, "nonempty": 16, "ages_on_trim": 64}
NO_THREADS = 8
# Each option that is a number, and the function of _units that checks it.
_NUMBERS = {
    "low_water": "uint32",
    "inline_threshold": "limit_size",
    "workers": "uint32",
    "queue_length": "uint64",
    "close_deadline": "nanoseconds",
}


def _number(name: str, unit: str, given: "Any") -> int:
    from . import _units

    number: int = _units.named(name, getattr(_units, unit), given)
    return number


def choice(what: str, chosen: "str | None", table: "Mapping[str | None, int]") -> int:
    """The number of a choice by name. ValueError: the table has no such name."""
    try:
        return table[chosen]
    except (KeyError, TypeError):
        names = [repr(name) for name in table if name is not None]
        raise ValueError(
            f"{what} is {', '.join(names[:-1])} or {names[-1]}, not {chosen!r}"
        ) from None


def named_of(options: "Any") -> "dict[str, Any]":
    """The choices and flags of a hutch_options, by their names in Python."""
    names: dict[str, Any] = {
        name: next(chosen for chosen, number in table.items() if number == getattr(options, name))
        for name, table in _CHOICES.items()
    }
    return {**names, **{name: bool(options.flags & flag) for name, flag in _FLAGS.items()}}


def changes_of(chosen: "Mapping[str, Any]") -> "dict[str, int]":
    """As settings_of, for some of the options alone. None, and a choice of None, is not set."""
    changes = {}
    for name, value in chosen.items():
        if name in _CHOICES:
            changes[name] = choice(name, value, _CHOICES[name])
        elif value is not None:
            changes[name] = _number(name, _NUMBERS[name], value)
    if changes.get("workers") == 0:
        raise ValueError("workers is at least 1: an open cache keeps its threads")
    return changes


def settings_of(chosen: "Mapping[str, Any]") -> "dict[str, int]":
    """The fields of hutch_options that the options of a Cache set, by name ("memory.cost").

    Options that are objects are left out.
    """
    settings = {name: choice(name, chosen[name], table) for name, table in _CHOICES.items()}
    settings["checksums"] = _CHECKSUMS[bool(chosen["checksums"])]
    for name, unit in _NUMBERS.items():
        if chosen[name] is not None:
            settings[name] = _number(name, unit, chosen[name])
    settings["flags"] = sum(flag for name, flag in _FLAGS.items() if chosen[name])
    if settings.get("workers") == 0:
        settings["flags"] |= NO_THREADS
    if chosen["queue"] is not None:
        from ._shared_queues import address_for_cache

        settings["queue"] = address_for_cache(chosen["queue"])
    for tier in ("memory", "disk"):
        for name in ("time_to_live", "time_to_idle"):
            if chosen[name] is not None:
                settings[f"{tier}.{name}"] = _number(name, "limit_duration", chosen[name])
        if chosen[tier] is not None:
            from ._limits import numbers_of

            for name, limit in numbers_of(tier, chosen[tier]).items():
                settings[f"{tier}.{name}"] = limit
    return settings
