#!/usr/bin/env python3
"""The use of a cache: a slow function over many files, run three times.

    scripts/demo.py [DIRECTORY] [--cache DIR]

Reads every file below DIRECTORY (default: Python's standard library), counts its
words in plain Python, and keeps the results in a Hutch cache: first cold, then
again in the same process (answered from memory), then in a new process (answered
from disk). Exit status 1 if the three runs do not agree.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bindings" / "python"))

import hutch  # noqa: E402

TOKEN = re.compile(r"\w+|[^\w\s]")
SKIPPED = {"__pycache__", "site-packages", "dist-packages", ".git"}

# A result is kept by what it was made from. Another way to make it is another number.
ANALYSIS = 1


def analyse(path: str) -> dict[str, Any]:
    """Statistics of a file's words, and a digest of its tokens. The slow part."""
    with open(path, "rb") as file:
        data = file.read()
    if b"\0" in data[:4096]:
        return {"binary": True, "digest": hashlib.sha256(data).hexdigest()}
    text = data.decode("utf-8", "replace")
    tokens = TOKEN.findall(text)
    return {
        "lines": text.count("\n"),
        "tokens": len(tokens),
        "different": len(set(tokens)),
        "most": [[word, count] for word, count in Counter(tokens).most_common(10)],
        "longest": max(tokens, key=len, default="")[:100],
        "digest": hashlib.sha256("\0".join(tokens).encode()).hexdigest(),
    }


def files_below(directory: str) -> Iterator[tuple[str, os.stat_result]]:
    """Regular files that can be read, in the order of their paths."""
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(set(folders) - SKIPPED)
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and os.access(path, os.R_OK):
                yield path, os.stat(path)


def run(cache: hutch.Cache, directory: str) -> dict[str, Any]:
    """One pass over all files: how much, how long, and which tier answered."""
    files = list(files_below(directory))
    before, begin = cache.stats(), time.perf_counter()
    results = hashlib.sha256()
    size = 0
    for number, (path, status) in enumerate(files):
        key = f"analysis-{ANALYSIS}:{path}:{status.st_mtime_ns}:{status.st_size}"
        result = cache.get(key)
        if result is None:
            result = analyse(path)
            cache[key] = result
        results.update(json.dumps([path, result], sort_keys=True).encode())
        size += status.st_size
        if sys.stdout.isatty() and number % 50 == 0:
            print(f"\r{number} of {len(files)} files", end="", flush=True)
    seconds = time.perf_counter() - begin
    if sys.stdout.isatty():
        print("\r\033[K", end="", flush=True)
    after = cache.stats()
    return {
        "files": len(files),
        "bytes": size,
        "seconds": seconds,
        "memory": [
            after.memory.hits - before.memory.hits,
            after.memory.misses - before.memory.misses,
        ],
        "disk": [after.disk.hits - before.disk.hits, after.disk.misses - before.disk.misses],
        "results": results.hexdigest(),
    }


def open_cache(directory: str, storage: str | None = None) -> hutch.Cache:
    return hutch.Cache(directory, storage=storage, disk=hutch.TierLimits(cost=500_000_000))


def run_in_a_new_process(directory: str, cache: str) -> dict[str, Any]:
    command = [sys.executable, os.path.abspath(__file__), directory, "--cache", cache, "--one-run"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def print_table(runs: list[tuple[str, dict[str, Any]]]) -> None:
    columns = "{:<18} {:>7} {:>13} {:>9} {:>9} {:>15} {:>15}"
    print(columns.format("run", "files", "bytes", "seconds", "speed-up", "memory", "disk"))
    print(columns.format("", "", "", "", "", "hits/misses", "hits/misses"))
    first = runs[0][1]["seconds"]
    for name, it in runs:
        print(
            columns.format(
                name,
                f"{it['files']:,}",
                f"{it['bytes']:,}",
                f"{it['seconds']:.3f}",
                f"{first / it['seconds']:.1f}x",
                "{:,}/{:,}".format(*it["memory"]),
                "{:,}/{:,}".format(*it["disk"]),
            )
        )


def demonstrate(directory: str, cache_directory: str, storage: str | None) -> int:
    with open_cache(cache_directory, storage) as cache:
        first = "first" if len(cache) else "cold"
        runs = [(first, run(cache, directory)), ("warm", run(cache, directory))]
    runs.append(("warm, new process", run_in_a_new_process(directory, cache_directory)))
    print_table(runs)
    if len({it["results"] for _, it in runs}) != 1:
        print("the runs do not agree", file=sys.stderr)
        return 1
    print("the three runs gave the same results")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="A slow function over many files, three times.")
    parser.add_argument("directory", nargs="?", default=sysconfig.get_path("stdlib"))
    parser.add_argument(
        "--cache", metavar="DIR", help="keep results here, not in a temporary place"
    )
    parser.add_argument(
        "--storage", choices=["mixed", "sqlite", "file", "log"], help="the kind of a new directory"
    )
    parser.add_argument("--one-run", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if not os.path.isdir(chosen.directory):
        parser.error(f"{chosen.directory} is no directory")
    if chosen.one_run:
        with open_cache(chosen.cache) as cache:
            json.dump(run(cache, chosen.directory), sys.stdout)
        return 0
    if chosen.cache:
        return demonstrate(chosen.directory, chosen.cache, chosen.storage)
    with tempfile.TemporaryDirectory(prefix="hutch-demo-") as temporary:
        return demonstrate(chosen.directory, os.path.join(temporary, "cache"), chosen.storage)


if __name__ == "__main__":
    sys.exit(main())
