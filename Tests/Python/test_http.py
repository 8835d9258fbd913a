"""hutch.http against the servers of Tests/HTTP."""

from __future__ import annotations

import datetime
import gc
import hashlib
import json
import math
import os
import queue
import random
import socket
import subprocess
import sys
import threading
import weakref

import hutch
import pytest
from conftest import ROOT
from http_servers import origin, server  # noqa: F401, which skips this module without the library
from hutch import http
from hutch._http_response import Cutter, Lines

@pytest.fixture
def session():
    with http.Session(timeout=30) as made:
        yield made


def test_a_response_is_as_users_of_requests_know_it(session, server):
    response = session.get(server("plain", "/hello.txt"))
    assert response.status_code == 200 and response.ok
    assert response.content == b"hello\n" and response.text == "hello\n"
    assert response.headers["CONTENT-TYPE"] == "text/plain"
    assert "content-type" in response.headers and "x-none" not in response.headers
    assert response.http_version == "HTTP/1.1"
    assert response.url == server("plain", "/hello.txt")
    assert response.raise_for_status() is response
    assert response.metrics["requests"] == 1 and response.metrics["total"] > 0
    missing = session.get(server("plain", "/none"))
    assert missing.status_code == 404 and not missing.ok
    with pytest.raises(http.HTTPError, match="404") as raised:
        missing.raise_for_status()
    assert raised.value.response is missing


def test_methods_queries_and_headers(session, server):
    response = session.get(server("wire", "/echo"), headers={"X-Own": "é"},
                           params={"a b": "c&d", "many": [1, 2], "none": None})
    assert response.text.startswith("GET /echo?a%20b=c%26d&many=1&many=2 HTTP/1.1\n")
    assert "x-own: é" in response.text
    assert response.headers.get_list("x-two") == ["1", "2"]
    assert response.headers["x-two"] == "1, 2"
    for name in ("post", "put", "patch", "delete", "options"):
        assert getattr(session, name)(server("wire", "/echo")).text.startswith(name.upper())
    assert session.head(server("plain", "/hello.txt")).content == b""
    asked = session.get(server("wire", "/basic"), auth=("ann", "s3cret"))
    assert asked.text == "welcome "


def test_bodies(session, server):
    def sent(**options):
        head, _, body = session.post(server("wire", "/echo"), **options).content.partition(b"\n\n")
        return head.decode(), body

    head, body = sent(json={"a": [1, None, "é"]})
    assert "content-type: application/json" in head and json.loads(body) == {"a": [1, None, "é"]}
    head, body = sent(json=1, headers={"content-type": "application/vnd.x+json"})
    assert head.count("content-type") == 1 and "vnd.x" in head
    for named in [(b"content-type", "application/vnd.x+json")], {b"Content-Type": b"text/json"}:
        assert sent(json=1, headers=named)[0].count("content-type") == 1
    head, body = sent(data={"a": "b c"})
    assert "x-www-form-urlencoded" in head and body == b"a=b+c"
    assert sent(data=b"\0raw")[1] == b"\0raw"
    assert "content-length: 0" in sent(data=b"")[0]
    with pytest.raises(ValueError):
        sent(json=float("nan"))


def test_files_are_parts(session, server, tmp_path):
    (tmp_path / "up.bin").write_bytes(b"\0\xff" * 1000)
    response = session.post(server("wire", "/echo"), data={"kind": "x"}, files={
        "one": tmp_path / "up.bin", "two": ("name.txt", b"in\0memory"), "three": b"plain"})
    assert b'name="one"; filename="up.bin"' in response.content
    assert b"\0\xff" * 1000 + b"\r\n--" in response.content
    assert b'name="two"; filename="name.txt"' in response.content
    assert b"in\0memory" in response.content and b'name="kind"\r\n\r\nx' in response.content
    with pytest.raises(http.HTTPError, match="cannot be opened"):
        session.post(server("wire", "/echo"), files={"a": tmp_path / "none"})


