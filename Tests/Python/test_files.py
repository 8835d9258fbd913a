"""Values as files and in pieces: put_file, writer, read, path, hold_files."""

from __future__ import annotations

import array
import gc
import os
import random
from pathlib import Path

import hutch
import pytest
from conftest import NO_LIMITS

SIZES = (0, 1, 20_480, 20_481, 1_000_000)


@pytest.mark.parametrize("use", ["copy", "move", "link"])
def test_a_file_becomes_a_value(cache: hutch.Cache, tmp_path: Path, seed: int, use: str) -> None:
    for size in SIZES:
        data = random.Random(seed + size).randbytes(size)
        source = tmp_path / "source"
        source.write_bytes(data)
        result = cache.put_file("key", source, use, suffix=".bin")
        assert result.version == cache.info("key").version and not result.partial
        assert cache["key"] == data
        assert source.exists() == (use != "move")
        source.unlink(missing_ok=True)


def test_a_file_that_is_none(cache: hutch.Cache, tmp_path: Path) -> None:
    cache["key"] = "value"
    with pytest.raises(hutch.StorageError):
        cache.put_file("key", tmp_path / "missing")
    with pytest.raises(ValueError):
        cache.put_file("key", tmp_path)
    with pytest.raises(ValueError):
        cache.put_file("key", tmp_path / "missing", "steal")
    with pytest.raises(ValueError):
        cache.put_file("key", b"a\0b")
    assert cache["key"] == "value"


def test_a_writer_writes_bytes_only(cache: hutch.Cache) -> None:
    with cache.writer("key") as writer:
        for wrong in (5, [1], {}, "text", None, 1.5):
            with pytest.raises(TypeError, match="a writer writes bytes, not a"):
                writer.write(wrong)  # type: ignore[arg-type]
        pieces = [b"a", bytearray(b"b"), memoryview(b"c-d")[::2], array.array("h", [0])]
        assert [writer.write(piece) for piece in pieces] == [1, 1, 2, 2]  # type: ignore[arg-type]
    assert cache["key"] == b"abcd\0\0"


def test_a_value_in_pieces(cache: hutch.Cache, clock, seed: int) -> None:
    source = random.Random(seed)
    for size in SIZES:
        data = source.randbytes(size)
        with cache.writer("key", size, expire=5) as writer:
            at = 0
            while at < size:
                piece = data[at : at + source.randrange(1, 100_000)]
                assert writer.write(piece) == len(piece)
                at += len(piece)
            assert cache.get("key") is None
        assert cache["key"] == data
        assert cache.info("key").expires == clock.now / 1e9 + 5
        with pytest.raises(ValueError):
            writer.write(b"more")
        del cache["key"]


def test_a_writer_that_is_given_up(cache: hutch.Cache, tmp_path: Path) -> None:
    cache["key"] = "older"
    with pytest.raises(RuntimeError, match="of the block"), cache.writer("key") as writer:
        writer.write(bytes(500_000))
        raise RuntimeError("of the block")
    writer = cache.writer("key")
    writer.write(memoryview(bytearray(500_000)))
    writer.abort()
    with pytest.raises(ValueError):
        writer.commit()
    cache.writer("key").write(bytes(500_000))
    del writer
    gc.collect()
    assert cache["key"] == "older"
    assert not [path for path in tmp_path.rglob("*.tmp")]


def test_a_value_is_read_as_a_file(cache: hutch.Cache, seed: int) -> None:
    for size in SIZES:
        data = random.Random(seed + size).randbytes(size)
        cache["key"] = data
        with cache.read("key") as file:
            assert file.read(10) == data[:10]
            cache["key"] = "newer"
            del cache["key"]
            assert file.read() == data[10:]
            assert os.fstat(file.fileno()).st_size == size
    with pytest.raises(KeyError):
        cache.read("key")


def test_a_path_and_a_hold(directory: Path, seed: int) -> None:
    data = random.Random(seed).randbytes(100_000)
    with hutch.Cache(directory, disk=NO_LIMITS, inline_threshold=20_480) as cache:
        cache.set("large", data, suffix=".jpg")
        cache["small"] = "value"
        path = cache.path("large")
        assert path.endswith(".jpg") and path.startswith(str(directory.resolve()))
        with pytest.raises(hutch.WrongTypeError):
            cache.path("small")
        with pytest.raises(KeyError):
            cache.path("other")
        with cache.hold_files() as hold, cache.disk.hold_files():
            assert cache.delete("large") and "large" not in cache
            assert Path(path).read_bytes() == data
            hold.release()
            hold.release()
            assert Path(path).read_bytes() == data
        assert not Path(path).exists()
        for suffix in ("a/b", "0123456789abcdef"):
            with pytest.raises(ValueError):
                cache.set("large", data, suffix=suffix)


def test_a_long_path(tmp_path: Path) -> None:
    directory = tmp_path.joinpath(*["long" * 20] * 4)
    with hutch.Cache(directory, inline_threshold=20_480) as cache:
        cache["large"] = bytes(100_000)
        assert Path(cache.path("large")).stat().st_size == 100_000
