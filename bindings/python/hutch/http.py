"""HTTP requests over libhutch_http, with the names that users of requests and httpx know.

    from hutch.http import Session

    with Session(timeout=10) as session:
        response = session.get("https://example.org/api", params={"q": "hutch"})
        response.raise_for_status()
        print(response.json())
        session.download("https://example.org/large.iso", "large.iso")

A session has one thread, and may be used by any number of threads. Closing it ends what runs.
"""

from __future__ import annotations

import base64
import ctypes
import json as _json
import os
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Callable, Optional

from . import _http_library as h
from ._http_body import Incoming
from ._http_errors import (
    BadResponse,
    Closed,
    ConnectionError,
    HTTPError,
    InvalidRequest,
    PinError,
    Timeout,
    TLSError,
    TooManyRedirects,
    check,
)
from ._http_reachability import Reachability
from ._http_request import (
    File,
    Params,
    Path,
    header_lines,
    nanoseconds,
    pairs,
    parts_of,
    text,
)
from ._http_response import Headers, Response, Task

__all__ = [
    "BadResponse", "Closed", "ConnectionError", "HTTPError", "Headers", "InvalidRequest",
    "PinError", "Reachability", "Response", "Session", "TLSError", "Timeout", "TooManyRedirects",
]

_CANCEL = 1
_COOKIES, _INSECURE_REDIRECTS = 1, 2
_NO_REDIRECTS, _COMPRESSED, _RESUME = 1, 2, 4
_ANY_CHAIN, _ANY_NAME = 1, 2


def _end(pointer: Any) -> None:
    h.lib.hutch_http_session_end(pointer, _CANCEL)
    h.lib.hutch_http_session_wait(pointer, 10 * 10**9)
    h.lib.hutch_http_session_release(pointer)


