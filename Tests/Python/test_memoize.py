"""The decorator: keys of arguments, and results that are kept."""

from __future__ import annotations

import threading

import hutch
import pytest
from hutch._memoize import call_key


def key(*args, typed=False, ignore=(), **kwargs):
    return call_key("f", args, kwargs, typed, ignore)


def test_runs_once_per_arguments(cache):
    calls = []

    @cache.memoize()
    def add(a, b=2, *rest, c=None):
        """Adds."""
        calls.append((a, b))
        return a + b

    assert add(1) == add(1) == 3
    assert add(1, 5) == add(1, b=5) == 6
    assert calls == [(1, 2), (1, 5), (1, 5)]
    assert add.__name__ == "add" and add.__doc__ == "Adds."
    assert add.__wrapped__(1) == 3 and len(calls) == 4
    assert add.__cache_key__(1) in cache
    cache.delete(add.__cache_key__(1))
    assert add(1) == 3 and len(calls) == 5


def test_none_is_a_result(cache):
    calls = []

    @cache.memoize()
    def nothing():
        calls.append(1)

    assert nothing() is None and nothing() is None
    assert len(calls) == 1


def test_the_first_call_returns_what_later_ones_do(cache):
    shared = [1, 2]

    @cache.memoize()
    def pair(n):
        return (n, {"list": shared})

    first = pair(1)
    assert first == pair(1) == [1, {"list": [1, 2]}]
    first[1]["list"].append(3)
    assert pair(1) == [1, {"list": [1, 2]}] and shared == [1, 2]


def test_an_exception_is_not_kept(cache):
    calls = []

    @cache.memoize()
    def fails():
        calls.append(1)
        raise LookupError("no")

    for _ in range(2):
        with pytest.raises(LookupError):
            fails()
    assert len(calls) == 2 and len(cache) == 0


def test_expire(cache, clock):
    calls = []

    @cache.memoize(expire=10, idle=100)
    def now():
        calls.append(1)
        return len(calls)

    assert now() == now() == 1
    assert cache.info(now.__cache_key__()).time_to_idle == 100
    clock.advance(11)
    assert now() == 2


def test_results_that_are_no_values(cache):
    @cache.memoize()
    def bad():
        return object()

    with pytest.raises(TypeError, match="a value must be"):
        bad()


def test_names(cache):
    first = cache.memoize(name="one")(lambda n: "first")
    second = cache.memoize(name="two")(lambda n: "second")
    assert (first(1), second(1), first(1), second(1)) == ("first", "second", "first", "second")
    assert first.__cache_key__(1) == "one(1)"


def test_misuse(cache):
    with pytest.raises(TypeError, match="parentheses"):

        @cache.memoize
        def function():
            pass

    with pytest.raises(TypeError, match="coroutine"):

        @cache.memoize()
        async def coroutine():
            pass


def test_typed():
    assert key(1) == key(1.0) == key(True)
    assert len({key(1, typed=True), key(1.0, typed=True), key(True, typed=True)}) == 3
    assert key([1.0, {"a": True}]) == key([1, {"a": 1}])
    assert key(1.5) != key(1)
    assert key(0.0) == key(-0.0)


def test_ignore(cache):
    class Reader:
        @cache.memoize(ignore=(0, "verbose"))
        def read(self, name, verbose=False):
            return f"{name}:{verbose}"

    assert Reader().read("a") == Reader().read("a", verbose=True) == "a:False"
    assert key(object(), 1, ignore=(0,)) == key("x", 1, ignore=(0,))
    assert key("x", 1, ignore=(0,)) != key("x", 2, ignore=(0,)) != key("x", ignore=(0,))
    assert key(1, a=object(), ignore=("a",)) == key(1)


def test_different_arguments_have_different_keys():
    calls = [
        (), (None,), (0,), (1,), ("1",), (b"1",), ("",), (b"",), ((),), ([],), ({},), (set(),),
        (frozenset(),), ((1,),), ([1],), ({1},), ({1: 2},), ({"1": 2},), (1, 2), ((1, 2),),
        ("1, 2",), ("1", "2"), ("a=1",), (1.5,), (float("inf"),), (float("nan"),), (2**63,),
        (str(2**63),), (-(2**63) - 1,), (10**5000,), (10**5000 + 1,), ("x" * 2000,), ("y" * 2000,),
        ("#",), ((1, (2,)),), ((1, 2, ()),), ([[1], 2],), ("\n",), ("\\n",), ("\ud800",),
    ]  # fmt: skip
    keys = [key(*args) for args in calls] + [key(a=1), key(b=1), key(a="1"), key(1, a=1)]
    assert len(set(keys)) == len(keys)
    assert all(len(hutch.key_to_bytes(each)) < 4096 for each in keys)


def test_equal_arguments_have_equal_keys():
    assert key(a=1, b=2) == key(b=2, a=1)
    assert key({"a": 1, "b": 2}) == key({"b": 2, "a": 1})
    assert key({3, 1, 2}) == key({2, 3, 1})


@pytest.mark.parametrize(
    "argument", [object(), lambda: 1, 1j, bytearray(b"a"), [object()], range(3)]
)
def test_arguments_that_make_no_key(argument):
    with pytest.raises(TypeError, match="cannot make a key"):
        key(argument)
    with pytest.raises(TypeError, match="cannot make a key"):
        key(a=argument)


def test_calls_at_the_same_time(cache):
    barrier = threading.Barrier(4)

    @cache.memoize()
    def square(n):
        return n * n

    results = []

    def work():
        barrier.wait()
        for n in range(100):
            results.append(square(n) == n * n)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 400
