"""Find libhutch_http beside libhutch, load it, and declare what hutch.http needs of it."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from . import _library
from ._foreign import declare
from ._structs import CachePointer, Error, PortPointer, QueuePointer, ReleaseFunction, Sized


ANY_THREAD = 16
"""HUTCH_HTTP_ANY_THREAD."""


class SessionHandle(ctypes.Structure):
    """hutch_http_session: opaque."""


class TaskHandle(ctypes.Structure):
    """hutch_http_task: opaque."""


class ReachabilityHandle(ctypes.Structure):
    """hutch_http_reachability: opaque."""


SessionPointer = ctypes.POINTER(SessionHandle)
TaskPointer = ctypes.POINTER(TaskHandle)
ReachabilityPointer = ctypes.POINTER(ReachabilityHandle)


class Header(ctypes.Structure):
    """hutch_http_header."""

    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class Part(ctypes.Structure):
    """hutch_http_part."""

    _fields_ = [
        ("name", c_char_p),
        ("file_name", c_char_p),
        ("media_type", c_char_p),
        ("data", c_char_p),
        ("size", c_size_t),
        ("path", c_char_p),
        ("read", c_void_p),
        ("read_size", c_uint64),
    ]


class Security(Sized):
    """hutch_http_security."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("flags", c_uint32),
        ("reserved", c_uint32),
        ("public_keys", c_char_p),
        ("public_key_count", c_size_t),
        ("certificates", c_char_p),
        ("authorities", c_char_p),
        ("identity", c_char_p),
        ("identity_key", c_char_p),
        ("identity_password", c_char_p),
    ]


class Configuration(Sized):
    """hutch_http_configuration."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("flags", c_uint32),
        ("version", c_uint32),
        ("connections_per_host", c_uint32),
        ("width", c_uint32),
        ("redirects", c_uint32),
        ("reserved", c_uint32),
        ("connect_timeout", c_int64),
        ("idle_timeout", c_int64),
        ("total_timeout", c_int64),
        ("progress_interval", c_int64),
        ("max_headers", c_uint64),
        ("max_body", c_uint64),
        ("proxy", c_char_p),
        ("cookie_file", c_char_p),
        ("headers", POINTER(Header)),
        ("header_count", c_size_t),
        ("security", POINTER(Security)),
        ("cache", CachePointer),
        ("cache_mode", c_uint32),
        ("cache_flags", c_uint32),
        ("cache_lease", c_int64),
    ]


class Completion(Sized):
    """hutch_http_completion."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("status", c_int32),
        ("reserved", c_uint32),
        ("task", TaskPointer),
        ("error", POINTER(Error)),
    ]


class Progress(Sized):
    """hutch_http_progress."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("sent", c_uint64),
        ("expected_to_send", c_uint64),
        ("received", c_uint64),
        ("expected", c_uint64),
    ]


CompleteFunction = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Completion))
ProgressFunction = ctypes.CFUNCTYPE(None, c_void_p, TaskPointer, POINTER(Progress))
ResponseFunction = ctypes.CFUNCTYPE(None, c_void_p, TaskPointer)
BodyFunction = ctypes.CFUNCTYPE(c_int32, c_void_p, TaskPointer, c_void_p, c_size_t)


class Request(Sized):
    """hutch_http_request."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("url", c_char_p),
        ("method", c_char_p),
        ("headers", POINTER(Header)),
        ("header_count", c_size_t),
        ("body", c_char_p),
        ("body_size", c_size_t),
        ("body_file", c_char_p),
        ("read", c_void_p),
        ("read_size", c_uint64),
        ("download", c_char_p),
        ("priority", c_int32),
        ("flags", c_uint32),
        ("idle_timeout", c_int64),
        ("total_timeout", c_int64),
        ("complete", CompleteFunction),
        ("on_progress", ProgressFunction),
        ("on_response", ResponseFunction),
        ("on_body", BodyFunction),
        ("on_redirect", c_void_p),
        ("on_challenge", c_void_p),
        ("context", c_void_p),
        ("release", ReleaseFunction),
        ("port", PortPointer),
        ("queue", QueuePointer),
        ("query", POINTER(Header)),
        ("query_count", c_size_t),
        ("form", POINTER(Header)),
        ("form_count", c_size_t),
        ("parts", POINTER(Part)),
        ("part_count", c_size_t),
        ("first_code", c_uint32),
        ("last_code", c_uint32),
        ("media_types", c_char_p),
        ("decoders", c_void_p),
        ("decoder_count", c_size_t),
        ("cache_mode", c_uint32),
        ("reserved", c_uint32),
    ]


