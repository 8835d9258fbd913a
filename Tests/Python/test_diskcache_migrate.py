"""python -m hutch.diskcache migrate, on directories as python-diskcache 5.6.3 writes them."""

from __future__ import annotations

import hashlib
import json
import pickle
import sqlite3
import time
import zlib
from pathlib import Path

import pytest
from processes import finished

from hutch.diskcache import Cache, Deque, FanoutCache, JSONDisk, PickleDisk, migrate
from hutch.diskcache import __main__

BINARY, TEXT, PICKLE = 2, 3, 4
TABLE = """CREATE TABLE Cache (rowid INTEGER PRIMARY KEY, key BLOB, raw INTEGER, store_time REAL,
expire_time REAL, access_time REAL, access_count INTEGER DEFAULT 0, tag BLOB,
size INTEGER DEFAULT 0, mode INTEGER DEFAULT 0, filename TEXT, value BLOB)"""


class Old:
    """A directory of python-diskcache."""

    def __init__(self, path: Path, **settings) -> None:
        path.mkdir(parents=True)
        self.path = path
        self.database = sqlite3.connect(path / "cache.db", isolation_level=None)
        self.database.execute("PRAGMA journal_mode = wal")
        self.database.execute("CREATE TABLE Settings (key TEXT NOT NULL UNIQUE, value)")
        self.database.executemany("INSERT INTO Settings VALUES (?, ?)", settings.items())
        self.database.execute(TABLE)

    def put(self, key, value, mode=1, raw=1, filename=None, expire=None, tag=None):
        row = key, raw, expire, tag, mode, filename, value
        names = "key, raw, expire_time, tag, mode, filename, value"
        self.database.execute(f"INSERT INTO Cache ({names}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def file(self, name: str, data: bytes) -> str:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return name

    def close(self) -> None:
        self.database.close()


class Evil:
    ran = False

    def __reduce__(self):
        return Evil.run, ()

    @staticmethod
    def run():
        Evil.ran = True
        return "ran"


@pytest.fixture
def old(tmp_path):
    old = Old(tmp_path / "old", size_limit=12345678, eviction_policy="least-recently-used")
    later = time.time() + 1000
    old.put("text", "value", expire=later, tag="tag")
    old.put(5, 7)
    old.put(1.5, 2.5, tag=9)
    old.put(b"bytes", b"\0\xff")
    old.put("large", None, BINARY, filename=old.file("aa/bb/1.val", b"x" * 100_000))
    old.put("long text", None, TEXT, filename=old.file("aa/bb/2.val", "ü".encode() * 50_000))
    old.put("over", 1, expire=time.time() - 1)
    old.put("pickle", pickle.dumps(Evil()), PICKLE)
    old.put(pickle.dumps((1, Evil)), 1, raw=0)
    old.put("outside", None, BINARY, filename="../secret")
    old.put("lost", None, BINARY, filename="aa/bb/lost.val")
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "old" / "link").symlink_to(tmp_path / "secret")
    old.put("by a link", None, BINARY, filename="link")
    yield old
    old.close()


