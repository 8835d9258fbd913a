"""hutch.frameworks.django: what Django asks of a cache backend, over a directory and in memory."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import time
import warnings

import hutch
import pytest
from django.core.cache import CacheHandler
from django.core.cache.backends.base import CacheKeyWarning
from hutch.frameworks import _backing
from hutch.pickling import PickleSerializer
from processes import finished

BACKEND = "hutch.frameworks.django.HutchCache"


def reverse_key(key: str, prefix: str, version: int) -> str:
    return f"{prefix}-{version}-{key[::-1]}"


class Unpicklable:
    def __getstate__(self):
        raise pickle.PicklingError("it cannot be pickled")


@pytest.fixture(autouse=True)
def closed_at_the_end():
    yield
    while _backing._opened:
        _backing._opened.pop()[2].close()


@pytest.fixture(params=["directory", "memory"])
def caches(request, tmp_path, clock) -> CacheHandler:
    """Django's object for all caches of its settings."""
    place = {"LOCATION": str(tmp_path / "cache")} if request.param == "directory" else {}
    base = {"BACKEND": BACKEND, **place, "OPTIONS": {"clock": clock}}
    return CacheHandler(
        {
            "default": base,
            "prefix": {**base, "KEY_PREFIX": "site"},
            "v2": {**base, "VERSION": 2},
            "function": {**base, "KEY_FUNCTION": reverse_key},
            "eternal": {**base, "TIMEOUT": None},
            "natural": {**base, "OPTIONS": {"clock": clock, "serializer": None}},
        }
    )


@pytest.fixture
def cache(caches):
    return caches["default"]


@pytest.mark.parametrize(
    "value",
    ["text", "", "ünï", b"bytes", 0, -7, 2**100, 1.5, True, None, [1, (2,)], {"a": {1}}, int],
)
def test_a_value_comes_back_with_its_type(cache, value):
    cache.set("key", value)
    assert cache.get("key", "default") == value
    assert type(cache.get("key")) is type(value)
    assert cache.add("another", value) is True
    assert cache.get_many(["key", "another"]) == {"key": value, "another": value}


def test_get_of_nothing(cache):
    assert cache.get("key") is None
    assert cache.get("key", "default") == "default"
    assert cache.get_many(["a", "b"]) == {}


def test_add_does_not_replace(cache):
    assert cache.add("key", "first") is True
    assert cache.add("key", "second") is False
    assert cache.get("key") == "first"


def test_delete(cache):
    cache.set_many({"a": 1, "b": 2, "c": 3})
    assert cache.delete("a") is True
    assert cache.delete("a") is False
    cache.delete_many(["b", "c", "d"])
    assert cache.get_many(["a", "b", "c"]) == {}
    cache.delete_many([])


def test_has_key_and_in(cache):
    cache.set("key", None)
    assert cache.has_key("key") is True and "key" in cache
    assert cache.has_key("other") is False and "other" not in cache


def test_incr_and_decr(cache):
    cache.set("key", 41)
    assert cache.incr("key") == 42
    assert cache.incr("key", 10) == 52
    assert cache.decr("key", 12) == 40
    assert cache.incr("key", 0) == 40
    assert cache.get("key") == 40
    for call in (cache.incr, cache.decr):
        with pytest.raises(ValueError, match="not found"):
            call("missing")
        with pytest.raises(ValueError, match="not found"):
            call("missing", 0)


def test_incr_of_other_numbers(cache):
    cache.set("float", 1.5)
    assert cache.incr("float") == 2.5
    cache.set("int", 1)
    assert cache.incr("int", 0.5) == 1.5
    cache.set("large", 2**63 - 1)
    assert cache.incr("large") == 2**63
    assert cache.incr("large", -1) == 2**63 - 1
    cache.set("text", "seven")
    with pytest.raises(TypeError):
        cache.incr("text")
    assert cache.get("text") == "seven"


@pytest.mark.parametrize("number", [1, 1.5])
def test_incr_keeps_the_time_to_live(cache, clock, number):
    cache.set("key", number, timeout=10)
    clock.advance(6)
    cache.incr("key")
    clock.advance(3)
    assert cache.get("key") == number + 1
    clock.advance(2)
    assert "key" not in cache


def test_incr_counts_each_of_many_threads(cache):
    cache.set("int", 0)
    cache.set("float", 0.0)

    def count():
        for _ in range(50):
            cache.incr("int")
            cache.incr("float")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.get_many(["int", "float"]) == {"int": 200, "float": 200.0}


