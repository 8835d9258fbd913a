"""The arguments of a request, as libhutch_http takes them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Union

from . import _http_library as h
from ._http_errors import InvalidRequest

Path = Union[str, "os.PathLike[str]"]
Params = Union[Mapping[str, Any], Sequence["tuple[str, Any]"]]
File = Union[bytes, "os.PathLike[str]", "tuple[str, Union[bytes, os.PathLike[str]]]"]


def nanoseconds(seconds: float | None) -> int:
    """Rounded up; None: 0, the default."""
    if seconds is None:
        return 0
    if seconds <= 0:
        raise ValueError("a timeout is not positive")
    return max(1, round(seconds * 1e9))


def text(given: Any) -> bytes:
    """UTF-8; no NUL, which would cut it short."""
    made = given if isinstance(given, bytes) else str(given).encode()
    if b"\0" in made:
        raise InvalidRequest("a text has a NUL", "HUTCH_INVALID_ARGUMENT")
    return made


def pairs(given: Any) -> list[tuple[Any, Any]]:
    """Pairs of a mapping or a sequence; a list as value is several pairs, and None is none."""
    made: list[tuple[Any, Any]] = []
    for name, value in given.items() if isinstance(given, Mapping) else given or ():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is not None:
                made.append((name, one))
    return made


def header_lines(given: Any) -> Any:
    """An array of hutch_http_header; None for no pairs."""
    made = pairs(given)
    return (h.Header * len(made))(
        *(h.Header(text(name), text(value)) for name, value in made)) if made else None


def parts_of(files: Mapping[str, File], fields: Any) -> Any:
    """An array of hutch_http_part."""
    made = [h.Part(name=text(name), data=(content := text(value)), size=len(content))
            for name, value in pairs(fields)]
    for name, file in files.items():
        title, content_of = file if isinstance(file, tuple) else (None, file)
        part = h.Part(name=text(name), media_type=b"application/octet-stream")
        if isinstance(content_of, bytes):
            part.data, part.size = content_of, len(content_of)
        else:
            part.path = os.fsencode(content_of)
            title = title or os.path.basename(os.fspath(content_of))
        part.file_name = text(title or name)
        made.append(part)
    return (h.Part * len(made))(*made)
