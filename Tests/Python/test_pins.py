"""A pinned value: its bytes without a copy, for as long as the view exists."""

from __future__ import annotations

import gc

import hutch
import pytest
from conftest import PURE
from processes import run

LARGE = bytes(range(256)) * 4096


@pytest.mark.parametrize(
    "value", [b"", b"x", b"small", LARGE], ids=["empty", "one", "small", "large"]
)
def test_the_bytes(cache, value):
    cache["key"] = value
    for key in ("key", ("tuple", 1)):
        cache[key] = value
        view = cache.pin(key)
        assert type(view) is memoryview and view.readonly
        assert view == value and bytes(view) == value and len(view) == len(value)
        assert (view.format, view.itemsize, view.ndim) == ("B", 1, 1)


def test_no_entry(cache):
    assert cache.pin("none") is None
    assert cache.pin("none", 7) == 7 == cache.pin("none", default=7)
    with pytest.raises(TypeError):
        cache.pin()
    with pytest.raises(TypeError):
        cache.pin("a", 1, 2)
    with pytest.raises(ValueError):
        cache.pin("")


@pytest.mark.parametrize("value", ["text", "", 7, [1], None, (1, 2)])
def test_another_kind(cache, value):
    cache["key"] = value
    with pytest.raises(hutch.WrongTypeError):
        cache.pin("key")


def test_the_view_outlives_entry_and_cache(directory):
    for place in (None, directory):
        with hutch.Cache(place) as cache:
            cache["key"] = LARGE
            view = cache.pin("key")
            other = cache.pin("key")
            cache["key"] = b"another"
            assert view == LARGE
            del cache["key"]
            other.release()
            cache.clear()
        del cache
        gc.collect()
        part = view[256:512]
        del view
        assert part == bytes(range(256))


def test_held_values_are_counted_until_the_view_ends():
    with hutch.Cache() as cache:
        cache["key"] = LARGE
        view = cache.pin("key")
        del cache["key"]
        assert cache.stats().memory.held_bytes >= len(LARGE)
        view.release()
        del view
        assert cache.stats().memory.held_bytes == 0


@pytest.mark.parametrize("pure", PURE)
@pytest.mark.parametrize("is_older", [False, True])
def test_a_view_is_read_as_it_is_collected(pure, is_older):
    """A collection calls __del__ of older objects first."""
    run(
        f"""
        import gc
        import hutch
        gc.disable()
        seen = []
        class User:
            def __init__(self, cache, view):
                # So large that its memory goes back to the system at once.
                self.view = view or cache.pin("key")
                self.itself = self
            def __del__(self):
                seen.append(bytes(self.view[-3:]))
        with hutch.Cache(memory="200 MB") as cache:
            cache["key"] = b"x" * 40_000_000
            User(cache, cache.pin("key") if {is_older} else None)
            del cache["key"]
            gc.collect()
            assert seen == [b"xxx"] and cache.stats().memory.held_count == 0
        """,
        HUTCH_PURE=pure,
    )


def test_a_view_cannot_be_written(cache):
    cache["key"] = b"value"
    with pytest.raises(TypeError):
        cache.pin("key")[0] = 1
    assert cache["key"] == b"value"


def test_an_access(cache):
    cache["key"] = b"value"
    before = cache.stats()
    cache.pin("key")
    cache.pin("none")
    after = cache.stats()
    assert (after.hits - before.hits, after.misses - before.misses) == (1, 1)