def digests(path: Path) -> dict[str, str]:
    files = [each for each in path.rglob("*") if each.is_file() and each.suffix != ".db-shm"]
    return {str(each): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


@pytest.mark.parametrize("is_open", [True, False])
def test_a_cache(old, tmp_path, is_open):
    if not is_open:
        old.close()
    before = digests(old.path)
    told = []
    report = migrate(old.path, tmp_path / "new", progress=lambda *each: told.append(each))
    assert report[:4] == (6, 1, 2, 3) and report.size > 150_000
    assert told == [(number, 12) for number in range(1, 13)]
    assert not Evil.ran
    assert digests(old.path) == before
    with Cache(tmp_path / "new") as cache:
        assert list(cache) == ["text", 5, 1.5, b"bytes", "large", "long text"]
        value, end, tag = cache.get("text", expire_time=True, tag=True)
        assert (value, tag) == ("value", "tag") and end == pytest.approx(time.time() + 1000, abs=60)
        assert cache.get(1.5, tag=True) == (2.5, 9)
        assert cache[b"bytes"] == b"\0\xff" and cache["large"] == b"x" * 100_000
        assert cache["long text"] == "ü" * 50_000
        assert (cache.size_limit, cache.cull_limit) == (12345678, 10)
        assert cache.eviction_policy == "least-recently-used"
        assert cache.check() == []
        # hutch ends the entry, which need not wait for a set.
        assert cache._open().entries.info("text").expires == pytest.approx(end)


@pytest.mark.parametrize("is_fanout", [True, False])
def test_what_ends_early_leaves_the_settings(tmp_path, is_fanout):
    """Else a new directory that is used as it is would never evict."""
    path = tmp_path / "old" / "000" if is_fanout else tmp_path / "old"
    shard = Old(path, size_limit=1_000_000, eviction_policy="least-recently-used", cull_limit=7)
    for number in range(3):
        shard.put(number, number, expire=time.time() + 1000)
    shard.close()

    def stop(done, _):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate(tmp_path / "old", tmp_path / "new", progress=stop)
    with Cache(tmp_path / "new" / "000" if is_fanout else tmp_path / "new") as cache:
        assert (cache.cull_limit, cache.eviction_policy) == (7, "least-recently-used")
        assert cache.size_limit == 1_000_000 and list(cache) == [0, 1]


@pytest.mark.parametrize("shards", [0, 1])
def test_the_settings_of_a_disk_of_the_programs_own(tmp_path, shards):
    """The bytes of a key of JSONDisk depend on its disk_compress_level."""
    old = Old(tmp_path / "old" / ("000" if shards else ""), disk_compress_level=9, size="none", own=7)
    for key in ("a", [1, "two"]):
        both = (zlib.compress(json.dumps(each).encode(), 9) for each in (key, {"key": key}))
        old.put(*both)
    old.close()
    assert migrate(tmp_path / "old", tmp_path / "new").copied == 2
    if shards:
        cache = FanoutCache(tmp_path / "new", shards=1, disk=JSONDisk)
    else:
        cache = Cache(tmp_path / "new", disk=JSONDisk)
    with cache:
        assert cache["a"] == {"key": "a"} and cache[[1, "two"]] == {"key": [1, "two"]}
        assert cache.disk.compress_level == 9
    with Cache(tmp_path / "new" / ("000" if shards else ""), disk=JSONDisk) as cache:
        assert cache.own == 7 and cache.size_limit == 2**30 and cache.size > 0


def test_nothing_is_evicted_meanwhile(tmp_path):
    old = Old(tmp_path / "old", size_limit=1000, cull_limit=10)
    for number in range(100):
        old.put(number, "x" * 100)
    old.close()
    assert migrate(tmp_path / "old", tmp_path / "new").copied == 100
    with Cache(tmp_path / "new") as cache:
        assert len(cache) == 100
        cache["more"] = 1
        assert len(cache) == 91


def test_a_fanout_cache_without_one_of_its_shards(tmp_path):
    """The others are as many as they were: a key's shard depends on their number."""
    for number in (0, 2, 3):
        shard = Old(tmp_path / "old" / f"{number:03d}", size_limit=1000)
        shard.put(f"in {number}", number)
        shard.close()
    assert migrate(tmp_path / "old", tmp_path / "new").copied == 3
    with Cache(tmp_path / "new" / "001") as shard:
        assert shard.size_limit == 1000
    with FanoutCache(tmp_path / "new", shards=4) as cache:
        assert [cache.get(f"in {number}") for number in range(4)] == [0, None, 2, 3]


def test_pickles_when_asked_for(old, tmp_path):
    old.database.execute("DELETE FROM Cache WHERE key = 'pickle'")
    old.put("list", pickle.dumps([1, {2}]), PICKLE)
    old.put("broken", b"\x80\x05garbage", PICKLE)
    report = migrate(old.path, tmp_path / "new", pickle=True)
    assert report[:4] == (8, 1, 0, 4)
    with Cache(tmp_path / "new", disk=PickleDisk) as cache:
        assert cache["list"] == [1, {2}] and cache[1, Evil] == 1


def test_a_fanout_cache_with_a_deque(tmp_path):
    for number in range(2):
        shard = Old(tmp_path / "old" / f"{number:03d}", size_limit=1000000)
        shard.put(f"in {number}", number)
        shard.close()
    deque = Old(tmp_path / "old" / "deque" / "jobs", eviction_policy="none")
    for number in range(3):
        deque.put(500_000_000_000_000 + number, f"job {number}")
    deque.close()
    assert migrate(tmp_path / "old", tmp_path / "new").copied == 5
    with FanoutCache(tmp_path / "new", shards=2) as cache:
        assert set(cache) == {"in 0", "in 1"} and cache["in 1"] == 1
        jobs = cache.deque("jobs")
        jobs.append("job 3")
        assert list(jobs) == [f"job {number}" for number in range(4)]
    again = Deque(directory=tmp_path / "new" / "deque" / "jobs")
    assert again.popleft() == "job 0"


def test_what_is_wrong(old, tmp_path):
    (tmp_path / "none").mkdir()
    with pytest.raises(FileNotFoundError, match="cache.db"):
        migrate(tmp_path / "none", tmp_path / "new")
    with pytest.raises(FileExistsError, match="not empty"):
        migrate(old.path, old.path)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    with pytest.raises(FileExistsError, match="not empty"):
        migrate(old.path, tmp_path / "used")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "cache.db").write_bytes(b"no database" * 100)
    with pytest.raises(sqlite3.DatabaseError):
        migrate(tmp_path / "bad", tmp_path / "new")


