"""The conversion of keys and values to their stored form. Subclasses may override all of it."""

from __future__ import annotations

import copyreg
import errno
import io
import json
import os
import pickle
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import IO, Any

from .._cbor import Unreadable, dumps
from .._cbor_read import loads
from .._codec import decode_value, encode_value
from ._constants import (
    ENOVAL,
    MODE_BINARY,
    MODE_NATURAL,
    MODE_PICKLE,
    MODE_RAW,
    MODE_TEXT,
    UNKNOWN,
    Constant,
    refused,
)
from ._keys import Fields, hutch_key

Columns = tuple[int, int, Any, Any]
"""The result of store: size, mode, name of the value's own file or None, value or None."""

_INT64 = range(-(2**63), 2**63)
_PIECE = 2**22
_TRIES = 10
_TYPE, _CONSTANT = "hutch.diskcache.type", "hutch.diskcache.constant"


def _is_plain(value: Any) -> bool:
    """Whether a database column takes the value as it is; a str or bytes is for the caller."""
    kind = type(value)
    return kind is float or (kind is int and value in _INT64)


class Disk:
    """Keys and values as natural values of hutch: reading them runs no code.

    Any other key or value is a TypeError; PickleDisk accepts any object. A pickle stored by
    python-diskcache, or by a PickleDisk, is a PickleRefusedError on read.

    Values are in the cache itself, also large ones. A subclass with a filename() of its own keeps
    values of at least min_file_size bytes in files, under the names that it chooses.

    Parameters:
        directory: the cache's, which has the files.
        min_file_size: the least size in bytes of a MODE_BINARY or MODE_TEXT value.
        pickle_protocol: for subclasses that pickle.
    """

    def __init__(self, directory: str, min_file_size: int = 0, pickle_protocol: int = 0) -> None:
        self._directory = directory
        self.min_file_size = min_file_size
        self.pickle_protocol = pickle_protocol

    def hash(self, key: Any) -> int:
        """A number that is the same for a key in every process: FanoutCache's choice of a shard."""
        name = hutch_key(*self.put(key))
        if isinstance(name, bytes):
            return zlib.adler32(name)
        return zlib.adler32(str(name).encode("utf-8", "surrogatepass"))

    # ----------------------------------------------------------------- keys

    def put(self, key: Any) -> Fields:
        """The key as it is stored, and whether that is the key itself."""
        if type(key) in (str, bytes) or _is_plain(key):
            return key, True
        try:
            return dumps(_portable(key), sort=True), False
        except TypeError as error:
            raise TypeError(f"{error}. {_REMEDY}") from None

    def get(self, key: Any, raw: bool) -> Any:
        """The key of which put has made this."""
        if raw:
            return bytes(key) if type(key) is memoryview else key
        data = _bytes_of(key)
        if _is_pickle(data):
            raise refused("a key of this cache")
        return _restored(loads(data))

    def _returns_plain_keys(self) -> bool:
        """Whether get returns a raw key that is text or a number as it is."""
        return type(self).get in (Disk.get, PickleDisk.get)

    # --------------------------------------------------------------- values

    def store(self, value: Any, read: bool, key: Any = UNKNOWN) -> Columns:
        """The stored form of a value; read: of the bytes of a file, if it is no number, text or
        bytes."""
        kind = type(value)
        if _is_plain(value):
            return 0, MODE_RAW, None, value
        if kind is bytes:
            if len(value) < self.min_file_size:
                return 0, MODE_RAW, None, value
            return self._large(MODE_BINARY, value, value, key)
        if kind is str:
            if len(value) < self.min_file_size:
                return 0, MODE_RAW, None, value
            data = value.encode("utf-8")
            return self._large(MODE_TEXT, data, value, key)
        return self._store_file(value, key) if read else self._store_object(value, key)

    def _store_object(self, value: Any, key: Any) -> Columns:
        try:
            data, extended = encode_value(value)
        except TypeError as error:
            raise TypeError(f"{error}. {_REMEDY}") from None
        form = (extended or b"").rpartition(b":")[2]
        return self._any_size(MODE_NATURAL, bytes([len(form)]) + form + data, value, key)

    def _store_file(self, file: Any, key: Any) -> Columns:
        if not hasattr(file, "read"):
            raise TypeError(f"with read the value is an open file, not {type(file).__name__}")
        if self._names_files():
            name, path = self.filename(key, file)
            return self._write(path, _pieces(file), "xb"), MODE_BINARY, name, None
        return 0, MODE_BINARY, None, b"".join(_pieces(file))

    def _any_size(self, mode: int, data: bytes, value: Any, key: Any) -> Columns:
        if len(data) < self.min_file_size:
            return 0, mode, None, data
        return self._large(mode, data, value, key)

    def _large(self, mode: int, data: bytes, value: Any, key: Any) -> Columns:
        if not self._names_files():
            return 0, mode, None, data
        name, path = self.filename(key, value)
        return self._write(path, [data], "xb"), mode, name, None

    def _names_files(self) -> bool:
        return type(self).filename is not Disk.filename

    def _may_have_files(self) -> bool:
        """Whether an entry may have a file, which must go with it: a store of a subclass can write
        one, and return its name."""
        return self._names_files() or type(self).store not in (Disk.store, JSONDisk.store)

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> Any:
        """The value, from its stored form. OSError: its file cannot be read. Unreadable: what is
        stored is of another type than its mode.

        read: returns a MODE_BINARY value as a file that is open for reading.
        """
        if mode == MODE_RAW:
            return bytes(value) if type(value) is memoryview else value
        if mode == MODE_BINARY and read:
            if filename is not None:
                return open(self._own_path(filename), "rb")
            return value if hasattr(value, "read") else io.BytesIO(_bytes_of(value))
        data = self._data(filename, value)
        if mode == MODE_BINARY:
            return data
        if mode == MODE_TEXT:
            return _text(data)
        if mode == MODE_NATURAL:
            return _natural(data)
        if mode == MODE_PICKLE:
            return self._unpickle(data)
        return None

    def _data(self, filename: str | None, value: Any) -> bytes:
        if filename is None:
            return _bytes_of(value)
        with open(self._own_path(filename), "rb") as file:
            return file.read()

    def _unpickle(self, data: bytes) -> Any:
        raise refused("a value of this cache")

    # ---------------------------------------------------------------- files

    def filename(self, key: Any = UNKNOWN, value: Any = UNKNOWN) -> tuple[str, str]:
        """The name of a new file below the directory, and its path. Random, in two folders."""
        name = os.urandom(16).hex()
        relative = os.path.join(name[:2], name[2:4], name[4:] + ".val")
        return relative, os.path.join(self._directory, relative)

    def _own_path(self, name: str) -> str:
        """The path of a name in the directory. OSError: a link leads out of it, which another
        program has put there."""
        root = os.path.realpath(self._directory)
        path = os.path.join(self._directory, name)
        if os.path.commonpath((root, os.path.realpath(path))) != root:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        return path

    def remove(self, file_path: str) -> None:
        """Remove a file of that name, and the folders that it leaves empty. No errors."""
        path = os.path.join(self._directory, file_path)
        folder = os.path.dirname(path)
        try:
            self._own_path(os.path.dirname(file_path))  # If it is a link itself, that is removed.
        except OSError:
            return
        with suppress(OSError):
            os.remove(path)
        while len(folder) > len(self._directory):
            try:
                os.rmdir(folder)
            except OSError:
                return
            folder = os.path.dirname(folder)

    def _write(
        self, full_path: str, iterator: Iterable[Any], mode: str, encoding: str | None = None
    ) -> int:
        """Write pieces to a new file; returns their length. A failure leaves no file."""
        size = 0
        with self._new_file(full_path, mode, encoding) as file:
            try:
                for piece in iterator:
                    size += len(piece)
                    file.write(piece)
                file.flush()
            except BaseException:
                self.remove(os.path.relpath(full_path, self._directory))
                raise
        return size

    def _new_file(self, path: str, mode: str, encoding: str | None) -> IO[Any]:
        tries = _TRIES
        while True:
            # Another process may remove the folder when its last file goes.
            os.makedirs(os.path.dirname(path), exist_ok=True)
            try:
                return open(path, mode, encoding=encoding)
            except FileNotFoundError:
                tries -= 1
                if not tries:
                    raise
            except FileExistsError:
                # If the key decides the name, it is that of the value to be replaced.
                os.remove(path)


