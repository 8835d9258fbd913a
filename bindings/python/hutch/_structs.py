"""The structs, handles and callback types of hutch.h, field by field.

A handle is a pointer to a struct of its own that is never completed, so ctypes
refuses a value in place of a cache, and an integer everywhere.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any


class CacheHandle(ctypes.Structure):
    """hutch_cache: opaque."""


class ValueHandle(ctypes.Structure):
    """hutch_value: opaque."""


class CursorHandle(ctypes.Structure):
    """hutch_cursor: opaque."""


class BatchHandle(ctypes.Structure):
    """hutch_batch: opaque."""


class TaskHandle(ctypes.Structure):
    """hutch_task: opaque."""


class QueueHandle(ctypes.Structure):
    """hutch_queue: opaque."""


class GroupHandle(ctypes.Structure):
    """hutch_group: opaque."""


class PortHandle(ctypes.Structure):
    """hutch_port: opaque."""


class WriterHandle(ctypes.Structure):
    """hutch_writer: opaque."""


class ObjectHandle(ctypes.Structure):
    """hutch_object: opaque."""


CachePointer = ctypes.POINTER(CacheHandle)
ValuePointer = ctypes.POINTER(ValueHandle)
CursorPointer = ctypes.POINTER(CursorHandle)
BatchPointer = ctypes.POINTER(BatchHandle)
TaskPointer = ctypes.POINTER(TaskHandle)
QueuePointer = ctypes.POINTER(QueueHandle)
GroupPointer = ctypes.POINTER(GroupHandle)
PortPointer = ctypes.POINTER(PortHandle)
WriterPointer = ctypes.POINTER(WriterHandle)
ObjectPointer = ctypes.POINTER(ObjectHandle)

ClockFunction = ctypes.CFUNCTYPE(c_int64, c_void_p)
CodecFunction = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t, c_void_p)
ReleaseFunction = ctypes.CFUNCTYPE(None, c_void_p)


class Sized(ctypes.Structure):
    """A struct that crosses the C boundary: struct_size comes first, and is set."""

    struct_size: int

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.struct_size = ctypes.sizeof(self)


class Error(Sized):
    """hutch_error."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("status", c_int32),
        ("system_error", c_int32),
        ("sqlite_error", c_int32),
        ("reserved", c_uint32),
        ("words", c_char * 232),
    ]


class TierLimits(ctypes.Structure):
    """hutch_tier_limits."""

    _fields_ = [
        ("cost", c_uint64),
        ("count", c_uint64),
        ("max_entry", c_uint64),
        ("time_to_live", c_int64),
        ("time_to_idle", c_int64),
        ("min_free", c_uint64),
        ("reserved", c_uint64 * 10),
    ]


class CacheLimits(Sized):
    """hutch_cache_limits."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("memory", TierLimits),
        ("disk", TierLimits),
    ]


class Options(Sized):
    """hutch_options: a field of 0 is not set."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("flags", c_uint32),
        ("policy", c_uint32),
        ("storage", c_uint32),
        ("durability", c_uint32),
        ("sharing", c_uint32),
        ("workers", c_uint32),
        ("inline_threshold", c_uint64),
        ("memory", TierLimits),
        ("disk", TierLimits),
        ("clock", ClockFunction),
        ("clock_context", c_void_p),
        ("clock_release", ReleaseFunction),
        ("on_memory_warning", c_uint32),
        ("on_background", c_uint32),
        ("low_water", c_uint32),
        ("write_policy", c_uint32),
        ("checksums", c_uint32),
        ("codec_id", c_uint32),
        ("codec_encode", CodecFunction),
        ("codec_decode", CodecFunction),
        ("codec_context", c_void_p),
        ("codec_release", ReleaseFunction),
        ("queue_length", c_uint64),
        ("close_deadline", c_int64),
        ("disk_policy", c_uint32),
        ("reserved", c_uint32),
        ("queue", QueuePointer),
        ("object_codec", c_void_p),
    ]


EncodeFunction = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p)
DecodeFunction = ctypes.CFUNCTYPE(c_int32, c_void_p, ValuePointer, ctypes.POINTER(c_void_p))


class ObjectCodec(Sized):
    """hutch_object_codec."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("encode", EncodeFunction),
        ("decode", DecodeFunction),
        ("release", ReleaseFunction),
        ("context", c_void_p),
        ("context_release", ReleaseFunction),
    ]


class EntryInfo(Sized):
    """hutch_entry_info."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("version", c_uint64),
        ("created", c_int64),
        ("accessed", c_int64),
        ("expires", c_int64),
        ("time_to_idle", c_int64),
        ("cost", c_uint64),
        ("size", c_uint64),
        ("extended_size", c_uint64),
        ("checksum", c_uint64),
        ("tier", c_uint32),
        ("tag_size", c_uint32),
    ]


class PutOptions(Sized):
    """hutch_put_options. The struct keeps the bytes of extended, suffix and tag alive."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("time_to_live", c_int64),
        ("time_to_idle", c_int64),
        ("cost", c_uint64),
        ("extended", c_char_p),
        ("extended_size", c_size_t),
        ("write_policy", c_uint32),
        ("reserved", c_uint32),
        ("suffix", c_char_p),
        ("tag", c_char_p),
        ("tag_size", c_size_t),
    ]


class Found(Sized):
    """hutch_found."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("size", c_size_t),
        ("extended_size", c_size_t),
        ("value", ValuePointer),
        ("version", c_uint64),
    ]


