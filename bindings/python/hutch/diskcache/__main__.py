"""python -m hutch.diskcache migrate OLD NEW: moves from python-diskcache."""

from __future__ import annotations

import argparse
import sqlite3
import sys

from .._errors import Error
from ._migrate import migrate

_WIDTH = 40


def _bar(done: int, total: int) -> None:
    """Print the progress, about a hundred times in all."""
    if done % max(1, total // 100) and done != total:
        return
    filled = _WIDTH * done // max(1, total)
    end = "\n" if done >= total else ""
    bar = "#" * filled + "." * (_WIDTH - filled)
    sys.stderr.write(f"\r[{bar}] {done} of {total}{end}")
    sys.stderr.flush()


def main(arguments: list[str] | None = None) -> int:
    """The command; 0: done, 1: failed, 3: done, but damaged entries were left out; 130: Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m hutch.diskcache")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser(
        "migrate",
        help="copy a directory of python-diskcache, of a Cache or a FanoutCache, to a new one",
        description="OLD is only read. Entries whose key or value is a pickle are left out.",
    )
    command.add_argument("old", metavar="OLD")
    command.add_argument("new", metavar="NEW")
    command.add_argument(
        "--pickle",
        action="store_true",
        help="read pickles too, which runs any code that another program has put into OLD; NEW is "
        "then to be opened with disk=PickleDisk",
    )
    command.add_argument("--quiet", action="store_true", help="no progress bar")
    given = parser.parse_args(arguments)
    try:
        report = migrate(given.old, given.new, given.pickle, None if given.quiet else _bar)
    except (OSError, sqlite3.Error, Error) as error:
        print(f"hutch.diskcache: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        words = f"interrupted; {given.new} has a part of the entries: remove it to begin again"
        print(f"\nhutch.diskcache: {words}", file=sys.stderr)
        return 130
    print(report)
    return 3 if report.damaged else 0


if __name__ == "__main__":
    sys.exit(main())
