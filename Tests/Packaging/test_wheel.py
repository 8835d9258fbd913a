"""What pip installs: from a wheel, from a checkout, and where there is no library."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "bindings" / "python"
SMOKE = Path(__file__).with_name("smoke.py")


def python_of(minor: int) -> str | None:
    """A CPython 3.minor that runs here with pip and venv: pyenv's, or else one on PATH."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    on_path = shutil.which(f"python3.{minor}")
    code = (
        "import importlib.util, sys; print(sys.version_info[:2],"
        " *map(bool, map(importlib.util.find_spec, ('pip', 'venv'))))"
    )
    for candidate in [*map(str, pyenv.glob(f"3.{minor}.*/bin/python")), on_path]:
        if candidate:
            done = subprocess.run([candidate, "-c", code], capture_output=True, text=True)
            if done.stdout.strip() == f"(3, {minor}) True True":
                return candidate
    return None


def pythons() -> list[str]:
    """The oldest and the newest CPython that the package supports and that run here; with
    HUTCH_LONG all of them."""
    minors = range(9, 20)
    if os.environ.get("HUTCH_LONG"):
        return list(filter(None, map(python_of, minors))) or [sys.executable]
    oldest = next(filter(None, map(python_of, minors)), sys.executable)
    newest = next(filter(None, map(python_of, reversed(minors))), sys.executable)
    return sorted({oldest, newest})


def without_hutch(**more: str) -> dict[str, str]:
    """An environment with nothing of the checkout, nor of Swift, in reach."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("HUTCH_LIBRARY", "PYTHONPATH", "LD_LIBRARY_PATH")
    }
    swift = shutil.which("swift")
    places = kept["PATH"].split(os.pathsep)
    if swift:
        places = [place for place in places if place != str(Path(swift).parent)]
    return {**kept, "PATH": os.pathsep.join(places), **more}


def pip(
    python: str, own: Path, *arguments: object, **environment: str
) -> subprocess.CompletedProcess:
    """The pip of a Python, at work in a virtual environment of that Python."""
    command = [python, "-m", "pip", "--disable-pip-version-check", "--python", own]
    return subprocess.run(
        [*command, *map(str, arguments)],
        env=without_hutch(**environment), capture_output=True, text=True, cwd="/",
    )


def environment(python: str, directory: Path) -> Path:
    """The Python of a fresh virtual environment. To give it a pip of its own would take longer
    than all that is tested."""
    subprocess.run([python, "-m", "venv", "--without-pip", directory], check=True)
    return directory / "bin" / "python"


def smoke(python: Path) -> Path:
    """Runs the smoke test; the library that was used."""
    done = subprocess.run(
        [python, "-W", "error", SMOKE], env=without_hutch(), capture_output=True, text=True,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel in the directory HUTCH_WHEEL, or a new one."""
    directory = Path(os.environ.get("HUTCH_WHEEL") or tmp_path_factory.mktemp("wheel"))
    if not os.environ.get("HUTCH_WHEEL"):
        subprocess.run([ROOT / "scripts" / "wheel", directory], check=True)
    (made,) = directory.iterdir()
    return made


def test_the_tag_tells_the_platform(wheel: Path):
    assert re.fullmatch(
        r"hutch-[\d.]+-cp39-abi3-manylinux_2_34_(x86_64|aarch64)\.whl", wheel.name
    )


def test_what_is_inside(wheel: Path, tmp_path: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path)
    binaries = [name for name in names if name.startswith("hutch/") and ".so" in name]
    assert sorted(binaries) == ["hutch/_fast.abi3.so", "hutch/libhutch.so"]
    for name in binaries:
        sections = subprocess.check_output(["readelf", "-SW", tmp_path / name], text=True)
        assert ".symtab" not in sections and ".debug" not in sections, name
    (license,) = [name for name in names if name.endswith("LICENSE")]
    assert (tmp_path / license).read_text() == (ROOT / "LICENSE").read_text()
    modules = {name for name in names if re.fullmatch(r"hutch/[\w/]+\.py|hutch/py\.typed", name)}
    sources = {str(file.relative_to(PACKAGE)) for file in (PACKAGE / "hutch").rglob("*.py")}
    assert modules == sources | {"hutch/py.typed"}
    (entries,) = [name for name in names if name.endswith("entry_points.txt")]
    assert "hutch = hutch.frameworks.dogpile:HutchBackend" in (tmp_path / entries).read_text()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"hutch", "hutch.libs"}


@pytest.mark.parametrize("python", pythons())
def test_it_installs_and_works_where_there_is_nothing_else(
    wheel: Path, tmp_path: Path, python: str
):
    own = environment(python, tmp_path / "own")
    done = pip(python, own, "install", "--no-index", wheel)
    assert done.returncode == 0, done.stderr
    library = smoke(own)
    assert library.is_relative_to(tmp_path / "own"), library


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the package says that its build needs. scripts/wheel, which makes the wheel above, lets
    pip install that for itself; each of these builds would take twice as long."""
    text = (PACKAGE / "pyproject.toml").read_text()
    (required,) = re.findall(r"^requires = \[(.*)\]$", text, re.M)
    directory = tmp_path_factory.mktemp("tools")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"),
            *("--ignore-installed", "--no-warn-conflicts", "--target", directory),
            *re.findall(r'"(.*?)"', required),
        ],
        check=True,
    )
    return directory


def build(own: Path, package: Path, tools: Path, **more: str) -> subprocess.CompletedProcess:
    """pip builds the package and installs it."""
    arguments = ("install", "--no-index", "--no-build-isolation", package)
    return pip(sys.executable, own, *arguments, PYTHONPATH=str(tools), **more)


def checkout(directory: Path) -> Path:
    """The package's folder within what looks like a checkout, where nothing has been built."""
    shutil.copytree(ROOT / "include", directory / "include")
    (directory / "bindings" / "c").mkdir(parents=True)
    shutil.copy(ROOT / "bindings" / "c" / "hutch_dl.h", directory / "bindings" / "c")
    ignored = shutil.ignore_patterns("build", "dist", "*.egg-info", "*.so*", "__pycache__")
    shutil.copytree(PACKAGE, directory / "bindings" / "python", ignore=ignored)
    return directory / "bindings" / "python"


def test_from_a_checkout_that_was_built(tmp_path: Path, tools: Path):
    package = checkout(tmp_path / "checkout")
    (tmp_path / "checkout" / "build").mkdir()
    shutil.copy(ROOT / "build" / "libhutch.so", tmp_path / "checkout" / "build")
    own = environment(sys.executable, tmp_path / "own")
    done = build(own, package, tools)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(tmp_path / "checkout")
    assert smoke(own).is_relative_to(tmp_path / "own")


def test_where_there_is_no_library_the_installation_says_what_to_do(tmp_path: Path, tools: Path):
    package = checkout(tmp_path / "checkout")
    own = environment(sys.executable, tmp_path / "own")
    done = build(own, package, tools)
    assert done.returncode != 0
    assert "scripts/build" in done.stderr and "HUTCH_LIBRARY" in done.stderr
    done = build(own, package, tools, HUTCH_LIBRARY="/nowhere/libhutch.so")
    assert done.returncode != 0
    assert "/nowhere/libhutch.so, which is no file" in done.stderr
