"""The types that _hints names. Imported when a program asks for the types of annotations.

Aliases of types are here if their module is to be imported without typing.
"""

from __future__ import annotations

import os
import typing
from collections.abc import Mapping as Mapping
from types import TracebackType as TracebackType
from typing import TYPE_CHECKING, Any, Callable, Protocol, TypeVar, Union

from ._cache import Cache as Cache
from ._codec_hook import Codec as Codec
from ._events import EventKind as EventKind
from ._events import Listener as Listener
from ._events import Listening as Listening
from ._files import Writer as Writer
from ._http_body import Stream as Stream
from ._http_response import Response as Response
from ._limits import TierLimits
from ._memoize import CacheInfo
from ._object_codec import CachedObjects as CachedObjects
from ._queues import Queue as Queue
from ._records import CacheLimits as CacheLimits
from ._records import CacheOptions as CacheOptions
from ._records import CacheStats as CacheStats
from ._records import CheckReport as CheckReport
from ._records import CopyReport as CopyReport
from ._records import Entry as Entry
from ._records import EntryInfo as EntryInfo
from ._records import PutResult as PutResult
from ._records import Tier as Tier
from ._serializers import Serializer as Serializer
from ._tier_view import TierView as TierView
from ._units import Seconds as Seconds
from ._units import Size as Size
from ._walks import Order as Order

if TYPE_CHECKING:
    from typing_extensions import ParamSpec
    from typing_extensions import Self as Self
    from typing_extensions import Unpack as Unpack
else:

    class _Item:
        def __class_getitem__(cls, item: Any) -> Any:
            return item

    # Older Pythons have less in typing.
    ParamSpec = getattr(typing, "ParamSpec", TypeVar)
    Self = getattr(typing, "Self", Any)
    Unpack = getattr(typing, "Unpack", _Item)

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Path = Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]

Limits = Union[TierLimits, float, str]
"""The limits of a tier; of a size alone, those of its cost."""

Clock = Callable[[], int]
"""Gives the time in Unix nanoseconds. Must not use its cache. Its exceptions go to
sys.unraisablehook; the time is then that of the call before."""


class Memoized(Protocol[P, R]):
    """A function whose results are cached."""

    @property
    def __wrapped__(self) -> Callable[P, R]: ...
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def __get__(self, instance: Any, owner: Any = None, /) -> Memoized[..., R]: ...
    def __cache_key__(self, *args: P.args, **kwargs: P.kwargs) -> str: ...
    def cache_info(self) -> CacheInfo: ...
    def cache_clear(self) -> None: ...
    def cache_parameters(self) -> dict[str, Any]: ...


class Memoizer(Protocol):
    """The result of memoize."""

    def __call__(self, function: Callable[P, T], /) -> Memoized[P, T]: ...


class DiskMemoized(Protocol[P, R]):
    """A function whose results a cache of hutch.diskcache keeps."""

    @property
    def __wrapped__(self) -> Callable[P, R]: ...
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def __get__(self, instance: Any, owner: Any = None, /) -> DiskMemoized[..., R]: ...
    def __cache_key__(self, *args: P.args, **kwargs: P.kwargs) -> tuple[Any, ...]: ...


class DiskMemoizer(Protocol):
    """The result of memoize of hutch.diskcache."""

    def __call__(self, function: Callable[P, T], /) -> DiskMemoized[P, T]: ...


class Decorator(Protocol):
    """What returns a function with the parameters and the result of another one."""

    def __call__(self, function: F, /) -> F: ...
