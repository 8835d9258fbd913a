"""The package and a typed program are clean for mypy --strict and pyright, and need no newer Python
than the package says."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import typing
from pathlib import Path

import hutch
import hutch.frameworks
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
    assert [line for line in lines if "Revealed type" not in line] == []
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


def test_the_oldest_python():
    """The package uses nothing that Python 3.9 lacks. Tests that run with 3.9 show that only of
    the lines that they reach."""
    needs("vermin")
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("vermin"), "--target=3.9-", "--no-tips"),
            # In one process: several cost more than what they share.
            *("--processes=1", "--violations", PACKAGE / "hutch"),
        ],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, "Minimum required versions: 3.9" in done.stdout) == (0, True), (
        done.stdout
    )


def functions_of(module):
    """The public functions and classes of a module, and the functions of the classes."""
    for name in getattr(module, "__all__", dir(module)):
        found = getattr(module, name)
        if not getattr(found, "__module__", "").startswith("hutch"):
            continue
        if inspect.isclass(found):
            # What it has of another package's class is that package's.
            if all(base.__module__.partition(".")[0] in HOMES for base in found.__mro__):
                yield name, found
            for attribute in dir(found):
                method = inspect.getattr_static(found, attribute)
                method = getattr(method, "fget", getattr(method, "__func__", method))
                if inspect.isfunction(method) and method.__module__.startswith("hutch"):
                    yield f"{name}.{attribute}", method
        elif inspect.isfunction(found):
            yield name, found


HOMES = {"hutch", "builtins", "typing", "collections", "enum", "abc", "_thread", "contextlib"}
MODULES = [
    *("hutch", "hutch.http", "hutch.pickling", "hutch.diskcache", "hutch.diskcache.core"),
    "hutch.diskcache.pickled",
]
if os.environ.get("HUTCH_LONG"):  # To import the frameworks takes two seconds.
    MODULES.append("hutch.diskcache.djangocache")
    MODULES += [
        f"hutch.frameworks.{path.stem}"
        for path in Path(hutch.frameworks.__file__).parent.glob("[a-z]*.py")
    ]


@pytest.mark.skipif(sys.version_info < (3, 10), reason="annotations have X | Y")
@pytest.mark.parametrize("name", MODULES)
def test_a_program_can_ask_for_the_types_of_each_public_function(name):
    try:
        module = importlib.import_module(name)
    except ImportError as missing:
        pytest.skip(str(missing))
    with hutch.Cache() as cache:
        assert list(cache) == []  # Which completes the class.
    asked, wrong = 0, []
    for words, function in functions_of(module):
        asked += 1
        try:
            types = typing.get_type_hints(function)
        except Exception as error:
            wrong.append(f"{words}: {type(error).__name__}: {error}")
        else:
            wrong += [f"{words}: {key}" for key, kind in types.items() if isinstance(kind, str)]
    assert asked and wrong == []


@pytest.mark.skipif(sys.version_info < (3, 10), reason="annotations have X | Y")
def test_types_are_those_that_checkers_see():
    hints = typing.get_type_hints
    limits = typing.Union[hutch.TierLimits, float, str, None]
    assert hints(hutch.Cache.set_limits)["memory"] == limits
    assert hints(hutch.Cache.limits) == {"return": hutch.CacheLimits}
    visit = typing.Callable[[hutch.Key, hutch.EntryInfo], typing.Any]
    assert hints(hutch.Cache.each)["visit"] == visit
    assert hints(hutch.Cache.aput)["return"] is hutch.PutResult
    assert inspect.signature(hutch.Cache.aput) == inspect.signature(hutch.Cache.put)
    assert hints(hutch.CacheOptions)["queue"] == typing.Optional[hutch.Queue]
