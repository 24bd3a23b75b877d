"""The standard library as lanes see it: time, randomness and threads belong to the scheduler.

Each function asks whether a lane is running; code outside of one meets what it replaced.
"""

from __future__ import annotations

import datetime
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any, Final

from orderlab.model.errors import InputError
from orderlab.properties.clients.draws import draws_replaced
from orderlab.properties.clients.execution import current, lane_here
from orderlab.properties.clients.lane import Op

_real_time, _real_sleep = time.time, time.sleep
_RealDatetime: Any = datetime.datetime
_RealLocal: Any = threading.local
_real_current, _real_ident = threading.current_thread, threading.get_ident


def sleep(seconds: float) -> None:
    """``time.sleep``."""
    execution = current.execution
    if execution is None or execution.lane is None:
        return _real_sleep(seconds)
    execution.pend(Op("sleep", seconds, lambda: False, execution.now_us + max(0, round(seconds * 1e6))))


def _clock(real: Callable[[], Any], of_us: Callable[[int], Any], of_day: bool = False) -> Callable[[], Any]:
    def read() -> Any:
        execution = current.execution
        if execution is None or execution.lane is None:
            return real()
        execution.has_told_time |= of_day
        return of_us(execution.now_us)

    return read


_STOPWATCHES: Final = ("perf_counter", "process_time", "thread_time")
_CALENDAR: Final = {"localtime": 0, "gmtime": 0, "ctime": 0, "strftime": 1, "asctime": 0}
"""Functions that say what time it is where they are not told, and which argument tells them."""


def _told(real: Callable[..., Any], at: int) -> Callable[..., Any]:
    is_of_seconds = real in (time.localtime, time.gmtime, time.ctime)

    def tell(*args: Any) -> Any:
        is_told = len(args) > at and args[at] is not None
        if is_told or lane_here() is None:
            return real(*args)
        return real(*args[:at], time.time() if is_of_seconds else time.localtime())

    return tell


