"""The accelerator gives what the Python beneath it gives, for every kind of argument.

With HUTCH_PURE=1 the two are the same: scripts/test runs this file so with HUTCH_LONG only.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import decimal
import functools
import gc
import inspect
import itertools
import json
import math
import os
import pickle
import random
import sys
import threading
import types
import warnings
import weakref
import zlib
from ctypes import byref

import hutch
import pytest
from conftest import CHARACTERS, IS_INSTALLED, ROOT, Clock
from hutch import _accelerator, _codec, _structs
from hutch._cbor import NAIVE, Unreadable, dumps
from hutch._cbor_read import MAKERS_OF_TEXT, _Reader, loads
from hutch._codec import key_from_bytes
from hutch._entries import SlowEntries
from hutch._library import lib
from hypothesis import given
from hypothesis import strategies as st
from processes import run

IS_PURE = os.environ.get("HUTCH_PURE", "0") not in ("", "0")

keys = st.one_of(
    st.text(CHARACTERS, min_size=1, max_size=40),
    st.text(CHARACTERS, min_size=1, max_size=300),
    st.binary(max_size=300),
    st.integers(),
    st.integers(-(2**63) - 1, 2**63),
)
wrong_keys = st.one_of(
    st.none(), st.booleans(), st.floats(), st.just(""), st.just(()), st.just("\udcff"),
    st.just("x" * 70_000), st.just("\ud800"), st.just(("a", 1)),
)
values = st.one_of(
    st.binary(max_size=2000),
    st.text(CHARACTERS, max_size=2000),
    st.just("x" * 5000),
    st.just("\u00e9" * 5000),
    st.just("\ud800"),
    st.integers(),
    st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 0, -1]),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(CHARACTERS, max_size=5), st.integers(), max_size=3),
    st.just(bytearray(b"abc")),
    st.just(object()),
    st.just({1: 2}),
    st.just([[[]] * 3, {"a": {}}]),
    st.recursive(
        st.one_of(
            *(st.none(), st.booleans(), st.integers(), st.floats()),
            st.text(CHARACTERS, max_size=8),
        ),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.tuples(inner),
            st.dictionaries(
                st.one_of(st.text(CHARACTERS, max_size=4), st.just(1)), inner, max_size=4
            ),
        ),
        max_leaves=12,
    ),
)


def outcome(function, *arguments):
    """What a call gives, with its type; or the kind of its exception, and its words."""
    try:
        result = function(*arguments)
    except Exception as error:
        return type(error), str(error)
    # repr tells -0.0 from 0.0, and True from 1; NaN has one.
    return type(result), repr(result)


@pytest.fixture(scope="module", params=["memory", "directory"])
def open_cache(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("cache") if request.param == "directory" else None
    with hutch.Cache(directory) as cache:
        yield cache


def test_it_is_there_if_it_was_built():
    if IS_PURE:
        assert _accelerator.module is None
    elif IS_INSTALLED or (ROOT / "build" / "_fast.abi3.so").exists() and "t" not in sys.abiflags:
        assert _accelerator.module is not None


def test_the_environment_turns_it_off():
    output = run(
        """
        import os
        os.environ["HUTCH_PURE"] = "1"
        import hutch
        from hutch import _accelerator
        cache = hutch.Cache()
        cache["a"] = 1
        print(_accelerator.module, cache["a"], cache.get("b"), "a" in cache)
        """
    )
    assert output == "None 1 None True\n"


@given(key=st.one_of(keys, wrong_keys), value=values)
def test_puts(open_cache, key, value):
    def fast_set():
        open_cache[key] = value

    def slow_set():
        SlowEntries.__setitem__(open_cache, key, value)

    open_cache.clear()
    expected = outcome(slow_set)
    stored = list(open_cache.items())
    open_cache.clear()
    assert outcome(fast_set) == expected
    # A key may be NaN, which is equal to nothing.
    assert [(repr(k), type(v), repr(v)) for k, v in open_cache.items()] == [
        (repr(k), type(v), repr(v)) for k, v in stored
    ]
    open_cache.clear()
    assert outcome(open_cache.set, key, value) == outcome(SlowEntries.set, open_cache, key, value)


durations = st.one_of(
    st.none(),
    st.integers(0, 2**40),
    st.floats(0, 1e10),
    st.sampled_from([
        9_223_372_036, 9_223_372_037, 2**63, 8_999_999_999.5, 9e9, 1e-10, 0.0, -0.0, 5e-324,
        0.1, 1.0000000001, math.inf, -math.inf, math.nan, -1, -0.5, True,
        datetime.timedelta(seconds=1.5), "1", b"", [],
    ]),
)


def expiry_of(cache, key):
    """In nanoseconds, with the tag as text: it may be NaN, which is equal to nothing."""
    info = _structs.EntryInfo()
    name = hutch.key_to_bytes(key)
    if lib.hutch_info(cache._pointer, name, len(name), byref(info)) != hutch.Status.OK:
        return None
    return info.expires, repr(cache.info(key).tag)


@pytest.fixture(scope="module", params=["memory", "directory"])
def standing(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("cache") if request.param == "directory" else None
    clock = Clock()
    with hutch.Cache(directory, clock=clock, time_to_live=10**9) as cache:
        cache["loads"] = "what the accelerator needs for other calls"
        yield cache


@given(
    key=st.one_of(keys, st.none(), st.just("")),
    value=values,
    expire=durations,
    tag=st.one_of(st.none(), keys, wrong_keys, st.just("x" * 255), st.just("x" * 256)),
    form=st.sampled_from(["expire", "third", "tag", "both", "third and tag", "twice", "other"]),
)
def test_sets_with_a_time_to_live_and_a_tag(standing, key, value, expire, tag, form):
    arguments, named = (key, value), {}
    if form in ("third", "third and tag", "twice"):
        arguments = (key, value, expire)
    if form in ("expire", "both", "twice", "other"):
        named["expire"] = expire
    if form in ("tag", "both", "third and tag"):
        named["tag"] = tag
    if form == "other":
        named["idle"] = 5
    results = []
    for function in SlowEntries.set, type(standing).set:
        standing.clear()
        result = outcome(lambda function=function: function(standing, *arguments, **named))
        is_key = outcome(hutch.key_to_bytes, key)[0] is bytes
        stored = [(repr(k), type(v), repr(v)) for k, v in standing.items()]
        results.append((result, stored, expiry_of(standing, key) if is_key else None))
    assert results[0] == results[1]


@pytest.mark.skipif(IS_PURE, reason="without the accelerator every call takes ctypes")
def test_a_set_with_a_time_to_live_takes_no_ctypes():
    output = run(
        """
        import sys
        import hutch
        cache = hutch.Cache()
        assert cache.set("a", b"1", 60) and cache.set("b", "2", expire=60.5, tag="t")
        assert cache.set("c", {"d": 1}, tag=b"t", expire=None)
        print("ctypes" in sys.modules, cache["a"], cache["b"], cache["c"])
        print(cache.remove_tagged("t"), cache.remove_tagged(b"t"), list(cache))
        """
    )
    assert output == "False b'1' 2 {'d': 1}\n1 1 ['a']\n"


@given(key=st.one_of(keys, wrong_keys), value=values, is_there=st.booleans())
def test_gets(open_cache, key, value, is_there):
    open_cache.clear()
    if is_there:
        outcome(SlowEntries.set, open_cache, key, value)
    for name in ("get", "__getitem__", "__contains__"):
        slow = outcome(getattr(SlowEntries, name), open_cache, key)
        assert outcome(getattr(open_cache, name), key) == slow
    assert outcome(open_cache.get, key, "none") == outcome(
        SlowEntries.get, open_cache, key, "none"
    )
    assert outcome(open_cache.__delitem__, key) in (
        (type(None), "None"),
        outcome(SlowEntries.__delitem__, open_cache, key),
    )
    assert outcome(open_cache.get, key) == outcome(SlowEntries.get, open_cache, key)


def test_arguments_by_name_and_too_many(open_cache):
    open_cache.set(key="name", value=1, expire=60)
    assert open_cache.get(key="name") == 1
    assert open_cache.get("gone", default=2) == 2
    for wrong in (
        lambda: open_cache.get(),
        lambda: open_cache.get("a", 1, 2),
        lambda: open_cache.get("a", other=1),
        lambda: open_cache.set("a"),
        lambda: open_cache.set("a", 1, 2, 3),
    ):
        with pytest.raises(TypeError):
            wrong()


def test_statistics_are_those_of_the_python_code(open_cache):
    open_cache["there"] = b"value"
    open_cache["text"] = "no bytes"

    def counted(get):
        before = open_cache.stats()
        get("there")
        get("not there")
        after = open_cache.stats()
        return (
            after.memory.hits - before.memory.hits,
            after.memory.misses - before.memory.misses,
            after.disk.misses - before.disk.misses,
        )

    def pin_of_text(pin):
        def call(key):
            with contextlib.suppress(hutch.WrongTypeError):
                pin("text" if key == "there" else key)

        return call

    assert counted(open_cache.get) == counted(lambda key: SlowEntries.get(open_cache, key))
    slow_pin = functools.partial(SlowEntries.pin, open_cache)
    assert counted(pin_of_text(open_cache.pin)) == counted(pin_of_text(slow_pin))


class OpenedByCtypes(hutch.Cache):
    def _open(self, *settings):
        return False


def decompress(data):
    try:
        return zlib.decompress(data)
    except zlib.error as error:
        raise hutch.CorruptError(-9, str(error)) from None


class Reversed:
    """A serializer of lists."""

    def __init__(self, name="reversed"):
        self.name = name

    def dumps(self, value):
        return json.dumps(value[::-1]).encode()

    def loads(self, data):
        return json.loads(data)[::-1]


def fail(*arguments):
    raise RuntimeError("of the user")


HOOKS = {
    "clock": {"clock": lambda: 2 * 10**18},
    "failing clock": {"clock": fail},
    "clock of no time": {"clock": str},
    "clock beyond int64": {"clock": lambda: 2**70 + 10**18},
    "codec": {"codec": hutch.Codec(7, zlib.compress, decompress)},
    "bytearray": {"codec": hutch.Codec(2**32 - 1, bytearray, memoryview)},
    "failing encoder": {"codec": hutch.Codec(1, fail, decompress)},
    "failing decoder": {"codec": hutch.Codec(1, zlib.compress, fail)},
    "damage": {"codec": hutch.Codec(1, lambda data: b"no " + data, decompress)},
    "no bytes": {"codec": hutch.Codec(1, str, decompress)},
    "serializer": {"serializer": Reversed()},
    "unlike": {"serializer": Reversed("other")},
    "failing serializer": {"serializer": types.SimpleNamespace(name="f", dumps=fail, loads=fail)},
    "no name": {"serializer": Reversed("")},
    "no codec": {"codec": (1, bytes, bytes)},
    "no functions": {"codec": hutch.Codec(1, None, None)},
    "wrong id": {"codec": hutch.Codec(0, bytes, bytes)},
    "no clock": {"clock": 3},
}


@pytest.mark.parametrize("storage", ["mixed", "log"])
@pytest.mark.parametrize("name", HOOKS)
def test_clocks_codecs_and_serializers_do_the_same_without_ctypes(
    tmp_path, monkeypatch, caplog, name, storage
):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda it: told.append(repr(it.exc_value)))

    def results(first, second):
        """What two openings of a directory say, by these two classes."""
        directory = tmp_path / f"{first.__name__} {second.__name__}"
        told.clear()
        found = []
        for kind in (first, second):
            try:
                cache = kind(directory, storage=storage, **HOOKS[name])
            except Exception as error:
                found.append((type(error), str(error)))
                continue
            with cache:
                found += [outcome(cache.get, key) for key in ("list", "text", "bytes")]
                for key, value in (("list", [1, "é"]), ("text", "é"), ("bytes", b"b" * 5000)):
                    found.append(outcome(cache.set, key, value))
                    found += [outcome(cache.get, key), outcome(cache.disk.get, key)]
                if "clock" in name:
                    found.append(cache.info("bytes").created)
                found.append(cache.stats().disk.damaged)
        return found, set(told)

    expected = results(OpenedByCtypes, OpenedByCtypes)
    assert results(hutch.Cache, hutch.Cache) == expected
    assert results(hutch.Cache, OpenedByCtypes) == expected
    assert results(OpenedByCtypes, hutch.Cache) == expected


@pytest.mark.parametrize("storage", [None, "sqlite", "log"])
def test_an_opening_has_the_same_options_without_ctypes(tmp_path, storage):
    def told(kind, number, **options):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                with kind(tmp_path / f"{kind.__name__} {number}", storage=storage, **options) as it:
                    return it.limits(), it.stats(), len(warned)
            except (hutch.Error, TypeError, ValueError) as error:
                return type(error), str(error).replace(kind.__name__, "")

    limits = hutch.TierLimits("3 MB", 77, 5000, 8.5, 9, 123456)
    given = [
        {"memory": limits, "disk": "2 MiB", "time_to_live": 60, "time_to_idle": hutch.NO_LIMIT},
        {"memory": hutch.NO_LIMIT, "disk": limits, "policy": "fifo", "sharing": "exclusive"},
        {"disk": hutch.TierLimits(max_entry=hutch.MAX_ENTRY_QUARTER, min_free=0), "workers": 0},
        {"workers": 3, "queue_length": 2**64 - 1, "close_deadline": 2, "durability": "sync"},
        {"inline_threshold": hutch.NO_LIMIT, "checksums": False, "write_policy": "disk"},
        {"network_directory": True, "disk_optional": True, "nonempty": True, "low_water": 30},
        {"on_memory_warning": "low_water", "on_background": "expired"},
        {"low_water": 101}, {"workers": 257}, {"workers": 2**32}, {"policy": "best"},
        {"memory": True}, {"disk": "2 XB"}, {"time_to_live": 0}, {"close_deadline": -1},
        {"write_policy": "on_eviction", "sharing": "shared"},
    ]
    for number, options in enumerate(given):
        for _ in ("new", "once more"):
            assert told(hutch.Cache, number, **options) == told(OpenedByCtypes, number, **options)


@pytest.mark.skipif(IS_PURE, reason="there is none")
def test_settings_that_the_accelerator_does_not_know():
    cache = hutch.Cache.__new__(hutch.Cache)
    for settings in ({"nothing": 1}, {"policy": "lru"}, {"workers": 2**64}, {"workers": -1}, {1: 1}):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            cache._open(None, settings, None, None, True)


@pytest.mark.skipif(IS_PURE, reason="there is none")
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="3.13.0 crashes in its own dictresize")
def test_an_import_without_memory_leaves_no_type():
    """Whichever allocation of it fails: the module goes, and the types that it had go with it."""
    pytest.importorskip("_testcapi")
    code = """
        import gc, importlib.util, weakref
        import _testcapi
        from hutch import _accelerator

        file = _accelerator.module.__file__
        spec = importlib.util.spec_from_file_location("hutch._fast", file)
        number = successes = left = 0
        counts = set()
        while successes < 20:
            module = spec.loader.create_module(spec)
            _testcapi.set_nomemory(number, number + 1)
            try:
                spec.loader.exec_module(module)
                successes += 1
            except (MemoryError, SystemError):
                successes = 0
            finally:
                _testcapi.remove_mem_hooks()
            number += 1
            types = [weakref.ref(each) for each in vars(module).values() if type(each) is type]
            counts.add(len(types))
            del module
            if types and successes < 2:
                gc.collect()
                left += sum(each() is not None for each in types)
        print(sorted(counts), left)
    """
    assert run(code) == "[0, 1, 2, 3] 0\n"


class Thing:
    """An object that no other form of a value could give back."""


@given(key=st.one_of(keys, wrong_keys), is_slow=st.tuples(st.booleans(), st.booleans()))
def test_objects(open_cache, key, is_slow):
    thing, put, get = Thing(), open_cache.put_object, open_cache.get_object
    if is_slow[0]:
        put = lambda *arguments: SlowEntries.put_object(open_cache, *arguments)  # noqa: E731
    if is_slow[1]:
        get = lambda *arguments: SlowEntries.get_object(open_cache, *arguments)  # noqa: E731
    expected = outcome(SlowEntries.put_object, open_cache, key, thing)
    assert outcome(put, key, thing) == expected
    if expected[0] is not type(None):
        assert outcome(get, key) == outcome(SlowEntries.get_object, open_cache, key)
        return
    assert get(key) is thing and get(key, 1) is thing
    put(key, None)
    assert get(key, 1) is None
    assert open_cache.delete_object(key)
    assert get(key) is None and get(key, thing) is thing


def test_arguments_of_objects_by_name(open_cache):
    thing = Thing()
    open_cache.put_object(key="a", value=thing)
    open_cache.put_object("b", thing, 60)
    open_cache.put_object("c", thing, cost=5)
    assert [open_cache.get_object(key=key) for key in "abc"] == [thing] * 3
    assert open_cache.get_object("d", default=thing) is thing
    for wrong in (
        lambda: open_cache.get_object(),
        lambda: open_cache.get_object("a", 1, 2),
        lambda: open_cache.get_object("a", other=1),
        lambda: open_cache.put_object("a"),
        lambda: open_cache.put_object("a", 1, 2, 3),
    ):
        with pytest.raises(TypeError):
            wrong()


def test_references_to_objects_are_given_back():
    thing = Thing()
    before = sys.getrefcount(thing)
    with hutch.Cache() as cache:
        for number in range(300):
            cache.put_object(number % 7, thing)
            assert cache.get_object(number % 7) is thing
            cache.put_object("slow", thing, expire=60)
            assert cache.get_object("slow") is thing
    with pytest.raises(hutch.ClosedError):
        cache.put_object("a", thing)
    with pytest.raises(hutch.ClosedError):
        cache.get_object("a")
    assert sys.getrefcount(thing) == before


def test_references_are_given_back(open_cache):
    default, key, value = object(), "a key of its own", b"a value of its own" * 3
    for thing in (default, key, value):
        sys.getrefcount(thing)
    before = [sys.getrefcount(thing) for thing in (default, key, value)]
    for _ in range(100):
        open_cache[key] = value
        open_cache.get("nothing", default)
        open_cache.get(key, default)
        open_cache.set(key, "\u00e9" * 3000)
        assert key in open_cache
        with pytest.raises(TypeError):
            open_cache.set(key, default)
    assert [sys.getrefcount(thing) for thing in (default, key, value)] == before


def test_before_the_opening_and_after_the_close():
    cache = hutch.Cache.__new__(hutch.Cache)
    for call in (lambda: cache.get("a"), lambda: cache["a"], lambda: "a" in cache):
        with pytest.raises((ValueError, AttributeError)):
            call()
    with hutch.Cache() as cache:
        cache["a"] = 1
    for call in (
        lambda: cache.get("a"),
        lambda: cache["a"],
        lambda: "a" in cache,
        lambda: cache.set("a", 1),
        lambda: cache.__setitem__("a", 1),
        lambda: cache.__delitem__("a"),
    ):
        with pytest.raises(hutch.ClosedError):
            call()


def test_a_subclass_has_its_say():
    class Loud(hutch.Cache):
        def get(self, key, default=None):
            return "loud"

        def __setitem__(self, key, value):
            super().__setitem__(key, value + 1)

    with Loud() as cache:
        cache["a"] = 1
        assert cache["a"] == 2 and cache.get("a") == "loud"


def test_puts_wait_for_a_listener_on_another_thread():
    """Each put waits until its event was told, maybe by the other thread, which wants the GIL."""
    told = []
    with hutch.Cache() as cache, cache.listen(lambda event: told.append(event.key)):

        def write(number):
            for step in range(500):
                cache[f"{number}-{step % 10}"] = b"value"
                cache.get(f"{number}-{step % 10}")

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(told) >= 2000


# ------------------------------------------------------------- JSON, foreign too


def put_as(cache, key, data, extended):
    """A value as another program may store it."""
    options = _structs.PutOptions()
    options.extended, options.extended_size = extended, len(extended)
    assert lib.hutch_put(cache._pointer, key, len(key), data, len(data), options, None) == 0


json_texts = st.one_of(
    st.lists(
        st.sampled_from(
            list('[]{},:" \n\t\\') + ["null", "true", "false", "nul", "-", "0", "1", "12", "01"]
            + ["9" * 18, "9" * 19, "1.5", "1e5", "1E-5", "1.", ".5", "1e", "1e999", "-0", "-0.0"]
            + ["NaN", "Infinity", "-Infinity", '"a"', '"a":', '"\\n"', '"\\u00e9"', '"\\ud83d"']
            + ['"\\/"', '"\\q"', '"\x00"', '"\x1f"', '"\x7f"', "\ufeff", "\u00e9", "[[", "]]"]
        ),
        max_size=12,
    ).map("".join),
    st.sampled_from(["[" * n + "]" * n for n in (1, 39, 40, 41, 42, 100, 5000)]),
    st.sampled_from(['{"a":' * n + "1" + "}" * n for n in (1, 40, 41, 42)]),
    st.sampled_from(['{"a":1,"b":2,"a":3}', "[1,]", '{"a":1,}', "1 2", "", " ", "1." + "3" * 60]),
).map(lambda text: text.encode("utf-8", "surrogatepass"))


@given(data=st.one_of(json_texts, st.binary(max_size=20), st.just(b'"\xed\xa0\xbd\xed\xb8\x80"')))
def test_json_that_others_have_written(open_cache, data):
    put_as(open_cache, b"json", data, b"py:json")
    assert outcome(open_cache.get, "json") == outcome(SlowEntries.get, open_cache, "json")


def test_decimals_are_those_of_json_loads(open_cache):
    chance = random.Random(11)
    texts = ["0.5", "-0.0", "0.1", "123456789012.345", "999999999999999.9", "9007199254740993.0"]
    texts += ["0.000000000000001", "0.00000000000001", "0.1e1", "1.5E-3", "4.35", "0.3"]
    for _ in range(2000):
        whole = str(chance.randrange(10 ** chance.randrange(1, 12)))
        fraction = "".join(chance.choices("0123456789", k=chance.randrange(1, 9)))
        texts.append(f"{chance.choice(['', '-'])}{whole}.{fraction}")
    data = f"[{','.join(texts)}]".encode()
    put_as(open_cache, b"decimals", data, b"py:json")
    assert list(map(repr, open_cache.get("decimals"))) == [repr(float(text)) for text in texts]


def test_a_list_that_contains_itself(open_cache):
    endless = []
    endless.append(endless)
    with pytest.raises(ValueError):
        open_cache["endless"] = endless


def test_values_of_a_serializer_go_through_it():
    class Reversing:
        name = "reversing"

        def dumps(self, value):
            return repr(value).encode()[::-1]

        def loads(self, data):
            return ("loaded", data[::-1].decode())

    with hutch.Cache(serializer=Reversing()) as cache:
        cache["a"] = [1]
        assert cache["a"] == ("loaded", "[1]")
        put_as(cache, b"b", b"[1]", b"py:json")
        assert cache.get("b") is None


# -------------------------------------------------------------------- counters


@given(
    start=st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.text(CHARACTERS, max_size=3)),
    delta=st.one_of(st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63), 2**63, 1.5, "1"])),
    initial=st.one_of(st.integers(-5, 5), st.none(), st.sampled_from([2**63 - 1, 2**63, True])),
    name=st.sampled_from(["incr", "decr"]),
)
def test_counters(open_cache, start, delta, initial, name):
    def counted(call):
        open_cache.clear()
        if start is not None:
            open_cache["n"] = start
        return outcome(call, "n", delta, initial), outcome(call, "n"), open_cache.get("n")

    slow = getattr(SlowEntries, name)
    assert counted(getattr(open_cache, name)) == counted(lambda *all: slow(open_cache, *all))


# ------------------------------------------------------------ memoized functions

arguments = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([2**63 - 1, 2**63, -(2**63), 2.0**53, 2.0**53 + 2, 1e300, -0.0]),
        st.floats(),
        st.complex_numbers(),
        st.text(CHARACTERS, max_size=8),
        st.text(st.sampled_from("a'\"\\\n\x7f\u00e9\ud800"), max_size=4),
        st.binary(max_size=8),
        st.just("x" * 990),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner, inner), st.frozensets(st.integers(), max_size=2)
    ),
    max_leaves=5,
)
names = st.sampled_from(
    ["a", "b", "ab", "B", "\u00e9", "z", "ignored", "self", "a=1, b", "", "1", "a\0", "\ud800"]
)


@given(
    args=st.lists(arguments, max_size=3),
    kwargs=st.dictionaries(names, arguments, max_size=3),
    typed=st.booleans(),
    ignore=st.sampled_from([(), {1}, {"ignored"}, {0, "a"}]),
)
def test_a_memoized_call_reads_the_key_that_python_writes(open_cache, args, kwargs, typed, ignore):
    @open_cache.memoize(name="f\u00e9", typed=typed, ignore=ignore)
    def function(*args, **kwargs):
        return "computed"

    try:
        key = function.__cache_key__(*args, **kwargs)
    except TypeError:
        with pytest.raises(TypeError):
            function(*args, **kwargs)
        return
    open_cache.clear()
    open_cache[key] = "stored"
    assert function(*args, **kwargs) == "stored"
    assert function.cache_info() == (1, 0, None, 1)
    del open_cache[key]
    assert function(*args, **kwargs) == "computed"
    assert open_cache[key] == "computed"
    assert function.cache_info() == (1, 1, None, 1)



def test_a_memoized_function_is_like_the_function(open_cache):
    class Owner:
        @open_cache.memoize(name="method", ignore={"self"})
        def method(self, number):
            """The method's words."""
            return number + 1

        @classmethod
        @open_cache.memoize(name="of class", ignore={"cls"})
        def of_class(cls, number):
            return cls.__name__ * number

        @staticmethod
        @open_cache.memoize(name="static")
        def static(number):
            return number

    open_cache.clear()
    owner = Owner()
    for _ in range(2):
        assert owner.method(1) == owner.method(number=1) == Owner.method(owner, 1) == 2
        assert owner.of_class(2) == "OwnerOwner" and Owner.static(3) == 3
    bound = owner.method
    assert bound(5) == 6 and bound.__doc__ == "The method's words."
    assert Owner.method.__name__ == "method" and "Owner.method" in repr(Owner.method)
    assert str(inspect.signature(Owner.method)) == "(self, number)"
    assert inspect.signature(bound).parameters.keys() == {"number"}
    assert copy.copy(Owner.method) is Owner.method is copy.deepcopy(Owner.method)
    assert pickle.loads(pickle.dumps(at_top)) is at_top
    assert weakref.ref(Owner.method)() is Owner.method
    Owner.method.note = 1
    assert Owner.method.note == 1


