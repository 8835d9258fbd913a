"""The examples of bindings/python/examples, with a function in place of the service."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from datetime import timedelta

import hutch
import pytest
from conftest import ROOT
from processes import finished

EXAMPLES = ROOT / "bindings" / "python" / "examples"
sys.path.insert(0, str(EXAMPLES))

from llm_answers import Answers, key_of  # noqa: E402


class Service:
    """Answers requests, and notes them."""

    def __init__(self) -> None:
        self.requests: list[dict] = []
        self.failure: Exception | None = None
        self.size = 0

    def __call__(self, request: dict) -> dict:
        self.requests.append(request)
        if self.failure is not None:
            raise self.failure
        return {"text": request["prompt"].upper() + "." * self.size, "number": len(self.requests)}

    async def awaited(self, request: dict) -> dict:
        await asyncio.sleep(0)
        return self(request)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def answers(service, directory, clock):
    made = Answers(
        service, directory, aask=service.awaited, refresh=timedelta(hours=20), clock=clock
    )
    yield made
    made.cache.close()


def test_equal_requests_are_asked_once(answers, service):
    first = answers("why", model="m", top_p=1, stop=["x"])
    assert first["text"] == "WHY"
    assert answers("why", stop=["x"], top_p=1, model="m") == first
    assert len(service.requests) == 1 and (answers.answered, answers.asked) == (2, 1)
    answers("why", model="other", top_p=1, stop=["x"])
    answers("why not", model="m", top_p=1, stop=["x"])
    answers("why", model="m")
    assert len(service.requests) == 4


def test_one_of_many_threads_asks(answers, service):
    waiting, results = [], []

    def slow(request):
        while len(waiting) < 10:
            time.sleep(0.001)
        return service(request)

    answers._ask = slow

    def work():
        waiting.append(1)
        results.append(answers("why", model="m")["text"])

    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["WHY"] * 10 and len(service.requests) == 1


def test_one_of_many_coroutines_asks(answers, service):
    async def main():
        return await asyncio.gather(*[answers.answer("why", model="m") for _ in range(50)])

    assert [each["text"] for each in asyncio.run(main())] == ["WHY"] * 50
    assert answers("why", model="m")["text"] == "WHY"
    assert len(service.requests) == 1


def test_answers_have_an_end(answers, service, clock):
    answers("why", model="m")
    clock.advance(20 * 3600 - 1)
    assert answers("why", model="m")["number"] == 1
    clock.advance(2)
    assert answers("why", model="m")["number"] == 2
    clock.advance(25 * 3600)
    assert answers("why", model="m")["number"] == 3


def test_an_old_answer_is_better_than_none(answers, service, clock):
    answers("why", model="m")
    service.failure = OSError("the service is down")
    clock.advance(21 * 3600)
    assert answers("why", model="m")["number"] == 1
    clock.advance(25 * 3600)
    with pytest.raises(OSError):
        answers("why", model="m")


def test_a_service_that_is_down_is_left_alone(answers, service, clock):
    service.failure = OSError("too many requests")
    with pytest.raises(OSError):
        answers("why", model="m")
    for _ in range(3):
        with pytest.raises(hutch.LoadError, match="too many requests"):
            answers("why", model="m")
    assert len(service.requests) == 1
    service.failure = None
    clock.advance(6)
    assert answers("why", model="m")["text"] == "WHY"


def test_limits(service, directory):
    with Answers(service, directory, disk="3 MB", memory="1 MiB", longest="100 KB").cache as cache:
        answers = Answers(service, directory, disk="3 MB", memory="1 MiB", longest="100 KB")
        service.size = 50_000
        for number in range(100):
            answers(str(number), model="m")
        assert cache.disk.cost() <= 3_000_000 and len(cache.disk) < 100
        service.size = 200_000
        assert len(answers("long", model="m")["text"]) > 200_000
        assert answers("long", model="m")["number"] == 102  # It was not kept.
        answers.cache.close()


def test_a_temperature_makes_answers_that_are_not_kept(answers, service):
    answers("why", model="m", temperature=0.7)
    answers("why", model="m", temperature=0.7)
    assert len(service.requests) == 2 and len(answers.cache) == 0


def test_a_wrong_answer_is_forgotten_and_keys_are_digests(answers, service):
    answers("a secret prompt", model="m")
    (key,) = answers.cache
    assert key == key_of({"prompt": "a secret prompt", "model": "m"})
    assert "secret" not in repr(key) and len(hutch.key_to_bytes(key)) < 100
    assert answers.forget("a secret prompt", model="m") is True
    assert answers("a secret prompt", model="m")["number"] == 2


def test_a_second_program_has_the_answers_of_the_first(service, directory):
    for _ in range(2):
        answers = Answers(service, directory)
        assert answers("why", model="m")["number"] == 1
        answers.cache.close()


def test_the_example_as_a_program():
    done = finished(EXAMPLES / "llm_answers.py")
    assert done.stderr == "" and done.stdout.splitlines() == [
        "{'text': 'WHAT IS A CACHE', 'tokens': 4}",
        "21 answers, 2 calls of the service",
    ]
