"""hutch.diskcache beside python-diskcache, call by call and value by value.

    python3 module.py [rounds] [cpu] [name ...]

Sets and gets of natural values, then each kind of call, in fresh directories below TMPDIR. The two
take turns, round by round; printed are medians over the rounds in microseconds a call, or an
entry, and their ratio: above 1, hutch.diskcache is the slower one. With cpu they are CPU time of
the process, the library's threads included, which other processes disturb less. With names, only
the values and the parts that begin with one of them. Needs diskcache from PyPI, and libhutch as the
package finds it.
"""

from __future__ import annotations

import datetime
import decimal
import gc
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Iterator

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bindings" / "python"))

import diskcache  # noqa: E402
import hutch.diskcache  # noqa: E402

Times = Iterator[tuple[str, int, Callable[[], Any]]]
"""Names of rows, the number of calls or entries of each, and the work."""

MODULES: tuple[ModuleType, ModuleType] = (hutch.diskcache, diskcache)
COUNT = 300

clock = time.process_time if "cpu" in sys.argv[1:] else time.perf_counter


def values() -> dict[str, Any]:
    chance = random.Random(7)
    words = ["".join(chance.choices("abcdefghij", k=chance.randint(3, 9))) for _ in range(500)]
    message = {"role": "assistant", "content": " ".join(words[:80])}
    answer = {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1700000000, "model": "m-4",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 80, "total_tokens": 92},
    }
    row = {"id": 7, "name": "Ann", "price": 9.5, "tags": ["a", "b"], "active": True, "next": None}
    day = datetime.datetime(2026, 5, 1, 12, 30)
    return {
        "int": 7,
        "float": 0.5,
        "None": None,
        "bool": True,
        "str, 20": "x" * 20,
        "str, 20,000": "x" * 20_000,
        "bytes, 1,000": bytes(1000),
        "3 floats": [0.1, 0.2, 0.3],
        "384 floats": [chance.gauss(0, 1) for _ in range(384)],
        "1,536 floats": [chance.gauss(0, 1) for _ in range(1536)],
        "1,536 floats of a float32": [round(chance.gauss(0, 1), 7) for _ in range(1536)],
        "32 lists of 384 floats": [[chance.gauss(0, 1) for _ in range(384)] for _ in range(32)],
        "tuple of 1,536 floats": tuple(chance.gauss(0, 1) for _ in range(1536)),
        "dict of 500 floats": {word: chance.random() for word in words},
        "1,000 small ints": [chance.randrange(200) for _ in range(1000)],
        "1,000 ints": [chance.randrange(2**40) for _ in range(1000)],
        "tuple of 1,000 ints": tuple(chance.randrange(2**40) for _ in range(1000)),
        "set of 1,000 ints": {chance.randrange(2**40) for _ in range(1000)},
        "500 short strs": words,
        "500 strs, not ASCII": [word + "\xe9\u4e2d" for word in words],
        "tuple of 500 strs": tuple(words),
        "set of 500 strs": set(words),
        "1,000 bools": [chance.random() < 0.5 for _ in range(1000)],
        "small dict": row,
        "100 rows": [dict(row, id=number) for number in range(100)],
        "100 tuples": [(number, word, 0.25) for number, word in enumerate(words[:100])],
        "dict by ints": {number: words[number % 500] for number in range(200)},
        "LLM's answer": answer,
        "page": {"url": "https://example.com/", "status": 200, "text": "<p>" * 10_000},
        "page of bytes": {"url": "https://example.com/", "status": 200, "body": bytes(30_000)},
        "pair of bytes": (200, bytes(1000)),
        "datetime": day,
        "50 datetimes": [day + datetime.timedelta(hours=hour) for hour in range(50)],
        "50 Decimals": [decimal.Decimal(number) / 8 for number in range(50)],
        "50 UUIDs": [uuid.UUID(int=number) for number in range(50)],
        "nested tuples": (1, (2, (3, (4, "five", None, True)))),
    }


def of_value(value: Any) -> Callable[[ModuleType, str], Times]:
    def work(module: ModuleType, path: str) -> Times:
        cache = module.Cache(path)
        keys = [f"key-{number}" for number in range(60)]
        for key in keys:
            cache.set(key, value)
        yield "set", len(keys), lambda: [cache.set(key, value) for key in keys]
        yield "get", len(keys), lambda: [cache.get(key) for key in keys]
        assert cache.get("key-0") == value
        cache.close()

    return work


