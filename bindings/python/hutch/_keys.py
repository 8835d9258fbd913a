"""Keys that are equal in Python as one value, so that equal keys are equal bytes."""

from __future__ import annotations

from typing import Any

# Of a Decimal with more digits before or behind its point no int or Fraction is a key that equals
# it: their bytes would be longer than a key can be.
_LONGEST = 80_000


def canonical(key: Any) -> Any:
    """Of all keys equal to this one, the key whose bytes stand for them.

    TypeError: it is not a key.
    """
    kind = type(key)
    if key is None or kind in (str, bytes):
        return key
    if isinstance(key, int):
        return int(key)
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, bytes):
        return bytes(memoryview(key))
    if isinstance(key, float):
        return int(key) if key.is_integer() else float(key)
    if isinstance(key, tuple):
        return tuple(map(canonical, key))
    if kind is frozenset:
        return frozenset(map(canonical, key))
    if kind is complex:
        # A real part of -0.0 is equal to 0.0.
        return complex(key.real + 0.0, key.imag) if key.imag else canonical(key.real)
    same = _of_library(key, kind.__module__, kind.__name__)
    if same is None:
        raise TypeError(
            "a key must be a str, bytes, int or another natural value, or a tuple of these, "
            f"not {kind.__name__}"
        )
    return same


def _of_library(key: Any, module: str, name: str) -> Any:
    if module == "datetime":
        if name in ("date", "timedelta"):
            return key
        if name == "time" and key.tzinfo is None:
            return key.replace(fold=0)
        if name == "datetime":
            if key.tzinfo is None:
                return key.replace(fold=0)
            from datetime import timezone

            try:
                return key.astimezone(timezone.utc)
            except OverflowError:
                raise ValueError(f"{key!r} is no key: it has no date in UTC") from None
        return None
    if (module, name) == ("decimal", "Decimal"):
        return _number(key) if key.is_finite() else key if key.is_nan() else float(key)
    if (module, name) == ("fractions", "Fraction"):
        return _number(key)
    if (module, name) == ("uuid", "UUID"):
        return key
    if module == "numpy" and getattr(key, "shape", None) == () and name != "ndarray":
        number = key.item()
        return canonical(number) if type(number) in (int, float, bool, complex) else None
    # Python 3.13 has it in pathlib._local.
    if name == "PosixPath" and module.startswith("pathlib"):
        return key
    return None


def _number(key: Any) -> Any:
    """An int or a float that is equal to the number, if there is one."""
    if not key:
        return 0
    adjusted = getattr(key, "adjusted", None)
    if adjusted is not None and abs(adjusted()) > _LONGEST:
        return _shortest(key)
    try:
        if key == int(key):
            return int(key)
        if key == float(key):
            return float(key)
    except OverflowError:
        pass
    if adjusted is None:
        return key
    # A Fraction can be equal to a Decimal that no float is.
    from fractions import Fraction

    return Fraction(*key.as_integer_ratio())


def _shortest(key: Any) -> Any:
    """The Decimal without zeros at its end, to the last digit: its context rounds."""
    sign, digits, exponent = key.as_tuple()
    while digits[-1] == 0:
        digits = digits[:-1]
        exponent += 1
    return type(key)((sign, digits, exponent))
