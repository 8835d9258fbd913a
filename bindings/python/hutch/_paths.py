"""Paths as the library has them: bytes without a NUL."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

    Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def path_bytes(path: Path) -> bytes:
    """The bytes of a path, or of a part of one. ValueError: they would end early in C."""
    raw = os.fsencode(path)
    if b"\0" in raw:
        raise ValueError("a path cannot have a NUL in it")
    return raw


def directory_bytes(path: Path) -> bytes:
    """The bytes of a directory's path. TypeError: it is not a path."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(
            f"directory is a str, bytes, a path or None, not a {type(path).__name__}"
        )
    return path_bytes(os.path.expanduser(os.fspath(path)))
