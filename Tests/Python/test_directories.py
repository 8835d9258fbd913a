"""Directories: which can be used, what is in them, and what is left alone."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import sqlite3
import stat
from pathlib import Path

import hutch
import pytest
from conftest import NO_LIMITS


def snapshot(directory: Path) -> dict[str, bytes]:
    """Every file with its content."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else b"(directory)"
        for path in sorted(directory.rglob("*"))
    }


def large_files(directory: Path, size: int) -> int:
    return sum(1 for path in directory.rglob("*") if path.is_file() and path.stat().st_size == size)


def test_a_directory_is_made_with_its_parents(tmp_path):
    directory = tmp_path / "a" / "b" / "c"
    with hutch.Cache(directory) as cache:
        cache["k"] = 1
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert (directory / "manifest.sqlite").is_file()


@pytest.mark.parametrize("name", [b"caf\xe9 \xff", "ünïcode ☃".encode(), b" ", b"a'b\"c?#%&"])
def test_any_path(tmp_path, name):
    directory = os.path.join(os.fsencode(tmp_path), name)
    with hutch.Cache(directory) as cache:
        cache["k"] = 1
        assert cache.directory == os.fsdecode(directory)
    assert os.path.exists(os.path.join(directory, b"manifest.sqlite"))
    assert os.listdir(os.fsencode(tmp_path)) == [name]
    with hutch.Cache(directory) as cache:
        assert cache["k"] == 1


def test_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with hutch.Cache("here") as cache:
        cache["k"] = b"x" * 100_000
        monkeypatch.chdir("/")
        # The directory is what was opened, wherever the process has gone since.
        cache["l"] = b"y" * 100_000
        cache.memory.clear()
        assert cache["k"] == b"x" * 100_000 and cache["l"] == b"y" * 100_000
    assert (tmp_path / "here" / "manifest.sqlite").is_file()


def test_nothing_is_left_behind_by_a_cache_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with hutch.Cache() as cache:
        cache["k"] = b"x" * 1_000_000
        assert cache.directory is None
    assert list(tmp_path.iterdir()) == []


def test_paths_that_are_none():
    with pytest.raises(hutch.InvalidArgumentError, match="^the directory's path is empty"):
        hutch.Cache("")
    with pytest.raises(ValueError, match="NUL"):
        hutch.Cache("a\0b")
    with pytest.raises(TypeError):
        hutch.Cache(5)  # type: ignore[arg-type]


