"""Copies of all entries: into a cache of another kind, and by the command."""

from __future__ import annotations

import datetime
import subprocess
import sys

import hutch
import pytest
from conftest import ROOT


@pytest.mark.parametrize("kinds", [("mixed", "log"), ("log", "mixed"), (None, "file")])
def test_every_value_and_record(tmp_path, clock, kinds):
    values = {
        "text": "hello", 7: 8, ("a", 1): [1, {"b": 2.5}], "bytes": b"x" * 50_000,
        "day": datetime.date(2026, 1, 2),
    }
    place = None if kinds[0] is None else tmp_path / "old"
    with hutch.Cache(place, storage=kinds[0], clock=clock) as old, \
            hutch.Cache(tmp_path / "new", storage=kinds[1], clock=clock) as new:
        for key, value in values.items():
            old.set(key, value, expire=100, tag="all", cost=3)
        clock.advance(30)
        new["text"] = "its own"
        report = old.copy_to(new)
        assert (report.copied, report.existing, report.refused) == (4, 1, 0)
        assert new["text"] == "its own"
        assert {key: new[key] for key in new} == values | {"text": "its own"}
        assert new.info(7).expires == old.info(7).expires
        assert (new.info(7).cost, new.info(7).tag) == (3, "all")
        assert len(old) == 5
        assert old.copy_to(new).copied == 0
        clock.advance(71)
        assert list(new) == ["text"]


def test_what_is_no_target(cache):
    with pytest.raises(TypeError, match="target is a Cache"):
        cache.copy_to({})
    with pytest.raises(hutch.InvalidArgumentError, match="into itself"):
        cache.copy_to(cache)


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hutch", *map(str, arguments)],
        cwd=ROOT / "bindings" / "python", capture_output=True, text=True, check=False,
    )


def test_the_command(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    with hutch.Cache(old, disk=hutch.TierLimits(cost=30_000_000)) as cache:
        cache.update(a=1, b=b"x" * 30_000)
    done = command("copy", old, new, "--storage", "log")
    assert (done.returncode, done.stderr) == (0, "")
    assert "copied=2" in done.stdout
    assert (new / "hutch-log").is_file()
    with hutch.Cache(new) as cache:
        assert dict(cache.items()) == {"a": 1, "b": b"x" * 30_000}
        assert cache.limits().disk.cost == 30_000_000
    assert command("copy", old, new).returncode == 3
    missing = command("copy", tmp_path / "none", new)
    assert missing.returncode == 1
    assert "is not a cache's directory" in missing.stderr


def test_the_command_leaves_the_limits_of_a_cache_that_is_there(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    with hutch.Cache(old, disk=hutch.TierLimits("64 KB", count=1)) as cache:
        cache["key"] = 1
    with hutch.Cache(new, disk="9 MB") as cache:
        cache.set_many({number: bytes(1000) for number in range(100)})
    assert command("copy", old, new).stdout.startswith("CopyReport(copied=1,")
    with hutch.Cache(new) as cache:
        assert len(cache) == 101 and cache.limits().disk.cost == 9_000_000
