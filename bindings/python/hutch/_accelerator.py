"""The accelerator, hutch._fast, if there is one: the common calls in C.

It is looked for beside this package, where a wheel has it, then beside the library that
HUTCH_LIBRARY names, and in build/ of the checkout that has this package. The package
works the same without it, by ctypes alone: with another Python than CPython, with a
free-threaded build, and if the environment variable HUTCH_PURE is set.
"""

from __future__ import annotations

import os
import sys

from ._places import build_of_checkout, candidates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T", bound=type)


def _built() -> Any:
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


def _find() -> Any:
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


def _load(module: Any) -> str | None:
    """The library, for the accelerator. None: there is none that fits, as ctypes will say."""
    for candidate in candidates():
        try:
            module.load(candidate)
        except ImportError:
            continue
        return candidate
    return None


module: Any = _find()
"""hutch._fast, or None."""

loaded: str | None = None if module is None else _load(module)
"""What the accelerator calls."""

if loaded is None:
    module = None

_gets: list[Any] = [] if module is None else [vars(module.Fast)["get"]]
"""The accelerator's get, of each class that has it for its own."""


def has_fast_get(cache: Any) -> bool:
    """Whether the accelerator's get is the cache's: no subclass has one of its own."""
    found = next((vars(kind)["get"] for kind in type(cache).__mro__ if "get" in vars(kind)), None)
    return found in _gets


def adopt(cls: T) -> T:
    """Decorator of a class of caches: the accelerator's methods are its own."""
    if module is not None:
        module.adopt(cls)
        _gets.append(vars(cls)["get"])
    return cls
