"""The servers of Tests/HTTP, started once for each module that imports the fixture."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import IS_INSTALLED, ROOT

SERVERS = ROOT / "Tests" / "HTTP" / "servers.py"

if IS_INSTALLED:
    pytest.skip("the wheel has no libhutch_http", allow_module_level=True)
try:
    from hutch import http
except ImportError as missing:
    pytest.skip(str(missing), allow_module_level=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("servers")
    subprocess.run([sys.executable, SERVERS, "start", folder], check=True)
    told = dict(line.split() for line in (folder / "servers.txt").read_text().splitlines())

    def url(name: str, path: str = "/") -> str:
        scheme = "https" if name in ("good", "wrong", "old", "own", "asks") else "http"
        return f"{scheme}://127.0.0.1:{told[name]}{path}"

    url.folder, url.told = folder, told
    yield url
    subprocess.run([sys.executable, SERVERS, "stop", folder], check=True)


@pytest.fixture
def origin(server):
    """Tells the origin server what to answer, and what it was asked: (url, tell, asked)."""
    session = http.Session(timeout=30)

    def url(name: str) -> str:
        return server("origin", f"/{name}")

    def tell(name: str, *answers: str) -> None:
        session.put(url(f"tell/{name}"), data="\n====\n".join(answers)).raise_for_status()

    def asked(name: str) -> int:
        return int(session.get(url(f"count/{name}")).text.split("\n")[0])

    with session:
        yield url, tell, asked
