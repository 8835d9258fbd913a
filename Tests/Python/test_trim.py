"""Trims: what goes before its limit comes."""

from __future__ import annotations

import datetime

import hutch
import pytest
from conftest import NO_LIMITS


@pytest.fixture
def memory(clock):
    with hutch.Cache(memory=NO_LIMITS, clock=clock) as opened:
        for i in range(100):
            opened.set(i, "x" * i, cost=10 + i)
        yield opened


def test_to_count_and_cost(memory):
    assert memory.trim("to_count", 100) == 0
    assert memory.trim("to_count", 60) == 40
    assert len(memory) == 60
    memory.trim("to_cost", "1 KB")
    assert 800 < memory.cost() <= 1000
    for amount in ("yesterday", datetime.datetime(2026, 1, 1)):
        with pytest.raises(TypeError, match="a Unix time is a number"):
            memory.trim("written_before", amount)
    assert memory.trim("to_cost", 0) > 0
    assert len(memory) == 0
    assert memory.stats().memory.trims == 100


def test_by_size(memory):
    assert memory.trim("larger_than", 79) == 20
    assert set(memory) == set(range(80))
    cost = memory.cost()
    assert memory.trim("largest_first", cost - 89) == 1
    assert set(memory) == set(range(79))


def test_by_time(memory, clock):
    clock.advance(10)
    memory[5] = "again"
    assert memory.trim("written_before", 0) == 0
    assert memory.trim("older_than", 10) == 0
    assert memory.trim("idle_for", 3600) == 0
    clock.advance(1e-9)
    assert memory.trim("older_than", 10) == 99
    clock.advance(7200)
    assert memory.trim("idle_for", 3600) == 1


def test_by_use(memory, clock):
    clock.advance(600)
    for i in range(0, 100, 2):
        memory.get(i)
    cost = sum(10 + i for i in range(0, 100, 2))
    assert memory.trim("least_frequent", cost) == 50
    assert all(i % 2 == 0 for i in memory)
    clock.advance(600)
    for i in range(0, 100, 4):
        memory.get(i)
    assert memory.trim("least_recent", sum(10 + i for i in range(0, 100, 4))) == 25
    assert all(i % 4 == 0 for i in memory)


def test_expired(memory, clock):
    memory.set("short", 1, expire=5)
    assert memory.trim("expired") == 0
    clock.advance(5)
    assert memory.trim("expired") == 1


def test_progress(memory):
    seen = []
    assert memory.trim("to_count", 0, progress=lambda done, total: seen.append((done, total))) == 100
    assert seen[-1] == (100, 100)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    for i in range(100):
        memory[i] = "x"
    assert 0 < memory.trim("larger_than", 0, progress=lambda done, _: done > 10) < 100

    def failing(done, total):
        raise LookupError("no")

    with pytest.raises(LookupError):
        memory.trim("larger_than", 0, progress=failing)


def test_wrong_arguments(memory):
    with pytest.raises(ValueError):
        memory.trim("smallest", 1)
    with pytest.raises(TypeError):
        memory.trim("to_cost")
    with pytest.raises(TypeError):
        memory.trim("expired", 5)
    for kind in ("older_than", "to_count"):
        with pytest.raises(ValueError):
            memory.trim(kind, -1)
    assert len(memory) == 100


def test_accessed_before_a_time(directory):
    now = [1_700_000_000 * 10**9]
    with hutch.Cache(directory, clock=lambda: now[0], workers=0) as cache:
        cache["old"], cache["read"] = 1, 2
        now[0] += 3600 * 10**9
        assert cache["read"] == 2
        assert cache.trim("accessed_before", 1_700_000_000) == 0
        assert cache.memory.trim("accessed_before", 1_700_000_000 + 1800) == 1
        assert "read" in cache.memory
        assert "old" not in cache.memory


def test_ages_that_act_in_trims_alone(tmp_path):
    now = [1_700_000_000 * 10**9]
    for directory in (None, tmp_path / "cache"):
        with hutch.Cache(
            directory, ages_on_trim=True, time_to_live=10, clock=lambda: now[0]
        ) as cache:
            assert cache.options().ages_on_trim
            cache["old"] = 1
            cache.set("own", 2, expire=5)
            now[0] += 20 * 10**9
            cache.maintain()
            assert cache["old"] == 1 and "own" not in cache
            assert cache.expire() >= 1
            assert "old" not in cache