class VirtualDatetime(_RealDatetime):  # type: ignore[misc]
    """``datetime.datetime``."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        """The lane's clock."""
        execution = current.execution
        if execution is None or execution.lane is None:
            return _RealDatetime.now(tz)
        execution.has_told_time = True
        return _RealDatetime.fromtimestamp(execution.now_us / 1e6, tz)

    @classmethod
    def utcnow(cls) -> Any:
        """The lane's clock."""
        return cls.now(datetime.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        """The lane's clock."""
        return cls.now()


class LaneLock:
    """``threading.Lock`` between lanes; a real one elsewhere."""

    reentrant = False
    _reals: Final = {False: threading.Lock, True: threading.RLock}

    _made: Any = None
    _execution: Any = None
    _owner: Any = None
    _depth = 0

    @property
    def _real(self) -> Any:
        """Made when it is asked for: few are, and thousands of clients hold some."""
        if self._made is None:
            self._made = vars(self).setdefault("_kept", self._reals[self.reentrant]())  # one, whoever comes at once
        return self._made

    def _here(self, here: Any = current) -> Any:
        execution = here.execution  # kept: pools are also closed when modules are gone
        if execution is None or execution.lane is None:
            return None
        if self._execution is not execution:
            self._execution, self._owner, self._depth = execution, None, 0
        return execution

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As the real one."""
        execution = self._here()
        if execution is None:
            return bool(self._real.acquire(blocking, timeout))
        lane = execution.lane
        if self.reentrant and self._owner is lane:
            self._depth += 1
            return True
        if self._owner is not None and not lane.is_killed and not execution.ending:
            if not blocking:
                return False
            until = None if timeout < 0 else execution.now_us + round(timeout * 1e6)
            execution.pend(Op("wait", "a lock", lambda: self._owner is None, until, is_pause=until is not None))
            if self._owner is not None:
                return False
        self._owner, self._depth = lane, 1
        return True

    def release(self) -> None:
        """As the real one."""
        execution = self._here()
        if execution is None:
            self._real.release()
            return
        if self._owner is None:
            if execution.ending or execution.lane.is_killed:
                return
            raise RuntimeError("release unlocked lock")
        self._depth -= 1
        if not self._depth:
            self._owner = None

    def locked(self) -> bool:
        """As the real one."""
        return self._owner is not None if self._here() is not None else bool(self._real.locked())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def _is_owned(self) -> bool:
        execution = self._here()
        return self._owner is execution.lane if execution is not None else bool(getattr(self._real, _OWNED)())

    def _at_fork_reinit(self) -> None:
        vars(self).clear()


class RLock(LaneLock):
    """``threading.RLock``."""

    reentrant = True


class LaneQueue(vars(queue)["_PySimpleQueue"]):  # type: ignore[misc]
    """``queue.SimpleQueue``, with locks that lanes meet; of a class of its own, so that no other name is taken back."""


_OWNED: Final = "_is_owned"


class Local(_RealLocal):  # type: ignore[misc]
    """``threading.local``: a lane has its own values."""

    def __getattribute__(self, name: str) -> Any:
        lane = lane_here()
        if lane is None or name.startswith("__"):
            return super().__getattribute__(name)
        own = lane.locals.get(id(self), {})
        if name in own:
            return own[name]
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        lane = lane_here()
        if lane is None:
            super().__setattr__(name, value)
        else:
            lane.locals.setdefault(id(self), {})[name] = value
            lane.locals.setdefault(0, {})[str(id(self))] = self  # kept, so that its id stays its own

    def __delattr__(self, name: str) -> None:
        lane = lane_here()
        if lane is None:
            super().__delattr__(name)
        elif name in lane.locals.get(id(self), {}):
            del lane.locals[id(self)][name]
        else:
            raise AttributeError(name)


_real_start, _real_join, _real_alive = threading.Thread.start, threading.Thread.join, threading.Thread.is_alive


def _start(self: Any) -> None:
    execution = current.execution
    if execution is None or execution.lane is None:
        return _real_start(self)
    self._lane = execution.add(self.run, "", bool(self.daemon))
    self._lane.thread = self


def _join(self: Any, timeout: float | None = None) -> None:
    execution = current.execution
    lane = getattr(self, "_lane", None)
    if lane is None:
        return _real_join(self, timeout)
    if execution is not None and not lane.is_done:  # else what is left of an execution that is over ends with it
        until = None if timeout is None else execution.now_us + round(timeout * 1e6)
        execution.pend(Op("wait", f"thread {lane.name}", lambda: lane.is_done, until, is_pause=until is not None))


def _is_alive(self: Any) -> bool:
    lane = getattr(self, "_lane", None)
    return not lane.is_done if lane is not None else _real_alive(self)


def _current_thread() -> Any:
    lane = lane_here()
    return getattr(lane, "thread", None) or _real_current()


def _get_ident() -> int:
    lane = lane_here()
    return _real_ident() if lane is None else 1_000_000 + sorted(current.execution.lanes).index(lane.name)


_real_enabled = logging.Logger.isEnabledFor


def _is_enabled_for(self: logging.Logger, level: int) -> bool:
    lane = lane_here()
    # Thousands of executions would say the same again; and in a lane that is ended what is raised is no trouble.
    is_shown = lane is None or (current.execution.recording and not lane.kills)
    return is_shown and _real_enabled(self, level)


def _refusing(real: Callable[..., Any], does: str) -> Callable[..., Any]:
    """What cannot be put in order, in place of which a lane is told so and the scenario cannot be judged."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        execution = current.execution
        if execution is None or execution.lane is None:
            return real(*args, **kwargs)
        about = f" ({args[1]!r:.60})" if len(args) > 1 else ""
        execution.refused = InputError(
            f"client {execution.lane.name} {does}{about}, which no scheduler puts in order; leave that call out, or "
            "put a function of your own in its place"
        )
        raise execution.refused

    return refuse


def _replacements() -> list[tuple[Any, str, Any]]:
    clocks = [
        (time, "time", _clock(time.time, lambda us: us / 1e6, True)),
        (time, "time_ns", _clock(time.time_ns, lambda us: us * 1000, True)),
        (time, "monotonic", _clock(time.monotonic, lambda us: us / 1e6)),
        (time, "monotonic_ns", _clock(time.monotonic_ns, lambda us: us * 1000)),
        *[(time, name, _clock(getattr(time, name), lambda us: us / 1e6)) for name in _STOPWATCHES],
        *[(time, f"{name}_ns", _clock(getattr(time, f"{name}_ns"), lambda us: us * 1000)) for name in _STOPWATCHES],
        *[(time, name, _told(getattr(time, name), at)) for name, at in _CALENDAR.items()],
    ]
    return [
        *clocks,
        (time, "sleep", sleep),
        (datetime, "datetime", VirtualDatetime),
        *draws_replaced(lane_here),
        (threading, "Lock", LaneLock),
        (threading, "_allocate_lock", LaneLock),
        (threading, "RLock", RLock),
        (threading, "local", Local),
        (threading, "_time", _clock(time.monotonic, lambda us: us / 1e6)),
        (threading, "current_thread", _current_thread),
        (threading, "get_ident", _get_ident),
        (threading.Thread, "start", _start),
        (threading.Thread, "join", _join),
        (threading.Thread, "is_alive", _is_alive),
        (queue, "SimpleQueue", LaneQueue),
        (logging.Logger, "isEnabledFor", _is_enabled_for),
        (queue, "time", _clock(time.monotonic, lambda us: us / 1e6)),
        (socket.socket, "connect", _refusing(socket.socket.connect, "opens a socket")),
        (os, "fork", _refusing(os.fork, "forks")),
        (subprocess.Popen, "__init__", _refusing(subprocess.Popen.__init__, "starts a process")),
        (BaseProcess, "start", _refusing(BaseProcess.start, "starts a process")),
    ]


_OURS: Final = "orderlab."
_SCANNED: Final = ("asyncio", "concurrent", "logging", "multiprocessing", "importlib", "pytest", "_pytest", "xdist")


@contextmanager
def installed(more: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Within it lanes meet the virtual library, modules that took names out of the real one before as well."""
    changes = [*_replacements(), *more]
    undone: list[tuple[Any, str, Any]] = []
    by_real: dict[int, Any] = {}
    for owner, name, value in changes:
        real = owner.__dict__.get(name)
        undone.append((owner, name, real))
        if real is not None and not isinstance(owner, type):
            by_real[id(real)] = value
        setattr(owner, name, value)
    owners = {id(owner) for owner, _, _ in changes}
    for module_name, module in list(sys.modules.items()):
        head = module_name.split(".")[0]
        if module is None or id(module) in owners or module_name.startswith(_OURS) or head in _SCANNED:
            continue
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in by_real and not name.startswith("__"):
                undone.append((module, name, value))
                setattr(module, name, by_real[id(value)])
    try:
        with warnings.catch_warnings():  # C code that a client imports meets a datetime that is ours
            warnings.filterwarnings("ignore", ".*size changed, may indicate binary incompatibility", RuntimeWarning)
            yield
    finally:
        ours = {id(value): real for owner, name, value in changes for real in [_real_of(undone, owner, name)]}
        for owner, name, real in reversed(undone):
            if real is None:  # it is of a class above
                delattr(owner, name)
            else:
                setattr(owner, name, real)
        for module_name, module in list(sys.modules.items()):  # modules that were imported meanwhile
            if module is None or module_name.startswith(_OURS):
                continue
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if id(value) in ours and not name.startswith("__") and ours[id(value)] is not None:
                    setattr(module, name, ours[id(value)])


def _real_of(undone: list[tuple[Any, str, Any]], owner: Any, name: str) -> Any:
    return next(real for known, label, real in undone if known is owner and label == name)
