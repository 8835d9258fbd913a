"""The decorator: keys of arguments, and results that are kept."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import sys
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
    assert first == pair(1) == (1, {"list": [1, 2]})
    first[1]["list"].append(3)
    assert pair(1) == (1, {"list": [1, 2]}) and shared == [1, 2]


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

    with pytest.raises(TypeError, match="cannot be part of a value"):
        bad()


def test_a_result_that_no_tier_takes_is_returned_all_the_same(directory):
    calls = []
    none = hutch.TierLimits(max_entry=1000)
    for options in ({}, {"directory": directory}):
        with hutch.Cache(memory=none, disk=none, **options) as cache:

            @cache.memoize()
            def large():
                calls.append(1)
                return "x" * 5000

            calls.clear()
            assert large() == large() == "x" * 5000
            assert len(calls) == 2 and len(cache) == 0


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

    with pytest.raises(TypeError, match="name of a function is a str"):
        cache.memoize(60)
    for generator in (numbers, anumbers):
        with pytest.raises(TypeError, match="generator"):
            cache.memoize()(generator)


def numbers():
    yield 1


async def anumbers():
    yield 1


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


def test_what_is_ignored_is_a_parameter(cache):
    def read(name, /, mode, *, verbose=False):
        return name

    for wrong in ["verbos"], {"name", "moed"}, [2], [-1], {"self"}:
        with pytest.raises(ValueError, match="no parameter"):
            cache.memoize(ignore=wrong)(read)
    for fine in [0, 1], {"name", "mode", "verbose"}, ():
        cache.memoize(ignore=fine)(read)
    for wrong in "verbose", b"x", 5, None, [None], [1.5]:
        with pytest.raises(TypeError, match="ignore"):
            cache.memoize(ignore=wrong)(read)
    # Of these, or of a function without a signature, the names are not known.
    cache.memoize(ignore=[7])(lambda *args: args)
    cache.memoize(ignore=["any"])(lambda **kwargs: kwargs)
    cache.memoize("min", ignore=["key"])(min)
    with pytest.raises(ValueError):
        cache.memoize(ignore=["any"])(lambda *args: args)


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


# ------------------------------------------------------- on top of load


def at_once(count, work):
    barrier = threading.Barrier(count)
    results = [None] * count

    def run(number):
        barrier.wait()
        try:
            results[number] = work(number)
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_of_calls_at_the_same_time_one_runs(cache):
    calls = []
    begun = threading.Event()

    @cache.memoize()
    def slow(n):
        calls.append(n)
        begun.wait()
        return n * 2

    def work(number):
        if number == 7:
            while not calls:
                pass
            begun.set()
        return slow(1)

    assert at_once(8, work) == [2] * 8
    assert calls == [1]
    assert slow.cache_info()[:2] == (7, 1)


def test_each_caller_gets_an_exception_of_the_function(cache):
    @cache.memoize()
    def fails(n):
        raise LookupError(n)

    assert [type(each) for each in at_once(4, lambda _: fails(1))] == [LookupError] * 4
    assert len(cache) == 0


def test_recursion(cache):
    @cache.memoize()
    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    assert fibonacci(60) == 1548008755920
    assert fibonacci.cache_info().currsize == 61


@pytest.mark.parametrize("options", [{}, {"refresh": 10}])
def test_deep_recursion(directory, options):
    """A level takes a frame of the function and at most two of the package. Where they are too
    many, the exception is Python's own, also for calls of ctypes at the end of the stack. Where the
    values are kept is no matter of the stack."""
    with hutch.Cache(directory if options else None) as cache:
        @cache.memoize(**options)
        def depth(n):
            return n and 1 + depth(n - 1)

        def loaded(n):
            return cache.load(("loaded", n), lambda key: n and 1 + loaded(n - 1))

        room = sys.getrecursionlimit() - len(inspect.stack())
        assert depth(room // 3 - 30) == room // 3 - 30
        assert loaded(room // 4 - 30) == room // 4 - 30

        def deeper(frames, function):
            return deeper(frames - 1, function) if frames else function(sys.getrecursionlimit())

        # The stack ends in each frame of two levels.
        for frames in range(8):
            cache.clear()
            for function in depth, loaded:
                with pytest.raises(RecursionError):
                    deeper(frames, function)


@pytest.mark.parametrize("is_task", [False, True])
def test_a_coroutine_that_awaits_its_own_result(is_task):
    """Python's limit does not end it: coroutines that wait are not on the stack."""
    cache = hutch.Cache()
    calls = []

    @cache.memoize()
    async def endless(n):
        calls.append(n)
        if len(calls) > 1000:
            return None
        again = endless(n)
        return await (asyncio.create_task(again) if is_task else again)

    @cache.memoize()
    async def third_time(n):
        calls.append(n)
        return n if len(calls) == 3 else await third_time(n)

    with pytest.raises(RecursionError, match=r"endless\(1\) awaits its own result"):
        asyncio.run(endless(1))
    calls.clear()
    assert asyncio.run(third_time(1)) == 1


