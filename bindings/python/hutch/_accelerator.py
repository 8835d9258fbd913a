"""The accelerator, hutch._fast, if there is one: the common calls in C. Where it and libhutch are;
and paths as both take them.

The accelerator is looked for beside this package, where a wheel has it, then beside the library
that HUTCH_LIBRARY names, and in build/ of the checkout that has this package. The package works the
same without it, by ctypes alone: with another Python than CPython, with a free-threaded build, and
if the environment variable HUTCH_PURE is set.

libhutch may be, in the order in which the package looks:
1. the file that the environment variable HUTCH_LIBRARY names, and no other;
2. a libhutch.so, as a wheel carries it, or a libhutch.so.0 beside this package;
3. build/libhutch.so of the checkout that this package is part of;
4. what the system's loader knows as libhutch.so.0.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, TypeVar, Union

    Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
    T = TypeVar("T", bound=type)

_FILE = os.path.abspath(__file__)


def path_bytes(path: "Path") -> bytes:
    """The bytes of a path, or of a part of one. ValueError: they would end early in C."""
    raw = os.fsencode(path)
    if b"\0" in raw:
        raise ValueError("a path cannot have a NUL in it")
    return raw


def directory_bytes(path: "Path") -> bytes:
    """The bytes of a directory's path. TypeError: it is not a path."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(
            f"directory is a str, bytes, a path or None, not a {type(path).__name__}"
        )
    return path_bytes(os.path.expanduser(os.fspath(path)))


def build_of_checkout() -> "str | None":
    """The directory build of the checkout that this package is part of; None: there is none."""
    checkout = os.path.realpath(_FILE)
    for _ in range(4):
        checkout = os.path.dirname(checkout)
    if os.path.isfile(os.path.join(checkout, "include", "hutch.h")):
        return os.path.join(checkout, "build")
    return None


def candidates() -> "Iterator[str]":
    """The names that the loader is to try."""
    chosen = os.environ.get("HUTCH_LIBRARY")
    if chosen:
        yield chosen
        return
    for name in ("libhutch.so", "libhutch.so.0"):
        path = os.path.join(os.path.dirname(_FILE), name)
        if os.path.exists(path):
            yield path
    build = build_of_checkout()
    if build is not None and os.path.exists(os.path.join(build, "libhutch.so")):
        yield os.path.join(build, "libhutch.so")
    yield "libhutch.so.0"


def _built() -> "Any":
    """The extension beside the library that HUTCH_LIBRARY names, or in the checkout's build."""
    package = sys.modules[__package__ or "hutch"]
    places = [build_of_checkout()]
    chosen = os.environ.get("HUTCH_LIBRARY")
    if chosen:
        places.insert(0, os.path.dirname(os.path.realpath(chosen)))
    for place in places:
        if place is None or not os.path.isfile(os.path.join(place, "_fast.abi3.so")):
            continue
        # For this import alone the place belongs to the package: to make a module of a file
        # takes importlib, which takes longer than all else.
        package.__path__.append(place)
        try:
            from . import _fast

            return _fast
        finally:
            package.__path__.remove(place)
    return None


def _find() -> "Any":
    # A free-threaded build would find an extension for other builds, and crash in it.
    if sys.implementation.name != "cpython" or "t" in sys.abiflags:
        return None
    if os.environ.get("HUTCH_PURE", "0") not in ("", "0"):
        return None
    try:
        try:
            from . import _fast

            return _fast
        except ImportError:
            # Not beside this package; or there for an interpreter that it does not support.
            return _built()
    except ImportError:
        return None


def _load(module: "Any") -> "str | None":
    """The library, for the accelerator. None: there is none that fits, as ctypes will say."""
    for candidate in candidates():
        try:
            module.load(candidate)
        except ImportError:
            continue
        return candidate
    return None


module: "Any" = _find()
"""hutch._fast, or None."""

loaded: "str | None" = None if module is None else _load(module)
"""What the accelerator calls."""

if loaded is None:
    module = None

if TYPE_CHECKING or module is None:

    class Fast:
        """In place of the accelerator's class of caches."""

        __slots__ = ()

else:
    Fast = module.Fast

_gets: "list[Any]" = [] if module is None else [vars(Fast)["get"]]
"""The accelerator's get, of each class that has it for its own."""


def has_fast_get(cache: "Any") -> bool:
    """Whether the accelerator's get is the cache's: no subclass has one of its own."""
    found = next((vars(kind)["get"] for kind in type(cache).__mro__ if "get" in vars(kind)), None)
    return found in _gets


def adopt(cls: "T") -> "T":
    """Decorator of a class of caches: the accelerator's methods are its own."""
    if module is not None:
        module.adopt(cls)
        _gets.append(vars(cls)["get"])
    return cls
