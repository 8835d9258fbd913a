"""Each snippet of docs/python/diskcache.md runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT

TEXT = (ROOT / "docs" / "python" / "diskcache.md").read_text()
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippet(number, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SNIPPETS[number]],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "HOME": str(tmp_path),
            "TMPDIR": str(tmp_path),
            "PYTHONPATH": str(ROOT / "bindings" / "python"),
        },
    )
    assert done.returncode == 0, done.stderr


def test_there_are_snippets():
    assert len(SNIPPETS) >= 5 and TEXT.count("```") == 2 * (len(SNIPPETS) + 1)