def test_an_old_result_is_made_anew_in_the_background(cache, clock):
    answers = iter([0, OSError("not now"), 2])
    held = threading.Event()
    held.set()

    @cache.memoize(refresh=10, stale_if_error=True)
    def number():
        held.wait()
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    def end_of_refreshing():
        held.set()
        for thread in threading.enumerate():
            if thread.name == "hutch refresh":
                thread.join()

    assert number() == number() == 0
    for expected in (0, 2):
        clock.advance(11)
        held.clear()
        # The function waits, and its callers do not.
        assert number() == number() == 0
        end_of_refreshing()
        assert cache[number.__cache_key__()] == expected
    assert number() == 2


def test_a_refresh_sees_the_context_of_its_caller(clock):
    cache = hutch.Cache(clock=clock)
    request = contextvars.ContextVar("request", default=0)
    made = threading.Event()

    @cache.memoize(refresh=10)
    def current():
        made.set()
        return request.get()

    for number in (1, 2):
        made.clear()
        contextvars.copy_context().run(lambda: (request.set(number), current()))
        assert made.wait(60)
        clock.advance(11)
    for thread in threading.enumerate():
        if thread.name == "hutch refresh":
            thread.join()
    assert cache[current.__cache_key__()] == 2


def test_a_refresh_whose_loop_is_closed_is_made_by_another_loop(clock):
    cache = hutch.Cache(clock=clock)
    calls = []

    @cache.memoize(refresh=10)
    async def number():
        calls.append(len(calls))
        if len(calls) == 2:
            await asyncio.get_running_loop().create_future()  # Its loop is closed meanwhile.
        return calls[-1]

    async def until(count):
        result = await number()
        while len(calls) < count or cache[number.__cache_key__()] != calls[-1] and count > 2:
            await asyncio.sleep(0.001)
        return result

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # It tells of the task that was pending.
    assert loop.run_until_complete(number()) == 0
    clock.advance(11)
    assert loop.run_until_complete(until(2)) == 0
    loop.close()
    assert asyncio.run(asyncio.wait_for(until(3), 60)) == 0
    assert cache[number.__cache_key__()] == 2


def test_coroutine_functions(cache, clock):
    calls = []

    async def main():
        begun = asyncio.Event()

        @cache.memoize(expire=100, refresh=10)
        async def slow(n):
            """Doubles."""
            calls.append(n)
            await begun.wait()
            return n * len(calls)

        asyncio.get_running_loop().call_later(0, begun.set)
        assert await asyncio.gather(*(slow(3) for _ in range(5))) == [3] * 5
        assert calls == [3] and slow.__doc__ == "Doubles."
        assert asyncio.iscoroutinefunction(slow)
        clock.advance(11)
        assert await slow(3) == 3
        while len(calls) < 2 or await slow(3) == 3:
            await asyncio.sleep(0)
        assert await slow(3) == 6 and calls == [3, 3]
        assert slow.cache_info().currsize == 1

        @cache.memoize()
        async def fails():
            raise LookupError

        for error in await asyncio.gather(*(fails() for _ in range(3)), return_exceptions=True):
            assert type(error) is LookupError

    asyncio.run(main())


def test_cache_info_and_cache_clear(cache):
    @cache.memoize(name="f")
    def square(n):
        return n * n

    @cache.memoize(name="f2")
    def other(n):
        return n

    assert [square(n) for n in (1, 2, 1)] == [1, 4, 1] and other(5) == 5
    cache["f"] = "mine"
    info = square.cache_info()
    assert (info.hits, info.misses, info.maxsize, info.currsize) == (1, 2, None, 2)
    square.cache_clear()
    assert square.cache_info() == (0, 0, None, 0)
    assert cache["f"] == "mine" and other.cache_info().currsize == 1
    assert square(2) == 4 and square.cache_info().misses == 1
    assert square.cache_parameters() == {"maxsize": None, "typed": False}
    assert cache.memoize(name="t", typed=True)(len).cache_parameters()["typed"] is True


def test_no_name_begins_the_keys_of_another_one(cache):
    names = ["pre", "pre(", "pre((", "pre%28", "pre%", "", "("]
    functions = {name: cache.memoize(name=name)(lambda n: n) for name in names}
    for function in functions.values():
        assert [function(0), function((1,))] == [0, (1,)]
    for number, (name, function) in enumerate(functions.items()):
        assert function.cache_info().currsize == 2, name
        function.cache_clear()
        assert len(cache) == 2 * (len(names) - number - 1), name
    assert functions["pre("].__cache_key__(1) == "pre%28(1)"


def test_methods_leave_self_out_by_its_name(cache):
    class Reader:
        @cache.memoize(ignore={"self", "verbose"})
        def read(self, name, verbose=False):
            return f"{name}:{verbose}"

        @classmethod
        @cache.memoize(ignore={"cls"})
        def make(cls, n):
            return n

        @staticmethod
        @cache.memoize()
        def double(n):
            return 2 * n

    assert Reader().read("a") == Reader().read("a", True) == Reader().read(name="a") == "a:False"
    assert Reader.make(1) == Reader().make(1) == 1 and Reader.double(2) == 4
    reader = Reader()
    assert {*cache} == {
        reader.read.__cache_key__(reader, "a"), reader.read.__cache_key__(reader, name="a"),
        Reader.make.__cache_key__(Reader, 1), Reader.double.__cache_key__(2),
    }


