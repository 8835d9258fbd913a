"""The transports of httpx, with httpx and the servers of Tests/HTTP."""

from __future__ import annotations

import asyncio

import hutch
import httpx
import pytest
from http_servers import server  # noqa: F401, which skips this module without the library
from hutch import http
from hutch.frameworks.httpx import AsyncHutchTransport, HutchTransport
from test_frameworks_requests import deaf, origin  # noqa: F401


@pytest.fixture
def client(tmp_path):
    with hutch.Cache(tmp_path / "pages") as cache, http.Session(cache=cache, timeout=30) as inner:
        with httpx.Client(transport=HutchTransport(inner)) as made:
            yield made


def test_a_response_is_one_of_httpx(client, server):
    response = client.get(server("plain", "/hello.txt"), params={"a": "b"})
    assert type(response) is httpx.Response
    assert response.status_code == 200 and response.reason_phrase == "OK"
    assert response.text == "hello\n" and response.http_version == "HTTP/1.1"
    assert response.headers["CONTENT-TYPE"] == "text/plain"
    assert response.url == server("plain", "/hello.txt?a=b")
    with pytest.raises(httpx.HTTPStatusError, match="404"):
        client.get(server("plain", "/none")).raise_for_status()
    assert client.head(server("plain", "/hello.txt")).content == b""


def test_what_is_sent(client, server):
    def sent(**options):
        head, _, body = client.post(server("wire", "/echo"), **options).content.partition(b"\n\n")
        return head.decode(), body

    head, body = sent(json={"a": 1}, headers={"X-Own": "value"}, auth=("ann", "s3cret"))
    assert "content-type: application/json" in head and body == b'{"a":1}'
    assert "x-own: value" in head and "authorization: Basic" in head
    assert head.count("\nhost:") == 1 and head.count("content-length") == 1
    assert sent(data={"a": "b c"})[1] == b"a=b+c"
    assert sent(content=iter([b"in ", b"pieces"]))[1] == b"in pieces"
    assert "content-length: 0" in sent()[0]
    assert "host: own.example" in sent(headers={"Host": "own.example"})[0]


def test_a_fresh_response_costs_no_request(client, origin):
    before = origin.count
    answers = [client.get(origin.url + "/gzip") for _ in range(3)]
    assert [each.extensions["from_cache"] for each in answers] == [False, True, True]
    assert all(each.content == b"packed " * 1000 for each in answers)
    assert origin.count == before + 1


def test_cookies_redirects_and_streams_are_those_of_httpx(client, origin, server):
    assert dict(client.get(origin.url + "/cookie").cookies) == {"a": "1", "b": "2"}
    moved = client.get(server("wire", "/steps?n=1"), follow_redirects=True)
    assert len(moved.history) == 2
    assert client.get(server("wire", "/steps?n=1")).is_redirect
    with client.stream("GET", origin.url + "/gzip") as response:
        assert b"".join(response.iter_bytes()) == b"packed " * 1000


def test_a_stored_response_replaces_no_cookie(client, origin):
    client.get(origin.url + "/page/httpx")
    client.get(origin.url + "/login")
    client.cookies.delete("other")
    page = client.get(origin.url + "/page/httpx")
    assert page.extensions["from_cache"]
    assert dict(client.cookies) == {"user": "new", "other": "1"}
    # What the server sends when it confirms a response is new.
    first = client.get(origin.url + "/tag").cookies["n"]
    again = client.get(origin.url + "/tag")
    assert again.extensions["from_cache"] and client.cookies["n"] == str(int(first) + 1)


def test_failures_are_those_of_httpx(client, origin, server, deaf):
    with pytest.raises(httpx.ConnectTimeout):
        client.get(deaf, timeout=0.2)
    with pytest.raises(httpx.ConnectError):
        client.get(server("own", "/hello.txt"))
    with pytest.raises(httpx.ConnectError) as raised:
        client.get("http://127.0.0.1:1/")
    assert raised.value.request.url == "http://127.0.0.1:1/"
    with pytest.raises(httpx.ReadTimeout):
        client.get(server("wire", "/stall"), timeout=0.2)
    with pytest.raises(httpx.ReadError):
        client.get(origin.url + "/cut")


def test_an_async_client(origin, server, tmp_path):
    async def run():
        async with http.AsyncSession(cache=cache, timeout=30) as inner:
            async with httpx.AsyncClient(transport=AsyncHutchTransport(inner)) as client:
                answers = [await client.get(origin.url + "/fresh") for _ in range(2)]
                assert [each.extensions["from_cache"] for each in answers] == [False, True]
                assert all(each.content == b"plain" for each in answers)
                several = await asyncio.gather(
                    *(client.get(server("plain", "/hello.txt")) for _ in range(20)))
                assert {each.text for each in several} == {"hello\n"}
                echo = await client.post(server("wire", "/echo"), content=b"body")
                assert echo.content.endswith(b"\n\nbody")
                with pytest.raises(httpx.ReadError):
                    await client.get(origin.url + "/cut")
                with pytest.raises(httpx.ReadTimeout):
                    await client.get(server("wire", "/stall"), timeout=0.2)
                async with client.stream("GET", origin.url + "/gzip") as response:
                    assert len(await response.aread()) == 7000

    with hutch.Cache(tmp_path / "pages") as cache:
        asyncio.run(run())
