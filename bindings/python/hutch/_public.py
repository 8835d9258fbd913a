"""The names by which Python's messages call the methods of public classes."""

from __future__ import annotations

from types import FunctionType


def name_methods(owner: str, *classes: type) -> None:
    """Name the methods of the classes of this package among these as those of a public class.

    A method of an internal base is then that of the class that a program knows, as in
    "Cache.set() got an unexpected keyword argument 'time'".
    """
    package = __name__.partition(".")[0] + "."
    for base in classes:
        if not base.__module__.startswith(package):
            continue
        for name, method in vars(base).items():
            function = getattr(method, "__func__", method)
            if name[0] == "_" and name[:2] != "__":
                continue
            # A decorator may have put another function around it.
            while isinstance(function, FunctionType) and function.__name__ == name:
                function.__qualname__ = f"{owner}.{name}"
                function = getattr(function, "__wrapped__", None)