def test_options_are_refused_before_the_function_runs(cache):
    for error, words, options in (
        (ValueError, "expire: ", {"expire": -1}),
        (TypeError, "idle: ", {"idle": "x"}),
        (ValueError, "refresh: ", {"refresh": -1}),
        (ValueError, "tag: ", {"tag": ""}),
    ):
        with pytest.raises(error, match="^" + words):
            cache.memoize(**options)
        if "tag" not in options:
            with pytest.raises(error, match="^" + words):
                cache.load("key", len, **options)


@pytest.mark.parametrize("kind", [classmethod, staticmethod])
def test_a_method_is_decorated_before_it_is_made_static(cache, kind):
    with pytest.raises(TypeError, match=f"@{kind.__name__} goes above it"):
        cache.memoize()(kind(lambda *arguments: 1))


def test_an_inherited_classmethod_is_another_one_for_each_class(cache):
    class Base:
        @classmethod
        def make(cls, n):
            return f"{cls.__name__} {n}"

    class Derived(Base):
        pass

    of_base, of_derived = cache.memoize()(Base.make), cache.memoize()(Derived.make)
    assert (of_base(1), of_derived(1)) == ("Base 1", "Derived 1")
    assert of_derived.cache_info()[:2] == (0, 1)


class Shape:
    @classmethod
    def corners(cls, n):
        return f"{cls.__name__} {n}"


class Square(Shape):
    pass


def test_a_classmethod_is_cached_for_each_class(cache, monkeypatch):
    corners = classmethod(cache.memoize()(Shape.corners.__func__))
    monkeypatch.setattr(Shape, "corners", corners)
    for _ in range(2):
        assert (Shape.corners(1), Square.corners(1), Square().corners(1)) == (
            *("Shape 1", "Square 1"), "Square 1",
        )
    assert Shape.corners.__func__.cache_info()[:2] == (4, 2)


def test_partials_and_callable_objects(cache):
    def power(base, exponent, *, plus=0):
        return base**exponent + plus

    two = cache.memoize()(functools.partial(power, 2))
    three = cache.memoize()(functools.partial(power, 3, plus=1))
    assert (two(3), three(3), two(3), three(3)) == (8, 28, 8, 28)

    class Adds:
        def __init__(self, n):
            self.n = n

        def __call__(self, m):
            return self.n + m

    for nameless in (Adds(1), Adds(1).__call__, [].append):
        with pytest.raises(TypeError, match="name="):
            cache.memoize()(nameless)
    assert cache.memoize(name="adds 1")(Adds(1))(2) == 3
    assert cache.memoize(name="adds 2")(Adds(2))(2) == 4
    assert cache.memoize()(len)("abc") == 3
    with pytest.raises(TypeError, match="decorates a function"):
        cache.memoize()(5)


def test_a_wrapped_lambda_needs_a_name(cache):
    for wrap in (functools.lru_cache, cache.memoize()):
        wrapped = wrap(lambda n: n + 1)
        with pytest.raises(TypeError, match=r'memoize\(name="..."\)'):
            cache.memoize()(wrapped)
        assert cache.memoize(name="next")(wrapped)(1) == 2


def test_two_lambdas_are_two_functions(cache):
    one, two = cache.memoize()(lambda n: n + 1), cache.memoize()(lambda n: n + 2)
    assert (one(1), two(1), one(1), two(1)) == (2, 3, 2, 3)
    many = [cache.memoize()(lambda n, m=m: n * m) for m in range(3)]
    more = [cache.memoize()(function) for function in map(adder, range(3))]
    for _ in range(2):
        assert [f(5) for f in many] == [0, 5, 10]
        assert [f(5) for f in more] == [5, 6, 7]
    again = cache.memoize()(adder(2))
    assert again.__cache_key__(5) == more[2].__cache_key__(5)
    with pytest.raises(TypeError, match="name="):
        cache.memoize()(adder(object()))


def adder(n):
    return lambda m: m + n


def test_any_name_of_an_argument(cache):
    @cache.memoize()
    def named(**all):
        return all

    for names in ({"self": 1}, {"a=1, b": 2}, {"a": 1, "b": 2}, {"self": 1, "args": 2}):
        assert named(**names) == named(**names) == names


class Adder:
    def __call__(self, n):
        return n + 1


class Counting:
    def __call__(self):
        yield 1


def test_callables_without_a_name_of_their_own(cache):
    for function in Adder(), functools.partial(len), functools.partial(pow, 2):
        assert " at 0x" in repr(cache.memoize(name="callable")(function))
    with pytest.raises(TypeError, match="generator"):
        cache.memoize(name="counting")(Counting())
