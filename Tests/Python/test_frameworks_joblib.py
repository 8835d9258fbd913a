"""hutch.frameworks.joblib: joblib.Memory over a cache."""

from __future__ import annotations

import warnings

import joblib
import numpy
import pytest
from hutch.frameworks.joblib import HutchStoreBackend, register
from processes import finished

calls: list = []


def scaled(array, factor=2, verbose=False):
    calls.append(factor)
    return array * factor


def failing(message):
    raise ValueError(message)


@pytest.fixture(autouse=True)
def nothing_called():
    register()
    calls.clear()


@pytest.fixture
def memory(tmp_path):
    made = joblib.Memory(tmp_path / "store", backend="hutch", verbose=0)
    yield made
    made.store_backend.cache.close()


def test_a_result_is_made_once(memory):
    function = memory.cache(scaled, ignore=["verbose"])
    array = numpy.arange(12.0).reshape(3, 4)
    for verbose in (False, True):
        result = function(array, verbose=verbose)
        assert result.dtype == array.dtype and (result == array * 2).all()
    assert (function(array, 3) == array * 3).all()
    assert calls == [2, 3]
    assert function.check_call_in_cache(array) and not function.check_call_in_cache(array, 4)


def test_names_of_any_length(memory):
    def named(name):
        def function(n):
            calls.append(n)
            return n

        function.__name__ = function.__qualname__ = name
        function.__module__ = "module"
        return memory.cache(function)

    first, second = named("f" * 70_000), named("f" * 70_000 + "g")
    for function in first, second:
        assert [function(n) for n in (1, 2, 1)] == [1, 2, 1]
    assert calls == [1, 2, 1, 2]
    assert len(memory.store_backend.get_items()) == 4
    first.clear(warn=False)
    assert not first.check_call_in_cache(1) and second.check_call_in_cache(1)
    memory.reduce_size(items_limit=1)
    assert len(memory.store_backend.get_items()) == 1


@pytest.mark.parametrize("compress", [False, True, 5])
def test_large_results(tmp_path, compress):
    options = {"disk": "1 GB", "memory": "1 MiB"}
    memory = joblib.Memory(
        tmp_path, backend="hutch", verbose=0, compress=compress, backend_options=options
    )
    array = numpy.random.default_rng(1).random(500_000)
    for _ in range(2):
        assert (memory.cache(scaled)(array, 1) == array).all()
    assert calls == [1]
    memory.store_backend.cache.close()


@pytest.mark.parametrize("value", [None, 7, "text", [numpy.arange(3), {"a": {1}}], {}])
def test_results_of_all_kinds(memory, value):
    function = memory.cache(lambda argument: value, verbose=0)
    for _ in range(2):
        assert str(function(1)) == str(value)


def test_an_exception_is_not_kept(memory):
    function = memory.cache(failing)
    for _ in range(2):
        with pytest.raises(ValueError, match="words"):
            function("words")


def test_call_and_shelve(memory):
    shelved = memory.cache(scaled).call_and_shelve(numpy.arange(3))
    assert list(shelved.get()) == [0, 2, 4]
    shelved.clear()
    with pytest.raises(KeyError):
        shelved.get()


def test_clearing(memory):
    first, second = memory.cache(scaled), memory.cache(failing)
    first(1), first(1, 3)
    assert calls == [2, 3]
    first.clear(warn=False)
    assert not first.check_call_in_cache(1)
    first(1)
    memory.clear(warn=False)
    assert len(memory.store_backend.cache) == 0
    assert not first.check_call_in_cache(1)
    assert not second.check_call_in_cache("x")


def test_a_changed_function_makes_its_results_anew(tmp_path):
    said = []
    for factor in (2, 2, 3):
        (tmp_path / "module.py").write_text(
            f"def made(n):\n    print('called', end=' ')\n    return n * {factor}\n"
        )
        code = (
            "import joblib, hutch.frameworks.joblib as backend, module\n"
            "backend.register()\n"
            "memory = joblib.Memory('store', backend='hutch', verbose=0)\n"
            "print(memory.cache(module.made)(5))"
        )
        done = finished("-B", "-c", code, directory=tmp_path)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.strip())
    assert said == ["called 10", "10", "called 15"]


def test_reduce_size(memory):
    function = memory.cache(scaled)
    for factor in range(5):
        function(numpy.zeros(1000), factor)
    items = memory.store_backend.get_items()
    assert len(items) == 5 and all(item.size > 8000 for item in items)
    memory.reduce_size(items_limit=2)
    assert len(memory.store_backend.get_items()) == 2
    memory.reduce_size(bytes_limit="9K")
    assert len(memory.store_backend.get_items()) == 1


def test_workers_share_the_store(memory):
    function = memory.cache(scaled)
    numbers = joblib.Parallel(n_jobs=2)(joblib.delayed(function)(n) for n in range(4))
    assert numbers == [0, 2, 4, 6]
    assert [function(n) for n in range(4)] == numbers and calls == []


def test_limits_and_refusals(tmp_path):
    memory = joblib.Memory(
        tmp_path, backend="hutch", verbose=0, backend_options={"disk": "2 MB", "memory": "1 MiB"}
    )
    function = memory.cache(scaled)
    for factor in range(20):
        function(numpy.zeros(30_000), factor)
    assert memory.store_backend.cache.disk.cost() <= 2_000_000
    assert 0 < len(memory.store_backend.get_items()) < 20
    with pytest.warns(Warning, match="Unable to cache.*larger than any tier"):
        assert len(function(numpy.zeros(1_000_000))) == 1_000_000
    memory.store_backend.cache.close()


def test_a_result_is_seen_when_it_is_complete(memory):
    store = memory.store_backend
    path = f"{store.location}/f/x/output.pkl"
    with pytest.raises(RuntimeError), store._open_item(path, "wb") as file:
        file.write(b"half")
        raise RuntimeError
    assert not store.contains_item(("f", "x"))
    with pytest.raises(KeyError):
        store.load_item(("f", "x"))


def test_items_move(memory):
    store = memory.store_backend
    with store._open_item(f"{store.location}/a/output.pkl", "wb") as file:
        file.write(b"bytes")
    store._move_item(f"{store.location}/a/output.pkl", f"{store.location}/b/output.pkl")
    assert not store._item_exists(f"{store.location}/a/output.pkl")
    with store._open_item(f"{store.location}/b/output.pkl", "rb") as file:
        assert file.read() == b"bytes"


def test_maps_are_not_made(tmp_path):
    with pytest.warns(UserWarning, match="mmap_mode"):
        memory = joblib.Memory(tmp_path, backend="hutch", verbose=0, mmap_mode="r")
    assert isinstance(memory.store_backend, HutchStoreBackend)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (memory.cache(scaled)(numpy.arange(3)) == [0, 2, 4]).all()
    memory.store_backend.cache.close()
