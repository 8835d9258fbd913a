"""1,000 values of 0 bytes to 8 MiB between Python and C, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import hutch
import pytest
from conftest import NO_LIMITS
from hutch import _library
from values import exchange_size, make_value

COUNT = 1000


def run(tool: Path, *arguments) -> bytes:
    command = [tool, _library.lib._name, *map(os.fspath, map(str, arguments))]
    done = subprocess.run(command, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize("storage", ["mixed", "sqlite", "file", "log"])
def test_python_writes_and_c_reads(tool, directory, seed, storage):
    # The whole number of values once; the other kinds of storage with fewer.
    count = COUNT if storage == "mixed" else COUNT // 10
    with hutch.Cache(directory, storage=storage, disk=NO_LIMITS) as cache:
        for number in range(count):
            cache[f"value-{number}"] = make_value(seed, number, exchange_size(seed, number))
    run(tool, "check", directory, seed, count)


def test_c_writes_and_python_reads(tool, directory, seed):
    run(tool, "write", directory, seed, COUNT)
    with hutch.Cache(directory, disk=NO_LIMITS) as cache:
        assert len(cache) == COUNT
        for number in range(COUNT):
            expected = make_value(seed, number, exchange_size(seed, number))
            assert cache[f"value-{number}"] == expected, number
        assert set(cache) == {f"value-{number}" for number in range(COUNT)}


@pytest.mark.parametrize("key", ["text", "naïve", b"bytes", b"\x00\xff", 1, -255, 2**70], ids=repr)
@pytest.mark.parametrize(
    "value, expected",
    [(b"\x00raw\xff", b"\x00raw\xff"), (b"", b""), ("naïve", "naïve".encode())]
    + [(-2, b"\xfe" + b"\xff" * 7), ([1, None], b"[1,null]")],
    ids=repr,
)
def test_keys_and_values_as_c_sees_them(tool, directory, key, value, expected):
    with hutch.Cache(directory) as cache:
        cache[key] = value
    assert run(tool, "get", directory, hutch.key_to_bytes(key).hex()) == expected
