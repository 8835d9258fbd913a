"""The values of Tests/ABI/value_tool.c, made in Python: a seed and a number decide each."""

from __future__ import annotations

import subprocess
from functools import lru_cache
from pathlib import Path

PERIOD = 1000003
LARGEST = 8 << 20
LOOP_KEYS = 16
LOOP_INLINE_THRESHOLD = 4096
_MASK = 2**64 - 1


def mix(x: int) -> int:
    """SplitMix64's step."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def draw(seed: int, number: int, purpose: int) -> int:
    return mix((mix((mix(seed) + number) & _MASK) + purpose) & _MASK)


@lru_cache(maxsize=1)
def noise(seed: int) -> bytes:
    words = (mix(seed + i).to_bytes(8, "little") for i in range((PERIOD + 7) // 8))
    return b"".join(words)[:PERIOD]


def make_value(seed: int, number: int, size: int) -> bytes:
    place = draw(seed, number, 1) % PERIOD
    source = noise(seed)
    text = source[place : place + size]
    if len(text) < size:
        text += (source * ((size - len(text)) // PERIOD + 1))[: size - len(text)]
    head = number.to_bytes(8, "little")[:size]
    return head + text[len(head) :]


def exchange_size(seed: int, number: int) -> int:
    if number == 0:
        return 0
    if number == 1:
        return LARGEST
    random = draw(seed, number, 2)
    bits, other = random % 24, (random >> 16) % 24
    if random >> 32 & 1 and other < bits:
        bits = other
    return draw(seed, number, 3) % (1 << bits)


def loop_size(seed: int, number: int) -> int:
    return 8 + draw(seed, number, 3) % (1 << draw(seed, number, 2) % 18)


def loop_removes(seed: int, number: int) -> bool:
    return draw(seed, number, 4) % 8 == 0


def build_tool(root: Path, into: Path) -> Path:
    """Compile value_tool.c with the system's C compiler."""
    tool = into / "value_tool"
    source = root / "Tests" / "ABI" / "value_tool.c"
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{root / 'include'}"]
    command: list[str] = ["cc", *flags, str(source), "-o", str(tool), "-ldl"]
    subprocess.run(command, check=True)
    return tool
