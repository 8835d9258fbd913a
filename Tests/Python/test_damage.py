"""Damage is contained: what was damaged is a miss, and nothing else is lost."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from pathlib import Path
from typing import Callable

import hutch
import pytest
from conftest import NO_LIMITS

OPTIONS = {"memory": NO_LIMITS, "disk": NO_LIMITS}


def fill(directory: Path, storage: str) -> dict[str, bytes]:
    """Values that can be told apart by their bytes, half of them with files of their own."""
    expected = {
        f"key-{number}": (b"value %d " % number) * (5 if number % 2 else 4000)
        for number in range(20)
    }
    with hutch.Cache(directory, storage=storage, **OPTIONS) as cache:
        for key, value in expected.items():
            cache[key] = value
    return expected


def file_of(directory: Path, value: bytes) -> Path:
    (found,) = (p for p in directory.rglob("*") if p.is_file() and p.read_bytes() == value)
    return found


def judge(directory: Path, expected: dict[str, bytes], damaged: str) -> None:
    """The damaged entry is a miss that is counted and removed; the others are as they were."""
    with hutch.Cache(directory, **OPTIONS) as cache:
        assert cache.get(damaged) is None
        assert damaged not in cache
        assert cache.stats().disk.damaged == 1
        others = {key: value for key, value in expected.items() if key != damaged}
        assert {key: cache.get(key) for key in others} == others
        assert dict(cache.items()) == others
        cache.flush()
    with hutch.Cache(directory, **OPTIONS) as cache:
        assert dict(cache.items()) == others and len(cache) == 19
        assert cache.get(damaged) is None
        cache[damaged] = b"anew"
        assert cache[damaged] == b"anew" and len(cache) == 20
        assert cache.stats().disk.damaged == 0


def flip(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :]


FILE_DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "first byte": lambda data: flip(data, 0),
    "middle": lambda data: flip(data, len(data) // 2),
    "last byte": lambda data: flip(data, len(data) - 1),
    "truncated": lambda data: data[:-1],
    "cut in half": lambda data: data[: len(data) // 2],
    "emptied": lambda data: b"",
    "longer": lambda data: data + b"!",
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("damage", FILE_DAMAGES.values(), ids=FILE_DAMAGES.keys())
@pytest.mark.parametrize("storage", ["mixed", "file"])
def test_a_damaged_content_file(directory, storage, damage):
    expected = fill(directory, storage)
    file = file_of(directory, expected["key-8"])
    file.write_bytes(damage(expected["key-8"]))
    judge(directory, expected, "key-8")


@pytest.mark.parametrize("storage", ["mixed", "file"])
def test_a_content_file_that_is_gone(directory, storage):
    expected = fill(directory, storage)
    file_of(directory, expected["key-8"]).unlink()
    judge(directory, expected, "key-8")


def test_a_directory_in_place_of_a_content_file(directory):
    expected = fill(directory, "file")
    file = file_of(directory, expected["key-8"])
    file.unlink()
    file.mkdir()
    judge(directory, expected, "key-8")


def test_a_content_file_with_the_value_of_another(directory):
    expected = fill(directory, "file")
    file = file_of(directory, expected["key-8"])
    file.write_bytes(expected["key-10"])
    judge(directory, expected, "key-8")


@pytest.mark.parametrize("storage", ["mixed", "sqlite"])
@pytest.mark.parametrize("damage", ["other bytes", "shorter", "null", "integer"])
def test_a_damaged_row(directory, storage, damage):
    expected = fill(directory, storage)
    old = expected["key-7"]
    new = {"other bytes": flip(old, 3), "shorter": old[:-1], "null": None, "integer": 7}[damage]
    database = sqlite3.connect(directory / "manifest.sqlite")
    changed = 0
    for (table,) in database.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table'"
    ).fetchall():
        for _, column, *_ in database.execute(f'PRAGMA table_info("{table}")').fetchall():
            changed += database.execute(
                f'UPDATE "{table}" SET "{column}" = ? WHERE "{column}" = ?', (new, old)
            ).rowcount
    database.commit()
    database.close()
    assert changed == 1, "the value is not where this test looks for it"
    judge(directory, expected, "key-7")


@pytest.mark.parametrize("storage", ["mixed", "sqlite", "file"])
def test_a_manifest_with_damaged_pages(directory, storage, seed):
    """An entry is whole or a miss, and the cache can be used, however SQLite judges the damage."""
    source = random.Random(seed)
    expected = fill(directory, storage)
    manifest = directory / "manifest.sqlite"
    sound = manifest.read_bytes()
    for round in range(25):
        damaged = bytearray(sound)
        for _ in range(source.choice((1, 1, 5, 50))):
            place = source.randrange(len(damaged))
            size = source.choice((1, 8, 512, 4096))
            damaged[place : place + size] = source.randbytes(len(damaged[place : place + size]))
        manifest.write_bytes(damaged)
        # The damage may have hit the number of the format or of the application, or show
        # only while the manifest is in use.
        with (
            contextlib.suppress(
                hutch.NewerFormatError,
                hutch.BadDirectoryError,
                hutch.StorageError,
                hutch.TierDownError,
            ),
            hutch.Cache(directory, **OPTIONS) as cache,
        ):
            for key, value in expected.items():
                with contextlib.suppress(hutch.StorageError):
                    assert cache.get(key) in (None, value), (round, key)
        # The next round starts from a manifest whose entries' files may have gone since.
        for path in directory.iterdir():
            if path.is_file() and path.name.startswith("manifest.sqlite"):
                path.unlink()
        manifest.write_bytes(sound)
    with hutch.Cache(directory, **OPTIONS) as cache:
        for key, value in expected.items():
            assert cache.get(key) in (None, value)
        cache["k"] = 1
        assert cache["k"] == 1


@pytest.mark.parametrize("storage", ["mixed", "sqlite", "file"])
def test_check_repairs(tmp_path, storage):
    expected = fill(tmp_path, storage)
    with hutch.Cache(tmp_path, **OPTIONS) as cache:
        report = cache.check()
        assert not report and report.entries == len(expected) and report.bytes > 0
        assert not cache.check(quick=True)
        assert not cache.disk.check()
        with pytest.raises(hutch.UnsupportedError):
            cache.memory.check()
    with contextlib.closing(sqlite3.connect(tmp_path / "manifest.sqlite")) as manifest:
        manifest.execute("UPDATE entries SET checksum = checksum + 1 WHERE slot IN (2, 3)")
        manifest.commit()
    with hutch.Cache(tmp_path, **OPTIONS) as cache:
        report = cache.check()
        assert report and report.damaged == 2 and report.entries == len(expected) - 2
        assert not cache.check()
        assert len(cache) == len(expected) - 2
