"""Python objects in a cache's memory: references, neither copied nor encoded.

The library has an odd number for each; one callback serves all. No object that C calls can
therefore be collected, and an object is dropped when the library releases it. An even number
is an object of the accelerator, which answers for it.
"""

from __future__ import annotations

import itertools
from ctypes import byref
from typing import Any

from . import _accelerator, _structs
from ._callbacks import release_of
from ._codec import Key, key_to_bytes
from ._errors import Status, check
from ._library import lib
from ._options import put_options
from ._units import Seconds

_objects: dict[int, Any] = {}
_numbers = itertools.count(1, 2)


_release_callback = release_of(_objects, "an object")


class Objects:
    """The calls that work on objects."""

    _pointer: Any

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
        """
        name = key_to_bytes(key)
        options = put_options(expire, idle, cost, None, tag=tag)
        number = next(_numbers)
        _objects[number] = value
        # A call that fails also releases the object.
        call = lib.hutch_put_object
        check(call(self._pointer, name, len(name), number, _release_callback, options))

    def get_object(self, key: Key, default: Any = None) -> Any:
        """The object under the key, itself; or default."""
        name = key_to_bytes(key)
        held = _structs.ObjectPointer()
        try:
            status = check(lib.hutch_get_object(self._pointer, name, len(name), byref(held)))
            if status == Status.NOT_FOUND:
                return default
            number = lib.hutch_object_pointer(held)
            if number % 2 or _accelerator.module is None:
                return _objects.get(number, default)
            found: tuple[Any, ...] = _accelerator.module.held(number)
            return found[0] if found else default
        finally:
            lib.hutch_object_release(held)

    def delete_object(self, key: Key) -> bool:
        """Remove the entry of an object. False: there is none."""
        name = key_to_bytes(key)
        return check(lib.hutch_remove_object(self._pointer, name, len(name))) != Status.NOT_FOUND
