"""hutch.diskcache: values, keys, pickles, settings, entries."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import io
import json
import math
import os
import pickle
import threading
import time
import warnings
from decimal import Decimal

import pytest
from processes import finished, run

import hutch
import hutch.diskcache as diskcache
from hutch import _accelerator
from hutch.diskcache import ENOVAL, UNKNOWN, Cache
from hutch.diskcache.core import args_to_key, full_name


@pytest.fixture
def cache(tmp_path):
    with Cache(tmp_path / "cache") as opened:
        yield opened


NATURAL = [
    None,
    True,
    0,
    -(2**63),
    2**200,
    1.5,
    math.inf,
    "",
    "text",
    "\ud800",
    b"",
    b"\0\xff",
    (1, "a", None),
    [1, [2]],
    {"a": 1},
    {1: (2, 3)},
    {1, 2},
    frozenset({"x"}),
    datetime.datetime(2026, 1, 2, 3, 4, 5),
    datetime.timedelta(days=1),
    Decimal("1.10"),
    "x" * 100_000,
    b"x" * 100_000,
    ("x" * 100_000, 1),
]


@pytest.mark.parametrize("value", NATURAL, ids=lambda value: repr(value)[:20])
def test_values_come_back_as_they_were(cache, value):
    cache["key"] = value
    found = cache["key"]
    assert found == value
    assert type(found) is type(value)


KEYS = ["", "text", b"", b"text", 0, -1, 2**63 - 1, 2**70, 1.5, None, True, (), (1, "a"), (1, b"a")]
KEYS += [[1, 2], {"a": 1}, ("nested", (None, 1.0)), "x" * 70_000, b"x" * 70_000, ("x" * 70_000,)]


def test_keys_are_told_apart_and_come_back(cache):
    for number, key in enumerate(KEYS):
        cache[key] = number
    assert [cache[key] for key in KEYS] == list(range(len(KEYS)))
    assert list(cache) == KEYS
    assert list(map(type, cache)) == list(map(type, KEYS))
    assert list(reversed(cache)) == KEYS[::-1]
    for key in KEYS:
        del cache[key]
    assert len(cache) == 0


def test_keys_that_are_equal_as_in_sqlite_are_one(cache):
    cache[1] = "one"
    assert cache[1.0] == "one"
    assert cache.get(True) is None
    assert cache.get("1") is None
    cache[(1,)] = "int"
    assert cache.get((1.0,)) is None


def test_keys_with_types_and_markers(cache):
    key = args_to_key(("f",), (1, "a"), {"b": 2.0}, True, ())
    assert key == ("f", 1, "a", None, "b", 2.0, int, str, float)
    cache[key] = 1
    cache[("f", ENOVAL)] = 2
    assert list(cache) == [key, ("f", ENOVAL)]
    assert list(cache)[1][1] is ENOVAL
    assert repr(UNKNOWN) == "UNKNOWN"


class Outer:
    class Inner:
        pass


def test_types_in_keys(cache):
    keys = [args_to_key(("f",), (each,), {}, True, ()) for each in (None, 1)]
    keys += [("f", Outer), ("f", Outer.Inner), ("f", collections.OrderedDict)]
    for key in keys:
        cache[key] = 1
    assert list(cache) == keys
    gone = type("Gone", (), {})
    cache[gone] = 1
    assert list(cache)[-1] == ("hutch.diskcache.type", __name__, "Gone")


@dataclasses.dataclass
class Point:
    x: int


class Anything:
    pass


def test_what_is_no_natural_value_is_refused_with_a_remedy(cache):
    for use in (lambda: cache.set("key", Anything()), lambda: cache.set(Anything(), 1)):
        with pytest.raises(TypeError, match="disk=hutch.diskcache.PickleDisk"):
            use()
    assert len(cache) == 0


def test_registered_classes_are_values(cache):
    hutch.register(Point)
    cache["point"] = Point(1)
    assert cache["point"] == Point(1)


class Evil:
    called = 0

    def __reduce__(self):
        return Evil.run, ()

    @staticmethod
    def run():
        Evil.called += 1
        return Evil()


def test_pickles_are_refused_unless_asked_for(tmp_path):
    with Cache(tmp_path, disk=diskcache.PickleDisk) as writer:
        writer["value"] = Evil()
        writer[Evil()] = "key"
        writer["plain"] = [1, 2, Decimal(3)]
        writer["text"] = "text"
    with Cache(tmp_path) as reader:
        for read in (
            lambda: reader["value"],
            lambda: reader.get("value"),
            lambda: reader.pop("value"),
            lambda: reader.get("plain"),
            lambda: list(reader),
            lambda: reader.peekitem(last=False),
        ):
            with pytest.raises(diskcache.PickleRefusedError, match="disk=hutch.diskcache"):
                read()
        assert reader["text"] == "text"
        assert Evil.called == 0
        assert reader.delete("value")
        assert reader.clear() == 3
    assert issubclass(diskcache.PickleRefusedError, pickle.UnpicklingError)


def test_pickle_disk_takes_any_object(tmp_path):
    with Cache(tmp_path, disk=diskcache.PickleDisk) as cache:
        cache[(1, collections.OrderedDict(a=1))] = collections.Counter("aab")
        assert cache[(1, collections.OrderedDict(a=1))] == collections.Counter("aab")
        assert list(cache) == [(1, collections.OrderedDict(a=1))]


def test_signed_pickles_of_others_are_refused(tmp_path):
    with Cache(tmp_path, disk=diskcache.PickleDisk) as other:
        other["value"] = Evil()
    mine = diskcache.PickleDisk.signed(b"0123456789abcdef")
    calls = Evil.called
    with Cache(tmp_path, disk=mine) as cache:
        with pytest.raises(diskcache.PickleRefusedError, match="secret"):
            cache["value"]
        cache["value"] = collections.Counter("aab")
        assert cache["value"] == collections.Counter("aab")
    assert Evil.called == calls
    with Cache(tmp_path, disk=diskcache.PickleDisk.signed(b"another secret!!!")) as cache:
        with pytest.raises(diskcache.PickleRefusedError):
            cache["value"]


_signed = diskcache.PickleDisk.signed(b"0123456789abcdef")


class OwnSigned(_signed):
    """A program's own subclass, which is pickled by its name."""


