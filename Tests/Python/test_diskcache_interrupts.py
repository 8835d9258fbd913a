"""hutch.diskcache: an exception of a signal's handler, and a fork, within a call or a transaction."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import threading

import pytest

from hutch.diskcache import Cache, Timeout


class Interrupted(Exception):
    """What the handler of a signal raises."""


@pytest.fixture
def cache(tmp_path):
    with Cache(tmp_path, timeout=0) as opened:
        # Modules are imported here, and not at thousands of places of the calls.
        opened.push("a")
        opened.pull()
        opened.expire()
        opened.delete("a")
        yield opened


# An exception is thrown into this generator. No handler runs there before the generator's own code.
THROWN_INTO = Cache.transact.__wrapped__.__code__
EXIT = contextlib._GeneratorContextManager.__exit__.__code__


def interrupted(call, place):
    """Whether a call is interrupted at a place: those where CPython runs the handlers of signals, the
    beginning of a function and the end of a function in C."""
    left = place

    def raises(frame, event, _what):
        nonlocal left
        is_ended = frame.f_code is THROWN_INTO and frame.f_back.f_code is EXIT
        if event == "call" and is_ended and sys.exc_info()[0] is not None:
            return
        if event in ("call", "c_return"):
            left -= 1
            if left == 0:
                sys.setprofile(None)
                raise Interrupted

    sys.setprofile(raises)
    try:
        call()
    except Interrupted:
        return True
    finally:
        sys.setprofile(None)
    return False


def is_free(cache):
    """Whether another thread, and another process, can take the writer lock."""
    found = []

    def take():
        try:
            with cache.transact():
                found.append(True)
        except Timeout:
            found.append(False)
        cache.close()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    file = os.open(os.path.join(cache.directory, "diskcache.lock"), os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        found.append(False)
    finally:
        os.close(file)
    return all(found)


def pairs(cache):
    with cache.transact():
        cache["a"] = cache["b"] = cache["a"] + 1


def nested(cache):
    with cache.transact(), cache.transact():
        cache.incr("a")
        cache.incr("b")


def undone(cache):
    with contextlib.suppress(LookupError), cache.transact():
        cache["a"] = -1
        cache["b"] = -2
        raise LookupError


CALLS = {
    "set": lambda cache: cache.set("other", 1),
    "incr": lambda cache: cache.incr("number"),
    "pull": lambda cache: cache.pull(),
    "pop": lambda cache: cache.pop("number"),
    "transact": pairs,
    "nested": nested,
    "undone": undone,
}


@pytest.mark.skipif(sys.version_info < (3, 10), reason="handlers run between any two instructions")
@pytest.mark.parametrize("name", CALLS)
def test_no_lock_stays_when_a_handler_raises(cache, name):
    cache["a"] = cache["b"] = 0
    cache.push("job")
    place = 1
    while interrupted(lambda: CALLS[name](cache), place):
        assert is_free(cache), place
        assert cache["a"] == cache["b"], place
        place += 1
    assert place > 20
    assert is_free(cache) and cache.set("more", 1)


def test_a_child_that_leaves_a_transaction_of_its_parent(cache):
    cache["old"] = "before"
    try:
        with cache.transact():
            cache["new"] = "of the parent"
            del cache["old"]
            child = os.fork()
            if child == 0:
                raise Interrupted
            assert os.waitpid(child, 0)[1] == 0
            assert not is_free(cache)
    except Interrupted:
        os._exit(0)
    assert cache["new"] == "of the parent" and "old" not in cache
    assert is_free(cache)


# What is raised in a weak reference's callback is reported, and no caller gets it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_close_that_is_interrupted_can_be_repeated(tmp_path):
    """The cache has no store in the end, at whatever place of close the exception was raised."""
    with Cache(tmp_path) as cache:
        for place in range(1, 60):
            cache["a"] = 1
            interrupted(cache.close, place)
            cache.close()
            assert cache._store is None and not cache._uses


def test_a_key_that_was_stored_is_in_the_order_of_keys(cache):
    for place in range(1, 120):
        cache.clear()
        cache.push("of the queue")
        interrupted(lambda: cache.set("key", 1), place)
        keys = [500_000_000_000_000, "key"] if "key" in cache else [500_000_000_000_000]
        assert list(cache.iterkeys()) == keys
