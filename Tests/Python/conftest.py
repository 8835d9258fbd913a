"""Finds the package in the checkout, and the library by the package's own rules.

HUTCH_INSTALLED=1: the package is the one that the environment has installed, with the library
that is inside it.
"""

from __future__ import annotations

import functools
import gc
import os
import random
import sys
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parents[2]
IS_INSTALLED = bool(os.environ.get("HUTCH_INSTALLED"))
if not IS_INSTALLED:
    sys.path.insert(0, str(ROOT / "bindings" / "python"))

try:
    import hutch
    from hutch import _library
except ImportError as missing:
    # A suite that cannot run must not look like one that has nothing to say.
    pytest.exit(f"the Python tests need the library: {missing}", returncode=1)
if IS_INSTALLED and not Path(_library.lib._name).is_relative_to(sys.prefix):
    pytest.exit(f"HUTCH_INSTALLED, and the library is {_library.lib._name}", returncode=1)

from values import build_tool  # noqa: E402

# Decimal, or hexadecimal as the C tests print theirs.
SEED = int(os.environ.get("HUTCH_SEED") or str(random.SystemRandom().getrandbits(32)), 0)


# False in a suite that repeats, with another Python or without the accelerator, what another one does
# with all kinds of storage.
IS_WHOLE = os.environ.get("HUTCH_TEST_KINDS", "all") == "all"


# HUTCH_PURE of processes: with the accelerator and without, or as in the suite without.
PURE = ["1"] if os.environ.get("HUTCH_PURE", "0") not in ("", "0") else ["", "1"]


def examples(count: int) -> int:
    """How many random examples a test has: all with HUTCH_LONG. A rare value is looked for with the
    Python on PATH, in each run by other examples. The other suites look for what is otherwise
    without the accelerator, with a sanitizer or with another Python, which is so for most values of
    a type."""
    if os.environ.get("HUTCH_LONG"):
        return count
    return count // 8 if IS_INSTALLED else count // 2 if IS_WHOLE else count // 4


# deadline=None: how long an example takes is no property of the code under test.
hypothesis.settings.register_profile(
    "hutch", deadline=None, print_blob=True, derandomize=False, database=None,
    max_examples=examples(100),
)
hypothesis.settings.load_profile("hutch")

# What st.text() draws from, the characters that UTF-8 has. The default asks the codec about each of
# a million: 2.5 s of CPU time in the first run of each Python.
CHARACTERS = hypothesis.strategies.characters(exclude_categories=["Cs"])


def pytest_collection_finish() -> None:
    # Many tests collect garbage. What the modules have made by now, several hundred thousand
    # objects, stays to the end: a collection is not to visit it each time.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    # Nor what pytest keeps of the tests of a module, once that has ended.
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    library = _library.lib._name
    terminalreporter.write_line(
        f"hutch {hutch.__version__}, {library}; HUTCH_SEED={SEED} repeats it"
    )


def _is_new(directory):
    try:
        return not os.listdir(os.path.expanduser(directory))
    except (OSError, TypeError, ValueError):
        return True


def _sqlite_by_default(opening):
    @functools.wraps(opening)
    def opened(self, directory=None, **options):
        if directory is not None and options.get("storage") is None and _is_new(directory):
            options["storage"] = "mixed"
        opening(self, directory, **options)

    return opened


# HUTCH_TEST_SQLITE: a new directory is of the kind "mixed" unless its test names another one.
if os.environ.get("HUTCH_TEST_SQLITE"):
    hutch.Cache.__init__ = _sqlite_by_default(hutch.Cache.__init__)


class Clock:
    """A clock that stands until it is told to go. Starts on a day in 2026."""

    def __init__(self) -> None:
        self.now = 1_790_000_000 * 10**9

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * 10**9)


@pytest.fixture
def seed() -> int:
    """What all randomness of a test comes from."""
    return SEED


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A path for a cache, not yet there."""
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program value_tool.c, compiled."""
    return build_tool(ROOT, tmp_path_factory.mktemp("tool"))


NO_LIMITS = hutch.TierLimits(*[hutch.NO_LIMIT] * 5)


# How the kinds on disk differ is the library's matter. "mixed" has rows and files; all of one or of
# the other are for long runs, and for tests that name them. HUTCH_TEST_KINDS: the kinds of a suite
# that repeats what another one does with all of them, with commas between.
KINDS = ["memory only", "mixed", "log"]
if not IS_WHOLE:
    KINDS = os.environ["HUTCH_TEST_KINDS"].split(",")
if IS_WHOLE and os.environ.get("HUTCH_LONG"):
    KINDS += ["sqlite", "file"]


@pytest.fixture(params=KINDS)
def cache(request: pytest.FixtureRequest, directory: Path, clock: Clock):
    """An unlimited cache of every kind, on a clock that stands."""
    options = {"memory": NO_LIMITS, "disk": NO_LIMITS, "clock": clock}
    if request.param == "memory only":
        opened = hutch.Cache(**options)
    else:
        # The threshold of "mixed", for the log store too.
        opened = hutch.Cache(
            directory, storage=request.param, inline_threshold=20_480, **options
        )
    with opened:
        yield opened
