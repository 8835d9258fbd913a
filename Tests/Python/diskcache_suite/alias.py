"""A plugin of pytest: diskcache is hutch.diskcache, and each test's outcome goes to a file."""

from __future__ import annotations

import functools
import importlib
import json
import os
import pickletools
import sys

import pytest
from exceptions import PICKLED

diskcache = importlib.import_module("hutch.diskcache")
diskcache.install()

WITH_DJANGO = os.environ.get("DISKCACHE_DJANGO") == "1"
if WITH_DJANGO:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    module = importlib.import_module("hutch.diskcache.djangocache")
    sys.modules["diskcache.djangocache"] = module
    importlib.import_module("django").setup()

outcomes: dict[str, str] = {}


@pytest.fixture(scope="session", autouse=True)
def tables():
    """What the models of the Django tests are stored in."""
    if WITH_DJANGO:
        from django.core.management import call_command
        from django.test.utils import setup_test_environment

        setup_test_environment()
        call_command("migrate", run_syncdb=True, verbosity=0)


@pytest.fixture(autouse=True)
def pickles(request, monkeypatch):
    """PickleDisk as the default, for tests that need it. One of their keys is a tuple of a million,
    which pickletools would optimise for each call, in 1.5 s of CPU time: the answer is kept."""
    if f"{request.path.name}::{request.node.name}" in PICKLED:
        monkeypatch.setattr(diskcache.Cache, "_disk_type", diskcache.PickleDisk)
        kept = functools.lru_cache(maxsize=20)(pickletools.optimize)
        monkeypatch.setattr(pickletools, "optimize", kept)


def pytest_runtest_logreport(report):
    file, _, name = report.nodeid.partition("::")
    test = f"{os.path.basename(file)}::{name.rpartition('::')[2]}"
    if report.when == "call" or report.outcome != "passed":
        outcomes[test] = report.outcome


def pytest_sessionfinish():
    with open(os.environ["DISKCACHE_OUTCOMES"], "w") as file:
        json.dump(outcomes, file)
