"""Python of a user's that runs in this process (a contract, an adapter): which part of it is being asked, and what it
spoils of the process.

What is asked is noted in memory that a parent shares (``Questions``), so that what never comes back, or ends the
process, is told by the name of the part that did so. What it leaves behind that all else lives in (standard streams,
the limit of recursion, modules, names of ``builtins``, limits of the process, who hears its signals, a second process)
is put right and told as the mistake of its author. Not looked after: files other than those by which this process is
heard, and what is done to objects of other modules.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # plain numbers: the names of `signal` take 25 times as long
import builtins
import mmap
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TextIO, TypeVar

try:
    import resource
except ImportError:  # no POSIX system: contracts are written there, and not run
    resource = None  # type: ignore[assignment]

T = TypeVar("T")
SECONDS_MAX = 20.0
"""Processor time of one question. It only stops what would not end: no verdict depends on it."""
SECONDS_MORE = 5.0
"""Of processor time after which a parent ends a child whose question goes on all the same; and of waiting, where a
budget is over."""
WAITING_S_MAX = 60.0
"""Seconds in which a question may wait, if it works less than WORKING_S_MIN meanwhile."""
WORKING_S_MIN = 1.0


class Endless(Exception):
    """A question took more than SECONDS_MAX."""

    def __str__(self) -> str:
        return f"does not end within {SECONDS_MAX:g} s"


class Spoiled(Exception):
    """What was asked has left the process in another state than all else needs. The argument says what it did."""


def described(error: BaseException) -> str:
    """What came of code of the user's instead of an answer."""
    return str(error) if isinstance(error, (Endless, Spoiled)) else f"{type(error).__name__}: {error}"


class Questions:
    """Shared memory in which a child notes what it asks of the user's code, and when its budget is over."""

    _COUNTS = struct.Struct("=QQ")
    """Questions begun plus questions ended; length of the label."""
    _DEADLINE = struct.Struct("=d")
    _LABEL_AT = _COUNTS.size + _DEADLINE.size
    _LABEL_BYTES = 1024

    def __init__(self, inherited: Questions | None = None) -> None:
        self._memory = mmap.mmap(-1, self._LABEL_AT + self._LABEL_BYTES)
        self._count = 0
        if inherited is not None and (deadline := inherited.deadline_s) is not None:
            self.set_deadline(deadline)

    def begin(self, label: bytes) -> None:
        """A question is asked."""
        label = label[: self._LABEL_BYTES]
        self._memory[self._LABEL_AT : self._LABEL_AT + len(label)] = label
        self._count += 1
        self._COUNTS.pack_into(self._memory, 0, self._count, len(label))

    def end(self) -> None:
        """Note that the call of the user's code is over."""
        self._count += 1
        self._COUNTS.pack_into(self._memory, 0, self._count, 0)

    def count(self) -> int:
        """Odd while a question is asked."""
        return int(self._COUNTS.unpack_from(self._memory, 0)[0])

    def label(self) -> str | None:
        """Of what is being asked, if it is anything."""
        count, length = self._COUNTS.unpack_from(self._memory, 0)
        return self._memory[self._LABEL_AT : self._LABEL_AT + length].decode(errors="replace") if count % 2 else None

    def set_deadline(self, monotonic_s: float) -> None:
        """When the budget of the child is over, on the monotonic clock."""
        self._DEADLINE.pack_into(self._memory, self._COUNTS.size, monotonic_s)

    @property
    def deadline_s(self) -> float | None:
        """What ``set_deadline`` was told."""
        return float(self._DEADLINE.unpack_from(self._memory, self._COUNTS.size)[0]) or None


CLOSES = "closes files that it has not opened"
UNHEARD = 72
"""The exit status of a child whose files are gone, so that it can tell nobody (EX_OSFILE of sysexits.h)."""
_needed: dict[int, tuple[int, int]] = {}


def keep_open(descriptor: int) -> None:
    """Note a file without which this process is not heard."""
    _needed[descriptor] = _file_of(descriptor)


