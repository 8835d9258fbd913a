"""What programs do with python-diskcache: subclasses with methods of their own, and odd arguments.

Each test has the shape of code that packages have.
"""

from __future__ import annotations

import json
import os
import warnings
import zlib

import pytest

import hutch
from hutch.diskcache import DEFAULT_SETTINGS, Cache, Deque, FanoutCache, Index


def test_metadata_are_attributes(tmp_path):
    with Cache(tmp_path, statistics=1, count=7) as cache:
        assert (cache.count, cache.hits, cache.misses) == (0, 0, 0)
        cache["key"] = "value"
        assert cache.get("key") and cache.get("other") is None
        assert (cache.count, cache.hits, cache.misses) == (0, 0, 0)  # As they were when last read.
        assert cache.reset("count") == cache.count == 1
        assert cache.reset("size") == cache.size > 0
    with Cache(tmp_path) as cache:
        assert (cache.count, cache.hits, cache.misses) == (1, 1, 1)
    settings = {**DEFAULT_SETTINGS, "eviction_policy": "none", "cull_limit": 0}
    assert Cache(tmp_path, **settings).count == 1


def test_stored_metadata_are_not_read(tmp_path):
    Cache(tmp_path).close()
    stored = tmp_path / "diskcache.json"
    stored.write_text(json.dumps({**json.loads(stored.read_text()), "count": "many"}))
    assert Cache(tmp_path).count == 0


class Stamped(Cache):
    """Its delete is in terms of del."""

    def delete(self, key):
        if key in self:
            del self[key]
            del self[key, "stamp"]


class Tracing(Cache):
    def __init__(self, directory):
        super().__init__(directory)
        self.deleted = []

    def __delitem__(self, key, retry=True):
        self.deleted.append(key)
        return super().__delitem__(key, retry)


def test_delete_calls_del(tmp_path):
    stamped = Stamped(tmp_path / "stamped")
    stamped["key"] = stamped["key", "stamp"] = 1
    stamped.delete("key")
    assert len(stamped) == 0
    tracing = Tracing(tmp_path / "tracing")
    tracing["key"] = 1
    assert tracing.delete("key") is True and tracing.delete("key") is False
    assert tracing.deleted == ["key", "key"]
    with pytest.raises(KeyError):
        del tracing["key"]


class Compressed(Deque):
    """Each put and each take converts, and none counts on another to."""

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self.level = 6

    def append(self, value):
        super().append(zlib.compress(value, self.level))

    def appendleft(self, value):
        super().appendleft(zlib.compress(value, self.level))

    def extend(self, values):
        super().extend([zlib.compress(value, self.level) for value in values])

    def extendleft(self, values):
        super().extendleft([zlib.compress(value, self.level) for value in values])

    def pop(self):
        return zlib.decompress(super().pop())

    def popleft(self):
        return zlib.decompress(super().popleft())

    def clear(self):
        raise AssertionError("not of the program")


def test_a_deque_with_methods_of_its_own(tmp_path):
    queue = Compressed([zlib.compress(b"0")], tmp_path, 6)
    queue.append(b"1")
    queue.extend([b"2", b"3"])
    queue.appendleft(b"-1")
    queue.extendleft([b"-2", b"dropped"])
    queue.pop()  # The seventh value removed one already.
    queue.reverse()
    queue.rotate(2)
    queue.rotate(-2)
    assert [zlib.decompress(each) for each in queue] == [b"1", b"0", b"-1", b"-2", b"dropped"]
    queue.maxlen = 3
    queue += [zlib.compress(b"last")]
    assert (queue.pop(), queue.popleft(), queue.popleft()) == (b"last", b"-2", b"dropped")


class Scoped(Index):
    """Its keys are those of the program and a scope; get and in have them too, by way of it."""

    def __init__(self, scope, directory, **items):
        super().__init__(directory, **items)
        self.scope = scope

    def __getitem__(self, key):
        return super().__getitem__((self.scope, key))

    def update(self, *_):
        raise AssertionError("not of the program")


class Prefixed(Scoped):
    def __setitem__(self, key, value):
        super().__setitem__((self.scope, key), value)


def test_an_index_with_keys_of_its_own(tmp_path):
    index = Prefixed("one", str(tmp_path))
    index["key"] = 1
    assert "key" in index and index.get("key") == index["key"] == 1
    assert "other" not in index and ("one", "key") not in index
    assert list(Scoped("two", str(tmp_path), more=2)) == [("one", "key"), "more"]
    assert "more" in Index(str(tmp_path))


class Folded(Cache):
    """Keys in lower case, and a list of those that were deleted."""

    def __init__(self, *arguments, **settings):
        self.deleted = []
        super().__init__(*arguments, **settings)

    def get(self, key, *arguments, **options):
        return super().get(key.lower(), *arguments, **options)

    def set(self, key, *arguments, **options):
        return super().set(key.lower(), *arguments, **options)

    def __delitem__(self, key, retry=True):
        self.deleted.append(key)
        return super().__delitem__(key.lower(), retry=retry)


def test_an_index_on_a_cache_with_methods_of_its_own(tmp_path):
    cache = Folded(tmp_path)
    index = Index.fromcache(cache, {"A": 1, "B": 2, "C": 3})
    assert "A" in index and "a" in index and "D" not in index
    del index["A"]
    assert index.popitem() == ("c", 3) and index.popitem(last=False) == ("b", 2)
    assert cache.deleted == ["A", "c", "b"]
    with pytest.raises(KeyError):
        index.popitem()


def test_a_directory_that_is_a_number(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Cache(41) as cache, FanoutCache(42, shards=1) as fanout, Deque([1], 43).cache as queue:
        cache["key"] = fanout["key"] = "value"
        assert (cache.directory, fanout.directory, queue.directory) == ("41", "42", "43")
    assert Cache("41")["key"] == FanoutCache("42", shards=1)["key"] == "value"


def test_check_leaves_caches_within(tmp_path):
    outer = Cache(tmp_path)
    inner = [
        Cache(tmp_path / "sub" / "cache"),
        FanoutCache(tmp_path / "fanout", shards=2),
        hutch.Cache(str(tmp_path / "plain")),
    ]
    for cache in inner:
        cache["key"] = b"x" * 100_000
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "cache.db").touch()
    stray = tmp_path / "sub" / "stray"
    stray.touch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = outer.check(fix=True)
    assert [str(each.message) for each in given] == [f"unknown file: {stray}"]
    assert not stray.exists() and os.path.exists(tmp_path / "foreign" / "cache.db")
    for cache in inner:
        assert cache["key"] == b"x" * 100_000
        cache.close()
    assert outer.check() == []
