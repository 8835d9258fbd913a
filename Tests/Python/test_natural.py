"""Natural values and keys, serializers, and bytes of a hostile hand: nothing is lost, nothing
meets that differs, and no bytes run code."""

from __future__ import annotations

import abc
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import hmac
import json
import pathlib
import pickle
import random
import typing
import uuid
import zoneinfo

import hutch
import pytest
from conftest import CHARACTERS, SEED, examples
from hutch import _cbor
from hutch._cbor import Unreadable, dumps
from hutch._cbor_read import loads
from hutch._codec import CBOR, INT, JSON, STR, decode_value, encode_value
from hutch.pickling import PickleSerializer
from hypothesis import example, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from native import byref, lib, put, structs
from processes import run

UTC = datetime.timezone.utc
HAS_PARIS = "Europe/Paris" in zoneinfo.available_timezones()
PARIS = zoneinfo.ZoneInfo("Europe/Paris") if HAS_PARIS else UTC
OFFSETS = st.integers(-1439, 1439).map(lambda n: datetime.timezone(datetime.timedelta(minutes=n)))
ZONES = st.none() | st.just(UTC) | OFFSETS
# With an offset a fold says nothing, and is not kept.
DATETIMES = st.datetimes(timezones=ZONES).map(
    lambda time: time if time.tzinfo is None else time.replace(fold=0)
)
NUMBERS = st.integers() | st.floats(allow_nan=False) | st.booleans() | st.decimals(allow_nan=False)
ATOMS = (
    st.none() | NUMBERS | st.text(CHARACTERS) | st.binary() | st.uuids() | st.fractions() | st.dates()
    | st.timedeltas() | DATETIMES | st.times() | st.complex_numbers(allow_nan=False)
)  # fmt: skip
KEYS = st.recursive(
    ATOMS, lambda inner: st.lists(inner).map(tuple) | st.frozensets(inner), max_leaves=4
)
VALUES = st.recursive(
    ATOMS | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple)
    | st.sets(ATOMS, max_size=3) | st.dictionaries(ATOMS, inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


class Level(enum.IntEnum):
    LOW = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Bits(enum.IntFlag):
    ONE = 1
    FOUR = 4


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    tags: tuple = ()

    def __post_init__(self):
        ran.append(self)


Pair = collections.namedtuple("Pair", "one two")
ran: list = []
for each in (Colour, Level, Rights, Bits, Point, Pair):
    hutch.register(each)


def through(value):
    data, extended = encode_value(value)
    return decode_value(data, extended or b"")


def same(one, other) -> bool:
    """Equal, and of equal types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, (set, frozenset)):
        return one == other and sorted(map(repr, one)) == sorted(map(repr, other))
    if isinstance(one, datetime.datetime):
        return one == other and (one.fold, str(one.tzinfo)) == (other.fold, str(other.tzinfo))
    return one == other and (type(one) is int or repr(one) == repr(other))


# ---------------------------------------------------------------------- values


@settings(max_examples=examples(50))
@seeded(SEED)
@given(VALUES)
@example(2**64)
@example([-(2**64) - 1, 2**63, -(2**63)])
@example(("\ud800", -0.0, float("inf")))
@example({(1, 2): {None: [b"x"]}, 1: "a", "1": "b"})
@example(datetime.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=PARIS))
@example(datetime.time(1, 2, 3, 4, tzinfo=UTC))
@example([decimal.Decimal("1E+1000000"), decimal.Decimal("-0.00"), decimal.Decimal("Infinity")])
@example([set(), frozenset(), (), {}, []])
@example(pathlib.Path("/a/b"))
def test_a_natural_value_comes_back(value):
    assert same(through(value), value)


def test_the_forms_of_values():
    assert encode_value({"a": [1]}) == (b'{"a":[1]}', JSON)
    assert encode_value((1,)) == (bytes.fromhex("da4854000181 01".replace(" ", "")), CBOR)
    assert encode_value({1: None}) == (bytes.fromhex("a101f6"), CBOR)
    assert encode_value(datetime.date(2026, 1, 2)) == (b"\xd9\x03\xec\x6a2026-01-02", CBOR)
    assert encode_value(uuid.UUID(int=1))[0] == b"\xd8\x25\x50" + bytes(15) + b"\x01"
    assert encode_value([b"x"])[0] == b"\x81\x41x"
    assert dumps([2**64, -1, 1.5]) == bytes.fromhex("83c249010000000000000000 20fb3ff8000000000000")


def test_registered_classes(cache):
    point = Point(1, ("a", Colour.RED))
    ran.clear()
    for value in (point, [point], Colour.GREEN, Level.LOW, Pair(1, Pair(2, None)), {Colour.RED: 1}):
        cache["k"] = value
        assert same(cache["k"], value) or cache["k"] == value and type(cache["k"]) is type(value)
    assert ran == [], "reading has called __post_init__"
    for flags in (Rights.READ, Rights.READ | Rights.WRITE, Rights(0), Bits.ONE | Bits.FOUR):
        cache["k"] = [flags]
        assert cache["k"] == [flags] and type(cache["k"][0]) is type(flags)
    for content in ([Rights, 8], [Colour, 1], [Rights, 1.0], [Rights, "NONE"], [Rights], 1):
        named = [_cbor.names[content[0]], *content[1:]] if isinstance(content, list) else content
        with pytest.raises(Unreadable):
            loads(b"\xda" + _cbor.ENUM.to_bytes(4, "big") + dumps(named))

    @dataclasses.dataclass
    class Unknown:
        x: int

    with pytest.raises(TypeError, match=r"hutch.register\(Unknown\)"):
        cache["k"] = Unknown(1)
    hutch.register(Unknown, "of-the-test")
    cache["k"] = Unknown(1)
    assert cache["k"] == Unknown(1)
    del _cbor.classes["of-the-test"]
    assert cache.get("k", "none") == "none" and "k" in cache
    with pytest.raises(TypeError, match="can be registered"):
        hutch.register(int)
    for base in (dict, Exception, str):
        with pytest.raises(TypeError, match=f"that is a {base.__name__} cannot be registered"):
            hutch.register(dataclasses.make_dataclass("More", ["field"], bases=(base,)))
    hutch.register(dataclasses.make_dataclass("Plain", ["field"], bases=(abc.ABC,)))
    with pytest.raises(ValueError, match="registered already"):
        hutch.register(Colour, _cbor.names[Point])


def test_a_named_tuple_is_known_by_the_names_of_its_fields():
    def row(names):
        return hutch.register(collections.namedtuple("Row", names), "row-of-the-test")

    stored = dumps(row("a b")(1, 2))
    assert loads(stored) == (1, 2)
    turned = row("b a")
    assert loads(stored) == turned(a=1, b=2) and type(loads(stored)) is turned
    row("a c")
    with pytest.raises(Unreadable, match="other fields"):
        loads(stored)
    # As an earlier version has stored it.
    earlier = dumps(["row-of-the-test", [1, 2]])
    assert loads(b"\xda" + _cbor.NAMEDTUPLE.to_bytes(4, "big") + earlier) == (1, 2)
    row("a")
    with pytest.raises(Unreadable, match="other fields"):
        loads(b"\xda" + _cbor.NAMEDTUPLE.to_bytes(4, "big") + earlier)


T = typing.TypeVar("T")


@hutch.register
@dataclasses.dataclass
class Square(typing.Generic[T]):
    side: T
    names: typing.ClassVar[list] = []

    @functools.cached_property
    def area(self):
        return self.side * self.side


def test_an_object_with_more_than_its_fields(cache):
    square = Square[int](3)
    assert square.area == 9
    cache["square"] = square
    assert cache["square"] == square and cache["square"].area == 9
    for name in ("other", "names"):
        square = Square(3)
        setattr(square, name, [1])
        with pytest.raises(TypeError, match=f"Square has the attribute '{name}', which"):
            cache["square"] = square
    assert cache["square"] == Square(3)


@hutch.register
@dataclasses.dataclass
class Partial:
    x: int
    y: list = dataclasses.field(init=False)


@hutch.register
class Slotted(Partial):
    __slots__ = ("other", "__own")


def test_an_object_with_a_slot_that_is_no_field(cache):
    for name in ("other", "_Slotted__own"):
        slotted = Slotted(1)
        slotted.y = [2]
        cache["slotted"] = slotted
        assert cache["slotted"] == slotted and type(cache["slotted"]) is Slotted
        setattr(slotted, name, 3)
        with pytest.raises(TypeError, match=f"Slotted has the attribute '{name}', which is no"):
            cache["slotted"] = slotted


def test_an_object_with_a_field_that_has_no_value(cache):
    for value in (Partial(1), [Partial(1)]):
        with pytest.raises(TypeError, match="Partial has no value in its field 'y'"):
            cache["partial"] = value


def test_a_class_is_registered_by_a_text():
    for wrong, error in ((5, TypeError), (b"name", TypeError), ("\ud800", ValueError)):
        with pytest.raises(error):
            hutch.register(Point, wrong)
    assert loads(dumps(Point(1))) == Point(1)


def test_what_is_no_value(cache):
    for value in (object(), len, type, [object()], {"a": object()}, range(3), iter([])):
        with pytest.raises(TypeError, match="cannot be part of a value"):
            encode_value(value)
        with pytest.raises(TypeError, match="cannot be part of a value.*serializer="):
            cache["key"] = value
    loop: list = [()]
    loop.append((loop,))
    with pytest.raises(ValueError):
        encode_value(loop)


def test_arrays(cache):
    numpy = pytest.importorskip("numpy")
    a = numpy.arange(12, dtype="<i4")
    arrays = [a, a.reshape(3, 4), a[::-2], numpy.asfortranarray(a.reshape(3, 4)), a[:0]]
    arrays += [a.astype(kind) for kind in ("f8", ">f4", "?", "c16", "u1", "M8[s]", "m8[ms]", "S3")]
    arrays += [numpy.array(["é", "abc"]), numpy.array(5.5), numpy.zeros((0, 3))]
    for array in arrays:
        for value in (array, [array, {"a": array}]):
            cache["k"] = value
            found = cache["k"] if value is array else cache["k"][1]["a"]
            assert found.dtype == array.dtype and found.shape == array.shape
            assert numpy.array_equal(found, array) and found.flags.writeable
    for scalar in (numpy.float64(1.5), numpy.int8(-1), numpy.bool_(True)):
        assert through(scalar) == scalar and type(through(scalar)) is type(scalar)
    with pytest.raises(TypeError):
        encode_value(numpy.array([object()]))

    class Quantity(numpy.float64):
        unit = "m"

    fields = numpy.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])
    for value, words in ((fields, r"an array of the dtype \[\('a'"), (Quantity(1), "Quantity")):
        with pytest.raises(TypeError, match=words):
            encode_value(value)


def test_an_array_of_texts_with_a_character_that_is_none():
    numpy = pytest.importorskip("numpy")
    for kind, order, codec in ("<U3", "little", "utf-32-le"), (">U3", "big", "utf-32-be"):
        data = dumps(numpy.array(["abc", "\U0010ffff"], kind))
        assert loads(data)[1] == "\U0010ffff"
        for number in 0x110000, 2**32 - 1:
            forged = data.replace("c".encode(codec), number.to_bytes(4, order))
            assert len(forged) == len(data) and forged != data
            with pytest.raises(Unreadable):
                loads(forged)


# ------------------------------------------------------------------------ keys


@settings(max_examples=examples(50))
@seeded(SEED)
@given(KEYS)
@example(("u", 7))
@example(())
@example(None)
@example(1.5)
@example((b"", "", 0))
@example(decimal.Decimal("1E+1000000"))
@example(datetime.datetime(2026, 1, 2, tzinfo=UTC))
def test_a_natural_key_comes_back_as_what_is_equal(key):
    if key == "":
        return
    try:
        raw = hutch.key_to_bytes(key)
    except ValueError:
        assert isinstance(key, str)
        return
    again = hutch.key_from_bytes(raw)
    assert again == key or key != key
    assert hutch.key_to_bytes(again) == raw


@settings(max_examples=examples(50))
@seeded(SEED)
@given(st.data())
def test_equal_keys_are_equal_bytes_and_others_are_not(data):
    one, other = data.draw(KEYS), data.draw(KEYS)
    assert (hutch.key_to_bytes((one,)) == hutch.key_to_bytes((other,))) == (one == other)


EQUAL = [
    [1, 1.0, True, decimal.Decimal("1.00"), fractions.Fraction(2, 2), Level.LOW],
    [0, -0.0, False, decimal.Decimal("-0")],
    [0.5, decimal.Decimal("0.50"), fractions.Fraction(1, 2)],
    [decimal.Decimal("0.1"), fractions.Fraction(1, 10), decimal.Decimal("0.10")],
    [float("inf"), decimal.Decimal("Infinity")],
    [
        datetime.datetime(2026, 1, 2, 12, tzinfo=UTC),
        datetime.datetime(2026, 1, 2, 14, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
    ],
    [1.5, 1.5 + 0j, complex(1.5, -0.0)],
    [2j, complex(-0.0, 2)],
    [pathlib.Path("a/b"), pathlib.Path("a//b/")],
    [(1, 2), Pair(1, 2), (True, 2.0)],
    [frozenset({1, 2, "a"}), frozenset({"a", 2.0, True})],
]


def test_what_is_equal_is_one_key(cache):
    for kinds in EQUAL:
        assert len(set(kinds)) == 1
        for wrap in (lambda key: key, lambda key: (key, "x"), lambda key: frozenset({key})):
            cache.clear()
            cache[wrap(kinds[0])] = "found"
            for key in kinds:
                assert cache[wrap(key)] == "found" and wrap(key) in cache
            assert set(cache) == {wrap(kinds[-1])}
    assert len({hutch.key_to_bytes(kinds[0]) for kinds in EQUAL}) == len(EQUAL)


def test_numbers_of_numpy_are_keys_as_in_a_dict(cache):
    numpy = pytest.importorskip("numpy")
    keys = [
        *(numpy.int64(1), numpy.uint64(2**64 - 1), numpy.int8(-1), numpy.bool_(False)),
        *(numpy.float32(0.1), numpy.float16(1.5), numpy.float64(2), numpy.complex64(1j)),
        *(numpy.bytes_(b"a"), numpy.str_("a")),
    ]
    for key in keys:
        for wrap in (lambda key: key, lambda key: (key, "x"), lambda key: frozenset({key})):
            cache.clear()
            cache[wrap(key)] = "found"
            for twin in (wrap(key), wrap(key.item())):
                assert cache[twin] == "found" and set(cache) == {twin}
    for key in (numpy.array(1), numpy.array([1]), numpy.datetime64(1, "s"), numpy.longdouble(1)):
        with pytest.raises(TypeError, match="a key must be"):
            cache[key] = 1


def test_empty_scalars_of_numpy_are_values(cache):
    numpy = pytest.importorskip("numpy")
    for empty in (numpy.array(["", ""])[0], numpy.bytes_(b"")):
        for value in (empty, {"name": empty, "n": 1}, (empty,)):
            cache["value"] = value
            found = cache["value"]
            assert found == value and type(found) is type(value)
        assert type(cache.memoize()(lambda: empty)()) is type(empty)


def test_a_time_without_a_date_in_utc_is_no_key(cache):
    early = datetime.datetime.min.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    cache["value"] = early
    assert cache["value"] == early
    for use in (lambda: cache.get(early), lambda: cache.set((early, 1), 1), lambda: early in cache):
        with pytest.raises(ValueError, match="UTC"):
            use()


class Name(str):
    pass


class Raw(bytes):
    pass


def test_a_key_of_a_subclass_is_its_value(cache):
    cache["a"] = cache[b"a"] = 1
    assert cache[Name("a")] == cache[Raw(b"a")] == 1 and set(cache) == {"a", b"a"}
    for key in (["a"], bytearray(b"a"), {}, {1}, object(), range(1), (1, [2]), Colour.RED):
        with pytest.raises(TypeError, match="a key must be"):
            cache[key] = 1


# ----------------------------------------------------------------- serializers


class Json:
    name = "json"

    def dumps(self, value):
        return json.dumps(value).encode()

    loads = staticmethod(json.loads)


class Other(Json):
    name = "other"


def test_one_serializer_never_reads_another_s_values(directory):
    kinds = {"none": None, "json": Json(), "other": Other(), "pickle": PickleSerializer()}
    kinds["authentic"] = PickleSerializer(b"k" * 16)
    with hutch.Cache(directory):
        caches = {}
        for name, serializer in kinds.items():
            caches[name] = hutch.Cache(directory, serializer=serializer)
        for writer, cache in caches.items():
            cache["k"] = [1, 2.5, None]
            for reader, other in caches.items():
                expected = [1, 2.5, None] if reader == writer else "none"
                assert other.get("k", "none") == expected
                assert other.get_many(["k"]) == ({"k": expected} if reader == writer else {})
                assert list(other.values()) == ([expected] if reader == writer else [])
                assert (other.entry("k") is not None) == (reader == writer)
                assert (other.memory.get("k") is not None) == (reader == writer)
            # All serializers share natural text, bytes and numbers.
            for value in ("text", b"bytes", 7):
                cache["n"] = value
                assert all(other["n"] == value for other in caches.values())
            assert all(other.incr("n") for other in caches.values())
            cache.delete("n")
        caches["json"]["k"] = {"a": 1}
        assert caches["other"].load("k", lambda key: (1,)) == [1]
        assert caches["json"].get("k") is None and caches["other"]["k"] == [1]
        for cache in caches.values():
            cache.close()


def test_what_is_no_serializer():
    class Nameless:
        dumps = loads = bytes

    class Texts:
        name = "texts"
        dumps = staticmethod(str)
        loads = staticmethod(str)

    for wrong, words in (
        (json, "has no name|by which"),
        (5, "dumps"),
        (Nameless(), "by which its values are known"),
    ):
        with pytest.raises(TypeError, match=words):
            hutch.Cache(serializer=wrong)
    with hutch.Cache(serializer=Texts()) as cache:
        with pytest.raises(TypeError, match="makes bytes, not str"):
            cache["k"] = [1]
    with pytest.raises(ValueError, match="16 bytes"):
        PickleSerializer(b"short")


class Bomb:
    def __reduce__(self):
        return ran.append, ("exploded",)


def test_pickle_with_a_key_unpickles_only_what_it_has_written(directory, caplog):
    ran.clear()
    good, bad = PickleSerializer(b"k" * 16), PickleSerializer(b"x" * 16)
    with hutch.Cache(directory, serializer=good) as cache:
        cache["k"] = Colour
        assert cache["k"] is Colour
        with hutch.Cache(directory, serializer=bad) as other:
            other["bomb"] = Bomb()
            assert cache.get("bomb") is None and cache.load("bomb", lambda key: {1}) == {1}
        data = pickle.dumps(Bomb())
        for forged in (data, bytes(32) + data, b"", hmac.digest(b"k" * 16, data, "md5") + data):
            with hutch.Cache(directory) as plain:
                options = structs.PutOptions(extended=b"py:x:pickle+hmac", extended_size=16)
                assert put(plain._pointer, b"f", forged, byref(options)) == 0
            assert cache.get("f") is None
    assert ran == []
    assert "not authentic" in caplog.text


def test_nothing_imports_pickle_unless_it_is_asked_for():
    run("import sys, hutch; hutch.Cache()['k'] = (1,); assert 'pickle' not in sys.modules")


# -------------------------------------------------------------- a hostile hand


def corpus(source: random.Random) -> list[bytes]:
    values = [
        (1, "a", b"b", None, True, 1.5), {1: {2: [3]}}, {1, 2}, frozenset("ab"), 2**70, -(2**70),
        datetime.datetime.now(), datetime.datetime.now(UTC), datetime.date.today(),
        datetime.timedelta(5), datetime.time(1), decimal.Decimal("1.5"), fractions.Fraction(1, 3), uuid.uuid4(), 1j,
        pathlib.Path("/a"), "\ud800", Point(1, (2,)), Colour.RED, Pair(1, 2), [[[[[]]]]] * 5,
        datetime.datetime(2026, 1, 1, tzinfo=PARIS), "x" * 300, list(range(300)),
    ]  # fmt: skip
    try:
        import numpy

        values += [numpy.arange(6).reshape(2, 3), numpy.float32(1), numpy.array(["a"])]
    except ImportError:
        pass
    return [dumps(value) for value in values]


@pytest.mark.parametrize("empty", [(), frozenset(), [], {}, None, 2**70, "\ud800"])
def test_what_is_written_at_the_deepest_level_is_read(empty):
    for depth in range(_cbor.DEEPEST - 3, _cbor.DEEPEST + 3):
        value = empty
        for _ in range(depth):
            value = (value,)
        try:
            data = dumps(value)
        except ValueError:
            continue
        assert loads(data) == value
    assert depth > _cbor.DEEPEST


@hutch.register
@dataclasses.dataclass(frozen=True)
class Busy:
    """Changes the value of which it is a part whenever it is written."""

    number: int

    def __getattribute__(self, name):
        if name == "number":
            change()
        return object.__getattribute__(self, name)


def nothing():
    pass


change = nothing


def of_list(numbers):
    value = [Busy(0), *range(numbers)]
    return value, lambda: value.append(1)


def of_dict(numbers):
    value = {"first": Busy(0), **{f"{each}": each for each in range(numbers)}}
    return value, lambda: value.update({f"{len(value)}": 1})


def of_set(numbers):
    value = {Busy(0), *range(numbers)}

    def exchange():
        # A set has an iterator that notices another size only.
        least = min(each for each in tuple(value) if type(each) is int)
        value.remove(least)
        value.add(least + 1000)

    return value, exchange


@pytest.mark.parametrize("make", [of_list, of_dict, of_set])
@pytest.mark.parametrize("write", ["dumps", "cache"])
def test_what_changes_while_it_is_written_can_be_read(monkeypatch, make, write):
    """As if another thread had changed it meanwhile."""
    with hutch.Cache() as cache:
        for numbers in range(1, 60):
            value, changing = make(numbers)
            with monkeypatch.context() as patch:
                patch.setitem(globals(), "change", changing)
                if write == "cache":
                    cache["key"] = value
                else:
                    data = dumps(value)
            read = cache["key"] if write == "cache" else loads(data)
            assert type(read) is type(value) and len(read) > numbers


# An array and a text that promise more than there is, a tag, and what is nested deeply.
ODD = [b"\x9b" + b"\xff" * 8, b"\x5a\x7f\xff\xff\xff", b"\xda\x48\x54\x00\x01", b"\x81" * 500]


def mutated(data: bytes, source: random.Random, others: list[bytes]) -> bytes:
    made = bytearray(data)
    for _ in range(source.randint(1, 4)):
        kind = source.randrange(6)
        place = source.randrange(len(made) + 1)
        if kind == 0 and made:
            made[place % len(made)] = source.randrange(256)
        elif kind == 1 and made:
            made[place % len(made)] ^= 1 << source.randrange(8)
        elif kind == 2:
            del made[place : place + source.randint(1, 8)]
        elif kind == 3:
            made[place:place] = source.randbytes(source.randint(1, 8))
        elif kind == 4:
            made[place:place] = source.choice(others)
        else:
            made[place:place] = source.choice(ODD)
    return bytes(made)


def test_mutated_bytes_are_a_value_or_unreadable(seed):
    source = random.Random(seed)
    seeds = corpus(source)
    ran.clear()
    readable = 0
    count = examples(5_000)
    for _ in range(count):
        data = mutated(source.choice(seeds), source, seeds)
        try:
            value = loads(data)
        except Unreadable:
            continue
        readable += 1
        # What has come out of bytes can be written again, or says why not.
        try:
            dumps(value)
        except (TypeError, ValueError):
            pass
    assert ran == [] and 0 < readable < count


def test_mutated_bytes_in_a_directory_are_misses(directory, seed):
    source = random.Random(seed)
    seeds = corpus(source)
    tags = [CBOR, JSON, STR, INT, b"py:", b"py:x:pickle", b"py:pickle", b"py:cbor2", b"image/png"]
    with hutch.Cache(directory) as cache:
        for number in range(400):
            data = mutated(source.choice([*seeds, b'{"a":1}']), source, seeds)
            tag = source.choice(tags)
            options = structs.PutOptions(extended=tag, extended_size=len(tag))
            key = mutated(b"\xfd" + source.choice(seeds), source, seeds)[:1000] or b"k"
            assert put(cache._pointer, key, data, byref(options)) == 0
        missing = object()
        for key in list(cache):
            assert cache.info(key) is not None
            assert isinstance(cache.get(key, missing), object)
        assert len(list(cache.items())) <= len(cache) == len(set(cache))
        assert lib.hutch_check(cache._pointer, 0, byref(structs.CheckReport())) == 0