def test_a_timeout(cache, clock):
    cache.set("a", 1, timeout=2)
    cache.set("b", 1, 2.5)
    cache.add("c", 1, 2)
    cache.set_many({"d": 1}, 2)
    clock.advance(1.9)
    assert sorted(cache.get_many("abcd")) == ["a", "b", "c", "d"]
    clock.advance(0.2)
    assert sorted(cache.get_many("abcd")) == ["b"]
    assert cache.add("a", 2) is True


def test_the_default_timeout(cache, caches, clock):
    cache.set("key", 1)
    caches["eternal"].set("other", 1)
    clock.advance(299)
    assert "key" in cache
    clock.advance(2)
    assert "key" not in cache
    clock.advance(400 * 24 * 3600)
    assert "other" in cache


def test_a_timeout_of_none_is_for_ever(cache, clock):
    cache.set("a", 1, None)
    cache.add("b", 1, None)
    cache.set_many({"c": 1}, None)
    cache.set("d", 1, 1)
    assert cache.touch("d", None) is True
    clock.advance(400 * 24 * 3600)
    assert sorted(cache.get_many("abcd")) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_timeout_that_has_ended(cache, timeout):
    cache.set("a", 1, timeout)
    assert "a" not in cache
    cache.set("a", 1)
    cache.set("a", 2, timeout)
    assert "a" not in cache
    assert cache.add("b", 1, timeout) is True and "b" not in cache
    cache.set("c", 1)
    assert cache.add("c", 2, timeout) is False and cache.get("c") == 1
    assert cache.set_many({"c": 2, "d": 2}, timeout) == [] and cache.get_many("cd") == {}
    cache.set("e", 1)
    assert cache.touch("e", timeout) is True and "e" not in cache
    assert cache.get_or_set("f", lambda: 7, timeout) == 7 and "f" not in cache


def test_touch(cache, clock):
    cache.set("key", 1, timeout=4)
    clock.advance(2)
    assert cache.touch("key", timeout=4) is True
    clock.advance(3)
    assert "key" in cache
    assert cache.touch("key") is True
    clock.advance(299)
    assert "key" in cache
    clock.advance(2)
    assert "key" not in cache and cache.touch("key") is False


def test_versions(cache, caches):
    cache.set("key", "one")
    cache.set("key", "two", version=2)
    assert cache.get("key") == cache.get("key", version=1) == "one"
    assert caches["v2"].get("key") == "two"
    assert caches["v2"].get("key", version=1) == "one"
    assert cache.has_key("key", version=2) and not cache.has_key("key", version=3)
    assert cache.touch("key", version=3) is False
    cache.set_many({"a": 1}, version=3)
    assert cache.get_many(["a"], version=3) == {"a": 1} and cache.get_many(["a"]) == {}
    cache.set("n", 1, version=2)
    assert caches["v2"].incr("n") == 2 and cache.get("n", version=2) == 2
    assert cache.delete("key") is True and caches["v2"].get("key") == "two"
    cache.delete_many(["key"], version=2)
    assert "key" not in caches["v2"]


def test_incr_version(cache, caches):
    cache.set("key", "value", version=2)
    assert cache.incr_version("key", version=2) == 3
    assert cache.get("key", version=2) is None and cache.get("key", version=3) == "value"
    assert caches["v2"].decr_version("key", version=3) == 2
    assert caches["v2"].get("key") == "value"
    with pytest.raises(ValueError):
        cache.incr_version("missing")
    with pytest.raises(ValueError):
        cache.decr_version("missing")


def test_prefixes_and_key_functions(cache, caches):
    cache.set("key", "plain")
    assert "key" not in caches["prefix"] and "key" not in caches["function"]
    caches["prefix"].set("key", "prefixed")
    caches["function"].set("key", "reversed")
    assert cache.get("key") == "plain"
    assert cache._cache["site:1:key"] == "prefixed" and cache._cache["-1-yek"] == "reversed"
    caches["prefix"].clear()
    assert "key" not in cache


@pytest.mark.parametrize("key", ["with space", "k" * 251, "ctrl\x01"])
def test_a_key_that_memcached_does_not_take_is_warned_of(cache, key):
    with pytest.warns(CacheKeyWarning):
        cache.set(key, 1)
    with pytest.warns(CacheKeyWarning):
        assert cache.get_many([key]) == {key: 1}


