"""The base of objects that own a handle of the library."""

from __future__ import annotations

from typing import Any


class Handle:
    """An object that releases a handle when it is collected.

    A copy of its attributes would be a second owner, which releases the handle once more.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled")
