"""The awaitable calls that hutch_submit makes: tasks of the library, without a thread of Python's.

A function for each fills in the call, and takes its results out of the completion, which has
them for as long as it lasts.
"""

from __future__ import annotations

import ctypes
from collections.abc import AsyncIterator, Iterable
from ctypes import pointer
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from . import _structs
from ._accelerator import path_bytes
from ._awaiting import Take, awaited
from ._awaits import AwaitedEntries, in_thread
from ._callbacks import new_token
from ._cbor import Unreadable
from ._codec import INT, Key, key_to_bytes
from ._counters import INT64_MAX, INT64_MIN
from ._errors import Error, Status, check
from ._files import FILE_USE
from ._library import lib
from ._many import Failures, Pairs, array, by_kind, in_parts, long_name
from ._options import put_options
from ._process import hint
from ._serializers import Forms
from ._tags import tag_of
from ._units import Seconds, int64, named, own_duration, uint64
from ._values import decode
from ._walks import VISIT, Visit, visits

if TYPE_CHECKING:
    from ._records import EntryInfo, PutResult
    from ._types import Path
else:
    hint(globals(), "EntryInfo", "Path", "PutResult")

K = TypeVar("K", bound=Key)

# HUTCH_OPERATION_*
_INFO, _COUNT, _COST, _EACH, _TOUCH, _ADD, _REPLACE = 11, 12, 13, 14, 15, 16, 17
_COMPARE_AND_SWAP, _INCREMENT, _POP = 18, 19, 20
_GET_MANY, _PUT_MANY, _REMOVE_MANY, _PUT_FILE, _PATH = 21, 22, 23, 24, 25


async def _submitted(
    cache: SubmittedEntries,
    call: _structs.Call,
    priority: str,
    take: Take = lambda completion: None,
    token: int | None = None,
) -> tuple[int, Any]:
    """The status of a call, and what take(completion) returns."""
    arguments = cache._pointer, call
    return await awaited(lib.hutch_submit, arguments, priority, take, token)


def _of_key(operation: int, key: Key, **more: Any) -> _structs.Call:
    name = key_to_bytes(key)
    return _structs.Call(operation=operation, key=name, key_size=len(name), **more)


def _with(call: _structs.Call, options: _structs.PutOptions | None) -> _structs.Call:
    if options is not None:
        call.put_options = pointer(options)
    return call


async def _put_if(
    cache: SubmittedEntries,
    operation: int,
    key: Key,
    value: Any,
    own: tuple[Any, ...],
    priority: str,
    version: int = 0,
) -> bool:
    """Whether a put under a condition was made; also if not every tier has stored the value."""
    data, extended = cache._forms.encode(value)
    expire, idle, cost, write_policy, tag = own
    call = _of_key(operation, key, value=data, value_size=len(data), version=version)
    options = put_options(expire, idle, cost, extended, None, write_policy, tag)
    status, _ = await _submitted(cache, _with(call, options), priority)
    return status in (Status.OK, Status.PARTIAL)


def _error_of(completion: Any) -> _structs.Error | None:
    return completion.error.contents if completion.error else None


async def _of_keys(
    cache: SubmittedEntries,
    operation: int,
    keys: Iterable[K],
    priority: str,
    take: Callable[[Any, int], Any] = lambda batch, index: None,
) -> AsyncIterator[tuple[K, Any]]:
    """The keys that are answered with OK, each with what take(batch, index) returns."""
    failures = Failures()
    for part in in_parts([(key, long_name(key)) for key in keys]):
        asked = [key for key, _ in part]
        names, sizes = array([name for _, name in part])
        call = _structs.Call(operation=operation, keys=names, key_sizes=sizes, count=len(part))

        def answers(completion: Any) -> list[tuple[K, Any]]:
            batch = completion.batch
            statuses = failures.gather(batch, asked, _error_of(completion))
            return [
                (asked[index], take(batch, index))
                for index, status in enumerate(statuses)
                if status == Status.OK
            ]

        _, found = await _submitted(cache, call, priority, answers)
        for answer in found:
            yield answer
    failures.done()


