"""What functions that C calls have in common."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any


def report(error: BaseException, what: str, function: Any) -> None:
    """Tell sys.unraisablehook what cannot pass through C."""
    sys.unraisablehook(
        SimpleNamespace(
            exc_type=type(error),
            exc_value=error,
            exc_traceback=error.__traceback__,
            err_msg=f"Exception in {what}",
            object=function,
        )
    )