@pytest.mark.filterwarnings("ignore::django.core.cache.backends.base.CacheKeyWarning")
def test_any_text_is_a_key(cache, caches):
    """As in the memory and the files of Django. KEY_FUNCTION may make an empty one."""
    for key in ("a" * 70_000, "\u20ac" * 22_000):
        assert cache.get(key) is None and cache.get_or_set(key, lambda: 1) == 1
        assert cache.incr(key) == 2 and key in cache and cache.touch(key, 50)
        assert cache.set_many({key: 3, key + "b": 4}) == []
        assert cache.get_many([key, key + "b"]) == {key: 3, key + "b": 4}
        assert cache.delete(key) and not cache.delete(key)
    bare = type(cache)(None, {"KEY_FUNCTION": lambda key, prefix, version: key})
    bare.set("", 1)
    assert bare.get("") == 1 and bare.get_many([""]) == {"": 1}


def test_get_or_set(cache):
    assert cache.get_or_set("a", "value") == "value" == cache.get("a")
    assert cache.get_or_set("a", "other") == "value"
    assert cache.get_or_set("b", lambda: "made") == "made" == cache.get("b")
    assert cache.get_or_set("c", lambda: None) is None and "c" in cache
    assert cache.get_or_set("a", lambda: "v2", version=2) == "v2"
    with pytest.raises(ZeroDivisionError):
        cache.get_or_set("d", lambda: 1 // 0)
    assert "d" not in cache


def test_get_or_set_has_a_timeout(cache, clock):
    cache.get_or_set("key", lambda: 1, timeout=5)
    clock.advance(6)
    assert cache.get_or_set("key", lambda: 2, timeout=5) == 2


def test_get_or_set_calls_once_for_all_threads(cache):
    calls, asked, results = [], [], []

    def make():
        calls.append(1)
        while len(asked) < 6:
            time.sleep(0.001)
        return "made"

    def ask():
        asked.append(1)
        results.append(cache.get_or_set("key", make))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["made"] * 6 and calls == [1]


def test_what_does_not_pickle_is_an_error_and_changes_nothing(cache):
    cache.set("key", 1)
    for call in (cache.set, cache.add):
        with pytest.raises(pickle.PicklingError):
            call("key", Unpicklable())
        with pytest.raises(pickle.PicklingError):
            call("key", Unpicklable(), 0)
    assert cache.get("key") == 1


def test_a_value_that_is_too_large_is_as_if_evicted(cache):
    large = bytes(30_000_000)
    cache.set("key", 1)
    cache.set("key", large)
    assert "key" not in cache
    assert cache.add("key", large) is False
    assert cache.set_many({"a": 1, "b": large}) == ["b"]
    assert cache.get_many("ab") == {"a": 1}
    assert cache.get_or_set("c", lambda: large) == large


def test_natural_values_only(caches):
    cache = caches["natural"]
    cache.set("key", {"a": (1, 2)})
    assert cache.get("key") == {"a": (1, 2)}
    with pytest.raises(TypeError):
        cache.set("key", object())


def test_the_awaitable_forms(cache):
    async def work():
        await cache.aset("a", 1)
        await cache.aset_many({"b": 2})
        assert await cache.aget("a") == 1
        assert await cache.aincr("a") == 2
        assert await cache.aget_many(["a", "b"]) == {"a": 2, "b": 2}
        assert await cache.aget_or_set("c", lambda: 3) == 3
        assert await cache.adelete("a") is True
        assert await cache.ahas_key("a") is False
        await cache.aclear()
        await cache.aclose()

    asyncio.run(work())
    assert "b" not in cache


def test_awaitable_counters_lose_no_step_and_keep_their_time(cache, clock):
    cache.set("n", 0, timeout=100)

    async def work():
        await asyncio.gather(*[cache.aincr("n", 2) for _ in range(20)])
        await asyncio.gather(*[cache.adecr("n") for _ in range(20)])
        with pytest.raises(ValueError, match="not found"):
            await cache.aincr("missing")

    asyncio.run(work())
    assert cache.get("n") == 20
    clock.advance(101)
    assert cache.get("n") is None


def test_aget_or_set_makes_a_value_once(cache):
    made = []

    def make():
        made.append(1)
        return "value"

    async def work():
        return await asyncio.gather(*[cache.aget_or_set("key", make) for _ in range(20)])

    assert set(asyncio.run(work())) == {"value"} and len(made) == 1


def test_aset_many_tells_what_is_not_stored():
    cache = CacheHandler(
        {"default": {"BACKEND": BACKEND, "OPTIONS": {"memory": hutch.TierLimits(max_entry=1000)}}}
    )["default"]

    async def work():
        assert await cache.aset_many({"a": 1, "large": "x" * 2000}) == ["large"]
        assert await cache.aget_many(["a", "large"]) == {"a": 1}
        await cache.adelete_many(["a", "large"])
        assert await cache.ahas_key("a") is False

    asyncio.run(work())


def test_close_leaves_it_usable_and_threads_share_it(cache, caches):
    cache.set("key", 1)
    caches.close_all()
    seen = []

    def look():
        other = caches["default"]
        seen.append((other is not cache, other._cache is cache._cache, other.get("key")))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [(True, True, 1)]


def test_a_child_process_goes_on_with_the_cache_and_opens_others(caches, tmp_path):
    location = str(tmp_path / "other")
    caches["default"].set("key", "from the parent")
    with _backing._lock:  # As if another thread opened a cache at the fork.
        child = os.fork()
        if child == 0:
            right = caches["default"].get("key") == "from the parent"
            other = CacheHandler({"default": {"BACKEND": BACKEND, "LOCATION": location}})
            other["default"].set("key", "from the child")
            os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    other = CacheHandler({"default": {"BACKEND": BACKEND, "LOCATION": location}})
    assert other["default"].get("key") == "from the child"


def test_limits(tmp_path):
    options = {"MAX_ENTRIES": 10, "CULL_FREQUENCY": 2, "memory": "8 MiB"}
    location = str(tmp_path / "cache")
    settings = {"BACKEND": BACKEND, "LOCATION": location, "OPTIONS": options}
    cache = CacheHandler({"default": settings})["default"]
    for number in range(50):
        cache.set(str(number), number)
    limits = cache._cache.limits()
    assert (limits.disk.count, limits.memory.count, limits.memory.cost) == (10, 10, 8 << 20)
    assert len(cache._cache.disk) <= 10
    options["MAX_ENTRIES"], options["disk"] = "7", hutch.TierLimits(cost="9 MiB", time_to_live=60)
    settings["LOCATION"] = str(tmp_path / "other")
    limits = CacheHandler({"default": settings})["default"]._cache.limits()
    assert (limits.disk.count, limits.disk.cost, limits.disk.time_to_live) == (7, 9 << 20, 60)
    options["disk"] = hutch.TierLimits(count=5)
    settings["LOCATION"] = str(tmp_path / "third")
    assert CacheHandler({"default": settings})["default"]._cache.limits().disk.count == 5
    assert options["memory"] == "8 MiB" and options["MAX_ENTRIES"] == "7"


def test_bytes_of_another_writer_are_not_unpickled(tmp_path):
    location, key = str(tmp_path / "cache"), b"0123456789abcdef"
    options = {"serializer": PickleSerializer(key=key)}
    settings = {"BACKEND": BACKEND, "LOCATION": location, "OPTIONS": options}
    cache = CacheHandler({"default": settings})["default"]
    cache.set("own", [1])
    forged = PickleSerializer(key=b"another key, not the same")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hutch.OptionsDifferWarning)
        with hutch.Cache(location, sharing="shared", serializer=forged) as other:
            other[":1:forged"] = [2]
    assert cache.get("own") == [1] and cache.get("forged") is None