def _file_of(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _is_heard() -> bool:
    """Whether the files by which this process is heard are open, and the same."""
    try:
        return all(_file_of(descriptor) == file for descriptor, file in _needed.items())
    except OSError:
        return False


noted: Questions | None = None
"""Of this process, if it is a child that somebody watches (``orderlab.sim.redis.lua.watchdog``)."""


class Unanswered:
    """A parent's look at the questions of a child: which of them has taken too long."""

    POLL_S_MAX = 1.0
    """Of the time between two looks; a parent that was stopped meanwhile knows of no more."""

    def __init__(self, notes: Questions) -> None:
        self._notes = notes
        self._seen, self._since_cpu_s, self._waited_s, self._looked_s = -1, 0.0, 0.0, time.monotonic()

    def why(self, used_s: float) -> str | None:
        """Why the child is to be ended, which has used so much processor time by now."""
        now, count = time.monotonic(), self._notes.count()
        passed_s, self._looked_s = min(now - self._looked_s, self.POLL_S_MAX), now
        if count != self._seen or not count % 2:
            self._seen, self._since_cpu_s, self._waited_s = count, used_s, 0.0
            return None
        self._waited_s += passed_s
        worked_s, deadline_s = used_s - self._since_cpu_s, self._notes.deadline_s
        if deadline_s is not None and now > deadline_s + SECONDS_MORE and self._waited_s > SECONDS_MORE:
            return f"does not end: it had taken {self._waited_s:.0f} s when the --budget was over"
        if worked_s > SECONDS_MAX + SECONDS_MORE:
            return f"does not end within {SECONDS_MAX:g} s"
        if worked_s < WORKING_S_MIN and self._waited_s > WAITING_S_MAX:
            return f"does not end: it has waited for {WAITING_S_MAX:g} s"
        return None


class Guard:
    """Around one question to the user's code. Raises Spoiled where the answer came and the process is not as before;
    it is put right in any case."""

    def __init__(self, label: str) -> None:
        self._label = label.encode(errors="replace")
        self._asked = 0

    def __enter__(self) -> None:
        self._process, self._streams = os.getpid(), (sys.stdout, sys.stderr)
        self._recursion, self._modules, self._path = sys.getrecursionlimit(), _modules(), len(sys.path)
        self._forks = _Forks.count
        self._paths = _path()
        self._signals = hearers()
        self._asked += 1
        is_due = self._asked <= LIMITS_FIRST or self._asked % LIMITS_EVERY == 0
        self._limits = limits() if is_due else None
        if noted is not None:
            noted.begin(self._label)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._process:  # the second process that it has made has no business here
            os._exit(0)
        if noted is not None and not _is_heard():
            os._exit(UNHEARD)  # the question stays without an end, by which the parent knows whose it is
        spoiled = self._put_right()
        if noted is not None:
            noted.end()
        if spoiled and (error is None or isinstance(error, Exception)):
            raise Spoiled(spoiled) from error

    def _put_right(self) -> str:
        """What was spoiled, put right; nothing, if nothing was."""
        done = _builtins_put_right()  # before any of them is used
        if sys.getrecursionlimit() != self._recursion:
            done = f"sets the limit of recursion to {sys.getrecursionlimit()}"
            sys.setrecursionlimit(self._recursion)
        if len(sys.modules) != len(self._modules) and (missing := self._modules.keys() - sys.modules.keys()):
            sys.modules.update(self._modules)  # those too that were imported anew meanwhile, as others
            done = f"removes {min(missing)} from sys.modules"
        if len(sys.path) < self._path:
            sys.path[:] = self._paths
            done = "removes folders from sys.path"
        for name, stream in zip(("stdout", "stderr"), self._streams, strict=True):
            if getattr(sys, name) is not stream:
                setattr(sys, name, stream)
                done = f"replaces sys.{name}"
            elif stream is not None and stream.closed:
                setattr(sys, name, _nowhere())
                done = f"closes sys.{name}"
        done = hearers_put_right(self._signals) or done
        if self._limits is not None:
            done = limits_put_right(self._limits) or done
        if _Forks.count != self._forks:
            done = "forks"
        if not _is_heard():
            done = CLOSES
        return f"{done}; leave that out" if done else ""


LIMITS_FIRST: Final = 16
LIMITS_EVERY: Final = 256
"""At which questions to one part limits are looked at: asking the system for them takes longer than most questions."""
_LIMITED: Final = {
    getattr(resource, name): name
    for name in (
        "RLIMIT_AS",
        "RLIMIT_CPU",
        "RLIMIT_DATA",
        "RLIMIT_FSIZE",
        "RLIMIT_NOFILE",
        "RLIMIT_NPROC",
        "RLIMIT_STACK",
    )
    if hasattr(resource, name)
}
Limits = tuple[tuple[int, int], ...]


def limits() -> Limits:
    """What the system lets this process use, as ``limits_put_right`` takes it."""
    return tuple(map(resource.getrlimit, _LIMITED)) if _LIMITED else ()


def limits_put_right(before: Limits) -> str:
    """What was done to limits that are lower than before, raised again as far as they may be; nothing, if none is."""
    done = ""
    for (limit, name), (soft, hard), now in zip(_LIMITED.items(), before, limits(), strict=True):
        if _number(now[0]) >= _number(soft):
            continue
        done = f"lowers the limit {name} of its process to {now[0]:,}"
        try:
            resource.setrlimit(limit, (soft, hard))
        except (OSError, ValueError):  # the hard one is for ever, but for root
            resource.setrlimit(limit, (min(soft, now[1], key=_number), now[1]))
    return done


def _number(limit: int) -> float:
    return float("inf") if limit == resource.RLIM_INFINITY else limit


_HEARD: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGCHLD") if hasattr(signal, name)
)


