"""The keys of memoized calls: different for different arguments, equal for equal ones."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import pickle
import uuid

import hutch
import pytest
from hutch._call_keys import call_key, literal
from processes import finished


def key(*args, typed=False, ignore=(), **kwargs):
    return call_key("f", args, kwargs, typed, ignore)


def test_different_arguments_have_different_keys():
    calls = [
        (), (None,), (0,), (1,), ("1",), (b"1",), ("",), (b"",), ((),), ([],), ({},), (set(),),
        (frozenset(),), ((1,),), ([1],), ({1},), ({1: 2},), ({"1": 2},), (1, 2), ((1, 2),),
        ("1, 2",), ("1", "2"), ("a=1",), (1.5,), (float("inf"),), (float("nan"),), (2**63,),
        (str(2**63),), (-(2**63) - 1,), (10**5000,), (10**5000 + 1,), ("x" * 2000,), ("y" * 2000,),
        ("#",), ((1, (2,)),), ((1, 2, ()),), ([[1], 2],), ("\n",), ("\\n",), ("\ud800",),
    ]  # fmt: skip
    keys = [key(*args) for args in calls] + [key(a=1), key(b=1), key(a="1"), key(1, a=1)]
    keys += [key(a=1, b=2), key(**{"a=1, b": 2}), key(**{"'a=1, b'": 2}), key(**{"": 1})]
    assert len(set(keys)) == len(keys)
    assert all(len(hutch.key_to_bytes(each)) < 4096 for each in keys)


def test_equal_arguments_have_equal_keys():
    assert key(a=1, b=2) == key(b=2, a=1)
    assert key({"a": 1, "b": 2}) == key({"b": 2, "a": 1})
    assert key({3, 1, 2}) == key({2, 3, 1})


@pytest.mark.parametrize(
    "argument", [object(), lambda: 1, bytearray(b"a"), [object()], range(3), iter([])]
)
def test_arguments_that_make_no_key(argument):
    with pytest.raises(TypeError, match="cannot make a key"):
        key(argument)
    with pytest.raises(TypeError, match="cannot make a key"):
        key(a=argument)


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2
    RUN = 4


@dataclasses.dataclass
class Point:
    x: int
    y: object


Pair = collections.namedtuple("Pair", "first second")

NATURAL = [
    datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2), datetime.time(1, 2),
    datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc), datetime.timedelta(5),
    decimal.Decimal("1.1"), decimal.Decimal("NaN"), fractions.Fraction(1, 3), 1j,
    uuid.UUID(int=7), pathlib.PurePosixPath("/a"), pathlib.PurePosixPath("/b"), Colour.RED,
    Colour.GREEN, Point(1, 2), Point(1, "2"), Point(1, Point(1, 2)), "datetime.date(2026, 1, 2)",
    *map(Rights, range(10)), Rights(16), Pair(1, 2), Pair(1, "2"), (1, 2),
]  # fmt: skip


def test_natural_arguments_have_keys_of_their_own():
    keys = [key(each) for each in NATURAL]
    assert len(set(keys)) == len(keys)
    assert keys == [key(each) for each in pickle.loads(pickle.dumps(NATURAL))]
    with pytest.raises(TypeError, match="cannot make a key"):
        key(Point(1, object()))


def test_classes_of_one_name_are_told_apart():
    """As the rows of pandas' itertuples, whose class has the name Pandas for each table."""
    rows = [collections.namedtuple("Row", names) for names in ("a b", "b a", "a c")]
    colours = [enum.Enum("Colours", {"RED": value}) for value in (1, "1", 2)]
    keys = [key(row(1, 2)) for row in rows] + [key(colour.RED) for colour in colours]
    assert len(set(keys)) == len(keys)
    opaque = enum.Enum("Opaque", {"A": object(), "B": object()})
    assert key(opaque.A) == key(opaque["A"]) != key(opaque.B)


@dataclasses.dataclass
class Config(dict):
    name: str