def test_a_file_is_no_directory(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    for path in (file, file / "below"):
        with pytest.raises(hutch.BadDirectoryError) as caught:
            hutch.Cache(path)
        assert isinstance(caught.value, OSError) and caught.value.words
    assert snapshot(tmp_path) == {"file": b"mine"}


@pytest.mark.parametrize("path", ["/proc/hutch", "/dev/null/hutch", "/sys/hutch"])
def test_where_no_directory_can_be_made(path):
    with pytest.raises(hutch.BadDirectoryError):
        hutch.Cache(path)


def test_a_path_that_is_too_long(tmp_path):
    with pytest.raises(hutch.BadDirectoryError):
        hutch.Cache(tmp_path / ("x" * 300))
    with pytest.raises(hutch.BadDirectoryError):
        hutch.Cache("x/" * 3000)


@pytest.mark.parametrize("storage", ["mixed", "sqlite", "file"])
def test_everything_is_there_again(directory, storage):
    expected = {
        "text": "naïve",
        b"bytes": b"\x00" * 50_000,
        7: [1, {"a": None}],
        "n": 5,
        "empty": b"",
        "large": b"x" * 3_000_000,
    }
    for _ in range(3):
        with hutch.Cache(directory, storage=storage) as cache:
            for key, value in expected.items():
                assert cache.get(key, value) == value
                cache.set(key, value, expire=1000, cost=5)
        with hutch.Cache(directory, storage=storage) as cache:
            assert dict(cache.items()) == expected and len(cache) == len(expected)
            for key in expected:
                info = cache.info(key)
                assert info.cost == 5 and info.expires == pytest.approx(info.created + 1000)
            assert cache.delete("large") and cache.delete("text")
        with hutch.Cache(directory, storage=storage) as cache:
            assert "large" not in cache and "text" not in cache and len(cache) == 4


def test_a_clear_stays_cleared(directory):
    with hutch.Cache(directory) as cache:
        for number in range(50):
            cache[number] = b"x" * number * 1000
        cache.clear()
        cache["k"] = 1
    with hutch.Cache(directory) as cache:
        assert dict(cache.items()) == {"k": 1} and len(cache) == 1


# -------------------------------------------------------------------- storage


@pytest.mark.parametrize(
    "storage, inline, beside", [("mixed", 1, 1), ("sqlite", 2, 0), ("file", 0, 2)]
)
def test_where_values_are_kept(directory, storage, inline, beside):
    with hutch.Cache(directory, storage=storage, inline_threshold=5000) as cache:
        cache["small"] = b"s" * 5000
        cache["large"] = b"l" * 5001
        assert large_files(directory, 5000) + large_files(directory, 5001) == beside
    with hutch.Cache(directory) as cache:
        assert cache["small"] == b"s" * 5000 and cache["large"] == b"l" * 5001


def test_the_threshold_of_a_database_is_20480_bytes(directory):
    with hutch.Cache(directory, storage="mixed") as cache:
        cache["small"] = b"s" * 20480
        cache["large"] = b"l" * 20481
        assert large_files(directory, 20480) == 0 and large_files(directory, 20481) == 1


def test_the_kind_of_a_directory_is_settled(directory):
    with hutch.Cache(directory, storage="sqlite") as cache:
        cache["k"] = 1
    for storage in (None, "sqlite", "file", "log"):
        differs = storage in ("file", "log")
        warned = pytest.warns(hutch.OptionsDifferWarning) if differs else contextlib.nullcontext()
        with warned, hutch.Cache(directory, storage=storage) as cache:
            assert cache["k"] == 1
            cache["large"] = b"x" * 100_000
            assert large_files(directory, 100_000) == 0
    with pytest.raises(ValueError, match="storage is"):
        hutch.Cache(directory, storage="cloud")


@pytest.mark.parametrize("storage", ["mixed", "file"])
def test_files_of_replaced_and_removed_values_go(directory, storage):
    with hutch.Cache(directory, storage=storage, disk=NO_LIMITS) as cache:
        for number in range(30):
            cache["same"] = b"x" * (100_000 + number)
            cache[number] = b"y" * 50_000
        for number in range(30):
            cache.delete(number)
        cache["same"] = b""
    with hutch.Cache(directory) as cache:
        cache.flush()
        assert cache["same"] == b""
    # Trash is emptied off every caller's path; what closing leaves, opening goes on with.
    for _ in range(50):
        if sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) < 500_000:
            break
        with hutch.Cache(directory) as cache:
            cache.flush()
    else:
        pytest.fail(f"files stay: {sorted(snapshot(directory))}")


# ------------------------------------------------- manifests that are not ours


def change_manifest(directory: Path, *statements: str) -> None:
    """With the cache closed: no other time is safe."""
    database = sqlite3.connect(directory / "manifest.sqlite")
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()


def filled(directory: Path, storage: str | None = None) -> None:
    with hutch.Cache(directory, storage=storage) as cache:
        for number in range(20):
            cache[number] = b"x" * (number * 3000)


def test_a_newer_format_is_not_touched(directory):
    filled(directory, "mixed")
    change_manifest(directory, "PRAGMA user_version = 1000000")
    before = snapshot(directory)
    for _ in range(2):
        with pytest.raises(hutch.NewerFormatError):
            hutch.Cache(directory)
    assert snapshot(directory) == before


contents = pytest.mark.parametrize(
    "content", [b"", b"no database at all" * 1000, b"SQLite format 3\0", bytes(8192)]
)


def check_kept_aside(directory, content):
    kept = [path for path in directory.rglob("*") if path.is_file()]
    kept.remove(directory / "manifest.sqlite")
    assert not content or content in [path.read_bytes() for path in kept], "it was not kept aside"


@contents
def test_a_manifest_that_is_no_database_is_set_aside(directory, content):
    filled(directory, "mixed")
    (directory / "manifest.sqlite").write_bytes(content)
    with hutch.Cache(directory) as cache:
        assert len(cache) == 0 and list(cache) == []
        assert [cache.get(number) for number in range(20)] == [None] * 20
        cache["k"] = b"x" * 50_000
    check_kept_aside(directory, content)
    with hutch.Cache(directory) as cache:
        assert dict(cache.items()) == {"k": b"x" * 50_000}


@contents
def test_a_log_keeps_its_entries_without_the_file_that_names_it(directory, content):
    filled(directory, "log")
    (directory / "manifest.sqlite").write_bytes(content)
    with hutch.Cache(directory) as cache:
        assert len(cache) == 20 and cache.options().storage == "log"
        assert [cache[number] for number in range(20)] == [b"x" * (i * 3000) for i in range(20)]
        check_kept_aside(directory, content)


