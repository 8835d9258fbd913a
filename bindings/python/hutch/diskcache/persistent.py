"""Deque and Index, as python-diskcache has them in one module."""

from __future__ import annotations

from ._deque import Deque
from ._index import Index

__all__ = ["Deque", "Index"]
