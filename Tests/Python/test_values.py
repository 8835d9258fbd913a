"""Values come back as they went in, whatever their size and wherever they are kept."""

from __future__ import annotations

import hashlib
import random

import hutch
import pytest
from conftest import IS_WHOLE, KINDS, NO_LIMITS

THRESHOLD = 4096
SIZES = sorted(
    {0, 1, 2, 7, 8, 9, 15, 16, 17, 4095, 4096, 4097, 65535, 65536, 65537, 1 << 20, (1 << 20) + 1}
    | {THRESHOLD + step for step in (-1, 0, 1)}
    | {20479, 20480, 20481}
    # The largest ones are the library's matter.
    | ({3_333_333, (8 << 20) - 1, 8 << 20} if IS_WHOLE else set())
)


@pytest.mark.parametrize("storage", KINDS)
def test_identity(directory, storage, seed):
    source = random.Random(seed)
    values = {size: source.randbytes(size) for size in SIZES}
    options = {"memory": NO_LIMITS, "disk": NO_LIMITS}
    if storage == "memory only":
        cache = hutch.Cache(**options)
    else:
        options.update(storage=storage, inline_threshold=THRESHOLD)
        cache = hutch.Cache(directory, **options)
    with cache:
        for size, value in values.items():
            cache[size] = value
        digests = {size: hashlib.sha256(cache[size]).digest() for size in SIZES}
        assert digests == {size: hashlib.sha256(value).digest() for size, value in values.items()}
        if storage == "memory only":
            return
        for view in (cache.disk, cache):
            cache.memory.clear()
            for size, value in values.items():
                assert view[size] == value, size
    with hutch.Cache(directory, **options) as cache:
        assert all(cache[size] == value for size, value in values.items())
        assert all(cache.info(size).size == size for size in SIZES)
        # Smaller over larger and larger over smaller, across the threshold and back.
        for one, other in zip(SIZES, reversed(SIZES)):
            cache[one] = values[other]
            cache.memory.delete(one)
            assert cache[one] == values[other]


def test_large_texts_and_documents(directory):
    text = "naïve \N{SNOWMAN}" * 200_000
    document = {f"k{number}": [number, str(number) * 50, None] for number in range(20_000)}
    with hutch.Cache(directory, disk=NO_LIMITS) as cache:
        cache["text"], cache["document"] = text, document
        assert cache["text"] == text and cache["document"] == document
        cache.memory.clear()
        assert cache["text"] == text and cache["document"] == document


def test_random_operations_on_few_keys_of_many_sizes(directory, seed):
    source = random.Random(seed)
    expected = {}
    with hutch.Cache(directory, inline_threshold=2000, disk=NO_LIMITS) as cache:
        for _ in range(1500):
            key = source.randrange(12)
            act = source.random()
            if act < 0.5:
                expected[key] = source.randbytes(source.choice((0, 10, 1999, 2000, 2001, 40_000)))
                cache[key] = expected[key]
            elif act < 0.6:
                assert cache.delete(key) == (expected.pop(key, None) is not None)
            elif act < 0.7:
                cache.memory.delete(key)
            else:
                assert cache.get(key) == expected.get(key)
        assert dict(cache.items()) == expected
    with hutch.Cache(directory) as cache:
        assert dict(cache.items()) == expected
