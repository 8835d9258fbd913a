"""A disk tier that is down from the beginning, or since its directory went away."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import hutch
import pytest
from processes import command, environment


def test_a_disk_that_is_optional(tmp_path: Path, clock) -> None:
    parent = tmp_path / "parent"
    parent.write_text("in the way")
    with pytest.raises(hutch.BadDirectoryError):
        hutch.Cache(parent / "cache", clock=clock)
    with hutch.Cache(parent / "cache", disk_optional=True, clock=clock) as cache:
        assert cache.stats().disk.state == hutch.State.DOWN
        assert cache.put("early", 1).disk == hutch.Outcome.FAILED
        assert cache["early"] == 1 and "early" not in cache.disk
        parent.unlink()
        # With a clock of the host's, counting does the maintenance.
        assert len(cache) == 1
        assert cache.stats().disk.state == hutch.State.UP
        cache["late"] = 2
        shutil.rmtree(parent)
        assert len(cache) == 2
        assert cache.stats().disk.state == hutch.State.UP and "late" not in cache.disk
        assert cache.put("late", 4).disk == hutch.Outcome.STORED
    with hutch.Cache(parent / "cache", clock=clock) as cache:
        assert dict(cache.items()) == {"late": 4}


SHARES = """
import sys, hutch
with hutch.Cache(sys.argv[1], storage=sys.argv[2]) as cache:
    cache["other's"] = 1
    print(flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("storage", ["log", "mixed"])
def test_a_directory_that_another_process_has_opened_meanwhile(
    tmp_path: Path, clock, storage: str
) -> None:
    parent, mounted = tmp_path / "parent", tmp_path / "mounted"
    parent.write_text("in the way")
    options = {"disk_optional": True, "clock": clock, "storage": storage}
    with hutch.Cache(parent / "cache", **options) as cache:
        with pytest.raises(hutch.TierDownError, match="^the directory cannot be opened"):
            cache.delete("own")
        other = subprocess.Popen(
            command("-c", SHARES, mounted / "cache", storage), env=environment(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        with other:
            assert other.stdout is not None and other.stdout.readline() == b"\n"
            (tmp_path / "link").symlink_to(mounted)
            # In one step, so that maintenance does not make the directory in between.
            (tmp_path / "link").rename(parent)
            assert cache.put("own", 2).disk == hutch.Outcome.FAILED
            assert len(cache) == 1
            with pytest.raises(hutch.TierDownError, match="^other processes have opened the dir"):
                cache.delete("own")
            cache["own"] = 3
            other.communicate()
        assert other.returncode == 0
        assert len(cache) == 2
        assert cache.stats().disk.state == hutch.State.UP
        assert cache["other's"] == 1 and cache["own"] == 3
        assert cache.delete("own") is True


@pytest.mark.parametrize("storage", ["log", "mixed"])
@pytest.mark.parametrize("options", [{"sharing": "exclusive"}, {"write_policy": "on_eviction"}])
def test_a_directory_of_one_process_alone_comes_back(
    tmp_path: Path, clock, storage: str, options: dict
) -> None:
    directory, away = tmp_path / "cache", tmp_path / "away"
    with hutch.Cache(directory, clock=clock, storage=storage, **options) as cache:
        cache["key"] = 1
        cache.flush()
        directory.rename(away)
        with pytest.raises(hutch.TierDownError):
            cache.flush()
        assert len(cache) == len(list(cache)) == 1 and cache["key"] == 1
        away.rename(directory)
        # With a clock of the host's, counting does the maintenance.
        assert len(cache) == 1
        assert cache.stats().disk.state == hutch.State.UP and "key" in cache.disk
        cache["new"] = 2
    with hutch.Cache(directory, clock=clock) as cache:
        assert dict(cache.items()) == {"key": 1, "new": 2}
