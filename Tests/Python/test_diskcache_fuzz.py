"""hutch.diskcache: mutated entries and counters are misses or errors with words, never a crash."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil

import pytest
from conftest import examples
from hypothesis import given
from hypothesis import strategies as st

from hutch.diskcache import MODE_PICKLE, Cache, Disk, JSONDisk, PickleDisk, PickleRefusedError
from hutch.diskcache._keys import hutch_key
from hutch.diskcache._record import Record

VALUES = [1, "text", b"bytes", 2.5, None, (1, {2}), {"a": [1.5]}, "x" * 40_000, 2**80]


@given(data=st.binary(max_size=80), extended=st.binary(max_size=60), long=st.booleans())
def test_any_bytes_are_a_record_or_none(data, extended, long):
    record = Record.decode(data, b"dc1:" + extended if long else extended)
    assert record is None or record.encode(False)


def test_mutated_entries(tmp_path, seed):
    chance = random.Random(seed)
    with Cache(tmp_path) as cache:
        entries = cache._open().entries
        for number in range(examples(1500)):
            value = VALUES[number % len(VALUES)]
            cache.set("key", value, tag="tag", expire=1000)
            data, extended = entries["key"]
            which = bytearray(data if chance.random() < 0.5 else extended)
            for _ in range(chance.randint(1, 3)):
                if which:
                    which[chance.randrange(min(len(which), 200))] = chance.randrange(256)
            if chance.random() < 0.2:
                del which[chance.randrange(len(which) + 1) :]
            if len(which) and bytes(which[:2]) == bytes(data[:2]):
                entries["key"] = bytes(which), extended
            else:
                entries["key"] = data, bytes(which)
            try:
                cache.get("key", expire_time=True, tag=True)
                list(cache)
                cache.pop("key")
            except PickleRefusedError:
                pass
            cache.delete("key")
            assert len(cache) == 0


@pytest.mark.parametrize("disk", [Disk, JSONDisk, PickleDisk, PickleDisk.signed(b"s" * 16)])
def test_values_of_another_type_than_their_mode(tmp_path, disk):
    """A number is no length either: bytes(2**31) would take two gigabytes."""
    with Cache(tmp_path, disk=disk) as cache:
        entries = cache._open().entries
        name = hutch_key(*cache.disk.put("key"))
        for mode, value in itertools.product(
            range(7), [2**31, 10**5000, -1, 1.5, None, b"", b"x", "text", "\udc80"]
        ):
            if mode == MODE_PICKLE and disk is PickleDisk and type(value) is bytes:
                continue  # It runs what the bytes say.
            cache["key"] = 1
            record = Record.decode(*entries[name])
            entries[name] = record._replace(mode=mode, value=value).encode(False)
            for read in (cache.get, cache.read):
                with contextlib.suppress(PickleRefusedError, KeyError):
                    read("key")
            with contextlib.suppress(PickleRefusedError):
                cache.pop("key")
            cache.delete("key")
            assert len(cache) == 0


WRONG = ["x", None, [], {}, -1, 2**70]


def test_settings_that_are_none(tmp_path):
    """What is stored under other names, or is of another type, changes nothing of a cache."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("not of a cache")
    path = tmp_path / "cache" / "diskcache.json"
    with Cache(tmp_path / "cache", size_limit=2**20, cull_limit=5, more=7):
        good = json.loads(path.read_text())
    hostile = {"_directory": str(victim), "directory": str(victim), "set": "x", "_store": 1}
    for name, value in [
        *hostile.items(),
        *(("disk_min_file_size", wrong) for wrong in WRONG),
        *(("cull_limit", wrong) for wrong in [*WRONG, -(2**70), 2.5, -0.5] if wrong != -1),
        *(("eviction_policy", wrong) for wrong in WRONG),
        *(("size_limit", wrong) for wrong in WRONG[:-1]),
    ]:
        path.write_text(json.dumps({**good, name: value}))
        with Cache(tmp_path / "cache") as cache:
            assert cache.directory == str(tmp_path / "cache")
            assert cache.set("a", 1) and cache["a"] == 1 and cache.more == 7
            cache.cull()
            cache.check(fix=True)
            assert value == good.get(name) or getattr(cache, name, None) != value
    assert (victim / "file").exists()


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "", "{", "[]", "1e999", "\xff"])
def test_settings_that_cannot_be_read(tmp_path, text):
    with Cache(tmp_path, cull_limit=5) as cache:
        cache["a"] = 1
    (tmp_path / "diskcache.json").write_text(text, encoding="latin-1")
    with Cache(tmp_path) as cache:
        assert (cache["a"], cache.cull_limit) == (1, 10)
    with Cache(tmp_path, more={"a": [1]}) as cache:
        cache.more["a"].append(2)
    assert Cache(tmp_path).more == {"a": [1]}


