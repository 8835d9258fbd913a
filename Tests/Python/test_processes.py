"""Two openings, two processes, and fork."""

from __future__ import annotations

import os
import sys
import warnings

import hutch
import pytest
from conftest import IS_WHOLE, KINDS
from native import Status, get, lib, open_raw, put
from processes import run

TRY_TO_OPEN = """
    import sys, hutch
    try:
        with hutch.Cache(sys.argv[1]) as cache:
            print(sorted(cache.items()))
    except hutch.BusyError as error:
        assert isinstance(error, OSError)
        print("busy")
"""


def test_a_second_process_finds_it_busy(directory):
    with hutch.Cache(directory, sharing="exclusive") as cache:
        cache["k"] = 1
        assert run(TRY_TO_OPEN, directory) == "busy\n"
        cache["l"] = 2
        assert run(TRY_TO_OPEN, directory) == "busy\n"
        assert dict(cache.items()) == {"k": 1, "l": 2}
    assert run(TRY_TO_OPEN, directory) == "[('k', 1), ('l', 2)]\n"


def test_it_stays_busy_until_the_last_opening_is_closed(directory):
    first, second = (hutch.Cache(directory, sharing="exclusive") for _ in range(2))
    first.close()
    assert run(TRY_TO_OPEN, directory) == "busy\n"
    second.close()
    assert run(TRY_TO_OPEN, directory) == "[]\n"


def test_a_second_process_comes_in_by_default(directory):
    with hutch.Cache(directory) as cache:
        cache["k"] = 1
        assert run(TRY_TO_OPEN, directory) == "[('k', 1)]\n"
        cache["l"] = 2
        code = "import sys, hutch; hutch.Cache(sys.argv[1])['k'] = 3"
        run(code, directory)
        assert dict(cache.items()) == {"k": 3, "l": 2}


def test_who_writes_on_eviction_has_it_alone(directory):
    with hutch.Cache(directory, write_policy="on_eviction") as cache:
        cache["k"] = 1
        assert run(TRY_TO_OPEN, directory) == "busy\n"
    with hutch.Cache(directory) as cache:
        assert cache["k"] == 1
        # Where others may look, nothing is owed to the disk.
        assert cache.put("l", 2, write_policy="on_eviction").disk == hutch.Outcome.STORED
    with pytest.raises(ValueError, match="HUTCH_SHARING_SHARED"):
        hutch.Cache(directory, write_policy="on_eviction", sharing="shared")


def test_a_process_that_was_killed_is_in_nobodys_way(directory):
    run("import os, sys, hutch; c = hutch.Cache(sys.argv[1]); c['k'] = 1; os._exit(0)", directory)
    with hutch.Cache(directory) as cache:
        assert cache["k"] == 1


# --------------------------------------------------------------------- sharing


def shared(directory, **options):
    return hutch.Cache(directory, sharing="shared", **options)


def test_processes_that_share_see_each_others_writes(directory):
    with shared(directory) as cache:
        cache["k"], cache["gone"], cache["n"] = "parent", 1, 5
        assert cache["k"] == "parent" and cache["gone"] == 1
        run(
            """
            import sys, hutch
            with hutch.Cache(sys.argv[1], sharing="shared") as cache:
                assert cache["k"] == "parent" and len(cache) == 3
                cache["k"] = "child"
                del cache["gone"]
                assert not cache.add("n", 1) and cache.add("m", 1)
                assert cache.incr("counter", 3) == 3
            """,
            directory,
        )
        assert cache["k"] == "child" and "gone" not in cache and len(cache) == 4
        assert cache.incr("counter") == 4 and not cache.add("m", 2)
    with hutch.Cache(directory) as cache:
        assert sorted(cache) == ["counter", "k", "m", "n"]


def test_who_shares_and_who_does_not(directory):
    alone = TRY_TO_OPEN.replace("sys.argv[1]", 'sys.argv[1], sharing="exclusive"')
    with shared(directory):
        assert run(alone, directory) == "busy\n"
    with hutch.Cache(directory, sharing="exclusive"), pytest.warns(hutch.OptionsDifferWarning):
        shared(directory).close()
    assert run(TRY_TO_OPEN, directory) == "[]\n"
    with pytest.raises(ValueError, match="sharing is"):
        hutch.Cache(directory, sharing="both")