def test_a_streamed_body_waits_for_its_reader(session, server):
    with session.stream("GET", server("wire", "/large?n=20000000")) as response:
        assert response.status_code == 200
        pieces = response.iter_bytes(100_000)
        first = next(pieces)
        assert first == b"z" * 100_000
        # A megabyte and what libcurl had read: not twenty.
        assert response._task.incoming.pieces.waiting < 4_000_000
        assert sum(len(piece) for piece in pieces) == 19_900_000
    response = session.get(server("plain", "/million"), stream=True)
    assert hashlib.sha1(response.content).digest() == hashlib.sha1(
        bytes(range(250)) * 4000).digest()
    assert list(session.get(server("wire", "/echo"), stream=True).iter_lines())[0] == (
        "GET /echo HTTP/1.1")


def test_a_streamed_body_is_there_once(session, server):
    with session.stream("GET", server("plain", "/hello.txt")) as response:
        first = response.iter_bytes(2)
        assert next(first) == b"he" and b"".join(first) == b"llo\n"
        reads = [lambda: response.content, lambda: response.text, response.json]
        for read in reads + [lambda: next(response.iter_bytes()), lambda: [*response.iter_lines()]]:
            with pytest.raises(http.StreamConsumed, match="has been read"):
                read()
    assert issubclass(http.StreamConsumed, RuntimeError)
    with session.stream("GET", server("plain", "/hello.txt")) as response:
        assert [*response.iter_lines()] == ["hello"]
        with pytest.raises(http.StreamConsumed):
            response.text
    with session.stream("GET", server("plain", "/hello.txt")) as response:
        assert response.text == "hello\n" == response.text and [*response.iter_lines()] == ["hello"]
    response = session.get(server("plain", "/hello.txt"))
    assert [*response.iter_bytes()] == [b"hello\n"] == [*response.iter_bytes()]


TEXTS = ["one\r\ntwo\n\nthr\ree\n", "\u0a0a\n\u2028\u20ac no end", "\n", "", "\r"]


@pytest.mark.parametrize("encoding", [
    None, "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32-be", "gb18030", "latin-1",
    "nonsense", "hex"])
@pytest.mark.parametrize("text", TEXTS)
def test_lines_are_those_of_the_text(encoding, text):
    """Of a body that comes in pieces of any size, some of which end within a character."""
    known = "utf-8" if encoding in (None, "nonsense", "hex") else encoding
    for body in text.encode(known, "replace"), text.encode(known, "replace") + b"\xe2\n\xe2":
        *lines, last = body.decode(known, "replace").split("\n")
        whole = [line.removesuffix("\r") for line in lines] + [last] * bool(last)
        for size in range(1, len(body) + 2):
            lines = Lines(encoding)
            pieces = [body[start:start + size] for start in range(0, len(body), size)]
            found = [line for piece in pieces for line in lines.cut(piece)]
            assert [*found, *lines.rest()] == whole


def test_pieces_of_a_size():
    body = random.Random(7).randbytes(100)
    for size in range(1, 102):
        for arriving in range(1, 102):
            cutter = Cutter(size)
            pieces = [piece for start in range(0, 100, arriving)
                      for piece in cutter.cut(body[start:start + arriving])]
            pieces += cutter.rest()
            assert pieces == [body[start:start + size] for start in range(0, 100, size)]


def test_small_pieces_of_a_large_one_are_joined_once():
    """Each is copied once. To join each one with all before takes minutes."""
    piece, count = b"x" * 64, 100_000
    cutter, lines = Cutter(count * 64), Lines(None)
    for _ in range(count - 1):
        assert not [*cutter.cut(piece)] and not [*lines.cut(piece)]
    assert [*cutter.cut(piece)] == [piece * count] and not [*cutter.rest()]
    assert [*lines.cut(b"\n")] == ["x" * 64 * (count - 1)]


