"""Keys of calls: a function's name, and its arguments written as literals.

Different arguments have different texts, and equal ones the same in every process. A text is
written and compared, and never read back.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from types import CodeType, ModuleType
from typing import Any, Callable

from ._keys import canonical

_LONGEST = 1000


def call_key(
    name: str, args: tuple[Any, ...], kwargs: Any, typed: bool, ignore: Collection[Any]
) -> str:
    """The key of a call, "module.function(1, 'a', b=2.5)"; a digest in place of long arguments.

    Different arguments give different keys: each is written as its literal,
    and a digest is SHA-256. TypeError: an argument that has no such form.
    """
    parts = [literal(arg, typed) for place, arg in enumerate(args) if place not in ignore]
    parts += [
        f"{_keyword(key)}={literal(kwargs[key], typed)}"
        for key in sorted(kwargs)
        if key not in ignore
    ]
    text = ", ".join(parts)
    if len(text) > _LONGEST:
        # No literal begins with a hash sign, so a digest is no argument's own text.
        text = "#" + _sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name}({text})"


def _sha256(data: bytes = b"") -> Any:
    # Not at the top: few calls need a digest, and the import takes long.
    import hashlib

    return hashlib.sha256(data)


def _keyword(name: str) -> str:
    """A name as text. A name from a dictionary can have an equals sign or a comma in it."""
    return name if name.isidentifier() else repr(name)


def literal(value: Any, typed: bool) -> str:
    """An argument as text. TypeError: it has no text that is the same in every process."""
    kind = type(value)
    if not typed and (kind is bool or kind is float and value.is_integer()):
        value, kind = int(value), int
    elif not typed and (kind is complex or (kind.__module__, kind.__qualname__) in _NUMBERS):
        value = canonical(value)
        kind = type(value)
    if kind is int:
        # Hexadecimal where decimal is slow, and where Python refuses it.
        return repr(value) if -(2**63) <= value < 2**63 else hex(value)
    if value is None or kind in (bool, float, str, bytes, complex):
        return repr(value)
    if kind is list:
        return "[" + ", ".join(literal(item, typed) for item in value) + "]"
    if kind is tuple:
        return "(" + "".join(literal(item, typed) + "," for item in value) + ")"
    if kind is dict:
        pairs = ((literal(key, typed), literal(item, typed)) for key, item in value.items())
        return "{" + ", ".join(f"{key}: {item}" for key, item in sorted(pairs)) + "}"
    if kind is set or kind is frozenset:
        # Not a set display: {} is a dict's.
        return kind.__name__ + "(" + ", ".join(sorted(literal(x, typed) for x in value)) + ")"
    text = _of_library(value, kind, typed)
    if text is not None:
        return f"{kind.__module__}.{kind.__qualname__}({text})"
    raise TypeError(
        f"cannot make a key of an argument of type {kind.__name__}; "
        "leave it out by ignore, or pass what it stands for"
    )


_NUMBERS = {("decimal", "Decimal"), ("fractions", "Fraction")}

_BY_REPR = {
    ("datetime", "date"),
    ("datetime", "time"),
    ("datetime", "datetime"),
    ("datetime", "timedelta"),
    ("decimal", "Decimal"),
    ("fractions", "Fraction"),
    ("uuid", "UUID"),
}
"""Types whose repr is complete; a time zone's is checked."""


def _of_library(value: Any, kind: type, typed: bool) -> str | None:
    """A text that distinguishes the value from others of its type; None: its type is another.

    A type that has not been imported has no values, so the function imports none.
    """
    if (kind.__module__, kind.__qualname__) in _BY_REPR:
        zone = getattr(value, "tzinfo", None)
        if zone is not None and type(zone).__module__ not in ("datetime", "zoneinfo"):
            return None
        return repr(value) + ("*" if getattr(value, "fold", 0) else "")
    if isinstance(value, type):
        # As of a method's class. A class within a function has no name of its own.
        name = value.__qualname__
        return None if "<" in name else repr(f"{value.__module__}.{name}")
    pathlib = sys.modules.get("pathlib")
    if pathlib is not None and isinstance(value, pathlib.PurePath):
        return repr(os.fspath(value))
    enum = sys.modules.get("enum")
    if enum is not None and isinstance(value, enum.Enum):
        return _of_member(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        # An array of another class may have more than its items: a unit, or a mask.
        package = kind.__module__.split(".")
        is_whole = package[0] == "numpy" and package[1:2] != ["ma"]
        if is_whole and not value.dtype.hasobject:
            digest = _sha256(numpy.ascontiguousarray(value).tobytes()).hexdigest()
            return f"{value.dtype.descr!r}, {value.shape!r}, {digest}"
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        from ._cbor import check_attributes

        check_attributes(value, kind, kind._fields)
        # With the names: rows of different tables have classes of one name, as those of pandas.
        names = ", ".join(kind._fields)
        return f"({names})=" + "".join(literal(item, typed) + "," for item in value)
    dataclasses = sys.modules.get("dataclasses")
    if dataclasses is not None and dataclasses.is_dataclass(kind):
        from ._cbor import fields_of, has_fields_alone

        if not has_fields_alone(kind):
            return None
        fields = fields_of(value, kind)
        return ", ".join(f"{name}={literal(item, typed)}" for name, item in fields.items())
    return None


def _of_member(value: Any) -> str:
    """The text of a member of an enumeration. Another enumeration can have its names."""
    try:
        inner = literal(value.value, True)
    except TypeError:
        inner = ""
    # A flag of several bits or of unknown ones can have no name.
    return inner if value.name is None else f"{value.name!r}, {inner}"


def name_of(function: Callable[..., Any]) -> str:
    """The start of the keys of a function's calls. TypeError: the caller has to choose it."""
    module = getattr(function, "__module__", None)
    qualname = getattr(function, "__qualname__", None)
    owner = getattr(function, "__self__", None)
    if qualname is None or (owner is not None and not isinstance(owner, (type, ModuleType))):
        raise TypeError(
            f"{function!r} has no name that tells it from others of its type: "
            'give one by memoize(name="...")'
        )
    if isinstance(owner, type):
        # The class of the call, which may have inherited the method.
        module, qualname = owner.__module__, f"{owner.__qualname__}.{function.__name__}"
    if function.__name__ != "<lambda>":
        return f"{module}.{qualname}"
    code = getattr(function, "__code__", None)
    if code is None:
        raise TypeError(
            f"{function!r} has no code that tells it from other lambdas: "
            'give it a name by memoize(name="...")'
        )
    digest = _sha256()
    _digest_code(code, digest)
    try:
        cells = getattr(function, "__closure__") or ()
        kept = [cell.cell_contents for cell in cells]
        kept += [getattr(function, "__defaults__"), getattr(function, "__kwdefaults__")]
        digest.update(literal(kept, True).encode("utf-8", "surrogatepass"))
    except (TypeError, ValueError):
        raise TypeError(
            "what this lambda refers to tells it from others and has no literal: "
            'give it a name by memoize(name="...")'
        ) from None
    return f"{module}.{qualname}#{digest.hexdigest()[:16]}"


def _digest_code(code: CodeType, digest: Any) -> None:
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_argcount)
    digest.update(repr((names, code.co_posonlyargcount, code.co_kwonlyargcount)).encode())
    digest.update(code.co_code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _digest_code(constant, digest)
        else:
            digest.update(f"{type(constant).__name__}:{_constant(constant)};".encode())


def _constant(value: Any) -> str:
    """A constant as text. The repr of a frozenset has another order in another process."""
    try:
        return literal(value, True)
    except TypeError:
        return repr(value)
