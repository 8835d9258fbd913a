"""A disk tier that is down from the beginning, or since its directory went away."""

from __future__ import annotations

import shutil
from pathlib import Path

import hutch
import pytest


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