@hutch.Cache().memoize()
def at_top():
    return 1


def test_memoized_functions_are_collected():
    def make():
        cache = hutch.Cache()
        function = cache.memoize(name="f")(lambda n: n)
        assert [function(1), function(1)] == [1, 1]
        function.itself = function
        return weakref.ref(function), weakref.ref(cache)

    found = make()
    gc.collect()
    assert [each() for each in found] == [None, None]


def test_a_subclass_has_its_say_in_memoized_calls():
    class Loud(hutch.Cache):
        def get(self, key, default=None):
            return "loud"

    with Loud() as cache:
        assert cache.memoize(name="f")(lambda: 1)() == "loud"


def test_what_a_memoized_function_raises(open_cache):
    @open_cache.memoize(name="raises")
    def function(value):
        raise KeyError(value)

    for _ in range(2):
        with pytest.raises(KeyError, match="7"):
            function(7)
    with pytest.raises(TypeError):
        function(object())
    with pytest.raises(TypeError):
        function(1, other=2)
    with hutch.Cache() as cache:
        memoized = cache.memoize(name="f")(lambda: 1)
    with pytest.raises(hutch.ClosedError):
        memoized()


def test_the_classes_have_the_methods_for_their_own(open_cache):
    if _accelerator.module is not None:
        for kind in (hutch.Cache, hutch.TierView):
            assert vars(kind)["get"].__objclass__ is kind
    for other in (hutch.Cache, {}, None):
        with pytest.raises((TypeError, AttributeError)):
            hutch.Cache.get(other, "key")

    class Own(hutch.Cache):
        pass

    with Own() as cache:
        cache.set("key", [1])
        assert cache.get("key") == [1] == hutch.Cache.get(cache, "key")
        assert _accelerator.has_fast_get(cache) == (_accelerator.module is not None)
    assert inspect.signature(hutch.Cache.get).parameters.keys() == {"self", "key", "default"}