def _bytes_of(value: Any) -> bytes:
    """The bytes of a column. Not bytes(value), which makes as many zeroes as a number says."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise Unreadable(f"bytes are expected, not {type(value).__name__}")


def _pieces(file: Any) -> Iterator[bytes]:
    """The bytes of an open file."""
    while piece := file.read(_PIECE):
        if isinstance(piece, str):
            raise TypeError("with read the value is a file of bytes, and this one reads text")
        yield piece


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except ValueError as error:
        raise Unreadable(str(error)) from None


def _natural(data: bytes) -> Any:
    """The value of the length of its form's name, that name, and its bytes."""
    if not data:
        raise Unreadable("the bytes of a natural value are missing")
    length = data[0]
    form = data[1 : 1 + length]
    return decode_value(data[1 + length :], b"py:" + form if form else b"")


_REMEDY = (
    "hutch.register makes values of dataclasses, named tuples and enumerations, and "
    "disk=hutch.diskcache.PickleDisk takes any object, if only trusted programs can write to "
    "the cache's directory"
)


def _is_pickle(data: bytes) -> bool:
    # Protocols 2 and newer begin with this; in CBOR it is an array of no use as a key's start.
    return data[:1] == b"\x80" and data[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def _portable(key: Any) -> Any:
    """The key, with forms for types and markers, which keys of functions contain."""
    kind = type(key)
    if kind is tuple:
        return tuple(map(_portable, key))
    if kind is Constant:
        return (_CONSTANT, key[0])
    if isinstance(key, type):
        return (_TYPE, key.__module__, key.__qualname__)
    return key


def _restored(key: Any) -> Any:
    """The key of which _portable was made. A type that is not imported stays a tuple."""
    if type(key) is not tuple:
        return key
    if len(key) == 2 and key[0] == _CONSTANT:
        return ENOVAL if key[1] == "ENOVAL" else UNKNOWN
    if len(key) == 3 and key[0] == _TYPE:
        return _named_type(key[1], key[2]) or key
    return tuple(map(_restored, key)) if tuple in map(type, key) else key


def _named_type(module: Any, name: Any) -> type | None:
    """The type, if it is imported. No code of its module runs."""
    if (module, name) == ("builtins", "NoneType"):
        return type(None)
    found: Any = sys.modules.get(module) if isinstance(module, str) else None
    for part in name.split(".") if isinstance(name, str) else ():
        found = getattr(found, "__dict__", {}).get(part)
    return found if isinstance(found, type) else None


class _Signed(type):
    """The type of the classes that PickleDisk.signed makes, and of those that extend them."""


def _parts_of(kind: _Signed) -> Any:
    """How a class is pickled: one of signed by its secret, and others by their names."""
    secret = vars(kind).get("_secret")
    return kind.__qualname__ if secret is None else (PickleDisk.signed, (secret,))


copyreg.pickle(_Signed, _parts_of)


class PickleDisk(Disk):
    """Any object as a key or value, by pickle, as python-diskcache's Disk.

    Reading runs what the bytes say: only for directories that no untrusted program can write to.
    signed() makes one that refuses what others have written.
    """

    def put(self, key: Any) -> Fields:
        if type(key) in (str, bytes) or _is_plain(key):
            return key, True
        import pickletools

        data = pickle.dumps(key, protocol=self.pickle_protocol)
        return pickletools.optimize(data), False

    def get(self, key: Any, raw: bool) -> Any:
        return super().get(key, raw) if raw else pickle.loads(_bytes_of(key))

    def _store_object(self, value: Any, key: Any) -> Columns:
        data = pickle.dumps(value, protocol=self.pickle_protocol)
        return self._any_size(MODE_PICKLE, data, value, key)

    def _unpickle(self, data: bytes) -> Any:
        return pickle.loads(data)

    @staticmethod
    def signed(key: bytes) -> type[PickleDisk]:
        """A PickleDisk whose values have an authentication code, by a secret of at least 16 bytes.

        The code is compared before anything is unpickled: PickleRefusedError for a value that was
        written without the secret. Keys that pickle are as in Disk: natural values. The pickle of a
        cache with such a disk, as a process pool makes it, has the secret.
        """
        from ..pickling import PickleSerializer

        serializer = PickleSerializer(key)

        class SignedPickleDisk(PickleDisk, metaclass=_Signed):
            _secret = key
            put = Disk.put
            get = Disk.get

            def _store_object(self, value: Any, key: Any) -> Columns:
                return self._any_size(MODE_PICKLE, serializer.dumps(value), value, key)

            def _unpickle(self, data: bytes) -> Any:
                if not serializer.is_authentic(data):
                    raise refused("a value that was stored without this cache's secret")
                return serializer.loads(data)

        return SignedPickleDisk


class JSONDisk(Disk):
    """Keys and values as JSON, compressed by zlib.

    Parameters:
        compress_level: 0 (none) to 9 (smallest).
    """

    def __init__(self, directory: str, compress_level: int = 1, **kwargs: Any) -> None:
        self.compress_level = compress_level
        super().__init__(directory, **kwargs)

    def put(self, key: Any) -> Fields:
        return super().put(self._compressed(key))

    def get(self, key: Any, raw: bool) -> Any:
        return self._expanded(super().get(key, raw))

    def store(self, value: Any, read: bool, key: Any = UNKNOWN) -> Columns:
        return super().store(value if read else self._compressed(value), read, key=key)

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> Any:
        data = super().fetch(mode, filename, value, read)
        return data if read else self._expanded(data)

    def _compressed(self, value: Any) -> bytes:
        return zlib.compress(json.dumps(value).encode("utf-8"), self.compress_level)

    def _expanded(self, data: Any) -> Any:
        try:
            return json.loads(zlib.decompress(_bytes_of(data)))
        except (zlib.error, ValueError) as error:
            raise Unreadable(str(error)) from None