def test_the_lines_of_a_charset_that_is_not_known(session, server):
    with session.stream("GET", server("plain", "/hello.txt")) as response:
        response.encoding = "nonsense"
        assert [*response.iter_lines()] == ["hello"]


def test_a_read_that_was_interrupted_loses_nothing(session, server, monkeypatch):
    """As by Ctrl-C: content has taken pieces from the stream by then."""
    with session.stream("GET", server("plain", "/million")) as response:
        taken, next_piece = [], response._task.incoming.next_piece

        def interrupted_at_the_second(self, task):
            if taken:
                raise KeyboardInterrupt
            taken.append(next_piece(task))
            return taken[0]

        with monkeypatch.context() as patches:
            kind = type(response._task.incoming)
            patches.setattr(kind, "next_piece", interrupted_at_the_second)
            for _ in range(2):
                with pytest.raises(KeyboardInterrupt):
                    response.content
        assert taken[0] and response.content == bytes(range(250)) * 4000


def test_a_stream_that_is_left_or_lost_ends(session, server):
    with session.stream("GET", server("wire", "/stall_within")) as response:
        assert next(response.iter_bytes()) == b"half"
    response = session.stream("GET", server("wire", "/stall_within"))
    del response
    gc.collect()
    response = session.get(server("wire", "/cut"), stream=True)
    with pytest.raises(http.ConnectionError):
        response.content
    with pytest.raises(http.ConnectionError) as raised:
        session.get(server("wire", "/cut"))
    assert raised.value.name == "HUTCH_HTTP_LOST"
    assert raised.value.response.content == b"x" * 10


def test_failures_have_classes(session, server):
    with pytest.raises(http.ConnectionError):
        session.get(server("nobody"))
    with pytest.raises(OSError):
        session.get("http://nobody.invalid/")
    with pytest.raises(http.TooManyRedirects):
        session.get(server("wire", "/circle"))
    with pytest.raises(http.BadResponse):
        session.get(server("wire", "/garbage"))
    with pytest.raises(TimeoutError):
        session.get(server("wire", "/stall"), timeout=0.2)
    for url in ("nonsense", "ftp://127.0.0.1/", "http://127.0.0.1/\r\nX: y", "http://a/\0"):
        with pytest.raises(ValueError):
            session.get(url)
    with pytest.raises(ValueError):
        session.get(server("wire"), headers={"X": "a\r\nY: b"})
    assert session.get(server("wire", "/redirect?to=/echo"),
                       allow_redirects=False).status_code == 302
    assert session.get(server("wire", "/steps?n=2")).redirects == 3


def test_timeouts_without_end_and_what_is_no_option(session, server):
    url = server("plain", "/hello.txt")
    for endless in (math.inf, 1e300, datetime.timedelta.max):
        assert session.get(url, timeout=endless).text == "hello\n"
    options = dict.fromkeys(["timeout", "connect_timeout", "total_timeout"], math.inf)
    with http.Session(**options) as patient:
        assert patient.get(url).text == "hello\n"
    for wrong in (0, -1, math.nan, datetime.timedelta(0)):
        with pytest.raises(ValueError, match="^timeout: a "):
            session.get(url, timeout=wrong)
        for name in [*options, "cache_lease"]:
            with pytest.raises(ValueError, match=f"^{name}: a "):
                http.Session(**{name: wrong})
        for name in ("timeout", "interval"):
            with pytest.raises(ValueError, match=f"^{name}: a "):
                http.Reachability(**{name: wrong})
    with pytest.raises(TypeError, match="^timeout: a duration is a number of seconds"):
        session.get(url, timeout="5")
    for wrong in ({None: "a"}, {1: "a"}, {"X": object()}):
        with pytest.raises(TypeError, match="header"):
            session.get(url, headers=wrong)
    for name in ("max_body", "max_redirects", "max_connections_per_host", "http_version"):
        for number in (-1, 2**64):
            with pytest.raises(ValueError, match=name):
                http.Session(**{name: number})


