"""The library's structs in Python's units: seconds and bytes."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _structs
from ._limits import TierLimits
from ._process import hint
from ._settings import NO_THREADS, named_of
from ._units import UINT64_MAX, seconds_of_limit, size_of_limit

if TYPE_CHECKING:
    from ._queues import Queue
else:
    hint(globals(), "Queue")

_SECOND = 1e9


class Tier(enum.IntEnum):
    """A tier."""

    MEMORY = 1
    DISK = 2


class State(enum.IntEnum):
    """The state of a tier."""

    NONE = 0
    UP = 1
    DOWN = 2


class Outcome(enum.IntEnum):
    """The outcome of a put in a tier."""

    NONE = 0
    STORED = 1
    TOO_LARGE = 2
    NO_SPACE = 3
    FAILED = 4
    REMOVED = 5
    DEFERRED = 6


class PutResult(NamedTuple):
    """The result of a put: the version of the write, and the outcome in each tier."""

    version: int
    memory: Outcome
    disk: Outcome

    @property
    def partial(self) -> bool:
        """Whether an existing tier did not store the value."""
        refusals = (Outcome.TOO_LARGE, Outcome.NO_SPACE, Outcome.FAILED)
        return self.memory in refusals or self.disk in refusals

    @classmethod
    def _of(cls, result: _structs.PutResult) -> PutResult:
        return cls(result.version, Outcome(result.memory), Outcome(result.disk))


@dataclass(frozen=True)
class EntryInfo:
    """The record of an entry, without its value. Times are Unix times in seconds.

    Attributes:
        version: of the write; a directory never uses one twice.
        created: the time of the last write or touch.
        accessed: the time of the last access; exact for entries with a time to idle,
            else within minutes.
        expires: when its time to live ends; None: never.
        time_to_idle: in seconds; None: none.
        cost: the explicit cost; 0: none, or one of 0.
        size: of the value, in bytes.
        tier: the tier that answered.
        tag: the tag that it was put with; None: none.
    """

    version: int
    created: float
    accessed: float
    expires: float | None
    time_to_idle: float | None
    cost: int
    size: int
    tier: Tier
    tag: Any = None

    @classmethod
    def _of(cls, info: _structs.EntryInfo, tag: Any) -> EntryInfo:
        return cls(
            version=info.version,
            created=info.created / _SECOND,
            accessed=info.accessed / _SECOND,
            expires=info.expires / _SECOND if info.expires else None,
            time_to_idle=info.time_to_idle / _SECOND if info.time_to_idle else None,
            cost=info.cost if info.cost != UINT64_MAX else 0,
            size=info.size,
            tier=Tier(info.tier),
            tag=tag,
        )


class Entry(NamedTuple):
    """A value with its record as the write made it."""

    value: Any
    info: EntryInfo


@dataclass(frozen=True)
class CacheLimits:
    """The limits of a cache, tier by tier."""

    memory: TierLimits
    disk: TierLimits

    @classmethod
    def _of(cls, limits: _structs.CacheLimits) -> CacheLimits:
        return cls(TierLimits._of(limits.memory), TierLimits._of(limits.disk))


@dataclass(frozen=True)
class CacheOptions:
    """The options in force, by the names that Cache has for them.

    An option of the disk tier is None in a cache in memory. workers is 0 in a cache without
    threads, and None if queue runs its calls. The flags are those of the opening that opened the cache.
    """

    memory: TierLimits
    disk: TierLimits
    storage: str | None
    policy: str
    disk_policy: str | None
    sharing: str | None
    inline_threshold: float | None
    write_policy: str
    durability: str | None
    checksums: bool | None
    network_directory: bool
    disk_optional: bool
    nonempty: bool
    ages_on_trim: bool
    on_memory_warning: str
    on_background: str
    low_water: int
    workers: int | None
    queue_length: float
    queue: Queue | None
    objects: bool
    close_deadline: float | None

    @classmethod
    def _of(cls, options: _structs.Options) -> CacheOptions:
        threshold = options.inline_threshold
        queue = None
        if options.queue:
            from ._queues import Queue

            queue = Queue._at(options.queue)
        has_threads = not options.flags & NO_THREADS
        return cls(
            memory=TierLimits._of(options.memory),
            disk=TierLimits._of(options.disk),
            inline_threshold=size_of_limit(threshold),
            checksums=None if options.checksums == 0 else options.checksums == 1,
            low_water=options.low_water,
            workers=None if queue is not None and has_threads else options.workers,
            queue=queue,
            objects=bool(options.object_codec),
            queue_length=options.queue_length if options.queue_length != UINT64_MAX else 0,
            close_deadline=seconds_of_limit(options.close_deadline),
            **named_of(options),
        )


def _values(kind: Any, struct: Any) -> list[Any]:
    """The values of a record's fields, which a struct has under the same names."""
    return [getattr(struct, field.name) for field in fields(kind)]