class Session:
    """Connections, cookies and trust that many requests share.

    Args:
        headers: for every request that does not have them itself.
        timeout: seconds without a byte in either direction.
        connect_timeout, total_timeout: seconds for a connection, and for a whole request.
        verify: True, False (the chain and the name are not validated), or a file of authorities.
        cert: a file with the client's certificate, or that and a file with its key.
        pins: SHA-256 digests of public keys, of which the server's must be one.
        proxy: the URL of a proxy. The environment is not looked at.
        cookies: keep and send cookies; cookie_file: where they are kept.
        http_version: 1 for HTTP/1.1 only, 2 for HTTP/2 without negotiation.
        max_body: bytes of a body in memory.
    """

    def __init__(
        self, *, headers: Params | None = None, timeout: float | None = None,
        connect_timeout: float | None = None, total_timeout: float | None = None,
        verify: bool | Path = True, cert: Path | tuple[Path, Path] | None = None,
        pins: Sequence[bytes] = (), proxy: str | None = None, cookies: bool = False,
        cookie_file: Path | None = None, http_version: int = 0,
        max_connections_per_host: int = 0, max_redirects: int = 0, max_body: int = 0,
        allow_insecure_redirects: bool = False,
    ) -> None:
        security = h.Security()
        if verify is False:
            security.flags = _ANY_CHAIN | _ANY_NAME
        elif verify is not True:
            security.authorities = os.fsencode(verify)
        if isinstance(cert, tuple):
            security.identity, security.identity_key = map(os.fsencode, cert)
        elif cert is not None:
            security.identity = os.fsencode(cert)
        if any(len(pin) != 32 for pin in pins):
            raise ValueError("a pin is a SHA-256 digest: 32 bytes")
        keys = ctypes.create_string_buffer(b"".join(pins))
        security.public_keys = ctypes.cast(keys, ctypes.c_char_p)
        security.public_key_count = len(pins)
        made = header_lines(headers)
        configuration = h.Configuration(
            flags=(_COOKIES if cookies or cookie_file is not None else 0)
            | (_INSECURE_REDIRECTS if allow_insecure_redirects else 0),
            version=http_version, connections_per_host=max_connections_per_host,
            redirects=max_redirects, connect_timeout=nanoseconds(connect_timeout),
            idle_timeout=nanoseconds(timeout), total_timeout=nanoseconds(total_timeout),
            max_body=max_body, proxy=None if proxy is None else text(proxy),
            cookie_file=None if cookie_file is None else os.fsencode(cookie_file),
            headers=made, header_count=len(made) if made else 0,
            security=ctypes.pointer(security))
        self._pointer = h.SessionPointer()
        check(h.lib.hutch_http_session_create(configuration, self._pointer))
        self._finalizer = weakref.finalize(self, _end, self._pointer)

    def _usable(self) -> Any:
        if not self._finalizer.alive:
            raise Closed("the session has been closed", "HUTCH_CLOSED")
        return self._pointer

    def close(self) -> None:
        """Cancels what runs, and closes the connections."""
        self._finalizer()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def request(
        self, method: str, url: str, *, params: Params | None = None,
        headers: Params | None = None, data: bytes | str | Params | None = None,
        json: Any = None, files: Mapping[str, File] | None = None,
        auth: tuple[str, str] | None = None, timeout: float | None = None,
        allow_redirects: bool = True, stream: bool = False,
    ) -> Response:
        """Makes a request and returns its response.

        Args:
            params: pairs of the query.
            data: the body: bytes, text, or the pairs of a form.
            json: the body, as json.dumps makes it.
            files: files of a multipart body: bytes, a path, or a name with one of these. A path
                is read while it is sent. The pairs of data are parts of their own.
            auth: user and password, sent at once.
            stream: return when the headers are there; iter_bytes reads the body.
        """
        request, keep = self._prepare(method, url, params, headers, auth, timeout)
        request.flags = _COMPRESSED | (0 if allow_redirects else _NO_REDIRECTS)
        if files is not None:
            request.parts = parts = parts_of(files, data)
            request.part_count = len(parts)
            keep.append(parts)
        elif json is not None:
            self._set_body(request, keep, _json.dumps(json, allow_nan=False).encode(),
                           "application/json", headers)
        elif isinstance(data, (bytes, str)):
            self._set_body(request, keep, data if isinstance(data, bytes) else data.encode())
        elif data is not None:
            request.form = form = header_lines(data)
            request.form_count = len(form) if form else 0
            keep.append(form)
        incoming = Incoming()
        if stream:
            request.on_body = incoming.on_body
        task = Task(self._usable(), request, keep, incoming)
        if stream:
            incoming.await_response()
        else:
            incoming.await_end()
        return self._respond(task, stream)

    def _respond(self, task: Task, is_streamed: bool) -> Response:
        if task.incoming.has_response:
            response = Response(task, is_streamed)
            if not is_streamed:
                task.check(response)
            return response
        task.check(None)
        raise BadResponse("there is no response")

    def _prepare(
        self, method: str, url: str, params: Params | None, headers: Params | None,
        auth: tuple[str, str] | None, timeout: float | None,
    ) -> tuple[h.Request, list[Any]]:
        given = pairs(headers)
        if auth is not None:
            word = base64.b64encode(f"{auth[0]}:{auth[1]}".encode()).decode()
            given.append(("Authorization", f"Basic {word}"))
        lines, query = header_lines(given), header_lines(params)
        request = h.Request(
            url=text(url), method=text(method), headers=lines,
            header_count=len(lines) if lines else 0, query=query,
            query_count=len(query) if query else 0, idle_timeout=nanoseconds(timeout))
        return request, [lines, query]

    @staticmethod
    def _set_body(request: h.Request, keep: list[Any], body: bytes, media_type: str = "",
                  headers: Params | None = None) -> None:
        # A pointer that is not NULL: a body of no bytes is a body.
        buffer = ctypes.create_string_buffer(body, len(body) + 1)
        request.body = ctypes.cast(buffer, ctypes.c_char_p)
        request.body_size = len(body)
        given = pairs(headers)
        if media_type and not any(name.lower() == "content-type" for name, _ in given):
            present = [request.headers[index] for index in range(request.header_count)]
            lines = (h.Header * (len(present) + 1))(
                *present, h.Header(b"Content-Type", media_type.encode()))
            request.headers, request.header_count = lines, len(lines)
            keep.append(lines)
        keep.append(buffer)

    def get(self, url: str, **options: Any) -> Response:
        return self.request("GET", url, **options)

    def head(self, url: str, **options: Any) -> Response:
        return self.request("HEAD", url, **options)

    def options(self, url: str, **options: Any) -> Response:
        return self.request("OPTIONS", url, **options)

    def post(self, url: str, **options: Any) -> Response:
        return self.request("POST", url, **options)

    def put(self, url: str, **options: Any) -> Response:
        return self.request("PUT", url, **options)

    def patch(self, url: str, **options: Any) -> Response:
        return self.request("PATCH", url, **options)

    def delete(self, url: str, **options: Any) -> Response:
        return self.request("DELETE", url, **options)

    def stream(self, method: str, url: str, **options: Any) -> Response:
        """request(stream=True), for a `with`."""
        return self.request(method, url, stream=True, **options)

    def download(
        self, url: str, path: Path, *, params: Params | None = None,
        headers: Params | None = None, auth: tuple[str, str] | None = None,
        timeout: float | None = None, resume: bool = True,
        progress: Optional[Callable[[int, int], Any]] = None,
    ) -> Response:
        """Stores a body in a file, which is replaced when the body is complete.

        resume: continue what an earlier download of this URL to this file left. progress is
        called with the bytes that came and the size, 0 if that is not known. A code from 400 is
        an HTTPError, and the file stays as it is.
        """
        request, keep = self._prepare("GET", url, params, headers, auth, timeout)
        request.download = os.fsencode(path)
        request.flags = _RESUME if resume else 0
        if progress is not None:
            report = progress
            callback = h.ProgressFunction(
                lambda context, task, told: report(told[0].received, told[0].expected) and None)
            request.on_progress = callback
            keep.append(callback)
        task = Task(self._usable(), request, keep, Incoming())
        task.incoming.await_end()
        return self._respond(task, False).raise_for_status()
