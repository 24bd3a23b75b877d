"""A schedule forced on a real server: each client is a thread with redis-py, and a gate lets one step at a time pass.

This file and ``schedule_outcome`` need the standard library and redis-py alone: an exported test is their text and a
schedule. Connections of clients lead to the server that is named, wherever they are told to.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import random
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import redis
import redis.asyncio
import redis.connection

from orderlab.properties.clients.draws import draws_replaced
from orderlab.properties.clients.executors import pools_replaced
from orderlab.properties.clients.gate_wire import BLOCKING, encoded, has_end, has_replies, parts

PATIENCE_S = 2.0
"""How long the gate waits for a client to come to its step, and clients for the others when the schedule is over."""
HELD_S = 0.05
"""How long a client that has made a step of an operation may go on before the next turn."""
LATE_S = 0.1
"""How long a step that comes when time has gone by waits for who may have begun to wait a little later."""
RUN_S = 30.0
"""How long one run may take, what its steps wait for left out."""
_sleep, _start = time.sleep, threading.Thread.start
_WAITS: tuple[tuple[Any, str], ...] = ((threading.Condition, "wait"), (threading.Thread, "join"))


class ScheduledStep(NamedTuple):
    """One step of a schedule."""

    lane: str
    """A client by its number; its second thread is ``0.2``."""
    kind: str
    """``command``, ``sleep`` or ``mark``."""
    name: str = ""
    """Of the command, the first one of a transaction."""
    fault: str = ""
    waits: bool = False
    """It blocks: no reply comes before another client's step."""
    gap_ms: int = 0
    """What has to go by after the step before it."""
    number: int = 0
    """That which the race tells it by; 0: its place here."""


class Killed(BaseException):
    """Raised in a client that is dead."""


class Lane:
    """A client, or a thread of one."""

    def __init__(self, name: str, is_gated: bool = True, is_daemon: bool = False) -> None:
        self.name, self.is_gated, self.is_daemon = name, is_gated, is_daemon
        self.client = name.partition(".")[0]
        self.rng = random.Random(name)
        self.children = self.calls = 0
        self.is_over = self.is_killed = self.comes = False
        """``comes``: it awaits its turn."""
        self.thread: tuple[int, int] | None = None
        """Its numbers for the system and for Python."""
        self.loop: Any = None
        """Its event loop, if one runs in it."""
        self.courier: Any = None
        """Who carries out its commands, if it is a task."""
        self.sleeps = self.tries = self.limits = self.waits = self.asides = 0
        """How many waits it is in: that time alone ends; at whose end it goes on without what others did not send;
        that end in an exception; without an end. And what it does beside its steps."""
        self.asked: tuple[bytes, ...] = ()
        """What the server has not answered yet."""
        self.result: Any = None
        self.error: BaseException | None = None
        self.opens: Any = None
        """Called when its next step is let pass."""

    def is_pausing(self) -> bool:
        """Whether it sleeps, or one of its tasks does."""
        timers = vars(self.loop).get("_scheduled", ()) if self.loop is not None else ()
        return bool(self.sleeps) or any(not each.cancelled() for each in tuple(timers))


class _Current(threading.local):
    lane: Lane | None = None
    run: Any = None


current = _Current()


@contextmanager
def as_lane(lane: Lane | None) -> Iterator[None]:
    """Within it this thread is a lane, or none."""
    outer, current.lane = current.lane, lane
    if outer is not None:
        outer.asides += 1
    try:
        yield
    finally:
        current.lane = outer
        if outer is not None:
            outer.asides -= 1


