"""Answers of a language model by their requests: asked once, kept for a day, within limits.

    answers = Answers(ask, "~/.cache/answers", disk="2 GB")
    answers("Why is the sky blue?", model="model-1")["text"]

ask(request) sends a request, a dict, and returns the service's answer as natural values. Run as a
program, this shows it at work with a function in place of the service.
"""

from __future__ import annotations

import hashlib
import json
import threading
from datetime import timedelta
from typing import Any, Awaitable, Callable

import hutch


class Answers:
    """A function from prompts to answers that asks the service only if it must.

    Parameters:
        ask: sends a request; aask: the same as a coroutine function.
        directory: of the cache; None: in memory.
        expire: how long an answer is good.
        refresh: from this age on one caller asks anew, and gets the old answer if that fails.
        patience: how long a caller waits for the answer to another caller's request.
        pause: how long the service is left alone after a failure.
        longest: the most bytes of an answer that is kept.
        options: those of hutch.Cache, such as memory, disk and sharing.
    """

    def __init__(
        self,
        ask: Callable[[dict[str, Any]], Any] | None = None,
        directory: Any = None,
        *,
        aask: Callable[[dict[str, Any]], Awaitable[Any]] | None = None,
        expire: timedelta = timedelta(days=1),
        refresh: timedelta | None = None,
        patience: timedelta = timedelta(minutes=2),
        pause: timedelta = timedelta(seconds=5),
        longest: int | str = "1 MB",
        disk: int | str = "2 GB",
        memory: int | str = "64 MiB",
        **options: Any,
    ) -> None:
        self._ask, self._aask = ask, aask
        self.cache = hutch.Cache(
            directory,
            memory=hutch.TierLimits(memory, max_entry=longest),
            disk=None if directory is None else hutch.TierLimits(disk, max_entry=longest),
            **options,
        )
        self._expire = expire
        self._load: dict[str, Any] = {
            "timeout": patience,
            "refresh": refresh,
            "remember_errors": pause,
            "stale_if_error": refresh is not None,
        }
        self.asked = 0
        self.answered = 0
        self._lock = threading.Lock()  # Protects asked and answered.

    def __call__(self, prompt: str, *, model: str, **parameters: Any) -> Any:
        """The answer. Raises what ask raises, or hutch.LoadError if it was another caller's."""
        request = {"prompt": prompt, "model": model, **parameters}
        assert self._ask is not None, "there is no ask"
        ask = self._ask
        if not keeps(request):
            return ask(request)
        self._count("answered")

        def send(_: Any) -> Any:
            self._count("asked")
            return ask(request)

        return self.cache.load(key_of(request), send, self._expire, **self._load)

    async def answer(self, prompt: str, *, model: str, **parameters: Any) -> Any:
        """As the call itself, by aask. Both have the answers of each other."""
        request = {"prompt": prompt, "model": model, **parameters}
        assert self._aask is not None, "there is no aask"
        aask = self._aask
        if not keeps(request):
            return await aask(request)
        self._count("answered")

        async def send(_: Any) -> Any:
            self._count("asked")
            return await aask(request)

        return await self.cache.aload(key_of(request), send, self._expire, **self._load)

    def forget(self, prompt: str, *, model: str, **parameters: Any) -> bool:
        """Remove one answer, that was wrong, say."""
        return self.cache.delete(key_of({"prompt": prompt, "model": model, **parameters}))

    def _count(self, what: str) -> None:
        with self._lock:
            setattr(self, what, getattr(self, what) + 1)


def keeps(request: dict[str, Any]) -> bool:
    """Whether an answer can stand for others: with a temperature each one is different."""
    return not request.get("temperature")


def key_of(request: dict[str, Any]) -> tuple[str, str, bytes]:
    """Equal requests have equal keys, whatever the order of their parameters."""
    text = json.dumps(request, sort_keys=True, ensure_ascii=False)
    return "answer", request["model"], hashlib.sha256(text.encode()).digest()


def main() -> None:
    def ask(request: dict[str, Any]) -> dict[str, Any]:
        return {"text": request["prompt"].upper(), "tokens": len(request["prompt"].split())}

    answers = Answers(ask)
    threads = [
        threading.Thread(target=answers, args=(prompt,), kwargs={"model": "model-1"})
        for prompt in ("why is the sky blue", "what is a cache") * 10
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(answers("what is a cache", model="model-1"))
    print(f"{answers.answered} answers, {answers.asked} calls of the service")


if __name__ == "__main__":
    main()
