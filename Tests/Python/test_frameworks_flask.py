"""hutch.frameworks.cachelib and hutch.frameworks.flask, as cachelib and Flask-Caching use them."""

from __future__ import annotations

import contextlib
import datetime
import threading

import cachelib
import flask
import flask_caching
import flask_caching.backends.base
import pytest
from hutch.frameworks.cachelib import HutchCache
from hutch.frameworks.flask import HutchCache as FlaskCache
from native import put_unreadable


@pytest.fixture(params=["directory", "memory"])
def cache(request, directory, clock):
    made = HutchCache(directory if request.param == "directory" else None, clock=clock)
    yield made
    made.close()


def test_it_is_a_cache_of_cachelib(cache):
    assert isinstance(cache, cachelib.BaseCache)
    inherited = {"get_dict", "_to_seconds", "_normalize_timeout"}
    public = {name for name in vars(cachelib.BaseCache) if not name.startswith("__")}
    assert public - inherited <= set(vars(HutchCache))


@pytest.mark.parametrize(
    "value", ["text", b"bytes", 7, 1.5, True, [1, (2,)], {"a": {1}}, datetime.date(2026, 1, 2)]
)
def test_a_value_comes_back_with_its_type(cache, value):
    assert cache.set("key", value) is True
    assert cache.get("key") == value and type(cache.get("key")) is type(value)
    assert cache.has("key") is True


def test_of_nothing(cache):
    assert cache.get("key") is None and cache.has("key") is False
    assert cache.delete("key") is False
    assert cache.get_many("a", "b") == [None, None]
    assert cache.get_dict("a") == {"a": None}


def test_many(cache):
    assert cache.set_many({"a": 1, "b": None, "c": [3]}) == ["a", "b", "c"]
    assert cache.get_many("c", "x", "a") == [[3], None, 1]
    assert cache.get_dict("a", "c") == {"a": 1, "c": [3]}
    assert cache.delete_many("a", "x") == ["a", "x"]
    assert not cache.has("a") and cache.has("b")
    assert cache.delete("b") is True
    assert cache.clear() is True and not cache.has("c")


def test_a_key_has_any_length(cache):
    """request.full_path may be long, and other caches of cachelib take it."""
    long = "\u20ac" * 22_000
    keys = [long, long + "a", "a" * 65_536, "a" * 65_535, "a" * 65_537]
    for number, key in enumerate(keys):
        assert cache.get(key) is None and not cache.has(key) and not cache.delete(key)
        assert cache.set(key, number) and not cache.add(key, 9)
    assert cache.get_many(*keys) == [0, 1, 2, 3, 4] and cache.inc(keys[0]) == 1
    assert cache.get_dict(*keys) == dict(zip(keys, [1, 1, 2, 3, 4]))
    assert cache.set_many({keys[0]: 5, "a": 6}) == [keys[0], "a"]
    assert cache.delete_many(*keys[:2]) == keys[:2]
    assert [cache.has(key) for key in keys] == [False, False, True, True, True]


def test_the_empty_string_is_a_key(cache):
    """As in other caches of cachelib: request.path[1:] is empty for the root."""
    assert cache.get("") is None and not cache.has("") and not cache.delete("")
    assert cache.set("", 1) and cache.get("") == 1 and cache.has("") and not cache.add("", 2)
    assert cache.inc("") == 2 and cache.get_dict("", "a") == {"": 2, "a": None}
    assert cache.set("", 1, timeout=-1) and cache.add("", 2, timeout=-1) and cache.add("", 3)
    assert cache.set_many({"": 4, "a": 5}) == ["", "a"] and cache.get_many("a", "") == [5, 4]
    assert cache.delete_many("", "a") == ["", "a"] and not cache.has("")


def test_add_does_not_replace(cache):
    assert cache.add("key", 1) is True
    assert cache.add("key", 2) is False
    assert cache.get("key") == 1


def test_timeouts(cache, clock):
    cache.set("default", 1)
    cache.set("short", 1, timeout=2)
    cache.add("delta", 1, timeout=datetime.timedelta(seconds=2))
    cache.set("ever", 1, timeout=0)
    cache.set_many({"many": 1}, timeout=2)
    cache.set("past", 1)
    assert cache.set("past", 2, timeout=-1) is True and not cache.has("past")
    assert cache.add("past", 1, timeout=-1) is True and not cache.has("past")
    assert cache.set_many({"past": 1}, timeout=-1) == ["past"] and not cache.has("past")
    clock.advance(1.9)
    assert all(map(cache.has, ["default", "short", "delta", "ever", "many"]))
    clock.advance(0.2)
    assert not any(map(cache.has, ["short", "delta", "many"]))
    clock.advance(300)
    assert not cache.has("default")
    clock.advance(400 * 24 * 3600)
    assert cache.has("ever")


