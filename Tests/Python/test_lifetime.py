"""Close, collection, threads and the interpreter's end: never a crash, never a leak."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
import time
import weakref

import hutch
import pytest
from conftest import PURE
from hutch import _hooks
from native import Status, byref, get, lib, open_raw, put, structs
from processes import run

CALLS = {
    "getitem": lambda cache: cache["k"],
    "setitem": lambda cache: cache.__setitem__("k", 1),
    "delitem": lambda cache: cache.__delitem__("k"),
    "contains": lambda cache: "k" in cache,
    "len": len,
    "iter": list,
    "items": lambda cache: list(cache.items()),
    "get": lambda cache: cache.get("k"),
    "set": lambda cache: cache.set("k", 1),
    "put": lambda cache: cache.put("k", 1),
    "add": lambda cache: cache.add("k", 1),
    "replace": lambda cache: cache.replace("k", 1),
    "compare_and_swap": lambda cache: cache.compare_and_swap("k", 1, 1),
    "touch": lambda cache: cache.touch("k"),
    "incr": lambda cache: cache.incr("k"),
    "decr": lambda cache: cache.decr("k"),
    "pop": lambda cache: cache.pop("k"),
    "delete": lambda cache: cache.delete("k"),
    "entry": lambda cache: cache.entry("k"),
    "info": lambda cache: cache.info("k"),
    "clear": lambda cache: cache.clear(),
    "flush": lambda cache: cache.flush(),
    "cost": lambda cache: cache.cost(),
    "volume": lambda cache: cache.volume(),
    "stats": lambda cache: cache.stats(),
    "limits": lambda cache: cache.limits(),
    "set_limits": lambda cache: cache.set_limits(memory=hutch.TierLimits(count=1)),
    "memory": lambda cache: cache.memory,
    "memoized": lambda cache: cache.memoize()(lambda: 1)(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_use_after_close(cache, call):
    cache["k"] = 1
    cache.close()
    for _ in range(2):
        with pytest.raises(hutch.ClosedError) as caught:
            call(cache)
    assert isinstance(caught.value, ValueError) and caught.value.status is hutch.Status.CLOSED
    cache.close()


def test_close_twice_and_with(directory):
    with hutch.Cache(directory) as cache:
        cache["k"] = 1
        cache.close()
    cache.close()
    with hutch.Cache(directory) as cache:
        assert cache["k"] == 1
    assert str(directory) in repr(cache)


def test_close_by_many_at_once(cache):
    barrier = threading.Barrier(4)
    failures = []

    def close():
        barrier.wait()
        try:
            cache.close()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("puts", [1, 50, 100, 200])
def test_close_while_others_work(directory, puts):
    cache = hutch.Cache(directory)
    started = threading.Barrier(5)
    ended = []

    def work(name: int) -> None:
        walk = None
        started.wait()
        try:
            for number in range(10**9):
                key = f"{name}-{number % 50}"
                cache[key] = b"x" * (number * 101 % 30_000)
                cache.get(key)
                cache.incr(name)
                walk = walk or iter(cache.items())
                walk = walk if next(walk, None) else None
        except hutch.ClosedError:
            ended.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    while cache.stats().memory.puts < puts:
        pass
    cache.close()
    for thread in threads:
        thread.join()
    assert sorted(ended) == [0, 1, 2, 3]


@pytest.mark.parametrize("pure", PURE)
def test_what_is_collected_with_its_user(directory, pure):
    """A collection releases the handles of a cycle before it calls __del__ of the cycle's objects:
    these get an error, or what they ask for, and no crash."""
    run(
        f"""
        import gc
        import hutch
        gc.disable()
        class User:
            def __init__(self):
                self.cache = hutch.Cache({str(directory)!r}, queue=hutch.Queue(1))
                self.view, self.disk = self.cache.memory, self.cache.disk
                self.queue, self.port = hutch.Queue(1), hutch.Port()
                self.group, self.writer = hutch.Group(self.queue), self.cache.writer("file")
                self.itself = self
            def __del__(self):
                for call in (
                    lambda: self.cache.set("a", 1),
                    lambda: self.cache.get("a"),
                    lambda: len(self.cache),
                    lambda: self.cache.load("b", lambda key: (key,)),
                    lambda: self.cache.set_many({{"a": 1}}),
                    lambda: self.cache.directory,
                    lambda: self.cache.memory,
                    lambda: self.view.set("a", 1),
                    lambda: self.view.get("a"),
                    lambda: list(self.disk),
                    lambda: self.queue.cancel_all(),
                    lambda: self.group.start(),
                    lambda: self.port.drain(),
                    lambda: self.writer.write(b"bytes"),
                ):
                    try:
                        call()
                    except hutch.Error:
                        pass
                    calls.append(call)
                self.cache.close()
                calls.append(None)
        for _ in range(20):
            calls = []
            User()
            assert not calls
            gc.collect()
            assert len(calls) == 15, calls
        """,
        HUTCH_PURE=pure,
    )


def test_a_generator_within_a_transaction_is_collected_with_its_cache(tmp_path):
    run(
        f"""
        import gc, os
        from hutch.diskcache import Cache
        gc.disable()
        def hold(cache):
            with cache.transact():
                cache["a"] = 2
                yield
        def leave():
            cache = Cache({str(tmp_path)!r})
            cache["a"] = 1
            holder = hold(cache)
            next(holder)
            both = [cache, holder]
            both.append(both)
        import sys
        ignored = []
        sys.unraisablehook = lambda each: ignored.append(each.exc_type)
        for _ in range(3):
            leave()
            gc.collect()
            with Cache({str(tmp_path)!r}, timeout=0) as cache:
                cache["a"] = 3
        assert OSError not in ignored, ignored
        """
    )


def test_a_collected_cache_is_closed(directory):
    cache = hutch.Cache(directory, disk=hutch.TierLimits(count=5))
    cache["k"] = 1
    walk = iter(cache)
    del cache, walk
    gc.collect()
    # Were it open still, these other options would be told apart.
    with hutch.Cache(directory) as cache:
        assert cache["k"] == 1


def test_an_iterator_keeps_its_cache_open():
    walk = iter(hutch.Cache().items())
    gc.collect()
    assert list(walk) == []


def test_a_cache_is_copied_while_a_thread_gives_it_an_attribute(directory):
    class Name(str):
        def __hash__(self):
            vars(cache)["another"] = 1
            return super().__hash__()

    with hutch.Cache(directory) as cache:
        vars(cache)[Name("own")] = 2
        # As the first call of a thread does that takes what a cache makes when it is needed.
        del vars(cache)["another"]
        with copy.copy(cache) as again:
            assert again.own == 2 and again.directory == cache.directory


@pytest.mark.parametrize("pure", PURE)
def test_a_copy_has_the_clock_and_no_warning(directory, pure):
    """A further opening with the clock that is in force differs by nothing."""
    run(
        """
        import copy, pickle, sys, warnings, hutch
        warnings.simplefilter("error")

        def now():
            return 5 * 10**18

        with hutch.Cache(sys.argv[1], clock=now) as cache:
            with copy.copy(cache) as one, copy.deepcopy(cache) as two, pickle.loads(
                pickle.dumps(cache)
            ) as three:
                three["k"] = 1
                assert one["k"] == two["k"] == 1 and one.info("k").created == 5e9
            for other in ({"clock": lambda: 5}, {"clock": now, "disk": "1 MB"}):
                try:
                    hutch.Cache(sys.argv[1], **other)
                except hutch.OptionsDifferWarning:
                    continue
                raise AssertionError(other)
        """,
        directory, HUTCH_PURE=pure,
    )


def test_in_memory_neither_copied_nor_pickled():
    with hutch.Cache() as cache:
        for copier in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied"):
                copier(cache)
        with pytest.raises(TypeError, match="cannot be copied"):
            pickle.dumps(cache.memory)


def test_what_owns_a_handle_is_not_copied(cache):
    """A copy would release the handle a second time."""
    with hutch.Queue(1) as queue, hutch.Port() as port, cache.writer("key") as writer:
        owners = [queue, hutch.Group(queue), queue.submit(len, "a"), port, writer]
        owners += [cache.hold_files(), cache.listen(print)]
        for owner in owners:
            for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match="cannot be copied or pickled"):
                    copied(owner)


def test_errors_survive_pickling():
    with pytest.raises(hutch.BadDirectoryError) as caught:
        hutch.Cache("/dev/null/below")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is hutch.BadDirectoryError and isinstance(again, OSError)
    assert str(again) == str(caught.value) and again.errno == caught.value.errno
    assert (again.status, again.words) == (caught.value.status, caught.value.words)


def test_values_outlive_their_entry_and_their_cache(directory):
    status, cache = open_raw(bytes(directory))
    assert status == Status.OK
    held = {}
    for size in (0, 1, 1000, 100_000, 5_000_000):
        key = b"%d" % size
        assert put(cache, key, b"x" * size) == Status.OK
        held[size] = structs.ValuePointer()
        assert lib.hutch_get(cache, key, len(key), byref(held[size])) == Status.OK
        assert lib.hutch_value_data(held[size]) % 16 == 0
        assert put(cache, key, b"other") == Status.OK
    assert lib.hutch_clear(cache) == Status.OK
    assert lib.hutch_close(cache) == Status.OK
    for size, value in held.items():
        key = b"%d" % size
        assert lib.hutch_value_size(value) == size
        data = structs.ctypes.string_at(lib.hutch_value_data(value), size)
        assert data == b"x" * size
        assert lib.hutch_value_key_size(value) == len(key)
        assert structs.ctypes.string_at(lib.hutch_value_key(value), len(key)) == key
        assert lib.hutch_value_extended_size(value) == 0 and lib.hutch_value_extended(value)
        info = structs.EntryInfo()
        assert lib.hutch_value_info(value, byref(info)) == Status.OK and info.size == size
        assert lib.hutch_value_retain(value).contents is not None
        lib.hutch_value_release(value)
        lib.hutch_value_release(value)


def test_references_after_close():
    status, cache = open_raw()
    assert status == Status.OK
    lib.hutch_cache_retain(cache)
    assert lib.hutch_close(cache) == Status.OK
    assert get(cache, b"k") == (Status.CLOSED, None)
    lib.hutch_cache_retain(cache)
    assert lib.hutch_close(cache) == Status.CLOSED
    lib.hutch_cache_release(cache)


def test_the_last_reference_shuts_down_too(directory):
    status, cache = open_raw(bytes(directory))
    assert status == Status.OK
    assert put(cache, b"k", b"v") == Status.OK
    lib.hutch_cache_release(cache)
    status, cache = open_raw(bytes(directory))
    assert status == Status.OK, "it would be OPTIONS_DIFFER or BUSY were it open"
    assert get(cache, b"k") == (Status.OK, b"v")
    assert lib.hutch_close(cache) == Status.OK


def test_nothing_stays_open(directory):
    """Neither descriptors nor threads, however the cache was used and let go."""

    def held() -> tuple:
        links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
        ours = [link for link in links if os.path.realpath(link).startswith(str(directory))]
        return len(ours), len(os.listdir("/proc/self/task"))

    before = held()
    for number in range(5):
        cache = hutch.Cache(directory)
        second = hutch.Cache(directory)
        for key in range(20):
            cache[key] = b"x" * (key * 5000)
        cache.memory.clear()
        assert second[number] == b"x" * (number * 5000)
        view, walk = cache.disk, iter(cache)
        next(walk)
        second.close()
        if number % 2:
            cache.close()
        del cache, second, view, walk
        gc.collect()
        # The thread that has closed a collected cache may still be about to end.
        deadline = time.monotonic() + 10
        while held() != before and time.monotonic() < deadline:
            time.sleep(0.001)
        assert held() == before


# -------------------------------------------------------------------- the clock


class Standing:
    def __call__(self) -> int:
        return 10**18


def test_a_clock_lives_as_long_as_its_cache(directory):
    clock = Standing()
    alive = weakref.ref(clock)
    with hutch.Cache(directory, clock=clock) as cache:
        del clock
        gc.collect()
        cache["k"] = 1
        assert cache.info("k").created == 10**9
        assert alive() is not None
    del cache
    gc.collect()
    assert alive() is None


def test_a_clock_is_let_go_when_opening_fails():
    clock = Standing()
    alive = weakref.ref(clock)
    with pytest.raises(hutch.BadDirectoryError):
        hutch.Cache("/dev/null/below", clock=clock)
    with pytest.raises(hutch.InvalidArgumentError):
        hutch.Cache("", clock=clock)
    before = set(_hooks._clocks)
    del clock
    gc.collect()
    assert alive() is None
    assert set(_hooks._clocks) == before


def test_the_release_of_a_clock_is_called_once():
    calls = []
    read = structs.ClockFunction(lambda context: 10**18)
    release = structs.ReleaseFunction(lambda context: calls.append(context))
    options = structs.Options()
    options.clock, options.clock_context, options.clock_release = read, 5, release
    status, cache = open_raw(None, byref(options))
    assert status == Status.OK and put(cache, b"k", b"v") == Status.OK
    assert lib.hutch_close(cache) == Status.OK
    assert calls == [5]
    assert open_raw(b"/dev/null/below", byref(options))[0] == Status.BAD_DIRECTORY
    assert calls == [5, 5]
    # Failed by its arguments: the release follows what was handed over all the same.
    assert lib.hutch_open(None, byref(options), None) == Status.INVALID_ARGUMENT
    assert calls == [5, 5, 5]


def test_a_clock_of_the_second_opening_is_let_go(directory):
    clock = Standing()
    alive = weakref.ref(clock)
    with hutch.Cache(directory) as first:
        with pytest.warns(hutch.OptionsDifferWarning):
            second = hutch.Cache(directory, clock=clock, disk=hutch.TierLimits(count=3))
        second["k"] = 1
        assert first["k"] == 1
        second.close()
    del first, second, clock
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("pure", PURE)
def test_a_second_opening_of_one_object(directory, pure):
    """It would end the first one's close."""
    out = run(
        """
        import sys, hutch
        cache = hutch.Cache(sys.argv[1])
        cache["k"] = "v"
        for is_open in True, False:
            try:
                cache.__init__(sys.argv[1] + "-2")
            except RuntimeError as error:
                print(error)
            print(cache["k"] if is_open else "closed")
            cache.close()
        print(hutch.destroy(sys.argv[1]), hutch.destroy(sys.argv[1] + "-2"))
        """,
        directory, HUTCH_PURE=pure,
    )
    words = "the cache has been opened already"
    assert out == f"{words}\nv\n{words}\nclosed\nTrue False\n"


