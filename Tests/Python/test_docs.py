"""The pages of docs/python: each snippet runs, and prints the output that the page shows.

A block of ```python is a program of its own. It runs in an empty directory. A block of ```text
that follows it is its output; without one it prints nothing. Nothing goes to stderr.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import ROOT
from processes import finished

PAGES = ROOT / "docs" / "python"
ELSEWHERE = {"diskcache.md"}  # test_diskcache_docs.py runs its snippets.
READMES = [ROOT / "README.md", ROOT / "bindings" / "python" / "README.md"]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def pages() -> list[Path]:
    return [page for page in sorted(PAGES.glob("*.md")) if page.name not in ELSEWHERE]


def blocks(page: Path) -> list[tuple[str, str, int]]:
    """The language, the text and the line of each block of a page."""
    text = page.read_text()
    return [
        (block[1], block[2], text.count("\n", 0, block.start()) + 1)
        for block in BLOCK.finditer(text)
    ]


def snippets() -> list:
    """Each snippet with its output."""
    found = []
    for page in pages():
        own = blocks(page)
        for index, (language, code, line) in enumerate(own):
            if language != "python":
                continue
            follower = own[index + 1] if index + 1 < len(own) else ("", "", 0)
            output = follower[1] if follower[0] == "text" else ""
            found.append(pytest.param(code, output, id=f"{page.stem}:{line}"))
    return found


@pytest.mark.parametrize(("code", "output"), snippets())
def test_a_snippet_prints_what_its_page_shows(tmp_path, code, output):
    program = tmp_path / "snippet.py"
    program.write_text(code)
    done = finished(program.name, directory=tmp_path)
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout == output


def test_there_are_pages():
    assert len(pages()) >= 7


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_page_has_snippets_and_short_lines(page):
    languages = [language for language, _, _ in blocks(page)]
    assert "python" in languages
    assert set(languages) <= {"python", "text", "sh"}
    assert page.read_text().count("```") == 2 * len(languages)
    assert max(map(len, page.read_text().splitlines())) <= 100


@pytest.mark.parametrize("page", [*pages(), *READMES], ids=lambda page: page.stem)
def test_what_a_page_links_to_is_there(page):
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


def test_each_page_can_be_reached_from_the_first():
    linked = set(LINK.findall((PAGES / "start.md").read_text()))
    assert {page.name for page in PAGES.glob("*.md")} - {"start.md"} <= linked
    for readme in READMES:
        assert "docs/python/start.md" in readme.read_text(), readme