def test_limits_are_those_in_force(directory):
    with shared(directory, disk=hutch.TierLimits(count=3)) as cache:
        output = run(
            """
            import sys, warnings, hutch
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                hutch.Cache(sys.argv[1], sharing="shared").close()
                assert not caught, "a limit that is not set is the directory's"
                other = hutch.TierLimits(count=7)
                cache = hutch.Cache(sys.argv[1], sharing="shared", disk=other)
                assert not caught, "a limit that is set changes the directory's"
            for number in range(9):
                cache.disk[number] = number
            print(len(cache.disk), cache.limits().disk.count)
            cache.set_limits(disk=hutch.TierLimits(count=2))
            cache.close()
            """,
            directory,
        )
        assert output == "7 7\n" and len(cache.disk) == 2
        cache.disk["k"] = 1
        assert cache.limits().disk.count == 2


# --------------------------------------------------------------- two openings


def test_two_openings_are_one_cache(directory, monkeypatch):
    link = directory.parent / "link"
    directory.mkdir()
    link.symlink_to(directory)
    monkeypatch.chdir(directory.parent)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        openings = [
            hutch.Cache(path) for path in (directory, os.fsencode(directory), link, "cache")
        ]
    for number, one in enumerate(openings):
        one[f"key-{number}"] = number
    for one in openings:
        assert len(one) == 4 and one["key-2"] == 2
    assert openings[0].directory == str(directory) or openings[0].directory == openings[1].directory
    while openings:
        openings.pop(0).close()
        for number, one in enumerate(openings):
            one["k"] = number
            assert one["key-0"] == 0 and one["k"] == number


def test_other_options_are_told_and_the_first_ones_go_on(directory):
    with hutch.Cache(directory, disk=hutch.TierLimits(count=100)) as first:
        with pytest.warns(hutch.OptionsDifferWarning, match="other options"):
            second = hutch.Cache(directory, disk=hutch.TierLimits(count=5))
        assert second.limits().disk.count == 100
        second.set_limits(disk=hutch.TierLimits(count=50))
        assert first.limits().disk.count == 50
        second.close()
        assert first.limits().disk.count == 50


def test_other_options_that_are_an_error(directory):
    with hutch.Cache(directory) as first:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(hutch.OptionsDifferWarning):
                hutch.Cache(directory, disk=hutch.TierLimits(count=5))
        first["k"] = 1
    assert run(TRY_TO_OPEN, directory) == "[('k', 1)]\n", "the refused opening must not stay"


def test_caches_in_memory_share_nothing():
    with hutch.Cache() as first, hutch.Cache() as second:
        first["k"] = 1
        assert "k" not in second


def test_the_status_in_c(directory):
    first_status, first = open_raw(bytes(directory))
    second_status, second = open_raw(bytes(directory))
    assert first_status == second_status == Status.OK
    assert put(first, b"k", b"v") == Status.OK
    assert get(second, b"k") == (Status.OK, b"v")
    assert lib.hutch_close(first) == lib.hutch_close(second) == Status.OK


# ------------------------------------------------------------------------ fork


@pytest.mark.parametrize(
    "kind", ["memory only", *(["mixed", "sqlite", "file", "log"] if IS_WHOLE else KINDS)]
)
def test_parent_and_child_both_go_on(directory, kind):
    run(
        """
        import os, sys, hutch
        path, kind = sys.argv[1:]
        cache = hutch.Cache() if kind == "memory only" else hutch.Cache(path, storage=kind)
        view, walk = cache.memory, iter(cache.items())
        for number in range(100):
            cache[number] = b"x" * (number * 300)
        next(walk)
        child = os.fork()
        name = "child" if child == 0 else "parent"
        for number in range(100):
            assert cache[number] == b"x" * (number * 300)
            cache[f"{name}-{number}"] = b"y" * (number * 300)
            assert cache[f"{name}-{number}"] == b"y" * (number * 300)
            assert cache.incr(name) == number + 1
        # All but those whose coherence counter is that of a key which the other has written.
        assert sum(f"{name}-{number}" in view for number in range(100)) > 90
        if child == 0:
            try:
                next(walk)
            except hutch.ForkedError as error:
                assert isinstance(error, RuntimeError)
            else:
                raise AssertionError("no ForkedError")
            with hutch.Cache() as own:
                own["k"] = 1
                assert own["k"] == 1
            if kind != "memory only":
                with hutch.Cache(path + "-child", storage=kind) as own:
                    own["k"] = "child"
            cache.close()
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(cache) == (201 if kind == "memory only" else 302)
        cache.close()
        """,
        directory,
        kind,
    )
    if kind == "memory only":
        assert not directory.exists()
        return
    with hutch.Cache(directory) as cache:
        assert len(cache) == 302 and cache["child"] == cache["parent"] == 100
        for number in range(100):
            assert cache[number] == b"x" * (number * 300)
            assert cache[f"child-{number}"] == cache[f"parent-{number}"] == b"y" * (number * 300)
        assert not cache.check()
    with hutch.Cache(f"{directory}-child") as cache:
        assert dict(cache.items()) == {"k": "child"}