async def _put_all(
    cache: SubmittedEntries, values: Any, own: tuple[Any, ...], priority: str
) -> dict[Any, PutResult]:
    from ._records import PutResult

    expire, idle, cost, write_policy, tag = own
    results: dict[Any, PutResult] = {}
    failures = Failures()
    for extended, puts in by_kind(dict(values).items(), cache._forms).items():
        options = put_options(expire, idle, cost, extended, None, write_policy, tag)
        for part in in_parts(puts):
            names, sizes = array([name for _, name, _ in part])
            data, data_sizes = array([data for _, _, data in part])
            call = _structs.Call(
                operation=_PUT_MANY, keys=names, key_sizes=sizes, values=data,
                value_sizes=data_sizes, count=len(part),
            )
            put = [key for key, _, _ in part]

            def take(completion: Any) -> None:
                failures.gather(completion.batch, put, _error_of(completion))
                for index, key in enumerate(put):
                    result = _structs.PutResult()
                    check(lib.hutch_batch_put_result(completion.batch, index, result))
                    results[key] = PutResult._of(result)

            await _submitted(cache, _with(call, options), priority, take)
    failures.done()
    return results


async def _number(cache: SubmittedEntries, operation: int, priority: str) -> int:
    call = _structs.Call(operation=operation)
    _, number = await _submitted(cache, call, priority, lambda completion: completion.count)
    return int(number)


def _copied(completion: Any) -> Any:
    """The record of a completion, whose own ends with it."""
    info = _structs.EntryInfo()
    if completion.info:
        ctypes.memmove(ctypes.addressof(info), completion.info, ctypes.sizeof(info))
    return info


