"""hutch.diskcache: Disk subclasses of a program's own, and files that they name."""

from __future__ import annotations

import io
import json
import os
import time
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from hutch.diskcache import (
    MODE_BINARY,
    MODE_RAW,
    UNKNOWN,
    Cache,
    Disk,
    EmptyDirWarning,
    FanoutCache,
    Index,
    JSONDisk,
    Timeout,
    UnknownFileWarning,
)
from hutch.diskcache._keys import QUEUE_START


class Squeezed(Disk):
    """Overrides all of put, get, store and fetch, as JSONDisk does in diskcache's docs."""

    def __init__(self, directory, level=1, **kwargs):
        self.level = level
        super().__init__(directory, **kwargs)

    def put(self, key):
        return super().put(zlib.compress(json.dumps(key).encode(), self.level))

    def get(self, key, raw):
        return json.loads(zlib.decompress(super().get(key, raw)))

    def store(self, value, read, key=UNKNOWN):
        if not read:
            value = zlib.compress(json.dumps(value).encode(), self.level)
        return super().store(value, read, key=key)

    def fetch(self, mode, filename, value, read):
        data = super().fetch(mode, filename, value, read)
        return data if read else json.loads(zlib.decompress(data))


class Negated(Disk):
    """Stores numbers of the other sign as keys."""

    def put(self, key):
        return super().put(-key)

    def get(self, key, raw):
        return -super().get(key, raw)


def test_keys_that_are_stored_as_those_of_a_queue(tmp_path):
    with Cache(tmp_path, disk=Negated) as cache:
        keys = [-QUEUE_START - n for n in range(5)]
        for key in keys:
            cache[key] = "value"
        assert list(cache) == list(cache.iterkeys()) == keys
        assert list(cache.iterkeys(reverse=True)) == keys[::-1]


@pytest.mark.parametrize("disk", [Squeezed, JSONDisk])
def test_encoding(tmp_path, disk):
    options = {"disk_level": 6} if disk is Squeezed else {"disk_compress_level": 6}
    with Cache(tmp_path, disk=disk, **options) as cache:
        values = [None, True, 0, 1.5, "text", {"a": [1, 2]}, list(range(50_000))]
        for value in values:
            cache[value] = value
        assert [cache[value] for value in values] == values
        assert list(cache) == values
        assert cache.peekitem() == (values[-1], values[-1])
        cache.set("file", io.BytesIO(b"as it is"), read=True)
        with cache.read("file") as file:
            assert file.read() == b"as it is"
    with Cache(tmp_path, disk=disk) as cache:
        assert cache[{"a": [1, 2]}] == {"a": [1, 2]}
        assert 6 in (getattr(cache.disk, "level", 0), getattr(cache.disk, "compress_level", 0))


class Named(Disk):
    """Names the values' files by their keys, and notes which are removed."""

    removed: list = []

    def filename(self, key=UNKNOWN, value=UNKNOWN):
        name = os.path.join("named", "unknown" if key is UNKNOWN else str(key))
        return name, os.path.join(self._directory, name)

    def remove(self, file_path):
        Named.removed.append(file_path)
        super().remove(file_path)


@pytest.fixture
def named(tmp_path):
    Named.removed = []
    with Cache(tmp_path, disk=Named, disk_min_file_size=10) as cache:
        yield cache


def test_files_have_their_names(named, tmp_path):
    folder = tmp_path / "named"
    named["text"] = "x" * 20
    named["bytes"] = b"y" * 20
    named["other"] = list(range(20))
    named["small"] = b"z"
    assert sorted(os.listdir(folder)) == ["bytes", "other", "text"]
    assert (folder / "bytes").read_bytes() == b"y" * 20
    assert [named[key] for key in ("text", "bytes", "small")] == ["x" * 20, b"y" * 20, b"z"]
    assert named["other"] == list(range(20))
    assert named.get("bytes", read=True).read() == b"y" * 20
    assert named.check() == []
    named["text"] = "now small"
    assert not (folder / "text").exists() and Named.removed == [os.path.join("named", "text")]
    named["bytes"] = b"w" * 30
    assert named["bytes"] == b"w" * 30
    assert not named.add("bytes", b"v" * 30)
    assert named["bytes"] == b"w" * 30
    assert named.pop("bytes") == b"w" * 30
    named.clear()
    assert not folder.exists()


def test_files_go_with_their_entries(named, tmp_path):
    # The cache's own thread would remove what has expired, and count it, before the call.
    with named._transact(False) as store:
        store.entries.suspend()
    # Nor does a set, which may itself end after the entry has.
    named.reset("cull_limit", 0)
    named.set("kept", b"x" * 20, expire=1000, tag="t")
    named.set("old", b"x" * 20, expire=0.001)
    end = time.time() + 0.001
    while time.time() <= end:
        pass
    assert named.get("old") is None
    assert named.expire() == 1
    assert os.listdir(tmp_path / "named") == ["kept"]
    assert named.touch("kept", 2000)
    assert named["kept"] == b"x" * 20
    assert named.evict("t") == 1
    assert not (tmp_path / "named").exists()


class Writes(Disk):
    """Its store writes a file, under a name of Disk's own."""

    def store(self, value, read, key=UNKNOWN):
        name, path = self.filename(key, value)
        return self._write(path, [value], "xb"), MODE_BINARY, name, None


def test_files_of_a_store_go_with_their_entries(tmp_path):
    with Cache(tmp_path, disk=Writes, size_limit=2000, cull_limit=0) as cache:
        for number in range(8):
            cache.set(number, bytes(300), tag="even" if number % 2 == 0 else "odd")
        assert cache.read(1).name.endswith(".val") and cache.check() == []
        assert cache.evict("even") == 4 and cache.cull() == 0
        del cache[1]
        assert cache.clear() == 3
        assert cache.check() == [] and not list(tmp_path.rglob("*.val"))


