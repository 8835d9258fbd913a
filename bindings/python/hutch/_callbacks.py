"""The common part of functions that C calls: no exception of theirs may pass through C."""

from __future__ import annotations

import itertools
import sys

from . import _accelerator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Callable, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

# The accelerator's callbacks are Python functions without ctypes: it is imported where it is used.

_codes: set[CodeType] = set()

# The code of the function that _guard makes, and how it has to be.
_guards: dict[CodeType, CodeType] = {}

_tokens = itertools.count(1)


def new_token() -> int:
    """A number for a context, by which the functions that C calls find their object.

    UnsupportedError: in a subinterpreter.
    """
    refuse_in_subinterpreter()
    return next(_tokens)


def refuse_in_subinterpreter() -> None:
    """Called before C gets a function or an object of Python. UnsupportedError: this is not the
    main interpreter.

    C may call such a function on any thread, and with the state of another interpreter. A cache of
    a directory is one for all interpreters of the process, so that C also has the function, or the
    object, after the end of its interpreter.
    """
    from ._interpreters import is_main

    if not is_main:
        from ._errors import Status, UnsupportedError

        raise UnsupportedError(
            Status.UNSUPPORTED,
            "in a subinterpreter the library calls no functions, and keeps no objects, of Python",
        )


def callback(function: F) -> F:
    """Decorator of every function that C calls. It catches everything the function can raise:
    an exception that leaves it leaves its caller in C with an undefined status."""
    return guarded(marked(function))


def marked(function: F) -> F:
    """Decorator of a method that C calls by a guarded object. It catches everything, too."""
    _codes.add(function.__code__)
    return function


def guarded(function: F) -> F:
    """A function that C calls, as C is to call it.

    A signal that has come while the main thread was in the library is handled before the first
    instruction of the next function, which no try block covers. The accelerator catches what the
    handler raises, and so does a function in Python whose try block covers that too.
    """
    module: Any = _accelerator.module
    guard: F = _guard(function) if module is None else module.guard((function, _instead))
    return guard


def finalizer(function: F) -> F:
    """Decorator of a function that Python calls at the end of an object, which can raise nothing:
    an interrupt of it is raised again on the main thread, as that of a callback."""
    guard: F = _guard(marked(function))
    return guard


def _guard(function: Any) -> Any:
    call_all = itertools.starmap  # Kept to the interpreter's end.

    def call(*arguments: Any) -> Any:
        try:
            # The list has the result before an interrupt that has come is raised. Not by `extend`,
            # which needs one call more of the stack.
            results: list[Any] = []
            results += call_all(function, (arguments,))
            return results[0]
        except BaseException as error:
            return _instead((function, error), *arguments)

    call.__code__ = _guards.setdefault(call.__code__, _covered(call.__code__))
    return marked(call)


def _covered(code: CodeType) -> CodeType:
    """The code of a function whose only statement is a try block, which then covers the function's
    first instruction as well.

    CPython 3.11 to 3.14 run a signal's handler within that instruction. Older ones begin the try
    block first. The form of the table is in Objects/exception_handling_notes.txt of CPython: each
    entry has four numbers, in groups of six bits, the highest group first; bit 6 says that a group
    follows, and bit 7 marks the first byte of an entry. The first two numbers of the first entry
    are where the block begins, and its length.
    """
    if sys.implementation.name != "cpython" or not (3, 11) <= sys.version_info < (3, 15):
        return code
    table: bytes = code.co_exceptiontable
    numbers = []
    place = 0
    for _ in range(2):
        number = table[place] & 63
        while table[place] & 64:
            place += 1
            number = number << 6 | table[place] & 63
        place += 1
        numbers.append(number)
    length = sum(numbers)
    entry = [128, *([64 | length >> 6] if length > 63 else []), length & 63]
    return code.replace(co_exceptiontable=bytes(entry) + table[place:])


@marked
def _instead(failed: tuple[Callable[..., Any], BaseException], *arguments: Any) -> Any:
    """A call of a function that has raised: made now, if it had not begun. If it had ended, and
    its guard has raised, it has a result."""
    function, error = failed
    result = None
    try:
        trace = error.__traceback__
        results = None
        if trace is not None and trace.tb_frame.f_code in _guards.values():
            results = trace.tb_frame.f_locals.get("results")
            trace = trace.tb_next
        if results:
            result = results[0]
        elif trace is None or trace.tb_lineno == trace.tb_frame.f_code.co_firstlineno:
            result = function(*arguments)
        report(error, "a callback", function)
    except BaseException as another:
        report(another, "a callback", function)
    return result


def release_of(table: dict[int, Any], what: str) -> Any:
    """A release function for C, whose contexts are numbers in this table: it drops their objects.

    It has to exist as long as the process, since C may call it at any time.
    """
    from ._structs import ReleaseFunction

    @callback
    def release(number: int) -> None:
        try:
            table.pop(number, None)
        except BaseException as error:
            report(error, f"the release of {what}", None)

    return ReleaseFunction(release)


class _Raise:
    """A call that raises an error. ctypes hands the error to sys.unraisablehook, and names this.

    Python code cannot make the argument that CPython's own hook insists on.
    """

    __slots__ = ("_error", "_function", "_what")

    def __init__(self, error: BaseException, what: str, function: Any) -> None:
        self._error = error
        self._what = what
        self._function = function

    def __call__(self) -> None:
        raise self._error

    def __repr__(self) -> str:
        return f"{self._what} of hutch, {self._function!r}"


def report(error: BaseException, what: str, function: Any) -> None:
    """Report an error that cannot pass through C to sys.unraisablehook. Raises nothing.

    A KeyboardInterrupt of the main thread is raised again there, when the callback has ended.
    """
    try:
        import ctypes
        import threading

        is_main = threading.current_thread() is threading.main_thread()
        if is_main and isinstance(error, KeyboardInterrupt):
            _interrupt_later(error)
        else:
            ctypes.CFUNCTYPE(None)(_Raise(error, what, function))()
    except BaseException:
        # No code is left to report to.
        pass


def _interrupt_later(error: KeyboardInterrupt) -> None:
    """Raise error on this thread as soon as a function that is in no callback is called or
    returns. Python has no other place that comes after this callback and before the next."""
    other = sys.getprofile()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        outer: FrameType | None = frame
        while outer is not None:
            if outer.f_code in _codes:
                return
            outer = outer.f_back
        sys.setprofile(other)
        raise error.with_traceback(None)

    sys.setprofile(profile)