def hearers() -> tuple[Any, ...]:
    """Who hears the signals by which this process is ended and learns that a child has ended."""
    return tuple(map(_signal.getsignal, _HEARD))


def hearers_put_right(before: tuple[Any, ...]) -> str:
    """Which of them is another one, put right; nothing, if none is."""
    done = ""
    if (now := hearers()) != before and threading.current_thread() is threading.main_thread():
        for number, hearer, other in zip(_HEARD, before, now, strict=True):
            if other != hearer and hearer is not None:
                _signal.signal(number, hearer)
                done = f"changes what {number.name} does"
    return done


class _Forks:
    """How often this process has forked; which Python tells from when it was asked to."""

    count = 0

    @classmethod
    def listen(cls) -> None:
        def note() -> None:
            cls.count += 1

        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=note)


_Forks.listen()
_BUILTINS = dict(builtins.__dict__)
_BUILTIN_VALUES = [*_BUILTINS.values()]
_values_of_builtins = builtins.__dict__.values


def _builtins_put_right() -> str:
    """What was done to names of ``builtins``, put right; nothing, if nothing was. Uses none of them."""
    if [*_values_of_builtins()] == _BUILTIN_VALUES:  # a third of the time that comparing dictionaries takes
        return ""
    now = builtins.__dict__
    for name, value in _BUILTINS.items():
        if name not in now or now[name] is not value:
            now.update(_BUILTINS)
            return f"replaces {name} in builtins"
    return ""  # a name was added


_known: dict[str, Any] = {}
_known_path: list[str] = []


def _modules() -> dict[str, Any]:
    """All modules; made anew only when there are more or less."""
    global _known
    if len(_known) != len(sys.modules):
        _known = dict(sys.modules)
    return _known


def _path() -> list[str]:
    global _known_path
    if len(_known_path) != len(sys.path):
        _known_path = [*sys.path]
    return _known_path


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w")


def ended(question: Callable[[], T]) -> T:
    """The answer. Raises Endless after SECONDS_MAX of processor time; in the main thread, where alone signals
    arrive."""
    if threading.current_thread() is not threading.main_thread():
        return question()
    _Alarm.install()
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_MAX)
    try:
        return question()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


@contextmanager
def limited() -> Iterator[None]:
    """Have what runs within it end as `ended` does, or after WAITING_S_MAX if it does nothing: for what is asked but
    once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    timers = (
        (signal.SIGVTALRM, signal.ITIMER_VIRTUAL, SECONDS_MAX),
        (signal.SIGALRM, signal.ITIMER_REAL, WAITING_S_MAX),
    )
    before = {number: signal.signal(number, _raise_endless) for number, _, _ in timers}
    for _, timer, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, timer, _ in timers:
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


class _Alarm:
    """The handler of the timer. To ask whose it is costs more than most questions to a contract, so that is done now
    and then."""

    EVERY = 256
    left = 0

    @classmethod
    def install(cls) -> None:
        cls.left -= 1
        if cls.left < 0:
            cls.left = cls.EVERY
            if signal.getsignal(signal.SIGVTALRM) is not _raise_endless:
                signal.signal(signal.SIGVTALRM, _raise_endless)


def _raise_endless(number: int, frame: object) -> None:
    raise Endless
