"""Clients on an event loop at the gate: each task that asks the server has a thread of its own, which awaits its turn.

The loop must go on while one of its tasks waits, and while a mark holds the loop what its tasks asked for may be made.
A task's first command names its lane, as on the kernel: client 0's first is ``0.1``. See ``gate``.
"""

from __future__ import annotations

import asyncio
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import redis
import redis.asyncio

from orderlab.properties.clients.gate import (
    HELD,
    PATIENCE_S,
    Lane,
    Run,
    ScheduledStep,
    _blocked,
    _sleep,
    _start,
    current,
    goes_out,
    lose_reply,
    waiting,
)
from orderlab.properties.clients.gate_wire import encoded, has_end, parts, whole_replies

ROUNDS = 8
"""Rounds of an event loop in which a task takes a reply and comes to what it waits for next."""
OPENING = "_gated_opening"
"""Set in a connection that is being opened: its commands are no steps."""


_asyncio_sleep = asyncio.sleep


class Courier:
    """The thread in which the commands of one task are carried out."""

    def __init__(self, run: Run, owner: Lane, loop: Any) -> None:
        owner.children += 1
        self.run, self.loop, self.owner = run, loop, owner
        self.lane = Lane(f"{owner.name}.{owner.children}", True, True)
        self.lane.client, self.lane.courier, owner.loop = owner.client, self, loop
        self.load = 0
        """Steps that it was asked for and has not made."""
        run.lanes[self.lane.name] = self.lane
        self.errands: queue.SimpleQueue[Any] = queue.SimpleQueue()
        _start(threading.Thread(target=self._live, daemon=True))

    def carried(self, connection: Any, part: Any, sent: int) -> asyncio.Future[None]:
        """Have one step made; done when it has been."""
        future: asyncio.Future[None] = self.loop.create_future()
        self.load += 1
        self.errands.put((connection, part, sent, future))
        return future

    def _live(self) -> None:
        current.run, current.lane = self.run, self.lane
        while not self.run.is_over:
            try:
                connection, part, sent, future = self.errands.get(timeout=0.2)
            except queue.Empty:
                continue
            self.lane.is_over, error = False, None
            try:
                with self.run.gate("command", part[0][0].decode().upper()) as step:
                    _carry_for_task(self.run, connection, part, step, sent)
                    self._tell(future, None)
                    if step is not None and not step.waits and self.run.order is None:
                        self._settle()
            except BaseException as raised:
                error = raised
            self._tell(future, error)
            self.load -= 1

    def _tell(self, future: asyncio.Future[None], error: BaseException | None) -> None:
        def done() -> None:
            if not future.done():
                future.set_result(None) if error is None else future.set_exception(error)

        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(done)

    def _settle(self) -> None:
        """Let the loop go on until its tasks have taken what was answered, or it stands at a mark."""
        until = time.monotonic() + 0.2
        for _ in range(ROUNDS):
            went_on = threading.Event()
            if self.loop.is_closed():
                return
            self.loop.call_soon_threadsafe(went_on.set)
            while not went_on.is_set() and time.monotonic() < until and not self.owner.is_over:
                _sleep(0.0005)


def _carry_for_task(run: Run, connection: Any, part: Any, step: ScheduledStep | None, sent: int) -> None:
    """Carry out one step with the fault that befalls it; in a schedule, until the server has done it."""
    fault = step.fault if step is not None else ""
    if not goes_out(run, connection, fault, sent):
        return
    link: TaskLink = vars(connection)[LINK]
    wanted, blocked = link.replies() + len(part), _blocked(run) if step is not None and step.waits else 0
    link.socket.sendall(b"".join(map(_packed, part)))
    until = time.monotonic() + PATIENCE_S
    while step is not None and link.replies() < wanted and time.monotonic() < until:
        if step.waits and _blocked(run) > blocked:
            lane = vars(connection)[ASKING] = current.lane
            assert lane is not None
            lane.asked = part[-1]
            break
        _sleep(0.0003)
    lose_reply(connection, fault, sent)


def _packed(command: Any) -> bytes:
    """A command as the protocol has it."""
    return b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in command)


ASKING = "_gated_lane"
"""Where a connection keeps whom the server has not answered yet."""
LINK = "_gated_link"
"""Where a connection keeps its ``TaskLink``."""
FED = "feed_data"
"""What an event loop calls with the bytes that came."""


