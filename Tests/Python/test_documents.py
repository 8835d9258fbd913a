"""Documents: values of several kinds within each other have the same bytes with the accelerator and
without it, and are read the same, also by the other of the two.

With HUTCH_PURE=1 the two are the same.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import decimal
import fractions
import json
import math
import random
import uuid

import hutch
import pytest
from conftest import examples
from hutch import _accelerator, _cbor
from hutch._cbor import Unreadable, dumps
from hutch._cbor_read import loads
from hutch._codec import CBOR, JSON, decode_value, encode_value

TEXTS = ["", "a", "name", "x" * 23, "x" * 24, "x" * 33, "y" * 70, '"', "\\", "a\nb\x1f", "\u00e9"]
TEXTS += ["plain " * 9 + end + "more " * 9 for end in ('"', "\\", "\n", "\x7f", "\u4e2d", "\U0001f600")]
INTS = [0, 1, 23, 24, 255, 256, 65535, 65536, 2**31, 2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1]
INTS += [2**63, 2**64 - 1, 2**64, 2**200]
INTS += [~number for number in INTS]
RARE = [
    "\ud800", bytearray(b"a"), 1j, uuid.UUID(int=5), fractions.Fraction(1, 3), datetime.date(2026, 5, 1),
    datetime.datetime(2026, 5, 1, 12, 30, 1, 5, fold=1), datetime.timedelta(1, 2, 3),
    datetime.datetime(2026, 5, 1, tzinfo=datetime.timezone.utc), datetime.time(1, 2, fold=1),
    decimal.Decimal("1.50"), b"", b"bytes\0", bytes(300),
]


def leaf(chance: random.Random):
    kind = chance.randrange(8)
    if kind == 0:
        return chance.choice([None, True, False])
    if kind in (1, 2):
        return chance.choice(TEXTS)
    if kind == 3:
        return chance.choice(INTS)
    if kind in (4, 5):
        return chance.choice([0.0, -0.0, 0.1, 1e300, 5e-324, chance.gauss(0, 1), float(chance.randrange(99))])
    if kind == 6 and not chance.randrange(3):
        return chance.choice([math.nan, math.inf, -math.inf])
    return chance.choice(RARE) if kind == 7 else chance.randrange(-1000, 1000)


def document(chance: random.Random, depth: int = 0):
    kind = chance.randrange(depth, 12)
    if kind < 3:
        return [document(chance, depth + 2) for _ in range(chance.randrange(7))]
    if kind < 6:
        return {chance.choice(TEXTS): document(chance, depth + 2) for _ in range(chance.randrange(7))}
    if kind == 6:
        return tuple(document(chance, depth + 2) for _ in range(chance.randrange(4)))
    if kind == 7:
        return [chance.gauss(0, 1) for _ in range(chance.randrange(10, 20))]
    if kind == 8 and chance.randrange(2):
        of = chance.choice([set, frozenset])
        return of(chance.choice([*TEXTS, *INTS, (), (1, "a")]) for _ in range(chance.randrange(5)))
    if kind == 9 and chance.randrange(2):
        keys = chance.sample([*INTS, 0.5, None, "a", (1,), b"a"], 3)
        return {key: document(chance, depth + 2) for key in keys}
    return leaf(chance)


@pytest.fixture
def pure(monkeypatch):
    """A function that calls another one without the accelerator."""

    def without(function, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(_accelerator, "module", None)
            return function(*arguments)

    return without


def of_json(value) -> bool:
    """Whether a document is JSON, by the words of _codec."""
    floats = 0
    rest = [value]
    while rest:
        each = rest.pop()
        if type(each) is dict:
            if set(map(type, each)) - {str}:
                return False
            rest += each.values()
        elif type(each) is list:
            rest += each
        elif not (each is None or type(each) in (str, int, float, bool)):
            return False
        floats += type(each) is float
    return floats < 16


def has_any(value, kinds) -> bool:
    """Whether a value of these types is in a document."""
    inner = list(value.values()) if type(value) is dict else value
    is_list = type(inner) in (list, tuple)
    return isinstance(value, kinds) or (is_list and any(has_any(each, kinds) for each in inner))


def test_documents_have_the_same_bytes_without_the_accelerator(pure, seed):
    chance = random.Random(seed)
    for _ in range(examples(2000)):
        value = document(chance)
        if type(value) in (bytes, str, int, bytearray):
            continue
        data, extended = encode_value(value)
        assert (data, extended) == pure(encode_value, value), value
        assert extended == (JSON if of_json(value) else CBOR), value
        read = decode_value(data, extended)
        assert repr(read) == repr(pure(decode_value, data, extended)), value
        # Sets have another order then, and a bytearray comes back as bytes.
        if not has_any(value, (set, frozenset, bytearray)):
            assert repr(read) == repr(value)
        if extended == JSON:
            assert repr(read) == repr(json.loads(data.decode("utf-8", "surrogatepass")))


def told(value) -> str:
    """A value's text. The order of a set with a NaN, whose hash is that of the object, is none."""
    if type(value) in (set, frozenset):
        return f"{type(value).__name__} {sorted(map(told, value))}"
    if type(value) is dict:
        return f"dict {[(told(key), told(item)) for key, item in value.items()]}"
    if type(value) in (list, tuple):
        return f"{type(value).__name__} {list(map(told, value))}"
    return repr(value)