def test_all_keys_at_once_are_those_of_a_walk(tmp_path):
    """Of every kind, in every order, in pages of 256; with the extended data in pairs."""
    foreign = [b"\xfd\x00", b"\xfe0x7", b"\xfe7", b"\xff", b"\xf0\x80", b"\x00"]
    for place in None, tmp_path / "cache":
        with hutch.Cache(place) as cache:
            names = [hutch.key_to_bytes(key) for key in (1, -255, 2**80, "a", b"b", (1, "x"), 2.5)]
            names += foreign + [b"%d" % number for number in range(700)]
            for name in names:
                cache[hutch.key_from_bytes(name)] = "text"
            cache["bytes"] = b"no extended data"
            for order, reverse in (None, False), ("insertion", False), ("insertion", True):
                expected = list(cache.keys(order, reverse=reverse))
                number = None if order is None else 1 | 256 * reverse
                assert len(expected) == len(names) + 1
                for call in cache._all_keys, functools.partial(SlowEntries._all_keys, cache):
                    assert call(number, False) == expected
                    pairs = call(number, True)
                    assert [key for key, _ in pairs] == expected
                    assert {of for key, of in pairs if key != "bytes"} == {b"py:str"}
                    assert dict(pairs)["bytes"] == b""
                    sizes = call(number, 2)
                    assert [key for key, _ in sizes] == expected
                    assert dict(sizes)["bytes"] == 16 and dict(sizes)["1"] == 4
                    for most in 0, 1, 256, 300, len(expected), 10_000:
                        assert call(number, False, most) == expected[:most]
        with pytest.raises(hutch.ClosedError):
            cache._all_keys(None, False)
        with pytest.raises((TypeError, ValueError, hutch.Error)):
            cache._all_keys(99, False)
        with pytest.raises((TypeError, ValueError)):
            cache._all_keys(None, False, "many")


