"""An adapter of requests: its sessions make their requests through hutch.http.

    import hutch, requests
    from hutch.frameworks.requests import HutchAdapter
    from hutch.http import Session

    with Session(cache=hutch.Cache("/var/tmp/pages"), timeout=10) as http:
        session = requests.Session()
        session.mount("https://", HutchAdapter(http))
        session.mount("http://", HutchAdapter(http))
        response = session.get("https://example.org/api")
        response.from_cache  # the cache had it

requests prepares a request, follows redirects, keeps cookies and decompresses, as ever. The session
of hutch.http has the rest: connections, certificates, proxies, HTTP/2 and the cache of RFC 9111.
So `verify` as a file and `proxies` have no effect, and neither has what requests reads of them from
the environment. `verify=False` and `cert` are refused: they are arguments of the session.

The body of a request is read whole before it is sent.
"""

from __future__ import annotations

import http.client
import io
from collections.abc import Iterator, Mapping
from typing import Any

from .. import http as hutch_http
from .._http_errors import is_while_connecting
from .._http_request import CacheMode, plain_request_of
from .._http_response import Response, pairs_for_jar
from ._backing import needs

try:
    from requests import PreparedRequest, exceptions
    from requests import Response as RequestsResponse
    from requests.adapters import HTTPAdapter
    from urllib3 import HTTPHeaderDict, HTTPResponse
    from urllib3.exceptions import ProtocolError, ReadTimeoutError
except ImportError as error:
    raise needs("requests", "requests", "requests") from error

__all__ = ["HutchAdapter"]

# The first that fits.
_FAILURES: list[tuple[type[Exception], type[exceptions.RequestException]]] = [
    (hutch_http.TLSError, exceptions.SSLError),
    (hutch_http.Timeout, exceptions.ReadTimeout),
    (hutch_http.InvalidRequest, exceptions.InvalidURL),
    (hutch_http.HTTPError, exceptions.ConnectionError),
]


class _Body(io.RawIOBase):
    """The body of a response, as a file that is read once."""

    def __init__(self, response: Response) -> None:
        self._response = response
        self._pieces: Iterator[bytes] = response.iter_bytes()
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            try:
                self._rest = memoryview(next(self._pieces))
            except StopIteration:
                return 0
            except hutch_http.Timeout as error:
                raise ReadTimeoutError(None, None, str(error)) from error  # type: ignore[arg-type]
            except hutch_http.HTTPError as error:
                raise ProtocolError(f"the body is incomplete: {error}", error) from error
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def close(self) -> None:
        self._response.close()
        super().close()


class _Original:
    """What requests asks a response of http.client for: the headers, where it finds cookies."""

    def __init__(self, response: Response, sent: str | bytes) -> None:
        self.msg = http.client.HTTPMessage()
        for name, value in pairs_for_jar(response, sent):
            self.msg[name] = value

    def isclosed(self) -> bool:
        return True

    def close(self) -> None:
        pass


class HutchAdapter(HTTPAdapter):
    """Makes the requests of a requests.Session through a session of hutch.http.

    Args:
        session: a hutch.http.Session. It stays open when the adapter is closed.
        cache_mode: how its cache is used, see hutch.http.RequestOptions.

    A response has the attribute `from_cache`.
    """

    def __init__(
        self, session: hutch_http.Session, *, cache_mode: CacheMode | None = None
    ) -> None:
        super().__init__()
        self._session = session
        self._cache_mode: CacheMode | None = cache_mode

    def send(
        self, request: PreparedRequest, stream: bool = False, timeout: Any = None,
        verify: bool | str = True, cert: Any = None, proxies: Mapping[str, str] | None = None,
    ) -> RequestsResponse:
        """Sends a request. A timeout is seconds without a byte; of a pair, the second one."""
        if verify is False or cert is not None:
            raise ValueError("verify=False and cert are arguments of hutch.http.Session")
        if not request.method or not request.url:
            raise exceptions.MissingSchema("the request has no method or no URL", request=request)
        try:
            response = self._session._done(
                *plain_request_of(request.method, request.url, list(request.headers.items()),
                                  _whole(request.body), _seconds(timeout), self._cache_mode),
                stream)
        except hutch_http.HTTPError as error:
            kind = (exceptions.ConnectTimeout if is_while_connecting(error) else
                    next(ours for theirs, ours in _FAILURES if isinstance(error, theirs)))
            raise kind(error, request=request) from error
        made = self.build_response(request, _raw(request, response, stream))
        made.from_cache = response.from_cache  # type: ignore[attr-defined]
        return made

    def close(self) -> None:
        """The session of hutch.http stays open."""


def _whole(body: Any) -> bytes | None:
    """The bytes of a body: text, bytes, a file, or what an iteration yields."""
    if body is None or isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, (bytearray, memoryview)):
        return bytes(body)  # An iteration would yield numbers.
    if hasattr(body, "read"):
        body = body.read()
        return body.encode() if isinstance(body, str) else bytes(body)
    return b"".join(piece.encode() if isinstance(piece, str) else piece for piece in body)


def _seconds(timeout: Any) -> float | None:
    if isinstance(timeout, tuple):
        timeout = timeout[1]
    elif hasattr(timeout, "read_timeout"):  # urllib3.Timeout
        timeout = timeout.read_timeout
    return None if timeout is None else float(timeout)


def _raw(request: PreparedRequest, response: Response, is_streamed: bool) -> HTTPResponse:
    headers = HTTPHeaderDict()
    for name, value in response.headers.pairs:
        headers.add(name, value)
    body = io.BufferedReader(_Body(response)) if is_streamed else io.BytesIO(response.content)
    return HTTPResponse(
        body=body, headers=headers, status=response.status_code,
        reason=http.client.responses.get(response.status_code, ""),
        version={"HTTP/1.0": 10, "HTTP/1.1": 11, "HTTP/2": 20}.get(response.http_version, 30),
        version_string=response.http_version, preload_content=False, decode_content=False,
        original_response=_Original(  # type: ignore[arg-type]
            response, request.headers.get("Cookie", "")),
        request_method=request.method, request_url=request.url)
