"""The failures of hutch.http, with the names that users of requests know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _http_library as h
from ._process import hint
from ._structs import Error

if TYPE_CHECKING:
    from ._http_response import Response
else:
    hint(globals(), "Response")


class HTTPError(Exception):
    """A request failed, or raise_for_status found a code from 400.

    Attributes:
        name: the status of libhutch_http, "HUTCH_HTTP_PIN"; "" from raise_for_status.
        response: the response, as far as it came; or None.
    """

    def __init__(self, words: str, name: str = "", response: Response | None = None) -> None:
        super().__init__(words)
        self.name = name
        self.response = response


class ConnectionError(HTTPError, OSError):
    """There was no connection, or it was lost."""


class Timeout(HTTPError, TimeoutError):
    """A timeout has passed."""


def is_while_connecting(error: Exception) -> bool:
    """A timeout that passed before there was a connection: nothing had been sent."""
    return isinstance(error, Timeout) and str(error).startswith("the connection took too long")


class TLSError(ConnectionError):
    """The TLS handshake failed, or the certificate is not trusted."""


class PinError(TLSError):
    """The server's key or certificate is none of those that are pinned."""


class TooManyRedirects(HTTPError):
    """There were too many redirects, or one that is refused."""


class BadResponse(HTTPError):
    """The response is not valid HTTP, or is too large."""


class InvalidRequest(HTTPError, ValueError):
    """An argument is malformed; nothing was sent."""


class Closed(HTTPError):
    """The session has been closed."""


class StreamConsumed(RuntimeError):
    """The body of a streamed response has been read to its end, and is not kept."""

    def __init__(self) -> None:
        super().__init__(
            "the body was streamed and has been read: what a program needs again it keeps, "
            "or reads by content"
        )


_CLASSES: dict[str, type[HTTPError]] = {
    "HUTCH_HTTP_NO_HOST": ConnectionError,
    "HUTCH_HTTP_NO_CONNECTION": ConnectionError,
    "HUTCH_HTTP_LOST": ConnectionError,
    "HUTCH_HTTP_TLS": TLSError,
    "HUTCH_HTTP_NOT_TRUSTED": TLSError,
    "HUTCH_HTTP_PIN": PinError,
    "HUTCH_HTTP_REDIRECT": TooManyRedirects,
    "HUTCH_HTTP_BAD_RESPONSE": BadResponse,
    "HUTCH_TOO_LARGE": BadResponse,
    "HUTCH_TIMED_OUT": Timeout,
    "HUTCH_INVALID_ARGUMENT": InvalidRequest,
    "HUTCH_CLOSED": Closed,
}


def failure(status: int, error: Any, response: Response | None = None) -> HTTPError:
    """The exception for a status, with the words of a hutch_error."""
    name = h.lib.hutch_http_status_name(status).decode()
    words = error.words.decode("utf-8", "replace") or name
    return _CLASSES.get(name, HTTPError)(words, name, response)


def check(status: int) -> None:
    """Raises what a call answered, unless it is HUTCH_OK."""
    if status != 0:
        error = Error()
        h.lib.hutch_http_last_error(error)
        raise failure(status, error)
