"""Python objects as bytes and back: nothing is lost, and nothing meets that differs."""

from __future__ import annotations

import json
import math
import pickle
import sys
import types

import hutch
import pytest
from conftest import CHARACTERS, SEED
from hutch._codec import INT, JSON, STR, decode_value, encode_value
from hutch._units import FOREVER, limit_duration, nanoseconds, own_duration
from hypothesis import example, given
from hypothesis import seed as seeded
from hypothesis import strategies as st

TEXT = st.text(CHARACTERS)
KEYS = st.one_of(TEXT.filter(bool), st.binary(), st.integers())
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT)
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20
)


def same(one, other) -> bool:
    """Equal, and of equal types all the way down; 0.0 is not -0.0."""
    if type(one) is int:  # whose repr Python refuses above 4,300 digits
        return type(other) is int and one == other
    return type(one) is type(other) and repr(one) == repr(other)


# ------------------------------------------------------------------------ keys


@seeded(SEED)
@given(KEYS)
@example(0)
@example(-1)
@example(-(2**63))
@example(10**6000)
@example(b"")
@example(b"\xff")
@example(b"\xfe1")
@example("\x00")
@example("naïve \N{SNOWMAN}")
def test_a_key_comes_back(key):
    raw = hutch.key_to_bytes(key)
    assert raw
    assert same(hutch.key_from_bytes(raw), key)


@seeded(SEED)
@given(st.binary(min_size=1))
@example(b"\xfe")
@example(b"\xfe01")
@example(b"\xfe-0")
@example(b"\xfe0x1")
@example(b"\xfe1_0")
@example(b"\xfe 1")
@example(b"\xfeA")
@example(b"\xff\xff")
@example(b"\x80abc\x00")
def test_any_bytes_of_other_programs_are_a_key(raw):
    assert hutch.key_to_bytes(hutch.key_from_bytes(raw)) == raw


def test_the_bytes_that_other_languages_see():
    assert hutch.key_to_bytes("user:7") == b"user:7"
    assert hutch.key_to_bytes("é") == "é".encode()
    assert hutch.key_to_bytes(b"abc") == b"\xffabc"
    assert hutch.key_to_bytes(-255) == b"\xfe-ff"


def test_one_in_three_types_is_three_keys():
    assert len({hutch.key_to_bytes(key) for key in (1, "1", b"1", -1, "-1")}) == 5


class Name(str):
    pass


@pytest.mark.parametrize("key", [["a"], bytearray(b"a"), {}, {1}, object(), range(1), (1, ["a"])])
def test_no_key(key):
    with pytest.raises(TypeError, match="a key must be"):
        hutch.key_to_bytes(key)


@pytest.mark.parametrize("key", ["", "\ud800", "\udcffabc", "\udcfe1f"])
def test_no_key_either(key):
    with pytest.raises(ValueError):
        hutch.key_to_bytes(key)


# ---------------------------------------------------------------------- values


def through(value):
    data, extended = encode_value(value)
    assert type(data) is bytes
    return decode_value(data, extended or b"")


@seeded(SEED)
@given(st.one_of(st.binary(), DOCUMENTS))
@example(10**6000)
@example(-(10**6000))
@example(2**63 - 1)
@example(2**63)
@example(-(2**63))
@example(-(2**63) - 1)
@example(-0.0)
@example("\ud800 and \udcff")
@example({"": [[], {}, [None]]})
@example([math.inf, -math.inf])
def test_a_value_comes_back(value):
    assert same(through(value), value)


def test_not_a_number_comes_back():
    assert math.isnan(through(math.nan))
    assert math.isnan(through([math.nan])[0])


def test_the_bytes_of_values():
    assert encode_value(b"\x00raw") == (b"\x00raw", None)
    assert encode_value("é") == ("é".encode(), STR)
    assert encode_value(-2) == (b"\xfe" + b"\xff" * 7, INT)
    assert encode_value(2**63) == (b"\x00" * 7 + b"\x80\x00", INT)
    assert encode_value({"a": [1, True, None, "é"]}) == ('{"a":[1,true,null,"é"]}'.encode(), JSON)