@pytest.mark.parametrize("place", ["memory", "mixed", "log"])
@pytest.mark.parametrize("order", [None, 1, 257])
@pytest.mark.parametrize("wanted", [1, 2])
def test_some_keys_at_once_are_as_many_as_there_are(tmp_path, place, order, wanted):
    """Also if entries expire between two steps: a caller takes fewer keys for all of them."""

    def clock():
        nonlocal asked
        asked += 1
        return now + (20 * 10**9 if asked >= late else 0)

    now, asked, late = 1_790_000_000 * 10**9, 0, math.inf
    options = {} if place == "memory" else {"directory": tmp_path / "cache", "storage": place}
    with hutch.Cache(**options, clock=clock) as cache:
        entries = cache if place == "memory" else cache.disk
        for call in entries._all_keys, functools.partial(SlowEntries._all_keys, entries):
            for step in itertools.count(1):
                late = math.inf
                for number in range(8):
                    cache.set(number, "text", 10 if number % 2 else None)
                asked, late = 0, step
                assert len(call(order, wanted, 4)) == 4
                if asked < step:  # The walk has not come to it.
                    break


def read_twice(data):
    """What both readers make of these bytes: the value's repr, or that there is none."""

    def read(data):
        reader = _Reader(data)
        value = reader.read(0)
        return value if reader.place == len(data) else 1 / 0

    found = []
    for call in loads, read:
        try:
            found.append(repr(call(data)))
        except (Unreadable, ValueError, TypeError, ArithmeticError):
            found.append("none")
    return found


