"""Other processes: the judges of what a directory holds, and the rivals for it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from hutch import _library

PACKAGE = Path(_library.__file__).resolve().parents[1]


def environment() -> dict:
    """The child uses the package and the library that this process uses."""
    path = os.pathsep.join([str(PACKAGE), str(Path(__file__).parent)])
    return {**os.environ, "PYTHONPATH": path, "HUTCH_LIBRARY": _library.lib._name}


def run(code: str, *arguments: Any) -> str:
    """Run Python code in a new process; what it prints. Fails if it fails or complains."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(os.fspath, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr}"
    assert done.stderr == "", done.stderr
    return done.stdout
