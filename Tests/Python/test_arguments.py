"""Bad arguments, as only C can make them: an answer, and nothing else happens."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int32, c_size_t, c_uint64, c_void_p

import pytest
from native import (
    FUNCTIONS,
    SIZE_MAX,
    Status,
    byref,
    get,
    last_error,
    lib,
    open_raw,
    options,
    put,
    structs,
    tier,
)
from processes import run

INVALID = Status.INVALID_ARGUMENT
WITH_STATUS = {name: argtypes for name, argtypes, restype in FUNCTIONS if restype is c_int32}


@pytest.fixture(params=["memory only", "mixed"])
def cache(request, directory):
    status, opened = open_raw(None if request.param == "memory only" else bytes(directory))
    assert status == Status.OK
    assert put(opened, b"k", b"value") == Status.OK
    yield opened
    assert get(opened, b"k") == (Status.OK, b"value"), "something else happened"
    count = c_uint64()
    assert lib.hutch_count(opened, byref(count)) == Status.OK and count.value == 1
    assert lib.hutch_close(opened) == Status.OK


def nothing(kind):
    """A NULL or a 0 of this type."""
    if kind in (c_void_p, c_char_p) or issubclass(kind, ctypes._Pointer):
        return None
    return kind()


@pytest.mark.parametrize(
    "name", sorted(set(WITH_STATUS) - {"hutch_close", "hutch_set_default_logger"})
)
def test_null_everywhere(name):
    arguments = [nothing(kind) for kind in WITH_STATUS[name]]
    assert getattr(lib, name)(*arguments) == INVALID


@pytest.mark.parametrize(
    "name", [name for name, types in WITH_STATUS.items() if types[0] is structs.CachePointer]
)
def test_null_but_for_the_cache(name):
    """What takes a cache needs more than that, or works; with all else NULL nothing crashes."""
    status, cache = open_raw()
    assert status == Status.OK
    arguments = [cache] + [nothing(kind) for kind in WITH_STATUS[name][1:]]
    alone = {"hutch_close", "hutch_clear", "hutch_flush", "hutch_hold_files"}
    alone |= {"hutch_clear_async", "hutch_flush_async", "hutch_wait_all"}
    alone |= {"hutch_suspend", "hutch_maintain"}
    alone |= {"hutch_set_listener", "hutch_set_logger", "hutch_drain_releases"}
    unsupported = {"hutch_check", "hutch_notify"}  # of a cache in memory; of nothing
    expected = Status.OK if name in alone else INVALID
    expected = Status.UNSUPPORTED if name in unsupported else expected
    assert getattr(lib, name)(*arguments) == expected
    if name != "hutch_close":
        assert last_error().status == expected or name in alone
        assert lib.hutch_close(cache) == Status.OK


def test_null_where_null_is_accepted():
    assert lib.hutch_close(None) == Status.OK
    lib.hutch_cache_release(None)
    lib.hutch_value_release(None)
    lib.hutch_cursor_release(None)
    assert not lib.hutch_cache_retain(None)
    assert not lib.hutch_value_retain(None)
    assert lib.hutch_value_data(None) is lib.hutch_value_key(None) is None
    assert lib.hutch_value_extended(None) is None
    assert lib.hutch_value_size(None) == lib.hutch_value_key_size(None) == 0
    assert lib.hutch_value_extended_size(None) == 0
    assert lib.hutch_directory(None) is None


# ----------------------------------------------------------------------- keys


def key_calls(cache, key, size):
    """Each call that takes a key, with everything else right."""
    value, info, copied = structs.ValuePointer(), structs.EntryInfo(), c_size_t()
    yield "put", lib.hutch_put(cache, key, size, b"v", 1, None, None)
    yield "get", lib.hutch_get(cache, key, size, byref(value))
    yield "get_into", lib.hutch_get_into(cache, key, size, None, 0, byref(copied))
    yield "look", lib.hutch_look(cache, key, size, 0, None, 0, byref(structs.Found()))
    yield "contains", lib.hutch_contains(cache, key, size)
    yield "info", lib.hutch_info(cache, key, size, byref(info))
    yield "touch", lib.hutch_touch(cache, key, size, 1, 1)
    yield "remove", lib.hutch_remove(cache, key, size)
    yield "add", lib.hutch_add(cache, key, size, b"v", 1, None, None)
    yield "replace", lib.hutch_replace(cache, key, size, b"v", 1, None, None)
    yield "swap", lib.hutch_compare_and_swap(cache, key, size, 1, b"v", 1, None, None)
    yield "increment", lib.hutch_increment(cache, key, size, 1, 1, None, None)
    yield "pop", lib.hutch_pop(cache, key, size, byref(value))
    assert not value


@pytest.mark.parametrize(
    "key, size",
    [(None, 0), (None, 5), (b"k", 0), (b"k" * 65536, 65536), (b"k", SIZE_MAX), (b"k", 2**63)]
    + [(b"k", 2**63 - 1), (None, SIZE_MAX)],
)
def test_keys(cache, key, size):
    for name, status in key_calls(cache, key, size):
        assert status == INVALID, name
        assert last_error().status == INVALID and last_error().words


def test_the_longest_key(cache):
    key = b"k" * 65535
    assert put(cache, key, b"v") == Status.OK
    assert get(cache, key) == (Status.OK, b"v")
    assert lib.hutch_remove(cache, key, len(key)) == Status.OK


# --------------------------------------------------------------------- values


def put_calls(cache, value, size, chosen=None):
    yield "put", lib.hutch_put(cache, b"k", 1, value, size, chosen, None)
    yield "add", lib.hutch_add(cache, b"new", 3, value, size, chosen, None)
    yield "replace", lib.hutch_replace(cache, b"k", 1, value, size, chosen, None)
    yield "swap", lib.hutch_compare_and_swap(cache, b"k", 1, 1, value, size, chosen, None)


@pytest.mark.parametrize("value, size", [(None, 1), (b"v", SIZE_MAX), (b"v", 2**63)])
def test_values(cache, value, size):
    for name, status in put_calls(cache, value, size):
        assert status == INVALID, name


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("size", [2**63 - 1, 2**62, 2**48])
def test_a_value_larger_than_any_address_space(directory, on_disk, size):
    """No object has this size: an answer, before a byte of it is read."""
    run(
        """
        import sys
        from native import Status, lib, open_raw
        path, size = sys.argv[1].encode() or None, int(sys.argv[2])
        status, cache = open_raw(path)
        assert status == Status.OK
        for call in (lib.hutch_put, lib.hutch_add):
            status = call(cache, b"k", 1, b"v", size, None, None)
            assert status in (Status.INVALID_ARGUMENT, Status.NO_MEMORY, Status.TOO_LARGE), status
        assert lib.hutch_close(cache) == Status.OK
        """,
        directory if on_disk else "",
        str(size),
    )


def test_a_value_of_no_bytes(cache):
    for value in (None, b""):
        assert lib.hutch_put(cache, b"empty", 5, value, 0, None, None) == Status.OK
        assert get(cache, b"empty") == (Status.OK, b"")
    found = structs.ValuePointer()
    assert lib.hutch_pop(cache, b"empty", 5, byref(found)) == Status.OK
    assert lib.hutch_value_data(found) and lib.hutch_value_size(found) == 0
    lib.hutch_value_release(found)


@pytest.mark.parametrize("field", ["time_to_live", "time_to_idle"])
@pytest.mark.parametrize("duration", [-1, -(2**63)])
def test_negative_durations_of_a_put(cache, field, duration):
    chosen = structs.PutOptions(**{field: duration})
    for name, status in put_calls(cache, b"v", 1, byref(chosen)):
        assert status == INVALID, name
    assert lib.hutch_increment(cache, b"n", 1, 1, 1, byref(chosen), None) == INVALID
    durations = (duration, 0) if field == "time_to_live" else (0, duration)
    assert lib.hutch_touch(cache, b"k", 1, *durations) == INVALID


@pytest.mark.parametrize("data, size", [(None, 1), (b"x" * 65536, 65536), (b"x", SIZE_MAX)])
def test_extended_data(cache, data, size):
    chosen = structs.PutOptions(extended=data, extended_size=size)
    for name, status in put_calls(cache, b"v", 1, byref(chosen)):
        assert status == INVALID, name


def test_the_most_extended_data(cache):
    chosen = structs.PutOptions(extended=bytes(65535), extended_size=65535)
    assert put(cache, b"extended", b"v", byref(chosen)) == Status.OK
    value = structs.ValuePointer()
    assert lib.hutch_pop(cache, b"extended", 8, byref(value)) == Status.OK
    assert lib.hutch_value_extended_size(value) == 65535
    assert ctypes.string_at(lib.hutch_value_extended(value), 65535) == bytes(65535)
    lib.hutch_value_release(value)


def test_get_into(cache):
    buffer, size = ctypes.create_string_buffer(b"untouched!", 10), c_size_t(77)
    assert lib.hutch_get_into(cache, b"k", 1, buffer, 4, byref(size)) == Status.BUFFER_TOO_SMALL
    assert size.value == 5 and buffer.raw == b"untouched!"
    assert lib.hutch_get_into(cache, b"k", 1, None, 0, byref(size)) == Status.BUFFER_TOO_SMALL
    assert lib.hutch_get_into(cache, b"k", 1, buffer, 5, byref(size)) == Status.OK
    assert size.value == 5 and buffer.raw == b"valueched!"
    assert lib.hutch_get_into(cache, b"none", 4, buffer, 10, byref(size)) == Status.NOT_FOUND
    assert lib.hutch_get_into(cache, b"k", 1, None, 5, byref(size)) == INVALID
    assert lib.hutch_get_into(cache, b"k", 1, buffer, SIZE_MAX, byref(size)) == INVALID
    assert lib.hutch_get_into(cache, b"k", 1, buffer, 10, None) == INVALID


def test_look(cache):
    buffer, found = ctypes.create_string_buffer(b"untouched!", 10), structs.Found()
    assert lib.hutch_look(cache, b"k", 1, 0, buffer, 5, byref(found)) == Status.OK
    assert not found.value and found.size == 5 and found.extended_size == 0
    assert buffer.raw == b"valueched!"
    assert lib.hutch_look(cache, b"none", 4, 0, buffer, 10, byref(found)) == Status.NOT_FOUND
    assert found.size == 0
    assert lib.hutch_look(cache, b"k", 1, 0, buffer, 4, byref(found)) == Status.OK
    assert ctypes.string_at(lib.hutch_value_data(found.value), found.size) == b"value"
    lib.hutch_value_release(found.value)
    assert lib.hutch_look(cache, b"k", 1, 8, buffer, 10, byref(found)) == Status.UNSUPPORTED
    for wrong in ((0, None, 5), (0, buffer, SIZE_MAX)):
        assert lib.hutch_look(cache, b"k", 1, *wrong, byref(found)) == INVALID
        assert not found.value
    assert lib.hutch_look(cache, b"k", 1, 0, buffer, 10, None) == INVALID
    found.struct_size = 4
    assert lib.hutch_look(cache, b"k", 1, 0, buffer, 10, byref(found)) == INVALID


def test_the_largest_versions(cache):
    result = structs.PutResult()
    for version in (0, 2**63, 2**64 - 1):
        swap = lib.hutch_compare_and_swap(cache, b"k", 1, version, b"v", 1, None, byref(result))
        assert swap == Status.CONFLICT and result.version not in (0, version)


# -------------------------------------------------------------------- structs


def padded(struct, tail: bytes):
    """The struct with more behind it, as a newer header would have it."""
    kind = type(struct)

    class Longer(ctypes.Structure):
        _fields_ = [("known", kind), ("unknown", ctypes.c_ubyte * len(tail))]

    longer = Longer()
    longer.known = struct
    longer.known.struct_size = ctypes.sizeof(longer)
    longer.unknown[:] = tail
    return longer, ctypes.cast(ctypes.pointer(longer), ctypes.POINTER(kind))


def test_a_longer_struct_of_which_the_rest_is_zero(cache):
    _, chosen = padded(structs.PutOptions(cost=7), bytes(64))
    whole, result = padded(structs.PutResult(), bytes(16))
    assert put(cache, b"k", b"value", chosen, result) == Status.OK
    assert whole.known.version > 0 and bytes(whole.unknown) == bytes(16)
    whole, info = padded(structs.EntryInfo(), bytes(8))
    assert lib.hutch_info(cache, b"k", 1, info) == Status.OK
    assert whole.known.cost == 7
    whole, stats = padded(structs.CacheStats(), bytes(8))
    assert lib.hutch_stats(cache, stats) == Status.OK and whole.known.memory.count == 1
    whole, limits = padded(structs.CacheLimits(), bytes(8))
    assert lib.hutch_limits(cache, limits) == Status.OK
    assert lib.hutch_set_limits(cache, limits) == Status.OK
    whole, error = padded(structs.Error(), bytes(8))
    assert lib.hutch_last_error(error) == Status.OK
    _, chosen = padded(options(), bytes(128))
    status, other = open_raw(None, chosen)
    assert status == Status.OK and lib.hutch_close(other) == Status.OK


@pytest.mark.parametrize("tail", [b"\x01" + bytes(15), bytes(15) + b"\x01"])
def test_a_longer_struct_of_which_the_rest_is_not_zero(cache, tail):
    unsupported = Status.UNSUPPORTED
    _, chosen = padded(structs.PutOptions(), tail)
    for name, status in put_calls(cache, b"v", 1, chosen):
        assert status == unsupported, name
    _, limits = padded(structs.CacheLimits(), tail)
    assert lib.hutch_set_limits(cache, limits) == unsupported
    _, chosen = padded(options(), tail)
    status, other = open_raw(None, chosen)
    assert status == unsupported and not other


def test_a_longer_struct_that_is_filled_in_is_zero_behind(cache):
    tail = b"\xaa" * 24
    calls = {
        "result": (structs.PutResult(), lambda out: put(cache, b"k", b"value", None, out)),
        "info": (structs.EntryInfo(), lambda out: lib.hutch_info(cache, b"k", 1, out)),
        "stats": (structs.CacheStats(), lambda out: lib.hutch_stats(cache, out)),
        "limits": (structs.CacheLimits(), lambda out: lib.hutch_limits(cache, out)),
        "error": (structs.Error(), lambda out: lib.hutch_last_error(out)),
    }
    for name, (struct, call) in calls.items():
        whole, out = padded(struct, tail)
        assert call(out) == Status.OK, name
        assert bytes(whole.unknown) == bytes(24), name


def shortened(struct, size: int):
    """Only the first bytes of the struct, with a guard behind them."""
    raw = ctypes.create_string_buffer(b"\xaa" * 512, 512)
    ctypes.memmove(raw, byref(struct), size)
    ctypes.cast(raw, ctypes.POINTER(c_size_t))[0] = size
    return raw, ctypes.cast(raw, ctypes.POINTER(type(struct)))


def test_a_shorter_struct_is_filled_as_far_as_it_goes(cache):
    raw, stats = shortened(structs.CacheStats(), 8 + 16)
    assert lib.hutch_stats(cache, stats) == Status.OK
    assert int.from_bytes(raw[8:16], "little") == 1 and int.from_bytes(raw[16:24], "little") == 1
    assert raw[24:] == b"\xaa" * (512 - 24)
    raw, info = shortened(structs.EntryInfo(), 16)
    assert lib.hutch_info(cache, b"k", 1, info) == Status.OK
    assert raw[16:] == b"\xaa" * (512 - 16) and int.from_bytes(raw[8:16], "little") > 0
    raw, result = shortened(structs.PutResult(), 8)
    assert put(cache, b"k", b"value", None, result) == Status.OK
    assert raw[8:] == b"\xaa" * (512 - 8)
    assert get(None, b"k")[0] == INVALID
    raw, error = shortened(structs.Error(), 16)
    assert lib.hutch_last_error(error) == Status.OK
    assert int.from_bytes(raw[8:12], "little", signed=True) == INVALID
    assert raw[16:] == b"\xaa" * (512 - 16)


def test_a_shorter_struct_means_defaults_for_the_rest(cache):
    whole = structs.PutOptions(time_to_live=10**12, time_to_idle=10**12, cost=99)
    _, chosen = shortened(whole, 16)
    assert put(cache, b"k", b"value", chosen) == Status.OK
    info = structs.EntryInfo()
    assert lib.hutch_info(cache, b"k", 1, byref(info)) == Status.OK
    assert (info.expires - info.created, info.time_to_idle, info.cost) == (10**12, 0, 0)


def test_shorter_limits_leave_the_rest_as_it_is(cache):
    before, after = structs.CacheLimits(), structs.CacheLimits()
    assert lib.hutch_limits(cache, byref(before)) == Status.OK
    wanted = structs.CacheLimits()
    wanted.memory.cost, wanted.memory.count = 1 << 30, 17
    _, limits = shortened(wanted, 16)
    assert lib.hutch_set_limits(cache, limits) == Status.OK
    assert lib.hutch_limits(cache, byref(after)) == Status.OK
    assert after.memory.cost == 1 << 30 and after.memory.count == before.memory.count
    assert bytes(after.disk) == bytes(before.disk)


def test_shorter_options_have_defaults_for_the_rest():
    chosen = options()
    chosen.memory.cost = 1 << 20
    _, short = shortened(chosen, 24)
    status, cache = open_raw(None, short)
    assert status == Status.OK
    limits = structs.CacheLimits()
    assert lib.hutch_limits(cache, byref(limits)) == Status.OK
    assert limits.memory.cost == 64 << 20
    assert lib.hutch_close(cache) == Status.OK


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_struct_size_that_was_not_set(cache, size):
    chosen = structs.PutOptions()
    chosen.struct_size = size
    for name, status in put_calls(cache, b"v", 1, byref(chosen)):
        assert status == INVALID, name
    stats, limits, info = structs.CacheStats(), structs.CacheLimits(), structs.EntryInfo()
    result, error = structs.PutResult(), structs.Error()
    for struct in (stats, limits, info, result, error):
        struct.struct_size = size
    assert lib.hutch_stats(cache, byref(stats)) == INVALID
    assert lib.hutch_limits(cache, byref(limits)) == INVALID
    assert lib.hutch_set_limits(cache, byref(limits)) == INVALID
    assert lib.hutch_info(cache, b"k", 1, byref(info)) == INVALID
    assert put(cache, b"k", b"v", None, byref(result)) == INVALID
    assert lib.hutch_last_error(byref(error)) == INVALID
    chosen = options()
    chosen.struct_size = size
    assert open_raw(None, byref(chosen))[0] == INVALID


@pytest.mark.parametrize("where", ["memory", "disk"])
@pytest.mark.parametrize("word", [0, 9])
def test_reserved_fields(cache, where, word):
    chosen = options()
    getattr(chosen, where).reserved[word] = 1
    limits = structs.CacheLimits()
    getattr(limits, where).reserved[word] = 1
    assert lib.hutch_set_limits(cache, byref(limits)) == Status.UNSUPPORTED
    status, other = open_raw(None, byref(chosen))
    assert status == Status.UNSUPPORTED and not other


@pytest.mark.parametrize("field", ["flags", "policy", "storage", "durability", "sharing", "checksums"])
@pytest.mark.parametrize("number", [999, 2**31, 2**32 - 1])
def test_options_that_are_not_defined(directory, field, number):
    expected = Status.UNSUPPORTED
    chosen = options()
    setattr(chosen, field, number)
    for path in (None, bytes(directory)):
        status, other = open_raw(path, byref(chosen))
        assert status == expected and not other
        assert last_error().status == expected and last_error().words
    assert not directory.exists()


@pytest.mark.parametrize("which", ["memory", "disk"])
@pytest.mark.parametrize("field", ["time_to_live", "time_to_idle"])
def test_negative_durations_of_limits(cache, directory, which, field):
    limits = structs.CacheLimits()
    setattr(getattr(limits, which), field, -1)
    assert lib.hutch_set_limits(cache, byref(limits)) == INVALID
    chosen = options()
    setattr(getattr(chosen, which), field, -1)
    for path in (None, bytes(directory) + b"-other"):
        assert open_raw(path, byref(chosen))[0] == INVALID
    assert not directory.with_name(directory.name + "-other").exists()


# ----------------------------------------------------------------- last error


def test_only_failures_are_noted(cache):
    assert get(None, b"k")[0] == INVALID
    noted = bytes(last_error())
    assert get(cache, b"none")[0] == Status.NOT_FOUND
    assert put(cache, b"k", b"value") == Status.OK
    assert lib.hutch_add(cache, b"k", 1, b"v", 1, None, None) == Status.EXISTS
    assert lib.hutch_last_error(None) == INVALID
    assert bytes(last_error()) == noted


def test_a_failure_has_words():
    status, cache = open_raw(b"/dev/null/below")
    assert status == Status.BAD_DIRECTORY and not cache
    error = last_error()
    assert error.status == Status.BAD_DIRECTORY and error.words.decode()
    assert error.system_error > 0 and error.reserved == 0


def test_each_thread_has_its_own():
    import threading

    assert get(None, b"k")[0] == INVALID
    seen = []
    thread = threading.Thread(target=lambda: seen.append(last_error().status))
    thread.start()
    thread.join()
    assert seen == [Status.OK] and last_error().status == INVALID


def test_what_a_failed_call_leaves_behind(cache):
    value = structs.ValuePointer.from_buffer_copy(b"\xaa" * 8)
    assert lib.hutch_get(cache, b"none", 4, byref(value)) == Status.NOT_FOUND and not value
    value = structs.ValuePointer.from_buffer_copy(b"\xaa" * 8)
    assert lib.hutch_get(None, b"k", 1, byref(value)) == INVALID and not value
    other = structs.CachePointer.from_buffer_copy(b"\xaa" * 8)
    assert lib.hutch_open(b"/dev/null/x", None, byref(other)) == Status.BAD_DIRECTORY and not other
    assert tier(cache, 9)[0] == Status.UNSUPPORTED