def test_texts_of_dates_and_times_are_read_as_by_python():
    """A character or a byte is another one, in values that C reads by their text alone."""
    moment = datetime.datetime(2026, 5, 1, 12, 30, 59)
    zone = datetime.timezone(-datetime.timedelta(hours=5, minutes=30))
    odd = datetime.timezone(datetime.timedelta(hours=1, seconds=7))
    values = [moment, moment.replace(microsecond=7), moment.replace(fold=1), moment.date()]
    values += [each.replace(tzinfo=of) for each in values[:2] for of in (zone, odd)]
    values += [decimal.Decimal("-1.50E+7"), moment.time(), datetime.timedelta(1, 2, 3)]
    for value in values:
        data = dumps(value)
        assert read_twice(data) == [repr(value)] * 2
        for at in range(len(data)):
            for byte in b"0:+-.TZ \x00\x18\x1a\x20\x60\x73\x78\x83\xe9\xf6":
                first, second = read_twice(data[:at] + bytes([byte]) + data[at + 1 :])
                assert first == second
            first, second = read_twice(data[:at])
            assert first == second == "none"
    # A tag without a function of its own, whose complement is another's tag.
    assert read_twice(b"\xdb\xff\xff\xff\xff\xff\xff\xfc\x13" + b"\x6a2026-05-01") == ["none"] * 2


