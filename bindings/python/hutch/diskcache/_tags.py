"""The entries with a tag: only this module knows how to find them."""

from __future__ import annotations

from typing import Any

from ._keys import HutchKey
from ._record import Record
from ._store import Store


def tagged(store: Store, tag: Any) -> list[HutchKey]:
    """The keys of hutch of the entries with a tag, by a scan of all entries."""
    names: list[Any] = []
    if tag is None:
        return names
    for name, found in store.entries.disk.items():
        record = Record.decode(*found)
        if record is not None and record.tag == tag:
            names.append(name)
    return names
