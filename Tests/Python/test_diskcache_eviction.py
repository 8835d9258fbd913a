"""hutch.diskcache: what a set removes, which is what has expired and what a policy chooses."""

from __future__ import annotations

import os
import random

import pytest
from processes import run

from hutch.diskcache import Cache, Disk
from hutch.diskcache._accesses import Accesses
from hutch.diskcache._state import NEVER
from hutch.diskcache._record import OVERHEAD
from hutch.diskcache._store import Store


class Clock:
    """The time of Python's clock, which a test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def time(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 10**9)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr("time.time", made.time)
    monkeypatch.setattr("time.time_ns", made.time_ns)
    return made


@pytest.fixture
def cache(tmp_path):
    with Cache(tmp_path / "cache") as opened:
        yield opened


@pytest.fixture
def walks(monkeypatch):
    """One item for each walk over all entries."""
    seen = []
    walk = Store.records

    def records(self):
        seen.append(1)
        return walk(self)

    monkeypatch.setattr(Store, "records", records)
    return seen


# -------------------------------------------------------------------- expired


def test_without_a_cull_limit_expired_entries_stay(cache, clock):
    cache.reset("cull_limit", 0)
    for number in range(5):
        cache.set(number, number, expire=10)
    cache.set("kept", 1)
    assert cache.get(0, expire_time=True) == (0, clock.now + 10)
    clock.now += 10.5
    assert len(cache) == 6
    assert list(cache) == [0, 1, 2, 3, 4, "kept"]
    assert cache.get(0) is None and 0 not in cache and not cache.delete(1)
    assert cache.add(2, "new") and cache[2] == "new"
    assert cache.expire() == 3
    assert list(cache) == [2, "kept"]
    assert cache.check() == []


def test_sets_remove_what_has_expired_a_few_at_a_time(cache, clock, walks):
    cache.reset("cull_limit", 0)
    for number in range(5):
        cache.set(number, number, expire=10 + number)
    cache.set("later", 1, expire=1000)
    cache.reset("cull_limit", 2)
    cache["a"] = 1
    assert len(cache) == 7
    clock.now += 20
    lengths = []
    for letter in "bcd":
        cache[letter] = 1
        lengths.append(len(cache))
    assert lengths == [6, 5, 5]
    # The third walk saw all entries, and knows when the next one expires.
    assert len(walks) == 3
    cache["e"] = 1
    cache.incr("n")
    cache.push("pushed")
    assert len(walks) == 3
    clock.now += 1000
    cache["f"] = 1
    assert len(walks) == 4 and "later" not in list(cache)


def test_no_set_walks_while_hutch_expires(cache, walks):
    for number in range(5):
        cache.set(number, number, expire=1000)
    assert not walks
    assert cache._open().state.earliest == NEVER


def test_a_state_of_before_is_looked_through_once(cache, clock, walks):
    cache.reset("cull_limit", 0)
    cache.set("a", 1, expire=10)
    cache.reset("cull_limit", 10)
    with cache._transact() as store:
        store.state.set_earliest(0)
    cache["b"] = cache["c"] = 1
    assert len(walks) == 1
    clock.now += 11
    cache["d"] = 1
    assert list(cache) == ["b", "c", "d"]


def test_a_new_end_is_for_hutch_again(cache, clock):
    cache.reset("cull_limit", 0)
    cache.set("a", 1, expire=10)
    store = cache._open()
    assert store.find("a").lingers and store.entries.info("a").expires is None
    cache.reset("cull_limit", 10)
    assert cache.touch("a", 20)
    assert not store.find("a").lingers
    assert store.entries.info("a").expires is not None


def test_ends_that_no_clock_reaches(cache):
    cache.reset("cull_limit", 0)
    for expire in (1e300, float("inf"), float("nan"), -1e300, -1):
        assert cache.set(expire, 1, expire=expire)
    cache.reset("cull_limit", 10)
    cache["a"] = 1
    assert -1 not in list(cache) and cache[1e300] == 1 and cache[float("inf")] == 1


class Named(Disk):
    def filename(self, key="", value=""):
        return f"files-{key}", os.path.join(self._directory, f"files-{key}")


def test_a_set_removes_files_of_expired_entries(tmp_path, clock):
    with Cache(tmp_path, disk=Named, disk_min_file_size=5) as cache:
        cache.set("a", b"x" * 20, expire=10)
        assert (tmp_path / "files-a").exists()
        clock.now += 10
        cache["b"] = 1
        assert not (tmp_path / "files-a").exists()
        assert list(cache) == ["b"]


def test_a_cull_limit_below_zero_is_none(tmp_path, clock):
    with Cache(tmp_path, cull_limit=-1) as cache:
        assert cache.cull_limit == -1
    with Cache(tmp_path) as cache:
        assert cache.cull_limit == -1 == cache.reset("cull_limit")
        cache.reset("cull_limit", 0)
        for number in range(30):
            cache.set(number, number, expire=10)  # They stay, until a set removes them.
        clock.now += 10.5
        cache.reset("cull_limit", -1)
        cache.set("a", 1)
        assert len(cache) == 1
        cache.clear()
        for number in range(100):
            cache[number] = b"x" * 900
        cache.reset("size_limit", cache.volume() // 2)
        cache["a"] = 1
        assert cache.volume() < cache.size_limit
        assert 40 < len(cache) < 50 and list(cache)[0] == 101 - len(cache) and cache["a"] == 1
        assert cache.check() == []


# ------------------------------------------------------------------- policies


def filled(directory, policy: str) -> Cache:
    """A cache with the keys 0 to 9, to which one more set is too much."""
    cache = Cache(directory, eviction_policy=policy, size_limit=10_500, cull_limit=5)
    for number in range(10):
        cache[number] = b"x" * 900
    assert len(cache) == 10
    return cache


READS = """
import sys
from hutch.diskcache import Cache
with Cache(sys.argv[1]) as cache:
    for number in map(int, sys.argv[2:]):
        cache[number]
