"""The package and a typed program are clean for mypy --strict and pyright."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

PACKAGE = ROOT / "bindings" / "python"
USER = Path(__file__).with_name("typed_user.py")


def expected() -> list[str]:
    return [
        re.split(r"  # ", line)[1]
        for line in USER.read_text().splitlines()
        if "reveal_type(" in line and "  # " in line
    ]


def plain(told: str) -> str:
    """A type as both checkers would write it."""
    told = told.replace("builtins.", "").replace("typing.", "").replace("Union", "")
    if told.startswith("["):
        told = " | ".join(told[1:-1].split(", "))
    return told


def needs(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: scripts/packages installs it")


def test_mypy():
    needs("mypy")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--no-error-summary"),
            # Without a cache, which another run would have to find.
            *("--no-incremental", "--cache-dir", os.devnull, PACKAGE / "hutch", USER),
        ],
        capture_output=True,
        text=True,
        cwd=PACKAGE,
        env={"MYPYPATH": str(PACKAGE), "PATH": "/usr/bin:/bin"},
    )
    lines = done.stdout.splitlines()
    assert [line for line in lines if ": error:" in line] == []
    told = [re.search(r'Revealed type is "(.*)"', line) for line in lines]
    assert [plain(each[1]) for each in told if each] == expected()


def test_pyright():
    """Of the package, which takes six times as long, with HUTCH_LONG only."""
    needs("pyright")
    is_long = bool(os.environ.get("HUTCH_LONG"))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable),
            *(["hutch"] if is_long else []),
            USER,
        ],
        capture_output=True,
        text=True,
        cwd=PACKAGE,
    )
    report = json.loads(done.stdout)
    told = report["generalDiagnostics"]
    assert report["summary"]["filesAnalyzed"] > (20 if is_long else 0)
    wrong = [each for each in told if each["severity"] in ("error", "warning")]
    assert [(each["file"], each["range"]["start"]["line"], each["message"]) for each in wrong] == []
    revealed = [
        re.search(r'Type of ".*" is "(.*)"$', each["message"], re.S)
        for each in sorted(told, key=lambda each: each["range"]["start"]["line"])
        if each["severity"] == "information"
    ]
    assert [plain(each[1]) for each in revealed if each] == expected()
