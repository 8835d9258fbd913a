"""The demo on a small directory: its table is right, and it tells when runs do not agree."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from processes import finished

DEMO = ROOT / "scripts" / "demo.py"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    directory = tmp_path / "sources"
    (directory / "below").mkdir(parents=True)
    (directory / "__pycache__").mkdir()
    (directory / "__pycache__" / "skipped.pyc").write_bytes(b"\0" * 100)
    for number in range(20):
        (directory / "below" / f"file-{number}.py").write_text(f"x = {number}\n" * 50)
    (directory / "binary").write_bytes(bytes(range(256)))
    (directory / "empty").touch()
    return directory


def demo(*arguments) -> subprocess.CompletedProcess:
    return finished(DEMO, *arguments)


def rows(output: str) -> list:
    return [line.split() for line in output.splitlines() if "/" in line and "hits" not in line]


@pytest.mark.parametrize("storage", ["mixed", "log"])
def test_the_table(sources, tmp_path, storage):
    done = demo(sources, "--storage", storage)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and "\r" not in done.stdout
    cold, warm, anew = rows(done.stdout)
    assert cold[:2] == ["cold", "22"] and cold[-2:] == ["0/22", "0/22"]
    assert warm[0] == "warm" and warm[-2:] == ["22/0", "0/0"]
    assert anew[:3] == ["warm,", "new", "process"] and anew[-2:] == ["0/22", "22/0"]
    assert done.stdout.splitlines()[-1] == "the three runs gave the same results"


def test_a_cache_that_is_kept(sources, tmp_path):
    kept = tmp_path / "kept"
    assert demo(sources, "--cache", kept).returncode == 0
    (sources / "below" / "file-3.py").write_text("changed")
    done = demo(sources, "--cache", kept)
    assert done.returncode == 0, done.stderr
    assert rows(done.stdout)[0][0] == "first" and rows(done.stdout)[0][-2:] == ["0/22", "21/1"]


def test_runs_that_do_not_agree(sources, tmp_path):
    """The new process is another demo, which analyses otherwise."""
    kept = tmp_path / "kept"
    code = f"""
import runpy, sys
sys.argv = ["demo.py", {str(sources)!r}, "--cache", {str(kept)!r}]
demo = runpy.run_path({str(DEMO)!r})
def other(*arguments):
    return {{**run(*arguments), "results": "others"}}
run = demo["run_in_a_new_process"]
demo["main"].__globals__["run_in_a_new_process"] = other
sys.exit(demo["main"]())
"""
    done = finished("-c", code)
    assert done.returncode == 1
    assert done.stderr == "the runs do not agree\n"


def test_no_directory():
    assert demo("/nowhere").returncode == 2
