"""The accelerator, hutch._fast, if there is one: the common calls in C.

It is looked for beside this package, where a wheel has it, then beside the library that
HUTCH_LIBRARY names, and in build/ of the checkout that has this package. The package
works the same without it, by ctypes alone: with another Python than CPython, with a
free-threaded build, and if the environment variable HUTCH_PURE is set.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, TypeVar

from ._library import build_of_checkout, lib

T = TypeVar("T", bound=type)

_NAME = f"{__package__}._fast"


def _built() -> Any:
    places = [build_of_checkout()]
    chosen = os.environ.get("HUTCH_LIBRARY")
    if chosen:
        places.insert(0, os.path.dirname(os.path.realpath(chosen)))
    for place in places:
        file = os.path.join(place or "", "_fast.abi3.so")
        if place is not None and os.path.isfile(file):
            import importlib.util
            from importlib.machinery import ExtensionFileLoader

            spec = importlib.util.spec_from_loader(_NAME, ExtensionFileLoader(_NAME, file))
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    return None


def _find() -> Any:
    # A free-threaded build would find an extension for other builds, and crash in it.
    if sys.implementation.name != "cpython" or "t" in sys.abiflags:
        return None
    if os.environ.get("HUTCH_PURE", "0") not in ("", "0"):
        return None
    try:
        module = importlib.import_module(_NAME)
    except ModuleNotFoundError:
        module = _built()
    except ImportError:
        return None  # An interpreter that it does not support.
    if module is not None:
        module.load(lib._name)
    return module


module: Any = _find()
"""hutch._fast, or None."""


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
