"""Imports that are made late: by calls, and by programs that ask for the types of annotations.

The package imports most of its modules, and some of Python's own, when a call first needs them. If
a thread does so at a fork, the lock of the module is never released in the child, where that thread
is not: a call that needs the module there would wait without end. So a fork waits for such imports.

Types are imported for type checkers alone: at run time it would take longer than to open a cache,
and modules that need each other's types could not be imported. typing.get_type_hints evaluates an
annotation with the names of its module. A name that hint has made is a text, which get_type_hints
evaluates in turn: an expression that imports the type.
"""

from __future__ import annotations

import os
import sys

import _imp
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Hint(str):
    """The expression for a type. As a part of another type it becomes the type at once."""

    __slots__ = ()

    def __or__(self, other: Any) -> Any:
        return eval(self) | other

    def __ror__(self, other: Any) -> Any:
        return other | eval(self)

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, (int, slice)):  # typing looks at the first character of a text.
            return super().__getitem__(item)
        return eval(self)[item]


_TYPE = f"__import__('{__package__}._types', fromlist=['']).%s"


def hint(module: dict[str, Any], *names: str) -> None:
    """Give a module, by its globals, names of types that _types has."""
    for name in names:
        module[name] = Hint(_TYPE % name)


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