class FileDisk(Disk):
    def filename(self, key=None, value=None):
        return "folder/value", os.path.join(self._directory, "folder", "value")


def test_links_that_lead_out_of_the_directory(tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "value").write_bytes(b"not of a cache")
    directory = tmp_path / "cache"
    with Cache(directory, disk=FileDisk, disk_min_file_size=10) as cache:
        cache["key"] = cache["other"] = b"x" * 100
        assert cache["key"] == b"x" * 100
        shutil.rmtree(directory / "folder")
        (directory / "folder").symlink_to(victim)
        assert cache.get("key") is None
        with pytest.raises(KeyError):
            cache.read("key")
        assert cache.delete("key")
        cache.clear()
    for name in ("diskcache.state", "diskcache.lock", "diskcache.reads"):
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(victim / "value")
        with pytest.raises(OSError):
            Cache(directory, eviction_policy="least-recently-used")["key"] = 1
        (directory / name).unlink()
    (directory / "diskcache.json.new").symlink_to(victim / "value")
    with Cache(directory, cull_limit=3) as cache:
        assert cache.reset("cull_limit") == 3
    for name in "other", "empty":
        (tmp_path / name).mkdir()
    (tmp_path / "other" / "hutch").symlink_to(tmp_path / "empty")
    with pytest.raises(OSError, match="symbolic"):
        Cache(tmp_path / "other")["key"] = 1
    assert not [*(tmp_path / "empty").iterdir()]
    assert [path.name for path in victim.iterdir()] == ["value"]
    assert (victim / "value").read_bytes() == b"not of a cache"


@pytest.mark.parametrize("name", ["diskcache.state", "diskcache.json"])
def test_mutated_files(tmp_path, seed, name):
    chance = random.Random(seed)
    path = tmp_path / name
    for _ in range(examples(40)):
        with Cache(tmp_path) as cache:
            cache.push("job")
            cache["a"] = 1
        content = bytearray(path.read_bytes())
        for _ in range(20):
            content[44 + chance.randrange(len(content) - 44)] = chance.randrange(256)
        path.write_bytes(content)
        with Cache(tmp_path) as cache:
            assert cache["a"] == 1
            cache.clear()
            assert cache.push("job") and cache.pull()[1] == "job"
            assert list(cache) == list(cache.iterkeys()) == []
        path.unlink()


@pytest.mark.parametrize("last", [False, True])
def test_the_end_is_found_behind_entries_that_cannot_be_read(tmp_path, last):
    with Cache(tmp_path) as cache:
        for name in "abcde":
            cache[name] = name
    with Cache(tmp_path) as cache:
        entries = cache._open().entries
        for name in "abe":
            data, extended = entries[name]
            # A kind of value that there is none of.
            entries[name] = data, extended[:5] + b"\x63" + extended[6:]
        assert cache.get("a") is None
        assert cache.peekitem(last=last) == (("d", "d") if last else ("c", "c"))
        assert next(reversed(cache) if last else iter(cache)) == ("d" if last else "c")
        assert set("cd") <= set(cache)