def calls(module: ModuleType, path: str) -> Times:
    cache = module.Cache(path)
    keys = [f"key-{number}" for number in range(COUNT)]
    value = bytes(100)
    yield "set", COUNT, lambda: [cache.set(key, value) for key in keys]
    yield "set again", COUNT, lambda: [cache.set(key, value) for key in keys]
    yield "set, expire", COUNT, lambda: [cache.set(key, value, expire=1000) for key in keys]
    yield "set, tag", COUNT, lambda: [cache.set(key, value, tag="tag") for key in keys]
    yield "[] =", COUNT, lambda: [cache.__setitem__(key, value) for key in keys]
    yield "get", COUNT, lambda: [cache.get(key) for key in keys]
    yield "[]", COUNT, lambda: [cache[key] for key in keys]
    yield "get, all", COUNT, lambda: [cache.get(key, expire_time=True, tag=True) for key in keys]
    yield "get, miss", COUNT, lambda: [cache.get("-" + key) for key in keys]
    yield "get, tuple", COUNT, lambda: [cache.get((key, 1)) for key in keys]
    yield "in", COUNT, lambda: [key in cache for key in keys]
    yield "in, miss", COUNT, lambda: ["-" + key in cache for key in keys]
    yield "add, there", COUNT, lambda: [cache.add(key, value) for key in keys]
    yield "add", COUNT, lambda: [cache.add("+" + key, value) for key in keys]
    yield "touch", COUNT, lambda: [cache.touch(key, 1000) for key in keys]
    yield "touch, None", COUNT, lambda: [cache.touch(key) for key in keys]
    yield "incr", COUNT, lambda: [cache.incr("n") for _ in keys]
    yield "incr, new", COUNT, lambda: [cache.incr("n" + key) for key in keys]
    yield "decr", COUNT, lambda: [cache.decr("n") for _ in keys]
    yield "pop", COUNT, lambda: [cache.pop(key) for key in keys]
    yield "pop, miss", COUNT, lambda: [cache.pop(key) for key in keys]
    yield "delete", COUNT, lambda: [cache.delete("+" + key) for key in keys]
    yield "delete, miss", COUNT, lambda: [cache.delete("+" + key) for key in keys]
    yield "push", COUNT, lambda: [cache.push(value) for _ in keys]
    yield "peek", COUNT, lambda: [cache.peek() for _ in keys]
    yield "pull", COUNT, lambda: [cache.pull() for _ in keys]
    yield "pull, empty", COUNT, lambda: [cache.pull() for _ in keys]
    yield "push, prefix", COUNT, lambda: [cache.push(value, prefix="q") for _ in keys]
    yield "pull, prefix", COUNT, lambda: [cache.pull(prefix="q") for _ in keys]
    yield "peekitem", COUNT, lambda: [cache.peekitem() for _ in keys]
    yield "stats", COUNT, lambda: [cache.stats() for _ in keys]
    yield "volume", COUNT, lambda: [cache.volume() for _ in keys]
    yield "len", COUNT, lambda: [len(cache) for _ in keys]
    yield "expire, none", COUNT, lambda: [cache.expire() for _ in keys]
    yield "cull, none", COUNT, lambda: [cache.cull() for _ in keys]
    yield "evict, none", COUNT, lambda: [cache.evict("no") for _ in keys]
    yield "reset", COUNT, lambda: [cache.reset("cull_limit", 10) for _ in keys]
    yield "reset, read", COUNT, lambda: [cache.reset("count") for _ in keys]

    def transacted(each: int) -> Callable[[], Any]:
        def work() -> None:
            for at in range(0, COUNT, each):
                with cache.transact():
                    for key in keys[at : at + each]:
                        cache.set(key, cache.get(key, 0))

        return work

    cache.clear()
    yield "transact, 1", COUNT, transacted(1)
    yield "transact, 10", COUNT, transacted(10)
    yield "transact, 300", COUNT, transacted(COUNT)
    cache.stats(enable=True)
    yield "get, counted", COUNT, lambda: [cache.get(key) for key in keys]
    cache.stats(enable=False)
    cache.close()
    yield "open, get, close", 20, lambda: [(cache.get("a"), cache.close()) for _ in range(20)]
    yield "Cache()", 20, lambda: [module.Cache(path).close() for _ in range(20)]


