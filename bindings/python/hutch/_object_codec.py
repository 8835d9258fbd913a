"""Python objects in both tiers: the object itself in memory, and its bytes on disk.

The bytes are those of set: in the package's own forms, or by the cache's serializer. An object is
encoded by the call that puts it, and its bytes wait here for the library, so that what a
serializer raises is raised by that call. A value is decoded within the library's call, which
raises what the serializer raised.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

from . import _structs
from ._callbacks import callback, refuse_in_subinterpreter, report
from ._errors import Status, UnsupportedError
from ._hooks import fill_buffer
from ._objects import new_number, object_of, release_callback
from ._serializers import Forms, forms_of
from ._values import parts

# By the number that is the codec's context. A serializer has one for the life of the process.
_forms: dict[int, Forms] = {1: Forms()}
_contexts: dict[int, tuple[int, Any]] = {}
# Makes the look for a context and its record one step. Within it a serializer is only asked for its
# name.
_making = threading.Lock()


def _begin_child() -> None:
    """In the child of a fork: a thread of the parent may have had the lock."""
    global _making
    _making = threading.Lock()


os.register_at_fork(after_in_child=_begin_child)
# By the number of the object.
_encoded: dict[int, bytes] = {}
# The exception of the last decoding of this thread.
_raised = threading.local()


def _context_of(serializer: Any) -> int:
    if serializer is None:
        return 1
    with _making:
        # The entry keeps the serializer, so that no other one gets its id.
        context, _ = _contexts.setdefault(id(serializer), (len(_contexts) + 2, serializer))
        if context not in _forms:
            _forms[context] = forms_of(serializer)
        return context


@callback
def _encode(context: int, number: int, output: int) -> int:
    try:
        data = _encoded.get(number)
        if data is None:
            # Another program of this process has put it, by the C functions.
            data, extended = _forms[context].encode(object_of(number, None))
            if extended:
                raise TypeError("only bytes can be put as an object in this way")
        return fill_buffer(output, data)
    except BaseException as error:
        report(error, "an object codec", None)
        return Status.IO


@callback
def _decode(context: int, value: Any, out: Any) -> int:
    try:
        out[0] = new_number(_forms[context].decode(*parts(value)))
        return Status.OK
    except BaseException as error:
        _raised.error = error
        return Status.CORRUPT


_encode_callback = _structs.EncodeFunction(_encode)
_decode_callback = _structs.DecodeFunction(_decode)


def set_object_codec(options: _structs.Options, serializer: Any) -> None:
    """The cache that will be opened with these options has its objects in both tiers."""
    refuse_in_subinterpreter()
    codec = _structs.ObjectCodec(
        encode=_encode_callback,
        decode=_decode_callback,
        release=release_callback,
        context=_context_of(serializer),
    )
    # The library copies it when it opens.
    options._kept = codec
    options.object_codec = ctypes.addressof(codec)


class Encoded:
    """The bytes of an object, while the library may ask for them."""

    def __init__(self, number: int, data: bytes) -> None:
        self._number = number
        self._data = data

    def __enter__(self) -> None:
        _encoded[self._number] = self._data

    def __exit__(self, *_: object) -> None:
        _encoded.pop(self._number, None)


def forget_raised() -> None:
    """Before a call that may decode."""
    _raised.error = None


def reason_of() -> BaseException | None:
    """What the decoding within this thread's last call has raised, if it was this thread's."""
    error: BaseException | None = getattr(_raised, "error", None)
    return error


class CachedObjects:
    """Python objects, themselves in memory and as their bytes on disk: Cache.objects.

        with hutch.Cache("/var/tmp/pages", objects=True) as cache:
            cache.objects["page"] = page = {"title": "hello"}
            assert cache.objects["page"] is page

    An object is the value of its key: cache.get returns a copy of it, made of its bytes, and set,
    delete, expiry and eviction concern it too. An object that has left memory comes back from
    disk as a new object, made once for all threads that ask for it. A program that changes an
    object changes what others get from memory, and not the bytes.
    The bytes are those of set: in the package's own forms, without pickle, or by the serializer
    that the cache was opened with. TypeError: the object has no form.
    """

    # Without this, iter() would ask for the keys 0, 1, 2.
    __iter__ = None

    def __init__(self, cache: Any) -> None:
        self._any = cache

    @property
    def _cache(self) -> Any:
        if not self._any._has_object_codec:
            raise UnsupportedError(Status.UNSUPPORTED, "the cache was opened without objects=True")
        return self._any

    def get(self, key: Any, default: Any = None) -> Any:
        """The object under the key, or default. CorruptError: its bytes cannot be decoded."""
        return self._cache.get_object(key, default)

    def set(
        self,
        key: Any,
        value: Any,
        expire: Any = None,
        *,
        idle: Any = None,
        cost: int | None = None,
        tag: Any = None,
        write_policy: str | None = None,
    ) -> None:
        """Put an object, in the tiers of write_policy. The parameters are those of Cache.set."""
        self._cache._put_object(key, value, expire, idle, cost, tag, write_policy)

    def delete(self, key: Any) -> bool:
        """Remove the entry. False: there is none."""
        return bool(self._cache.delete_object(key))

    def __getitem__(self, key: Any) -> Any:
        found = self.get(key, self)
        if found is self:
            raise KeyError(key)
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        self.set(key, value)

    def __delitem__(self, key: Any) -> None:
        if not self.delete(key):
            raise KeyError(key)

    def __contains__(self, key: Any) -> bool:
        return key in self._cache

    def __repr__(self) -> str:
        return f"{self._any!r}.objects"
