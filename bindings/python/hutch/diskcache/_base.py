"""The base of the parts of a cache: its directory, settings and transactions."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Union

from .._cbor import Unreadable
from .._process import hint
from ._constants import (
    DBNAME,
    DEFAULT_SETTINGS,
    ENOVAL,
    EVICTION_POLICY,
    METADATA,
    MODE_BINARY,
    OldDirectoryWarning,
)
from ._disk import Disk
from ._keys import HutchKey, fields, is_long, long_fields
from ._lock import Holding
from ._record import Record
from ._store import Store, open_store, stored_settings

if TYPE_CHECKING:
    from typing_extensions import Self
else:
    hint(globals(), "Self")

_TRIES = 4
"""How often the end of a transaction begins to undo its writes."""

_ORDERS = (None, "insertion", "access")
_POLICIES = [policy for policy, order in EVICTION_POLICY.items() if order in _ORDERS]

Directory = Union[str, "os.PathLike[str]", None]


def full_path(directory: Directory) -> str:
    """The path with "~" and variables filled in; of None, a new temporary directory. Of what is no
    path, as the int that a program gives for a seed, its str."""
    if directory is None:
        return tempfile.mkdtemp(prefix="diskcache-")
    path = os.fspath(directory) if isinstance(directory, os.PathLike) else str(directory)
    return os.path.expandvars(os.path.expanduser(path))


class _Use:
    """The use of a cache by a thread. It ends with close() in the thread, or with the thread."""

    process = 0  # Until it has begun, and after its end.

    def __init__(self, cache: Base) -> None:
        self.cache = cache
        self.process = os.getpid()
        self.token = object()

    def end(self) -> None:
        """Have the cache closed, if this is its last use."""
        # A fork ends the parent's other threads in the child, where one of them may have the
        # lock. _begin_child counts anew.
        if self.process == os.getpid():
            self.cache._end_use(self.token)
            self.process = 0

    __del__ = end


_caches: weakref.WeakSet[Base] = weakref.WeakSet()


def _begin_children() -> None:
    for cache in list(_caches):
        cache._begin_child()


os.register_at_fork(after_in_child=_begin_children)


class Base:
    """A directory, settings, transactions.

    As in python-diskcache, close() is for the calling thread, and a cache opens again when it is
    next used. The directory is closed when no thread uses it through any object.
    """

    statistics: int
    tag_index: int
    eviction_policy: str
    size_limit: int
    cull_limit: int
    disk_min_file_size: int
    count: int
    size: int
    hits: int
    misses: int
    _disk_type: ClassVar[type[Disk]] = Disk

    def __init__(
        self,
        directory: Directory = None,
        timeout: float = 60,
        disk: type[Disk] | None = None,
        *,
        _memory: int | None = None,
        **settings: Any,
    ) -> None:
        disk = self._disk_type if disk is None else disk
        if not (isinstance(disk, type) and issubclass(disk, Disk)):
            raise ValueError("disk is hutch.diskcache.Disk or a subclass of it, not an object")
        self._directory = full_path(directory)
        self._timeout = timeout
        self._memory = _memory
        self._local = threading.local()
        # Protects _store and _uses. A garbage collection may end a thread's use within _open.
        self._lock = threading.RLock()
        self._store: Store | None = None
        self._uses: set[object] = set()  # The tokens of the uses.
        _caches.add(self)
        try:
            os.makedirs(self._directory, 0o755, exist_ok=True)
        except OSError as error:
            words = f"the cache's directory {self._directory!r} cannot be made"
            raise OSError(error.errno, words) from None
        if os.path.exists(os.path.join(self._directory, DBNAME)):
            warnings.warn(
                f"{self._directory} has a cache of python-diskcache, which is not read: "
                "python -m hutch.diskcache migrate copies its entries to a new directory",
                OldDirectoryWarning,
                stacklevel=3,
            )
        settings = {name: of for name, of in settings.items() if name not in METADATA}
        self._settings = {**DEFAULT_SETTINGS, **self._stored(), **settings}
        kwargs = {name[5:]: of for name, of in self._settings.items() if name.startswith("disk_")}
        self._disk = disk(self._directory, **kwargs)
        for name, value in self._settings.items():
            _check_setting(name, value)
            setattr(self, name, value)
        kept = _kept(self._settings)
        self._open()
        if stored_settings(self._directory) != kept:
            with self._transact(retry=True) as store:
                store.set_settings(kept)
        for name in METADATA:
            self.reset(name)

    # ----------------------------------------------------------- properties

    @property
    def directory(self) -> str:
        """The directory, as a str."""
        return self._directory

    @property
    def timeout(self) -> float:
        """The time in seconds that a write waits for other writers, if it does not retry."""
        return self._timeout

    @property
    def disk(self) -> Disk:
        """The object that converts keys and values."""
        return self._disk

    # ----------------------------------------------------------- open, close

    def _open(self) -> Store:
        """The store, opened if it is not, for the use of this thread."""
        store = self._store
        if store is not None and getattr(self._local, "use", None) is not None:
            return store
        with self._lock:
            if getattr(self._local, "use", None) is None:
                use = _Use(self)
                self._uses.add(use.token)
                self._local.use = use
            store = self._store
            if store is None:
                inline = max(1, int(self._settings["disk_min_file_size"]) - 1)
                store = self._store = open_store(self._directory, inline, self._memory)
        return store

    def _end_use(self, token: object) -> None:
        with self._lock:
            self._uses.discard(token)
            if self._uses:
                return
            # The store closes with the last object that has it.
            self._store = None

    def _begin_child(self) -> None:
        """In the child of a fork: of the threads that used the cache this one is left."""
        self._lock = threading.RLock()
        use = getattr(self._local, "use", None)
        if use is not None:
            use.process = os.getpid()
        self._uses = set() if use is None else {use.token}
        if use is None:
            self._store = None

    def close(self) -> None:
        """End this thread's use. The next call opens the cache again."""
        use = getattr(self._local, "use", None)
        if use is not None:
            # Not by its collection, where Ctrl-C would be ignored, and the close undone.
            use.end()
            self._local.use = None

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> Any:
        return self.directory, self.timeout, type(self.disk)

    def __setstate__(self, state: Any) -> None:
        self.__init__(*state)  # type: ignore[misc]

    # ---------------------------------------------------------- transactions

    @contextmanager
    def transact(self, retry: bool = False) -> Iterator[None]:
        """Exclude all other writers of the directory, in this and in other processes.

        If the block raises, its writes are undone. Readers see each write of the
        block as it is made. If the process is killed in the block, its writes stay. May be
        nested. Timeout: another writer takes longer than the cache's timeout; with retry, the
        call waits.
        """
        with self._transact(retry) as store:
            if store.undo is not None:
                yield
                return
            undo = store.undo = {}
            try:
                yield
            except BaseException:
                tries, failure = _TRIES, None
                # Else this is a child process, and the block is the parent's.
                while store.undo is undo and tries:
                    try:
                        self._take_back(store, undo)
                    except BaseException as error:
                        # What the handler of a signal raises waits, or a part of the writes stays.
                        store.undo, failure, tries = undo, error, tries - 1
                if failure is not None:
                    raise failure
                raise
            finally:
                if store.undo is undo or store.undo is None:
                    store.undo = None
                    self._remove_files(store)

    def _transact(self, retry: bool = False) -> Holding:
        """A block that holds the writer lock; Timeout: as in transact."""
        return Holding(self._open(), None if retry else self._timeout)

    def _take_back(self, store: Store, undo: dict[HutchKey, Record | None]) -> None:
        """Undo the writes of a block. A call that was interrupted can be repeated."""
        store.undo = None
        store.ends.forget()
        for key, old in undo.items():
            now = store.find(key)
            if old is None or (has_expired(old) and not old.lingers):
                store.drop(key, now)
            else:
                # A push of the block may have begun a queue anew that seemed empty.
                store.widen(key)
                store.state.set_moved(old.place)
                store.put(key, old, now, seconds_left(old))
        store.state.next_place()  # Other processes may know of the order of keys without these.
        store.replaced_files, store.made_files = store.made_files, []

    def _remove_files(self, store: Store) -> None:
        if not store.replaced_files and not store.made_files:
            return
        names, store.replaced_files, store.made_files = store.replaced_files, [], []
        for name in names:
            self._disk.remove(name)

    # --------------------------------------------------------------- entries

    def _find(self, store: Store, key: HutchKey) -> Record | None:
        """The entry, if it has not expired."""
        record = store.find(key)
        return None if record is None or has_expired(record) else record

    def _write(self, store: Store, key: HutchKey, record: Record, old: Record | None) -> None:
        """Store an entry in place of the old one. Needs the lock."""
        lasts = None
        if record.expires is not None or record.lingers:
            lingers = self._lingers(record)
            if lingers != record.lingers:
                record = record._replace(lingers=lingers)
            lasts = seconds_left(record)
        store.put(key, record, old, lasts)
        if record.filename is not None or (old is not None and old.filename is not None):
            self._forget_file(store, old, record.filename)
            if record.filename is not None:
                store.made_files.append(record.filename)
            if store.undo is None:
                self._remove_files(store)

    def _lingers(self, record: Record) -> bool:
        """Whether this module is to remove the entry when it expires, and hutch is not: it has a
        file, which must go with it, or a cull_limit of 0 keeps expired entries until expire()."""
        return record.expires is not None and (record.filename is not None or not self.cull_limit)

    def _drop(self, store: Store, key: HutchKey, old: Record | None) -> None:
        """Remove an entry and its file. Needs the lock."""
        store.drop(key, old)
        self._forget_file(store, old, None)
        if store.undo is None:
            self._remove_files(store)

    def _drop_all(self, store: Store, entries: list[tuple[HutchKey, Record | None]]) -> None:
        """Remove entries and their files, in less time than one by one. Needs the lock."""
        store.drop_all(entries)
        for _, old in entries:
            self._forget_file(store, old, None)
        if store.undo is None:
            self._remove_files(store)

    def _forget_file(self, store: Store, old: Record | None, new: str | None) -> None:
        if old is not None and old.filename is not None and old.filename != new:
            store.replaced_files.append(old.filename)

    def _fetch(self, store: Store, key: HutchKey, record: Record, read: bool = False) -> Any:
        """The value. OSError: its file does not exist, or its bytes are damaged."""
        value = record.value
        if read and record.mode == MODE_BINARY and not (record.filename or record.long_key):
            value = _file_of(store, key) or value
        try:
            return self._disk.fetch(record.mode, record.filename, value, read)
        except Unreadable as error:
            raise OSError(f"a stored value cannot be read: {error}") from None

    def _own_key(self, key: HutchKey, record: Record | None) -> Any:
        """The caller's key."""
        if is_long(key):
            if record is None:
                raise ValueError("the key of no entry")
            return self._disk.get(*long_fields(record.long_key))
        return self._disk.get(*fields(key))

    # -------------------------------------------------------------- settings

    def _stored(self) -> dict[str, Any]:
        """The settings that the directory has, without what cannot be one: another program may have
        written them, and each becomes an attribute of this object."""
        stored = stored_settings(self._directory)
        return {name: of for name, of in stored.items() if _is_setting(type(self), name, of)}

    def reset(self, key: str, value: Any = ENOVAL, update: bool = True) -> Any:
        """Set a setting, in the directory too unless update is false; or read it again.

        The settings of disk_ are the Disk's attributes. "count", "size", "hits" and "misses" can
        only be read, and are attributes with what they were when they were last read here, or when
        the cache was made.
        """
        if key in METADATA:
            store = self._open()
            if value is not ENOVAL and key in ("hits", "misses"):
                with self._transact(retry=True):
                    store.state.set_hits(*((value, None) if key == "hits" else (None, value)))
            if key == "count":
                now: Any = len(store.entries)
            elif key == "size":
                now = store.volume()
            else:
                now = store.state.hits()[key == "misses"]
            setattr(self, key, now)
            return now
        if value is ENOVAL:
            value = self._stored()[key]
        _check_setting(key, value)
        if update:
            with self._transact(retry=True) as store:
                kept = _kept({key: value}).get(key, ENOVAL)
                # A monitor asks for stats each second, which enables them again.
                if kept != stored_settings(self._directory).get(key, ENOVAL):
                    store.set_settings(_kept({**self._stored(), key: value}))
        if key.startswith("disk_"):
            setattr(self._disk, key[5:], value)
        self._settings[key] = value
        setattr(self, key, value)
        return value