class Full:
    """A file whose second read fails."""

    def __init__(self):
        self.pieces = [b"x" * 20]

    def read(self, size):
        if not self.pieces:
            raise OSError("the disk is full")
        return self.pieces.pop()


def test_a_call_that_fails_leaves_no_file(named, tmp_path):
    for call in (named.set, named.add):
        with pytest.raises(TypeError):
            call("key", b"x" * 20, expire="soon")
    with pytest.raises(TypeError):
        named.push(b"x" * 20, expire="soon")
    with pytest.raises(TypeError, match="reads text"):
        named.set("key", io.StringIO("text"), read=True)
    with pytest.raises(OSError, match="full"):
        named.set("key", Full(), read=True)
    assert not (tmp_path / "named").exists()
    other = Cache(tmp_path, timeout=0.01, disk=Named, disk_min_file_size=10)
    with named.transact(), ThreadPoolExecutor(1) as thread:
        for call in (lambda: other.set("key", b"x" * 20), lambda: other.push(b"x" * 20)):
            with pytest.raises(Timeout):
                thread.submit(call).result()
    assert not (tmp_path / "named").exists() and len(named) == 0 and named.check() == []
    assert named.push(b"x" * 20) and named.pull()[1] == b"x" * 20


def test_a_missing_file_is_a_miss(named, tmp_path):
    named["a"] = b"x" * 20
    named["b"] = 1
    os.remove(tmp_path / "named" / "a")
    assert named.get("a", "none") == "none"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(named.check()) == 2
        assert len(named.check(fix=True)) == 1  # The folder goes with its last file.
    assert named.check() == []
    assert list(named) == ["b"]


def test_setdefault_of_a_missing_file(named, tmp_path):
    index = Index.fromcache(named, {"a": b"x" * 20})
    os.remove(tmp_path / "named" / "a")
    assert index.setdefault("a", b"y" * 20) == b"y" * 20
    assert index.setdefault("a", 1) == b"y" * 20 and named.check() == []


class Filed(Disk):
    """Has each value in a file."""

    def filename(self, key=UNKNOWN, value=UNKNOWN):
        return super().filename(key, value)


@pytest.mark.parametrize("disk", [Disk, Filed])
def test_an_expired_entry_after_a_transaction_that_is_undone(tmp_path, disk):
    """It counts as before, until expire(), and keeps its file until then."""
    with Cache(tmp_path, disk=disk, disk_min_file_size=1, cull_limit=0) as cache:
        cache.set("key", b"old", expire=-1)
        with pytest.raises(ZeroDivisionError), cache.transact():
            cache["key"] = b"new" + bytes(1 // 0)
        with pytest.raises(ZeroDivisionError), cache.transact():
            cache["key"] = b"new"
            cache["key"] = b"newer" + bytes(1 // 0)
        assert "key" not in cache and len(cache) == 1
        assert cache.check() == []
        assert cache.expire() == 1
        assert len(cache) == 0 and cache.check() == []


def test_files_of_a_transaction(named, tmp_path):
    named["a"] = b"x" * 20
    with pytest.raises(KeyError):
        with named.transact():
            named["b"] = b"y" * 20
            del named["a"]
            raise KeyError
    assert os.listdir(tmp_path / "named") == ["a"]
    assert named["a"] == b"x" * 20 and "b" not in named
    with named.transact():
        del named["a"]
        assert (tmp_path / "named" / "a").exists()
    assert not (tmp_path / "named").exists()


def test_unknown_files_and_empty_folders(named, tmp_path):
    (tmp_path / "named").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "named" / "lost").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds = {each.category for each in named.check(fix=True)}
        named.check(fix=True)
    assert kinds == {UnknownFileWarning, EmptyDirWarning}
    assert named.check() == [] and not (tmp_path / "empty").exists()


class OwnModes(Disk):
    """Makes all columns by itself."""

    def store(self, value, read, key=UNKNOWN):
        return 0, MODE_RAW, None, memoryview(repr(value).encode())

    def fetch(self, mode, filename, value, read):
        assert mode == MODE_RAW and filename is None
        return bytes(value).decode()


def test_columns_of_its_own(tmp_path):
    with Cache(tmp_path, disk=OwnModes) as cache:
        cache["a"] = [1]
        assert cache["a"] == "[1]"
        assert cache.push({1}) and cache.pull()[1] == "{1}"
    with FanoutCache(tmp_path / "fanout", shards=2, disk=OwnModes) as cache:
        cache["a"] = [1]
        assert cache["a"] == "[1]"


def test_modes_of_the_default():
    disk = Disk("unused", min_file_size=10)
    assert disk.store(1, False) == (0, MODE_RAW, None, 1)
    assert disk.store(b"x" * 10, False)[1] == MODE_BINARY
    assert disk.put("a") == ("a", True)
    assert disk.put((1,))[1] is False
    assert disk.get(*disk.put((1, None))) == (1, None)
    assert disk.hash(1) == disk.hash(1.0)


@pytest.mark.parametrize("filename", ["../secret", "/etc/passwd", "a/../../secret", "a\0b"])
def test_a_stored_name_that_leads_elsewhere_is_a_miss(named, tmp_path, filename):
    secret = tmp_path.parent / "secret"
    secret.write_text("secret")
    named["a"] = b"x" * 20
    store = named._open()
    record = store.find("a")._replace(filename=filename)
    store.entries["a"] = record.encode(True)
    assert named.get("a") is None and "a" not in named
    assert named.pop("a", "none") == "none"
    named["a"] = 1
    assert named["a"] == 1 and secret.read_text() == "secret"
