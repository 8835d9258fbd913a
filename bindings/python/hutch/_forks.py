"""No warning of a fork where only caches have threads.

From Python 3.12 on os.fork warns if the process has several threads, since a lock of another thread
would stay taken in the child. The library waits for its threads before a fork, and the child makes
its own. A thread of the program is a reason for the warning, as it is without a cache.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

_THREAD = "hutch-task"
"""What the library calls each of its threads."""

_WORDS = r"This process \(pid=\d+\) is multi-threaded, use of fork"

_added: list[object] = []
"""The filter of the fork before."""


def before_fork() -> None:
    """Add a filter for the warning of the fork that follows, or take that of the last one away.

    There is no place for this behind the warning, which comes after all handlers of the fork.
    """
    filters: Any = warnings.filters  # A list, of which its type says less.
    for item in _added:
        filters[:] = [each for each in filters if each is not item]
    _added.clear()
    if _has_threads_of_caches_only():
        warnings.filterwarnings("ignore", _WORDS, DeprecationWarning)
        _added.append(warnings.filters[0])


def _has_threads_of_caches_only() -> bool:
    own = others = 0
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:
        return False
    for thread in threads:
        try:
            with open(f"/proc/self/task/{thread}/comm", encoding="utf-8") as file:
                is_own = file.read().rstrip("\n") == _THREAD
        except OSError:
            continue  # It has ended.
        own += is_own
        others += not is_own
    return own > 0 and others == 1
