"""The recipes, as python-diskcache has them in one module."""

from __future__ import annotations

from ._locks import BoundedSemaphore, Lock, RLock, barrier
from ._rates import Averager, throttle
from ._stampede import memoize_stampede

__all__ = [
    "Averager",
    "BoundedSemaphore",
    "Lock",
    "RLock",
    "barrier",
    "memoize_stampede",
    "throttle",
]