def test_a_directory_with_files_of_others(directory):
    others = {
        "notes.txt": b"mine",
        "lock": b"mine too",
        "trash/thesis.docx": b"years",
        "trash/0123456789abcdef": b"digits",
        "content/01/0123456789abcdef": b"digits",
        "damaged-photos": b"of the storm",
        "manifest.new": b"and a list",
    }
    for name, content in others.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    before = snapshot(directory)
    with pytest.raises(hutch.BadDirectoryError) as caught:
        hutch.Cache(directory)
    assert str(directory) in caught.value.words and "not empty" in caught.value.words
    assert snapshot(directory) == before

    for _ in range(3):
        with hutch.Cache(directory, nonempty=True, workers=0) as cache:
            for number in range(5):
                cache[number] = b"x" * 50_000
            cache.maintain()
            cache.clear()
            cache.check()
            cache.maintain()
    # It is a cache's by now.
    with hutch.Cache(directory) as cache:
        cache["k"] = 1
    after = snapshot(directory)
    assert {name: after[name] for name in others} == others


@pytest.mark.parametrize("storage", ["mixed", "log"])
def test_a_cache_whose_directory_was_removed_closes_well(directory, storage):
    cache = hutch.Cache(directory, storage=storage)
    cache["k"] = b"x" * 2_000_000
    shutil.rmtree(directory)
    cache.close()

    cache = hutch.Cache(directory, storage=storage, workers=0)
    cache["k"] = b"x" * 2_000_000
    for path in directory.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    cache.close()
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("storage", ["mixed", "log"])
def test_what_a_removal_beside_a_cache_may_leave_is_no_obstacle(directory, storage):
    for name in ("hutch-checkpoint", "hutch-log.new", "trash/hutch-0123456789abcdef.txt"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(b"x")
    (directory / "trash" / "notes").write_bytes(b"mine")
    with pytest.raises(hutch.BadDirectoryError):
        hutch.Cache(directory, storage=storage)
    (directory / "trash" / "notes").unlink()
    with hutch.Cache(directory, storage=storage) as cache:
        cache["k"] = "v"
    with hutch.Cache(directory) as cache:
        assert cache["k"] == "v"
    assert hutch.destroy(directory) and not directory.exists()


@pytest.mark.parametrize("storage", ["mixed", "log"])
def test_a_closed_cache_holds_no_descriptor(directory, storage):
    def descriptors() -> list[str]:
        links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
        return [os.readlink(link) for link in links if os.path.lexists(link)]

    cache = hutch.Cache(directory, storage=storage)
    cache["k"] = b"x" * 100_000
    assert any(str(directory) in name for name in descriptors())
    cache.close()
    assert not any(str(directory) in name for name in descriptors())


def test_too_many_open_files_say_nothing_of_the_directory(directory):
    filled(directory)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for free in range(8):
        held = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        try:
            with contextlib.suppress(OSError):
                while True:
                    held.append(os.open("/", os.O_RDONLY))
            for number in held[len(held) - free :]:
                os.close(number)
            del held[len(held) - free :]
            with contextlib.suppress(hutch.StorageError), hutch.Cache(directory, workers=0):
                pass
        finally:
            for number in held:
                os.close(number)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with hutch.Cache(directory) as cache:
        assert len(cache) == 20


def test_destroy_removes_what_the_library_has_made(tmp_path):
    directory = tmp_path / "cache"
    assert not hutch.destroy(directory)
    with hutch.Cache(directory, storage="file") as cache:
        cache["k"] = b"x" * 100_000
        with pytest.raises(hutch.BusyError):
            hutch.destroy(directory)
        assert cache["k"] == b"x" * 100_000
    (directory / "notes").write_text("mine")
    assert hutch.destroy(str(directory))
    assert snapshot(directory) == {"notes": b"mine"}
    assert not hutch.destroy(os.fsencode(directory))
    (directory / "notes").unlink()
    hutch.Cache(directory).close()
    assert hutch.destroy(directory) and not directory.exists()


def test_destroy_refuses_what_is_no_directory_of_a_cache(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(hutch.BadDirectoryError):
        hutch.destroy(file)
    assert file.read_text() == "mine"
    for wrong in (None, 1, "", "a\0b"):
        with pytest.raises((TypeError, ValueError, hutch.InvalidArgumentError)):
            hutch.destroy(wrong)
