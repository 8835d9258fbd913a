"""How the library is found, and what a user is told when it is not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import hutch
import pytest
from hutch import _accelerator, _cache, _library
from hutch._control import Control
from processes import PACKAGE, finished, run

SHOW = "import hutch._library as l; print(l.lib._name)"


def complaint(**changed: str) -> str:
    done = finished("-c", "import hutch; hutch.Cache", **changed)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1, done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_the_environment_names_it_and_no_other_is_tried():
    words = complaint(HUTCH_LIBRARY="/nowhere/libhutch.so")
    assert words.startswith("ImportError: libhutch.so was not found.")
    assert "HUTCH_LIBRARY" in words and "/nowhere/libhutch.so" in words


def test_a_library_that_is_another():
    words = complaint(HUTCH_LIBRARY="libm.so.6")
    assert words.startswith("ImportError: libm.so.6 is not the Hutch this package needs")


def test_beside_the_package_comes_first(tmp_path: Path):
    """As a wheel carries it: modules and library in one folder, no checkout around them."""
    site = tmp_path / "site"
    shutil.copytree(PACKAGE / "hutch", site / "hutch", ignore=shutil.ignore_patterns("*.so*"))
    shutil.copy(_library.lib._name, site / "hutch" / "libhutch.so")
    if (PACKAGE / "hutch.libs").exists():  # A wheel's library has its SQLite there.
        shutil.copytree(PACKAGE / "hutch.libs", site / "hutch.libs")
    done = finished("-c", SHOW, PYTHONPATH=str(site), HUTCH_LIBRARY="")
    assert done.stdout == f"{site / 'hutch' / 'libhutch.so'}\n", done.stderr


def test_importing_starts_nothing(tmp_path: Path):
    output = run(
        """
        import os, sys
        os.chdir(sys.argv[1])
        import hutch
        print(len(os.listdir("/proc/self/task")))
        """,
        tmp_path,
    )
    assert output == "1\n" and os.listdir(tmp_path) == []


def test_everything_public_is_there_and_documented():
    for name in hutch.__all__:
        thing = getattr(hutch, name)
        assert name == "Key" or not isinstance(thing, type) or thing.__doc__, name
    for kind in (hutch.Cache, hutch.TierView):
        for name in dir(kind):
            method = getattr(kind, name)
            if not name.startswith("_"):
                assert method.__doc__, f"{kind.__name__}.{name} has no docstring"


def test_an_import_imports_little():
    output = run(
        """
        import sys
        before = set(sys.modules)
        import hutch
        print(sorted(set(sys.modules) - before))
        assert "Cache" in dir(hutch) and not hasattr(hutch, "nothing")
        assert not {"atexit", "TYPE_CHECKING"} & {*dir(hutch)}
        with hutch.Cache() as cache:
            cache["a"] = [1]
            assert cache["a"] == [1]
        heavy = {"asyncio", "inspect", "dataclasses", "hashlib", "pathlib", "logging"}
        print(sorted(heavy & (set(sys.modules) - before)))
        """
    )
    assert output == "['atexit', 'hutch']\n[]\n"


@pytest.mark.skipif(_accelerator.module is None, reason="ctypes opens it")
def test_a_cache_is_opened_and_used_without_ctypes(tmp_path: Path):
    program = """
        import sys
        before = set(sys.modules)
        import hutch
        limits = hutch.TierLimits(count=1000)
        options = {"memory": "2 MiB", "policy": "lru", "checksums": False, "close_deadline": 9}
        log = {"storage": "log", "memory": limits, "disk": 10 << 20, "time_to_live": 60}
        for directory, chosen in (
            (None, {}), (None, options), (sys.argv[1], {}), (sys.argv[1] + ".log", log)
        ):
            with hutch.Cache(directory, **chosen) as cache:
                cache["a"] = "b"
                assert cache["a"] == "b" and "x" not in cache
                cache.put_object("a", sys)
                assert cache.get_object("a") is sys
        heavy = {"ctypes", "typing", "re", "threading", "json", "weakref", "functools", "datetime"}
        print(sorted(heavy & (set(sys.modules) - before)))
        cache = hutch.Cache(sys.argv[1])
        USE
        """
    for use in ("len(cache)", "hutch.Cache.add", "cache.get(1.5)", "cache.set(2, 3, tag=4)"):
        assert run(program.replace("USE", use), tmp_path / "cache") == "[]\n"


@pytest.mark.skipif(_accelerator.module is None, reason="ctypes opens it")
@pytest.mark.parametrize("options", ["", "sys.argv[1]", "sys.argv[1], storage='mixed'"])
def test_an_opening_imports_few_modules(options: str, tmp_path: Path):
    """A module takes as long as the opening of a cache in memory. What the handlers of forks refer
    to is there to the interpreter's end, which takes longer with each module."""
    output = run(
        f"""
        import sys
        import hutch
        cache = hutch.Cache({options})
        cache["a"] = 1
        assert cache["a"] == 1
        print(*sorted(name for name in sys.modules if name.startswith(("hutch.", "__future__"))))
        kept = [name for name, kept in vars(hutch._process).items() if type(kept) is type(sys)]
        print(*(name for name in kept if not name.startswith("_")))
        """,
        tmp_path / "cache",
    )
    modules = ["_accelerator", "_cache", "_fast", "_process", *["_settings"] * ("mixed" in options)]
    assert output == " ".join(f"hutch.{name}" for name in modules) + "\n\n"


