"""The arguments of a request, as libhutch_http takes them."""

from __future__ import annotations

import base64
import ctypes
import json as _json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Literal, Optional, TypedDict, Union

from . import _http_library as h
from . import _units
from ._callbacks import callback, report
from ._http_errors import InvalidRequest

Path = Union[str, os.PathLike[str]]
Params = Union[Mapping[str, Any], Sequence[tuple[str, Any]]]
File = Union[bytes, os.PathLike[str], tuple[str, Union[bytes, os.PathLike[str]]]]

_NO_REDIRECTS, _COMPRESSED, _RESUME = 1, 2, 4
_OF_CONNECTION = {b"connection", b"content-length", b"keep-alive", b"transfer-encoding"}

CacheMode = Literal["by_protocol", "reload", "else_load", "only", "validate", "none"]
CACHE_MODES = ("by_protocol", "reload", "else_load", "only", "validate", "none")
"""From 1, as HUTCH_HTTP_CACHE_BY_PROTOCOL and the others are numbered."""


class RequestOptions(TypedDict, total=False):
    """What a request may have."""

    params: Optional[Params]
    """Pairs of the query."""
    headers: Optional[Params]
    data: Union[bytes, bytearray, memoryview, str, Params, None]
    """The body: bytes, text, or the pairs of a form."""
    json: Any
    """The body, as json.dumps makes it."""
    files: Optional[Mapping[str, File]]
    """Files of a multipart body: bytes, a path, or a name with one of these. A path is read while
    it is sent. The pairs of data are parts of their own."""
    auth: Optional["tuple[str, str]"]
    """User and password, sent at once."""
    timeout: Optional[_units.Seconds]
    """Seconds without a byte in either direction; math.inf: no limit."""
    allow_redirects: bool
    stream: bool
    """Return when the headers are there; iter_bytes reads the body."""
    cache_mode: Optional[CacheMode]
    """How the session's cache is used: "by_protocol"; "reload": ask the server; "else_load": what
    is stored, of any age, else ask; "only": what is stored, else code 504; "validate": what is
    stored if the server confirms it, or if it is fresh and immutable; "none": neither read nor
    store. None: as the session says."""


class DownloadOptions(TypedDict, total=False):
    """What a download may have."""

    params: Optional[Params]
    headers: Optional[Params]
    auth: Optional["tuple[str, str]"]
    timeout: Optional[_units.Seconds]
    resume: bool
    """Continue what an earlier download of this URL to this file left; the default."""
    progress: Optional[Callable[[int, int], Any]]
    """Called with the bytes that came and the size, 0 if that is not known, on the session's
    thread."""


def nanoseconds(name: str, seconds: _units.Seconds | None) -> int:
    """Rounded up; None: 0, the default. Infinity is a time that does not come.

    The words of an error begin with the argument's name.
    """
    if seconds is None:
        return 0
    duration = _units.named(name, _units.nanoseconds, seconds)
    if not seconds:
        raise ValueError(f"{name}: a timeout is not positive")
    return duration


def text(given: Any) -> bytes:
    """UTF-8; no NUL, which would cut it short."""
    made = given if isinstance(given, bytes) else str(given).encode()
    if b"\0" in made:
        raise InvalidRequest("a text has a NUL", "HUTCH_INVALID_ARGUMENT")
    return made


def pairs(given: Any) -> list[tuple[Any, Any]]:
    """Pairs of a mapping or a sequence; a list as value is several pairs, and None is none.

    TypeError: they are no pairs.
    """
    made: list[tuple[Any, Any]] = []
    given = given or ()
    if isinstance(given, (str, bytes)):
        raise TypeError(f"a mapping or a sequence of pairs is expected, not {given!r}")
    try:
        named = [(name, value)
                 for name, value in (given.items() if isinstance(given, Mapping) else given)]
    except (TypeError, ValueError):
        kind = type(given).__name__
        raise TypeError(f"a mapping or a sequence of pairs is expected, not a {kind}") from None
    for name, value in named:
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is not None:
                made.append((name, one))
    return made


def header_lines(given: Any) -> Any:
    """An array of hutch_http_header; None for no pairs. TypeError: what has no text of its own."""
    return _header_lines(pairs(given))


def _header_lines(made: list[tuple[Any, Any]]) -> Any:
    for name, value in made:
        if not isinstance(name, (str, bytes)):
            raise TypeError(f"the name of a header is a str, not {name!r}")
        if not isinstance(value, (str, bytes, int, float)):
            kind = type(value).__name__
            raise TypeError(f"the header {name!r} is a str or a number, not a {kind}")
    return _lines(made)


def field_lines(given: Any) -> Any:
    """The same of the fields of a query or a form, which may be any objects."""
    return _lines(pairs(given))


def _lines(made: list[tuple[Any, Any]]) -> Any:
    return (h.Header * len(made))(
        *(h.Header(text(name), text(value)) for name, value in made)) if made else None


