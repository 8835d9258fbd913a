"""Codecs of the host's, checksums, durability."""

from __future__ import annotations

import gc
import random
import sys
import weakref
import zlib
from pathlib import Path

import hutch
import pytest
from conftest import NO_LIMITS
from hutch import _hooks


def decompress(data: bytes) -> bytes:
    try:
        return zlib.decompress(data)
    except zlib.error as error:
        raise hutch.CorruptError(-9, str(error)) from None


ZLIB = hutch.Codec(1, zlib.compress, decompress)
OPTIONS = {"memory": NO_LIMITS, "disk": NO_LIMITS}


def values(seed: int) -> dict[str, bytes]:
    source = random.Random(seed)
    made = {f"text-{size}": b"word " * size for size in (0, 1, 100, 100_000)}
    made.update({f"noise-{size}": source.randbytes(size) for size in (1, 20_480, 200_000)})
    return made


@pytest.mark.parametrize("storage", ["mixed", "sqlite", "file"])
def test_compression(directory: Path, seed: int, storage: str) -> None:
    expected = values(seed)

    def compress(data: bytes) -> bytes:
        return zlib.compress(data)

    alive = weakref.ref(compress)
    codec = hutch.Codec(1, compress, decompress)
    for _ in range(2):
        with hutch.Cache(directory, storage=storage, codec=codec, **OPTIONS) as cache:
            for key, value in expected.items():
                cache[key] = value
                assert cache[key] == cache.disk[key] == value
                assert cache.info(key).size == len(value)
                with cache.disk.read(key) as file:
                    assert file.read() == value
    del cache, codec, compress
    gc.collect()
    assert not _hooks._codecs and alive() is None
    with hutch.Cache(directory, **OPTIONS) as cache:
        assert all(key not in cache for key in expected)
        assert len(cache) == len(expected) and cache.stats().disk.damaged == 0
    with hutch.Cache(directory, codec=ZLIB, **OPTIONS) as cache:
        assert dict(cache.items()) == expected
        assert {key: cache.pop(key) for key in expected} == expected
        assert len(cache) == 0


def test_a_codec_that_raises(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    def fail(data: bytes) -> bytes:
        raise RuntimeError("of the codec")

    with hutch.Cache(directory, codec=hutch.Codec(1, zlib.compress, fail)) as cache:
        cache["key"] = "value"
        for _ in range(2):
            with pytest.raises(hutch.StorageError):
                cache.disk["key"]
        assert "key" in cache.disk and len(told) == 2
    with hutch.Cache(directory, codec=hutch.Codec(1, fail, decompress)) as cache:
        assert cache["key"] == "value"
        assert cache.put("new", "value").disk == hutch.Outcome.FAILED
        assert "new" not in cache.disk and len(told) == 3
    with hutch.Cache(directory, codec=hutch.Codec(1, fail, lambda data: b"")) as cache:
        assert cache.get("key") is None and cache.stats().disk.damaged == 1
    with pytest.raises(ValueError):
        hutch.Cache(directory, codec=hutch.Codec(0, fail, fail))


@pytest.mark.parametrize("storage", ["mixed", "log"])
@pytest.mark.parametrize("durability", ["process", "power", "sync"])
def test_durability(directory: Path, seed: int, durability: str, storage: str) -> None:
    expected = values(seed)
    with hutch.Cache(directory, storage=storage, durability=durability, **OPTIONS) as cache:
        for key, value in expected.items():
            cache[key] = value
        assert cache.options().durability == durability
        hutch.Cache(directory, durability="sync", **OPTIONS).close()
        assert cache.options().durability == "sync"
        # The stronger one holds from then on.
        with pytest.warns(hutch.OptionsDifferWarning):
            hutch.Cache(directory, durability="power", **OPTIONS).close()
    with hutch.Cache(directory, **OPTIONS) as cache:
        assert dict(cache.items()) == expected
    with pytest.raises(ValueError):
        hutch.Cache(directory, durability="none")


# The log store always verifies.
@pytest.mark.parametrize("checksums", [True, False])
def test_checksums(directory: Path, checksums: bool) -> None:
    with hutch.Cache(directory, storage="mixed", checksums=checksums, **OPTIONS) as cache:
        cache.disk["key"] = bytes(100_000)
        with open(cache.path("key"), "r+b") as file:
            file.write(b"x")
        found = cache.disk.get("key")
        assert found is None if checksums else found[:1] == b"x"