class Response(Sized):
    """hutch_http_response."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("code", c_int32),
        ("version", c_uint32),
        ("url", c_char_p),
        ("redirects", c_uint64),
        ("header_count", c_uint64),
        ("body", c_void_p),
        ("body_size", c_uint64),
        ("from_cache", c_uint32),
        ("reserved", c_uint32),
    ]


ReachabilityFunction = ctypes.CFUNCTYPE(None, c_void_p, c_uint32)


class ReachabilityOptions(Sized):
    """hutch_http_reachability_options."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("url", c_char_p),
        ("timeout", c_int64),
        ("interval", c_int64),
        ("flags", c_uint32),
        ("reserved", c_uint32),
        ("on_change", ReachabilityFunction),
        ("context", c_void_p),
        ("release", ReleaseFunction),
    ]


METRICS = ("name_lookup", "connect", "tls", "first_byte", "total",
           "bytes_sent", "bytes_received", "requests", "connections", "from_cache")
"""Five durations and five counts."""


class Metrics(Sized):
    """hutch_http_metrics."""

    _fields_ = [
        ("struct_size", c_size_t),
        *((name, c_int64) for name in METRICS[:5]),
        *((name, c_uint64) for name in METRICS[5:]),
    ]


FUNCTIONS: tuple[tuple[str, tuple[Any, ...], Any], ...] = (
    ("hutch_http_status_name", (c_int32,), c_char_p),
    ("hutch_http_last_error", (POINTER(Error),), c_int32),
    ("hutch_http_session_create", (POINTER(Configuration), POINTER(SessionPointer)), c_int32),
    ("hutch_http_session_end", (SessionPointer, c_uint32), c_int32),
    ("hutch_http_session_wait", (SessionPointer, c_int64), c_int32),
    ("hutch_http_session_release", (SessionPointer,), None),
    ("hutch_http_task_create", (SessionPointer, POINTER(Request), POINTER(TaskPointer)), c_int32),
    ("hutch_http_task_resume", (TaskPointer,), c_int32),
    ("hutch_http_task_suspend", (TaskPointer,), c_int32),
    ("hutch_http_task_cancel", (TaskPointer, POINTER(c_uint32)), c_int32),
    ("hutch_http_task_status", (TaskPointer, POINTER(c_uint32), POINTER(c_int32)), c_int32),
    ("hutch_http_task_wait", (TaskPointer, c_int64), c_int32),
    ("hutch_http_task_error", (TaskPointer, POINTER(Error)), c_int32),
    ("hutch_http_task_response", (TaskPointer, POINTER(Response)), c_int32),
    ("hutch_http_task_open_body",
     (TaskPointer, POINTER(c_int32), POINTER(c_uint64), POINTER(c_uint64)), c_int32),
    ("hutch_http_task_header_at", (TaskPointer, c_uint64, POINTER(Header)), c_int32),
    ("hutch_http_task_metrics", (TaskPointer, POINTER(Metrics)), c_int32),
    ("hutch_http_task_release", (TaskPointer,), None),
    ("hutch_http_reachability_start",
     (POINTER(ReachabilityOptions), POINTER(ReachabilityPointer)), c_int32),
    ("hutch_http_reachability_state", (ReachabilityPointer, POINTER(c_uint32)), c_int32),
    ("hutch_http_reachability_stop", (ReachabilityPointer,), c_int32),
    ("hutch_http_reachability_release", (ReachabilityPointer,), None),
)


_REMEDY = (
    "hutch.http needs libhutch_http.so.0, which could not be loaded. The wheel of hutch has "
    "libhutch alone: libcurl and its TLS are to be the system's. scripts/build in a checkout of "
    "hutch makes build/libhutch_http.so: cmake --install build puts it where the loader looks, or "
    "HUTCH_LIBRARY names the libhutch.so beside it. The reason: "
)


def _load() -> ctypes.CDLL:
    """The library beside libhutch, else the one that the system's loader finds."""
    folder = Path(_library.lib._name).parent
    names = [str(folder / name) for name in ("libhutch_http.so.0", "libhutch_http.so")]
    reasons = []
    for name in [name for name in names if Path(name).exists()] + ["libhutch_http.so.0"]:
        try:
            library = ctypes.CDLL(name)
        except OSError as reason:
            reasons.append(str(reason))
            continue
        for function, arguments, result in FUNCTIONS:
            setattr(library, function, declare(library, function, arguments, result))
        return library
    raise ImportError(_REMEDY + "; ".join(reasons))


lib = _load()