@pytest.mark.parametrize("disk", [_signed, OwnSigned])
@pytest.mark.parametrize("kind", [Cache, diskcache.FanoutCache])
def test_a_cache_of_signed_pickles_is_pickled(tmp_path, kind, disk):
    with kind(tmp_path, disk=disk) as cache:
        cache["value"] = collections.Counter("aab")
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            with pickle.loads(pickle.dumps(cache, protocol)) as again:
                assert again["value"] == collections.Counter("aab")
                assert (type(again.disk) is OwnSigned) == (disk is OwnSigned)
    with kind(tmp_path, disk=diskcache.PickleDisk) as other:
        other["value"] = Evil()
    with kind(tmp_path, disk=disk) as cache, pytest.raises(diskcache.PickleRefusedError):
        pickle.loads(pickle.dumps(cache))["value"]


def test_damaged_records_are_misses(cache):
    cache["key"] = {"a": 1}
    entries = cache._open().entries
    data, extended = entries["key"]
    for bad in (b"", extended[:3], extended[:10], b"xxxx" + extended[4:], extended[:6] + b"\7"):
        entries["key"] = data, bad
        assert cache.get("key", "none") == "none"
        assert "key" not in cache
    entries["key"] = b"\xff" + data[1:], extended
    with pytest.raises(KeyError):
        cache["key"]


# -------------------------------------------------------------------- settings


def test_defaults_and_settings_stay_in_the_directory(tmp_path):
    with Cache(tmp_path) as cache:
        assert cache.size_limit == 2**30
        assert cache.eviction_policy == "least-recently-stored"
        assert cache.reset("cull_limit", 3) == 3
    with Cache(tmp_path, size_limit=5000, disk_min_file_size=10) as cache:
        assert (cache.cull_limit, cache.size_limit, cache.disk.min_file_size) == (3, 5000, 10)
        assert cache.reset("disk_min_file_size", 20) == 20
        assert cache.disk.min_file_size == 20
    with Cache(tmp_path) as cache:
        assert (cache.size_limit, cache.disk.min_file_size) == (5000, 20)
    assert json.loads((tmp_path / "diskcache.json").read_text())["size_limit"] == 5000


def test_what_is_wrong_at_the_opening(tmp_path):
    with pytest.raises(ValueError, match="disk is"):
        Cache(tmp_path, disk=diskcache.Disk("x"))
    with pytest.raises(ValueError, match="least-recently-stored"):
        Cache(tmp_path, eviction_policy="newest")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot be made"):
        Cache(tmp_path / "file" / "cache")