# ------------------------------------------------------- the interpreter's end


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "walk = iter(cache.items()); next(walk)",
        "view = cache.disk; view['l'] = 2",
        "loop = [cache]; loop.append(loop); del cache",
        "import builtins; builtins.kept = cache",
        "import atexit; atexit.register(lambda: cache.close())",
        "import sys; sys.modules.clear()",
        "import sys; sys.exit(0)",
    ],
)
def test_a_cache_that_is_open_at_the_end(directory, ending):
    run(
        f"""
        import sys, hutch
        cache = hutch.Cache(sys.argv[1])
        cache["k"] = "v"
        {ending}
        """,
        directory,
    )
    with hutch.Cache(directory) as cache:
        assert cache["k"] == "v"


def test_daemon_threads_at_the_end(directory):
    for _ in range(3):
        run(
            """
            import sys, threading, hutch
            cache = hutch.Cache(sys.argv[1])
            cache["k"] = "v"
            started = threading.Barrier(4)

            def work():
                started.wait()
                while True:
                    cache["k"] = cache["k"]
                    list(cache.items())

            for _ in range(3):
                threading.Thread(target=work, daemon=True).start()
            started.wait()
            """,
            directory,
        )
        with hutch.Cache(directory) as cache:
            assert cache["k"] == "v"


