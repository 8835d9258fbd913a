"""Entries, the base of Cache and of TierView: every call that works on entries.

With the accelerator the class begins with its calls alone. All others are in SlowEntries and in
AsyncEntries, which need ctypes and most of the package: to import these takes ten times as long
as to open a cache. They become bases of Entries when the first of their calls is looked up, when
the accelerator meets a call of no common kind, or when there is a subclass.
"""

from __future__ import annotations

from _collections_abc import MutableMapping

from . import _accelerator
from . import _imports as _imports  # Before the lock of this module: a fork takes that one first.

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._async import AsyncEntries
    from ._entries import SlowEntries

    class Entries(SlowEntries, AsyncEntries):
        pass

elif _accelerator.module is None:
    from ._async import AsyncEntries
    from ._entries import SlowEntries
    from ._public import name_methods

    class Entries(SlowEntries, AsyncEntries):
        __doc__ = SlowEntries.__doc__

    name_methods("Cache", *Entries.__mro__)
    MutableMapping.register(Entries)

else:
    from os import register_at_fork
    from sys import modules

    from _thread import RLock

    # Held while the bases are imported. A fork waits for it: in the child the thread that imports
    # would not be there, nor would it ever release the locks that imports have.
    _completing = RLock()
    register_at_fork(
        before=_completing.acquire,
        after_in_parent=_completing.release,
        after_in_child=_completing.release,
    )
    _OWN = f"{__package__}._cache", f"{__package__}._tier_view"

    class _Later:
        """Stands for a call of the bases that are not there yet."""

        __slots__ = ("_name",)

        def __init__(self, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: Any) -> Any:
            complete()
            return getattr(owner if instance is None else instance, self._name)

    class Entries(_accelerator.module.Fast):
        def __init_subclass__(cls, **more: Any) -> None:
            if cls.__module__ not in _OWN:
                complete()
            super().__init_subclass__(**more)

    _LATER = """
__aiter__ __iter__ __reversed__ _as_stored _ask _counter _items _put_each _read _walk
_put_object _steps _write aadd acheck aclear acompare_and_swap acontains acopy_to acost acount add adecr adelete
adelete_many aeach aentry aexpire aflush aget aget_many aincr ainfo ainfos aitems akeys aload
anotify apath apeekitem apin apop apopitem aput aput_file aput_many aread aremove_prefix
aremove_tagged areplace aset aset_many asetdefault astats atouch atrim aupdate avalue_bytes
avalues avolume awriter check clear compare_and_swap copy_to cost count delete delete_many
delete_object each entry expire flush get_many hold_files info infos items keys load memoize
notify objects path peekitem pop popitem put put_file put_many read remove_prefix remove_tagged replace
set_many setdefault stats touch trim update value_bytes values volume writer
""".split()
    for _name in _LATER:
        setattr(Entries, _name, _Later(_name))

    def complete() -> None:
        """Give Entries its bases, and the accelerator its functions for calls of other kinds."""
        with _completing:
            if len(Entries.__bases__) == 1:
                from ._async import AsyncEntries
                from ._entries import SlowEntries
                from ._errors import check
                from ._public import name_methods

                module = _accelerator.module
                name_methods("Cache", *SlowEntries.__mro__, *AsyncEntries.__mro__)
                Entries.__doc__ = SlowEntries.__doc__
                module.set_up(SlowEntries, check)
                Entries.__bases__ = (module.Fast, SlowEntries, AsyncEntries)
            # The bases come first: another thread finds a call in one of the two places. Ctrl-C may
            # have ended an earlier call at any of these steps.
            for name in (*_LATER, "__init_subclass__"):
                if name in Entries.__dict__:
                    delattr(Entries, name)

    MutableMapping.register(Entries)
    # A program that has imported _logs has called hutch.log.
    _accelerator.module.begin(complete, f"{__package__}._logs" not in modules)
