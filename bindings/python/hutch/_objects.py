"""Python objects in a cache's memory: references, neither copied nor encoded.

The library has an odd number for each; one callback serves all. No object that C calls can
therefore be collected, and an object is dropped when the library releases it. An even number
is an object of the accelerator, which answers for it.
"""

from __future__ import annotations

import itertools
from ctypes import byref
from typing import TYPE_CHECKING, Any

from . import _accelerator, _structs
from ._callbacks import refuse_in_subinterpreter, release_of
from ._codec import Key, key_to_bytes
from ._errors import CorruptError, Status, check
from ._library import lib
from ._options import put_options
from ._process import hint, late
from ._units import Seconds

if TYPE_CHECKING:
    from ._object_codec import CachedObjects
else:
    hint(globals(), "CachedObjects")

_objects: dict[int, Any] = {}
_numbers = itertools.count(1, 2)


release_callback = release_of(_objects, "an object")


def new_number(value: Any) -> int:
    """The number of an object, for the library, which releases it."""
    refuse_in_subinterpreter()
    number = next(_numbers)
    _objects[number] = value
    return number


def object_of(number: int, default: Any) -> Any:
    """The object that has the number, here or in the accelerator."""
    if number % 2 or _accelerator.module is None:
        return _objects.get(number, default)
    found: tuple[Any, ...] = _accelerator.module.held(number)
    return found[0] if found else default


class Objects:
    """The calls that work on objects."""

    _pointer: Any
    _forms: Any
    _has_object_codec: bool

    @property
    def objects(self) -> CachedObjects:
        """Python objects in both tiers, of a cache that was opened with objects=True.

        UnsupportedError, by each call: it was opened without.
        """
        with late:
            from ._object_codec import CachedObjects

        return CachedObjects(self)

    def put_object(
        self,
        key: Key,
        value: Any,
        expire: Seconds | None = None,
        *,
        idle: Seconds | None = None,
        cost: int | None = None,
        tag: Key | None = None,
    ) -> None:
        """Keep a reference to any Python object, in memory only, in place of the older one.

        Objects have keys of their own: put_object and set of one key do not see
        each other. Objects count in len and cost, obey the limits of the memory
        tier, and clear and remove_tagged remove them; iteration skips them. After its
        entry is removed, a thread of the library soon drops the object.
        TooLargeError: cost is above the tier's max_entry.
        In a cache with objects=True the call is objects.set.
        """
        self._put_object(key, value, expire, idle, cost, tag, None)

    def _put_object(
        self,
        key: Key,
        value: Any,
        expire: Seconds | None,
        idle: Seconds | None,
        cost: int | None,
        tag: Key | None,
        write_policy: str | None,
    ) -> None:
        name = key_to_bytes(key)
        call = lib.hutch_put_object
        if not self._has_object_codec:
            options = put_options(expire, idle, cost, None, tag=tag)
            number = new_number(value)
            # A call that fails also releases the object.
            check(call(self._pointer, name, len(name), number, release_callback, options))
            return
        from ._object_codec import Encoded

        data, extended = self._forms.encode(value)
        options = put_options(
            expire, idle, cost, extended, tag=tag, write_policy=write_policy
        )
        number = new_number(value)
        with Encoded(number, data):
            check(call(self._pointer, name, len(name), number, release_callback, options))

    def get_object(self, key: Key, default: Any = None) -> Any:
        """The object under the key, itself; or default."""
        name = key_to_bytes(key)
        held = _structs.ObjectPointer()
        if self._has_object_codec:
            from ._object_codec import forget_raised

            forget_raised()
        try:
            status = check(lib.hutch_get_object(self._pointer, name, len(name), byref(held)))
            if status == Status.NOT_FOUND:
                return default
            return object_of(lib.hutch_object_pointer(held), default)
        except CorruptError as error:
            from ._object_codec import reason_of

            reason = reason_of()
            if isinstance(reason, Exception) and not isinstance(reason, RecursionError):
                raise error from reason
            # The bytes are good: Ctrl-C has come, or the stack was at its limit.
            raise reason or error
        finally:
            if held:
                lib.hutch_object_release(held)

    def delete_object(self, key: Key) -> bool:
        """Remove the entry of an object. False: there is none."""
        name = key_to_bytes(key)
        return check(lib.hutch_remove_object(self._pointer, name, len(name))) != Status.NOT_FOUND