def test_tasks_at_the_end_use_caches(directory):
    run(
        """
        import sys, threading, hutch
        cache = hutch.Cache(sys.argv[1])
        queue = hutch.Queue()
        own = cache.queue()
        begun = [threading.Event(), threading.Event()]

        def work(number):
            begun[number].set()
            threading.main_thread().join()
            for n in range(100):
                cache[f"{number}:{n}"] = n

        tasks = [queue.submit(work, 0), own.submit(work, 1)]
        for each in begun:
            each.wait()
        """,
        directory,
    )
    with hutch.Cache(directory) as cache:
        assert {cache.get(f"0:{n}") for n in range(100)} == set(range(100))


def test_a_task_of_a_cache_ends_with_the_cache(directory):
    """The close waits for it, and its calls fail from then on."""
    out = run(
        """
        import sys, threading, hutch
        cache = hutch.Cache(sys.argv[1], close_deadline=5)
        begun = threading.Event()

        def work():
            begun.set()
            try:
                while True:
                    cache["k"] = 1
            except hutch.ClosedError:
                print("closed")

        task = cache.queue().submit(work)
        begun.wait()
        """,
        directory,
    )
    assert out == "closed\n"


def test_handlers_of_the_end_use_caches(directory):
    out = run(
        """
        import atexit, sys, hutch
        atexit.register(lambda: print(cache["k"]))
        cache = hutch.Cache(sys.argv[1])
        cache["k"] = "v"
        """,
        directory,
    )
    assert out == "v\n"


