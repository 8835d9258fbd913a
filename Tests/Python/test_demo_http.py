"""The demo of fetching through a cache: its passes make the requests that they say."""

from __future__ import annotations

from conftest import ROOT
from http_servers import server  # noqa: F401, which skips this module without the library
from processes import finished

DEMO = ROOT / "scripts" / "demo_http.py"


def test_the_four_passes(tmp_path):
    done = finished(DEMO, "--pages", "5", "--delay", "0", "--cache", tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    names = ("cold", "fresh", "revalidated", "offline")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(names)]
    assert [row[0] for row in rows] == list(names)
    assert rows[0][3:] == ["5", "x", "200", "100,000", "0/5", "hutch;", "fwd=miss"]
    assert rows[1][3:] == ["none", "0", "5/5", "hutch;", "hit"]
    assert rows[2][3:8] == ["5", "x", "304", "0", "5/5"]
    assert rows[3][3:] == ["none", "0", "5/5", "hutch;", "hit"]
    assert done.stdout.splitlines()[-1].startswith("the four passes fetched the same pages")


def test_what_is_not_possible():
    assert finished(DEMO, "--pages", "0").returncode == 2
    assert finished(DEMO, "--delay", "-1").returncode == 2