class Run:
    """Clients at work on the server, along a schedule if there is one."""

    def __init__(
        self, server: Any, steps: Sequence[ScheduledStep] = (), operations: Any = None, order: Any = None
    ) -> None:
        """``operations``: makes of this run what judges the operations of a contract. ``order``: a ``WholeOrder``, in
        place of a schedule."""
        self.server, self.steps, self.order = server, steps, order
        self.operations = operations and operations(self)
        self.holder: Lane | None = None
        """Who has made a step within an operation, and may be about to end it."""
        self.at, self.is_free, self.is_busy, self.is_over = 0, not steps, False, False
        self.strayed = ""
        self.turn = threading.Condition()
        self.lanes: dict[str, Lane] = {}
        self.pools: list[tuple[str, Any]] = []
        """Pools of threads that were used, each with the client that did first."""
        self.dead: set[str] = set()
        self.connections: list[tuple[str, Any]] = []
        self.opened = time.monotonic()
        self.inside: dict[str, list[str]] = defaultdict(list)
        self.counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.always: dict[Any, Any] = {}
        self.at_end: dict[Any, Any] = {}
        self.violation: tuple[str, str] | None = None

    def violate(self, law: str, what: str) -> None:
        """Note the first violation."""
        self.violation = self.violation or (law, what)

    # -- lanes -------------------------------------------------------------------------------------------------

    def begin(self, name: str, work: Callable[[], Any], is_daemon: bool = False, thread: Any = None) -> None:
        """Start a client, or a thread that one starts."""
        lane = self.lanes[name] = Lane(name, bool(self.steps or self.order), is_daemon)

        def live() -> None:
            current.run, current.lane = self, lane
            lane.thread = threading.get_native_id(), threading.get_ident()
            try:
                lane.result = work()
            except Killed:
                lane.is_killed = True
            except BaseException as error:
                lane.error = error
            current.lane = None
            with self.turn:
                lane.is_over, self.holder = True, None
                self.turn.notify_all()

        if thread is None:
            thread = threading.Thread(target=live, daemon=True)
        else:
            thread.run, thread.daemon = live, True
        _start(thread)

    def goes_on_by_itself(self) -> bool:
        """Whether a lane waits for a moment, at which it goes on."""
        lanes = [lane for lane in tuple(self.lanes.values()) if not lane.is_over]
        return any(lane.tries or lane.limits or lane.is_pausing() for lane in lanes)

    def await_end(self) -> None:
        """Wait until all have ended, or wait for ever."""
        if self.order is not None:
            self.order.drive(self)
            return
        with self.turn:
            last = time.monotonic() + RUN_S + sum(step.gap_ms for step in self.steps) / 1000
            while any(not lane.is_over and not lane.is_daemon for lane in list(self.lanes.values())):
                self.turn.wait(0.02)
                goes_on = self.is_busy or (self.at < len(self.steps) and not self.is_free)
                goes_on = goes_on or self.goes_on_by_itself()
                now = time.monotonic()
                if now > last or (not goes_on and now > self.opened + PATIENCE_S):
                    break

    def close(self) -> None:
        """End those that are left, and hang up."""
        self.is_over = True
        with as_lane(None):
            for _, connection in self.connections:
                connection.disconnect()

    def kill(self, client: str) -> None:
        """Let a client die: its connections close, its threads end at their next step."""
        self.dead.add(client)
        with as_lane(None):
            for owner, connection in self.connections:
                if owner == client:
                    connection.disconnect()

    # -- the gate ----------------------------------------------------------------------------------------------

    @contextmanager
    def gate(self, kind: str, name: str) -> Iterator[ScheduledStep | None]:
        """Wait for the turn of the lane that runs; the next turn begins afterwards."""
        lane = current.lane
        assert lane is not None
        self.check_alive(lane)
        if self.holder is lane:
            self.holder = None
        step = self._turn(lane, kind, name) if lane.is_gated else None
        if lane.opens is not None:
            lane.opens()
        try:
            if step is not None and step.fault == "killed":
                self.kill(lane.client)
                self.check_alive(lane)
            yield step
            if step is not None:
                for check in list(self.always.values()) if self.order is None else ():
                    self.ask("always", check)
        finally:
            self.opened = time.monotonic()
            if step is not None:
                with self.turn:
                    self.at, self.is_busy = self.at + 1, False
                    self.holder = lane if self.operations is not None and not step.waits else None
                    self.turn.notify_all()

    def check_alive(self, lane: Lane) -> None:
        """Raise Killed in a client that is dead; later what a client does that cannot reach its server."""
        if lane.client in self.dead or self.is_over:
            if lane.is_killed:
                raise redis.ConnectionError("the client is dead")
            lane.is_killed = True
            raise Killed

    def _turn(self, lane: Lane, kind: str, name: str) -> ScheduledStep | None:
        if self.order is not None:
            with self.turn:
                lane.comes = True
                self.turn.notify_all()
                while lane.comes:
                    self.turn.wait(0.02)
                    self.check_alive(lane)
            return ScheduledStep(lane.name, kind, name, waits=name in BLOCKING)
        with self.turn:
            while True:
                self._pass_over()
                if self.is_free or self.at >= len(self.steps):
                    return None
                step = self.steps[self.at]
                is_held = self.holder is not None and time.monotonic() < self.opened + HELD_S
                if step.lane == lane.name and not self.is_busy and not is_held:
                    break
                self.turn.wait(0.002 if is_held else 0.02)
                self.check_alive(lane)
                late = time.monotonic() - self.opened > PATIENCE_S + step.gap_ms / 1000
                if late and not self.is_busy:
                    self._stray(f"client {step.lane} does not come to {step.name or step.kind}")
                    self.is_free = True
            self.is_busy = True
            if step.kind != kind or (kind == "command" and step.name != name):
                self._stray(f"client {lane.name} comes with {name or kind}, not {step.name or step.kind}")
        left = step.gap_ms / 1000 - (time.monotonic() - self.opened)
        if step.gap_ms and left > -0.002:
            _sleep(left + 0.002)
            until = time.monotonic() + LATE_S
            while any(each.tries for each in tuple(self.lanes.values())) and time.monotonic() < until:
                _sleep(0.001)
        return step

    def has_tried(self, lane: Lane, is_in_vain: bool) -> None:
        """A lane no longer waits for what others send."""
        if self.order is not None:
            self.order.has_tried(lane, is_in_vain)

    def _pass_over(self) -> None:
        """Leave out steps of those that have ended."""
        while self.at < len(self.steps):
            owner = self.lanes.get(self.steps[self.at].lane)
            if owner is None or not (owner.is_over or owner.client in self.dead):
                break
            self._stray(f"client {owner.name} has ended before {self.steps[self.at].name or self.steps[self.at].kind}")
            self.at += 1

    def _stray(self, what: str) -> None:
        number = self.steps[self.at].number if self.at < len(self.steps) else 0
        self.strayed = self.strayed or f"step {number or self.at + 1}: {what}"

    def ask(self, law: str, check: Callable[..., Any]) -> None:
        """Ask a check, in a connection of its own."""
        with as_lane(Lane("check", False)):
            try:
                if completed(check, None) is False:
                    self.violate(law, f"{check.__name__} is false")
            except AssertionError as error:
                self.violate(law, f"{check.__name__}: {str(error) or 'assertion failed'}")


