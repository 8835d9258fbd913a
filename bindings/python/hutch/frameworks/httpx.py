"""Transports of httpx: its clients make their requests through hutch.http.

    import httpx, hutch
    from hutch.frameworks.httpx import HutchTransport
    from hutch.http import Session

    with Session(cache=hutch.Cache("/var/tmp/pages")) as http:
        with httpx.Client(transport=HutchTransport(http)) as client:
            response = client.get("https://example.org/api")
            response.extensions["from_cache"]  # the cache had it

AsyncHutchTransport does the same for httpx.AsyncClient over a hutch.http.AsyncSession.

httpx prepares a request, follows redirects, keeps cookies and decompresses, as ever. The session of
hutch.http has the rest: connections, certificates, proxies, HTTP/2 and the cache of RFC 9111. So
`verify`, `cert` and `proxy` are arguments of the session. Of the timeouts of httpx, `read` counts,
as seconds without a byte in either direction.

The body of a request is read whole before it is sent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from .. import http as hutch_http
from .._http_async import AsyncResponse, AsyncSession
from .._http_errors import is_while_connecting
from .._http_request import CacheMode, plain_request_of
from .._http_response import Response, pairs_for_jar
from ._backing import needs

try:
    import httpx
except ImportError as error:
    raise needs("httpx", "httpx", "httpx") from error

__all__ = ["AsyncHutchTransport", "HutchTransport"]

# The first that fits. Those of a body that does not come whole are as httpx's own.
_FAILURES: list[tuple[type[Exception], type[httpx.TransportError]]] = [
    (hutch_http.TLSError, httpx.ConnectError),
    (hutch_http.Timeout, httpx.ReadTimeout),
    (hutch_http.InvalidRequest, httpx.UnsupportedProtocol),
    (hutch_http.BadResponse, httpx.RemoteProtocolError),
]


def _failure(error: hutch_http.HTTPError, request: httpx.Request) -> httpx.TransportError:
    if is_while_connecting(error):
        return httpx.ConnectTimeout(str(error), request=request)
    for theirs, ours in _FAILURES:
        if isinstance(error, theirs):
            return ours(str(error), request=request)
    kind = httpx.ReadError if error.name == "HUTCH_HTTP_LOST" else httpx.ConnectError
    return kind(str(error), request=request)


class _Body(httpx.SyncByteStream):
    def __init__(self, response: Response, request: httpx.Request) -> None:
        self._response = response
        self._request = request

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._response.iter_bytes()
        except hutch_http.HTTPError as error:
            raise _failure(error, self._request) from error

    def close(self) -> None:
        self._response.close()


class _AsyncBody(httpx.AsyncByteStream):
    def __init__(self, response: AsyncResponse, request: httpx.Request) -> None:
        self._response = response
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._response.aiter_bytes():
                yield piece
        except hutch_http.HTTPError as error:
            raise _failure(error, self._request) from error

    async def aclose(self) -> None:
        self._response.close()


def _prepared(
    request: httpx.Request, body: bytes, cache_mode: CacheMode | None
) -> tuple[Any, list[Any]]:
    # httpx writes the host of the URL as a header, which the library does by itself.
    own = request.url.netloc.lower()
    headers = [(name, value) for name, value in request.headers.raw
               if not (name.lower() == b"host" and value.lower() == own)]
    has_body = bool(body) or "content-length" in request.headers
    timeout = request.extensions.get("timeout", {}).get("read")
    return plain_request_of(request.method, str(request.url), headers,
                            body if has_body else None, timeout, cache_mode)


def _response(
    request: httpx.Request, response: Response, body: _Body | _AsyncBody
) -> httpx.Response:
    # httpx has one set of headers, from which it takes cookies too.
    pairs = pairs_for_jar(response, request.headers.get("cookie", ""))
    return httpx.Response(
        response.status_code,
        headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs],
        stream=body,
        extensions={"http_version": response.http_version.encode(),
                    "from_cache": response.from_cache})


class HutchTransport(httpx.BaseTransport):
    """Makes the requests of an httpx.Client through a session of hutch.http.

    Args:
        session: a hutch.http.Session. It stays open when the client is closed.
        cache_mode: how its cache is used, see hutch.http.RequestOptions.
    """

    def __init__(
        self, session: hutch_http.Session, *, cache_mode: CacheMode | None = None
    ) -> None:
        self._session = session
        self._cache_mode: CacheMode | None = cache_mode

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            response = self._session._done(
                *_prepared(request, request.read(), self._cache_mode), True)
        except hutch_http.HTTPError as error:
            raise _failure(error, request) from error
        return _response(request, response, _Body(response, request))


class AsyncHutchTransport(httpx.AsyncBaseTransport):
    """Makes the requests of an httpx.AsyncClient through a hutch.http.AsyncSession.

    The arguments are those of HutchTransport.
    """

    def __init__(self, session: AsyncSession, *, cache_mode: CacheMode | None = None) -> None:
        self._session = session
        self._cache_mode: CacheMode | None = cache_mode

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            response = await self._session._done(
                *_prepared(request, await request.aread(), self._cache_mode), True)
        except hutch_http.HTTPError as error:
            raise _failure(error, request) from error
        return _response(request, response, _AsyncBody(response, request))