SITE = """
import sys
from django.conf import settings
settings.configure(
    SECRET_KEY="x", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], USE_TZ=True,
    CACHES={"default": {
        "BACKEND": "hutch.frameworks.django.HutchCache", "LOCATION": sys.argv[1],
    }},
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
)
import django
django.setup()
from django.http import HttpResponse
from django.test import Client
from django.urls import path
from django.views.decorators.cache import cache_page

def count(request):
    request.session["visits"] = request.session.get("visits", 0) + 1
    return HttpResponse(str(request.session["visits"]))

@cache_page(60)
def page(request):
    calls.append(1)
    return HttpResponse("a page")

calls = []
urlpatterns = [path("count", count), path("page", page)]
client = Client()
print(*[client.get("/count").content.decode() for _ in range(3)])
print(*[client.get("/page").content.decode() for _ in range(3)], len(calls))
"""


def test_sessions_and_cached_pages_of_a_site(tmp_path):
    said = []
    for _ in range(2):
        done = finished("-c", SITE, tmp_path / "cache")
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.splitlines())
    assert said == [
        ["1 2 3", "a page a page a page 1"],
        ["1 2 3", "a page a page a page 0"],  # The second process has the page from the first.
    ]


def test_without_django_the_import_says_what_to_install():
    code = (
        "import sys; sys.modules['django'] = None\n"
        "try: import hutch.frameworks.django\n"
        "except ImportError as error: print(error)"
    )
    said = finished("-c", code).stdout
    assert "needs Django" in said and "pip install django" in said
