"""The bases of objects that own what the library has made."""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, Any, Callable

from . import _process
from ._callbacks import finalizer

if TYPE_CHECKING:
    _Reference = weakref.ref[Any]
else:
    _Reference = weakref.ref


class Handle:
    """An object that owns what it releases: a handle, a hold, a listener.

    A copy of its attributes would be a second owner, which releases it once more.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled")


def release_with(owner: object, release: Callable[[Any], Any], pointer: Any) -> None:
    """Release the owner's handle when the owner is collected.

    A garbage collection does so before it calls __del__ of the objects that go with the owner and
    refer to it. If one of them uses the owner, it finds a null handle, which is an error.
    """
    last = _Last(owner, _end)
    last.release, last.pointer = release, pointer
    _lasts[id(last)] = last


class _Last(_Reference):
    """A reference to an owner, and what is released after it.

    weakref.finalize has no place for the guard of a finalizer.
    """

    __slots__ = ("pointer", "release")

    release: Callable[[Any], Any]
    pointer: Any


# Those whose owner is there.
_lasts: dict[int, _Last] = {}


@finalizer
def _end(
    last: _Last,
    lasts: dict[int, _Last] = _lasts,
    process: Any = _process,
    cast: Callable[..., Any] = ctypes.cast,
    address_of: Callable[[Any], Any] = ctypes.c_void_p.from_buffer,
) -> None:
    try:
        id(last)  # Here, or before, an interrupt is raised that has come.
    finally:
        lasts.pop(id(last), None)
        if not process.has_ended():
            handle = cast(last.pointer, type(last.pointer))
            address_of(last.pointer).value = None
            last.release(handle)


class _Ending:
    """The end of an Owner. Without a release function it releases nothing."""

    __slots__ = ("_address", "_kind", "_release")

    _address: int
    _kind: Any
    _release: Callable[[Any], Any]

    @finalizer
    def __del__(self, cast: Callable[..., Any] = ctypes.cast) -> None:
        try:
            id(self)  # Here, or before, an interrupt is raised that has come.
        finally:
            release = getattr(self, "_release", None)
            if release is not None:
                release(cast(self._address, self._kind))


class Owner:
    """The handle at an address, which is released with this.

    A garbage collection calls every __del__ of a cycle, in any order, before it clears the cycle's
    objects, and each may still use the handle. So __del__ of this one releases nothing. It makes an
    object that is no part of the cycle, and ends when this one is cleared. The address is a number,
    since a pointer of ctypes is an object that the collection may clear first.
    """

    __slots__ = ("_address", "_ending", "_kind", "_release")

    def __init__(self, pointer: Any, release: Callable[[Any], Any]) -> None:
        self._release = release
        self._kind = type(pointer)
        self._address: int = ctypes.cast(pointer, ctypes.c_void_p).value or 0

    @property
    def pointer(self) -> Any:
        return ctypes.cast(self._address, self._kind)

    @finalizer
    def __del__(self, make: Callable[..., _Ending] = _Ending) -> None:
        try:
            self._ending = make()
        except BaseException:
            # An interrupt, which ends the object that has just been made.
            self._ending = make()
            raise
        finally:
            # No call is made here, so no interrupt is raised: the handle is released once.
            ending = self._ending
            try:
                ending._kind, ending._address = self._kind, self._address
                ending._release = self._release
            except AttributeError:
                pass  # An interrupt has ended __init__.
