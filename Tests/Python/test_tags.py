"""Tags: what was put with one is removed together; everything that puts can put one."""

from __future__ import annotations

import asyncio
import datetime
import os
import signal
import subprocess
from pathlib import Path

import hutch
import pytest
from conftest import NO_LIMITS
from processes import command, environment

TAGS = ["red", "ü", b"red", b"\0\xff", 7, -1, 1.5, ("user", 7), datetime.date(2026, 1, 2), "x" * 255]


def test_a_tag_is_any_value_that_can_be_a_key(cache):
    for number, tag in enumerate(TAGS):
        cache.set(number, "value", tag=tag)
        assert cache.info(number).tag == tag and type(cache.info(number).tag) is type(tag)
        assert cache.entry(number).info.tag == tag
    cache["plain"] = "value"
    assert cache.info("plain").tag is None and cache.entry("plain").info.tag is None
    assert {key: info.tag for key, info in cache.infos(range(len(TAGS))).items()} == dict(
        enumerate(TAGS)
    )
    for number, tag in enumerate(TAGS):
        assert cache.remove_tagged(tag) == 1 and number not in cache
        assert cache.remove_tagged(tag) == 0
    assert list(cache) == ["plain"]


def test_a_tag_that_is_none(cache):
    for tag in ("", None, object(), "x" * 256):
        with pytest.raises((ValueError, TypeError)):
            cache.remove_tagged(tag)
        if tag is not None:
            with pytest.raises((ValueError, TypeError)):
                cache.set("key", "value", tag=tag)
    assert "key" not in cache


def test_a_tag_without_utf_8(cache):
    with pytest.raises(ValueError, match="^tag: .*surrogates"):
        cache.set("key", 1, tag="\ud800")


def test_everything_that_puts_can_put_a_tag(cache, tmp_path):
    large = os.urandom(100_000)
    path = tmp_path / "given"
    path.write_bytes(large)
    cache.set("set", 1, tag="red")
    version = cache.put("put", 1, tag="red").version
    cache.add("add", 1, tag="red")
    cache["replace"] = 0
    cache.replace("replace", 1, tag="red")
    cache.compare_and_swap("put", version, 2, tag="red")
    cache.set_many({"set many": 1, "text": "two"}, tag="red")
    cache.put_many({"put many": large}, tag="red")
    cache.incr("incr", tag="red")
    cache.decr("decr", tag="red")
    cache.setdefault("setdefault", 1, tag="red")
    cache.put_file("file", path, tag="red")
    with cache.writer("writer", tag="red") as writer:
        writer.write(large)
    cache.load("load", str, tag="red")
    keys = {"set", "put", "add", "replace", "set many", "text", "put many", "incr", "decr"}
    keys |= {"setdefault", "file", "writer", "load"}
    double = cache.memoize("double", tag="red")(lambda number: 2 * number)
    assert double(4) == 8
    keys.add(double.__cache_key__(4))
    assert set(cache) == keys
    assert {cache.info(key).tag for key in keys} == {"red"}
    cache.put_object("object", object(), tag="red")
    cache.put_object("other", object())
    cache.set("red", 1)
    assert cache.remove_tagged("red") == len(keys) + 1
    assert list(cache) == ["red"]
    assert cache.get_object("object") is None and cache.get_object("other") is not None


def test_a_tag_stays_with_its_entry(cache):
    cache.set("n", 1, tag="red")
    assert cache.incr("n") == 2 and cache.incr("n", tag="blue") == 3
    assert cache.touch("n", 60)
    assert cache.info("n").tag == "red" and cache.get("n") == 3
    cache.set("n", 1, tag="blue")
    assert cache.remove_tagged("red") == 0 and cache.info("n").tag == "blue"
    cache["n"] = 1
    assert cache.remove_tagged("blue") == 0 and cache.info("n").tag is None


def test_without_blocking_the_loop(directory):
    async def go() -> None:
        with hutch.Cache(directory) as cache:
            await cache.aset("set", 1, tag="red")
            await cache.aput("put", 1, tag="red")
            await cache.aload("load", str, tag="red")
            await cache.aset_many({"many": 1}, tag="red")
            await cache.aset("plain", 1)

            @cache.memoize("memoized", tag="red")
            async def make(number: int) -> int:
                return number

            assert await make(3) == 3
            assert len(cache) == 6
            assert await cache.aremove_tagged("red") == 5
            assert list(cache) == ["plain"]

    asyncio.run(go())


def test_a_listener_is_told(cache):
    told = []
    cache.set_many({number: "value" for number in range(300)}, tag="red")
    cache["plain"] = 1
    listening = cache.listen(
        lambda event: told.append((event.key, event.cause)), hutch.EventKind.DID_REMOVE
    )
    assert cache.remove_tagged("red") == 300
    listening.end()
    assert sorted(told) == [(number, hutch.Cause.REMOVED) for number in range(300)]


KILLED = """
import sys
import hutch
kind, directory = sys.argv[1:]
limits = hutch.TierLimits(*[hutch.NO_LIMIT] * 5)
cache = hutch.Cache(
    directory, storage=kind, memory=limits, disk=limits, sharing="exclusive"
)
for number in range(200):
    cache.set(number, b"x" * (number * 300), tag="red" if number % 2 else "blue",
              write_policy=["through", "disk", "on_eviction"][number % 3])
print(cache.remove_tagged("red"), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["mixed", "sqlite", "file"])
def test_a_kill_brings_nothing_back(kind, directory: Path):
    process = subprocess.Popen(
        command("-c", KILLED, kind, directory),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout.readline() == b"100\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with hutch.Cache(directory, memory=NO_LIMITS, disk=NO_LIMITS) as cache:
        found = set(cache)
        # What memory alone had has gone with the process.
        assert found == {n for n in range(200) if n % 2 == 0 and n % 3 != 2}
        assert {cache.info(key).tag for key in found} == {"blue"}
        assert cache.check() == cache.check() and not cache.check()
        assert cache.remove_tagged("blue") == len(found) and not cache