def has_expired(record: Record) -> bool:
    return record.expires is not None and record.expires <= time.time()


def seconds_left(record: Record) -> float | None:
    """The time to live of an entry in seconds; None: hutch does not remove it."""
    if record.expires is None or record.lingers:
        return None
    return max(0.0, record.expires - time.time())


def _file_of(store: Store, key: HutchKey) -> Any:
    """The value's own file in the directory, open; None: it has none."""
    from .._errors import StorageError, WrongTypeError

    try:
        return open(store.entries.path(key), "rb")
    except (KeyError, OSError, WrongTypeError, StorageError):
        return None


def _is_setting(cls: type[Base], name: str, value: Any) -> bool:
    if name == "eviction_policy":
        return value in _POLICIES
    default = DEFAULT_SETTINGS.get(name)
    if default is None:
        return not name.startswith("_") and name not in METADATA and not hasattr(cls, name)
    if isinstance(default, str):
        return isinstance(value, str)
    if not isinstance(value, (int, float)):
        return False
    if name == "cull_limit":  # Below 0: no limit.
        return isinstance(value, int) and -(2**62) < value < 2**62
    return 0 <= value < 2**62 or (name == "size_limit" and value > 0)


def _check_setting(name: str, value: Any) -> None:
    if name != "eviction_policy":
        return
    if value not in _POLICIES:
        raise ValueError(
            f"eviction_policy is one of {', '.join(_POLICIES)}, not {value!r}; there is no "
            "counterpart to policies in SQL"
        )


def _kept(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that can be stored, as they are read."""
    kept: dict[str, Any] = {}
    for name, value in settings.items():
        if type(value) in (int, str):
            kept[name] = value
            continue
        try:
            kept[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError):
            continue
    return kept