def completed(function: Callable[..., Any], at: Any) -> Any:
    """What a function of a scenario returns, called with a client of its own."""
    if not inspect.iscoroutinefunction(function):
        return called(function, redis.Redis(), at)

    async def whole() -> Any:
        client = redis.asyncio.Redis()
        try:
            return await called(function, client, at)
        finally:  # redis-py 5 would close its connections when the event loop is closed
            await client.connection_pool.disconnect()

    return asyncio.run(whole())


def called(function: Callable[..., Any], client: Any, at: Any) -> Any:
    """Call a function of a scenario with what it takes."""
    names = tuple(inspect.signature(function).parameters)
    given = {"redis": client, "at": at}
    if all(name in given for name in names):
        return function(**{name: given[name] for name in names})
    return function(*(client, at)[: len(names)])


# -- what clients meet -------------------------------------------------------------------------------------------


def sleep(seconds: float) -> None:
    """``time.sleep``: a step of the schedule, which says when it is over."""
    lane, run = current.lane, current.run
    if lane is None:
        return _sleep(seconds)
    if run.order is None:
        with run.gate("sleep", ""):
            pass
    if not lane.is_gated or run.order is not None or run.is_free or run.at >= len(run.steps):
        with waiting(lane, "sleeps"):
            _sleep(min(seconds, 60))
    if run.order is not None:
        with run.gate("sleep", ""):
            pass


