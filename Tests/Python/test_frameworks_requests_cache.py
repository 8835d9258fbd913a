"""The backend of requests-cache, with requests-cache and a server on this machine."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import hutch
import pytest
from hutch.frameworks.requests_cache import HutchCache
from requests_cache import CachedSession


class Server(ThreadingHTTPServer):
    """Answers with the path and a number that counts its answers; /to goes to /there."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.count = 0
        self.is_down = False
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.count += 1
        body = b"x" * 100_000 if self.path == "/large" else b'{"n": %d}' % self.server.count
        self.send_response(
            500 if self.server.is_down else 302 if self.path == "/to" else 200
        )
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.path == "/to":
            self.send_header("Location", "/there")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def session_of(directory, *, serializer="json", expire_after=-1, stale_if_error=False, **options):
    backend = HutchCache(directory, serializer, **options)
    return CachedSession(
        backend=backend, expire_after=expire_after, stale_if_error=stale_if_error
    )


@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_answers_outlive_the_session(server, tmp_path, serializer):
    with session_of(tmp_path / "http", serializer=serializer) as session:
        first = session.get(f"{server.url}/a")
        again = session.get(f"{server.url}/a")
        assert not first.from_cache and again.from_cache
        assert first.json() == again.json() == {"n": 1}
        assert session.get(f"{server.url}/a", params={"q": "ü"}).json() == {"n": 2}
    with session_of(tmp_path / "http", serializer=serializer) as session:
        again = session.get(f"{server.url}/a")
        assert again.from_cache and again.json() == {"n": 1}
        assert again.headers["Content-Type"] == "application/json"
        assert len(session.cache.responses) == 2 and server.count == 2


def test_what_is_stored_is_json(server, tmp_path):
    with session_of(tmp_path / "http") as session:
        session.get(f"{server.url}/a")
    with hutch.Cache(tmp_path / "http") as cache:
        (value,) = cache.values()
        assert value.startswith("{") and '"status_code": 200' in value
        (key,) = cache
        cache[key] = "no answer"
    with session_of(tmp_path / "http") as session:
        assert session.get(f"{server.url}/a").json() == {"n": 2}


def test_redirects(server, tmp_path):
    with session_of(tmp_path / "http") as session:
        answer = session.get(f"{server.url}/to")
        assert answer.url.endswith("/there") and len(session.cache.redirects) == 1
        count = server.count
        assert session.get(f"{server.url}/to").from_cache
        assert session.get(f"{server.url}/there").from_cache and server.count == count
        assert session.cache.contains(url=f"{server.url}/to")


def test_times_are_those_of_requests_cache(server):
    with session_of(None, expire_after=0.05, stale_if_error=True, time_to_live=3600) as session:
        session.get(f"{server.url}/a")
        server.is_down = True
        stale = session.get(f"{server.url}/a", expire_after=0)
        while not stale.is_expired:
            stale = session.get(f"{server.url}/a")
        assert stale.from_cache and stale.json() == {"n": 1}
        session.cache.delete(expired=True)
        assert len(session.cache.responses) == 0


def test_deletions(server):
    with session_of(None) as session:
        for name in "abcd":
            session.get(f"{server.url}/{name}")
        cache = session.cache
        assert sorted(each.json()["n"] for each in cache.filter()) == [1, 2, 3, 4]
        assert len(list(cache.responses)) == len(cache.responses) == 4
        cache.delete(urls=[f"{server.url}/a"])
        assert not cache.contains(url=f"{server.url}/a") and cache.contains(url=f"{server.url}/b")
        for key in cache.responses:
            del cache.responses[key]
            with pytest.raises(KeyError):
                del cache.responses[key]
            with pytest.raises(KeyError):
                cache.responses[key]
            break
        cache._cache["mine"] = 1
        cache.clear()
        assert len(cache.responses) == 0 and list(cache._cache) == ["mine"]
        assert 1 not in cache.responses


def test_an_answer_too_large_for_every_tier_is_not_kept(server):
    with session_of(None, memory=hutch.TierLimits(max_entry=50_000)) as session:
        for _ in range(2):
            assert not session.get(f"{server.url}/large").from_cache
        session.get(f"{server.url}/a")
        assert session.get(f"{server.url}/a").from_cache


def test_keys_of_any_length(server, tmp_path):
    """A key that a function of the program's own makes is a text of any length."""
    with CachedSession(
        backend=HutchCache(tmp_path / "http"), key_fn=lambda request, **_: request.url * 3000
    ) as session:
        for path in ("/a", "/b", "/to"):
            assert not session.get(server.url + path).from_cache
        for path in ("/a", "/b", "/to"):
            assert session.get(server.url + path).from_cache
        cache = session.cache
        keys = list(cache.responses)
        assert len(keys) == 4 and all(key in cache.responses for key in keys)
        cache.delete(keys[0])
        assert sorted(cache.responses) == sorted(keys[1:])
        assert len(list(cache.filter())) == 3
