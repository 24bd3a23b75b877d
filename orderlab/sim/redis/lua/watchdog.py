"""Untrusted scripts in a process of their own: whatever a script does, the caller gets an answer.

The limits of ``sandbox`` stop a script between two instructions. One call into Lua's library can run for ever (a
pattern that backtracks exponentially) or break the process (a defect of Lua itself). So ``watch`` forks; the child
notes in shared memory which script it is about to run, and the parent kills it when one does not end, or says which one
was running when the child died.
"""

from __future__ import annotations

import faulthandler
import marshal
import mmap
import os
import pickle
import select
import signal
import struct
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from orderlab import code_of_user
from orderlab.child import asked_to_end, dying_with_parent, ending_in_order, quiet_fork
from orderlab.code_of_user import Questions, Unanswered
from orderlab.model.errors import InputError
from orderlab.platform import resident_bytes_max

try:
    import resource
except ImportError:  # where there is no fork either
    resource = None  # type: ignore[assignment]

T = TypeVar("T")

_NOTE_BYTES = 1 << 20
_HEADER = struct.Struct("=QQ")
"""Runs begun plus runs ended; length of the note."""
_COUNT = struct.Struct("=Q")
POLL_SECONDS = 0.05
GRACE_S = 60.0
"""Seconds that a child has to come to an end once it is asked to."""
CANCELLED = "cancelled"
"""The reason of a child that its caller did not want any more."""


@dataclass(frozen=True, slots=True)
class RunningScript:
    """A script or function that was running."""

    name: bytes
    """SHA1 of the script, name of the function."""
    keys: tuple[bytes, ...]
    args: tuple[bytes, ...]
    """Empty, like ``keys``, if together they were too long to note."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The child was killed, or died, before it was done."""

    reason: str
    script: RunningScript | None
    """What ran at that moment, or None if that was no script."""
    seconds: float
    """Processor time that the script had taken, as far as the parent saw; 0 if the child died by itself."""
    died: bool = False
    """The child ended by itself: a broken process, no memory left, somebody's signal."""


@dataclass(frozen=True, slots=True)
class Finished(Generic[T]):
    """The child did its work."""

    value: T