def test_a_pool_of_forked_processes_has_the_cache(directory):
    run(
        """
        import multiprocessing, sys, hutch
        cache = hutch.Cache(sys.argv[1])
        cache["base"] = 40

        def work(number):
            cache[number] = cache["base"] + number
            return cache.incr("done")

        context = multiprocessing.get_context("fork")
        with context.Pool(3) as pool:
            done = pool.map(work, range(60), chunksize=1)
        assert sorted(done) == list(range(1, 61))
        assert cache["done"] == 60
        assert all(cache[number] == 40 + number for number in range(60))
        cache.close()
        """,
        directory,
    )
    with hutch.Cache(directory) as cache:
        assert len(cache) == 62 and not cache.check()


def test_the_child_opens_the_parents_directory(directory):
    run(
        """
        import os, sys, hutch
        cache = hutch.Cache(sys.argv[1])
        cache["k"] = "parent"
        child = os.fork()
        if child == 0:
            with hutch.Cache(sys.argv[1]) as second:
                assert second["k"] == "parent"
                second["c"] = "child"
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert cache["c"] == "child"
        cache["l"] = "parent"
        """,
        directory,
    )
    with hutch.Cache(directory) as cache:
        assert dict(cache.items()) == {"k": "parent", "c": "child", "l": "parent"}


def test_the_child_outlives_the_parent_which_lets_go(directory):
    """A child has the directory for as long as it lives; then others may."""
    output = run(
        """
        import os, sys, hutch
        cache = hutch.Cache(sys.argv[1])
        cache["k"] = 1
        ready, wait = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(wait)
            os.close(1), os.close(2)
            os.read(ready, 1)
            os._exit(0 if cache["k"] == 1 else 1)
        cache.close()
        try:
            hutch.Cache(sys.argv[1], sharing="exclusive")
        except hutch.BusyError:
            pass
        else:
            raise AssertionError("not busy")
        finally:
            os.close(wait)
            status = os.waitpid(child, 0)[1]
        assert status == 0
        with hutch.Cache(sys.argv[1]) as again:
            print(again["k"])
        """,
        directory,
    )
    assert output == "1\n"


def test_forks_while_threads_write(directory):
    run(
        """
        import os, sys, threading, time, hutch
        cache = hutch.Cache(sys.argv[1])
        stop, counts = threading.Event(), [0] * 3

        def write(name):
            while not stop.is_set():
                number = counts[name]
                cache[f"{name}-{number}"] = b"x" * (number * 211 % 40_000)
                counts[name] = number + 1

        threads = [threading.Thread(target=write, args=(name,)) for name in range(3)]
        for thread in threads:
            thread.start()
        for number in range(int(sys.argv[2])):
            begun = time.monotonic()
            child = os.fork()
            if child == 0:
                # A fork waits for a second at most.
                late = time.monotonic() - begun >= 1
                try:
                    cache["child"] = os.getpid()
                except hutch.ForkedError:
                    os._exit(0 if late else 2)
                os._exit(0 if cache["child"] == os.getpid() else 1)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert status == 0, status
        stop.set()
        for thread in threads:
            thread.join()
        for name in range(3):
            for number in range(counts[name]):
                cache.touch(f"{name}-{number}", 1000)
        cache["counts"] = counts
        """,
        directory,
        "20" if IS_WHOLE else "8",
    )
    with hutch.Cache(directory) as cache:
        counts = cache["counts"]
        # The default limit may have evicted the oldest; what is there is whole.
        for name in range(3):
            for number in range(counts[name]):
                found = cache.get(f"{name}-{number}")
                assert found is None or found == b"x" * (number * 211 % 40_000)
        assert not cache.check()