class SubmittedEntries(AwaitedEntries):
    """The awaitable calls that are tasks of hutch_submit."""

    _pointer: Any
    _forms: Forms

    async def aadd(
        self,
        key: Key,
        value: Any,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        write_policy: str | None = None,
        tag: Key | None = None,
        priority: str = "default",
    ) -> bool:
        """Store value if there is none. False: there is one, or a later write was done first."""
        own = expire, idle, cost, write_policy, tag
        return await _put_if(self, _ADD, key, value, own, priority)

    async def areplace(
        self,
        key: Key,
        value: Any,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        write_policy: str | None = None,
        tag: Key | None = None,
        priority: str = "default",
    ) -> bool:
        """Store value if there is one. False: there is none, or a later write was done first."""
        own = expire, idle, cost, write_policy, tag
        return await _put_if(self, _REPLACE, key, value, own, priority)

    async def acompare_and_swap(
        self,
        key: Key,
        version: int,
        value: Any,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        write_policy: str | None = None,
        tag: Key | None = None,
        priority: str = "default",
    ) -> bool:
        """Store value if the entry still has this version, as compare_and_swap.

        False: it has another one, there is no entry, or a later write was done first.
        """
        own = expire, idle, cost, write_policy, tag
        operation = _COMPARE_AND_SWAP
        return await _put_if(self, operation, key, value, own, priority, uint64(version))

    async def atouch(
        self,
        key: Key,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        priority: str = "default",
    ) -> bool:
        """Make the entry count as written now, with new durations. False: no entry."""
        call = _of_key(
            _TOUCH, key,
            time_to_live=named("expire", own_duration, expire),
            time_to_idle=named("idle", own_duration, idle),
        )
        status, _ = await _submitted(self, call, priority)
        return status == Status.OK

    async def aincr(
        self,
        key: Key,
        delta: int = 1,
        default: int | None = 0,
        *,
        expire: Seconds | None = None,
        idle: Seconds | None = None,
        tag: Key | None = None,
        priority: str = "default",
    ) -> int:
        """Add delta to an int, as incr. If a later write was done first, it adds to that one."""
        delta = int64(delta)
        initial = 0 if default is None else int64(default)
        if default is None:
            if delta == 0:
                return await in_thread(self._counter, key)  # type: ignore[attr-defined]
            # As in incr: an impossible sum, so that the call makes no counter.
            initial = INT64_MAX if delta > 0 else INT64_MIN
        call = _with(
            _of_key(_INCREMENT, key, delta=delta, initial=initial),
            put_options(expire, idle, None, INT, tag=tag),
        )
        try:
            while True:
                status, total = await _submitted(
                    self, call, priority, lambda completion: completion.number
                )
                if status != Status.SUPERSEDED:
                    return int(total)
        except Error as error:
            if error.status == Status.OVERFLOW and default is None:
                if not await self.acontains(key):  # type: ignore[attr-defined]
                    raise KeyError(key) from None
            raise

    async def adecr(
        self,
        key: Key,
        delta: int = 1,
        default: int | None = 0,
        *,
        expire: Seconds | None = None,
        idle: Seconds | None = None,
        tag: Key | None = None,
        priority: str = "default",
    ) -> int:
        """Like aincr, with delta subtracted."""
        own: dict[str, Any] = {"expire": expire, "idle": idle, "tag": tag, "priority": priority}
        return await self.aincr(key, -delta, default, **own)

    async def apop(self, key: Key, default: Any = None, *, priority: str = "default") -> Any:
        """Remove the entry and return its value, or default: also if a later write was done
        first, which has replaced the value."""

        def value(completion: Any) -> tuple[Any, ...]:
            try:
                return (decode(completion.value, self._forms),) if completion.value else ()
            except Unreadable:
                return ()

        _, found = await _submitted(self, _of_key(_POP, key), priority, value)
        return found[0] if found else default

    async def ainfo(self, key: Key, *, priority: str = "default") -> EntryInfo | None:
        """The entry's record as it is now; None: no entry. No access."""
        from ._records import EntryInfo

        call = _of_key(_INFO, key)
        status, info = await _submitted(self, call, priority, _copied)
        if status == Status.NOT_FOUND:
            return None
        # call.key would end at the first zero byte.
        name = key_to_bytes(key)
        tag = await in_thread(tag_of, self._pointer, name, info) if info.tag_size else None
        return EntryInfo._of(info, tag)

    async def acount(self, *, priority: str = "default") -> int:
        """The number of entries, as len tells it."""
        return await _number(self, _COUNT, priority)

    async def acost(self, *, priority: str = "default") -> int:
        """The bytes charged for the entries, as cost."""
        return await _number(self, _COST, priority)

    async def aeach(
        self, visit: Callable[[Key, EntryInfo], Any], *, priority: str = "default"
    ) -> None:
        """Call visit(key, info) for every entry, as each, on a worker of the cache."""
        walk = Visit(self._pointer, visit)
        token = new_token()
        visits[token] = walk
        call = _structs.Call(operation=_EACH, visitor=VISIT)
        try:
            await _submitted(self, call, priority, token=token)
        finally:
            del visits[token]
        walk.done()

    async def aget_many(self, keys: Iterable[K], *, priority: str = "default") -> dict[K, Any]:
        """The values of those keys that have one, in the order of the keys."""

        def value(batch: Any, index: int) -> tuple[Any, ...]:
            try:
                return (decode(lib.hutch_batch_value(batch, index), self._forms),)
            except Unreadable:
                return ()

        answers = _of_keys(self, _GET_MANY, keys, priority, value)
        return {key: found[0] async for key, found in answers if found}

    async def adelete_many(self, keys: Iterable[Key], *, priority: str = "default") -> int:
        """Remove the entries of these keys. Returns how many there were."""
        answers = _of_keys(self, _REMOVE_MANY, keys, priority)
        return len([key async for key, _ in answers])

    async def aset_many(
        self,
        values: Pairs[K],
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        write_policy: str | None = None,
        tag: Key | None = None,
        priority: str = "default",
    ) -> None:
        """Store values, a mapping or pairs of key and value, as set_many."""
        await _put_all(self, values, (expire, idle, cost, write_policy, tag), priority)

    async def aput_many(
        self,
        values: Pairs[K],
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        write_policy: str | None = None,
        tag: Key | None = None,
        priority: str = "default",
    ) -> dict[K, PutResult]:
        """Like aset_many; returns for each what put returns."""
        return await _put_all(self, values, (expire, idle, cost, write_policy, tag), priority)

    async def aput_file(
        self,
        key: Key,
        path: Path,
        use: str = "copy",
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        suffix: str | None = None,
        write_policy: str | None = None,
        tag: Key | None = None,
        priority: str = "default",
    ) -> PutResult:
        """Store a file's bytes under key, as put_file.

        If a later write of the key was done first, the result has the version 0 and no outcome.
        """
        from ._records import Outcome, PutResult

        if use not in FILE_USE:
            raise ValueError(f"use is 'copy', 'move' or 'link', not {use!r}")
        file = path_bytes(path)
        call = _with(
            _of_key(_PUT_FILE, key, path=file, use=FILE_USE[use]),
            put_options(expire, idle, cost, None, suffix, write_policy, tag),
        )

        def result(told: Any) -> PutResult:
            return PutResult(told.version, Outcome(told.memory), Outcome(told.disk))

        status, put = await _submitted(self, call, priority, result)
        if status == Status.SUPERSEDED:
            return PutResult(0, Outcome.NONE, Outcome.NONE)
        made: PutResult = put
        return made

    async def apath(self, key: Key, *, priority: str = "default") -> str:
        """The path of the value's file, as path. KeyError: no entry on disk."""
        import os

        call = _of_key(_PATH, key)
        status, path = await _submitted(self, call, priority, lambda told: told.path)
        if status == Status.NOT_FOUND:
            raise KeyError(key)
        return os.fsdecode(path)