def test_a_class_of_a_test_makes_no_datetimes_later(monkeypatch):
    """A class that stands in for datetime.datetime makes no values once it is gone."""
    real = datetime.datetime
    data = dumps((real(2026, 5, 1), real(2026, 5, 1, tzinfo=datetime.timezone.utc)))
    monkeypatch.delitem(MAKERS_OF_TEXT, NAIVE, raising=False)
    with monkeypatch.context() as patched:
        patched.setattr(datetime, "datetime", type("Fake", (real,), {}))
        assert {type(each) for each in loads(data)} == {datetime.datetime}
    assert {type(each) for each in loads(data)} == {real}


def test_the_length_is_that_of_a_walk(tmp_path):
    for place in None, tmp_path / "cache":
        with hutch.Cache(place) as cache:
            assert len(cache) == SlowEntries.__len__(cache) == cache.count() == 0 and not cache
            cache.update({number: number for number in range(300)})
            views = [cache, cache.memory] + ([] if place is None else [cache.disk])
            assert [len(each) for each in views] == [300] * len(views) and cache
        with pytest.raises(hutch.ClosedError):
            len(cache)
    with pytest.raises(ValueError, match="not been opened"):
        len(hutch.Cache.__new__(hutch.Cache))


def test_placed_keys_are_in_the_order_of_their_numbers(tmp_path):
    from hutch.diskcache._record import RecordForms

    for place in None, tmp_path / "cache":
        with hutch.Cache(place) as cache:
            assert cache._placed_keys(b"f:", 2) == ([], [])
            cache._forms = RecordForms()
            getattr(cache, "_keep_pairs", lambda: None)()
            numbers = [random.Random(seed).getrandbits(64) for seed in range(500)]
            for number in numbers:
                key = (number, "x") if number % 3 else f"{number}"
                cache[key] = b"data", b"f:" + number.to_bytes(8, sys.byteorder) + b"more"
            for key, extended in ("short", b"f:1234567"), ("other", b"g:" + bytes(9)), ("", b""):
                cache[key or b"none"] = b"data", extended
            for call in cache._placed_keys, functools.partial(SlowEntries._placed_keys, cache):
                keys, found = call(b"f:", 2)
                assert found == sorted(numbers)
                assert keys == [(each, "x") if each % 3 else f"{each}" for each in found]
            assert cache._placed_keys(b"f:" + bytes(30), 0) == ([], [])
        with pytest.raises(hutch.ClosedError):
            cache._placed_keys(b"f:", 2)
        for wrong in ((b"f:",), ("f:", 2), (b"f:", "2")):
            with pytest.raises((TypeError, ValueError)):
                cache._placed_keys(*wrong)