class TaskLink:
    """A connection's socket, to which a courier writes, and the replies that came and nobody has taken."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self.socket = socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno()))
        takes, self.seen = getattr(reader, FED), bytearray()

        def noted(data: bytes) -> None:
            self.seen += data
            takes(data)

        setattr(reader, FED, noted)

    def replies(self) -> int:
        """Whole replies that came since the connection was opened."""
        return whole_replies(bytes(self.seen))

    def disconnect(self) -> None:
        """Hang up."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def _task_methods(base: Any) -> dict[str, Any]:
    """What takes the place of the methods of redis-py's asynchronous connections."""
    kept: dict[str, Any] = {name: getattr(base, name) for name in _TASK_REPLACED if hasattr(base, name)}

    def is_aside(connection: Any) -> bool:
        lane = current.lane
        return lane is None or not lane.is_gated or bool(vars(connection).get(OPENING))

    def opening(name: str) -> Callable[..., Any]:
        async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            vars(self)[OPENING] = True
            try:
                with _aside():
                    return await kept[name](self, *args, **kwargs)
            finally:
                vars(self)[OPENING] = False

        return method

    def pack_command(self: Any, *args: Any) -> Any:
        return kept["pack_command"](self, *args) if is_aside(self) else [encoded(self, args)]

    def pack_commands(self: Any, commands: Any) -> Any:
        return kept["pack_commands"](self, commands) if is_aside(self) else [encoded(self, each) for each in commands]

    async def send_packed_command(self: Any, command: Any, check_health: bool = True) -> Any:
        if is_aside(self):
            return await kept["send_packed_command"](self, command, check_health)
        if not self.is_connected:
            await self.connect()
        sent = 0
        for part in parts(command):
            if vars(self).get(HELD) is None:
                await _courier().carried(self, part, sent)
                sent += len(part)

    async def read_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        held = vars(self).get(HELD)
        if held is not None and current.lane is not None:
            if not held[0]:
                del vars(self)[HELD]
                await self.disconnect(nowait=True)
                raise held[1]
            held[0] -= 1
        lane = vars(self).pop(ASKING, None)
        if lane is None:
            return await kept["read_response"](self, *args, **kwargs)
        with waiting(lane, "tries" if has_end(lane.asked) else "waits"):
            response = await kept["read_response"](self, *args, **kwargs)
        lane.asked = ()
        current.run.has_tried(lane, not response)
        return response

    async def check_health(self: Any) -> Any:
        return None if current.lane is not None else await kept["check_health"](self)

    methods = dict(locals())
    replaced = {name: methods[name] for name in kept if name in methods}
    return replaced | {name: opening(name) for name in kept if name.startswith("on_connect")}


_TASK_REPLACED = (
    *("on_connect", "on_connect_check_health", "pack_command", "pack_commands", "send_packed_command"),
    *("read_response", "check_health"),
)
COURIERS = "_gated_couriers"
"""Where an event loop keeps the couriers of its tasks."""


def _courier() -> Courier:
    """The courier of the task that runs."""
    loop, task, lane = asyncio.get_running_loop(), asyncio.current_task(), current.lane
    assert lane is not None
    current.run.check_alive(lane)
    couriers = vars(loop).setdefault(COURIERS, {})
    if task not in couriers:
        couriers[task] = Courier(current.run, lane, loop)
    courier: Courier = couriers[task]
    return courier


@contextmanager
def _aside() -> Iterator[None]:
    """Within it the lane does something beside its steps."""
    lane = current.lane
    if lane is not None:
        lane.asides += 1
    try:
        yield
    finally:
        if lane is not None:
            lane.asides -= 1


async def _connect_task(self: Any) -> None:
    """Open a connection to the server of the run, wherever it should lead."""
    lane, run = current.lane, current.run
    assert lane is not None
    if lane.is_gated:
        _courier()  # named in the order in which tasks come, not in that in which their connections are open
    given = run.server.connection_pool.connection_kwargs
    self.username, self.password, self.credential_provider = given.get("username"), given.get("password"), None
    vars(self).pop(HELD, None)
    with _aside():
        reader, writer = await asyncio.open_connection(given.get("host", "localhost"), int(given.get("port", 6379)))
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    self._reader, self._writer = reader, writer
    link = vars(self)[LINK] = TaskLink(reader, writer)
    run.connections.append((lane.client, link))


def _task_connecting(kept: Callable[..., Any]) -> Callable[..., Any]:
    async def connect(self: Any) -> Any:
        return await (kept(self) if current.lane is None else _connect_task(self))

    return connect


async def _task_sleep(delay: float, result: Any = None) -> Any:
    """``asyncio.sleep``, known to the run."""
    lane = current.lane
    if lane is None:
        return await _asyncio_sleep(delay, result)
    with waiting(lane, "sleeps"):
        return await _asyncio_sleep(delay, result)


@contextmanager
def tasks_installed() -> Iterator[None]:
    """Within it event loops of threads that are lanes meet the gate."""
    base = redis.asyncio.connection.AbstractConnection
    changes: list[tuple[Any, str, Any]] = [(base, name, method) for name, method in _task_methods(base).items()]
    kinds: list[Any] = [redis.asyncio.connection.Connection, redis.asyncio.connection.UnixDomainSocketConnection]
    changes += [(kind, "_connect", _task_connecting(vars(kind)["_connect"])) for kind in kinds]
    changes.append((asyncio, "sleep", _task_sleep))
    undone = [(owner, name, vars(owner)[name]) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in undone:
            setattr(owner, name, value)
