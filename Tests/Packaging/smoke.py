"""The installed package at work, on its own library: prints where that is."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import hutch
import hutch.diskcache
from hutch import _accelerator, _library

assert sys.prefix != sys.base_prefix, "to be run in an environment"
assert Path(hutch.__file__).is_relative_to(sys.prefix), hutch.__file__

with tempfile.TemporaryDirectory() as directory:
    path = os.path.join(directory, "cache")
    with hutch.Cache(path) as cache:
        cache["text"] = "value"
        cache["large"] = bytes(1_000_000)
        cache[7] = {"a": [1, 2.5, None]}
        assert cache.incr("count") == 1

        @cache.memoize()
        def square(n: int) -> int:
            return n * n

        assert [square(3), square(3)] == [9, 9]
    with hutch.Cache(path) as cache:
        assert cache["text"] == "value" and len(cache["large"]) == 1_000_000
        assert cache[7] == {"a": [1, 2.5, None]} and cache["count"] == 1
        assert sorted(cache, key=str)[0] == 7
        assert cache.get("gone", "nothing") == "nothing"
    with hutch.diskcache.Cache(os.path.join(directory, "diskcache")) as old:
        old.set("key", ("a", 1), tag="t")
        assert old["key"] == ("a", 1) and old.evict("t") == 1
try:
    import hutch.http  # noqa: F401
except ImportError as missing:
    # Where the system has no libhutch_http: the wheel has none.
    assert "scripts/build" in str(missing) and "libhutch_http.so.0" in str(missing), missing
assert _accelerator.module is not None, "the accelerator is missing"
assert Path(_accelerator.module.__file__).is_relative_to(sys.prefix)
print(_library.lib._name)
