"""Where Python's stack is at its limit, a call raises RecursionError, whatever it needs the stack for.

Up to CPython 3.11 ctypes can meet the limit when it converts an argument, and raises ArgumentError.
"""

from __future__ import annotations

import inspect
import sys

import hutch
import pytest
from conftest import NO_LIMITS

CALLS = {
    "get": lambda cache: cache.get("tuple"),
    "of bytes": lambda cache: cache["bytes"],
    "set": lambda cache: cache.set("int", 1, 10, idle=5, cost=3, tag="x"),
    "set_many": lambda cache: cache.set_many({"int": 1, "str": "x"}),
    "get_many": lambda cache: cache.get_many(["int", "str"]),
    "delete_many": lambda cache: cache.delete_many(["missing"]),
    "in": lambda cache: "int" in cache,
    "len": lambda cache: len(cache),
    "add": lambda cache: cache.add("int", 1),
    "pop": lambda cache: (cache.set("popped", "x"), cache.pop("popped")),
    "delete": lambda cache: cache.delete("missing"),
    "entry": lambda cache: cache.entry("tuple"),
    "info": lambda cache: cache.info("int"),
    "infos": lambda cache: cache.infos(["int"]),
    "touch": lambda cache: cache.touch("int"),
    "incr": lambda cache: cache.incr("counter"),
    "setdefault": lambda cache: cache.setdefault("int", 1),
    "pin": lambda cache: cache.pin("bytes"),
    "put_object": lambda cache: cache.put_object("object", 1),
    "get_object": lambda cache: cache.get_object("object"),
    "keys": list,
    "items": lambda cache: list(cache.items()),
    "peekitem": lambda cache: cache.peekitem(),
    "load": lambda cache: cache.load("int", str),
    "load anew": lambda cache: (cache.delete("loaded"), cache.load("loaded", str)),
    "stats": lambda cache: cache.stats(),
    "limits": lambda cache: cache.limits(),
    "options": lambda cache: cache.options(),
    "set_limits": lambda cache: cache.set_limits(memory=NO_LIMITS),
    "memory": lambda cache: cache.memory,
    "expire": lambda cache: cache.expire(),
    "remove_prefix": lambda cache: cache.remove_prefix("no"),
    "remove_tagged": lambda cache: cache.remove_tagged("no"),
    "maintain": lambda cache: cache.maintain(),
}


def at(depth, call, cache):
    return call(cache) if depth == 0 else at(depth - 1, call, cache)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_at_the_limit_of_the_stack_is_a_recursion_error(name):
    call = CALLS[name]
    cache = hutch.Cache(memory=NO_LIMITS)
    cache.update({"int": 1, "str": "x", "bytes": b"xyz", "tuple": [1, (2,)]})
    cache.put_object("object", 1)
    call(cache)
    # From where there is room for no frame of the call to where there is enough.
    outcomes = []
    most = sys.getrecursionlimit() - len(inspect.stack())
    while outcomes[-5:] != [None] * 5:
        assert len(outcomes) < 200
        try:
            at(most - len(outcomes), call, cache)
        except Exception as error:
            outcomes.append(type(error))
        else:
            outcomes.append(None)
    assert set(outcomes) == {None, RecursionError}
