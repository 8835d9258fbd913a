"""hutch.diskcache under the name of diskcache, for packages that import that, and its pickles."""

from __future__ import annotations

import importlib.util
import pickle
from collections import Counter

import pytest
from processes import finished

from hutch.diskcache import Cache, FanoutCache, PickleRefusedError, pickled
from hutch.diskcache.pickled import MODE_PICKLE

IMPORTS = """
import importlib.util
import hutch.diskcache
hutch.diskcache.install({})
hutch.diskcache.install({})
import diskcache, diskcache.core, diskcache.fanout as fanout
from diskcache import Cache, core
from diskcache.core import ENOVAL, UNKNOWN, Disk, args_to_key
from diskcache.core import io, json, os, pickle, tempfile, threading, time, warnings, zlib
from diskcache.persistent import Deque, Index
from diskcache.recipes import Lock
assert diskcache.Cache is Cache is core.Cache is diskcache.core.Cache
assert diskcache.Disk is Disk and diskcache.Index is Index and diskcache.Deque is Deque
assert fanout.FanoutCache is diskcache.FanoutCache and diskcache.recipes.Lock is diskcache.Lock
assert diskcache.__version__ == "5.6.3" and diskcache.ENOVAL is ENOVAL
for name in diskcache.__all__:
    getattr(diskcache, name)
for name in "core", "fanout", "persistent", "recipes", "djangocache":
    assert importlib.util.find_spec("diskcache." + name)
try:
    import django.core.cache
except ImportError:
    assert not hasattr(diskcache, "DjangoCache")
else:
    import diskcache.djangocache
    assert diskcache.djangocache.DjangoCache is diskcache.DjangoCache
assert Disk is hutch.diskcache.{}
try:
    hutch.diskcache.install({})
except RuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "words", [("", "Disk", "pickles=True"), ("pickles=True", "PickleDisk", "pickles=False")]
)
def test_what_packages_import(words):
    own, disk, other = words
    done = finished("-c", IMPORTS.format(own, own, disk, other))
    assert done.stdout.startswith("diskcache has been imported before this call"), done.stderr


def test_after_an_import_of_another_diskcache():
    code = """if True:
        import sys, types
        sys.modules["diskcache"] = other = types.ModuleType("diskcache")
        import hutch.diskcache
        try:
            hutch.diskcache.install()
        except RuntimeError:
            print(sys.modules["diskcache"] is other)
    """
    assert finished("-c", code).stdout == "True\n"


def test_pickled_caches_take_any_object(tmp_path):
    thing = Counter("abc")
    for kind in (pickled.Cache, pickled.FanoutCache, pickled.Index):
        cache = kind(str(tmp_path / kind.__name__))
        cache["key"] = thing
        again = pickle.loads(pickle.dumps(cache))
        assert type(again) is kind and again["key"] == cache["key"] == thing
    queue = pickled.Deque([thing], tmp_path / "deque")
    assert pickle.loads(pickle.dumps(queue))[0] == queue.popleft() == thing
    fanout = pickled.FanoutCache(tmp_path / "FanoutCache")
    fanout.cache("a")["key"] = fanout.index("b")["key"] = thing
    fanout.deque("c").append(thing)
    assert type(fanout.cache("a")) is pickled.Cache and fanout.cache("a")["key"] == thing
    assert type(fanout.index("b")) is pickled.Index and fanout.index("b")["key"] == thing
    assert type(fanout.deque("c")) is pickled.Deque and fanout.deque("c")[0] == thing


def test_others_refuse_their_pickles(tmp_path):
    with pickled.Cache(tmp_path / "a") as cache, pickled.FanoutCache(tmp_path / "b") as fanout:
        cache["key"] = fanout["key"] = Counter("abc")
        cache["natural"] = fanout["natural"] = "text"
    for safe in (Cache(tmp_path / "a"), FanoutCache(tmp_path / "b")):
        assert safe["natural"] == "text"
        with pytest.raises(PickleRefusedError):
            safe["key"]
    with pickled.Cache(tmp_path / "a", disk=pickled.NaturalDisk) as cache:
        with pytest.raises(TypeError, match="PickleDisk"):
            cache["other"] = Counter("abc")


class Guarded(pickled.Disk):
    """Stores pickles, and reads those of some classes only."""

    def fetch(self, mode, filename, value, read):
        if mode == MODE_PICKLE and b"Counter" not in value:
            raise LookupError("not on the list")
        return super().fetch(mode, filename, value, read)


def test_a_disk_that_guards_what_it_reads(tmp_path):
    with pickled.FanoutCache(tmp_path, disk=Guarded) as cache:
        cache["counter"] = Counter("abc")
        cache["function"] = len
        cache["text"] = "text"
        assert cache["counter"] == Counter("abc") and cache["text"] == "text"
        with pytest.raises(LookupError, match="not on the list"):
            cache["function"]


STAR = """
import sys
import hutch.diskcache

hutch.diskcache.install({})
broken = sys.argv[1]
if broken:
    sys.path.insert(0, broken)
from diskcache import *

assert Cache and Index and throttle
print("DjangoCache" in globals(), "DjangoCache" in sys.modules["diskcache"].__all__)
"""


@pytest.mark.parametrize("own", ["", "pickles=True"])
@pytest.mark.parametrize("django", ["as it is", "broken"])
def test_a_star_import_has_the_backend_of_django(own, django, tmp_path):
    has_django = django == "as it is" and importlib.util.find_spec("django") is not None
    if django == "broken":
        (tmp_path / "django").mkdir()
        (tmp_path / "django/__init__.py").write_text("raise RuntimeError('no settings')")
    done = finished("-c", STAR.format(own), tmp_path if django == "broken" else "")
    assert done.stdout == f"{has_django} {has_django}\n", done.stderr