def test_arguments_as_in_requests(session, server):
    echo = server("wire", "/echo")
    assert session.request("post", echo).text.startswith("POST ")
    for auth in ((b"ann", b"s3cret"), ["ann", "s3cret"]):
        assert session.get(server("wire", "/basic"), auth=auth).text == "welcome "
    for data in (bytearray(b"body"), memoryview(b"body")):
        assert session.post(echo, data=data).content.endswith(b"\n\nbody")
    for words, wrong in {
        "pairs": {"params": "a=1"}, "of pairs": {"data": 5}, "sequence": {"headers": ["X: a"]},
        "a user": {"auth": "ann"}, "texts": {"auth": ("ann", None)},
        "Session.request" if sys.version_info >= (3, 10) else "no": {"no": 1},
    }.items():
        with pytest.raises(TypeError, match=words):
            session.post(echo, **wrong)
    with pytest.raises(TypeError, match="method"):
        session.request(None, echo)


def test_trust_and_pins(server):
    authority = server.folder / "authority.pem"
    with pytest.raises(http.TLSError):
        with http.Session() as session:
            session.get(server("good", "/hello.txt"))
    with http.Session(verify=authority) as session:
        assert session.get(server("good", "/hello.txt")).http_version == "HTTP/2"
    with http.Session(verify=False) as session:
        assert session.get(server("wrong", "/hello.txt")).ok
    pin = bytes.fromhex(server.told["pin_good"])
    with http.Session(verify=authority, pins=[bytes(32), pin]) as session:
        assert session.get(server("good", "/hello.txt")).ok
    with http.Session(verify=authority, pins=[bytes(32)]) as session:
        with pytest.raises(http.PinError, match="pinned"):
            session.get(server("good", "/hello.txt"))
    with pytest.raises(ValueError):
        http.Session(pins=[b"short"])
    both = (server.folder / "client.pem", server.folder / "client.key")
    with http.Session(verify=authority, cert=both) as session:
        assert session.get(server("asks", "/hello.txt")).status_code == 200


def test_cookies_are_kept_in_a_file(server, tmp_path):
    for round in range(2):
        with http.Session(cookie_file=tmp_path / "jar") as session:
            if round == 0:
                session.get(server("wire", "/cookie?set=a%3Db"))
            assert session.get(server("wire", "/cookie")).text == "a=b"
    with http.Session() as session:
        session.get(server("wire", "/cookie?set=a%3Db"))
        assert session.get(server("wire", "/cookie")).text == "none"


def test_a_download_continues(session, server, tmp_path):
    target = tmp_path / "file"
    session.get(server("wire", "/set"), params={"key": "py", "tag": '"v1"', "cut": 70000})
    url = server("wire", "/part?key=py")
    with pytest.raises(http.ConnectionError):
        session.download(url, target)
    assert not target.exists()
    session.get(server("wire", "/set"), params={"key": "py", "tag": '"v1"'})
    seen = []
    response = session.download(url, target, progress=lambda *numbers: seen.append(numbers))
    assert response.status_code == 206
    assert target.read_bytes() == b"aaaaaaaaa\n" * 20000
    assert seen[-1] == (200000, 200000)
    with pytest.raises(http.HTTPError, match="404"):
        session.download(server("plain", "/none"), target)
    assert target.stat().st_size == 200000


def test_threads_share_a_session(session, server):
    results = []

    def work():
        for _ in range(20):
            results.append(session.get(server("plain", "/ten")).content)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [b"0123456789" * 1024] * 160


def test_a_close_ends_what_waits(server):
    session = http.Session()
    raised = []

    def wait():
        try:
            session.get(server("wire", "/stall"))
        except http.Closed as closed:
            raised.append(closed)

    thread = threading.Thread(target=wait)
    thread.start()
    threading.Event().wait(0.05)
    session.close()
    session.close()
    thread.join(20)
    assert not thread.is_alive() and len(raised) == 1
    with pytest.raises(http.Closed):
        session.get(server("plain", "/hello.txt"))


