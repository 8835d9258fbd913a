"""The adapter of requests, with requests and the servers of Tests/HTTP."""

from __future__ import annotations

import gzip
import contextlib
import io
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import hutch
import pytest
import requests
from http_servers import server  # noqa: F401, which skips this module without the library
from hutch import http
from hutch.frameworks.requests import HutchAdapter


class Handler(BaseHTTPRequestHandler):
    """/gzip is compressed and /fresh fresh for a minute; /cookie sets cookies; /cut ends early.

    /page/NAME is fresh and sets cookies; /tag is confirmed, and sets the number of the request.
    """

    def do_GET(self):
        self.server.count += 1
        if self.headers.get("If-None-Match"):
            self.send_response(304)
            self.send_header("Set-Cookie", f"n={self.server.count}; Path=/")
            return self.end_headers()
        body = gzip.compress(b"packed " * 1000) if self.path == "/gzip" else b"plain"
        self.send_response(200)
        if self.path == "/gzip":
            self.send_header("Content-Encoding", "gzip")
        if self.path in ("/fresh", "/gzip"):
            self.send_header("Cache-Control", "max-age=60")
        if self.path.startswith("/page/"):
            self.send_header("Cache-Control", "max-age=60")
            self.send_header("Set-Cookie", "user=old; Path=/")
            self.send_header("Set-Cookie", "other=1; Path=/")
        if self.path == "/login":
            self.send_header("Cache-Control", "no-store")
            self.send_header("Set-Cookie", "user=new; Path=/")
        if self.path == "/tag":
            self.send_header("Cache-Control", "no-cache")
            self.send_header("ETag", '"1"')
            self.send_header("Set-Cookie", f"n={self.server.count}; Path=/")
        if self.path == "/cookie":
            self.send_header("Set-Cookie", "a=1")
            self.send_header("Set-Cookie", "b=2; Path=/")
        if self.path == "/cookies":
            body = self.headers.get("Cookie", "none").encode()
        self.send_header("Content-Length", str(len(body) + 10 * (self.path == "/cut")))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def origin():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        made.count, made.url = 0, f"http://127.0.0.1:{made.server_address[1]}"
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def deaf():
    """The URL of a port at which connections wait for ever to be accepted."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield "http://127.0.0.1:%d/" % listener.getsockname()[1]


@pytest.fixture
def session(tmp_path):
    with hutch.Cache(tmp_path / "pages") as cache, http.Session(cache=cache, timeout=30) as inner:
        with requests.Session() as made:
            made.trust_env = False
            made.mount("http://", HutchAdapter(inner))
            made.mount("https://", HutchAdapter(inner))
            yield made


def test_a_response_is_one_of_requests(session, server):
    response = session.get(server("plain", "/hello.txt"), params={"a": "b"})
    assert type(response) is requests.Response
    assert response.status_code == 200 and response.reason == "OK"
    assert response.content == b"hello\n" and response.text == "hello\n"
    assert response.headers["CONTENT-TYPE"] == "text/plain"
    assert response.url == server("plain", "/hello.txt?a=b")
    assert response.request.method == "GET" and response.elapsed.total_seconds() > 0
    with pytest.raises(requests.HTTPError, match="404"):
        session.get(server("plain", "/none")).raise_for_status()
    assert session.head(server("plain", "/hello.txt")).content == b""


def test_what_is_sent(session, server):
    def sent(**options):
        head, _, body = session.post(server("wire", "/echo"), **options).content.partition(b"\n\n")
        return head.decode(), body

    head, body = sent(json={"a": 1}, headers={"X-Own": "value"}, auth=("ann", "s3cret"))
    assert "content-type: application/json" in head and body == b'{"a": 1}'
    assert "x-own: value" in head and "authorization: Basic" in head
    assert "user-agent: python-requests" in head and head.count("content-length") == 1
    assert sent(data={"a": "b c"})[1] == b"a=b+c"
    assert sent(data=io.BytesIO(b"of a file"))[1] == b"of a file"
    assert sent(data=bytearray(b"\0of bytes"))[1] == b"\0of bytes"
    assert sent(data=memoryview(b"\0of bytes"))[1] == b"\0of bytes"
    head, body = sent(data=iter([b"in ", b"pieces"]))
    assert body == b"in pieces" and "transfer-encoding" not in head
    assert "content-length: 0" in sent()[0]


def test_requests_decompresses(session, origin):
    response = session.get(origin.url + "/gzip")
    assert response.headers["content-encoding"] == "gzip" and not response.from_cache
    assert response.content == b"packed " * 1000
    again = session.get(origin.url + "/gzip")
    assert again.from_cache and again.content == b"packed " * 1000
    with session.get(origin.url + "/gzip", stream=True) as streamed:
        assert b"".join(streamed.iter_content(100)) == b"packed " * 1000


def test_a_fresh_response_costs_no_request(session, origin):
    before = origin.count
    assert [session.get(origin.url + "/fresh").from_cache for _ in range(3)] == [False, True, True]
    assert origin.count == before + 1
    other = HutchAdapter(session.get_adapter("http://")._session, cache_mode="reload")
    session.mount(origin.url, other)
    assert not session.get(origin.url + "/fresh").from_cache and origin.count == before + 2


def test_cookies_and_redirects_are_those_of_requests(session, origin, server):
    response = session.get(origin.url + "/cookie")
    assert response.cookies.get_dict() == {"a": "1", "b": "2"}
    assert session.get(origin.url + "/cookies").content in (b"a=1; b=2", b"b=2; a=1")
    moved = session.get(server("wire", "/steps?n=1"))
    assert [each.status_code for each in moved.history] == [302, 302]
    stay = session.get(server("wire", "/steps?n=1"), allow_redirects=False)
    assert stay.is_redirect and "location" in stay.headers


def test_a_stored_response_replaces_no_cookie(session, origin):
    session.get(origin.url + "/page/requests")
    session.get(origin.url + "/login")
    del session.cookies["other"]
    page = session.get(origin.url + "/page/requests")
    assert page.from_cache and "user=old" in page.headers["set-cookie"]
    assert session.cookies.get_dict() == {"user": "new", "other": "1"}
    # What the server sends when it confirms a response is new.
    first = session.get(origin.url + "/tag").cookies["n"]
    again = session.get(origin.url + "/tag")
    assert again.from_cache and session.cookies["n"] == str(int(first) + 1)


def test_failures_are_those_of_requests(session, origin, server, deaf):
    with pytest.raises(requests.exceptions.ReadTimeout):
        session.get(server("wire", "/stall"), timeout=0.2)
    with pytest.raises(requests.exceptions.ConnectTimeout):
        session.get(deaf, timeout=0.2)
    with http.Session(connect_timeout=0.2) as impatient:
        session.mount(deaf, HutchAdapter(impatient))
        with pytest.raises(requests.exceptions.ConnectTimeout):
            session.get(deaf)
    with pytest.raises(requests.exceptions.SSLError):
        session.get(server("own", "/hello.txt"))
    with pytest.raises(requests.ConnectionError):
        session.get("http://127.0.0.1:1/")
    with pytest.raises(requests.Timeout):
        session.get(server("wire", "/stall"), timeout=(5, 0.2))
    with pytest.raises(requests.ConnectionError):
        session.get(origin.url + "/cut")
    with session.get(origin.url + "/cut", stream=True) as cut:
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            cut.content
    stalls = session.get(server("wire", "/stall_within"), stream=True, timeout=0.2)
    with stalls, pytest.raises(requests.ConnectionError, match="no byte moved"):
        stalls.content
    for refused in ({"verify": False}, {"cert": "file"}):
        with pytest.raises(ValueError, match="hutch.http.Session"):
            session.get(origin.url + "/", **refused)
