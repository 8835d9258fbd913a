"""Python functions as the codec of a cache's disk tier.

As with clocks, one pair of callbacks serves all codecs, and a number selects the codec.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import Callable, NamedTuple

from . import _structs
from ._callbacks import callback, release_of, report
from ._errors import CorruptError, Status
from ._library import lib


class Codec(NamedTuple):
    """Converts between values and their bytes on disk: compression, encryption.

        hutch.Cache(directory, codec=hutch.Codec(1, zlib.compress, zlib.decompress))

    Attributes:
        id: 1 to 2**32 - 1, stored with each entry: an entry of another codec is
            not found, and is kept for a cache that has that codec.
        encode: converts a value's bytes to the stored bytes.
        decode: converts stored bytes to the value's bytes. CorruptError means that
            they are damaged, which removes the entry; after any other exception
            the entry is kept.

    Exceptions of the functions go to sys.unraisablehook. The disk tier then does not
    store the value, or the call that reads it raises StorageError. The functions must
    not use the cache.
    """

    id: int
    encode: Callable[[bytes], bytes]
    decode: Callable[[bytes], bytes]


_codecs: dict[int, Codec] = {}
_numbers = itertools.count(1)


def _run(function: Callable[[bytes], bytes], data: int, size: int, output: int) -> int:
    try:
        made = function(ctypes.string_at(data, size) if size else b"")
        if not isinstance(made, bytes):
            if not isinstance(made, (bytearray, memoryview)):
                raise TypeError(f"a codec's functions return bytes, not {type(made).__name__}")
            made = bytes(made)
        room = lib.hutch_buffer_resize(output, len(made))
        if room is None:
            return Status.NO_MEMORY
        ctypes.memmove(room, made, len(made))
    except CorruptError:
        return Status.CORRUPT
    except BaseException as error:
        report(error, "a codec", function)
        return Status.IO
    return Status.OK


@callback
def _encode(number: int, data: int, size: int, output: int) -> int:
    try:
        return _run(_codecs[number].encode, data, size, output)
    except BaseException as error:
        report(error, "a codec", None)
        return Status.IO


@callback
def _decode(number: int, data: int, size: int, output: int) -> int:
    try:
        return _run(_codecs[number].decode, data, size, output)
    except BaseException as error:
        report(error, "a codec", None)
        return Status.IO


_encode_callback = _structs.CodecFunction(_encode)
_decode_callback = _structs.CodecFunction(_decode)
_release_callback = release_of(_codecs, "a codec")


def set_codec(options: _structs.Options, codec: Codec) -> None:
    """Set this as the codec of the cache that will be opened with these options."""
    if not isinstance(codec, Codec):
        raise TypeError(f"codec is a hutch.Codec, not a {type(codec).__name__}")
    if not (callable(codec.encode) and callable(codec.decode)):
        raise TypeError("a codec's encode and decode are functions")
    if not 0 < codec.id < 2**32:
        raise ValueError("a codec's id is 1 to 2**32 - 1")
    number = next(_numbers)
    _codecs[number] = codec
    options.codec_id = codec.id
    options.codec_encode = _encode_callback
    options.codec_decode = _decode_callback
    options.codec_context = number
    options.codec_release = _release_callback