class Heartbeat:
    """Shared memory in which the child notes what it runs."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _NOTE_BYTES)
        self._count = 0

    def begin(self, name: bytes, keys: Sequence[bytes], args: Sequence[bytes]) -> None:
        """A script starts."""
        note = marshal.dumps((name, tuple(keys), tuple(args)))
        if len(note) > _NOTE_BYTES - _HEADER.size:
            note = marshal.dumps((name, (), ()))
        self._memory[_HEADER.size : _HEADER.size + len(note)] = note
        self._count += 1
        _HEADER.pack_into(self._memory, 0, self._count, len(note))

    def end(self) -> None:
        """Note that the run has ended."""
        self._count += 1
        _COUNT.pack_into(self._memory, 0, self._count)

    def count(self) -> int:
        """Runs begun plus runs ended: odd while a script runs."""
        (count,) = _COUNT.unpack_from(self._memory, 0)
        return int(count)

    def script(self) -> RunningScript | None:
        """What runs now."""
        count, length = _HEADER.unpack_from(self._memory, 0)
        if not count % 2:
            return None
        return RunningScript(*marshal.loads(self._memory[_HEADER.size : _HEADER.size + length]))


_forking = threading.Lock()
"""Held so that no child of another thread has the writing end of a pipe, which would keep it open."""
current: Heartbeat | None = None
"""The heartbeat of this process, if it is a watched child. ``LuaEngine`` tells it of every run."""


def watch(
    work: Callable[[], T], *, script_seconds_max: float = 1.0, seconds_max: float | None = None,
    memory_bytes_max: int | None = None, is_cancelled: Callable[[], bool] = lambda: False, in_order: bool = False,
) -> Finished[T] | Unfinished:  # fmt: skip
    """Do ``work`` in a forked child. ``is_cancelled`` is asked now and then; once it says so the child is killed.

    ``script_seconds_max`` is processor time of one script; ``seconds_max`` is wall time of all the work;
    ``memory_bytes_max`` is address space beyond what the process has now. The value must be picklable. An exception of
    ``work`` is raised here. ``in_order``: whoever asks this process to end asks the child, which then has a while to
    answer with what it knows (``orderlab.child.asked_to_end``, noted here as well); asked again, both end at once.
    Linux; elsewhere a script's time is wall time.
    """
    heartbeat, noted = Heartbeat(), Questions(code_of_user.noted)
    die_with_parent = dying_with_parent()
    with _forking:  # both processes leave it, each with a lock of its own
        reading, writing = os.pipe()
        with quiet_fork():
            child = os.fork()
        if child:
            os.close(writing)
    if child == 0:
        os.close(reading)
        _work_in_child(work, heartbeat, noted, writing, memory_bytes_max, die_with_parent, in_order)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        watcher = _Watcher(child, heartbeat, noted, script_seconds_max, seconds_max, is_cancelled, in_order)
        try:
            answer = watcher.wait_in_order(pipe.fileno()) if in_order else watcher.wait(pipe.fileno())
        finally:
            watcher.kill()
    if isinstance(answer, Unfinished):
        return answer
    if not answer:  # what dies by itself is told otherwise, what ends as it should has answered
        asked = noted.label()
        raise InputError(
            f"{asked}: ends the process that asks it by os._exit(0); leave that out"
            if asked
            else "code of yours ended the process that ran it by os._exit(0), without a verdict; leave that out"
        )
    is_value, payload = pickle.loads(answer)
    if is_value:
        return Finished(payload)
    raise payload


def _work_in_child(
    work: Callable[[], object], heartbeat: Heartbeat, noted: Questions, pipe: int, memory_bytes_max: int | None,
    die_with_parent: Callable[[], None], in_order: bool,
) -> None:  # fmt: skip
    """Never returns."""
    global current
    status = 1
    try:
        current, code_of_user.noted, process = heartbeat, noted, os.getpid()
        code_of_user.keep_open(pipe)
        if in_order:
            ending_in_order()
        faulthandler.disable()
        die_with_parent()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if memory_bytes_max is not None:
            limit = _address_space_bytes() + memory_bytes_max
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        limits = code_of_user.limits()
        try:
            answer = pickle.dumps((True, work()))
        except BaseException as error:
            if not isinstance(error, InputError) and (lowered := code_of_user.limits_put_right(limits)):
                told = InputError(f"code of yours {lowered}; leave that out")
                error = told.with_traceback(error.__traceback__)
            answer = _pickled_error(error)
        if os.getpid() == process:  # and not another one that code of the user's has made
            with os.fdopen(pipe, "wb") as stream:
                stream.write(answer)
        status = 0
    finally:
        os._exit(status)


IN_CHILD = "in the watched process, at "
"""How the note of an error begins that says where the child raised it; the traceback follows, which no pickle
carries."""


def _pickled_error(error: BaseException) -> bytes:
    frames = traceback.extract_tb(error.__traceback__)
    note = f"{IN_CHILD}{frames[-1].filename}:{frames[-1].lineno}\n{''.join(traceback.format_list(frames))}"
    try:
        error.add_note(note)
        answer = pickle.dumps((False, error))
        pickle.loads(answer)
    except Exception:
        stands_for = RuntimeError(f"{type(error).__name__}: {error}")
        stands_for.add_note(note)
        return pickle.dumps((False, stands_for))
    return answer


class _Watcher:
    """Waits for a child's answer and looks after its scripts."""

    def __init__(
        self,
        child: int,
        heartbeat: Heartbeat,
        noted: Questions,
        script_seconds_max: float,
        seconds_max: float | None,
        is_cancelled: Callable[[], bool],
        in_order: bool = False,
    ) -> None:
        self._is_cancelled = is_cancelled
        self._is_to_ask = in_order and not asked_to_end  # else the child knows since it was forked
        """When this process is asked to end, the child must be as well."""
        self._child = child
        self._heartbeat = heartbeat
        self._noted = noted
        self._script_seconds_max = script_seconds_max
        self._deadline = None if seconds_max is None else time.monotonic() + seconds_max
        self._status: int | None = None
        self._answer = bytearray()

    def wait(self, pipe: int) -> bytes | Unfinished:
        """The whole answer of the child, or why there is none."""
        answer = self._answer  # goes on where an interruption left it
        seen, since = self._heartbeat.count(), self._used_seconds()
        unanswered = Unanswered(self._noted)
        while True:
            if select.select([pipe], [], [], POLL_SECONDS)[0]:
                chunk = os.read(pipe, 1 << 16)
                if chunk:
                    answer += chunk
                    continue
                return bytes(answer) if self._reap() == 0 else self._died()
            if self._is_to_ask and asked_to_end:
                self._ask()
            if self._is_cancelled():
                return Unfinished(CANCELLED, None, 0.0)
            count, used = self._heartbeat.count(), self._used_seconds()
            if (why := unanswered.why(used)) is not None:
                raise InputError(f"{self._noted.label()}: {why}; correct the contract")
            if count != seen or not count % 2:
                seen, since = count, used
            elif used - since > self._script_seconds_max:
                return Unfinished("the script did not end", self._heartbeat.script(), used - since)
            if self._deadline is not None and time.monotonic() > self._deadline:
                return Unfinished("the work did not end", self._heartbeat.script(), used - since)

    def wait_in_order(self, pipe: int) -> bytes | Unfinished:
        """As ``wait``; interrupted, the answer to which the child comes in the time that is left to it."""
        try:
            return self.wait(pipe)
        except BaseException as asked:
            if isinstance(asked, Exception) or asked_to_end:
                raise
            asked_to_end.append(int(signal.SIGINT if type(asked) is KeyboardInterrupt else signal.SIGTERM))
            self._ask()
            answer = self.wait(pipe)
            if isinstance(answer, Unfinished):
                raise
            return answer

    def _ask(self) -> None:
        """Have the child come to an end."""
        self._is_to_ask = False
        os.kill(self._child, signal.SIGTERM)
        self._deadline = time.monotonic() + GRACE_S

    def kill(self) -> None:
        """End the child if it is still there."""
        if self._status is None:
            os.kill(self._child, signal.SIGKILL)
            self._reap()

    def _reap(self) -> int:
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
        return self._status

    def _died(self) -> Unfinished:
        status = self._reap()
        asked = self._noted.label()
        reason = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        if asked is not None:
            ends = f"ends the process that asks it ({reason})"
            raise InputError(
                f"{asked}: {code_of_user.CLOSES if status == code_of_user.UNHEARD else ends}; leave that out"
            )
        if status in (-signal.SIGXCPU, -signal.SIGXFSZ):
            raise InputError(f"code of yours limits its process, which was {reason}; leave resource.setrlimit out")
        return Unfinished(f"the process of the script died: {reason}", self._heartbeat.script(), 0.0, died=True)

    def _used_seconds(self) -> float:
        """Processor time of the child, or where that cannot be read, wall time."""
        try:
            with open(f"/proc/{self._child}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except OSError:
            return time.monotonic()


def _address_space_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[0]) * resource.getpagesize()
    except OSError:
        return resident_bytes_max()
