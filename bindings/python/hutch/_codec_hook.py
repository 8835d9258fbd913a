"""Python functions as the codec of a cache's disk tier."""

from __future__ import annotations

from ._callbacks import marked, report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, NamedTuple

    class _Codec(NamedTuple):
        id: int
        encode: Callable[[bytes], bytes]
        decode: Callable[[bytes], bytes]

else:
    from collections import namedtuple

    _Codec = namedtuple("_Codec", "id encode decode")


class Codec(_Codec):
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

    __slots__ = ()


class Conversion:
    """One direction of a codec as the library calls it, through ctypes or the accelerator.
    Raises nothing."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[bytes], bytes]) -> None:
        self._function = function

    @marked
    def __call__(self, data: bytes) -> bytes | int:
        """The output, or the status of a failure."""
        try:
            made: Any = self._function(data)
            if isinstance(made, bytes):
                return made
            if not isinstance(made, (bytearray, memoryview)):
                raise TypeError(f"a codec's functions return bytes, not {type(made).__name__}")
            return bytes(made)
        except BaseException as error:
            return _status_of(error, self._function)


def _status_of(error: BaseException, function: Any) -> int:
    from ._errors import CorruptError, Status

    if isinstance(error, CorruptError):
        return Status.CORRUPT
    report(error, "a codec", function)
    return Status.IO


def conversions_of(codec: Codec) -> tuple[int, Conversion, Conversion]:
    """The codec's id, and its two directions. TypeError, ValueError: it is no codec."""
    if not isinstance(codec, Codec):
        raise TypeError(f"codec is a hutch.Codec, not a {type(codec).__name__}")
    if not (callable(codec.encode) and callable(codec.decode)):
        raise TypeError("a codec's encode and decode are functions")
    if not 0 < codec.id < 2**32:
        raise ValueError("a codec's id is 1 to 2**32 - 1")
    return codec.id, Conversion(codec.encode), Conversion(codec.decode)