def test_an_open_session_does_not_hold_up_the_end(server):
    program = ("from hutch.http import Session\n"
               f"session = Session()\nresponse = session.get({server('wire', '/stall_within')!r},"
               " stream=True)\nprint(next(response.iter_bytes()))\n")
    import hutch
    from hutch import _library
    import os
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30,
        env={**os.environ, "PYTHONPATH": str(ROOT / "bindings" / "python"),
             "HUTCH_LIBRARY": _library.lib._name})
    assert (done.stdout, done.stderr, done.returncode) == ("b'half'\n", "", 0)


def test_the_declarations_are_those_of_the_header(tmp_path):
    from ctypes import sizeof

    from hutch import _http_library as h

    layout = (ROOT / "Tests" / "HTTP" / "layout.txt").read_text().splitlines()
    sizes = {line.split()[1]: int(line.split()[3]) for line in layout
             if line.startswith("struct")}
    fields = {line.split()[1]: (int(line.split()[3]), int(line.split()[5])) for line in layout
              if line.startswith("field")}
    for name, declared in vars(h).items():
        c_name = "hutch_http" + "".join("_" * a.isupper() + a.lower() for a in name)
        if isinstance(declared, type) and c_name in sizes and hasattr(declared, "_fields_"):
            assert sizeof(declared) == sizes.pop(c_name), name
            for field, _ in declared._fields_:
                here = getattr(declared, field)
                assert (here.offset, here.size) == fields[f"{c_name}.{field}"], field
    assert set(sizes) == {"hutch_http_challenge", "hutch_http_credentials",
                          "hutch_http_decoder", "hutch_http_decoded"}
    header = (ROOT / "include" / "hutch_http.h").read_text()
    assert all(f" *{name}(" in header or f" {name}(" in header for name, _, _ in h.FUNCTIONS)


def test_a_collection_on_the_sessions_thread_does_not_wait(session, server, tmp_path):
    # A task that has not ended and is in a cycle, which the callback of another one collects.
    class Cycle:
        pass

    gc.disable()
    try:
        cycle = Cycle()
        cycle.me, cycle.response = cycle, session.stream("GET", server("wire", "/stall_within"))
        del cycle
        session.download(server("plain", "/million"), tmp_path / "file",
                         progress=lambda *numbers: gc.collect())
    finally:
        gc.enable()
    session.get(server("plain", "/hello.txt"))


def test_reachability_of_a_host(server):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        states = queue.Queue()
        monitor = http.Reachability(url, on_change=states.put, timeout=5, interval=0.005)
        assert states.get(timeout=30) == "reachable" and monitor.is_reachable
    assert states.get(timeout=30) == "unreachable"
    assert monitor.state == "unreachable" and not monitor.is_reachable
    monitor.stop()
    monitor.stop()
    assert states.empty() and monitor.state == "unreachable"
    with http.Reachability(server("nobody"), on_change=states.put, interval=float("inf")):
        assert states.get(timeout=30) == "unreachable"
    for wrong in ({"url": "ftp://a"}, {"url": "a\0b"}, {"timeout": 0}, {"interval": -1}):
        with pytest.raises(ValueError):
            http.Reachability(**wrong)


def test_a_monitor_that_is_dropped_calls_no_more(server):
    told = threading.Event()

    class Owner:
        def __init__(self):
            self.monitor = http.Reachability(
                server("plain"), on_change=lambda state: told.set(), interval=0.001)

    owner = Owner()
    assert told.wait(30)
    monitor = weakref.ref(owner.monitor)
    del owner
    gc.collect()
    assert monitor() is None
    from hutch import _http_reachability

    assert not _http_reachability._monitors


def test_the_callback_of_a_monitor_may_raise_and_stop(server, monkeypatch):
    raised = queue.Queue()
    monkeypatch.setattr(sys, "unraisablehook", lambda told: raised.put(told.exc_value))
    made = queue.Queue()

    def on_change(state):
        made.get(timeout=30).stop()
        raise KeyError(state)

    monitor = http.Reachability(server("plain"), on_change=on_change)
    made.put(monitor)
    error = raised.get(timeout=30)
    assert isinstance(error, KeyError) and error.args == ("reachable",)