def policies(module: ModuleType, path: str) -> Times:
    for policy in "least-recently-used", "least-frequently-used":
        cache = module.Cache(os.path.join(path, policy), eviction_policy=policy)
        keys = [f"key-{number}" for number in range(COUNT)]
        short = policy[6:]
        yield f"set, {short}", COUNT, lambda: [cache.set(key, b"") for key in keys]
        yield f"get, {short}", COUNT, lambda: [cache.get(key) for key in keys]
        cache.close()


def walks(module: ModuleType, path: str) -> Times:
    cache = module.Cache(path)
    count = 1000

    def fill(**options: Any) -> None:
        with cache.transact():
            for number in range(count):
                cache.set(f"key-{number}", number, **options)

    fill()
    yield "list", count, lambda: list(cache)
    yield "list, again", count, lambda: list(cache)
    yield "reversed", count, lambda: list(reversed(cache))
    yield "iterkeys", count, lambda: list(cache.iterkeys())
    yield "next(iter)", 20, lambda: [next(iter(cache)) for _ in range(20)]
    yield "next(iterkeys)", 20, lambda: [next(cache.iterkeys()) for _ in range(20)]
    yield "items", count, lambda: [(key, cache[key]) for key in cache]
    yield "check", count, lambda: cache.check()
    fill(tag="tag")
    yield "evict", count, lambda: cache.evict("tag")
    # Else a set of python-diskcache removes ten of those before it.
    cache.reset("cull_limit", 0)
    fill(expire=0.001)
    time.sleep(0.01)
    yield "expire", count, lambda: cache.expire()
    cache.reset("cull_limit", 10)
    fill()
    yield "clear", count, lambda: cache.clear()
    fill()
    cache.reset("size_limit", 1)
    yield "cull", count, lambda: cache.cull()
    cache.reset("size_limit", 2**30)
    with cache.transact():
        for number in range(count):
            cache.set(("key", number), number)
    yield "list, tuples", count, lambda: list(cache)
    cache.close()


def structures(module: ModuleType, path: str) -> Times:
    deque = module.Deque(directory=os.path.join(path, "deque"))
    numbers = range(COUNT)
    yield "append", COUNT, lambda: [deque.append(number) for number in numbers]
    yield "appendleft", COUNT, lambda: [deque.appendleft(number) for number in numbers]
    yield "extend", COUNT, lambda: deque.extend(numbers)
    yield "deque[9]", 50, lambda: [deque[9] for _ in range(50)]
    yield "deque[-9]", 50, lambda: [deque[-9] for _ in range(50)]
    yield "deque[9] =", 50, lambda: [deque.__setitem__(9, 9) for _ in range(50)]
    yield "len", COUNT, lambda: [len(deque) for _ in numbers]
    yield "peek", COUNT, lambda: [deque.peek() for _ in numbers]
    yield "peekleft", COUNT, lambda: [deque.peekleft() for _ in numbers]
    yield "list(deque)", 3 * COUNT, lambda: list(deque)
    yield "reversed(deque)", 3 * COUNT, lambda: list(reversed(deque))
    yield "in", 300, lambda: 299 in deque
    yield "count", 3 * COUNT, lambda: deque.count(7)
    yield "rotate", 20, lambda: [deque.rotate(1) for _ in range(20)]
    yield "reverse", 3 * COUNT, lambda: deque.reverse()
    yield "copy", 3 * COUNT, lambda: deque.copy()
    yield "deque ==", 3 * COUNT, lambda: deque == list(deque)
    yield "popleft", COUNT, lambda: [deque.popleft() for _ in numbers]
    yield "pop", COUNT, lambda: [deque.pop() for _ in numbers]
    yield "clear", COUNT, lambda: deque.clear()
    small = module.Deque(directory=os.path.join(path, "small"), maxlen=10)
    yield "append, full", COUNT, lambda: [small.append(number) for number in numbers]
    index = module.Index(os.path.join(path, "index"))
    items = {f"key-{number}": number for number in numbers}
    yield "index.update", COUNT, lambda: index.update(items)
    yield "index[]", COUNT, lambda: [index[key] for key in items]
    yield "index[] =", COUNT, lambda: [index.__setitem__(key, 1) for key in items]
    yield "setdefault", COUNT, lambda: [index.setdefault(key, 1) for key in items]
    yield "index keys", COUNT, lambda: list(index)
    yield "index.items", COUNT, lambda: list(index.items())
    yield "index.values", COUNT, lambda: list(index.values())
    yield "index ==", COUNT, lambda: index == items
    yield "index.peekitem", COUNT, lambda: [index.peekitem() for _ in numbers]
    yield "index.pop", 100, lambda: [index.pop(f"key-{number}") for number in range(100)]
    yield "index.popitem", 100, lambda: [index.popitem() for _ in range(100)]
    yield "popitem, first", 100, lambda: [index.popitem(last=False) for _ in range(100)]
    yield "index.push", COUNT, lambda: [index.push(number) for number in numbers]
    yield "index.pull", COUNT, lambda: [index.pull() for _ in numbers]
    fanout = module.FanoutCache(os.path.join(path, "fanout"), shards=8)
    yield "fanout.set", COUNT, lambda: [fanout.set(key, 1) for key in items]
    yield "fanout.get", COUNT, lambda: [fanout.get(key) for key in items]
    yield "fanout.incr", COUNT, lambda: [fanout.incr("n") for key in items]
    yield "fanout.delete", COUNT, lambda: [fanout.delete(key) for key in items]
    yield "list(fanout)", 20, lambda: [list(fanout) for _ in range(20)]
    yield "len(fanout)", COUNT, lambda: [len(fanout) for _ in numbers]
    fanout.close()