@contextmanager
def waiting(lane: Lane, how: str) -> Iterator[None]:
    """Within it the lane is in one more wait: ``sleeps``, ``tries``, ``limits`` or ``waits``."""
    setattr(lane, how, getattr(lane, how) + 1)
    try:
        yield
    finally:
        setattr(lane, how, getattr(lane, how) - 1)


def _timed(kept: Callable[..., Any]) -> Callable[..., Any]:
    """A wait of the standard library: with a timeout it is as a sleep."""

    def wait(self: Any, timeout: float | None = None) -> Any:
        lane = current.lane
        if lane is None or timeout is None:
            return kept(self, timeout)
        with waiting(lane, "sleeps"):
            return kept(self, timeout)

    return wait


def _thread_start(self: Any) -> None:
    lane, run = current.lane, current.run
    if lane is None:
        return _start(self)
    lane.children += 1
    run.begin(f"{lane.name}.{lane.children}", self.run, bool(self.daemon), self)


def _how_it_reads(lane: Lane, limit: Any, usual: Any) -> str:
    """Which wait a lane is in that reads a reply, with that limit or the usual one."""
    if lane.asked and has_end(lane.asked):
        return "tries"
    return "limits" if (limit if isinstance(limit, (int, float, type(None))) else usual) else "waits"


HELD = "_gated_error"
"""Where a connection keeps how many replies it can still read, and the error after them."""


def _can_read(kept: Callable[..., Any]) -> Callable[..., Any]:
    def can_read(self: Any, timeout: float | None = 0) -> Any:
        lane = current.lane
        if lane is None or not timeout:
            return kept(self, timeout)
        with waiting(lane, "tries"):
            is_there = kept(self, timeout)
        current.run.has_tried(lane, not is_there)
        return is_there

    return can_read


def _methods(base: Any) -> dict[str, Any]:
    """What takes the place of the methods of redis-py's connections."""
    kept = {name: getattr(base, name) for name in _REPLACED if hasattr(base, name)}

    def aside(name: str) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            with as_lane(None):
                return kept[name](self, *args, **kwargs)

        return method

    def pack_command(self: Any, *args: Any) -> Any:
        return kept["pack_command"](self, *args) if current.lane is None else [encoded(self, args)]

    def pack_commands(self: Any, commands: Any) -> Any:
        if current.lane is None:
            return kept["pack_commands"](self, commands)
        return [encoded(self, each) for each in commands]

    def send_command(self: Any, *args: Any, **kwargs: Any) -> Any:
        if current.lane is None:
            return kept["send_command"](self, *args, **kwargs)
        self.send_packed_command([encoded(self, args)])

    def send_packed_command(self: Any, command: Any, check_health: bool = True) -> Any:
        if current.lane is None:
            return kept["send_packed_command"](self, command, check_health)
        if not isinstance(self._sock, socket.socket):
            self._sock = None  # a pool that a module keeps may have been on the kernel before
            self.connect()
        sent = 0
        for part in parts(command):
            if vars(self).get(HELD) is None:
                with current.run.gate("command", part[0][0].decode().upper()) as step:
                    _carry(self, part, step, sent, lambda part: _send(self, part))
                sent += len(part)

    def _send(connection: Any, part: Any) -> None:
        with as_lane(None):
            packed = kept["pack_commands"](connection, part)
            kept["send_packed_command"](connection, packed, False)

    def read_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        held, lane = vars(self).get(HELD), current.lane
        if lane is None:
            return kept["read_response"](self, *args, **kwargs)
        if held is not None:
            if not held[0]:
                del vars(self)[HELD]
                self.disconnect()
                raise held[1]
            held[0] -= 1
        with waiting(lane, _how_it_reads(lane, kwargs.get("timeout", self), self.socket_timeout)):
            response = kept["read_response"](self, *args, **kwargs)
        if lane.asked:
            lane.asked = ()
            current.run.has_tried(lane, not response)
        return response

    def check_health(self: Any) -> Any:
        return kept["check_health"](self) if current.lane is None else None

    methods = dict(locals()) | {"can_read": _can_read(base.can_read)}
    replaced = {name: methods[name] for name in kept if name in methods}
    return replaced | {name: aside(name) for name in kept if name.startswith("on_connect")}


