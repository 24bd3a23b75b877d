"""Hostile work in forked children: whatever it does, the caller gets a result or the way in which it died.

One child works through many items, so that forking costs little. A child that raises goes on with the next item; one
that exits, crashes, hangs or takes too much memory is replaced, and only the item that it was at is given up.

What a run leaves is collected before the next: a simulation is full of cycles, each holding arrays of megabytes of
which Python's own collector, which counts objects, knows nothing. What the child was born with is frozen, so that this
costs no more than the run's own objects.

Linux keeps the peak of a process's memory and lets it be reset; elsewhere the peak is that of the whole child.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import pickle
import resource
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from orderlab.child import dying_with_parent, quiet_fork
from orderlab.platform import ENDING, resident_bytes_max

T = TypeVar("T")
_LENGTH = struct.Struct("!Q")
_BEGIN, _FINISHED, _RAISED = "begin", "finished", "raised"
GRACE_S = 5.0
"""How long a child may take to fork, and to leave after its last item."""
CHILD_PIPE = 3


@dataclass(frozen=True)
class ProcessUsage:
    """Measured, so it differs from run to run."""

    wall_s: float
    cpu_s: float
    peak_memory_mib: float


@dataclass(frozen=True)
class Ended(Generic[T]):
    """One item: ``status`` is ok, error (it raised), memory, timeout or killed (exit, signal)."""

    item: int
    status: str
    result: T | None
    error: str | None
    usage: ProcessUsage


def isolated(work: Callable[[int], T], items: Sequence[int], wall_s: float, memory_mib: int) -> Iterator[Ended[T]]:
    """``work(item)`` for each item, in order, each within ``wall_s`` seconds and ``memory_mib`` more than now."""
    left = list(items)
    while left:
        with _Child(work, left, memory_mib) as child:
            while left:
                ended = child.next(left[0], wall_s)
                left.pop(0)
                yield ended
                if ended.status in ("timeout", "killed"):
                    break


class _Child:
    """A forked process and the pipe on which it reports."""

    def __init__(self, work: Callable[[int], Any], items: Sequence[int], memory_mib: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        reading, writing = os.pipe()
        die_with_parent = dying_with_parent()
        with quiet_fork():
            self.pid = os.fork()
        if self.pid == 0:
            os.close(reading)
            _live_in_child(work, items, memory_mib, writing, die_with_parent)
        os.close(writing)
        self._pipe = reading
        self._ready = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else -1
        self._buffer = bytearray()
        self._status: int | None = None

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *exception: object) -> None:
        if exception[0] is not None or not self._exits(GRACE_S):
            self._kill()
        os.close(self._pipe)
        if self._ready >= 0:
            os.close(self._ready)

    def next(self, item: int, wall_s: float) -> Ended[Any]:
        """What became of the next item."""
        begun = time.perf_counter()
        deadline = begun + wall_s + GRACE_S
        while True:
            message = self._message(deadline)
            if isinstance(message, tuple) and message[:2] == (_BEGIN, item):
                begun = time.perf_counter()
                deadline = begun + wall_s
            elif isinstance(message, tuple) and message[0] in (_FINISHED, _RAISED) and message[1] == item:
                _, _, status, result, error, usage = message
                return Ended(item, status, result, error, usage)
            else:
                took = ProcessUsage(time.perf_counter() - begun, 0.0, 0.0)
                if message == "deadline":
                    self._kill()
                    return Ended(item, "timeout", None, f"stopped after {wall_s:g} s (limits.wall_s)", took)
                if not self._exits(0.2):
                    self._kill()  # it closed or spoiled its pipe and lives on
                return Ended(item, "killed", None, _how_it_died(self._status), took)

    def _message(self, deadline: float) -> Any:
        """The next message; "deadline" or "gone"."""
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN | select.POLLHUP)
        if self._ready >= 0:
            poll.register(self._ready, select.POLLIN)
        while True:
            found = self._parsed()
            if found is not None:
                return found
            left = deadline - time.perf_counter()
            if left <= 0:
                return "deadline"
            events = dict(poll.poll(min(left, 3600) * 1000 + 1))
            if self._pipe in events:
                block = os.read(self._pipe, 1 << 20)
                if not block:
                    return "gone"
                self._buffer += block
            elif events:
                return "gone"  # it is dead, and a grandchild may hold the pipe open

    def _parsed(self) -> Any:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if len(self._buffer) < _LENGTH.size + length:
            return None
        block = bytes(self._buffer[_LENGTH.size : _LENGTH.size + length])
        del self._buffer[: _LENGTH.size + length]
        try:
            return pickle.loads(block)
        except Exception:
            return "spoiled"

    def _exits(self, within_s: float) -> bool:
        deadline = time.perf_counter() + within_s
        while self._status is None:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                self._collect()
            elif time.perf_counter() > deadline:
                return False
            else:
                time.sleep(0.001)
        return True

    def _kill(self) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self._collect()

    def _collect(self) -> None:
        """End what the child has started, too: while it is not waited for, its number leads its process group."""
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._status = os.waitpid(self.pid, 0)[1]


def _how_it_died(status: int | None) -> str:
    if status is None:
        return "its process vanished"
    if os.WIFSIGNALED(status):
        return f"its process was ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"its process left with exit code {os.waitstatus_to_exitcode(status)}"


def _live_in_child(
    work: Callable[[int], Any], items: Sequence[int], memory_mib: int, pipe: int, die_with_parent: Callable[[], None]
) -> None:
    """The child's whole life; never returns."""
    try:
        die_with_parent()
        os.setpgid(0, 0)
        for number in (signal.SIGINT, *ENDING):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(pipe, CHILD_PIPE)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        os.closerange(CHILD_PIPE + 1, os.sysconf("SC_OPEN_MAX"))  # sockets of the parent's are no business of a run
        faulthandler.disable()
        _limit_memory(memory_mib)
        gc.freeze()
        for item in items:
            gc.collect()
            _send(CHILD_PIPE, (_BEGIN, item))
            _send(CHILD_PIPE, _tried(work, item))
    finally:
        os._exit(0)


def _tried(work: Callable[[int], Any], item: int) -> tuple[Any, ...]:
    _reset_peak()
    begun, cpu = time.perf_counter(), _cpu_s()
    result, error, status = None, None, "ok"
    try:
        result = work(item)
        pickle.dumps(result)
    except MemoryError as raised:
        status, error = "memory", described(raised)
    except BaseException as raised:
        status, error = "error", described(raised)
    usage = ProcessUsage(time.perf_counter() - begun, _cpu_s() - cpu, _peak_mib())
    return (_FINISHED if error is None else _RAISED, item, status, result, error, usage)


def described(error: BaseException) -> str:
    """Type, message, and the innermost place; without addresses, which differ from process to process."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"[:2000]


def _send(pipe: int, message: Any) -> None:
    block = pickle.dumps(message)
    view = memoryview(_LENGTH.pack(len(block)) + block)
    while view:
        view = view[os.write(pipe, view) :]


def _status_kib(field: str) -> int:
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith(field + ":"):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0


def _limit_memory(memory_mib: int) -> None:
    """Private writable memory beyond today's; address space that is only reserved does not count."""
    now = _status_kib("VmData") * 1024
    if now:
        resource.setrlimit(resource.RLIMIT_DATA, (now + memory_mib * 2**20,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _reset_peak() -> None:
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as clear:
            clear.write("5")
    except OSError:
        pass


def _peak_mib() -> float:
    held = _status_kib("VmHWM") * 1024 or resident_bytes_max()
    return round(held / 2**20, 1)


def _cpu_s() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system