def mode_number(name: CacheMode | None) -> int:
    """A HUTCH_HTTP_CACHE_*; None: 0, the default."""
    if name is None:
        return 0
    if name not in CACHE_MODES:
        raise ValueError(f"cache_mode is none of {', '.join(CACHE_MODES)}")
    return CACHE_MODES.index(name) + 1


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


def request_of(
    method: str, url: str, *, params: Params | None = None, headers: Params | None = None,
    data: bytes | bytearray | memoryview | str | Params | None = None, json: Any = None,
    files: Mapping[str, File] | None = None, auth: tuple[str, str] | None = None,
    timeout: _units.Seconds | None = None, allow_redirects: bool = True, stream: bool = False,
    cache_mode: CacheMode | None = None,
) -> tuple[h.Request, list[Any], bool]:
    """A hutch_http_request, the objects that it points to, and whether the body is streamed."""
    if not isinstance(method, str):
        raise TypeError(f"the method is a str, not a {type(method).__name__}")
    given = pairs(headers)
    if files is None and json is not None:
        if not any(text(name).lower() == b"content-type" for name, _ in given):
            given.append(("Content-Type", "application/json"))
    request, keep = _prepared(method.upper(), url, params, given, auth, timeout)
    request.flags = _COMPRESSED | (0 if allow_redirects else _NO_REDIRECTS)
    request.cache_mode = mode_number(cache_mode)
    if files is not None:
        request.parts = parts = parts_of(files, data)
        request.part_count = len(parts)
        keep.append(parts)
    elif json is not None:
        _set_body(request, keep, _json.dumps(json, allow_nan=False).encode())
    elif isinstance(data, (bytes, bytearray, memoryview, str)):
        _set_body(request, keep, data.encode() if isinstance(data, str) else bytes(data))
    elif data is not None:
        request.form = form = field_lines(data)
        request.form_count = len(form) if form else 0
        keep.append(form)
    return request, keep, stream


def plain_request_of(
    method: str, url: str, headers: Sequence[tuple[Any, Any]], body: bytes | None,
    timeout: _units.Seconds | None, cache_mode: CacheMode | None,
) -> tuple[h.Request, list[Any]]:
    """A request that another client has prepared: that client follows redirects and decompresses.

    The library itself frames a body and chooses the connection, so it gets no header about these.
    """
    own = [(name, value) for name, value in pairs(headers)
           if text(name).lower() not in _OF_CONNECTION]
    request, keep = _prepared(method, url, None, own, None, timeout)
    request.flags = _NO_REDIRECTS
    request.cache_mode = mode_number(cache_mode)
    if body is not None:
        _set_body(request, keep, body)
    return request, keep


def download_of(
    url: str, path: Path, *, params: Params | None = None, headers: Params | None = None,
    auth: tuple[str, str] | None = None, timeout: _units.Seconds | None = None, resume: bool = True,
    progress: Callable[[int, int], Any] | None = None,
) -> tuple[h.Request, list[Any]]:
    """A hutch_http_request, and the objects that it points to."""
    request, keep = _prepared("GET", url, params, pairs(headers), auth, timeout)
    request.download = os.fsencode(path)
    request.flags = _RESUME if resume else 0
    if progress is not None:
        request.on_progress = told = _progress(progress)
        keep.append(told)
    return request, keep


def _progress(function: Callable[[int, int], Any]) -> Any:
    @callback
    def report_to(context: int, task: Any, progress: Any) -> None:
        try:
            function(progress.contents.received, progress.contents.expected)
        except BaseException as error:
            report(error, "the progress of a download", function)

    return h.ProgressFunction(report_to)


# What the words of a TypeError name, from Python 3.10 on: the options of the public calls are
# passed to these.
request_of.__qualname__, download_of.__qualname__ = "Session.request", "Session.download"


def _credentials(auth: Any) -> list[bytes]:
    if not isinstance(auth, (tuple, list)) or len(auth) != 2:
        raise TypeError("auth is a pair of a user and a password")
    if not all(isinstance(word, (str, bytes)) for word in auth):
        raise TypeError("a user and a password are texts")
    return [text(word) for word in auth]


def _prepared(
    method: str, url: str, params: Params | None, headers: list[tuple[Any, Any]],
    auth: tuple[str, str] | None, timeout: _units.Seconds | None,
) -> tuple[h.Request, list[Any]]:
    if auth is not None:
        word = base64.b64encode(b":".join(_credentials(auth))).decode()
        headers.append(("Authorization", f"Basic {word}"))
    lines, query = _header_lines(headers), field_lines(params)
    request = h.Request(
        url=text(url), method=text(method), headers=lines,
        header_count=len(lines) if lines else 0, query=query,
        query_count=len(query) if query else 0, idle_timeout=nanoseconds("timeout", timeout))
    return request, [lines, query]


def _set_body(request: h.Request, keep: list[Any], body: bytes) -> None:
    # A pointer that is not NULL: a body of no bytes is a body.
    buffer = ctypes.create_string_buffer(body, len(body) + 1)
    request.body = ctypes.cast(buffer, ctypes.c_char_p)
    request.body_size = len(body)
    keep.append(buffer)
