"""A store backend of joblib.Memory.

    import joblib
    from hutch.frameworks.joblib import register

    register()
    memory = joblib.Memory("/var/tmp/results", backend="hutch", backend_options={"disk": "20 GB"})

Results, arguments and the code of functions are entries of one cache, which keeps its limits by
itself: it evicts by its disk_policy the results that seem least useful. joblib's own format is pickle: a read of a result
runs code that the bytes choose. The directory must be one that no other user can write to.

mmap_mode maps nothing: an entry may be evicted while its file is mapped. But joblib then reads each
new result back, and raises KeyError if the store did not take it. compress works as usual. joblib
says of a result that no tier takes that it was "unable to cache to disk".
"""

from __future__ import annotations

import io
import warnings
from datetime import datetime
from typing import Any

from .._cache import Cache
from .._files import Writer
from ._backing import needs, open_cache, shortened

try:
    from joblib import register_store_backend
    from joblib._store_backends import CacheItemInfo, StoreBackendBase, StoreBackendMixin
except ImportError as error:
    raise needs("joblib", "joblib", "joblib") from error

_RESULT = "/output.pkl"
_LONGEST, _KEPT = 1000, 900
_NAMES = ("output.pkl", "metadata.json", "func_code.py")


class HutchStoreBackend(StoreBackendBase, StoreBackendMixin):
    """The items of a joblib.Memory as entries of a hutch.Cache; their paths are the keys.

    Backend options: compress, and those of hutch.Cache. A limit of the disk that is not given is
    10 GB, and an entry at most a quarter of it.
    """

    def configure(
        self, location: str, verbose: int = 1, backend_options: dict[str, Any] | None = None
    ) -> None:
        options = dict(backend_options or {})
        self.location = location
        self.verbose = verbose
        self.compress = options.pop("compress", False)
        self.mmap_mode = None
        if options.pop("mmap_mode", None) is not None:
            warnings.warn("the backend hutch maps no files: mmap_mode is ignored", stacklevel=2)
        # Entries are bytes, and joblib's own pickle is within them.
        chosen = {"disk": "10 GB", **options, "serializer": None}
        self.cache: Cache = open_cache(location, chosen)

    def _key(self, path: str) -> str:
        """The path within the store, so that a directory that is moved keeps its entries."""
        return "/".join(map(_short, path[len(self.location) :].lstrip("/").split("/")))

    def _open_item(self, f: str, mode: str) -> Any:
        key = self._key(f)
        if "w" in mode:
            return _Pieces(self.cache.writer(key, expire=float("inf")))
        try:
            return self.cache.read(key)
        except KeyError:
            raise FileNotFoundError(f"{f} is not in the cache") from None

    def _concurrency_safe_write(self, to_write: Any, filename: str, write_func: Any) -> None:
        # An entry becomes visible when it is complete, and needs no temporary name.
        write_func(to_write, filename)

    def _move_item(self, src: str, dst: str) -> None:
        value = self.cache.pop(self._key(src))
        if value is not None:
            self.cache.set(self._key(dst), value, float("inf"))

    def _item_exists(self, location: str) -> Any:
        # For a folder the question is whether it must be made, or may be cleared.
        return not location.endswith(_NAMES) or self._key(location) in self.cache

    def create_location(self, location: str) -> None:
        """Does nothing: keys need no folders."""

    def clear_location(self, location: str) -> None:
        prefix = self._key(location)
        if prefix:
            self.cache.remove_prefix(prefix + "/")
        else:
            self.cache.clear()

    def get_items(self) -> Any:
        """The results, of which Memory.reduce_size removes the least recently used."""
        keys = [key for key in self.cache if type(key) is str and key.endswith(_RESULT)]
        return [
            CacheItemInfo(
                f"{self.location}/{key[: -len(_RESULT)]}",
                info.size,
                datetime.fromtimestamp(info.accessed),
            )
            for key, info in self.cache.infos(keys).items()
        ]


def _short(name: str) -> str:
    """A part of a path; its beginning and its digest, if it is longer than in any file system."""
    if len(name) <= _LONGEST:
        return name
    short: str = shortened(name, _KEPT)
    return short


class _Pieces(io.RawIOBase):
    """A file that is written once: its close stores the entry."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        count = self._writer.write(memoryview(data).cast("B"))
        self._size += count
        return count

    def tell(self) -> int:
        return self._size

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self._writer.__exit__(kind, error, trace)
        self.close()

    def close(self) -> None:
        if not self.closed:
            super().close()
            if not self._writer._has_ended:
                self._writer.commit()


def register() -> None:
    """Make the backend known to joblib under the name "hutch"."""
    register_store_backend("hutch", HutchStoreBackend)
