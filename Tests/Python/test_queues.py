"""Queues of the host's functions, groups and ports."""

from __future__ import annotations

import asyncio
import errno
import gc
import select
import sys
import threading

import hutch
import pytest
from conftest import ROOT
from hutch import _tasks
from processes import finished


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    gc.collect()
    assert not _tasks.works and not _tasks.completions


@pytest.fixture
def queue():
    with hutch.Queue() as queue:
        yield queue


class Gate:
    """What a function waits at."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self.open = threading.Event()

    def __call__(self) -> str:
        self.reached.release()
        assert self.open.wait(60)
        return "through"


def test_a_function_is_called_and_its_result_had(queue):
    assert queue.submit(sum, [1, 2, 3], priority="high").result() == 6
    task = queue.submit(int, "x")
    assert task.wait() and task.done() and not task.cancelled()
    with pytest.raises(ValueError, match="invalid literal"):
        task.result()
    ident = queue.submit(threading.get_ident).result()
    assert ident != threading.get_ident()


def test_a_cancelled_task_does_not_run(queue):
    queue.suspend()
    ran = []
    done = []
    task = queue.submit(ran.append, 1, done=done.append)
    assert task.cancel()
    assert task.wait() and task.cancelled() and done == [task]
    with pytest.raises(hutch.CancelledError):
        task.result()
    queue.resume()
    assert queue.wait_all() and not ran


def test_a_running_task_is_asked(queue):
    started = threading.Event()

    def work():
        started.set()
        while not task.is_asked():
            pass
        return "asked"

    known = threading.Event()

    def begin():
        assert known.wait(60)
        return work()

    task = queue.submit(begin)
    known.set()
    assert started.wait(60)
    assert not task.cancel()
    assert task.result() == "asked"


def test_priorities_and_a_width_of_one():
    with hutch.Queue(1) as queue:
        gate = Gate()
        order = []
        queue.submit(gate)
        gate.reached.acquire()
        for n, priority in enumerate(("low", "high", "default")):
            queue.submit(order.append, n, priority=priority)
        gate.open.set()
        assert queue.wait_all()
        assert order == [0, 1, 2]  # strict order of submission
    with hutch.Queue(2) as queue:
        gates = Gate(), Gate()
        for gate in gates:
            queue.submit(gate)
            gate.reached.acquire()
        order.clear()
        tasks = [queue.submit(order.append, n, priority="low") for n in range(4)]
        tasks[3].set_priority("high")
        # The place of the oldest stays taken.
        gates[1].open.set()
        assert all(task.wait() for task in tasks)
        assert sorted(order) == [0, 1, 2, 3]
        gates[0].open.set()


def test_width_is_how_many_run(queue):
    gates = [Gate() for _ in range(4)]
    for gate in gates[:2]:
        queue.submit(gate)
    for gate in gates[:2]:
        gate.reached.acquire()
    queue.set_width(4)
    for gate in gates[2:]:
        queue.submit(gate)
    for gate in gates[2:]:
        gate.reached.acquire()
    for gate in gates:
        gate.open.set()
    with pytest.raises(ValueError):
        queue.set_width(0)


def test_what_is_done_as_one(queue):
    queue.suspend()
    calls = []

    def save(names):
        calls.append(list(names))
        return len(names)

    tasks = [
        queue.submit(save, [name], identifier="save", merge=lambda into, other: into + other)
        for name in "abcd"
    ]
    other = queue.submit(save, ["x"], identifier=b"other")
    tasks[1].cancel()
    queue.resume()
    assert queue.wait_all()
    assert sorted(calls) == [["a", "c", "d"], ["x"]]
    assert [tasks[n].result() for n in (0, 2, 3)] == [3, 3, 3] and other.result() == 1
    assert tasks[1].cancelled()
    # Without a merge, and when it fails, for all.
    queue.suspend()
    tasks = [queue.submit(int, text, identifier="int") for text in ("x", "7")]
    queue.resume()
    for task in tasks:
        with pytest.raises(ValueError):
            task.result()
    with pytest.raises(TypeError):
        queue.submit(save, 1, 2, identifier="save", merge=lambda a, b: a)


def test_a_full_queue():
    with hutch.Queue(length=1) as queue:
        queue.suspend()
        first = queue.submit(str)
        with pytest.raises(BlockingIOError):
            queue.submit(str)
        with pytest.raises(hutch.TimedOutError):
            queue.submit(str, wait=True, deadline=0.01)
        waiting = threading.Thread(target=lambda: queue.submit(str, wait=True))
        waiting.start()
        queue.resume()
        waiting.join()
        assert first.result() == ""


def test_a_deadline_passes_though_all_are_busy():
    with hutch.Queue(1) as queue:
        gate = Gate()
        queue.submit(gate)
        gate.reached.acquire()
        ran = []
        late = queue.submit(ran.append, 1, deadline=0.001)
        with pytest.raises(hutch.TimedOutError):
            late.result()
        assert late.done() and not late.cancelled()
        gate.open.set()
    assert not ran


def test_waits(queue):
    gate = Gate()
    task = queue.submit(gate)
    gate.reached.acquire()
    assert not task.wait(0.01) and not queue.wait_all(0) and not task.done()
    with pytest.raises(hutch.TimedOutError):
        task.result(0.01)

    def within():
        with pytest.raises(hutch.DeadlockError):
            queue.wait_all()
        with pytest.raises(hutch.DeadlockError):
            queue.close()
        return True

    assert queue.submit(within).result()
    queue._is_closed = False
    gate.open.set()
    assert task.result(60) == "through"


def test_cancel_all_and_close():
    queue = hutch.Queue(1)
    gate = Gate()
    running = queue.submit(gate)
    gate.reached.acquire()
    tasks = [queue.submit(str) for _ in range(5)]
    assert queue.cancel_all() == 5
    assert running.is_asked()
    gate.open.set()
    assert all(task.wait() and task.cancelled() for task in tasks)
    assert running.result() == "through"
    queue.close()
    queue.close()
    with pytest.raises(hutch.ClosedError):
        queue.submit(str)


def test_threads_go_with_the_queue():
    def workers():
        names = [
            (entry / "comm").read_text()
            for entry in type(ROOT)("/proc/self/task").iterdir()
        ]
        return names.count("hutch-task\n")

    gc.collect()
    before = workers()
    queue = hutch.Queue(3)
    assert workers() == before
    assert queue.submit(workers).result() == before + 1
    queue.close()
    del queue
    gc.collect()
    assert workers() == before


def test_without_threads_who_runs_it_does_the_work():
    with hutch.Queue(threads=False) as queue:
        task = queue.submit(threading.get_ident)
        assert not task.done()
        assert queue.run() == 1
        assert task.result() == threading.get_ident()
        assert queue.run(0.001) == 0


def test_a_group_ends_once(queue):
    told = []
    group = hutch.Group(queue)
    tasks = [queue.submit(str, n, group=group) for n in range(4)]
    tasks[2].cancel()
    assert group.start(told.append)
    assert not group.start()
    assert group.wait()
    assert told == [hutch.Tally(count=4, cancelled=1)]
    assert [task.result() for task in tasks if not task.cancelled()] == ["0", "1", "3"]
    # One that is not started, or cancelled.
    group = hutch.Group(queue)
    task = queue.submit(str, group=group)
    del group
    gc.collect()
    assert task.wait() and task.cancelled()
    group = hutch.Group(queue)
    task = queue.submit(str, group=group)
    group.cancel()
    group.start()
    assert group.wait() and task.wait() and task.cancelled()
    # A wait is a start.
    group = hutch.Group(queue)
    task = queue.submit(str, 7, group=group)
    assert not task.done()
    assert group.wait() and task.result() == "7"
    assert not group.start()


def test_a_failure_within_a_task_has_its_words(queue, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"no directory")
    with pytest.raises(hutch.BadDirectoryError, match="Not a directory") as raised:
        queue.submit(hutch.Cache, file).result()
    assert raised.value.errno == errno.ENOTDIR


def test_a_port_hands_over_to_the_thread_that_drains(queue):
    with hutch.Port() as port:
        told = []
        tasks = [
            queue.submit(
                str, n, done=lambda task: told.append((task, threading.get_ident())), port=port
            )
            for n in range(5)
        ]
        queue.wait_all()
        assert select.select([port], [], [], 60)[0] == [port] and not told
        assert port.drain(2) == 2 and port.drain() == 3
        assert {task for task, _ in told} == set(tasks)
        assert {ident for _, ident in told} == {threading.get_ident()}
        assert not select.select([port], [], [], 0)[0]
        queue.submit(str, done=told.append, port=port).wait()
        port.close(discard=True)
        port.close()
        assert len(told) == 5
        with pytest.raises(hutch.ClosedError):
            port.drain()


def test_a_loop_drives_tasks_through_a_port(queue):
    count = 5000
    done = 0

    async def main() -> None:
        loop = asyncio.get_running_loop()
        thread = threading.get_ident()
        ended = asyncio.Event()
        with hutch.Port() as port:

            def tell(task):
                nonlocal done
                assert threading.get_ident() == thread and task.result() == "x"
                done += 1
                if done == count:
                    ended.set()

            loop.add_reader(port, port.drain)
            for _ in range(count):
                queue.submit(str, "x", done=tell, port=port)
            await ended.wait()
            loop.remove_reader(port)

    asyncio.run(main())
    assert done == count


def test_what_a_completion_raises_is_reported(queue, monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)

    def fail(task):
        raise RuntimeError("told badly")

    assert queue.submit(str, done=fail).wait()
    queue.suspend()
    tasks = [
        queue.submit(str, n, identifier="i", merge=lambda a, b: a / 0) for n in range(2)
    ]
    queue.resume()
    assert [task.result() for task in tasks] == ["0", "0"]
    queue.wait_all()
    assert [type(told.exc_value) for told in reported] == [RuntimeError, ZeroDivisionError]


def test_a_caches_queue(cache):
    queue = cache.queue()
    assert queue.submit(cache.get, "k", "none").result() == "none"
    cache.close()
    with pytest.raises(hutch.ClosedError):
        queue.submit(str)


def test_a_child_makes_its_own(queue):
    assert queue.submit(str).result() == ""
    process = finished(
        "-c",
        """