@dataclass(frozen=True)
class TierStats:
    """What a tier has done since the cache was opened, and what it holds.

    Attributes:
        state: whether the tier works.
        count: entries held.
        cost: bytes charged for them.
        hits, misses: gets that this tier answered, and that it could not.
        puts: values stored, promotions from disk included.
        removals: entries removed on request.
        evictions: entries evicted for a limit.
        expirations: entries removed because they had expired.
        refusals: puts that were too large or found no space.
        failures: calls of the system or of SQLite that failed.
        damaged: entries found damaged, and removed.
        replacements: puts that replaced an entry; memory only.
        trims: entries removed by trim.
        held_count, held_bytes: values and objects that have left the tier and
            are still referenced.
        waiting: objects without a reference, not yet released.
    """

    state: State
    count: int
    cost: int
    hits: int
    misses: int
    puts: int
    removals: int
    evictions: int
    expirations: int
    refusals: int
    failures: int
    damaged: int
    replacements: int
    trims: int
    held_count: int
    held_bytes: int
    waiting: int

    @classmethod
    def _of(cls, stats: _structs.TierStats) -> TierStats:
        return cls(State(stats.state), *_values(cls, stats)[1:])


@dataclass(frozen=True)
class CheckReport:
    """What a check has found and repaired. False if nothing was wrong.

    Attributes:
        entries: entries checked and found whole.
        bytes: the bytes of their values that were read.
        damaged: entries removed.
        orphans: files removed that belonged to no entry.
        counters: 1 if the count or the cost was wrong.
        manifest: errors that SQLite found in the database.
    """

    entries: int
    bytes: int
    damaged: int
    orphans: int
    counters: int
    manifest: int

    def __bool__(self) -> bool:
        return bool(self.damaged or self.orphans or self.counters or self.manifest)

    @classmethod
    def _of(cls, report: _structs.CheckReport) -> CheckReport:
        return cls(*_values(cls, report))


@dataclass(frozen=True)
class CopyReport:
    """What a copy has done.

    Attributes:
        copied: entries stored in the target.
        bytes: the bytes of their values.
        existing: entries left out because the target had one of the key.
        refused: entries left out because they are too large for the target.
    """

    copied: int
    bytes: int
    existing: int
    refused: int

    @classmethod
    def _of(cls, report: _structs.CopyReport) -> CopyReport:
        return cls(*_values(cls, report))


@dataclass(frozen=True)
class CacheStats:
    """The statistics of both tiers."""

    memory: TierStats
    disk: TierStats

    @classmethod
    def _of(cls, stats: _structs.CacheStats) -> CacheStats:
        return cls(TierStats._of(stats.memory), TierStats._of(stats.disk))

    @property
    def hits(self) -> int:
        """Gets that any tier answered."""
        return self.memory.hits + self.disk.hits

    @property
    def misses(self) -> int:
        """Gets that no tier answered: the misses of the lowest tier."""
        lowest = self.memory if self.disk.state is State.NONE else self.disk
        return lowest.misses