def test_reachability_of_the_internet_is_known():
    states = queue.Queue()
    with http.Reachability(on_change=states.put) as monitor:
        assert states.get(timeout=30) in ("unreachable", "reachable")
        assert monitor.state != "unknown"


def test_a_session_with_a_cache_answers_from_it(origin):
    url, tell, asked = origin
    tell("py", "200 OK\nCache-Control: max-age=1000\nETag: \"1\"\n\none",
         "304 Not Modified\nETag: \"1\"\n\n", "200 OK\n\ntwo")
    with hutch.Cache() as cache, http.Session(timeout=30, cache=cache) as session:
        first, second = session.get(url("py")), session.get(url("py"))
        assert (first.text, first.from_cache) == ("one", False)
        assert (second.text, second.from_cache) == ("one", True)
        assert second.metrics["requests"] == 0 and second.metrics["from_cache"] == 1
        assert second.headers["cache-status"].startswith("hutch; hit")
        confirmed = session.get(url("py"), cache_mode="validate")
        assert confirmed.from_cache and confirmed.metrics["requests"] == 1
        with session.stream("GET", url("py")) as streamed:
            assert streamed.from_cache and b"".join(streamed.iter_bytes()) == b"one"
        assert session.get(url("py"), cache_mode="none").text == "two"
        assert session.get(url("py"), cache_mode="only").text == "one"
        assert session.get(url("py"), cache_mode="reload").text == "two"
        assert asked("py") == 4
        with pytest.raises(ValueError, match="cache_mode"):
            session.get(url("py"), cache_mode="never")
        session.post(url("py"))
        assert session.get(url("py"), cache_mode="only").status_code == 504
    with hutch.Cache() as cache, http.Session(cache=cache, cache_mode="only") as session:
        assert session.get(url("py")).status_code == 504


def test_a_shared_cache_stores_nothing_private(origin):
    url, tell, asked = origin
    tell("py_private", "200 OK\nCache-Control: private, max-age=1000\n\none")
    with hutch.Cache() as cache, http.Session(cache=cache, shared_cache=True) as session:
        assert [session.get(url("py_private")).from_cache for _ in range(2)] == [False, False]
    with hutch.Cache() as cache, http.Session(cache=cache) as session:
        assert [session.get(url("py_private")).from_cache for _ in range(2)] == [False, True]
    with pytest.raises(http.InvalidRequest):
        http.Session(shared_cache=True)


def test_threads_that_ask_for_one_url_cause_one_request(origin):
    url, tell, asked = origin
    tell("py_many", "hold 200 OK\nCache-Control: max-age=1000\n\none")
    texts: list[str] = []
    with hutch.Cache() as cache, http.Session(timeout=30, cache=cache) as session:
        threads = [threading.Thread(target=lambda: texts.append(session.get(url("py_many")).text))
                   for _ in range(16)]
        for thread in threads:
            thread.start()
        with http.Session() as other:
            other.get(url("go/py_many"))
        for thread in threads:
            thread.join()
    assert texts == ["one"] * 16 and asked("py_many") == 1


def test_sixty_four_callers_of_one_slow_url_make_one_request(origin):
    url, tell, asked = origin
    tell("py_slow", "hold 200 OK\nCache-Control: max-age=1000\n\none")
    texts: list[str] = []
    with hutch.Cache() as cache, http.Session(timeout=30, cache=cache) as session:
        threads = [threading.Thread(target=lambda: texts.append(session.get(url("py_slow")).text))
                   for _ in range(64)]
        for thread in threads:
            thread.start()
        while asked("py_slow") == 0:
            continue
        with http.Session() as other:
            other.get(url("go/py_slow"))
        for thread in threads:
            thread.join()
    assert texts == ["one"] * 64 and asked("py_slow") == 1