import os, hutch
queue, port = hutch.Queue(), hutch.Port()
group = hutch.Group(queue)
assert queue.submit(str).result() == ""
child = os.fork()
if child == 0:
    for call in (lambda: queue.submit(str), queue.wait_all, group.wait, port.drain,
                 lambda: hutch.Group(queue)):
        try:
            call()
            os._exit(1)
        except hutch.ForkedError:
            pass
    os._exit(0 if hutch.Queue().submit(sum, [1, 2]).result() == 3 else 2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert queue.submit(str, 7).result() == "7"
""",
    )
    assert process.returncode == 0


def test_a_program_may_end_while_tasks_run():
    process = finished(
        "-c",
        """
import threading, hutch
queue = hutch.Queue(1)
started = threading.Event()
def work():
    started.set()
    while not task.is_asked():
        pass
    print("asked", flush=True)
known = threading.Event()
task = queue.submit(lambda: known.wait() and work())
known.set()
never = [queue.submit(print, "never") for _ in range(3)]
started.wait()
""",
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "asked\n", "")


def test_bad_arguments(queue):
    with pytest.raises(TypeError):
        queue.submit("no function")
    with pytest.raises(ValueError):
        queue.submit(str, priority="urgent")
    with pytest.raises(ValueError, match="^deadline: a duration cannot be -1 seconds"):
        queue.submit(str, deadline=-1)
    with pytest.raises(ValueError, match="^timeout: a duration cannot be nan seconds"):
        queue.wait_all(float("nan"))
    with pytest.raises(ValueError):
        queue.submit(str, identifier="")
    with pytest.raises(ValueError):
        hutch.Queue(1000)
    with pytest.raises(hutch.InvalidArgumentError):
        queue.resume()
