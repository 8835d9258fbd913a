"""Find libhutch, load it, and declare its functions: one line for each.

_accelerator.py says where it is looked for. If the accelerator has loaded it, it is the same one.
The package finds it when one of its names is first used: an ImportError comes then.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from . import _accelerator
from . import _structs as s
from ._accelerator import candidates
from ._foreign import declare
from ._interpreters import shares_its_lock

ABI_VERSION = 1
"""The HUTCH_ABI_VERSION of the headers that this package declares."""

# Key and value parameters are c_void_p: ctypes passes the address of a bytes
# object as it is, without a copy and without stopping at a NUL.
_KEY = (c_void_p, c_size_t)
_BYTES = (c_void_p, c_size_t)
_KEYS = (POINTER(c_char_p), POINTER(c_size_t))
_PUT = (POINTER(s.PutOptions), POINTER(s.PutResult))
_TASK = (POINTER(s.TaskOptions), POINTER(s.TaskPointer))

FUNCTIONS: tuple[tuple[str, tuple[Any, ...], Any], ...] = (
    # library
    ("hutch_version", (), c_char_p),
    ("hutch_abi_version", (), c_uint32),
    ("hutch_status_name", (c_int32,), c_char_p),
    ("hutch_status_text", (c_int32,), c_char_p),
    ("hutch_error_words", (), c_char_p),
    ("hutch_last_error", (POINTER(s.Error),), c_int32),
    # open
    ("hutch_buffer_resize", (c_void_p, c_size_t), c_void_p),
    ("hutch_open", (c_char_p, POINTER(s.Options), POINTER(s.CachePointer)), c_int32),
    ("hutch_close", (s.CachePointer,), c_int32),
    ("hutch_destroy", (c_char_p,), c_int32),
    ("hutch_cache_retain", (s.CachePointer,), s.CachePointer),
    ("hutch_cache_release", (s.CachePointer,), None),
    ("hutch_tier", (s.CachePointer, c_uint32, POINTER(s.CachePointer)), c_int32),
    ("hutch_directory", (s.CachePointer,), c_char_p),
    ("hutch_get_options", (s.CachePointer, POINTER(s.Options)), c_int32),
    ("hutch_set_options", (s.CachePointer, POINTER(s.Options)), c_int32),
    ("hutch_flush", (s.CachePointer,), c_int32),
    # entries
    ("hutch_put", (s.CachePointer, *_KEY, *_BYTES, *_PUT), c_int32),
    ("hutch_get", (s.CachePointer, *_KEY, POINTER(s.ValuePointer)), c_int32),
    ("hutch_get_into", (s.CachePointer, *_KEY, *_BYTES, POINTER(c_size_t)), c_int32),
    ("hutch_look", (s.CachePointer, *_KEY, c_uint32, *_BYTES, POINTER(s.Found)), c_int32),
    ("hutch_contains", (s.CachePointer, *_KEY), c_int32),
    ("hutch_info", (s.CachePointer, *_KEY, POINTER(s.EntryInfo)), c_int32),
    (
        "hutch_tag",
        (s.CachePointer, *_KEY, c_char_p, c_size_t, POINTER(c_size_t)),
        c_int32,
    ),
    ("hutch_touch", (s.CachePointer, *_KEY, c_int64, c_int64), c_int32),
    ("hutch_remove", (s.CachePointer, *_KEY), c_int32),
    ("hutch_clear", (s.CachePointer,), c_int32),
    # values
    ("hutch_value_data", (s.ValuePointer,), c_void_p),
    ("hutch_value_size", (s.ValuePointer,), c_size_t),
    ("hutch_value_key", (s.ValuePointer,), c_void_p),
    ("hutch_value_key_size", (s.ValuePointer,), c_size_t),
    ("hutch_value_extended", (s.ValuePointer,), c_void_p),
    ("hutch_value_extended_size", (s.ValuePointer,), c_size_t),
    ("hutch_value_tag", (s.ValuePointer,), c_void_p),
    ("hutch_value_tag_size", (s.ValuePointer,), c_size_t),
    ("hutch_value_info", (s.ValuePointer, POINTER(s.EntryInfo)), c_int32),
    ("hutch_value_retain", (s.ValuePointer,), s.ValuePointer),
    ("hutch_value_release", (s.ValuePointer,), None),
    # conditional
    ("hutch_add", (s.CachePointer, *_KEY, *_BYTES, *_PUT), c_int32),
    ("hutch_replace", (s.CachePointer, *_KEY, *_BYTES, *_PUT), c_int32),
    ("hutch_compare_and_swap", (s.CachePointer, *_KEY, c_uint64, *_BYTES, *_PUT), c_int32),
    (
        "hutch_increment",
        (s.CachePointer, *_KEY, c_int64, c_int64, POINTER(s.PutOptions), POINTER(c_int64)),
        c_int32,
    ),
    ("hutch_pop", (s.CachePointer, *_KEY, POINTER(s.ValuePointer)), c_int32),
    # many
    ("hutch_get_many", (s.CachePointer, *_KEYS, c_size_t, POINTER(s.BatchPointer)), c_int32),
    ("hutch_info_many", (s.CachePointer, *_KEYS, c_size_t, POINTER(s.BatchPointer)), c_int32),
    (
        "hutch_put_many",
        (
            s.CachePointer,
            *_KEYS,
            *_KEYS,
            c_size_t,
            POINTER(s.PutOptions),
            POINTER(s.BatchPointer),
        ),
        c_int32,
    ),
    ("hutch_remove_many", (s.CachePointer, *_KEYS, c_size_t, POINTER(s.BatchPointer)), c_int32),
    ("hutch_remove_prefix", (s.CachePointer, c_char_p, c_size_t, POINTER(c_uint64)), c_int32),
    ("hutch_remove_tagged", (s.CachePointer, c_char_p, c_size_t, POINTER(c_uint64)), c_int32),
    ("hutch_batch_count", (s.BatchPointer,), c_size_t),
    ("hutch_batch_status", (s.BatchPointer, c_size_t), c_int32),
    ("hutch_batch_value", (s.BatchPointer, c_size_t), s.ValuePointer),
    ("hutch_batch_info", (s.BatchPointer, c_size_t, POINTER(s.EntryInfo)), c_int32),
    ("hutch_batch_put_result", (s.BatchPointer, c_size_t, POINTER(s.PutResult)), c_int32),
    ("hutch_batch_retain", (s.BatchPointer,), s.BatchPointer),
    ("hutch_batch_release", (s.BatchPointer,), None),
    # limits
    ("hutch_limits", (s.CachePointer, POINTER(s.CacheLimits)), c_int32),
    ("hutch_set_limits", (s.CachePointer, POINTER(s.CacheLimits)), c_int32),
    ("hutch_count", (s.CachePointer, POINTER(c_uint64)), c_int32),
    ("hutch_cost", (s.CachePointer, POINTER(c_uint64)), c_int32),
    ("hutch_value_bytes", (s.CachePointer, POINTER(c_uint64)), c_int32),
    ("hutch_stats", (s.CachePointer, POINTER(s.CacheStats)), c_int32),
    # trim
    ("hutch_trim", (s.CachePointer, POINTER(s.TrimSpec), POINTER(c_uint64)), c_int32),
    # iterate
    ("hutch_each", (s.CachePointer, s.VisitorFunction, c_void_p), c_int32),
    ("hutch_cursor_create", (s.CachePointer, POINTER(s.CursorPointer)), c_int32),
    (
        "hutch_cursor_create_ordered",
        (s.CachePointer, c_uint32, POINTER(s.CursorPointer)),
        c_int32,
    ),
    ("hutch_cursor_next", (s.CursorPointer, POINTER(c_void_p), POINTER(c_size_t)), c_int32),
    ("hutch_cursor_value", (s.CursorPointer, POINTER(s.ValuePointer)), c_int32),
    ("hutch_cursor_info", (s.CursorPointer, POINTER(s.EntryInfo)), c_int32),
    ("hutch_cursor_release", (s.CursorPointer,), None),
    # loaders
    (
        "hutch_load",
        (
            s.CachePointer,
            *_KEY,
            s.LoaderFunction,
            c_void_p,
            POINTER(s.LoadOptions),
            POINTER(s.ValuePointer),
        ),
        c_int32,
    ),
    (
        "hutch_load_begin",
        (
            s.CachePointer,
            *_KEY,
            POINTER(s.LoadOptions),
            POINTER(s.ValuePointer),
            POINTER(s.LoadingPointer),
        ),
        c_int32,
    ),
    ("hutch_loading_wait", (s.LoadingPointer, c_int64, POINTER(s.ValuePointer)), c_int32),
    ("hutch_loading_fulfil", (s.LoadingPointer, *_BYTES, POINTER(s.PutOptions)), c_int32),
    ("hutch_loading_fail", (s.LoadingPointer, c_int32, c_char_p), c_int32),
    ("hutch_loading_abandon", (s.LoadingPointer,), c_int32),
    ("hutch_loading_wanted", (s.LoadingPointer,), c_int32),
    ("hutch_loading_retain", (s.LoadingPointer,), s.LoadingPointer),
    ("hutch_loading_release", (s.LoadingPointer,), None),
    # events
    (
        "hutch_set_listener",
        (s.CachePointer, c_uint32, s.ListenerFunction, c_void_p, s.ReleaseFunction),
        c_int32,
    ),
    (
        "hutch_set_logger",
        (s.CachePointer, c_uint32, s.LoggerFunction, c_void_p, s.ReleaseFunction),
        c_int32,
    ),
    (
        "hutch_set_default_logger",
        (c_uint32, s.LoggerFunction, c_void_p, s.ReleaseFunction),
        c_int32,
    ),
    # large
    (
        "hutch_put_file",
        (s.CachePointer, *_KEY, c_char_p, c_uint32, *_PUT),
        c_int32,
    ),
    (
        "hutch_writer_begin",
        (s.CachePointer, *_KEY, c_uint64, POINTER(s.PutOptions), POINTER(s.WriterPointer)),
        c_int32,
    ),
    ("hutch_writer_append", (s.WriterPointer, *_BYTES), c_int32),
    ("hutch_writer_commit", (s.WriterPointer, POINTER(s.PutResult)), c_int32),
    ("hutch_writer_abort", (s.WriterPointer,), c_int32),
    ("hutch_writer_release", (s.WriterPointer,), None),
    (
        "hutch_path",
        (s.CachePointer, *_KEY, c_char_p, c_size_t, POINTER(c_size_t)),
        c_int32,
    ),
    ("hutch_open_fd", (s.CachePointer, *_KEY, POINTER(c_int32)), c_int32),
    ("hutch_hold_files", (s.CachePointer,), c_int32),
    ("hutch_unhold_files", (s.CachePointer,), c_int32),
    # objects
    (
        "hutch_put_object",
        (s.CachePointer, *_KEY, c_void_p, s.ReleaseFunction, POINTER(s.PutOptions)),
        c_int32,
    ),
    ("hutch_get_object", (s.CachePointer, *_KEY, POINTER(s.ObjectPointer)), c_int32),
    ("hutch_remove_object", (s.CachePointer, *_KEY), c_int32),
    ("hutch_drain_releases", (s.CachePointer, c_uint64, POINTER(c_uint64)), c_int32),
    ("hutch_object_pointer", (s.ObjectPointer,), c_void_p),
    ("hutch_object_retain", (s.ObjectPointer,), s.ObjectPointer),
    ("hutch_object_release", (s.ObjectPointer,), None),
    # pressure
    ("hutch_notify", (s.CachePointer, c_uint32), c_int32),
    # check
    ("hutch_check", (s.CachePointer, c_uint32, POINTER(s.CheckReport)), c_int32),
    ("hutch_copy", (s.CachePointer, s.CachePointer, POINTER(s.CopyReport)), c_int32),
    # maintenance
    ("hutch_suspend", (s.CachePointer,), c_int32),
    ("hutch_resume", (s.CachePointer,), c_int32),
    ("hutch_maintain", (s.CachePointer, c_int64), c_int32),
    # tasks
    ("hutch_task_cancel", (s.TaskPointer, POINTER(c_uint32)), c_int32),
    ("hutch_task_wait", (s.TaskPointer, c_int64), c_int32),
    ("hutch_task_set_priority", (s.TaskPointer, c_int32), c_int32),
    ("hutch_task_status", (s.TaskPointer, POINTER(c_uint32), POINTER(c_int32)), c_int32),
    ("hutch_task_retain", (s.TaskPointer,), s.TaskPointer),
    ("hutch_task_release", (s.TaskPointer,), None),
    # queues
    ("hutch_queue_create", (POINTER(s.QueueOptions), POINTER(s.QueuePointer)), c_int32),
    ("hutch_shared_queue", (POINTER(s.QueuePointer),), c_int32),
    ("hutch_cache_queue", (s.CachePointer, POINTER(s.QueuePointer)), c_int32),
    (
        "hutch_queue_submit",
        (s.QueuePointer, s.WorkFunction, c_void_p, s.ReleaseFunction, *_TASK),
        c_int32,
    ),
    ("hutch_queue_set_width", (s.QueuePointer, c_uint32), c_int32),
    ("hutch_queue_wait_all", (s.QueuePointer, c_int64), c_int32),
    ("hutch_queue_cancel_all", (s.QueuePointer, POINTER(c_uint64)), c_int32),
    ("hutch_queue_suspend", (s.QueuePointer,), c_int32),
    ("hutch_queue_resume", (s.QueuePointer,), c_int32),
    ("hutch_queue_run", (s.QueuePointer, c_int64, POINTER(c_uint64)), c_int32),
    ("hutch_queue_retain", (s.QueuePointer,), s.QueuePointer),
    ("hutch_queue_release", (s.QueuePointer,), None),
    # groups
    ("hutch_group_create", (s.QueuePointer, POINTER(s.GroupPointer)), c_int32),
    ("hutch_group_start", (s.GroupPointer, POINTER(s.TaskOptions)), c_int32),
    ("hutch_group_cancel", (s.GroupPointer,), c_int32),
    ("hutch_group_wait", (s.GroupPointer, c_int64), c_int32),
    ("hutch_group_retain", (s.GroupPointer,), s.GroupPointer),
    ("hutch_group_release", (s.GroupPointer,), None),
    # ports
    ("hutch_port_create", (POINTER(s.PortPointer),), c_int32),
    ("hutch_port_fd", (s.PortPointer,), c_int32),
    ("hutch_port_drain", (s.PortPointer, c_uint64, POINTER(c_uint64)), c_int32),
    ("hutch_port_close", (s.PortPointer, c_uint32), c_int32),
    ("hutch_port_retain", (s.PortPointer,), s.PortPointer),
    ("hutch_port_release", (s.PortPointer,), None),
    # async
    ("hutch_get_async", (s.CachePointer, *_KEY, *_TASK), c_int32),
    (
        "hutch_put_async",
        (s.CachePointer, *_KEY, *_BYTES, POINTER(s.PutOptions), *_TASK),
        c_int32,
    ),
    ("hutch_remove_async", (s.CachePointer, *_KEY, *_TASK), c_int32),
    ("hutch_contains_async", (s.CachePointer, *_KEY, *_TASK), c_int32),
    ("hutch_clear_async", (s.CachePointer, *_TASK), c_int32),
    ("hutch_flush_async", (s.CachePointer, *_TASK), c_int32),
    ("hutch_trim_async", (s.CachePointer, POINTER(s.TrimSpec), *_TASK), c_int32),
    (
        "hutch_load_async",
        (
            s.CachePointer,
            *_KEY,
            s.LoaderFunction,
            c_void_p,
            s.ReleaseFunction,
            POINTER(s.LoadOptions),
            *_TASK,
        ),
        c_int32,
    ),
    ("hutch_submit", (s.CachePointer, POINTER(s.Call), *_TASK), c_int32),
    ("hutch_wait_all", (s.CachePointer, c_int64), c_int32),
)
"""Every function of hutch.h and hutch_tasks.h: name, argument types, result type."""

# These neither wait nor call back: a release of the GIL would take most of their time. The end of
# a batch is not among them, since it may free much memory.
_KEEP_THE_GIL = frozenset(
    name
    for name, _, _ in FUNCTIONS
    if name.startswith(("hutch_value_", "hutch_batch_"))
    and name != "hutch_batch_release"
)


def _load() -> ctypes.CDLL:
    if not shares_its_lock():
        raise ImportError(
            "hutch cannot be used in an interpreter that has a GIL of its own, since caches of a "
            "directory are shared with other interpreters of the process"
        )
    failures = []
    loaded = _accelerator.loaded
    for candidate in candidates() if loaded is None else [loaded]:
        try:
            library = ctypes.CDLL(candidate)
            keeping_the_gil = ctypes.PyDLL(candidate)
        except OSError as failure:
            failures.append(str(failure))
            continue
        try:
            for name, argtypes, restype in FUNCTIONS:
                keeps = name in _KEEP_THE_GIL
                of = keeping_the_gil if keeps else library
                setattr(library, name, declare(of, name, argtypes, restype))
        except AttributeError as missing:
            raise ImportError(
                f"{candidate} is not the Hutch this package needs: {missing}"
            ) from None
        if library.hutch_abi_version() < ABI_VERSION:
            raise ImportError(
                f"{candidate} has ABI version {library.hutch_abi_version()}, "
                f"and this package needs {ABI_VERSION}"
            )
        return library
    raise ImportError(
        "libhutch.so was not found. Build it, install it, or name it in the environment "
        "variable HUTCH_LIBRARY. Tried: " + "; ".join(failures)
    )


lib = _load()
"""The loaded library. Its functions release the GIL while they run, except _KEEP_THE_GIL."""