def test_counting(cache, clock):
    assert cache.inc("n") == 1 and cache.inc("n", 9) == 10 and cache.dec("n", 4) == 6
    assert cache.dec("m") == -1
    assert cache.get("n") == 6
    cache.set("f", 1.5)
    assert cache.inc("f") == 2.5
    cache.set("none", None)
    assert cache.inc("none", 3) == 3 and cache.dec("none") == 2
    clock.advance(301)
    assert cache.inc("n") == 1

    def count():
        for _ in range(100):
            cache.inc("threads")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.get("threads") == 400


def test_counting_what_cannot_be_read(cache):
    put_unreadable(cache._cache, "n")
    assert cache.inc("n", 3) == 3 and cache.dec("n") == 2


def test_counting_with_a_timeout_that_is_over(directory, clock):
    with contextlib.closing(HutchCache(directory, default_timeout=-1, clock=clock)) as cache:
        assert cache.inc("n") == 1 and cache.dec("m") == -1
        clock.advance(0.001)
        assert cache.inc("n") == 1 and cache.dec("m") == -1
        cache.set("kept", 1, timeout=60)
        assert cache.inc("kept") == 2 and cache.get("kept") == 2


def test_a_value_that_is_too_large(cache):
    large = bytes(30_000_000)
    cache.set("key", 1)
    assert cache.set("key", large) is False and not cache.has("key")
    assert cache.add("key", large) is False
    assert cache.set_many({"a": 1, "b": large}) == ["a"]


def test_natural_values_only(directory):
    cache = HutchCache(directory, serializer=None)
    cache.set("key", {"a": (1, 2)})
    assert cache.get("key") == {"a": (1, 2)}
    with pytest.raises(TypeError):
        cache.set("key", object())
    cache.close()


def test_a_cache_that_writes_on_eviction_has_the_directory_alone(directory):
    cache = HutchCache(directory, write_policy="on_eviction")
    cache.set("key", 1)
    assert not cache._cache.disk.get("key")
    cache.close()


def application(directory=None) -> tuple[flask.Flask, flask_caching.Cache]:
    app = flask.Flask(__name__)
    app.config["CACHE_TYPE"] = "hutch.frameworks.flask.HutchCache"
    app.config["CACHE_OPTIONS"] = {"memory": "8 MiB"}
    app.config["CACHE_DEFAULT_TIMEOUT"] = 100
    if directory is not None:
        app.config["CACHE_DIR"] = str(directory)
    return app, flask_caching.Cache(app)


def test_what_flask_caching_makes_of_its_configuration(directory):
    app, cache = application(directory)
    assert isinstance(cache.cache, FlaskCache)
    assert isinstance(cache.cache, flask_caching.backends.base.BaseCache)
    assert cache.cache.default_timeout == 100
    assert cache.cache._cache.directory == str(directory)
    assert cache.cache._cache.limits().memory.cost == 8 << 20
    _, in_memory = application()
    assert in_memory.cache._cache.directory is None


@pytest.mark.parametrize("place", ["directory", "memory"])
def test_views_and_functions_of_flask_caching(directory, place):
    app, cache = application(directory if place == "directory" else None)
    calls = []

    @app.get("/page")
    @cache.cached(query_string=True)
    def page():
        calls.append("page")
        return flask.jsonify(asked=flask.request.args.get("n"))

    @cache.memoize()
    def double(n):
        calls.append(n)
        return {"double": 2 * n}

    with app.test_client() as client:
        assert client.get("/page?n=1").json == client.get("/page?n=1").json == {"asked": "1"}
        assert client.get("/page?n=2").json == {"asked": "2"}
    assert calls == ["page", "page"]
    with app.test_request_context():
        assert double(2) == double(2) == {"double": 4} and calls[2:] == [2]
        assert double(3) == {"double": 6}
        cache.delete_memoized(double, 2)
        double(3)
        assert calls[2:] == [2, 3]
        double(2)
        cache.delete_memoized(double)
        double(3)
        assert calls[2:] == [2, 3, 2, 3]
        cache.set("key", None)
        assert cache.get_many("key", "other") == [None, None] and cache.has("key")
        assert cache.clear() and not cache.has("key")


def test_a_second_application_has_what_the_first_stored(directory):
    _, first = application(directory)
    _, second = application(directory)
    first.set("key", {"a": 1})
    assert second.get("key") == {"a": 1}
