"""diskcache's own tests, from its sdist on PyPI, against hutch.diskcache.

The sdist is downloaded by pip into the build directory, once. Its tests run unchanged, with
hutch.diskcache under the name of diskcache. diskcache_suite/exceptions.py has what may fail.
HUTCH_LONG=1 runs all of its modules.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from conftest import ROOT
from processes import command, environment

HERE = Path(__file__).with_name("diskcache_suite")
sys.path.insert(0, str(HERE))

from exceptions import DIFFERENT, EMPTY, PICKLED  # noqa: E402

VERSION = "5.6.3"
DIGEST = "2c3a3fa2743d8535d832ec61c2054a1641f41775aa7c556758a109941e33e4fc"
ALWAYS = ["core", "deque", "index", "recipes"]
LONG = ["fanout", "djangocache", "doctest"]


@pytest.fixture(scope="module")
def tests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist's tests, as a package, and what they lack."""
    sdist = ROOT / "build" / "diskcache" / f"diskcache-{VERSION}.tar.gz"
    if not sdist.exists():
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
                *("--disable-pip-version-check", "--no-binary", ":all:"),
                *("--dest", sdist.parent, f"diskcache=={VERSION}"),
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            pytest.skip(f"PyPI's sdist of diskcache cannot be had: {done.stderr[-300:]}")
    assert hashlib.sha256(sdist.read_bytes()).hexdigest() == DIGEST
    folder = tmp_path_factory.mktemp("diskcache")
    with tarfile.open(sdist) as archive:
        for member in archive.getmembers():
            name = Path(member.name)
            if member.isfile() and name.parent.name == "tests" and name.suffix == ".py":
                target = folder / "tests" / name.name
                target.parent.mkdir(exist_ok=True)
                content = archive.extractfile(member)
                assert content is not None
                target.write_bytes(content.read())
    (folder / "tests" / "__init__.py").touch()
    shutil.copy(HERE / "django_models.py", folder / "tests" / "models.py")
    shutil.copy(HERE / "django_settings.py", folder / "tests" / "settings.py")
    return folder


def outcomes_of(folder: Path, *modules: str) -> dict[str, str]:
    """What one run of pytest says of each test of these modules."""
    told = folder / f"{modules[0]}.json"
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    own = environment(
        TMPDIR=str(temporary),
        DISKCACHE_OUTCOMES=str(told),
        DISKCACHE_DJANGO=str(int(modules[0] in ("djangocache", "doctest"))),
    )
    own["PYTHONPATH"] = os.pathsep.join([str(folder), str(HERE), own["PYTHONPATH"]])
    done = subprocess.run(
        command(
            *("-m", "pytest", "-q", "-p", "alias", "-p", "no:cacheprovider", "-W", "ignore"),
            *("--tb=short", "--rootdir", folder),
            *(f"tests/test_{module}.py" for module in modules),
        ),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
        env=own,
    )
    assert done.returncode in (0, 1), done.stdout[-3000:] + done.stderr[-3000:]
    print(done.stdout[-6000:])
    outcomes: dict[str, str] = json.loads(told.read_text())
    return outcomes


def check(outcomes: dict[str, str], module: str) -> None:
    own = {name: each for name, each in outcomes.items() if name.startswith(f"test_{module}.py::")}
    assert len(own) > 3
    listed = {name for name in DIFFERENT if name.startswith(f"test_{module}.py::")}
    failed = {name for name, outcome in own.items() if outcome == "failed"}
    assert failed - listed == set(), "these tests of diskcache's fail, and are not in the list"
    assert listed - failed == set(), "these are in the list, and do not fail"


@pytest.fixture(scope="module")
def outcomes(tests: Path) -> dict[str, str]:
    return outcomes_of(tests, *ALWAYS)


@pytest.mark.parametrize("module", ALWAYS)
def test_suite(outcomes: dict[str, str], module: str) -> None:
    check(outcomes, module)


@pytest.mark.parametrize("module", LONG)
def test_long_suite(tests: Path, module: str) -> None:
    if not os.environ.get("HUTCH_LONG"):
        pytest.skip("HUTCH_LONG=1 runs it")
    if module != "fanout" and importlib.util.find_spec("django") is None:
        pytest.skip("Django is not installed")
    check(outcomes_of(tests, module), module)


def test_list_has_reasons() -> None:
    """No test is in two lists, and each has a reason."""
    lists = [DIFFERENT, PICKLED, EMPTY]
    assert sum(map(len, lists)) == len({name for each in lists for name in each})
    assert all(reason for each in lists for reason in each.values())
