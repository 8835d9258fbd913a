"""What functions of the user raise when C calls them: it reaches the user, and C gets a status."""

from __future__ import annotations

import _thread
import asyncio
import collections
import contextlib
import ctypes
import functools
import gc
import os
import signal
import sys
import textwrap
import time

import hutch
import pytest
from hutch import (
    Status,
    _accelerator,
    _aload,
    _awaiting,
    _callbacks,
    _closed_loops,
    _handles,
    _hooks,
    _tasks,
)
from processes import finished


def errors_of(code: str, *arguments: os.PathLike) -> str:
    """What a program writes to its standard error, with the interpreter's own hooks."""
    done = finished("-c", textwrap.dedent(code), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stderr


PROGRAMS = {
    "a listener": """
        import hutch
        def fail(event):
            raise ValueError("of the user")
        cache = hutch.Cache()
        with cache.listen(fail):
            cache["k"] = 1
        assert cache["k"] == 1
    """,
    "a codec": """
        import sys, hutch
        def fail(data):
            raise ValueError("of the user")
        with hutch.Cache(sys.argv[1], codec=hutch.Codec(1, bytes, fail)) as cache:
            cache["k"] = "v"
            for _ in range(3):
                try:
                    cache.disk["k"]
                except hutch.StorageError:
                    continue
                raise SystemExit("the read has not failed")
            assert "k" in cache.disk
    """,
    "a codec that encodes": """
        import sys, hutch
        def fail(data):
            raise ValueError("of the user")
        hutch.log(None)
        with hutch.Cache(sys.argv[1], codec=hutch.Codec(1, fail, bytes)) as cache:
            for _ in range(3):
                assert cache.put("k", "v").disk == hutch.Outcome.FAILED
    """,
    "a clock": """
        import hutch
        times = [10**18]
        def fail():
            if times:
                return times[0]
            raise ValueError("of the user")
        cache = hutch.Cache(clock=fail)
        cache["k"] = 1
        times.clear()
        assert cache["k"] == 1
    """,
    "logging": """
        import logging, hutch
        class Broken(logging.Handler):
            def emit(self, record):
                raise ValueError("of the user")
        logging.getLogger("hutch").addHandler(Broken())
        hutch.log(logging.INFO)
        logging.getLogger("hutch").setLevel(logging.INFO)
        def fail(key):
            raise LookupError
        try:
            hutch.Cache().load("k", fail)
        except LookupError:
            pass
    """,
    "what is done at the end of a task": """
        import hutch
        def fail(task):
            raise ValueError("of the user")
        with hutch.Queue() as queue:
            queue.submit(str, done=fail).wait()
    """,
    "a merge of tasks": """
        import hutch
        def fail(into, other):
            raise ValueError("of the user")
        with hutch.Queue() as queue:
            queue.suspend()
            for n in range(2):
                queue.submit(str, n, identifier="i", merge=fail)
            queue.resume()
    """,
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_the_default_hook_tells_what_the_user_raised(what, directory):
    told = errors_of(PROGRAMS[what], directory)
    assert "ValueError: of the user" in told
    assert "UnraisableHookArgs" not in told and "TypeError" not in told
    assert what.replace(" that encodes", "") in told


def test_no_callback_leaves_its_caller_without_a_status(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: told.append(args.exc_type))
    unknown = 2**40
    assert _hooks._encode_callback(unknown, None, 0, None) == Status.IO
    assert _hooks._decode_callback(unknown, None, 0, None) == Status.IO
    assert _aload.lead_callback(unknown, None, 0, None) == Status.IO
    assert _tasks.work_callback(unknown, None) == Status.IO
    assert _hooks._read_callback(unknown) == 0
    assert told == [KeyError] * 5


def test_a_codec_that_makes_no_bytes(directory, monkeypatch, caplog):
    told = []
    # The arguments of the hook keep all that its traceback refers to.
    monkeypatch.setattr(sys, "unraisablehook", lambda args: told.append(str(args.exc_value)))
    with hutch.Cache(directory, codec=hutch.Codec(1, lambda data: "text", bytes)) as cache:
        assert cache.put("k", b"value").disk == hutch.Outcome.FAILED
        assert cache["k"] == b"value" and "k" not in cache.disk
    assert "a codec's functions return bytes, not str" in told[0]
    codec = hutch.Codec(2, lambda data: bytearray(data), lambda data: memoryview(data))
    with hutch.Cache(directory, codec=codec) as cache:
        cache["k"] = b"value"
        assert cache.disk["k"] == b"value"


def test_what_is_no_callback_is_refused():
    for options in (
        {"clock": 5},
        {"codec": (1, bytes, bytes)},
        {"codec": hutch.Codec(1, bytes, None)},
        {"codec": hutch.Codec(1, "zlib", bytes)},
    ):
        with pytest.raises(TypeError, match="clock is a function|codec"):
            hutch.Cache(**options)


@pytest.fixture
def interruptible():
    """SIGINT raises KeyboardInterrupt, though the tests run in a shell's background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("call", ["listener", "clock", "codec", "task"])
def test_an_interrupt_within_a_callback_reaches_the_main_thread(
    directory, call, interruptible, monkeypatch
):
    if _accelerator.module is not None:
        # A value that its codec did not encode is a line of the log, the first one of a program.
        monkeypatch.delitem(sys.modules, "hutch._logs", raising=False)
    armed = []

    def interrupt(*_):
        if armed:
            armed.clear()
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):
                pass
        return 10**18

    if call == "clock":
        cache = hutch.Cache(directory, clock=interrupt)
    elif call == "codec":
        codec = hutch.Codec(1, lambda data: (interrupt(), data)[1], bytes)
        cache = hutch.Cache(directory, codec=codec)
    else:
        cache = hutch.Cache(directory)
    queue = hutch.Queue(threads=False)
    if call == "listener":
        cache.listen(interrupt, hutch.EventKind.DID_ADD)
    with cache, queue:
        if call == "task":
            queue.submit(interrupt)
        armed.append(True)
        with pytest.raises(KeyboardInterrupt):
            for _ in range(1000):
                cache["k"] = "v"
                queue.run()
        assert not armed
        assert cache["k"] == "v" or call == "codec"


@pytest.mark.skipif(_accelerator.module is None, reason="the accelerator guards callbacks")
@pytest.mark.parametrize("call", ["listener", "clock", "codec"])
def test_an_interrupt_just_before_a_callback_is_not_lost(directory, call, interruptible):
    """A signal that comes while C runs is handled as soon as C calls a function of Python."""
    calls = []

    def note(*arguments):
        calls.append(arguments)
        return arguments[0] if call == "codec" else 10**18

    options = {
        "listener": {},
        "clock": {"clock": note},
        "codec": {"codec": hutch.Codec(1, note, note)},
    }
    with hutch.Cache(directory, **options[call]) as cache:
        if call == "listener":
            cache.listen(note, hutch.EventKind.DID_ADD)
        cache["k"] = "v"
        for value in ("v1", "v2"):
            calls.clear()
            # No function of Python runs between these two.
            steps = [
                functools.partial(_thread.interrupt_main),
                functools.partial(cache.set, "k", value),
            ]
            with pytest.raises(KeyboardInterrupt):
                list(map(functools.partial.__call__, steps))
                str.upper(os.fsdecode(b""))
            if sys.version_info >= (3, 11):
                assert calls, "the callback was not made"
                assert cache["k"] == cache.disk["k"] == value
            # Before, the handler runs within the callback's try block.


@pytest.mark.skipif(_accelerator.module is None, reason="it has these calls")
@pytest.mark.parametrize("place", ["memory", "directory"])
def test_an_interrupt_ends_a_call_for_many_keys(directory, place, interruptible):
    """The accelerator's loops look for a signal, as each step of Python's would."""
    keys = [f"key-{number}" for number in range(20_000)]
    values = [b"value"] * len(keys)
    with hutch.Cache(directory if place == "directory" else None) as cache:
        put_all = functools.partial(cache._put_all, keys, values, None)
        assert put_all()
        for call in (
            functools.partial(cache._all_keys, None, 0),
            functools.partial(cache._placed_keys, b"", 0),
            put_all,
        ):
            if call is put_all:
                cache.clear()
            results = []
            with pytest.raises(KeyboardInterrupt):
                # No function of Python runs between these two.
                steps = [functools.partial(_thread.interrupt_main), call]
                results.extend(map(functools.partial.__call__, steps))
                str.upper(os.fsdecode(b""))
            assert results == [None]
        assert 0 < len(cache) < len(keys)
        assert put_all() and len(cache._all_keys(None, 0)) == len(cache) == len(keys)


def test_an_interrupt_just_before_any_callback_is_not_lost(interruptible):
    """The same with the functions that ctypes calls, which the package has without the accelerator."""
    calls = []

    @_callbacks.callback
    def double(number):
        calls.append(number)
        return 2 * number

    called = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(double)
    for number in range(3):
        steps = [functools.partial(_thread.interrupt_main), functools.partial(called, number)]
        results = []
        with pytest.raises(KeyboardInterrupt):
            results.extend(map(functools.partial.__call__, steps))
            str.upper(os.fsdecode(b""))
        assert calls == [number] and results == [None, 2 * number]
        calls.clear()
    assert called(4) == 8 and calls == [4]


@pytest.mark.parametrize("kind", ["view", "task", "owner"])
def test_an_interrupt_at_the_end_of_an_object_is_not_lost(directory, kind, interruptible):
    """An object ends where nothing can be raised, and what it owns is released all the same."""
    released = []
    with hutch.Cache(directory) as cache, hutch.Queue(threads=False) as queue:
        for _ in range(3):
            others = set(_handles._lasts)
            if kind == "view":
                ending = [cache.disk]
            elif kind == "task":
                ending = [queue.submit(int)]
                queue.run()
            else:
                ending = [_handles.Owner(ctypes.c_void_p(8), released.append)]
            own = set(_handles._lasts) - others
            assert own or kind == "owner"
            steps = [functools.partial(_thread.interrupt_main), functools.partial(ending.clear)]
            with pytest.raises(KeyboardInterrupt):
                list(map(functools.partial.__call__, steps))
                str.upper(os.fsdecode(b""))
            assert not own & set(_handles._lasts)
    assert [each.value for each in released] == ([8] * 3 if kind == "owner" else [])


def test_an_interrupt_after_a_function_does_not_call_it_again():
    """Its guard raises what has come when the function has ended."""
    calls, results = [], []

    def double(number):
        calls.append(number)
        return 2 * number

    guard = _callbacks._guard(double)

    def trace(frame, event, argument):
        if frame.f_code is not guard.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and calls:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    tracing = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt):
            results.extend(map(guard, [4]))
            str.upper(os.fsdecode(b""))
    finally:
        sys.settrace(tracing)
    assert (calls, results) == ([4], [8])


def interrupt_after(steps, is_counted):
    """A function for sys.settrace: Ctrl-C after so many instructions of the code that counts."""

    def trace(frame, event, argument):
        if not is_counted(frame.f_code):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and next(steps, None) is None:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    return trace


def test_an_interrupt_anywhere_in_an_end_releases_no_handle_twice():
    for step in range(1000):
        released, steps = [], iter(range(step))
        trace = interrupt_after(steps, lambda code: code.co_filename == _handles.__file__)
        owners = [_handles.Owner(ctypes.c_void_p(8), released.append)]
        tracing = sys.gettrace()
        sys.settrace(trace)
        try:
            owners.clear()
            str.upper(os.fsdecode(b""))
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(tracing)
        assert len(released) <= 1, step
        if next(steps, None) is not None:
            break  # No step was left to interrupt.
    assert step > 10 and len(released) == 1


def open_files():
    """What the descriptors lead to, but for a database's connections, of which threads make more."""
    files = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # The listing's own.
            files.append(os.readlink(f"/proc/self/fd/{number}"))
    return collections.Counter(file for file in files if "/manifest.sqlite" not in file)


def test_an_interrupt_anywhere_leaves_no_descriptor(directory):
    with hutch.Cache(directory, inline_threshold=1000) as cache:
        cache["k"] = bytes(5000)
        loops = []
        codes = hutch.Cache.read, hutch.Port.__init__, _awaiting.awaited, _awaiting._Port.__init__
        codes = {function.__code__ for function in codes}

        def await_a_call():
            loops.append(asyncio.new_event_loop())
            loops[-1].run_until_complete(cache.adelete("none"))
            return loops[-1]

        cache.read("k").close()
        gc.collect()
        before = open_files()  # Some may still be an earlier test's, and be closed within this one.
        for make in (lambda: cache.read("k"), hutch.Port, await_a_call):
            for step in range(10_000):
                steps = iter(range(step))
                trace = interrupt_after(steps, codes.__contains__)
                made = None
                tracing = sys.gettrace()
                sys.settrace(trace)
                try:
                    made = make()
                except KeyboardInterrupt:
                    pass
                finally:
                    sys.settrace(tracing)
                for each in {made, *loops} - {None}:
                    each.close()
                made = each = None
                loops.clear()
                _closed_loops.let_go()
                gc.collect()
                # A worker may still be about to release the port of the task that it has done.
                deadline = time.monotonic() + 60
                # And the library has a file open for a moment: a look that finds none is enough.
                while left := open_files() - before:
                    assert time.monotonic() < deadline, (step, left)
                    time.sleep(0.001)
                if next(steps, None) is not None:
                    break  # No step was left to interrupt.
            assert step > 10


def test_a_cache_in_memory_has_no_disk():
    with hutch.Cache() as cache:
        assert not hasattr(cache, "disk") and hasattr(cache, "memory")
        with pytest.raises(hutch.NoDiskTierError) as caught:
            cache.disk.get("k")
        assert isinstance(caught.value, (hutch.UnsupportedError, AttributeError))
        assert getattr(cache, "disk", None) is None