class Outer:
    class Inner:
        pass


def test_a_dataclass_that_has_more_than_its_fields_is_no_argument():
    for value in (Config("a"), [Config("a")]):
        with pytest.raises(TypeError, match="cannot make a key"):
            key(value)


def test_an_object_with_an_attribute_that_is_no_field_is_no_argument():
    @dataclasses.dataclass
    class Base:
        x: int

    class Pair(collections.namedtuple("Pair", "a b")):
        pass

    class Slotted(Base):
        __slots__ = ("y",)

    base, pair, slotted = Base(1), Pair(1, 2), Slotted(1)
    for value, same in ((base, Base(1)), (pair, Pair(1, 2)), (slotted, Slotted(1))):
        assert key(value) == key(same)
    base.y = pair.c = slotted.y = 3
    for value in (base, pair, slotted, [base]):
        with pytest.raises(TypeError, match="no field"):
            key(value)


def test_an_object_with_a_field_that_has_no_value_is_no_argument():
    @dataclasses.dataclass
    class Partial:
        x: int = dataclasses.field(init=False)

    with pytest.raises(TypeError, match="Partial has no value in its field 'x'"):
        key(Partial())


def test_classes_as_arguments():
    class Local:
        pass

    classes = [int, str, Outer, Outer.Inner, Point, Colour, collections.abc.Sized, type]
    keys = [key(each) for each in [*classes, "builtins.int"]]
    assert len(set(keys)) == len(keys)
    for wrong in (Local, type("<lambda>", (), {})):
        with pytest.raises(TypeError, match="cannot make a key"):
            key(wrong)


def test_equal_numbers_are_one_argument_unless_they_are_typed():
    equal = [
        [1, True, 1.0, 1 + 0j, decimal.Decimal("1"), decimal.Decimal("1.0"), fractions.Fraction(1)],
        [0.5, decimal.Decimal("0.50"), fractions.Fraction(1, 2), 0.5 + 0j],
        [decimal.Decimal("0.1"), decimal.Decimal("0.10"), fractions.Fraction(1, 10)],
        [float("inf"), decimal.Decimal("Infinity")],
    ]
    for numbers in equal:
        assert len({key(each) for each in numbers}) == 1
        assert len({key([each]) for each in numbers}) == 1
    assert len({key(numbers[0]) for numbers in equal}) == len(equal)
    # A lambda that refers to one of them is known by which one it is.
    assert literal(decimal.Decimal("1"), True) != literal(decimal.Decimal("1.0"), True)


def test_arrays_as_arguments():
    numpy = pytest.importorskip("numpy")
    a = numpy.arange(6)
    arrays = [a, a.reshape(2, 3), a.astype("f8"), a[::-1], numpy.float64(1), numpy.float32(1)]
    assert len({key(each) for each in arrays}) == len(arrays)
    assert key(a[::2]) == key(a[::2].copy())
    with pytest.raises(TypeError, match="cannot make a key"):
        key(numpy.array([object()]))


def test_arrays_of_which_the_items_are_not_all():
    numpy = pytest.importorskip("numpy")

    class Quantity(numpy.ndarray):
        unit = "m"

    for array in (numpy.ma.array([1, 2], mask=[0, 1]), numpy.arange(2).view(Quantity)):
        with pytest.raises(TypeError, match="cannot make a key"):
            key(array)
    pairs = numpy.rec.array([(1, 2)])
    assert key(pairs) == key(pairs.copy()) != key(numpy.rec.array([(1, 3)]))


def test_a_lambda_has_its_name_in_every_process():
    code = "from hutch._call_keys import name_of; print(name_of(lambda word: word in {*'abcdefgh'}))"
    code = code.replace("{*'abcdefgh'}", repr(set("abcdefgh")))
    names = {finished("-c", code, PYTHONHASHSEED=seed).stdout for seed in "12"}
    assert len(names) == 1 and "lambda" in names.pop()
