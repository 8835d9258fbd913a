"""The views of a cache's tiers."""

from __future__ import annotations

from collections.abc import MutableMapping

from . import _accelerator
from ._control import Entries
from ._process import hint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._cache import Cache
    from ._records import Tier
else:
    hint(globals(), "Any", "Cache", "Tier")


@_accelerator.adopt
class TierView(_accelerator.Fast, Entries):
    """One tier of a cache, as a cache: see Cache.memory and Cache.disk.

    Keeps its cache from being collected. After the cache's close: ClosedError.
    """

    def __init__(self, cache: Cache, tier: Tier) -> None:
        from ._opening import open_view

        self._cache = cache
        self._tier = tier
        self._has_object_codec: bool = cache._has_object_codec
        open_view(self, cache, tier)

    def _now(self) -> int:
        return self._cache._now()

    def __repr__(self) -> str:
        return f"{self._cache!r}.{self._tier.name.lower()}"

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._cache, self._tier.name.lower())


if not TYPE_CHECKING:
    MutableMapping.register(TierView)
