"""The base of objects that own a handle of the library."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Callable


class Handle:
    """An object that releases a handle when it is collected.

    A copy of its attributes would be a second owner, which releases the handle once more.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled")


def release_with(owner: object, release: Callable[[Any], Any], pointer: Any) -> None:
    """Release the owner's handle when the owner is collected.

    A garbage collection does so before it calls __del__ of the objects that go with the owner and
    refer to it. If one of them uses the owner, it finds a null handle, which is an error.
    """
    weakref.finalize(owner, _end, release, pointer).atexit = False


def _end(
    release: Callable[[Any], Any],
    pointer: Any,
    cast: Callable[..., Any] = ctypes.cast,
    address_of: Callable[[Any], Any] = ctypes.c_void_p.from_buffer,
) -> None:
    handle = cast(pointer, type(pointer))
    address_of(pointer).value = None
    release(handle)
