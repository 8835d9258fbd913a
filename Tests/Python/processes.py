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


def command(*arguments: Any) -> list[str]:
    """The interpreter that runs the tests, with these arguments.

    -S: the interpreter does not run the .pth files of the machine, which may cost several times
    what the interpreter itself costs. environment() has the directories of the modules.
    """
    return [sys.executable, "-S", *map(os.fspath, arguments)]


def environment(**changed: str) -> dict[str, str]:
    """The child uses the package, the library and the modules that this process uses."""
    installed = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    path = os.pathsep.join([str(PACKAGE), str(Path(__file__).parent), *installed])
    own = {"PYTHONPATH": path, "HUTCH_LIBRARY": _library.lib._name}
    return {**os.environ, **own, **changed}


def finished(
    *arguments: Any, directory: Path | None = None, **changed: str
) -> subprocess.CompletedProcess[str]:
    """An interpreter with these arguments has run to its end; its status and its output."""
    return subprocess.run(
        command(*arguments),
        env=environment(**changed),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
    )


def run(code: str, *arguments: Any, **changed: str) -> str:
    """Run Python code in a new process; what it prints. Fails if it fails or complains."""
    done = finished("-W", "error", "-c", textwrap.dedent(code), *arguments, **changed)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr}"
    assert done.stderr == "", done.stderr
    return done.stdout
