#!/usr/bin/env python3
"""Fetching through a cache: scripts/demo_http.py [--pages N] [--delay SECONDS] [--cache DIR]

Starts a web server of its own on the loopback interface, which takes DELAY for each answer, and
fetches its pages with hutch.http through a cache in a directory:

    cold         nothing is stored: each page is a request
    fresh        the pages say that they are fresh for an hour: no request
    revalidated  the server is asked whether the pages have changed: it answers 304, without a body
    offline      the server has gone: what is stored answers, in a session and a process of its own

Exit status 1 if the passes do not fetch the same pages, or make other requests than these.
"""

from __future__ import annotations

import argparse
import hashlib
import http.server
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bindings" / "python"))

import hutch  # noqa: E402
import hutch.http  # noqa: E402

SIZE = 20_000  # bytes of a page


class Origin(http.server.BaseHTTPRequestHandler):
    """A server of pages, which counts its answers by their codes, and the bytes of their bodies."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    delay = 0.0
    # Protects what follows.
    lock = threading.Lock()
    codes: dict[int, int] = {}
    sent = 0

    def do_GET(self) -> None:
        body = (f"page {self.path} ".encode() * SIZE)[:SIZE]
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        code = 304 if self.headers.get("If-None-Match") == tag else 200
        time.sleep(self.delay)
        with Origin.lock:
            Origin.codes[code] = Origin.codes.get(code, 0) + 1
            Origin.sent += SIZE if code == 200 else 0
        self.send_response(code)
        self.send_header("Cache-Control", "max-age=3600")
        self.send_header("ETag", tag)
        if code == 200:
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(SIZE))
        self.end_headers()
        if code == 200:
            self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Says nothing."""


def fetch(session: hutch.http.Session, url: str, pages: int, mode: Any) -> dict[str, Any]:
    """One pass over all pages: how long it took, what was answered, and by which of the two."""
    digest, stored, status = hashlib.sha256(), 0, ""
    begin = time.perf_counter()
    for number in range(pages):
        response = session.get(f"{url}/{number}", cache_mode=mode).raise_for_status()
        digest.update(response.content)
        stored += response.from_cache
        status = response.headers["cache-status"]
    return {"seconds": time.perf_counter() - begin, "digest": digest.hexdigest(),
            "stored": stored, "status": status.partition("; ttl")[0]}


def show(name: str, result: dict[str, Any], pages: int) -> dict[int, int]:
    """Prints a pass, and returns the answers of the server since the last one."""
    with Origin.lock:
        codes, sent = Origin.codes, Origin.sent
        Origin.codes, Origin.sent = {}, 0
    answers = ", ".join(f"{count} x {code}" for code, count in sorted(codes.items())) or "none"
    print(f"{name:12} {result['seconds'] * 1000 / pages:9.3f} ms {answers:>12} {sent:>10,} "
          f"{result['stored']:>6}/{pages}  {result['status']}")
    return codes


def in_a_new_process(directory: str, url: str, pages: int) -> dict[str, Any]:
    """The pass offline, by another interpreter."""
    done = subprocess.run(
        [sys.executable, __file__, "--offline", url, "--cache", directory, "--pages", str(pages)],
        check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def demonstrate(directory: str, pages: int, delay: float) -> int:
    Origin.delay = delay
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    print(f"{pages} pages of {SIZE:,} bytes from {url}, "
          f"which takes {delay * 1000:.0f} ms for each\n")
    print(f"{'pass':12} {'each page':>12} {'requests':>12} {'bytes':>10} {'stored':>9}  "
          "Cache-Status")
    with hutch.Cache(directory) as cache, hutch.http.Session(cache=cache) as session:
        cold = fetch(session, url, pages, None)
        counts = [show("cold", cold, pages)]
        fresh = fetch(session, url, pages, None)
        counts.append(show("fresh", fresh, pages))
        confirmed = fetch(session, url, pages, "validate")
        counts.append(show("revalidated", confirmed, pages))
    server.shutdown()
    server.server_close()
    offline = in_a_new_process(directory, url, pages)
    counts.append(show("offline", offline, pages))
    if len({result["digest"] for result in (cold, fresh, confirmed, offline)}) != 1:
        print("the passes did not fetch the same pages", file=sys.stderr)
        return 1
    if counts != [{200: pages}, {}, {304: pages}, {}]:
        print(f"the server had other requests than expected: {counts}", file=sys.stderr)
        return 1
    print("\nthe four passes fetched the same pages; a fresh one is "
          f"{cold['seconds'] / fresh['seconds']:,.0f} times as fast as a request")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Fetches the pages of a server through a cache.")
    parser.add_argument("--pages", type=int, default=50)
    parser.add_argument("--delay", type=float, default=0.02, help="seconds that an answer takes")
    parser.add_argument("--cache", help="a directory for the cache, which is kept")
    parser.add_argument("--offline", metavar="URL", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.pages < 1 or given.delay < 0:
        parser.error("there is at least one page, and no delay before 0")
    if given.offline:
        with hutch.Cache(given.cache) as cache, hutch.http.Session(cache=cache) as session:
            print(json.dumps(fetch(session, given.offline, given.pages, "only")))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        return demonstrate(given.cache or f"{directory}/cache", given.pages, given.delay)


if __name__ == "__main__":
    sys.exit(main())