def recipes(module: ModuleType, path: str) -> Times:
    cache = module.Cache(path)

    @cache.memoize()
    def of_int(number: int) -> int:
        return number

    @cache.memoize(expire=100, tag="tag")
    def of_text(text: str, *, deep: bool = False) -> list[str]:
        return [text] * 10

    numbers = range(COUNT)
    yield "memoize, miss", COUNT, lambda: [of_int(number) for number in numbers]
    yield "memoize, hit", COUNT, lambda: [of_int(number) for number in numbers]
    of_text("a", deep=True)
    yield "memoize, list", COUNT, lambda: [of_text("a", deep=True) for number in numbers]
    for name in "Lock", "RLock":
        lock = getattr(module, name)(cache, name)

        def locked(lock: Any = lock) -> None:
            for _ in numbers:
                with lock:
                    pass

        yield name, COUNT, locked
    averager = module.Averager(cache, "average")
    yield "Averager.add", COUNT, lambda: [averager.add(0.5) for _ in numbers]
    yield "Averager.get", COUNT, lambda: [averager.get() for _ in numbers]
    cache.close()


def compared(
    title: str, base: str, rounds: int, work: Callable[[ModuleType, str], Times]
) -> None:
    times: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        for module in MODULES if number % 2 else MODULES[::-1]:
            path = os.path.join(base, module.__name__)
            gc.collect()
            for name, count, call in work(module, path):
                start = clock()
                call()
                taken = (clock() - start) / count * 1e6
                times.setdefault((name, module.__name__), []).append(taken)
            shutil.rmtree(path)
    for name in dict.fromkeys(name for name, _ in times):
        ours, theirs = (statistics.median(times[name, module.__name__]) for module in MODULES)
        row = f"{title}: {name}" if title else name
        mark = "  slower" if ours > 1.2 * theirs else ""
        print(f"{row:<38}{ours:10.1f}{theirs:10.1f}{ours / theirs:7.2f}{mark}", flush=True)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    chosen = tuple(name for name in sys.argv[2:] if name != "cpu")
    base = tempfile.mkdtemp(prefix="hutch-module-")
    print(f"{'':<38}{'hutch':>10}{'diskcache':>10}{'ratio':>7}")
    for name, value in values().items():
        if name.startswith(chosen or ""):
            compared(name, base, rounds, of_value(value))
    for part in calls, policies, walks, structures, recipes:
        if part.__name__.startswith(chosen or ""):
            compared(part.__name__, base, rounds, part)
    shutil.rmtree(base)


if __name__ == "__main__":
    main()