class PutResult(Sized):
    """hutch_put_result."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("version", c_uint64),
        ("memory", c_uint32),
        ("disk", c_uint32),
    ]


class TierStats(ctypes.Structure):
    """hutch_tier_stats."""

    _fields_ = [
        ("state", c_uint32),
        ("reserved_1", c_uint32),
        ("count", c_uint64),
        ("cost", c_uint64),
        ("hits", c_uint64),
        ("misses", c_uint64),
        ("puts", c_uint64),
        ("removals", c_uint64),
        ("evictions", c_uint64),
        ("expirations", c_uint64),
        ("refusals", c_uint64),
        ("failures", c_uint64),
        ("damaged", c_uint64),
        ("replacements", c_uint64),
        ("trims", c_uint64),
        ("held_count", c_uint64),
        ("held_bytes", c_uint64),
        ("waiting", c_uint64),
        ("reserved", c_uint64 * 15),
    ]


class CheckReport(Sized):
    """hutch_check_report."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("entries", c_uint64),
        ("bytes", c_uint64),
        ("damaged", c_uint64),
        ("orphans", c_uint64),
        ("counters", c_uint64),
        ("manifest", c_uint64),
        ("reserved", c_uint64 * 4),
    ]


class CopyReport(Sized):
    """hutch_copy_report."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("copied", c_uint64),
        ("bytes", c_uint64),
        ("existing", c_uint64),
        ("refused", c_uint64),
        ("reserved", c_uint64 * 4),
    ]


class CacheStats(Sized):
    """hutch_cache_stats."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("memory", TierStats),
        ("disk", TierStats),
    ]


ProgressFunction = ctypes.CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint64)


class TrimSpec(Sized):
    """hutch_trim_spec."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_uint32),
        ("reserved", c_uint32),
        ("amount", c_uint64),
        ("time", c_int64),
        ("progress", ProgressFunction),
        ("context", c_void_p),
    ]


class LoadingHandle(ctypes.Structure):
    """hutch_loading: opaque."""


LoadingPointer = ctypes.POINTER(LoadingHandle)

LoaderFunction = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t, LoadingPointer)


class LoadOptions(Sized):
    """hutch_load_options."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("flags", c_uint32),
        ("reserved", c_uint32),
        ("timeout", c_int64),
        ("soft_time_to_live", c_int64),
        ("negative_time_to_live", c_int64),
        ("parent", LoadingPointer),
    ]


VisitorFunction = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t, ctypes.POINTER(EntryInfo))


class Event(Sized):
    """hutch_event."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_uint32),
        ("cause", c_uint32),
        ("tiers", c_uint32),
        ("status", c_int32),
        ("version", c_uint64),
        ("key", c_void_p),
        ("key_size", c_size_t),
        ("value", ValuePointer),
    ]


ListenerFunction = ctypes.CFUNCTYPE(None, c_void_p, ctypes.POINTER(Event))


class LogRecord(Sized):
    """hutch_log_record."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("level", c_uint32),
        ("tiers", c_uint32),
        ("status", c_int32),
        ("system_error", c_int32),
        ("sqlite_error", c_int32),
        ("reserved", c_uint32),
        ("left_out", c_uint64),
        ("directory", c_char_p),
        ("words", ctypes.c_char * 232),
    ]


LoggerFunction = ctypes.CFUNCTYPE(None, c_void_p, ctypes.POINTER(LogRecord))


class Completion(Sized):
    """hutch_completion."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("status", c_int32),
        ("operation", c_uint32),
        ("task", TaskPointer),
        ("value", ValuePointer),
        ("error", ctypes.POINTER(Error)),
        ("version", c_uint64),
        ("memory", c_uint32),
        ("disk", c_uint32),
        ("count", c_uint64),
        ("cancelled", c_uint64),
        ("number", c_int64),
        ("info", ctypes.POINTER(EntryInfo)),
        ("batch", BatchPointer),
        ("path", c_char_p),
    ]


class Call(Sized):
    """hutch_call."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("operation", c_uint32),
        ("use", c_uint32),
        ("key", c_char_p),
        ("key_size", c_size_t),
        ("value", c_char_p),
        ("value_size", c_size_t),
        ("put_options", ctypes.POINTER(PutOptions)),
        ("version", c_uint64),
        ("delta", c_int64),
        ("initial", c_int64),
        ("time_to_live", c_int64),
        ("time_to_idle", c_int64),
        ("keys", ctypes.POINTER(c_char_p)),
        ("key_sizes", ctypes.POINTER(c_size_t)),
        ("values", ctypes.POINTER(c_char_p)),
        ("value_sizes", ctypes.POINTER(c_size_t)),
        ("count", c_size_t),
        ("path", c_char_p),
        ("visitor", VisitorFunction),
    ]


CompleteFunction = ctypes.CFUNCTYPE(None, c_void_p, ctypes.POINTER(Completion))
MergeFunction = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)
WorkFunction = ctypes.CFUNCTYPE(c_int32, c_void_p, TaskPointer)


class TaskOptions(Sized):
    """hutch_task_options."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("priority", c_int32),
        ("flags", c_uint32),
        ("deadline", c_int64),
        ("complete", CompleteFunction),
        ("progress", ProgressFunction),
        ("context", c_void_p),
        ("release", ReleaseFunction),
        ("port", PortPointer),
        ("group", GroupPointer),
        ("identifier", c_char_p),
        ("identifier_size", c_size_t),
        ("merge", MergeFunction),
        ("now", ctypes.POINTER(Completion)),
    ]


class QueueOptions(Sized):
    """hutch_queue_options."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("width", c_uint32),
        ("flags", c_uint32),
        ("length", c_uint64),
    ]
