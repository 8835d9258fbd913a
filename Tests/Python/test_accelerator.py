"""The accelerator gives what the Python beneath it gives, for every kind of argument.

With HUTCH_PURE=1 the two are the same, and these are tests of the Python code.
"""

from __future__ import annotations

import os
import sys
import threading

import hutch
import pytest
from conftest import ROOT
from hutch import _accelerator
from hutch._entries import SlowEntries
from hypothesis import given
from hypothesis import strategies as st
from processes import run

IS_PURE = os.environ.get("HUTCH_PURE", "0") not in ("", "0")

keys = st.one_of(
    st.text(min_size=1, max_size=40),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=300),
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
    st.text(max_size=2000),
    st.just("x" * 5000),
    st.just("\u00e9" * 5000),
    st.just("\ud800"),
    st.integers(),
    st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 0, -1]),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
    st.just(bytearray(b"abc")),
    st.just(object()),
    st.just({1: 2}),
)


def outcome(function, *arguments):
    """What a call gives, with its type; or the kind of its exception, and its words."""
    try:
        result = function(*arguments)
    except Exception as error:
        return type(error), str(error)
    return type(result), result


@pytest.fixture(scope="module", params=["memory", "directory"])
def open_cache(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("cache") if request.param == "directory" else None
    with hutch.Cache(directory) as cache:
        yield cache


def test_it_is_there_if_it_was_built():
    if IS_PURE:
        assert _accelerator.module is None
    elif (ROOT / "build" / "_fast.abi3.so").exists() and "t" not in sys.abiflags:
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
    assert [(repr(k), type(v), v) for k, v in open_cache.items()] == [
        (repr(k), type(v), v) for k, v in stored
    ]
    open_cache.clear()
    assert outcome(open_cache.set, key, value) == outcome(SlowEntries.set, open_cache, key, value)


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
        (type(None), None),
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

    assert counted(open_cache.get) == counted(lambda key: SlowEntries.get(open_cache, key))


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
