"""Subinterpreters: plain calls work, what the library would call or keep is refused, and no object
of one interpreter reaches another one."""

from __future__ import annotations

import pytest
from processes import run

# What a subinterpreter runs, and its end, in a process of its own: a failure may be a crash.
WITHIN = """
import sys

try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters

def within(code, own_lock=False):
    if sys.version_info >= (3, 13):
        number = interpreters.create("isolated" if own_lock else "legacy")
    else:
        number = interpreters.create(isolated=own_lock)
    failed = interpreters.run_string(number, code)
    interpreters.destroy(number)
    if failed is not None:
        print(failed.formatted)
"""

try:
    import _xxsubinterpreters  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
except ImportError:
    pytest.importorskip("_interpreters")


def test_plain_calls_work(tmp_path):
    assert run(WITHIN + """
within(f'''
import sys, hutch
cache = hutch.Cache({sys.argv[1]!r})
cache["a"] = dict(b=[1])
cache.set("expires", (1, 2), expire=60)
@cache.memoize()
def double(n):
    return n * 2
print(cache["a"], cache["expires"], cache.incr("n"), double(2), double(2), len(cache))
print(cache.load("made", str.upper), cache.trim("to_count", 0) > 0)
sys.kept = cache
''')
""", tmp_path).splitlines() == ["{'b': [1]} (1, 2) 1 4 4 4", "MADE True"]


REFUSED = """
import asyncio, hutch

cache = hutch.Cache()
cache["a"] = 1
refused = {
    "put_object": lambda: cache.put_object("a", object()),
    "put_object with options": lambda: cache.put_object("a", object(), expire=60),
    "objects": lambda: hutch.Cache(objects=True),
    "clock": lambda: hutch.Cache(clock=lambda: 1),
    "codec": lambda: hutch.Cache(codec=hutch.Codec(1, bytes, bytes)),
    "listen": lambda: cache.listen(print),
    "each": lambda: cache.each(print),
    "trim": lambda: cache.trim("to_count", 0, progress=print),
    "aget": lambda: asyncio.run(cache.aget("a")),
    "aload": lambda: asyncio.run(cache.aload("a", str)),
    "submit": lambda: hutch.Queue().submit(print),
    "log": lambda: hutch.log(20),
}
for name, call in refused.items():
    try:
        call()
        print(name, "is not refused")
    except hutch.UnsupportedError as error:
        assert "subinterpreter" in str(error)
assert cache.get_object("a") is None
"""


def test_functions_and_objects_are_refused():
    assert run(WITHIN + f"within({REFUSED!r})\n") == ""


def test_an_object_stays_in_its_interpreter(tmp_path):
    """A cache of a directory is one for all interpreters: also their objects' numbers meet."""
    assert run(WITHIN + """
import hutch
cache = hutch.Cache(sys.argv[1] + "/cache")
kept = [object(), object()]
for number, each in enumerate(kept):
    cache.put_object(number, each)
cache.put_object("dropped", object(), tag="old")
within(f'''
import hutch
cache = hutch.Cache({sys.argv[1]!r} + "/cache")
print(cache.get_object(0), cache.get_object(1, "none"))
try:
    cache.put_object(2, object())
except hutch.UnsupportedError:
    print("refused")
cache.delete_object("dropped")
''')
print([cache.get_object(number) is each for number, each in enumerate(kept)], cache.get_object(2))
cache.clear()
cache.close()
""", tmp_path).splitlines() == ["None none", "refused", "[True, True] None"]


def test_the_logger_of_the_process_stays(tmp_path):
    """It would call a function of an interpreter that has ended."""
    assert run(WITHIN + """
import logging, hutch
logging.basicConfig(stream=sys.stdout, format="%(levelname)s")
cache = hutch.Cache(sys.argv[1] + "/cache", disk=hutch.TierLimits(max_entry=10))
within("import hutch; hutch.Cache()['a'] = 1")
cache["a"] = bytes(100)
""", tmp_path) == "WARNING\n"


def test_an_interpreter_with_a_lock_of_its_own_is_refused():
    assert "ImportError" in run(WITHIN + """
if sys.version_info < (3, 12):
    print("ImportError: there is no such interpreter")
else:
    try:
        within("import hutch; hutch.Cache()", own_lock=True)
    except interpreters.RunFailedError as error:
        print(error)
""")
