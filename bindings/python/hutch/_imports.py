"""A fork waits for imports that calls of the package make.

The package imports most of its modules, and some of Python's own, when a call first needs them. If
a thread does so at a fork, the lock of the module is never released in the child, where that thread
is not: a call that needs the module there would wait without end.
"""

from __future__ import annotations

import os
import sys

import _imp
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# What imports lock, by module. There is no public name for it.
_locks: dict[str, Any] = getattr(sys.modules["_frozen_importlib"], "_module_locks", {})
# Modules of others may wait for the thread that forks, and those of Python never do.
_OWN = frozenset([__package__, *getattr(sys, "stdlib_module_names", ("asyncio", "inspect"))])


def _held() -> list[str]:
    """The modules that other threads import."""
    held = []
    for name, reference in list(_locks.items()):
        owner = getattr(reference(), "owner", None)
        if owner not in (None, get_ident()) and name.partition(".")[0] in _OWN:
            held.append(name)
    return held


def _before() -> None:
    # With this lock no thread begins an import. The interpreter takes it for a fork as well.
    _imp.acquire_lock()
    held = _held()
    while held:
        _imp.release_lock()
        for name in held:
            try:
                __import__(name)
            except ImportError:
                pass  # It is not there for the child either.
        _imp.acquire_lock()
        held = _held()


os.register_at_fork(
    before=_before, after_in_parent=_imp.release_lock, after_in_child=_imp.release_lock
)