_REPLACED = (
    *("on_connect", "on_connect_check_health", "pack_command", "pack_commands", "send_command"),
    *("send_packed_command", "can_read", "read_response", "check_health"),
)


def goes_out(run: Run, connection: Any, fault: str, sent: int) -> bool:
    """Whether a step's commands go out, after what strikes before they do."""
    if fault == "scripts-flushed":
        with as_lane(None):
            run.server.script_flush()
    if fault == "refused":
        vars(connection)[HELD] = [sent, redis.ConnectionError("Connection reset by peer")]
    return fault != "refused"


def lose_reply(connection: Any, fault: str, sent: int) -> None:
    """Have the connection fail in place of the reply, if that is the fault."""
    if fault == "reply-lost":
        vars(connection)[HELD] = [sent, redis.ConnectionError("Connection closed by server.")]
    elif fault == "timeout":
        vars(connection)[HELD] = [sent, redis.TimeoutError("Timeout reading from socket")]


def _carry(connection: Any, part: Any, step: ScheduledStep | None, sent: int, send: Callable[[Any], None]) -> None:
    """Carry out one step, with the fault that befalls it; in a schedule, until the server has done it."""
    run, fault = current.run, step.fault if step is not None else ""
    if not goes_out(run, connection, fault, sent):
        return
    wanted = next(count for count in itertools.count() if not has_replies(connection._sock, count + 1)) + len(part)
    blocked = _blocked(run) if step is not None and step.waits else 0
    send(part)
    until = time.monotonic() + PATIENCE_S
    while step is not None and connection._sock and not has_replies(connection._sock, wanted):
        if step.waits and _blocked(run) > blocked:
            assert current.lane is not None
            current.lane.asked = part[-1]
            break
        if time.monotonic() > until:
            break
        _sleep(0.0003)
    lose_reply(connection, fault, sent)


def _blocked(run: Run) -> int:
    with as_lane(None):
        return int(run.server.info("clients")["blocked_clients"])


def _connecting(kept: Callable[..., Any]) -> Callable[..., Any]:
    def connect(self: Any) -> Any:
        lane, run = current.lane, current.run
        if lane is None:
            return kept(self)
        given = run.server.connection_pool.connection_kwargs
        self.username, self.password, self.credential_provider = given.get("username"), given.get("password"), None
        vars(self).pop(HELD, None)
        made = socket.create_connection((given.get("host", "localhost"), int(given.get("port", 6379))), 5)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.settimeout(self.socket_timeout)
        run.connections.append((lane.client, self))
        return made

    return connect


@contextmanager
def installed() -> Iterator[None]:
    """Within it threads that are lanes meet the gate."""
    base = redis.connection.AbstractConnection
    changes: list[tuple[Any, str, Any]] = [(base, name, method) for name, method in _methods(base).items()]
    kinds: list[Any] = [redis.connection.Connection, redis.connection.SSLConnection]
    for kind in (*kinds, redis.connection.UnixDomainSocketConnection):
        changes.append((kind, "_connect", _connecting(vars(kind)["_connect"])))
    changes += draws_replaced(lambda: current.lane)
    changes += pools_replaced(lambda: current.run, lambda: current.lane)
    changes.append((threading.Thread, "start", _thread_start))
    changes += [(kind, name, _timed(vars(kind)[name])) for kind, name in _WAITS]
    for module in list(sys.modules.values()):  # redis-py's retries have taken the name out of its module
        if module is not None and vars(module).get("sleep") is _sleep and module.__name__ != "asyncio":
            changes.append((module, "sleep", sleep))
    undone = [(owner, name, vars(owner)[name]) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in undone:
            setattr(owner, name, value)
