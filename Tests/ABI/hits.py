#!/usr/bin/env python3
"""A hit allocates nothing and counts no reference to a Swift object: hits.py VALGRIND PROGRAM

Runs the program under callgrind, which notes every function that is called within hutch_get
and the other calls that read.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

POLICIES = {"adaptive": 4, "lru": 1, "lfu": 2, "fifo": 3}
# What must not be called, and what must, or nothing was looked at.
FORBIDDEN = re.compile(
    r"^(malloc|calloc|realloc|aligned_alloc|posix_memalign|free|_int_malloc|_int_free"
    r"|swift_(retain|release|alloc|dealloc|bridge|unknown).*)$"
)
NEEDED = {"hutch_get", "hutch_get_into", "hutch_look", "hutch_contains"}


def called_within(valgrind, program, policy):
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "callgrind"
        command = [valgrind, "--tool=callgrind", f"--callgrind-out-file={out}"]
        command += [f"--toggle-collect={name}" for name in sorted(NEEDED)]
        done = subprocess.run([*command, program, str(policy)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{program} ended with {done.returncode}:\n{done.stderr}")
        return set(re.findall(r"^c?fn=\(\d+\) ([^\s'@]+)", out.read_text(), re.M))


def main():
    valgrind, program = sys.argv[1:]
    problems = []
    for name, number in POLICIES.items():
        called = called_within(valgrind, program, number)
        if not NEEDED <= called:
            problems.append(f"{name}: {NEEDED - called} were not seen")
        for function in sorted(called):
            if FORBIDDEN.match(function):
                problems.append(f"{name}: a hit calls {function}")
    print("\n".join(problems) or "hits: nothing allocated, nothing retained")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
