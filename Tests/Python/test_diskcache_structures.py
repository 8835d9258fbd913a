"""hutch.diskcache: FanoutCache, Deque, Index, the recipes."""

from __future__ import annotations

import collections
import pickle
import threading
import time

import pytest
from processes import finished

from hutch.diskcache import (
    Averager,
    BoundedSemaphore,
    Cache,
    Deque,
    FanoutCache,
    Index,
    Lock,
    PickleDisk,
    RLock,
    barrier,
    memoize_stampede,
    throttle,
)


@pytest.fixture
def cache(tmp_path):
    with Cache(tmp_path / "cache", eviction_policy="none") as opened:
        yield opened


def test_fanout(tmp_path):
    with FanoutCache(tmp_path, shards=3, size_limit=3 << 20, disk=PickleDisk) as cache:
        assert cache.size_limit == 1 << 20
        assert sorted(each.name for each in tmp_path.iterdir()) == ["000", "001", "002"]
        for number in range(50):
            cache.set(number, number, tag=number % 2)
        assert all(map(len, cache._shards))
        assert set(cache) == set(range(50)) and list(reversed(cache)) == list(cache)[::-1]
        assert cache.evict(0) == 25
        assert cache.volume() == sum(shard.volume() for shard in cache._shards)
        copy = pickle.loads(pickle.dumps(cache))
        assert len(copy) == 25 and copy._count == 3 and type(copy.disk) is PickleDisk
        with pytest.raises(AttributeError):
            cache.nothing
        with pytest.raises(AssertionError):
            with cache.transact(retry=False):
                pass
        with pytest.raises(ZeroDivisionError):
            with cache.transact():
                cache.clear()
                1 / 0
        assert len(cache) == 25
        assert cache.cache("a/b") is cache.cache("a/b")
        assert cache.cache("a/b").directory == str(tmp_path / "cache" / "a" / "b")
        cache.deque("jobs", maxlen=2).extend("abc")
        assert list(cache.deque("jobs")) == ["b", "c"]
        cache.index("i")["a"] = {1}
        assert cache.index("i") == {"a": {1}}


def test_deque(tmp_path):
    deque = Deque("abcde", tmp_path)
    assert deque[0] == "a" and deque[-2] == "d" and len(deque) == 5
    deque.rotate(2)
    assert deque == list("deabc") and deque != "deabd" and deque < ["e"]
    del deque[2]
    assert list(deque) == list("debc") == list(reversed(list(reversed(deque))))
    assert deque[2] == "b"
    deque[0] = "D"
    deque.remove("b")
    deque.reverse()
    assert deque == list("ceD")
    deque.appendleft("x")
    deque.maxlen = 2
    assert deque == ["e", "D"]
    deque.append("y")
    assert deque == ["D", "y"]
    deque.appendleft("z")
    assert deque == ["z", "D"]
    assert deque.peek() == "D" and deque.peekleft() == "z"
    again = pickle.loads(pickle.dumps(deque))
    assert again == deque and again.maxlen == 2 and deque.copy() == deque
    assert deque.count("D") == 1 and deque.pop() == "D" and deque.popleft() == "z"
    for call in (deque.pop, deque.popleft, deque.peek, deque.peekleft, lambda: deque[0]):
        with pytest.raises(IndexError):
            call()
    with pytest.raises(ValueError):
        deque.remove("a")
    with pytest.raises(TypeError):
        hash(deque)


def test_index(tmp_path):
    index = Index(str(tmp_path), {"a": 1, "b": 2}, c=3)
    index["a"] = 4
    assert list(index.items()) == [("a", 4), ("b", 2), ("c", 3)]
    assert index == collections.OrderedDict([("a", 4), ("b", 2), ("c", 3)])
    assert index != collections.OrderedDict([("b", 2), ("a", 4), ("c", 3)])
    assert index == {"c": 3, "b": 2, "a": 4} and index != {"a": 4} and index != 5
    assert index.popitem() == ("c", 3) and index.popitem(last=False) == ("a", 4)
    assert index.setdefault("b", 9) == 2 and index.setdefault("n") is None
    assert index.pop("n", 1) is None and index.pop("n", 1) == 1
    with pytest.raises(KeyError):
        index.pop("n")
    with pytest.raises(ZeroDivisionError):
        with index.transact():
            index.clear()
            1 / 0
    assert index == pickle.loads(pickle.dumps(index)) == {"b": 2}
    assert index.pull() == (None, None) and index.push("job") in index
    assert Index(str(tmp_path).encode()).peekitem() == (500_000_000_000_000, "job")


