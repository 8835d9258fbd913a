#!/usr/bin/env python3
"""A fresh response of the cache, from C and from Python: Tests/Benchmarks/http/hit.py.

Needs the build in build/, a C compiler, and for the peers `pip install requests requests-cache
hishel httpx`; a peer that is missing is left out. The server is this program's own, on loopback; it
answers each of the peers once, and all that is timed is answered by their caches in memory.

From Python, each turn is one `get` of the same URL and its `content`. The peers take turns in
rounds; what is printed is the median of the rounds, and the ratio of the medians to hutch.http.
"""

import http.server
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bindings/python"))
os.environ.setdefault("HUTCH_LIBRARY", str(ROOT / "build/libhutch.so"))

import hutch  # noqa: E402
import hutch.http  # noqa: E402

BODY = b"0123456789abcdef" * 64
ROUNDS, SECONDS = 11, 0.05


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    requests = 0

    def do_GET(self):
        Origin.requests += 1
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Cache-Control", "max-age=3600")
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *args):
        pass


def from_c(url):
    with tempfile.TemporaryDirectory() as directory:
        program = f"{directory}/hit"
        build = str(ROOT / "build")
        subprocess.run(
            [os.environ.get("CC", "cc"), "-O2", f"-I{ROOT}/include", "-o", program,
             str(ROOT / "Tests/Benchmarks/http/hit.c"), f"-L{build}", f"-Wl,-rpath,{build}",
             "-lhutch_http", "-lhutch"], check=True)
        subprocess.run([program, url], check=True)


def hutch_http(url):
    session = hutch.http.Session(cache=hutch.Cache())
    return lambda: session.get(url).content


def requests_cache(url):
    import requests_cache

    session = requests_cache.CachedSession(backend="memory", cache_control=True)
    return lambda: session.get(url).content


def hishel_httpx(url):
    import hishel
    from hishel.httpx import CacheClient

    # Its only storage is SQLite; here in memory.
    import sqlite3

    connection = sqlite3.connect(":memory:", check_same_thread=False)
    client = CacheClient(storage=hishel.SqliteStorage(connection=connection))
    return lambda: client.get(url).content


def measured(turn):
    """Seconds for a turn: elapsed, and CPU time of the process."""
    count, start, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < SECONDS:
        for _ in range(10):
            turn()
        count += 10
    return (time.perf_counter() - start) / count, (time.process_time() - used) / count


def from_python(url):
    turns = {}
    for peer in (hutch_http, requests_cache, hishel_httpx):
        name = peer.__name__.replace("_", ".", 1) if peer is hutch_http else peer.__name__
        before = Origin.requests
        try:
            turn = peer(url)
        except ImportError as reason:
            print(f"{name} is left out: {reason}")
            continue
        for _ in range(20):
            assert turn() == BODY
        if Origin.requests != before + 1:
            print(f"{name} is left out: it made {Origin.requests - before} requests")
            continue
        turns[name] = turn
    seconds = {name: [] for name in turns}
    for _ in range(ROUNDS):
        for name, turn in turns.items():
            seconds[name].append(measured(turn))
    medians = {name: [statistics.median(values) for values in zip(*pairs)]
               for name, pairs in seconds.items()}
    base = medians["hutch.http"]
    for name, (elapsed, cpu) in medians.items():
        print(f"{name:15} {elapsed * 1e6:8.1f} us {elapsed / base[0]:6.1f} x hutch.http;"
              f"  CPU {cpu * 1e6:8.1f} us {cpu / base[1]:6.1f} x")


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/resource"
    print(f"a body of {len(BODY)} bytes, fresh; medians of interleaved rounds")
    from_c(url)
    from_python(url)
    server.shutdown()


if __name__ == "__main__":
    main()
