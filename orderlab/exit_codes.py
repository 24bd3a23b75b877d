"""How a program of this suite ends, and its exit code: the command line, and each module that is run by its name
(``python -m``).

Whatever is raised becomes one line on standard error and a code of ``ExitCode``; what nobody foresaw never ends with
the code of a verdict, as Python's own 1 for an uncaught exception would. A long search that is asked to end (Ctrl-C,
SIGTERM) says what it has found and what it has not looked at, and ends with 1 or 3; asked again, or where nothing is
known yet, a command has the shell's code of that signal, which is no verdict.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import re
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from enum import IntEnum
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.platform import ENDING, UNSUPPORTED, is_supported, whole

T = TypeVar("T")


class ExitCode(IntEnum):
    """How a command ended. What was judged decides between 0, 1 and 3; nothing else may end with one of these."""

    HOLDS = 0
    """Every law held and was tested; or what was asked for was done, where nothing is judged."""
    VIOLATED = 1
    """A law is violated."""
    UNUSABLE = 2
    """The input is unusable: one line on standard error says what, where, and the cure; nothing is written."""
    UNKNOWN = 3
    """Undecided within the budget, or nothing was tested."""
    INTERNAL = 70
    """A defect of orderlab itself (EX_SOFTWARE of sysexits.h)."""


EXIT = {Outcome.HOLDS: ExitCode.HOLDS, Outcome.VIOLATED: ExitCode.VIOLATED, Outcome.UNKNOWN: ExitCode.UNKNOWN}
"""The exit code of what was judged."""


def of_signal(number: int) -> int:
    """The exit code of a command that this signal ended, as shells tell it."""
    return 128 + number


SIGPIPE = 13
"""Its number wherever there is one; Windows has none."""


_raised = [int(signal.SIGINT)]
"""The signals that asked for the end, the last one last."""


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP asks this process to end, and what is half-written goes with it. The argument is the signal's
    number. Python and its libraries swallow other errors in more places than this one."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        _raised.append(number)


def run_asynchronously(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end. Raises Terminated where SIGTERM or SIGHUP asks: what a handler of a signal raises
    within a callback of the event loop would be lost there."""
    import asyncio

    async def until_asked() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
        asked: list[int] = []

        def ask(number: int) -> None:
            asked.append(number)
            task.cancel()

        for number in ENDING if is_main else ():
            loop.add_signal_handler(number, ask, number)
        try:
            return await task
        except asyncio.CancelledError:
            if asked:
                raise Terminated(asked[0]) from None
            raise

    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDING) if is_main}
    if before.get(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which is how asyncio knows that it may cancel
    try:
        return asyncio.run(until_asked())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupted_by(error: KeyboardInterrupt) -> int:
    """The exit code of a command that was interrupted so."""
    return of_signal(error.args[0] if isinstance(error, Terminated) else signal.SIGINT)


TRUSTED = "--trust-adapter"
"""The option by which Python that a store names may run."""
TRACEBACK = "ORDERLAB_TRACEBACK"
"""Set to 1 in the environment, a defect shows its whole traceback."""
LONGEST_LINE = 1500
"""Characters of a line on standard error; a value of the user's may have millions."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ON_STANDARD_OUTPUT = (*_FULL, errno.EIO, errno.EBADF)
"""By what writing to standard output fails; such an error names no file."""
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Controls of a terminal, and what turns the direction of writing."""


def run(program: Callable[[], int | None], name: str) -> NoReturn:
    """End this process with what ``program`` returns (0 for None), or with the code of what it raises."""
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_heard:  # and until there is something to tell, Ctrl-C ends this process without a word
        signal.signal(signal.SIGINT, lambda *_: os._exit(of_signal(signal.SIGINT)))
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by the caller, who wants the exit code only
            setattr(sys, stream, Path(os.devnull).open("w"))  # noqa: SIM115
    if not is_supported():
        tell(name, UNSUPPORTED)
        sys.exit(ExitCode.UNUSABLE)
    global _hand_over
    asked = len(_raised)
    _hand_over = hand_over = _decided_by_parent(name) if may_end_by_itself(sys.argv[1:]) else None
    if may_end_by_itself(sys.argv[1:]):
        _note_limits()
    try:
        _end_in_order(is_heard)
        with _deciding_the_end(name) if hand_over is None else contextlib.nullcontext():
            code = int(program() or 0)
        if code == of_signal(signal.SIGINT):
            code = of_signal(_raised[-1])  # typer makes 130 of each
        sys.stdout.flush()
    except SystemExit as ended:  # argparse does so
        code = ended.code if isinstance(ended.code, int) else ExitCode.UNUSABLE if ended.code else ExitCode.HOLDS
        if isinstance(ended.code, str):
            tell(name, ended.code)
    except BaseException as error:
        is_asked, is_plain = len(_raised) > asked, isinstance(error, (KeyboardInterrupt, InputError, OSError))
        if is_plain or not is_asked:  # else it is what a library makes of the interruption
            code = ended_by(error, name)
        if is_asked:
            code = of_signal(_raised[-1])
    if hand_over is not None:
        hand_over(code)
        _end_threads(code)
    sys.exit(code)


def _note_limits() -> None:
    from orderlab.code_of_user import limits, limits_put_right

    global _lowered
    _lowered = partial(limits_put_right, limits())


def _end_threads(code: int) -> None:
    """End this process at once where code of the user's has left threads that Python would wait for."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def leave(code: int) -> NoReturn:
    """End this process at once, whatever its threads are at; who decides its exit code is told."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if _hand_over is not None:
        _hand_over(code)
    os._exit(code)


_lowered: Callable[[], str] = str
"""What code of the user's has done to the limits of this process."""
_hand_over: Callable[[int], None] | None = None
"""Tells the parent that decides the exit code (`_decided_by_parent`)."""


def may_end_by_itself(arguments: Sequence[str]) -> bool:
    """Whether what a command is given may end its process: Python of its user (a specification, a store's that is
    trusted, the function of a sweep), or Parquet, whose damaged files abort the library that reads them."""
    return _reads_parquet(arguments) or any(one == TRUSTED or ".py" in one for one in arguments)


def _reads_parquet(arguments: Sequence[str]) -> bool:
    return arguments[:1] in (["sweep"], ["check"], ["runs"]) or any(".parquet" in one for one in arguments)


def _decided_by_parent(name: str) -> Callable[[int], None] | None:
    """Go on in a child, whose parent ends with the code that is handed to what is returned: whatever ends the child
    before that (``exec``, machine code, a signal) leaves no verdict. None where the system cannot do so (macOS)."""
    if not hasattr(signal, "sigwaitinfo"):
        return None
    from orderlab.child import dying_with_parent, quiet_fork
    from orderlab.code_of_user import keep_open

    asking = {signal.SIGINT, *ENDING}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*asking, signal.SIGCHLD})
    reading, writing = os.pipe()
    die_with_parent = dying_with_parent()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with quiet_fork():
        child = os.fork()
    if child == 0:
        die_with_parent()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(reading)
        keep_open(writing)
        return partial(_handed, writing)
    os.close(writing)
    asked, status = 0, _waited_for(child, asking)
    while isinstance(status, signal.Signals):
        asked, status = status, _waited_for(child, asking)
    handed = os.read(reading, 1)
    if handed:
        os._exit(handed[0])
    if asked:
        os._exit(of_signal(asked))
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
    whose, cure = "ran your Python", "if that calls os._exit or the like, leave the call out"
    if status < 0 and _reads_parquet(sys.argv[1:]):
        whose, cure = "read your files", "one of them is damaged: record it again"
    tell(name, f"the process that {whose} {how} before it had a verdict; {cure}")
    os._exit(ExitCode.UNUSABLE)


