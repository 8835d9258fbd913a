"""Many keys in one call, which share a commit or a read of the database."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ctypes import byref, c_char_p, c_size_t, c_uint64
from typing import TYPE_CHECKING, Any, TypeVar, Union

from . import _structs
from ._cbor import Unreadable
from ._codec import Key, key_to_bytes
from ._errors import Error, InvalidArgumentError, Status, check, described, failure
from ._process import hint, late
from ._library import lib
from ._options import put_options
from ._tags import tag_of
from ._units import Seconds
from ._serializers import Forms
from ._values import decode

if TYPE_CHECKING:
    from ._records import EntryInfo, PutResult
else:
    hint(globals(), "EntryInfo", "PutResult")

T = TypeVar("T")

K = TypeVar("K", bound=Key)
Pairs = Union[Mapping[K, Any], Iterable["tuple[K, Any]"]]

# The keys in one call of the library. Bounds the memory that is held twice, in C and in Python.
_AT_ONCE = 1024
_LONGEST_KEY = 65535


def long_name(key: Key) -> bytes:
    """The bytes of a key. InvalidArgumentError: they are more than a key can have."""
    # The library would detect that too, but only after it had processed the keys before.
    name = key_to_bytes(key)
    if len(name) > _LONGEST_KEY:
        raise InvalidArgumentError(Status.INVALID_ARGUMENT, "a key is longer than HUTCH_KEY_MAX")
    return name


def array(items: list[bytes]) -> tuple[Any, Any]:
    """Pointers and sizes. The array keeps the items alive."""
    count = len(items)
    return (c_char_p * count)(*items), (c_size_t * count)(*map(len, items))


def in_parts(items: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]


def by_kind(
    values: Iterable[tuple[K, Any]], forms: Forms
) -> dict[bytes | None, list[tuple[K, bytes, bytes]]]:
    """Keys, their bytes and those of their values, by the extended data of the values, which
    give their type, and are the same for all puts of one call of the library."""
    kinds: dict[bytes | None, list[tuple[K, bytes, bytes]]] = {}
    for key, value in values:
        name = long_name(key)
        encoded, extended = forms.encode(value)
        kinds.setdefault(extended, []).append((key, name, encoded))
    return kinds


class _Batch:
    """The results of a call for many keys. They are there within a block."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self._pointer = _structs.BatchPointer()
        check(call(*arguments, byref(self._pointer)))

    def __enter__(self) -> Any:
        return self._pointer

    def __exit__(self, *_: object) -> None:
        lib.hutch_batch_release(self._pointer)


class Failures:
    """The failures so far, by key."""

    def __init__(self) -> None:
        self._by_key: dict[Any, Error] = {}

    def gather(
        self, batch: Any, keys: Sequence[Key], last_error: _structs.Error | None = None
    ) -> list[int]:
        """The statuses of a batch. last_error: that of its last failure; None: this thread's,
        which it is if no other call of the library comes between."""
        statuses: list[int] = []
        last = None
        for index, key in enumerate(keys):
            status = lib.hutch_batch_status(batch, index)
            statuses.append(status)
            if status < 0:
                self._by_key[key] = described(status, None)
                last = key, status
        if last is not None:
            # Only the words of this one are known.
            error = failure(last[1]) if last_error is None else described(last[1], last_error)
            self._by_key[last[0]] = error
        return statuses

    def gather_at(self, address: int, keys: Sequence[Key]) -> None:
        """Like gather, of a batch of the accelerator."""
        self.gather(ctypes.cast(address, _structs.BatchPointer), keys)

    def done(self) -> None:
        """Raise the last failure, which has the others in its attribute, if there is one."""
        if self._by_key:
            error = list(self._by_key.values())[-1]
            error.failures = self._by_key
            raise error


