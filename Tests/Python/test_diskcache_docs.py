"""Each snippet of docs/python/diskcache.md runs."""

from __future__ import annotations

import re

import pytest
from conftest import ROOT
from processes import finished

TEXT = (ROOT / "docs" / "python" / "diskcache.md").read_text()
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippet(number, tmp_path):
    home = str(tmp_path)
    done = finished("-W", "error", "-c", SNIPPETS[number], HOME=home, TMPDIR=home)
    assert done.returncode == 0, done.stderr


def test_there_are_snippets():
    assert len(SNIPPETS) >= 5 and TEXT.count("```") == 2 * (len(SNIPPETS) + 1)