@pytest.mark.parametrize("options", ["", ", write_policy='on_eviction'"])
def test_the_end_closes_a_cache(directory, options):
    """An entry that memory alone has is written."""
    run(
        f"""
        import sys, hutch
        cache = hutch.Cache(sys.argv[1]{options})
        cache.set("k", "v", write_policy="on_eviction")
        """,
        directory,
    )
    with hutch.Cache(directory) as cache:
        assert cache["k"] == "v"


def test_a_clock_at_the_end(directory):
    run(
        """
        import sys, time, hutch
        cache = hutch.Cache(sys.argv[1], clock=time.time_ns)
        cache["k"] = "v"
        """,
        directory,
    )


@pytest.mark.parametrize("pure", PURE)
@pytest.mark.parametrize("first", ["pass", "len(cache)"])
def test_a_finalizer_at_the_very_end(directory, pure, first):
    """Nothing can be imported by then. A call raises an error of a closed cache all the same."""
    run(
        f"""
        import builtins, datetime, sys, hutch

        class User:
            def __init__(self, cache):
                self.cache = cache

            def __del__(self, log=open(sys.argv[2], "w"), hour=datetime.timedelta(hours=1)):
                cache = self.cache
                calls = [
                    lambda: cache.get("k"), lambda: cache["k"], lambda: [*cache],
                    lambda: cache.set("k", 2), lambda: len(cache), lambda: "k" in cache,
                    lambda: cache.incr("n"), lambda: cache.set("k", 2, hour),
                    lambda: cache.put("k", 2), lambda: cache.info("k"),
                    lambda: cache.infos(["k"]), lambda: cache.entry("k"),
                    lambda: cache.listen(print), lambda: cache.memory, lambda: cache.disk,
                    lambda: cache.objects.get("k"), lambda: cache.stats(),
                    lambda: cache.limits(), lambda: cache.options(), lambda: cache.check(),
                    lambda: cache.queue().submit(print),
                ]
                for call in calls:
                    try:
                        call()
                    except ValueError as error:
                        log.write(str("closed" in str(error)))
                    except ImportError as error:
                        log.write(f"{{calls.index(call)}}: {{error}}. ")
                cache.close()
                log.write(repr(cache))
                log.close()

        cache = hutch.Cache(sys.argv[1])
        cache["k"] = "v"
        {first}
        builtins.user = User(cache)
        del cache
        """,
        directory, directory.parent / "log", HUTCH_PURE=pure,
    )
    log = (directory.parent / "log").read_text()
    assert log == "True" * 21 + f"hutch.Cache({str(directory)!r})"


