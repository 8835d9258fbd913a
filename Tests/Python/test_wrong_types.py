"""Every public call with wrong types and values: it works, or its error has a type and words.

Each parameter of each call gets each wrong value in turn, while the other parameters are right.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import sys
from collections.abc import Iterator
from typing import Any, Callable

import pytest

import hutch
import hutch.diskcache as diskcache

WRONG = [
    *(None, True, 0, -1, 2**70, 1.5, float("nan"), float("inf"), "", "x", "a\0b", "\ud800", b""),
    *(b"x", (), (1, [2]), [], {}, object(), len, int),
]
RIGHT: dict[str, Any] = {
    "keys": ["k"], "items": {"k": 1}, "value": b"v", "version": 1, "function": print, "load": print
}
EXPECTED = (
    *(TypeError, ValueError, KeyError, IndexError, OverflowError, OSError),
    *(hutch.Error, diskcache.Timeout),
)
END = {"close", "aclose", "destroy"}
"""Calls after which there is nothing to call."""


def calls(target: object) -> Iterator[Callable[..., Any]]:
    """The public methods of an object, each once: the awaitable forms check the same way."""
    for name in sorted(set(dir(target)) - END - {"disk", "memory"}):
        if name[0] == "_" or (name[0] == "a" and hasattr(target, name[1:])):
            continue
        method = getattr(target, name)
        if callable(method) and not isinstance(getattr(method, "__self__", None), type):
            yield method


def faults(call: Callable[..., Any]) -> list[str]:
    """What a call does with wrong arguments that it should not do."""
    found = []
    parameters = inspect.signature(call).parameters.values()
    named = [each for each in parameters if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
    for parameter, wrong in itertools.product(named, WRONG):
        arguments = {
            each.name: RIGHT.get(each.name, "k") for each in named if each.default is each.empty
        }
        arguments[parameter.name] = wrong
        leading = [
            arguments.pop(each.name) for each in named
            if each.kind is each.POSITIONAL_ONLY and each.name in arguments
        ]
        try:
            result = call(*leading, **arguments)
            if inspect.isgenerator(result):
                list(result)
            elif inspect.iscoroutine(result):
                result.close()
        except EXPECTED as error:
            if str(error) == "" and not isinstance(error, (KeyError, IndexError)):
                found.append(f"{parameter.name}={wrong!r}: {type(error).__name__} without words")
        except Exception as error:
            found.append(f"{parameter.name}={wrong!r}: {type(error).__name__}: {error}")
    return found


def faults_of(target: object) -> dict[str, list[str]]:
    return {call.__name__: found for call in calls(target) if (found := faults(call))}


@pytest.mark.filterwarnings("ignore")
def test_calls_of_a_cache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # Some calls make files by the names that they are given.
    with hutch.Cache() as cache, hutch.Cache("cache") as on_disk:
        on_disk["k"] = cache["k"] = 1
        for target in cache, cache.memory, on_disk, on_disk.disk:
            assert faults_of(target) == {}


@pytest.mark.filterwarnings("ignore")
def test_calls_of_diskcache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cache, fanout = diskcache.Cache("cache"), diskcache.FanoutCache("fanout", shards=2)
    deque, index = diskcache.Deque([1, 2], "deque"), diskcache.Index("index", k=1)
    for target in cache, fanout, deque, index:
        found = faults_of(target)
        if target is deque:
            found.pop("index")  # That of collections.abc, whose ValueError has no words.
        assert found == {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [hutch.Cache, hutch.TierLimits, diskcache.Cache])
def test_what_cannot_be_made(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)

    def make(**arguments: Any) -> None:
        made = kind(**arguments)
        if kind is not hutch.TierLimits:
            made.close()

    make.__signature__ = inspect.signature(kind)  # type: ignore[attr-defined]
    assert faults(make) == []


# ------------------------------------------------------------------------ names


def public_classes() -> dict[str, type]:
    modules = [hutch, diskcache]
    with contextlib.suppress(ImportError):  # A wheel of hutch has no libhutch_http.
        modules.append(importlib.import_module("hutch.http"))
    named = [(name, getattr(module, name)) for module in modules for name in module.__all__]
    return {name: each for name, each in named if inspect.isclass(each)}


def test_methods_are_named_by_public_classes():
    """No message, page of help or traceback names a class that a program does not know."""
    hutch.Cache().close()
    public = public_classes()
    for owner in public.values():
        for name in dir(owner):
            method = inspect.getattr_static(owner, name)
            method = getattr(method, "__func__", method)
            if name[0] == "_" or not inspect.isfunction(method):
                continue
            if method.__module__.partition(".")[0] == "hutch" and "<locals>" not in str(method):
                assert method.__qualname__.partition(".")[0] in public, (owner, name)


@pytest.mark.skipif(sys.version_info < (3, 10), reason="the message has the method's name alone")
def test_an_unknown_parameter_names_the_public_method(tmp_path):
    seen = 0
    with hutch.Cache() as cache, hutch.Cache(tmp_path / "a") as on_disk, diskcache.Cache(
        tmp_path / "b"
    ) as module:
        for target in cache, cache.memory, on_disk, module:
            for call in calls(target):
                parameters = inspect.signature(call).parameters.values()
                if any(each.kind is each.VAR_KEYWORD for each in parameters):
                    continue
                needed = [each for each in parameters if each.default is each.empty]
                right = [RIGHT.get(each.name, "k") for each in needed]
                with pytest.raises(TypeError) as raised:
                    call(*right, no_such_parameter=1)
                name = call.__name__
                seen += 1
                assert f"Cache.{name}()" in str(raised.value), (name, raised.value)
    assert seen > 100