def test_an_old_directory_is_told(tmp_path):
    (tmp_path / "cache.db").touch()
    with pytest.warns(diskcache.OldDirectoryWarning, match="migrate"):
        Cache(tmp_path)


def test_foreign_files_stay(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with Cache(tmp_path) as cache:
        cache["a"] = 1
        cache.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert [each.category for each in cache.check()] == [diskcache.UnknownFileWarning]
        assert (tmp_path / "mine.txt").read_text() == "mine"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cache.check(fix=True)
        assert not (tmp_path / "mine.txt").exists()
        assert cache.check() == []


def test_close_is_not_the_end(tmp_path):
    cache = Cache(tmp_path)
    cache["a"] = 1
    cache.close()
    cache.close()
    assert cache["a"] == 1
    with cache:
        with cache:
            pass
        assert cache["a"] == 1


def test_another_thread_goes_on_after_close(tmp_path):
    cache = Cache(tmp_path)
    cache["a"] = 1
    entries = cache._open().entries
    seen = []

    def work():
        with cache:
            seen.append(cache["a"])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [1]
    assert cache._open().entries is entries
    cache.close()
    assert cache._store is None


def test_two_objects_are_one_cache(tmp_path):
    one, two = Cache(tmp_path), Cache(str(tmp_path))
    one["a"] = 1
    assert two["a"] == 1
    copy = pickle.loads(pickle.dumps(two))
    assert copy.directory == str(tmp_path) and copy["a"] == 1


# --------------------------------------------------------------------- entries


def test_expire(cache):
    before = time.time()
    cache.set("a", 1, expire=100)
    value, end = cache.get("a", expire_time=True)
    assert value == 1 and before + 100 <= end <= time.time() + 100
    assert cache.incr("a") == 2
    assert cache.get("a", expire_time=True) == (2, end)
    assert cache.touch("a")
    assert cache.get("a", expire_time=True) == (2, None)
    assert cache.touch("a", expire=0)
    assert "a" not in cache and not cache.touch("a")
    cache["kept"] = 1
    version = cache._open().entries.info("kept").version
    assert cache.touch("kept")  # It has no end already: nothing is written.
    assert cache._open().entries.info("kept").version == version
    cache.set("b", 1)
    assert cache.set("b", 2, expire=-1)
    assert cache.get("b") is None
    assert cache.add("b", 3)


def test_expire_counts_by_a_time_that_is_given(cache):
    for number in range(4):
        cache.set(number, number, expire=100 * (number + 1))
    cache.set("for ever", 1)
    assert cache.expire(now=time.time() + 250) == 2
    assert list(cache) == [2, 3, "for ever"]
    assert cache.expire() == 0


def test_counters(cache):
    assert cache.incr("n", 5) == 5
    assert cache.decr("n", 7) == -2
    assert cache.incr("f", 0.5, default=1) == 1.5
    assert cache.incr("f", 2**70) == 2**70 + 1.5
    with pytest.raises(KeyError):
        cache.incr("none", default=None)
    cache["text"] = "12345678"
    cache["bytes"] = b"12345678"
    for key in ("text", "bytes"):
        with pytest.raises(TypeError):
            cache.incr(key)
    assert cache["bytes"] == b"12345678"


def test_a_float_beyond_64_bits_is_a_key_of_its_own(cache):
    keys = [1e300, 2.0**63, 2**63, -1e300, float(-(2**64)), 10**300, float("inf"), -(2**63), 2.0**62]
    for number, key in enumerate(keys):
        cache[key] = number
    assert [cache[key] for key in cache] == list(range(len(keys)))
    assert [*map(type, cache)][:3] == [float, float, int]
    assert {cache[key] for key in cache.iterkeys()} == set(range(len(keys)))
    assert cache[-(2.0**63)] == 7 and cache[2**62] == 8
    assert cache.peekitem() == (2**62, 8)


def test_files(cache):
    data = bytes(range(256)) * 1000
    assert cache.set("a", io.BytesIO(data), read=True, tag="t")
    assert cache["a"] == data
    with cache.read("a") as file:
        assert file.read() == data
        assert os.path.isfile(file.name)
        cache["a"] = 1
        file.seek(0)
        assert file.read() == data
    assert cache.get("a", read=True) == 1
    cache.set("short", io.BytesIO(b"ab"), read=True)
    with cache.read("short") as file:
        assert file.read() == b"ab"
    with pytest.raises(KeyError):
        cache.read("none")


def test_read_of_what_is_no_file(cache):
    for value in (b"bytes", "text", 1, 2.5):
        assert cache.set("a", value, read=True) and cache["a"] == value
    for value, words in ([1], "open file, not list"), (io.StringIO("a"), "file of bytes"):
        with pytest.raises(TypeError, match=words):
            cache.set("b", value, read=True)
    assert "b" not in cache


@pytest.mark.parametrize("value", ["x" * 40_000, ["x" * 40_000], "\u20ac" * 40_000, (b"x" * 40_000,)])
def test_read_of_large_values_that_are_no_bytes(cache, value):
    cache["a"] = value
    assert cache.get("a", read=True) == cache.read("a") == value


def test_pop_and_shapes(cache):
    assert cache.pop("a", "none", expire_time=True, tag=True) == ("none", None, None)
    cache.set("a", 1, tag=b"tag")
    assert cache.get("a", tag=True) == (1, b"tag")
    assert cache.pop("a", expire_time=True, tag=True) == (1, None, b"tag")
    assert cache.pop("a") is None


def test_statistics(cache):
    cache["a"] = 1
    cache["a"], cache.get("b")
    assert cache.stats(enable=True) == (0, 0)
    cache["a"], cache.get("b"), cache.get("c")
    assert cache.stats(reset=True) == (1, 2)
    assert cache.stats(enable=False) == (0, 0)
    cache.get("a")
    assert cache.stats() == (0, 0)
    assert (cache.reset("hits"), cache.reset("count")) == (0, 1)


# ----------------------------------------------------------- memoize and names


def test_memoize(cache):
    calls = []

    @cache.memoize(expire=100, tag="squares", ignore={"verbose"})
    def square(number, verbose=False):
        """The square."""
        calls.append(number)
        return number * number

    assert [square(3), square(3), square(3, verbose=True)] == [9, 9, 9]
    assert calls == [3]
    assert square.__wrapped__(4) == 16 and square.__doc__ == "The square."
    key = square.__cache_key__(3)
    assert key == (full_name(square), 3, None)
    assert cache.get(key, tag=True) == (9, "squares")
    with pytest.raises(TypeError, match="parentheses"):
        cache.memoize(square)

    @cache.memoize(typed=True, name="kind")
    def kind(value):
        return type(value).__name__

    assert [kind(1), kind(1.0), kind(True)] == ["int", "float", "bool"]

    @cache.memoize(expire=0)
    def never():
        calls.append("never")

    never(), never()
    assert calls[-2:] == ["never", "never"]


def test_the_names_of_diskcache_are_there():
    names = """Averager BoundedSemaphore Cache DEFAULT_SETTINGS Deque Disk ENOVAL EVICTION_POLICY
    EmptyDirWarning FanoutCache Index JSONDisk Lock RLock Timeout UNKNOWN UnknownFileWarning
    barrier memoize_stampede throttle""".split()
    assert set(names) <= set(diskcache.__all__)
    assert all(hasattr(diskcache, name) for name in diskcache.__all__)
    assert [diskcache.MODE_NONE, diskcache.MODE_RAW, diskcache.MODE_BINARY] == [0, 1, 2]
    assert [diskcache.MODE_TEXT, diskcache.MODE_PICKLE] == [3, 4]
    with pytest.raises(AttributeError):
        diskcache.nothing


@pytest.mark.skipif(_accelerator.module is None, reason="all calls are by ctypes")
def test_common_calls_take_no_ctypes(tmp_path):
    output = run(
        """
        import sys
        import hutch.diskcache as diskcache
        for _ in range(2):
            cache = diskcache.Cache(sys.argv[1])
            cache.set("a", [1], expire=60, tag="t")
            cache["b"] = cache.get("a")
            print(len(cache), "a" in cache, cache["b"], cache.add("b", 1), cache.count)
            cache.close()
        print("ctypes" in sys.modules, "hutch._async" in sys.modules)
        """,
        tmp_path,
    )
    assert output == "2 True [1] False 0\n2 True [1] False 2\nFalse False\n"


def test_import_hutch_does_not_import_it():
    code = (
        "import sys, hutch; print([n for n in sys.modules if n.startswith('hutch.diskcache')], "
        "'sqlite3' in sys.modules);"
        "import hutch.diskcache; print('sqlite3' in sys.modules, 'django' in sys.modules)"
    )
    done = finished("-c", code)
    assert done.stdout.split("\n")[:2] == ["[] False", "False False"], done.stderr