@pytest.mark.parametrize("pure", PURE)
def test_a_finalizer_of_a_diskcache_program_at_the_very_end(directory, pure):
    """A cache of diskcache is opened again by a call after its close, which is too late here."""
    run(
        """
        import builtins, sys
        from hutch import diskcache

        class User:
            def __init__(self, cache, shards):
                self.cache, self.shards = cache, shards

            def __del__(self, log=open(sys.argv[2], "w")):
                calls = [
                    lambda: self.cache.get("k"), lambda: self.shards.get("k"),
                    lambda: self.cache.set("k", 1), lambda: self.shards.set("k", 1),
                ]
                for call in 2 * calls:
                    try:
                        call()
                    except (ValueError, ImportError) as error:
                        log.write(f"{error}\\n")
                    if call is calls[-1]:
                        self.cache.close()
                        self.shards.close()
                log.close()

        cache = diskcache.Cache(sys.argv[1])
        cache["k"] = 1
        shards = diskcache.FanoutCache(sys.argv[1] + "-2", shards=2)
        shards["k"] = 1
        builtins.user = User(cache, shards)
        del cache, shards
        """,
        directory, directory.parent / "log", HUTCH_PURE=pure,
    )
    lines = (directory.parent / "log").read_text().splitlines()
    assert len(lines) == 8 and all("the cache" in line and "closed" in line for line in lines)