def test_locks_tell_wrong_use(cache):
    lock, again = Lock(cache, "a"), RLock(cache, "b")
    semaphore = BoundedSemaphore(cache, "c", value=2)
    assert not lock.locked()
    with lock, again, again, semaphore, semaphore:
        assert lock.locked()
    for each in (again, semaphore):
        with pytest.raises(AssertionError, match="un-acquired"):
            each.release()
    again.acquire()
    failed = []

    def work():
        try:
            again.release()
        except AssertionError:
            failed.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failed == [True]


def test_averager(cache):
    average = Averager(cache, "a")
    assert average.get() is None
    average.add(1), average.add(2)
    assert average.get() == average.pop() == 1.5
    assert average.get() is None


def test_throttle(cache):
    now = [1000.0]
    waits = []

    def wait(seconds):
        waits.append(seconds)
        now[0] += seconds

    @throttle(cache, 2, 10, time_func=lambda: now[0], sleep_func=wait)
    def call():
        return now[0]

    assert [call() for _ in range(4)] == pytest.approx([1000, 1000, 1005, 1010])
    assert waits == pytest.approx([5, 5])


def test_barrier(cache):
    inside = []

    @barrier(cache, Lock, name="only one")
    def work(number):
        inside.append(number)
        assert len(inside) == 1
        inside.clear()
        return number

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert work(1) == 1 and "only one" not in cache


def test_stampede(cache):
    made = threading.Event()
    calls = []

    @memoize_stampede(cache, expire=1000, name="f", tag="t")
    def work(number):
        calls.append(number)
        if len(calls) == 2:
            made.set()
        return number * 2

    assert work(1) == 2 and work(1) == 2 and calls == [1]
    key = work.__cache_key__(1)
    (result, took), end, tag = cache.get(key, expire_time=True, tag=True)
    assert result == 2 and end > time.time() and tag == "t"
    # It took long to make, and is nearly over: the next call makes it anew in a thread.
    cache.set(key, (2, 1e9), expire=1000)
    assert work(1) == 2
    assert made.wait(60)
    while cache[key][1] == 1e9:
        time.sleep(0.001)
    assert work(1) == 2 and calls == [1, 1]


DJANGO = """
import collections, pickle, sys, time
from django.conf import settings

settings.configure(SECRET_KEY="secret")
from hutch.diskcache import DjangoCache, FanoutCache

cache = DjangoCache(sys.argv[1], {"TIMEOUT": 60, "SHARDS": 2, "OPTIONS": {"cull_limit": 5}})
cache.set("a", collections.Counter("ab"))
assert cache.get("a") == collections.Counter("ab")
cache.close()
assert cache.get("a", version=2) is None and cache.has_key("a")
assert cache.get("a", expire_time=True)[1] > time.time()
try:
    cache.incr("none")
    sys.exit("incr of nothing")
except ValueError:
    pass
with FanoutCache(sys.argv[1], shards=2) as plain:
    try:
        plain.get(":1:a")
        sys.exit("a pickle was read")
    except pickle.UnpicklingError:
        pass
"""


def test_django_backend(tmp_path):
    pytest.importorskip("django")
    done = finished("-c", DJANGO, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("prefix", [None, "jobs"])
@pytest.mark.parametrize("side", ["front", "back"])
@pytest.mark.parametrize("steps", [3, 1000])
def test_entries_of_a_queue_that_expired_and_stay(tmp_path, monkeypatch, prefix, side, steps):
    """With a cull_limit of 0 expired entries stay until a call on the queue passes over them."""
    monkeypatch.setattr("hutch.diskcache._queues._STEPS", steps)
    with Cache(tmp_path, cull_limit=0) as cache:
        first = cache.push("kept", prefix=prefix)
        keys = [cache.push("gone", prefix=prefix, side=side, expire=-1) for _ in range(8)]
        assert len(set(keys)) == 8 and len(cache) == 9
        assert cache.peek(prefix=prefix, side=side) == (first, "kept")
        assert len(cache) == 1
        for _ in range(8):
            cache.push("gone", prefix=prefix, side=side, expire=-1)
        assert cache.pull(prefix=prefix, side=side) == (first, "kept")
        for _ in range(8):
            cache.push("gone", prefix=prefix, side=side, expire=-1)
        assert cache.pull(prefix=prefix, side=side) == (None, None)
        assert len(cache) == 0