@pytest.mark.skipif(IS_PURE, reason="without the accelerator no list is made in C")
def test_the_function_of_rare_keys_sees_no_list_with_empty_places(monkeypatch):
    """gc.get_objects gives every list to any code, which crashes if it copies one with a NULL."""
    from hutch.diskcache._record import RecordForms

    seen = []

    def look(data):
        lists = [each for each in gc.get_objects() if type(each) is list]
        seen.append(sum(len(each) - len(gc.get_referents(each)) for each in lists))
        return key_from_bytes(data)

    with hutch.Cache() as cache:
        cache._forms = RecordForms()
        cache._keep_pairs()
        for number in range(5):
            cache[number] = b"data", b"f:" + number.to_bytes(8, sys.byteorder)
        monkeypatch.setattr(_codec, "key_from_bytes", look)
        assert cache._placed_keys(b"f:", 2) == (list(range(5)), list(range(5)))
    assert seen == [0] * 5


def test_pairs_are_values_with_their_extended_data(tmp_path):
    """As hutch.diskcache stores them: a tuple is the bytes and the extended data."""
    from hutch.diskcache._record import RecordForms

    for place in None, tmp_path / "cache":
        with hutch.Cache(place) as cache:
            cache._forms = RecordForms()
            cache._keep_pairs()
            for pair in (b"value", b"more"), (b"", b"m"), (bytes(300_000), b"m" * 2000):
                cache["key"] = pair
                assert cache["key"] == cache.get("key") == SlowEntries.get(cache, "key") == pair
                assert cache.set("key", pair, 100) and cache["key"] == pair
            for wrong in ("a", "b", "c"), (1, b"x"):
                with pytest.raises((TypeError, ValueError)):
                    cache["wrong"] = wrong