def test_a_fork_does_not_wait_for_callbacks_in_python(directory):
    """They may wait for the interpreter's lock, which the thread that forks has."""
    run(
        """
        import os, sys, threading, hutch

        entered, leave = threading.Semaphore(0), threading.Semaphore(0)
        stalls = threading.local()

        def stall():
            if getattr(stalls, "once", False):
                stalls.once = False
                entered.release()
                leave.acquire()

        def copy(data):
            stall()
            return bytes(data)

        cache = hutch.Cache(sys.argv[1], codec=hutch.Codec(1, copy, copy))
        cache["there"] = "value"
        listening = cache.listen(lambda event: stall(), hutch.EventKind.DID_ADD)

        def work(name):
            stalls.once = True
            if name == "get":
                assert cache.disk["there"] == "value"
            elif name == "load":
                assert cache.load("load", lambda key: (stall(), "made")[1]) == "made"
            else:
                cache[name] = "value"

        for name in ("put", "get", "load"):
            thread = threading.Thread(target=work, args=(name,))
            thread.start()
            entered.acquire()
            child = os.fork()
            if child == 0:
                cache["child"] = name
                assert cache.disk["child"] == name and cache.disk["there"] == "value"
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            leave.release()
            thread.join()
            assert cache["child"] == name
        cache.close()
        """,
        directory,
    )


def test_a_child_awaits_on_a_loop_of_its_own(directory):
    run(
        """
        import asyncio, os, sys, hutch
        cache = hutch.Cache(sys.argv[1])

        async def use(key):
            await cache.aset(key, key)
            return await cache.aget(key)

        assert asyncio.run(use("parent")) == "parent"
        child = os.fork()
        name = "child" if child == 0 else "parent again"
        assert asyncio.run(use(name)) == name
        with hutch.Queue() as queue:
            assert queue.submit(sum, [1, 2]).result() == 3
        if child == 0:
            cache.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert cache["child"] == "child"
        cache.close()
        """,
        directory,
    )


def test_values_of_the_parent_are_valid_in_the_child():
    run(
        """
        import ctypes, os, sys
        from native import Status, byref, lib, open_raw, put, structs
        status, cache = open_raw()
        assert status == Status.OK and put(cache, b"k", b"v" * 100_000) == Status.OK
        value = structs.ValuePointer()
        assert lib.hutch_get(cache, b"k", 1, byref(value)) == Status.OK
        child = os.fork()
        data = ctypes.string_at(lib.hutch_value_data(value), lib.hutch_value_size(value))
        assert data == b"v" * 100_000
        lib.hutch_value_release(value)
        if child == 0:
            assert lib.hutch_close(cache) == Status.OK
            lib.hutch_cache_release(None)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert lib.hutch_close(cache) == Status.OK
        """
    )


@pytest.mark.skipif(sys.version_info < (3, 12), reason="os.fork warns of nothing")
def test_a_fork_is_warned_of_for_threads_of_the_program_only(directory):
    output = run(
        """
        import os, sys, threading, warnings
        import hutch

        def warned():
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                child = os.fork()
                if child == 0:
                    cache["from"] = cache["a"]
                    os._exit(0)
                os.waitpid(child, 0)
                assert cache["from"] == 1
            return len(told)

        cache = hutch.Cache(sys.argv[1])
        cache["a"] = 1
        threads = len(os.listdir("/proc/self/task"))
        before = list(warnings.filters)
        print(threads > 1, warned(), warned())
        release = threading.Event()
        thread = threading.Thread(target=release.wait)
        thread.start()
        print(warned())
        release.set()
        thread.join()
        # A thread that has been joined may still be on its way out.
        while os.path.exists(f"/proc/self/task/{thread.native_id}"):
            pass
        print(warned())
        cache.close()
        print(warnings.filters == before)
        """,
        directory,
    )
    assert output == "True 0 0\n1\n0\nTrue\n"


@pytest.mark.parametrize("module", ["_many", "_records"])
def test_a_fork_while_a_thread_imports_for_a_call(directory, module):
    """With the accelerator, the first call of most kinds imports _many and much else, under a lock
    that the child needs as well. A call that needs _records imports it alone."""
    run(
        f"""
        import os, signal, sys, threading, warnings
        import hutch
        warnings.simplefilter("ignore", DeprecationWarning)
        imports, forks = threading.Event(), threading.Event()
        class Slow:
            def find_spec(self, name, path=None, target=None):
                if name == "hutch.{module}":
                    imports.set()
                    forks.wait()
        with hutch.Cache({str(directory)!r}) as cache:
            if {module == "_records"}:
                len(cache)
                sys.modules.pop("hutch._records", None)
            sys.meta_path.insert(0, Slow())
            thread = threading.Thread(target=lambda: (cache.info("a"), imports.set()))
            thread.start()
            imports.wait()
            # The thread does not go on before this one waits for a lock, or has forked.
            sys.setswitchinterval(1000)
            os.register_at_fork(before=forks.set)
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                os._exit(cache.info("a") is not None)
            sys.setswitchinterval(0.005)
            assert os.waitpid(child, 0) == (child, 0)
            thread.join()
        """
    )