def test_a_large_body_is_streamed_into_a_file_and_given_as_a_descriptor(server, tmp_path):
    size = 3 << 20
    url = server("wire", f"/large?n={size}&stored=1")
    with hutch.Cache(tmp_path) as cache, http.Session(cache=cache, max_body=1000) as session:
        for from_cache in (False, True):
            with session.stream("GET", url) as response:
                assert sum(map(len, response.iter_bytes())) == size
                assert response.from_cache is from_cache
                descriptor, offset, told = response.open_body()
                assert told == size and os.pread(descriptor, size + 1, offset) == b"z" * size
                os.close(descriptor)


def test_a_stored_body_waits_for_its_reader(server, tmp_path):
    url = server("wire", "/large?n=8000000&stored=1")
    with hutch.Cache(tmp_path) as cache, http.Session(cache=cache) as session:
        with session.stream("GET", url) as response:
            assert sum(map(len, response.iter_bytes())) == 8_000_000
        with session.stream("GET", url) as response:
            pieces = response.iter_bytes()
            size = len(next(pieces))
            # The session has time for others meanwhile.
            assert session.get(server("wire", "/echo")).ok
            assert response.from_cache and response._task.incoming.pieces.waiting < 2_000_000
            assert size + sum(map(len, pieces)) == 8_000_000


def test_processes_that_share_a_directory_make_one_request(origin, tmp_path):
    url, tell, asked = origin
    tell("py_lease", "hold 200 OK\nCache-Control: max-age=1000\n\none")
    code = ("import sys, hutch.http\n"
            "with hutch.Cache(sys.argv[1]) as cache, hutch.http.Session(cache=cache) as session:\n"
            "    print('ready', flush=True)\n"
            "    print(session.get(sys.argv[2]).text)")
    where = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    children = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), url("py_lease")],
                                 stdout=subprocess.PIPE, text=True, env=where) for _ in range(3)]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    while asked("py_lease") == 0:
        continue
    with http.Session() as other:
        other.get(url("go/py_lease"))
    assert [child.communicate(timeout=60)[0] for child in children] == ["one\n"] * 3
    assert asked("py_lease") == 1


def test_a_fresh_response_does_not_pass_through_the_sessions_thread(origin, server, tmp_path):
    url, tell, asked = origin
    tell("py_here", "200 OK\nCache-Control: max-age=1000\n\none")
    reached, go = threading.Event(), threading.Event()

    def hold(received, expected):
        reached.set()
        go.wait(30)

    # The session keeps the cache open, to which nothing else refers.
    with http.Session(timeout=30, cache=hutch.Cache()) as session:
        session.get(url("py_here"))
        gc.collect()
        download = threading.Thread(target=lambda: session.download(
            server("plain", "/hello.txt"), tmp_path / "file", progress=hold))
        download.start()
        assert reached.wait(30)
        try:
            # The session's thread is within the callback above.
            response = session.get(url("py_here"))
            assert response.from_cache and response.text == "one"
            with session.stream("GET", url("py_here")) as streamed:
                assert streamed.from_cache and streamed.content == b"one"
        finally:
            go.set()
            download.join()
    assert asked("py_here") == 1


def test_several_threads_read_one_body():
    with socket.create_server(("127.0.0.1", 0)) as origin, http.Session(timeout=30) as session:
        taken = queue.Queue()

        def answer():
            connection = origin.accept()[0]
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 800\r\n\r\n")
            taken.put(connection)

        server = threading.Thread(target=answer)
        server.start()
        response = session.get(f"http://127.0.0.1:{origin.getsockname()[1]}/", stream=True)
        read = []
        readers = [threading.Thread(target=lambda: read.append(response.content))
                   for _ in range(4)]
        for reader in readers:
            reader.start()
        with taken.get() as connection:
            for _ in range(8):
                connection.sendall(b"x" * 100)
        for thread in (server, *readers):
            thread.join()
        assert read == [b"x" * 800] * 4
