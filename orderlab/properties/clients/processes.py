"""Processes of any language at work: the kernel is served to them, and a gate lets one command pass at a time.

Not controlled: time and chance within a process. Where a process makes the scheduler wait, that is noted.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from orderlab.exit_codes import run_asynchronously
from orderlab.model.errors import InputError
from orderlab.properties.clients.footprints import SCRIPTS, StepFootprint, Touched, is_local
from orderlab.properties.harness.keyspace import shown_keyspace
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.node_state import Effect
from orderlab.sim.redis.versions import DEFAULT, ServerVersion
from orderlab.sim.redis.wire.served_client import ServedClient
from orderlab.sim.redis.wire.served_node import ServedNode, ServeSettings

FAULTS: Final = {
    "killed": "the process is killed before the command",
    "reply-lost": "the command is carried out, and its connection breaks before the reply",
    "refused": "the connection breaks before the command is carried out",
    "scripts-flushed": "SCRIPT FLUSH before the command",
}
"""What may befall a command of a process."""
KILLED: Final = "killed"
ALONE: Final = -1
"""The number of a program that runs before or after the processes; what it says of errors is told."""
Step = tuple[int, str]
"""A process by its number, and the fault that befalls its command (none: empty)."""
Choose = Callable[[int, Sequence[Step]], Step]
"""Of a step's number and of those that can be made: the one that is."""
QUIET_S: Final = 5.0
"""A process that asks for nothing for so long sleeps, or computes: others go on, and real time has a say."""
LONGEST_S: Final = 60.0
"""Of one execution."""


@dataclass(frozen=True)
class Programs:
    """Command lines. ``clients``: one for each process; ``setup`` runs before them, ``check`` when they are over."""

    clients: tuple[str, ...]
    setup: str = ""
    check: str = ""
    server: ServerVersion = DEFAULT


@dataclass(frozen=True)
class ProcessesEnded:
    """What is seen of one execution. ``check``: what the program that was asked at the end said, if it said no."""

    ends: tuple[str, ...]
    keys: tuple[tuple[str, str], ...]
    check: str = ""


@dataclass
class _Process:
    """A client."""

    command: str
    waiting: list[tuple[Client, Sequence[bytes], asyncio.Future[str]]] = field(default_factory=list)
    connections: list[ServedClient] = field(default_factory=list)
    is_over: bool = False
    end: str = ""
    is_killed: bool = False
    child: asyncio.subprocess.Process | None = None

    @property
    def is_blocked(self) -> bool:
        """Whether the server makes it wait, with no end of its own."""
        return any(each.client.waiting is not None for each in self.connections)


@dataclass
class ProcessRun:
    """One execution: who made each step, what it was and what it touched."""

    ended: ProcessesEnded | None = None
    choices: list[Step] = field(default_factory=list)
    enabled: list[tuple[Step, ...]] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    keys: list[dict[str, str]] = field(default_factory=list)
    """After each step."""
    footprints: list[StepFootprint] = field(default_factory=list)
    is_stuck: bool = False
    is_timed: bool = False
    """Real time had a say."""

    @property
    def struck(self) -> set[int]:
        """The processes that a fault befell."""
        return {number for number, fault in self.choices if fault}


