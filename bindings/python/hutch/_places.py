"""Where libhutch may be, in the order in which the package looks:

1. the file that the environment variable HUTCH_LIBRARY names, and no other;
2. a libhutch.so beside this package, as a wheel carries it;
3. build/libhutch.so of the checkout that this package is part of;
4. what the system's loader knows as libhutch.so.0.
"""

from __future__ import annotations

import os

PACKAGE = os.path.dirname(os.path.realpath(__file__))


def build_of_checkout() -> str | None:
    """The directory build of the checkout that this package is part of; None: there is none."""
    checkout = os.path.dirname(os.path.dirname(os.path.dirname(PACKAGE)))
    if os.path.isfile(os.path.join(checkout, "include", "hutch.h")):
        return os.path.join(checkout, "build")
    return None


def candidates() -> list[str]:
    """The names that the loader is to try."""
    chosen = os.environ.get("HUTCH_LIBRARY")
    if chosen:
        return [chosen]
    found = [os.path.join(PACKAGE, name) for name in ("libhutch.so", "libhutch.so.0")]
    built = build_of_checkout()
    if built is not None:
        found.append(os.path.join(built, "libhutch.so"))
    return [path for path in found if os.path.exists(path)] + ["libhutch.so.0"]
