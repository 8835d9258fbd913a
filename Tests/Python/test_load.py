"""Cache.load: a missing value is made by one caller for all."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from ctypes import byref

import hutch
import pytest
from hutch import _loads, _structs
from hutch._library import lib


def in_threads(count, body):
    """What body(0..count-1) gave or raised, each in a thread of its own."""
    results = [None] * count

    def run(index):
        try:
            results[index] = body(index)
        except BaseException as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_a_wait_lets_the_other_greenlets_of_its_thread_run(monkeypatch):
    """gevent and eventlet replace time.sleep. A wait in C would keep the loader from its end."""
    value, loading = _structs.ValuePointer(), _structs.LoadingPointer()
    options = _loads.load_options(None, None, None, False)
    with hutch.Cache() as cache:
        begun = lib.hutch_load_begin(
            cache._pointer, b"k", 1, byref(options), byref(value), byref(loading)
        )
        assert begun == hutch.Status.NOT_FOUND
        turns = []

        def run_the_others(seconds):
            turns.append(seconds)
            if len(turns) == 3:
                _loads.fulfil(loading, b"made", None)

        monkeypatch.setattr(time, "sleep", run_the_others)
        assert cache.load("k", str.upper, timeout=10) == b"made"
        assert turns == [0.001, 0.002, 0.004]
        monkeypatch.undo()
    lib.hutch_loading_release(loading)


def test_a_loader_runs_on_a_miss_only(cache):
    calls = []

    def make(key):
        calls.append(key)
        return {"made": [1, 2]}

    assert cache.load("k", make) == cache.load("k", make) == {"made": [1, 2]}
    assert calls == ["k"] and cache["k"] == {"made": [1, 2]}
    assert cache.load("none", lambda key: None) is None
    assert "none" in cache
    assert cache.load("pair", lambda key: [1.5, "x"], expire=5, idle=3, cost=7) == [1.5, "x"]
    info = cache.info("pair")
    assert info.cost == 7 and info.time_to_idle == 3


def test_one_loader_runs_for_all_threads(cache):
    calls = []
    entered = threading.Semaphore(0)

    def make(key):
        for _ in range(8):
            entered.acquire()
        calls.append(key)
        return b"made"

    def ask(_):
        entered.release()
        return cache.load("k", make)

    assert in_threads(8, ask) == [b"made"] * 8
    assert calls == ["k"]


def test_the_exception_is_the_loaders_own_and_an_error_for_the_others(cache):
    entered = threading.Semaphore(0)
    raised = []

    def make(key):
        for _ in range(6):
            entered.acquire()
        raised.append(OSError(5, "no such page"))
        raise raised[0]

    def ask(_):
        entered.release()
        return cache.load("k", make, remember_errors=10)

    results = in_threads(6, ask)
    assert len(raised) == 1
    assert [r for r in results if not isinstance(r, hutch.LoadError)] == raised
    (other, *_) = [r for r in results if r is not raised[0]]
    assert other.status is hutch.Status.LOAD_FAILED and other.system_error == 5
    assert other.words == "the loader failed: OSError: [Errno 5] no such page"


def test_errors_are_remembered_where_asked(cache, clock):
    def fail(key):
        raise KeyError(key)

    with pytest.raises(KeyError):
        cache.load("k", fail)
    with pytest.raises(KeyError):
        cache.load("k", fail, remember_errors=10)
    with pytest.raises(hutch.LoadError, match="KeyError: 'k'"):
        cache.load("k", lambda key: "made")
    clock.advance(10)
    assert cache.load("k", lambda key: "made") == "made"


def test_a_value_is_refreshed(cache, clock):
    def fail(key):
        raise ValueError("source is down")

    cache["k"] = "old"
    clock.advance(5)
    assert cache.load("k", lambda key: "new", refresh=6) == "old"
    with pytest.raises(ValueError):
        cache.load("k", fail, refresh=5)
    assert cache.load("k", fail, refresh=5, stale_if_error=True) == "old"
    nested = cache.load("k", lambda key: cache.load("k", fail, refresh=5) + "er", refresh=5)
    assert nested == "older"
    assert cache["k"] == "older"


def test_a_put_during_the_load_is_newer(cache):
    def make(key):
        cache[key] = "newer"
        return "made"

    assert cache.load("k", make) == "newer" == cache["k"]


def test_a_removal_during_the_load_keeps_it_out(cache):
    def make(key):
        cache.delete(key)
        return "made"

    assert cache.load("k", make) == "made" and "k" not in cache


def test_loads_within_loads(cache):
    def fibonacci(n):
        return n if n < 2 else cache.load(n - 1, fibonacci) + cache.load(n - 2, fibonacci)

    assert cache.load(30, fibonacci) == 832040

    def around(key):
        return cache.load({"a": "b", "b": "c", "c": "a"}[key], around)

    with pytest.raises(hutch.DeadlockError):
        cache.load("a", around)
    assert cache.load("a", lambda key: 1) == 1


def test_a_wait_ends_by_its_time(cache):
    waited = threading.Event()

    def make(key):
        # The other one gave up, and could not have the lead.
        assert waited.wait(60)
        return "made"

    leading = threading.Event()

    def ask(index):
        if index == 0:
            return cache.load("k", lambda key: leading.set() or make(key), timeout=math.inf)
        leading.wait(60)
        try:
            return cache.load("k", make, timeout=0.01)
        finally:
            waited.set()

    made, error = in_threads(2, ask)
    assert made == "made"
    assert isinstance(error, hutch.TimedOutError) and isinstance(error, TimeoutError)


def test_an_interrupt_passes_the_lead_on(cache):
    def interrupted(key):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.load("k", interrupted, remember_errors=100)
    assert cache.load("k", lambda key: "made") == "made"


def test_an_interrupt_is_raised_although_there_is_a_value(cache, monkeypatch):
    def interrupted(*arguments, fulfil=_loads.fulfil):
        fulfil(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(_loads, "fulfil", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.load("k", lambda key: "made")
    memoized = cache.memoize(name="memoized")(len)
    with pytest.raises(KeyboardInterrupt):
        memoized("abc")
    assert cache["k"] == "made" and memoized("abc") == 3


def test_a_value_that_cannot_be_stored_is_given(directory):
    limits = hutch.TierLimits(max_entry=1000)
    with hutch.Cache(memory=limits) as cache:
        assert cache.load("k", lambda key: b"x" * 5000) == b"x" * 5000
        assert "k" not in cache
        with pytest.raises(TypeError):
            cache.load("k", lambda key: object())


def test_bad_arguments(cache):
    for bad in ({"timeout": -1}, {"refresh": -1}, {"remember_errors": math.nan}):
        with pytest.raises(ValueError):
            cache.load("k", lambda key: 1, **bad)
    with pytest.raises(TypeError):
        cache.load([1.5], lambda key: 1)


def test_a_close_ends_the_waiting(directory):
    cache = hutch.Cache(directory)
    leading = threading.Event()
    closed = threading.Event()

    def make(key):
        leading.set()
        assert closed.wait(60)
        return "made"

    def ask(index):
        if index == 2:
            assert leading.wait(60)
            cache.close()
            closed.set()
            return None
        if index == 1:
            assert leading.wait(60)
        return cache.load("k", make, timeout=math.inf)

    first, second, _ = in_threads(3, ask)
    assert isinstance(first, hutch.ClosedError) and isinstance(second, hutch.ClosedError)


class OneWay:
    """A serializer that reads nothing of what it writes."""

    name = "one way"

    def dumps(self, value):
        return b"lost"

    def loads(self, data):
        raise LookupError("nothing is read")


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_value_that_its_own_caller_cannot_read_is_made_once(caplog, is_awaited):
    cache = hutch.Cache(serializer=OneWay())
    calls = []

    def make(key):
        calls.append(key)
        return [key]

    with pytest.raises(ValueError, match="LookupError: nothing is read"):
        if is_awaited:
            asyncio.run(cache.aload("key", make))
        else:
            cache.load("key", make)
    assert calls == ["key"] and "key" not in cache


def test_a_memoized_result_that_cannot_be_read_is_one_miss(caplog):
    cache = hutch.Cache(serializer=OneWay())

    @cache.memoize()
    def make(n):
        return [n]

    with pytest.raises(ValueError, match="LookupError"):
        make(1)
    assert make.cache_info()[:2] == (0, 1)


def test_a_stored_value_that_cannot_be_read_is_made_anew_as_one_miss(caplog):
    cache = hutch.Cache(serializer=OneWay())
    cache["key"] = [1]
    assert cache.load("key", lambda key: "text") == "text" and cache["key"] == "text"
    assert cache.load("key", lambda key: "never") == "text"
