"""The clock and the codec of an opening by ctypes.

One callback serves all clocks, and one pair all codecs; a number, the context, selects the clock
or the codec. No object that C calls can therefore be collected. A clock or a codec is dropped when
the library calls the release function.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from . import _structs
from ._callbacks import callback, new_token, release_of, report
from ._clock import Reading
from ._codec_hook import Codec, Conversion, conversions_of
from ._errors import Status
from ._foreign import bytes_at
from ._library import lib

if TYPE_CHECKING:
    from ._types import Clock

_clocks: dict[int, Reading] = {}
_codecs: dict[int, tuple[Conversion, Conversion]] = {}


@callback
def _read(number: int) -> int:
    try:
        return _clocks[number]()
    except BaseException as error:
        report(error, "a clock", None)
        return 0


def fill_buffer(output: int, data: bytes) -> int:
    """Write what a codec has made into the library's buffer. The codec's status."""
    room = lib.hutch_buffer_resize(output, len(data))
    if room is None:
        return Status.NO_MEMORY
    ctypes.memmove(room, data, len(data))
    return Status.OK


def _run(number: int, way: int, data: int, size: int, output: int) -> int:
    try:
        made = _codecs[number][way](bytes_at(data, size) if size else b"")
        if isinstance(made, int):
            return made
        return fill_buffer(output, made)
    except BaseException as error:
        report(error, "a codec", None)
        return Status.IO


@callback
def _encode(number: int, data: int, size: int, output: int) -> int:
    return _run(number, 0, data, size, output)


@callback
def _decode(number: int, data: int, size: int, output: int) -> int:
    return _run(number, 1, data, size, output)


_read_callback = _structs.ClockFunction(_read)
_encode_callback = _structs.CodecFunction(_encode)
_decode_callback = _structs.CodecFunction(_decode)
_release_clock = release_of(_clocks, "a clock")
_release_codec = release_of(_codecs, "a codec")


def set_clock(options: _structs.Options, clock: Clock) -> None:
    """Set this as the clock of the cache that will be opened with these options."""
    reading = Reading(clock)
    number = new_token()
    _clocks[number] = reading
    options.clock = _read_callback
    options.clock_context = number
    options.clock_release = _release_clock


def set_codec(options: _structs.Options, codec: Codec) -> None:
    """Set this as the codec of the cache that will be opened with these options."""
    codec_id, encode, decode = conversions_of(codec)
    number = new_token()
    _codecs[number] = encode, decode
    options.codec_id = codec_id
    options.codec_encode = _encode_callback
    options.codec_decode = _decode_callback
    options.codec_context = number
    options.codec_release = _release_codec