"""


def test_the_least_recently_used_of_all_processes(tmp_path):
    with filled(tmp_path, "least-recently-used") as cache:
        cache[9], cache[2]
        run(READS, str(tmp_path), "0", "7")
        cache[10] = b"x" * 900
        assert list(cache) == [0, 2, 7, 8, 9, 10]
        assert cache.check() == []


def test_what_was_used_since_the_coldest_were_looked_for_stays(tmp_path, monkeypatch):
    looks = []
    first_keys = Store.first_keys
    monkeypatch.setattr(
        Store, "first_keys", lambda *given: looks.append(1) or first_keys(*given)
    )
    with Cache(tmp_path, eviction_policy="least-recently-used", cull_limit=1) as cache:
        for number in range(60):
            cache[number] = b"x" * 900
        cache.reset("size_limit", cache.volume())
        cache[60] = b"x" * 900
        assert 0 not in cache and len(cache) == 60
        cache[1], cache.set(2, b"y" * 900), cache.delete(3)
        cache.reset("size_limit", cache.volume())
        for number in range(61, 64):
            cache[number] = b"x" * 900
        assert list(cache)[:4] == [1, 2, 7, 8]
        assert len(looks) == 1
        for number in range(64, 164):
            cache[number] = b"x" * 900
        assert len(looks) == 2 and list(cache) == list(range(105, 164))


def test_the_least_frequently_used_in_several_lives(tmp_path):
    with filled(tmp_path, "least-frequently-used") as cache:
        cache[3], cache[3], cache[4], cache[4]
        cache.set(5, b"y" * 900)
        cache[5]
    with Cache(tmp_path) as cache:
        cache[6], cache[6], cache[6], cache[8]
        cache.incr("n")
        cache[3] = b"z" * 900  # Its reads begin anew.
        cache[10] = b"x" * 900
        left = set(cache)
        assert {4, 5, 6, 8, 10} <= left and len(left) <= 7 and not left & {0, 1, 2}


def test_reads_count_under_two_policies_only(cache, tmp_path):
    cache["a"] = 1
    cache["a"]
    assert not (tmp_path / "cache" / "diskcache.reads").exists()


def test_any_bytes_may_be_in_the_file_of_reads(tmp_path):
    filled(tmp_path, "least-recently-used").close()
    noise = random.Random(5).randbytes((tmp_path / "diskcache.reads").stat().st_size)
    (tmp_path / "diskcache.reads").write_bytes(noise)
    with Cache(tmp_path) as cache:
        assert cache[3] == b"x" * 900
        cache[10] = b"x" * 900
        assert 5 <= len(cache) <= 6
    (tmp_path / "diskcache.reads").write_bytes(b"short")
    with Cache(tmp_path) as cache:
        cache[11] = b"x" * 900
        assert cache[11] == b"x" * 900


def test_a_full_bucket_forgets_the_oldest(tmp_path, monkeypatch, clock):
    monkeypatch.setattr("hutch.diskcache._accesses._BUCKETS", 1)
    accesses = Accesses(str(tmp_path / "reads"))
    for key in [1, "1", b"1", "a", "b", "c", "d", "e"]:
        clock.now += 1
        accesses.note(key, True)
        accesses.note(key, False)
    clock.now += 1
    assert [accesses.of(key)[1] for key in (1, "1", "e")] == [1, 1, 1]
    accesses.note("f", False)
    assert accesses.of(1) == (0, 0)
    assert accesses.of("1")[1] == 1 and accesses.of("f") == (clock.time_ns(), 1)


@pytest.mark.parametrize("policy", ["least-recently-stored", "least-recently-used"])
def test_cull_removes_tens_until_the_rest_fits(tmp_path, policy):
    with Cache(tmp_path, eviction_policy=policy) as cache:
        for number in range(300):
            cache[number] = b"x" * (100 if number < 150 else 9000)
        each = 9000 + 8 + OVERHEAD
        cache.reset("size_limit", 120 * each)
        assert cache.cull() == 180 and list(cache) == list(range(180, 300))
        assert cache.volume() == 120 * each and cache.cull() == 0
        cache.reset("size_limit", 100 * each + 1)
        assert cache.cull() == 20 and list(cache)[0] == 200
        assert cache.check() == []


def test_a_setting_that_stays_is_not_written(tmp_path):
    with Cache(tmp_path) as cache:
        cache.stats(enable=True)
        path = tmp_path / "diskcache.json"
        before = path.stat()
        assert cache.stats(enable=True) == (0, 0)
        assert cache.reset("cull_limit", 10) == 10
        assert path.stat().st_ino == before.st_ino and path.stat().st_mtime_ns == before.st_mtime_ns
        cache.stats(enable=False)
        assert path.stat().st_ino != before.st_ino
        assert Cache(tmp_path).reset("statistics") == 0