class Many:
    """The calls that work on many keys.

    Each key is processed by itself: other threads may write between two keys, and the
    failure of one key does not affect the others. All keys are tried; then one of the
    failures is raised, and its attribute failures has all of them, by key. Keys and
    values are checked first: if one is invalid, nothing has been done.
    """

    _pointer: Any
    _forms: Forms

    def get_many(self, keys: Iterable[K]) -> dict[K, Any]:
        """The values of those keys that have one, in the order of the keys."""
        found: dict[K, Any] = {}
        for key, batch, index in self._ask(lib.hutch_get_many, keys):
            try:
                found[key] = decode(lib.hutch_batch_value(batch, index), self._forms)
            except Unreadable:
                pass
        return found

    def infos(self, keys: Iterable[K]) -> dict[K, EntryInfo]:
        """The records of those keys that have an entry, as info. No access."""
        with late:
            from ._records import EntryInfo

        found: dict[K, EntryInfo] = {}
        for key, batch, index in self._ask(lib.hutch_info_many, keys):
            info = _structs.EntryInfo()
            check(lib.hutch_batch_info(batch, index, byref(info)))
            found[key] = EntryInfo._of(info, tag_of(self._pointer, key_to_bytes(key), info))
        return found

    def delete_many(self, keys: Iterable[Key]) -> int:
        """Remove the entries of these keys. Returns how many there were."""
        return sum(1 for _ in self._ask(lib.hutch_remove_many, keys))

    def remove_prefix(self, prefix: str | bytes) -> int:
        """Remove the entries of all keys that begin with the prefix. Returns how many.

        Keys of the prefix's type: a str finds keys that are str, bytes find bytes. Entries
        set before the call are removed from every tier; an entry set meanwhile is removed or
        stays. The empty prefix is an error: clear() removes everything.
        """
        if type(prefix) not in (str, bytes):
            raise TypeError(f"a prefix must be str or bytes, not {type(prefix).__name__}")
        if not prefix:
            raise ValueError("the prefix is empty")
        name = long_name(prefix)
        removed = c_uint64()
        check(lib.hutch_remove_prefix(self._pointer, name, len(name), byref(removed)))
        return removed.value

    def _ask(self, call: Any, keys: Iterable[K]) -> Iterator[tuple[K, Any, int]]:
        """The keys that are answered with OK, each with its batch and index."""
        failures = Failures()
        for part in in_parts([(key, long_name(key)) for key in keys]):
            asked = [key for key, _ in part]
            names = array([name for _, name in part])
            with _Batch(call, self._pointer, *names, len(part)) as batch:
                for index, status in enumerate(failures.gather(batch, asked)):
                    if status == Status.OK:
                        yield asked[index], batch, index
        failures.done()

    def set_many(
        self,
        values: Pairs[K],
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        write_policy: str | None = None,
        tag: Key | None = None,
    ) -> None:
        """Store values, a mapping or pairs of key and value, each like set.

        In a database several times faster than as many calls of set, since puts share
        commits.
        """
        self._put_each(values, expire, idle, cost, write_policy, tag, None)

    def put_many(
        self,
        values: Pairs[K],
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        write_policy: str | None = None,
        tag: Key | None = None,
    ) -> dict[K, PutResult]:
        """Like set_many; returns for each what put returns."""
        results: dict[K, PutResult] = {}
        self._put_each(values, expire, idle, cost, write_policy, tag, results)
        return results

    def _put_all(self, *_: Any, **__: Any) -> bool:
        """See the accelerator's: none is stored here."""
        return False

    def _put_each(
        self,
        values: Pairs[K],
        expire: Seconds | None,
        idle: Seconds | None,
        cost: int | None,
        write_policy: str | None,
        tag: Key | None,
        results: dict[K, PutResult] | None,
    ) -> None:
        failures = Failures()
        puts_of = values if type(values) is dict else dict(values)
        keys, each = list(puts_of), list(puts_of.values())
        is_common = results is None and (idle, cost, write_policy) == (None, None, None)
        if is_common and self._put_all(keys, each, failures.gather_at, expire, tag=tag):
            failures.done()
            return
        for extended, puts in by_kind(zip(keys, each), self._forms).items():
            options = put_options(expire, idle, cost, extended, None, write_policy, tag)
            for part in in_parts(puts):
                names = array([name for _, name, _ in part])
                data = array([data for _, _, data in part])
                call = lib.hutch_put_many
                with _Batch(call, self._pointer, *names, *data, len(part), options) as batch:
                    failures.gather(batch, [key for key, _, _ in part])
                    if results is None:
                        continue
                    from ._records import PutResult

                    for index, (key, _, _) in enumerate(part):
                        result = _structs.PutResult()
                        check(lib.hutch_batch_put_result(batch, index, byref(result)))
                        results[key] = PutResult._of(result)
        failures.done()