def test_buffers_become_bytes():
    assert same(through(bytearray(b"abc")), b"abc")
    assert same(through(memoryview(b"abcdef")[::2]), b"ace")


def test_only_a_counter_has_eight_bytes_and_the_tag_of_an_int():
    for counter in (0, -1, 2**63 - 1, -(2**63)):
        assert len(encode_value(counter)[0]) == 8
    for larger in (2**63, -(2**63) - 1):
        assert len(encode_value(larger)[0]) == 9


def test_an_int_with_more_digits_than_python_writes():
    for value in (10**5000, [-(10**5000)], {"a": {"b": 10**5000}}):
        back = through(value)
        assert back == value and type(back) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Name("a"),
        json.JSONDecodeError,
        [Name("a")],
        {"a": object()},
        {Name("a"): 1},
    ],
)
def test_no_value(value):
    with pytest.raises(TypeError):
        encode_value(value)


def test_a_value_within_itself():
    loop: list = []
    loop.append(loop)
    with pytest.raises(ValueError):
        encode_value(loop)


def test_extended_data_of_other_programs_leaves_bytes():
    assert decode_value(b"12345678", b"image/png") == b"12345678"


# ------------------------------------------------------------------- durations


def test_durations():
    assert nanoseconds(1) == 10**9
    assert nanoseconds(0.25) == 250_000_000
    assert nanoseconds(1e-12) == 1
    assert nanoseconds(0) == 1
    assert nanoseconds(1.5e-9) == 2
    assert nanoseconds(math.inf) == nanoseconds(1e300) == FOREVER
    assert own_duration(None) == 0
    assert limit_duration(math.inf) == FOREVER
    assert limit_duration(1e-12) == 1


@pytest.mark.parametrize("seconds", [-1, -1e-12, math.nan, -math.inf])
def test_no_duration(seconds):
    with pytest.raises(ValueError):
        nanoseconds(seconds)


class Nested:
    """A serializer that calls itself for each list within a list, as one in Python would."""

    name = "nested"

    def dumps(self, value):
        return b"[" + self.dumps(value[0]) if type(value) is list else value.encode()

    def loads(self, data):
        return [self.loads(data[1:])] if data[0] == ord("[") and len(data) > 1 else data.decode()


@pytest.mark.parametrize(
    ("make", "serializer"),
    [(lambda value: (value,), None), (lambda value: [value], None), (lambda value: [value], Nested())],
)
def test_a_value_near_the_limit_of_recursion_is_not_missing(make, serializer):
    value = "["
    for _ in range(40):
        value = make(value)
    cache = hutch.Cache(serializer=serializer)
    cache["nested"] = value

    def at(depth, call):
        return call() if depth == 0 else at(depth - 1, call)

    found = []
    for depth in range(0, sys.getrecursionlimit(), 7):
        for call in (lambda: cache.get("nested"), lambda: cache.load("nested", str)):
            try:
                found.append(at(depth, call) == value)
            except RecursionError:
                pass
    assert len(found) > 50 and all(found) and cache["nested"] == value


def test_a_value_that_no_stack_can_read_is_missing(caplog):
    """Another writer cannot make each read of a key an error."""
    deep = types.SimpleNamespace(name="nested", dumps=lambda _: b"[" * 100_000, loads=json.loads)
    cache = hutch.Cache(serializer=deep)
    cache["deep"] = []
    assert cache.get("deep", "none") == "none" and "deep" in cache
    assert "could not be read by the serializer nested: RecursionError" in caplog.text


@pytest.mark.parametrize("serializer", [5, "pickle", pickle])
def test_what_is_no_serializer(serializer):
    with pytest.raises(TypeError, match=r"such as hutch.pickling.PickleSerializer\(\).*; not "):
        hutch.Cache(serializer=serializer)
