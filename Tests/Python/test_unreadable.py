"""An entry that another program has stored and this one cannot read counts as absent, and what
stores a value if there is none takes its place."""

from __future__ import annotations

import asyncio

import pytest

import hutch
from native import put_unreadable


@pytest.fixture(params=["cache", "memory", "disk"])
def entries(request, cache):
    """The cache, and the view of each tier that it has."""
    if request.param == "cache" or cache._path is None:
        return cache
    return getattr(cache, request.param)


def test_setdefault(entries):
    put_unreadable(entries, "key")
    assert entries.setdefault("key", [1], 60, tag="of tests") == [1]
    assert entries["key"] == [1]
    info = entries.info("key")
    assert info.expires == info.created + 60 and info.tag == "of tests"
    assert entries.setdefault("key", [2]) == [1]


def test_setdefault_that_is_awaited(cache):
    put_unreadable(cache, "key")
    assert asyncio.run(cache.asetdefault("key", 1)) == 1
    assert cache["key"] == 1


@pytest.mark.parametrize("by_another", ["delete", "replace", "replace unreadable"])
def test_setdefault_while_another_caller_writes(entries, monkeypatch, by_another):
    put_unreadable(entries, "key")
    looks = []

    def info(key):
        found = type(entries).info(entries, key)
        if not looks:
            if by_another == "delete":
                del entries[key]
            elif by_another == "replace":
                entries[key] = "another"
            else:
                put_unreadable(entries, key)
        looks.append(found)
        return found

    monkeypatch.setattr(entries, "info", info, raising=False)
    value = "another" if by_another == "replace" else "own"
    assert entries.setdefault("key", "own") == entries["key"] == value
