"""Many keys in one call: as many calls for one key would have it."""

from __future__ import annotations

import math
import random
import threading
from pathlib import Path

import hutch
import pytest
from conftest import KINDS, NO_LIMITS
from hutch import _many

KEYS = ["text", "ü", b"bytes", b"", b"\xff\0", 0, -1, 2**70, "1", b"1", 1]
VALUES = [b"", b"\0\xff", "", "ü", 0, -(2**63), 2**80, 1.5, True, None, [1, ["a"]], {"a": {}}]


@pytest.fixture(params=[1, 3, 1024])
def at_once(request, monkeypatch) -> int:
    monkeypatch.setattr(_many, "_AT_ONCE", request.param)
    return request.param


def test_all_kinds_of_keys_and_values(cache, at_once):
    expected = dict(zip(KEYS, VALUES * (len(KEYS) // len(VALUES) + 1)))
    expected.update({f"value-{number}": value for number, value in enumerate(VALUES)})
    assert cache.set_many(expected) is None
    assert len(cache) == len(expected)
    single = {key: cache[key] for key in expected}
    assert cache.get_many(expected) == single
    assert [type(value) for value in cache.get_many(expected).values()] == [
        type(value) for value in single.values()
    ]
    assert cache.infos(expected) == {key: cache.info(key) for key in expected}
    assert cache.delete_many(expected) == len(expected)
    assert len(cache) == 0 and cache.get_many(expected) == {} == cache.infos(expected)


def test_keys_that_are_not_there_and_keys_that_repeat(cache, at_once):
    cache.set_many([("a", 1), ("b", 2), ("a", 3)])
    assert list(cache.get_many(["b", "c", "a", "b"]).items()) == [("b", 2), ("a", 3)]
    assert cache.infos(iter(["c", "a"])).keys() == {"a"}
    assert cache.delete_many(["c", "b", "b", "a"]) == 2
    for nothing in (cache.get_many, cache.infos):
        assert nothing([]) == {}
    assert cache.delete_many([]) == 0
    cache.set_many({})
    assert cache.put_many({}) == {} and len(cache) == 0


def test_options_are_those_of_set(cache, clock):
    cache.set_many({"a": 1, "b": "two"}, expire=10, cost=7)
    cache.set_many([("c", b"3")], idle=5)
    cache.set_many({"d": None}, expire=math.inf)
    infos = cache.infos("abcd")
    now = clock.now / 1e9
    for key in "ab":
        assert infos[key].expires == pytest.approx(now + 10)
        assert infos[key].cost == 7 and infos[key].time_to_idle is None
    assert infos["c"].time_to_idle == 5 and infos["c"].expires is infos["d"].expires is None
    clock.advance(6)
    assert cache.get_many("abcd") == {"a": 1, "b": "two", "d": None}
    clock.advance(4)
    assert cache.get_many("abcd") == {"d": None}


def test_results_of_puts(cache):
    results = cache.put_many({"a": 1, "b": "two"})
    assert results.keys() == {"a", "b"}
    for key, result in results.items():
        assert result.version == cache.info(key).version and not result.partial


@pytest.mark.parametrize("wrong", ["", "k" * 65536, {"a": 1}, bytearray(b"k")])
def test_a_key_that_is_none_of_many(cache, at_once, wrong):
    cache["there"] = 1
    for call in (cache.get_many, cache.infos, cache.delete_many):
        with pytest.raises((TypeError, ValueError)):
            call(["there", wrong])
    for call in (cache.set_many, cache.put_many):
        with pytest.raises((TypeError, ValueError)):
            call([("new", 1), (wrong, 2)])
    assert dict(cache.items()) == {"there": 1}


@pytest.mark.parametrize("wrong", [object(), {1: range(2)}, {"a": {len}}])
def test_a_value_that_is_none_of_many(cache, at_once, wrong):
    with pytest.raises(TypeError):
        cache.set_many({"a": 1, "b": wrong, "c": 3})
    for options in ({"expire": -1}, {"cost": -1}, {"write_policy": "both"}):
        with pytest.raises(ValueError):
            cache.set_many({"a": 1}, **options)
    assert len(cache) == 0


def test_a_failure_of_one_does_not_concern_the_others(directory: Path, at_once):
    limits = hutch.TierLimits(max_entry=4096)
    with hutch.Cache(directory, memory=limits, disk=limits) as cache:
        cache["large"] = cache["huge"] = b"old"
        with pytest.raises(hutch.TooLargeError) as caught:
            cache.set_many({"a": 1, "large": bytes(9000), "b": "2", "huge": bytes(10000), "c": b""})
        failures = caught.value.failures
        assert failures.keys() == {"large", "huge"} and caught.value is failures["huge"]
        assert all(type(failure) is hutch.TooLargeError for failure in failures.values())
        assert caught.value.words
        assert dict(cache.items()) == {"a": 1, "b": "2", "c": b""}
        with pytest.raises(hutch.TooLargeError) as caught:
            cache.set("huge", bytes(10000))
        assert caught.value.failures == {}


@pytest.mark.parametrize("storage", [None, *(kind for kind in KINDS if kind in ("log", "mixed"))])
def test_several_calls_of_the_library(directory: Path, storage):
    """More values than one call of it takes, of several kinds, with what set has as options."""
    kinds = [b"", b"x" * 511, b"y" * 600, "text", "ü" * 5000, 7, [1, {"a": None}], 1.5, None]
    expected = {
        (number, str(number), b"%d" % number)[number % 3]: kinds[number % len(kinds)]
        for number in range(9 * 1100)
    }
    with hutch.Cache(None if storage is None else directory, storage=storage) as cache:
        cache.set_many(expected)
        assert cache.get_many(expected) == expected and len(cache) == len(expected)
        for key, value in list(expected.items())[:18]:
            assert cache.info(key).size == (cache.set(key, value) and cache.info(key).size)
        some = dict(list(expected.items())[:1500])
        cache.set_many(some, 1000, tag=("a", 1))
        cache.set_many({("uncommon",): 1, "common": 2}, expire=1000, tag=("a", 1))
        assert cache.info("0") is None or cache.info("0").expires is not None
        assert {cache.info(key).tag for key in [*some, ("uncommon",), "common"]} == {("a", 1)}
        assert cache.remove_tagged(("a", 1)) == 1502
        assert cache.get_many(expected) == {
            key: value for key, value in expected.items() if key not in some
        }


def test_nothing_is_stored_if_one_has_no_form(cache):
    many = {f"key-{number}": number for number in range(3000)}
    for key, value, error in (
        ("last", object(), TypeError),
        ("x" * 70_000, 1, hutch.InvalidArgumentError),
        (object(), 1, TypeError),
    ):
        with pytest.raises(error):
            cache.set_many({**many, key: value})
    with pytest.raises(ValueError):
        cache.set_many(many, -1)
    with pytest.raises(ValueError):
        cache.set_many(many, tag="")
    assert len(cache) == 0


def test_failures_in_several_calls_of_the_library(directory: Path):
    limits = hutch.TierLimits(max_entry=4096)
    large = {5, 1023, 1024, 2500}
    with hutch.Cache(directory, memory=limits, disk=limits) as cache:
        values = {number: bytes(9000 if number in large else 10) for number in range(4000)}
        for more in {}, {("uncommon",): b"1"}:
            with pytest.raises(hutch.TooLargeError) as caught:
                cache.set_many({**values, **more})
            assert caught.value.failures.keys() == large and caught.value.words
            assert caught.value is caught.value.failures[2500]
            assert len(cache) == 4000 - 4 + len(more)
            cache.clear()


def test_many_kinds_of_extended_data(cache):
    from hutch.diskcache._record import RecordForms

    cache._forms = RecordForms()
    getattr(cache, "_keep_pairs", lambda: None)()
    for kinds in 3, 16, 17, 300:
        expected = {number: (b"data", b"x%d" % (number % kinds)) for number in range(600)}
        cache.set_many(expected)
        assert cache.get_many(expected) == expected
        cache.clear()


def test_write_policies_of_many_and_of_views(directory: Path):
    with hutch.Cache(directory) as cache:
        cache.set_many({"a": 1, "b": 2}, write_policy="memory")
        assert cache.disk.get_many("ab") == {} and cache.memory.get_many("ab") == {"a": 1, "b": 2}
        cache.disk.set_many({"b": 3, "c": 4})
        assert cache.memory.get_many("abc") == {"a": 1}
        assert cache.get_many("abc") == {"a": 1, "b": 3, "c": 4}
        assert cache.memory.delete_many("abc") == 3 and cache.get_many("abc") == {"b": 3, "c": 4}


def test_after_close(cache):
    cache.close()
    for call in (cache.get_many, cache.infos, cache.delete_many):
        with pytest.raises(hutch.ClosedError):
            call(["a"])
    with pytest.raises(hutch.ClosedError):
        cache.set_many({"a": 1})


def test_several_threads(directory: Path, seed: int):
    """Of each key some thread's last value stays, whole."""
    raised = []
    with hutch.Cache(directory, memory=NO_LIMITS, disk=NO_LIMITS) as cache:

        def work(number: int) -> None:
            source = random.Random(seed + number)
            try:
                for turn in range(20):
                    keys = source.sample(range(200), 50)
                    if source.random() < 0.7:
                        cache.set_many({key: [key, number, turn] for key in keys})
                    else:
                        cache.delete_many(keys)
                    for key, value in cache.get_many(keys).items():
                        assert value[0] == key
            except BaseException as error:
                raised.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not raised
        everything = cache.get_many(range(200))
        assert everything == dict(cache.items()) == cache.disk.get_many(range(200))


def test_a_prefix_is_removed(cache):
    keys = ["user:", "user:1", "user:ü", "use", "User:1", b"user:1", b"user", 1]
    cache.set_many({key: "value" for key in keys})
    assert cache.remove_prefix("user:") == 3
    assert set(cache) == set(keys[3:])
    assert cache.remove_prefix(b"user") == 2
    assert set(cache) == {"use", "User:1", 1}
    assert cache.remove_prefix("nothing") == 0


def test_what_is_no_prefix(cache):
    cache["a"] = 1
    for wrong in (1, None, ["a"], bytearray(b"a")):
        with pytest.raises(TypeError):
            cache.remove_prefix(wrong)
    for empty in ("", b""):
        with pytest.raises(ValueError):
            cache.remove_prefix(empty)
    with pytest.raises(hutch.InvalidArgumentError):
        cache.remove_prefix("a" * 65536)
    assert len(cache) == 1