@pytest.mark.skipif(_accelerator.module is None, reason="ctypes opens it")
def test_clocks_codecs_serializers_and_values_need_no_ctypes(tmp_path: Path):
    output = run(
        """
        import json, sys, time, zlib
        import hutch

        class Json:
            name = "json"
            def dumps(self, value):
                return json.dumps(value).encode()
            def loads(self, data):
                return json.loads(data)

        codec = hutch.Codec(1, zlib.compress, zlib.decompress)
        for number, options in enumerate(
            ({"clock": time.time_ns}, {"codec": codec}, {"serializer": Json()}, {})
        ):
            for directory in (None, sys.argv[1] + str(number)):
                for _ in range(2):
                    with hutch.Cache(directory, **options) as cache:
                        cache["a"] = {"b": [1, "c"]}
                        cache["t"] = (1, 2)
                        assert cache["a"] == {"b": [1, "c"]}
                        assert list(cache["t"]) == [1, 2] and cache.get("none") is None
            assert "ctypes" not in sys.modules, options
        """,
        tmp_path / "cache",
    )
    assert output == ""


@pytest.mark.skipif(_accelerator.module is None, reason="the bases are there at once")
def test_every_call_of_the_bases_is_known_before_they_are_there():
    kinds = Control.__mro__
    calls = {name for kind in kinds if kind is not object for name in vars(kind)}
    of_every_class = {"__dict__", "__weakref__", "__module__", "__doc__", "__annotations__"}
    # What Cache has, and what is the same in every class.
    own = {"_now", "__eq__", "__hash__", "__static_attributes__", "__firstlineno__", "__slots__"}
    assert calls - of_every_class - own - set(vars(_accelerator.module.Fast)) == set(_cache._LATER)


@pytest.mark.skipif(_accelerator.module is None, reason="the bases are there at once")
@pytest.mark.parametrize(
    "look",
    [
        "told = pydoc.plain(pydoc.render_doc(hutch.Cache))",
        "told = ''.join(f'{n}{inspect.signature(f)}' for n, f in inspect.getmembers(hutch.Cache,"
        " inspect.isfunction))",
        "mock.create_autospec(hutch.Cache); told = pydoc.plain(pydoc.render_doc(hutch.Cache))",
    ],
)
def test_a_look_at_the_class_is_its_first_use(look: str):
    run(
        f"""
        import inspect, pydoc, hutch
        from unittest import mock
        {look}
        assert all(f"{{name}}(self" in told for name in ("keys", "limits", "aget", "close")), told
        """
    )


@pytest.mark.skipif(_accelerator.module is None, reason="the bases are there at once")
def test_an_interrupt_while_the_bases_come():
    """Ctrl-C at any line of the step that completes the class: the next call does the rest."""
    code = """
        import os, sys, hutch
        from hutch import _cache, _control

        def interrupt(frame, event, argument):
            if frame.f_code is not _cache.complete.__code__:
                return None
            passed.append(frame.f_lineno)
            if len(passed) == last:
                sys.settrace(None)
                raise KeyboardInterrupt
            return interrupt

        for last in range(1, 20):
            child = os.fork()
            if child == 0:
                passed = []
                cache = hutch.Cache()
                cache["a"] = 1
                sys.settrace(interrupt)
                try:
                    list(cache.items())
                except KeyboardInterrupt:
                    pass
                sys.settrace(None)
                assert list(cache.items()) == [("a", 1)] and cache.count() == 1
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0, last
    """
    run(code)


def test_a_cache_that_was_not_opened_says_so():
    standing = hutch.Cache.__new__(hutch.Cache)
    for call in len, hutch.Cache.limits, hutch.Cache.suspend, lambda cache: cache["a"]:
        with pytest.raises(ValueError, match="not been opened"):
            call(standing)


def test_every_name_is_there():
    for name in hutch.__all__:
        assert getattr(hutch, name) is not None, name
    everything = {}
    exec("from hutch import *", everything)
    assert set(hutch.__all__) <= set(everything)
    with pytest.raises(AttributeError, match="'hutch' has no attribute 'nothing'"):
        hutch.nothing