def test_damaged_documents_are_read_the_same_without_the_accelerator(pure, seed):
    chance = random.Random(seed)

    def outcome(data, extended):
        try:
            return told(decode_value(data, extended))
        except Unreadable as error:
            return f"Unreadable: {error}"

    for _ in range(examples(4000)):
        written, extended = encode_value([document(chance)])
        data = bytearray(written)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.choice([chance.randrange(256), 0xFB, 0x9B, 0xC0])
        damaged = bytes(data[: chance.choice([len(data), chance.randrange(len(data))])])
        assert outcome(damaged, extended) == pure(outcome, damaged, extended), (damaged, extended)


@pytest.mark.parametrize("value", [
    [0.5] * 15, [0.5] * 16, (0.5,) * 16, [0.5] * 15 + [1], [1] + [0.5] * 15, [1] + [0.5] * 16,
    {str(number): 0.5 for number in range(15)}, {str(number): 0.5 for number in range(16)},
    [[0.5] * 15, {"a": 0.5}], [math.nan] * 16, [math.nan] * 15, [math.inf] + [0.5] * 14,
    [True] * 16, [0.5] * 15 + [True], [[0.5] * 8, [0.5] * 8], [[], [0.5] * 15, ()],
])
def test_a_value_with_many_floats_is_cbor(pure, value):
    data, form = encode_value(value)
    assert (data, form) == pure(encode_value, value)
    assert form == (JSON if of_json(value) else CBOR)
    with hutch.Cache() as cache:
        cache["a"] = value
        assert cache.info("a").size == len(data)
        assert repr(cache["a"]) == repr(value)


def test_floats_that_are_json_are_read(pure):
    floats = [0.1, -2.5, 1e300] * 6
    text = json.dumps({"a": floats, "b": floats}).encode()
    assert decode_value(text, JSON) == pure(decode_value, text, JSON) == {"a": floats, "b": floats}


@pytest.mark.parametrize("floats", [b"\xfb" + bytes(8), b"\xfb\x7f\xf8" + bytes(6)])
@pytest.mark.parametrize("last", [b"\xfb" + bytes(8), b"\xfb" + bytes(7), b"\x01", b"", b"\xfa\0\0\0\0"])
def test_lists_of_floats_that_end_otherwise(pure, floats, last):
    data = b"\x98\x18" + floats * 23 + last

    def outcome():
        try:
            return repr(loads(data))
        except Unreadable:
            return "Unreadable"

    assert outcome() == pure(outcome)
    assert (outcome() == "Unreadable") == (len(last) not in (1, 9))


@pytest.mark.parametrize("depth", [38, 39, 40, 41, 42, 198, 200])
@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v,), lambda v: {1: v}, lambda v: {"a": v}])
def test_every_depth_has_the_same_bytes(pure, depth, wrap):
    value = 0.5
    for _ in range(depth):
        value = wrap(value)
    written = encode_value(value)
    assert written == pure(encode_value, value)
    assert decode_value(*written) == pure(decode_value, *written) == value


@contextlib.contextmanager
def registered(cls, name):
    """A class that is registered within."""
    classes, names = dict(_cbor.classes), dict(_cbor.names)
    hutch.register(cls, name)
    try:
        yield
    finally:
        for table, before in (_cbor.classes, classes), (_cbor.names, names):
            table.clear()
            table.update(before)


def test_registered_classes_in_documents(pure):
    Pair = collections.namedtuple("Pair", "one two")
    with registered(Pair, "tests.Pair"):
        value = {"pairs": [Pair(number, [0.5] * 20) for number in range(5)]}
        written = encode_value(value)
        assert written == pure(encode_value, value)
        assert decode_value(*written) == value
        assert type(decode_value(*written)["pairs"][0]) is Pair


@contextlib.contextmanager
def acting_when_read(name, act):
    """An object of a dataclass that is registered within; to read its field calls act."""

    @dataclasses.dataclass
    class Acting:
        number: int = 1

        def __getattribute__(self, name):
            if name == "number":
                act()
            return object.__getattribute__(self, name)

    with registered(Acting, name):
        yield Acting()


@pytest.mark.parametrize("values", [[1, 2, None], {1: 2, 2: None}])
def test_a_container_that_changes_while_it_is_written(values):
    with acting_when_read("tests.Emptying", values.clear) as emptying:
        values[2] = emptying
        with contextlib.suppress(RuntimeError):  # Of a dict that changes during an iteration.
            read = decode_value(*encode_value((values, 1)))
            assert read[1] == 1
        assert not values


@pytest.mark.parametrize("inner", [object(), collections.Counter("a"), [set("a"), object()]])
def test_what_is_no_value_is_refused_at_every_place(pure, inner):
    for value in inner, [inner], {"a": [0.5] * 20, "b": inner}, (1, inner), {1: inner}:
        with pytest.raises(TypeError) as refused:
            encode_value(value)
        with pytest.raises(TypeError) as told:
            pure(encode_value, value)
        assert str(refused.value) == str(told.value)
    itself: list = []
    itself.append((itself,))
    with pytest.raises(ValueError):
        encode_value(itself)


def test_an_interrupt_ends_the_call(cache):
    def interrupt():
        raise KeyboardInterrupt

    with acting_when_read("tests.Interrupting", interrupt) as interrupting:
        for call in encode_value, lambda value: cache.set("a", value):
            with pytest.raises(KeyboardInterrupt):
                call([interrupting])
    assert "a" not in cache


def test_a_large_value_of_bytes_in_a_document(pure):
    value = ([0.5] * 20, bytes(300_000))
    assert encode_value(value) == pure(encode_value, value)
    assert decode_value(*encode_value(value)) == value


def test_keys_are_read_with_their_types():
    for key in (1, "a"), ("x" * 40, None), (0.5, b"a", (1, ())), frozenset(("a", 1)):
        read = loads(dumps(key, sort=True))
        assert read == key and type(read) is type(key)
