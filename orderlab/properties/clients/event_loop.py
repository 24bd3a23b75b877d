"""asyncio under the scheduler: a client's event loop on the virtual clock, whose tasks are lanes that send commands.

The loop runs in its client's lane. What a task sends is carried by a lane of the task (its courier), so that every
order of the commands of all tasks and clients can be visited; as soon as one is answered the loop goes on until each
task waits again. So replies reach a client in the order in which its commands were carried out.
"""

from __future__ import annotations

import asyncio
import asyncio.events
import inspect
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import redis.asyncio
import redis.asyncio.connection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from orderlab.properties.clients.execution import Execution, current, lane_here
from orderlab.properties.clients.footprints import PUBSUB
from orderlab.properties.clients.gate_wire import encoded, parts
from orderlab.properties.clients.lane import Lane, Op
from orderlab.properties.clients.places import place_of
from orderlab.properties.clients.wiring import Argv, ShardLink, carry, converted, decoder, has_data, port_of
from orderlab.sim.redis.blocking import Waiting

SPINS_MAX: Final = 1_000
"""Rounds of a loop in which no task waited, after which other lanes come first."""
WRITER, READER, CALLBACKS = "_writer", "_reader", "_connect_callbacks"
"""Where redis-py keeps the streams of a connection, and what it calls when one is open."""


EVENT_LOOP: Final = "the event loop"
"""What a lane waits for whose tasks all wait."""