def command(*arguments):
    return finished("-m", "hutch.diskcache", *arguments)


def test_the_command(old, tmp_path):
    done = command("migrate", old.path, tmp_path / "new")
    assert done.returncode == 3, done.stderr
    assert "copied:  6 entries" in done.stdout and "--pickle reads them" in done.stdout
    assert "'lost'" in done.stdout and "not in the directory" in done.stdout
    assert done.stderr.endswith("[" + "#" * 40 + "] 12 of 12\n")
    again = command("migrate", old.path, tmp_path / "new")
    assert again.returncode == 1 and "is not empty" in again.stderr
    quiet = command("migrate", "--quiet", old.path, tmp_path / "other")
    assert quiet.stderr == ""


def test_rows_that_no_cache_has_written(tmp_path):
    old = Old(tmp_path / "old")
    old.put("soon", 1, expire="soon")
    old.put("for ever", 2, expire=float("inf"))
    old.put("mode", 3, mode="raw")
    old.put("file", None, mode=TEXT, filename="nul\0", tag="t")
    old.put("name", None, mode=TEXT, filename="x" * 5000)
    old.put("text", 4)
    old.database.execute("UPDATE Cache SET value = CAST(x'fe' AS TEXT) WHERE key = 'text'")
    old.put("last", 5)
    old.close()
    report = migrate(old.path, tmp_path / "new")
    assert (report.copied, report.damaged) == (3, 4), report
    with Cache(tmp_path / "new") as cache:
        assert list(cache) == ["for ever", "text", "last"] and cache["last"] == 5


def test_a_page_that_is_damaged(tmp_path):
    old = Old(tmp_path / "old")
    old.database.execute("CREATE UNIQUE INDEX Cache_key_raw ON Cache(key, raw)")
    for number in range(1000):
        old.put(number, b"x" * 1000 + b"entry %d." % number)
    (page_size,) = old.database.execute("PRAGMA page_size").fetchone()
    old.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    old.close()
    with open(old.path / "cache.db", "r+b") as file:
        place = file.read().index(b"entry 700.")
        file.seek(place // page_size * page_size)
        file.write(b"\xff" * page_size)
    seen = []
    report = migrate(old.path, tmp_path / "new", progress=lambda *counts: seen.append(counts))
    assert 600 < report.copied <= 700 and report.copied + report.damaged == 1000
    assert "malformed" in report.problems[-1] and seen[-1] == (1000, 1000)
    with Cache(tmp_path / "new") as cache:
        assert list(cache) == list(range(report.copied))


def test_ctrl_c_during_the_command(old, tmp_path, monkeypatch, capsys):
    def interrupt(done, total):
        if done == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(__main__, "_bar", interrupt)
    assert __main__.main(["migrate", str(old.path), str(tmp_path / "new")]) == 130
    assert f"{tmp_path / 'new'} has a part of the entries" in capsys.readouterr().err
