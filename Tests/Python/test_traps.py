"""A mistake of other caches that a binding would make: pickle. The others: Tests/ABI/traps.c."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import hutch
import pytest
from native import byref, lib, open_raw, structs
from processes import finished


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


# Marks that a codec by pickle might know its values by, those of the package among them.
MARKS = [b"", b"py:pickle", b"pickle", b"py:json", b"py:str", b"py:int", b"py:object", b"\x80"]
MARKS += [b"py:cbor", b"py:x:pickle", b"py:x:pickle+hmac"]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_trap_30_a_directory_is_no_way_to_run_code(directory, tmp_path, protocol):
    target = tmp_path / "exploded"
    bomb = pickle.dumps(Bomb(target), protocol)
    # As another program would write it: any bytes under any mark.
    status, cache = open_raw(os.fsencode(directory))
    assert status == hutch.Status.OK
    for number, mark in enumerate(MARKS):
        options = structs.PutOptions(extended=mark, extended_size=len(mark))
        key = b"%d" % number
        assert (
            lib.hutch_put(cache, key, len(key), bomb, len(bomb), byref(options), None)
            == hutch.Status.OK
        )
    assert lib.hutch_close(cache) == hutch.Status.OK
    with hutch.Cache(directory) as opened:
        for number, mark in enumerate(MARKS):
            try:
                value = opened[str(number)]
            except KeyError:
                # No value of this package's.
                assert mark not in (b"", b"pickle", b"\x80", b"py:int")
                continue
            assert type(value) in (bytes, int, str)
        for key in opened:
            assert type(key) is str
        opened.get_many([str(number) for number, mark in enumerate(MARKS) if mark == b""])
    assert not target.exists()
    pickle.loads(bomb)
    assert target.exists(), "the bomb works"


def test_trap_30_what_would_need_pickle_is_refused(cache):
    for value in (object(), {len, 2}, [type], range(3), Bomb(Path("nowhere"))):
        with pytest.raises(TypeError):
            cache["key"] = value
    assert "key" not in cache


def test_trap_30_nothing_imports_pickle():
    code = (
        "import sys, hutch; cache = hutch.Cache(); cache['a'] = [1]; cache['a']; "
        "sys.exit('pickle' in sys.modules)"
    )
    assert finished("-c", code).returncode == 0
