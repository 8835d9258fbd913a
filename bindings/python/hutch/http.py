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

import ctypes
import os
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _http_library as h
from ._handles import Handle
from ._http_body import End, Stream
from ._http_errors import (
    BadResponse,
    Closed,
    ConnectionError,
    HTTPError,
    InvalidRequest,
    PinError,
    StreamConsumed,
    Timeout,
    TLSError,
    TooManyRedirects,
    check,
)
from ._http_reachability import Reachability
from ._http_request import (
    CacheMode,
    DownloadOptions,
    Params,
    Path,
    RequestOptions,
    download_of,
    header_lines,
    mode_number,
    nanoseconds,
    request_of,
    text,
)
from ._http_response import Headers, Response, Task, respond
from ._process import hint
from ._units import named, uint32, uint64

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ._cache import Cache
    from ._http_async import AsyncSession as AsyncSession
    from ._units import Seconds
else:
    hint(globals(), "Cache", "Seconds", "Self", "Unpack")

__all__ = [
    "AsyncSession", "BadResponse", "CacheMode", "Closed", "ConnectionError", "DownloadOptions",
    "HTTPError", "Headers", "InvalidRequest", "PinError", "Reachability", "RequestOptions",
    "Response", "Session", "StreamConsumed", "TLSError", "Timeout", "TooManyRedirects",
]

_CANCEL = 1
_COOKIES, _INSECURE_REDIRECTS = 1, 2
_ANY_CHAIN, _ANY_NAME = 1, 2
_SHARED, _CDN = 1, 4


def _end(pointer: Any) -> None:
    h.lib.hutch_http_session_end(pointer, _CANCEL)
    h.lib.hutch_http_session_wait(pointer, 10 * 10**9)
    h.lib.hutch_http_session_release(pointer)


class Session(Handle):
    """Connections, cookies and trust that many requests share.

    Args:
        headers: for every request that does not have them itself.
        timeout: seconds without a byte in either direction; math.inf: no limit.
        connect_timeout, total_timeout: seconds for a connection, and for a whole request.
        verify: True, False (the chain and the name are not validated), or a file of authorities.
        cert: a file with the client's certificate, or that and a file with its key.
        pins: SHA-256 digests of public keys, of which the server's must be one.
        proxy: the URL of a proxy. The environment is not looked at.
        cookies: keep and send cookies; cookie_file: where they are kept.
        http_version: 1 for HTTP/1.1 only, 2 for HTTP/2 without negotiation.
        max_body: bytes of a body in memory.
        cache: where responses are stored, as RFC 9111 says. The session refers to it; it stays
            open when the session ends.
        cache_mode: how requests use it that do not say so themselves, see RequestOptions.
        shared_cache: the cache has more than one user, so nothing private is stored.
        cdn_cache: it is shared, and works for the origin servers: CDN-Cache-Control decides about
            a response that has it, in place of Cache-Control and Expires.
        cache_lease: seconds for which a process that was killed while it made a request keeps
            others waiting that share the directory of the cache; 5 by default.
    """

    def __init__(
        self, *, headers: Params | None = None, timeout: Seconds | None = None,
        connect_timeout: Seconds | None = None, total_timeout: Seconds | None = None,
        verify: bool | Path = True, cert: Path | tuple[Path, Path] | None = None,
        pins: Sequence[bytes] = (), proxy: str | None = None, cookies: bool = False,
        cookie_file: Path | None = None, http_version: int = 0,
        max_connections_per_host: int = 0, max_redirects: int = 0, max_body: int = 0,
        allow_insecure_redirects: bool = False, cache: Cache | None = None,
        cache_mode: CacheMode | None = None, shared_cache: bool = False,
        cdn_cache: bool = False, cache_lease: Seconds | None = None,
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
            version=named("http_version", uint32, http_version),
            connections_per_host=named(
                "max_connections_per_host", uint32, max_connections_per_host),
            redirects=named("max_redirects", uint32, max_redirects),
            connect_timeout=nanoseconds("connect_timeout", connect_timeout),
            idle_timeout=nanoseconds("timeout", timeout),
            total_timeout=nanoseconds("total_timeout", total_timeout),
            max_body=named("max_body", uint64, max_body),
            proxy=None if proxy is None else text(proxy),
            cookie_file=None if cookie_file is None else os.fsencode(cookie_file),
            headers=made, header_count=len(made) if made else 0,
            security=ctypes.pointer(security), cache=None if cache is None else cache._pointer,
            cache_mode=mode_number(cache_mode),
            cache_flags=(_SHARED if shared_cache else 0) | (_CDN if cdn_cache else 0),
            cache_lease=nanoseconds("cache_lease", cache_lease))
        self._cache = cache
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def request(self, method: str, url: str, **options: Unpack[RequestOptions]) -> Response:
        """Makes a request and returns its response. The options are as RequestOptions tells."""
        return self._done(*request_of(method, url, **options))

    def _done(self, request: h.Request, keep: list[Any], stream: bool) -> Response:
        incoming = Stream() if stream else End()
        task = Task(self._usable(), request, keep, incoming)
        if isinstance(incoming, Stream):
            incoming.await_response()
        else:
            incoming.await_end()
        return respond(Response, task, stream)

    def get(self, url: str, **options: Unpack[RequestOptions]) -> Response:
        return self.request("GET", url, **options)

    def head(self, url: str, **options: Unpack[RequestOptions]) -> Response:
        return self.request("HEAD", url, **options)

    def options(self, url: str, **options: Unpack[RequestOptions]) -> Response:
        return self.request("OPTIONS", url, **options)

    def post(self, url: str, **options: Unpack[RequestOptions]) -> Response:
        return self.request("POST", url, **options)

    def put(self, url: str, **options: Unpack[RequestOptions]) -> Response:
        return self.request("PUT", url, **options)

    def patch(self, url: str, **options: Unpack[RequestOptions]) -> Response:
        return self.request("PATCH", url, **options)

    def delete(self, url: str, **options: Unpack[RequestOptions]) -> Response:
        return self.request("DELETE", url, **options)

    def stream(
        self, method: str, url: str, **options: Unpack[RequestOptions]
    ) -> Response:
        """request(stream=True), for a `with`."""
        options["stream"] = True
        return self.request(method, url, **options)

    def download(self, url: str, path: Path, **options: Unpack[DownloadOptions]) -> Response:
        """Stores a body in a file, which is replaced when the body is complete.

        A code from 400 is an HTTPError, and the file stays as it is. The options are as
        DownloadOptions tells.
        """
        task = Task(self._usable(), *download_of(url, path, **options), End())
        task.incoming.await_end()
        return respond(Response, task, False).raise_for_status()


def __getattr__(name: str) -> Any:
    # Imported when they are used: asyncio takes long, and what others wrote may be missing.
    if name == "AsyncSession":
        from ._http_async import AsyncSession

        return AsyncSession
    raise AttributeError(f"module 'hutch.http' has no attribute {name!r}")