class ProcessExecution:
    """Processes at work on a node of their own."""

    def __init__(
        self, programs: Programs, faults: Sequence[str] = (), budget: int = 0, numbers: Sequence[int] = ()
    ) -> None:
        """``budget``: so many of the ``faults`` may strike. ``numbers``: what the processes are told to be; their
        places if empty."""
        self.numbers = numbers or range(len(programs.clients))
        self.programs, self.faults, self.budget = programs, tuple(faults), budget
        self.processes = [_Process(command) for command in programs.clients]
        self.node = ServedNode(ServeSettings(version=programs.server))
        self.run = ProcessRun()
        self.touched, self.effects = Touched(), list[Effect]()
        self.changed = asyncio.Event()

    async def carried_out(self, choose: Choose) -> ProcessRun:
        """Let the processes come to their end. Raises InputError where a command cannot be started, or does not end."""
        await self.node.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                if self.programs.setup:
                    end = await self._alone(self.programs.setup)
                    if end:
                        raise InputError(f"--setup {self.programs.setup}: {end}; correct it")
                self.node.gate = self._gate
                await self._race(choose)
                self.node.gate = None
                check = await self._alone(self.programs.check) if self.programs.check and not self.run.is_stuck else ""
        except TimeoutError:
            commands = ", ".join(dict.fromkeys(self.programs.clients))
            raise InputError(f"--command {commands}: an execution takes more than {LONGEST_S:g} s") from None
        finally:
            await self.node.stop()
        self.run.ended = ProcessesEnded(
            tuple(each.end or "waits for ever" for each in self.processes),
            tuple(
                (repr(key), repr((str(kind), value, at is not None)))
                for key, (kind, value, at) in sorted(self.node.shard.freeze().items())
            ),
            check,
        )
        return self.run

    async def _race(self, choose: Choose) -> None:
        children: list[asyncio.Future[None]] = []
        servers = []
        try:
            for number, process in enumerate(self.processes):
                servers.append(await self._listen(process))
                told = self.numbers[number]
                children.append(asyncio.ensure_future(self._live(told, process, _port(servers[-1]))))
            await self._schedule(choose, children)
        finally:
            for child in children:
                child.cancel()
            await asyncio.gather(*children, return_exceptions=True)
            for server in servers:
                server.close()

    async def _listen(self, process: _Process) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(partial(self._admitted, process), "127.0.0.1", 0)

    async def _alone(self, command: str) -> str:
        """Run a program that no gate holds up; how it failed, or nothing."""
        process = _Process(command)
        server = await self._listen(process)
        try:
            await self._live(ALONE, process, _port(server))
        finally:
            server.close()
        return "" if process.end.startswith("exit code 0,") else process.end

    def _admitted(self, process: _Process) -> ServedClient:
        connection = ServedClient(self.node)
        process.connections.append(connection)
        return connection

    async def _gate(self, client: Client, argv: Sequence[bytes]) -> None:
        if is_local(argv) or (client.queue is not None and argv[0].upper() not in (b"EXEC", b"DISCARD")):
            return
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        process = next(each for each in self.processes if any(one.client is client for one in each.connections))
        process.waiting.append((client, argv, future))
        self.changed.set()
        fault = await future
        if fault:
            await self._strike(process, client, fault)
        if argv[0].upper() == b"EXEC":
            self.touched.note_watched(client)
        self.node.shard.effects = self.effects

    async def _strike(self, process: _Process, client: Client, fault: str) -> None:
        self.touched.is_whole = True
        connection = next(each for each in process.connections if each.client is client)
        if fault == "reply-lost":
            self.node.faults.lose_reply(())
        elif fault == "scripts-flushed":
            host = self.node.shard.lua_host
            if host is not None:
                host.flush()
        else:
            connection.abort()
        if fault == KILLED and process.child is not None:
            process.is_killed = True
            process.child.kill()
            await process.child.wait()
            for each in process.connections:
                each.abort()

    async def _live(self, number: int, process: _Process, port: int) -> None:
        where = {
            "REDIS_URL": f"redis://127.0.0.1:{port}/0",
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": str(port),
            "ORDERLAB_CLIENT": str(number),
        }
        words = [word.replace("{port}", str(port)) for word in words_of(process.command)]
        try:
            child = process.child = await asyncio.create_subprocess_exec(
                *words, env=os.environ | where, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT if number == ALONE else asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            raise InputError(f"--command {process.command}: cannot be started ({error.strerror}); correct it") from None
        try:
            out, _ = await child.communicate()
        except asyncio.CancelledError:
            if child.returncode is None:
                child.kill()
                await child.wait()
            raise
        process.end = (
            KILLED if process.is_killed else f"exit code {child.returncode}, {out.decode(errors='replace').strip()!r}"
        )
        process.waiting.clear()
        process.is_over = True
        self.changed.set()

    async def _schedule(self, choose: Choose, children: Sequence[asyncio.Future[None]]) -> None:
        while True:
            await self._settle(children)
            enabled = self._enabled()
            if not enabled:
                if all(each.is_over for each in self.processes):
                    break
                is_all = all(each.is_over or each.is_blocked for each in self.processes)
                if is_all and self.node.shard.waits.next_timeout_ms() is None:
                    self.run.is_stuck = True
                    break
                self.run.is_timed = True
                await asyncio.sleep(0.01)  # who sleeps goes on some time
                continue
            self.run.enabled.append(tuple(enabled))
            step = choose(len(self.run.choices), enabled)
            number, fault = step
            _, argv, future = self.processes[number].waiting.pop(0)
            self.effects.clear()
            self.run.choices.append(step)
            had_waits, drawn = bool(self.node.shard.waits), self.node.shard.random_state
            future.set_result(fault)
            await asyncio.sleep(0)  # in which the command is carried out
            await asyncio.sleep(0)
            if fault == KILLED:
                await asyncio.wait([children[number]])
            self._note_touched(argv, had_waits, drawn)
            if fault == "scripts-flushed":
                self.touched.writes.add(SCRIPTS)
            self.run.footprints.append(self.touched.taken())
            words = " ".join(word.decode(errors="replace")[:60] for word in argv)
            self.run.steps.append(f"client {number}{f' [{fault}]' if fault else ''}: {words}")
            self.run.keys.append(shown_keyspace(self.node.shard.freeze()))

    def _enabled(self) -> list[Step]:
        enabled: list[Step] = [(number, "") for number, each in enumerate(self.processes) if each.waiting]
        if sum(bool(fault) for _, fault in self.run.choices) < self.budget:
            enabled += [(number, fault) for number, _ in tuple(enabled) for fault in self.faults]
        return enabled

    def _note_touched(self, argv: Sequence[bytes], had_waits: bool, drawn: int) -> None:
        shard, touched = self.node.shard, self.touched
        touched.note(self.effects)
        if argv[0].upper() in (b"SCRIPT", b"FUNCTION", b"EVAL"):
            touched.writes.add(SCRIPTS)
        if had_waits or shard.waits or shard.random_state != drawn:
            touched.is_whole = True  # whoever waits may be served
        self.run.is_timed |= shard.waits.next_timeout_ms() is not None

    async def _settle(self, children: Sequence[asyncio.Future[None]]) -> None:
        """Wait until each process has asked for something, waits at the server, or is over."""
        while not all(each.is_over or each.waiting or each.is_blocked for each in self.processes):
            for child in children:
                if child.done() and child.exception() is not None:
                    raise child.exception() or AssertionError
            self.changed.clear()
            try:
                async with asyncio.timeout(QUIET_S):
                    await self.changed.wait()
            except TimeoutError:
                self.run.is_timed = True
                if any(each.waiting for each in self.processes):
                    return


def carried_out(
    programs: Programs, choose: Choose, faults: Sequence[str] = (), budget: int = 0, numbers: Sequence[int] = ()
) -> ProcessRun:
    """Carry the processes out once. Raises InputError."""

    async def live() -> ProcessRun:
        return await ProcessExecution(programs, faults, budget, numbers).carried_out(choose)

    return run_asynchronously(live())


def words_of(command: str) -> list[str]:
    """The program and its arguments. Raises InputError."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--command {command}: {error}; close it") from None
    if not words:
        raise InputError("--command: no program is named; write one")
    return words


def _port(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port
