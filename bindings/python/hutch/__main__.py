"""python -m hutch copy OLD NEW: copies the entries of a directory to another one."""

from __future__ import annotations

import argparse
import os
import sys

from ._cache import Cache
from ._errors import Error


def _has_cache(directory: str) -> bool:
    # Either store has a file of this name.
    return os.path.isfile(os.path.join(directory, "manifest.sqlite"))


def main(arguments: list[str] | None = None) -> int:
    """The command; 0: done, 1: failed, 3: done, but entries were left out."""
    parser = argparse.ArgumentParser(prog="python -m hutch")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser(
        "copy",
        help="copy all live entries of a directory to another one",
        description="NEW gets the limits of OLD if it is new. Nothing is removed from OLD, which "
        "other processes may have open. Entries that a codec has made are left out: a program that "
        "has the codec copies them with Cache.copy_to.",
    )
    command.add_argument("old", metavar="OLD")
    command.add_argument("new", metavar="NEW")
    command.add_argument(
        "--storage", choices=("mixed", "sqlite", "file", "log"), help="the kind of NEW if it is new"
    )
    given = parser.parse_args(arguments)
    try:
        if not _has_cache(given.old):
            raise FileNotFoundError(f"{given.old} is not a cache's directory")
        with Cache(given.old) as old:
            # Those of a directory that has entries stay: smaller ones would evict them.
            limits = None if _has_cache(given.new) else old.limits().disk
            with Cache(given.new, storage=given.storage, disk=limits) as new:
                report = old.copy_to(new)
    except (OSError, Error) as error:
        print(f"hutch: {error}", file=sys.stderr)
        return 1
    print(report)
    return 3 if report.existing or report.refused else 0


if __name__ == "__main__":
    sys.exit(main())