def _handed(pipe: int, code: int) -> None:
    """Tell the parent; in vain where code of the user's has closed the pipe."""
    with contextlib.suppress(OSError):
        os.write(pipe, bytes([code]))
        os.close(pipe)


def _waited_for(child: int, asking: set[signal.Signals]) -> int:
    """The exit code of the child, a signal's negative number; or the signal that asked it to end, which it has been
    told."""
    while True:
        told = signal.sigwaitinfo({*asking, signal.SIGCHLD})
        if told.si_signo != signal.SIGCHLD:
            if told.si_code <= 0:  # by a process, and not by the terminal, which tells the child too
                os.kill(child, told.si_signo)
            return signal.Signals(told.si_signo)
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)


WAIT_S = 0.02
"""After which somebody is asked again who could not listen."""
PATIENCE_S = 5.0
"""After which one who cannot listen is interrupted all the same: a script that does not end."""
_unheard: dict[int, float] = {}
"""Since when which signal waits."""


def _end_in_order(is_heard: bool) -> None:
    """Raise KeyboardInterrupt (if Ctrl-C ``is_heard``) or Terminated when a signal asks this process to end, unless its
    caller has said what is to be done then."""
    asking = [number for number in ENDING if signal.getsignal(number) == signal.SIG_DFL]
    for number in asking:
        signal.signal(number, _interrupt)
    if is_heard:
        signal.signal(signal.SIGINT, _interrupt)
        # What is left to do then is Python's, which would tell of an interruption by a traceback.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    _ask_again_where_lost()
    if not hasattr(os, "register_at_fork"):
        return

    def wait() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, asking)

    def listen() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, asking)

    def die() -> None:
        for number in asking:
            signal.signal(number, signal.SIG_DFL)
        listen()

    # A forked worker dies at once, in machine code too. What comes before it is that far waits, or Python would forget
    # it.
    os.register_at_fork(before=wait, after_in_parent=listen, after_in_child=die)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise, where that is heard; later, where it is not (`kept_whole`)."""
    since = _unheard.setdefault(number, time.monotonic())
    while frame is not None:
        if frame.f_code in whole and time.monotonic() < since + PATIENCE_S:
            _ask_later(number)
            return
        frame = frame.f_back
    del _unheard[number]
    if number != signal.SIGINT:
        raise Terminated(number)
    _raised.append(number)
    raise KeyboardInterrupt


def _ask_later(number: int) -> None:
    again = threading.Timer(WAIT_S, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def _ask_again_where_lost() -> None:
    """Python drops what a handler raises within ``__del__`` and callbacks of garbage collection."""
    before = sys.unraisablehook

    def hear(lost: sys.UnraisableHookArgs) -> None:
        asked = lost.exc_value
        if isinstance(asked, KeyboardInterrupt):
            _ask_later(asked.args[0] if isinstance(asked, Terminated) else signal.SIGINT)
        else:
            before(lost)

    sys.unraisablehook = hear


def _is_of_verdict(code: int = 0, *_: Any) -> bool:
    """Whether a process that ended with ``code`` would look as if it had come to a verdict."""
    return code <= max(EXIT.values())


@contextlib.contextmanager
def _deciding_the_end(name: str) -> Iterator[None]:
    """Have no code that this process runs for a user (a contract, an adapter, a specification) end it with the code of
    a verdict."""
    process, ends = os.getpid(), os._exit

    def guarded(call: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*given: Any, **named: Any) -> Any:
            is_end = call != "_exit" or _is_of_verdict(*given, *named.values())
            if os.getpid() != process or not is_end:
                return original(*given, **named)
            tell(
                name,
                f"code that this command runs for you called os.{call} and would have ended it without a verdict; "
                "leave the call out",
            )
            ends(ExitCode.UNUSABLE)

        return instead

    calls = ("_exit", "abort", "execv", "execve")  # the other forms of exec come down to these two
    originals = [(module, call, getattr(module, call)) for module in (os, sys.modules[os.name]) for call in calls]
    for module, call, original in originals:
        setattr(module, call, guarded(call, original))
    try:
        yield
    finally:
        for module, call, original in originals:
            setattr(module, call, original)


def ended_by(error: BaseException, name: str) -> int:
    """The exit code for what a program raised, after saying in one line what it was."""
    if isinstance(error, KeyboardInterrupt):
        return interrupted_by(error)
    if isinstance(error, BrokenPipeError) and _reader_has_gone():
        _drop_output()
        return of_signal(SIGPIPE)
    if isinstance(error, InputError):
        tell(name, str(error))
        return ExitCode.UNUSABLE
    if lowered := _lowered():
        tell(name, f"code that this command runs for you {lowered}; leave that out")
        return ExitCode.UNUSABLE
    if isinstance(error, OSError) and (place := _place_of_user(error)):
        cure = "make room or name another place" if error.errno in _ON_STANDARD_OUTPUT else "name another place"
        tell(name, f"{place}: {error.strerror or error}; {cure}")
        return ExitCode.UNUSABLE
    if os.environ.get(TRACEBACK) == "1":
        with contextlib.suppress(OSError):
            traceback.print_exception(error)
    tell(name, _defect(error))
    return ExitCode.INTERNAL


def tell(name: str, what: str) -> None:
    """One line on standard error, whatever is in it; nowhere, where that cannot be written."""
    line = printable(what)
    if len(line) > LONGEST_LINE:  # what is wrong stands at its beginning, the cure at its end
        line = f"{line[: LONGEST_LINE // 2]} ... {line[-LONGEST_LINE // 2 :]}"
    with contextlib.suppress(OSError):
        print(f"{name}: {line}", file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Text as one line that no terminal takes for an order."""
    return _UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], " ".join(text.splitlines()))


def _defect(error: BaseException) -> str:
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    place = f", at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    for note in getattr(error, "__notes__", ()):  # of a child: sim/redis/lua/watchdog.py
        place = f", {note.splitlines()[0]}" if note.startswith("in the watched process, at ") else place
    return (
        f"this is a defect of orderlab or of its machine, and no verdict: {what[:500]}{place}; "
        f"{TRACEBACK}=1 shows where it comes from; please report it with the command"
    )


def _place_of_user(error: OSError) -> str:
    """The file or stream, if it is one that the user can choose, and not a file of this suite itself."""
    if error.filename is None:
        if error.errno not in _ON_STANDARD_OUTPUT:
            return ""
        _drop_output()
        return "standard output"
    place = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else str(error.filename)
    is_own = error.errno not in _FULL and Path(__file__).parents[1] in Path(place).absolute().parents
    return "" if is_own else place


def _reader_has_gone() -> bool:
    """Whether nobody reads standard output any more; other pipes break as well."""
    try:
        poll = select.poll()
        poll.register(1, select.POLLOUT)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    except (AttributeError, OSError):
        return True


def _drop_output() -> None:
    """Have what is still buffered go nowhere: the interpreter would try to write it once more."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout = sys.__stdout__ or sys.stdout
