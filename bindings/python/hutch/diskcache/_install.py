"""The name diskcache for this package, for programs that import python-diskcache."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_NAME = "diskcache"


class _Later(ModuleType):
    """diskcache.djangocache, which imports Django when it is asked for a name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(import_module(f"{__package__}.djangocache"), name)


def install(*, pickles: bool = False) -> None:
    """Make ``import diskcache`` mean hutch.diskcache in this process, its submodules included.

    For packages that use python-diskcache: call it before they are imported. pickles: they get
    hutch.diskcache.pickled, whose default Disk stores any object. RuntimeError: python-diskcache,
    or the other one of the two, has been imported already.
    """
    package = import_module(f"{__package__}.pickled" if pickles else str(__package__))
    present = sys.modules.get(_NAME)
    if present is not None and present is not package:
        raise RuntimeError(
            "diskcache has been imported before this call, and its importers keep what they got"
        )
    sys.modules[_NAME] = package
    for name in ("core", "fanout", "persistent", "recipes"):
        sys.modules[f"{_NAME}.{name}"] = getattr(package, name)
    later = _Later(f"{_NAME}.djangocache")
    later.__spec__ = ModuleSpec(later.__name__, None)
    sys.modules[later.__name__] = later
    vars(package).setdefault("djangocache", later)  # An import that finds it there sets no name.