class LaneLoop(asyncio.BaseEventLoop):
    """The event loop of one client."""

    def __init__(self, execution: Execution) -> None:
        super().__init__()
        assert execution.lane is not None
        self.execution = execution
        self.lane: Lane = execution.lane
        self.lane.loop = self
        self.couriers: dict[Any, Courier] = {}
        self.awaited: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self.spins = 0
        self._selector = self
        self._clock_resolution = 1e-6  # a nanosecond is lost in a float of so many seconds, and a timer never due

    def time(self) -> float:
        """The virtual clock, in seconds."""
        return self.execution.now_us / 1e6

    def _process_events(self, event_list: Sequence[Any]) -> None:
        """There are none: no socket is open."""

    def _write_to_self(self) -> None:
        """Nobody needs to be woken up: threads are lanes."""

    def _can_go_on(self) -> bool:
        waiting: Any = vars(self)["_ready"]
        return bool(waiting) or any(check() for check, _ in self.awaited)

    def select(self, timeout: float | None) -> tuple[()]:
        """Wait until a task can go on: as a selector, for the loop itself."""
        if timeout is not None and timeout <= 0 and self.spins < SPINS_MAX:
            self.spins += 1
        else:
            self.spins = 0
            until_us = None if timeout is None else self.execution.now_us + math.ceil(timeout * 1e6)
            self.execution.pend(Op("sleep" if timeout else "wait", EVENT_LOOP, self._can_go_on, until_us))
        for each in self.awaited[:]:
            check, future = each
            if future.done() or check():
                self.awaited.remove(each)
                _release(future)
        return ()

    async def until(self, check: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait for something that others bring about. Returns whether it is so before the time is over."""
        if check():
            return True
        future: asyncio.Future[None] = self.create_future()
        self.awaited.append((check, future))
        timer = self.call_later(timeout_s, _release, future) if timeout_s is not None else None
        await future
        if timer is not None:
            timer.cancel()
        return check()

    def carried(self, link: ShardLink, part: Sequence[Argv]) -> asyncio.Future[None]:
        """Have one step of the current task made; done when it has been."""
        task = asyncio.current_task(self)
        courier = self.couriers.get(task)
        if courier is None:
            courier = self.couriers[task] = Courier(self)
        future: asyncio.Future[None] = self.create_future()
        if self.execution.recording:
            courier.lane.place = place_of(inspect.currentframe(), self.execution.folder)
        courier.take((link, part, future))
        return future


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Courier:
    """The lane in which the commands of one task are carried out."""

    def __init__(self, loop: LaneLoop) -> None:
        self.execution = loop.execution
        self.load: deque[tuple[ShardLink, Sequence[Argv], asyncio.Future[None]]] = deque()
        here, self.execution.lane = self.execution.lane, loop.lane
        self.lane = self.execution.add(self.run, "", daemon=True)
        self.execution.lane = here
        self.lane.follower = loop.lane

    def take(self, errand: tuple[ShardLink, Sequence[Argv], asyncio.Future[None]]) -> None:
        """Put a step after those that the task has asked for and no longer waits for."""
        self.load.append(errand)
        if len(self.load) == 1:
            self._announce()

    def _announce(self) -> None:
        part = self.load[0][1] if self.load else ()
        self.lane.op = Op("command", part[0] if len(part) == 1 else tuple(part)) if self.load else _IDLE

    def run(self) -> None:
        """Carry out one after the other."""
        self.execution.granted(self.lane)
        while True:
            link, part, future = self.load.popleft()
            if link.error is None:
                carry(self.execution, self.lane, link, part)
            _release(future)
            self._announce()
            self.execution.pend(self.lane.op)


_IDLE: Final = Op("idle", None, lambda: False)


def _new_event_loop(kept: Callable[[], Any]) -> Callable[[], Any]:
    def new_event_loop() -> Any:
        execution = current.execution
        return kept() if execution is None or execution.lane is None else LaneLoop(execution)

    return new_event_loop


# -- connections of redis.asyncio ------------------------------------------------------------------------------------


async def _linked(connection: Any) -> ShardLink:
    """The link of a connection in the execution that goes on; made where there is none."""
    link = getattr(connection, WRITER, None)
    execution = current.execution
    if type(link) is ShardLink and link.execution is execution:
        return link
    link = ShardLink(execution, int(connection.db or 0), int(connection.protocol or 2), port_of(connection))
    setattr(connection, WRITER, link)
    setattr(connection, READER, link)
    if connection.client_name:
        link.client.name = str(connection.client_name).encode()
    for reference in list(getattr(connection, CALLBACKS)):
        callback = reference() if callable(reference) else reference
        if callback is not None:
            done = callback(connection)
            if inspect.isawaitable(done):
                await done
    return link


async def _send(connection: Any, commands: Sequence[Argv]) -> None:
    link = await _linked(connection)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, LaneLoop)
    if loop.lane.kills:
        raise RedisConnectionError("the client is dead")
    try:
        for part in parts(commands):
            if not link.is_broken:
                await loop.carried(link, part)
    except BaseException:  # as redis-py does: what was sent may still be carried out
        await connection.disconnect(nowait=True)
        raise


async def _receive(connection: Any, timeout_s: float | None, is_told: bool, decode: Callable[[Any], Any]) -> Any:
    """The next reply. ``is_told``: None where none comes in time; else raises what redis-py raises."""
    link = await _linked(connection)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, LaneLoop)
    if link.is_broken and not link.replies:
        error = link.error
        assert error is not None
        await connection.disconnect(nowait=True)
        raise error
    if not link.replies and not link.client.pushed:
        link.execution.touched.writes.add(PUBSUB)
        if not await loop.until(lambda: has_data(link), timeout_s):
            return await _late(connection, is_told)
        if link.is_broken:
            return await _receive(connection, timeout_s, is_told, decode)
    if not link.replies:
        if not link.client.pushed:
            return await _receive(connection, timeout_s, is_told, decode)
        link.execution.touched.reads.add(PUBSUB)
        return converted(link.client.pushed.pop(0), decode)
    reply = link.replies.popleft()
    if isinstance(reply, Waiting):
        waiting = reply
        if not await loop.until(lambda: waiting.is_over or link.is_broken, timeout_s):
            return await _late(connection, is_told)
        if link.is_broken:
            return await _receive(connection, timeout_s, is_told, decode)
        reply = waiting.reply
    return converted(reply, decode)


async def _late(connection: Any, is_told: bool) -> None:
    if not is_told:
        await connection.disconnect(nowait=True)
        raise RedisTimeoutError("Timeout reading from socket")


def _methods(original: type) -> dict[str, Any]:
    """The methods to put in place of those of redis-py's asynchronous connections."""
    kept: dict[str, Any] = {name: getattr(original, name) for name in _REPLACED}

    async def connect(self: Any, *args: Any, **kwargs: Any) -> Any:
        if lane_here() is None:
            return await kept["connect"](self, *args, **kwargs)
        await _linked(self)

    async def connect_check_health(self: Any, *args: Any, **kwargs: Any) -> Any:
        if lane_here() is None:
            return await kept["connect_check_health"](self, *args, **kwargs)
        await _linked(self)

    def pack_command(self: Any, *args: Any) -> Any:
        return [encoded(self, args)] if lane_here() is not None else kept["pack_command"](self, *args)

    def pack_commands(self: Any, commands: Any) -> Any:
        if lane_here() is None:
            return kept["pack_commands"](self, commands)
        return [encoded(self, each) for each in commands]

    async def send_packed_command(self: Any, command: Any, check_health: bool = True) -> Any:
        if lane_here() is None:
            return await kept["send_packed_command"](self, command, check_health)
        await _send(self, command)

    async def can_read_destructive(self: Any) -> Any:
        if lane_here() is None:
            return await kept["can_read_destructive"](self)
        return has_data(await _linked(self))

    async def can_read(self: Any) -> Any:
        if lane_here() is None:
            return await kept["can_read"](self)
        return has_data(await _linked(self))

    async def check_health(self: Any) -> Any:
        return None if lane_here() is not None else await kept["check_health"](self)

    async def read_response(self: Any, disable_decoding: bool = False, timeout: Any = None, **kwargs: Any) -> Any:
        if lane_here() is None:
            return await kept["read_response"](self, disable_decoding, timeout, **kwargs)
        wanted = self.socket_timeout if timeout is None else None if timeout == math.inf else timeout
        response = await _receive(self, wanted, timeout is not None, decoder(self, disable_decoding))
        if isinstance(response, ResponseError):
            raise response
        return response

    async def disconnect(self: Any, *args: Any, **kwargs: Any) -> Any:
        link = getattr(self, WRITER, None)
        if not isinstance(link, ShardLink):
            return await kept["disconnect"](self, *args, **kwargs)
        setattr(self, WRITER, None)
        setattr(self, READER, None)
        link.close()

    here = locals()
    return {name: here[name] for name in _REPLACED}


_BASE: Any = redis.asyncio.connection.AbstractConnection
_REPLACED: Final = tuple(
    name
    for name in (
        "connect",
        "connect_check_health",
        "pack_command",
        "pack_commands",
        "send_packed_command",
        "can_read_destructive",
        "can_read",
        "check_health",
        "read_response",
        "disconnect",
    )
    if hasattr(_BASE, name)
)


def replacements() -> list[tuple[Any, str, Any]]:
    """(class or module, attribute, what to put there)."""
    loops = _new_event_loop(asyncio.new_event_loop)
    return [
        *[(_BASE, name, method) for name, method in _methods(_BASE).items()],
        (asyncio, "new_event_loop", loops),
        (asyncio.events, "new_event_loop", loops),
    ]
