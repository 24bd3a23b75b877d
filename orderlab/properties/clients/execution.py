"""One execution of client code: its lanes (clients, and the threads that they start), their steps, and virtual time.

A lane is a greenlet. It stops before each step that others may see (a command, a sleep that ends, a mark) and goes on
when the scheduler says so; what it does between is its own. Time goes by only when no lane can make a step.
"""

from __future__ import annotations

import gc
import random
import sys
import threading
from asyncio import _set_running_loop
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import greenlet

from orderlab.properties.clients.footprints import SCRIPTS, StepFootprint, Touched
from orderlab.properties.clients.lane import Choice, Killed, Lane, LaneStep, Op, Unstable
from orderlab.properties.clients.nodes import Nodes
from orderlab.properties.clients.places import place_of
from orderlab.properties.clients.troubles import (
    LATE,
    LATE_MAX,
    MIGRATIONS,
    MOVED,
    PAUSES,
    RESTART,
    can_befall,
    is_condition,
)
from orderlab.sim.redis.backends.backend import FIRST_MS
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.keyspace import FrozenKeyspace
from orderlab.sim.redis.lua.host import SharedLua
from orderlab.sim.redis.node_state import Effect
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.versions import DEFAULT, ServerVersion

STEPS_MAX: Final = 2_000
"""Steps of one execution; one that takes more is cut off, and told."""
IDLE_STEPS_MAX: Final = 200
"""Steps in a row that changed nothing, with no deadline of a key ahead: who still waits then waits for ever."""
POLLS_MAX: Final = 6
"""Equal steps of one lane in a row, after which another lane comes first, unless more are asked for."""


class Current(threading.local):
    """The execution that is going on in this thread, if one is; other threads of the process are none of its lanes."""

    execution: Any = None
    is_controlled = False
    """Whether executions are made in this thread: what clients left behind then reaches no server between them."""


current: Final = Current()
_scripts = SharedLua()
LAST_WRITE: Final = ("last write",)
"""What every write changes where a failover may lose it."""
_forsaken: Final[list[Any]] = []
"""Greenlets whose code is never gone on with: one that is let go of would have an exception raised in it."""


def lane_here() -> Lane | None:
    """The lane whose code is running; None in code that no execution drives."""
    execution = current.execution
    return execution.lane if execution is not None else None


class _Workers(threading.local):
    """The greenlets of this thread that wait for a lane."""

    def __init__(self) -> None:
        self.idle: list[Any] = []


_workers: Final = _Workers()


def _work(hub: Any) -> None:
    """Live one lane after the other."""
    while True:
        hub = _live_one(*hub.switch())


def _live_one(execution: Execution, lane: Lane) -> Any:
    """Live one lane, of which the greenlet keeps nothing."""
    execution.live(lane)
    lane.greenlet = None
    _workers.idle.append(greenlet.getcurrent())
    return execution.hub


Chooser = Callable[["Execution", list[Choice]], Choice | None]
"""Says which step comes next of those that can be made; None cuts the execution off."""


class Execution:
    """One run of a scenario from its beginning, along the choices of a chooser."""

    def __init__(
        self, seed: int = 0, troubles: Sequence[str] = (), budget: int = 0, recording: bool = False, folder: str = "",
        masters: int = 0, server: ServerVersion = DEFAULT, polls_max: int = POLLS_MAX,
    ) -> None:  # fmt: skip
        """``masters``: of a cluster; 0: one node that is none."""
        self.nodes = Nodes(masters, _scripts, server) if masters else None
        self.shard = cast(Shard, self.nodes) if masters else Shard(_scripts, server)
        self.shard.now_ms = FIRST_MS
        self.now_us = FIRST_MS * 1000
        self.lapsed: set[bytes] = set()
        """Keys that ended while time went by."""
        self.effects: list[Effect] = []
        self.shard.effects = self.effects
        self.seed = seed
        self.lanes: dict[str, Lane] = {}
        self.lane: Lane | None = None
        self.touched = Touched()
        self.troubles, self.budget = tuple(troubles), budget
        self.used: list[tuple[str, str]] = []
        self.begun: set[str] = set()
        """Clients that have made a step."""
        self.late: Counter[str] = Counter()
        """Client -> moments that it has let go by before it came."""
        self.choices: list[Choice] = []
        self.idle = 0
        self.is_stuck = False
        self.is_cut = ""
        self.polls_max = polls_max
        self.polls_cut = self.late_cut = False
        self.recording, self.folder = recording, folder
        self.has_told_time = False
        """A client has asked what time of day it is: what it does may depend on it."""
        self.steps: list[LaneStep] = []
        self.reply: Any = None
        self.marks: Any = None
        self.checks_always: Callable[[], None] | None = None
        self.last_write: FrozenKeyspace | None = None
        self.ending = False
        self.hub: Any = None
        self.connections = 0
        self.pools: list[tuple[str, Any]] = []
        """Pools of threads that were used, each with the client that did first."""
        self.ways: dict[Any, Any] = {}
        """Client of redis-py -> how its commands reach the shard (``straight``)."""
        self._graveyard: list[Any] = []
        self.keeps_last_write = budget > 0 and "failover" in self.troubles
        self.keeps_synced = budget > 0 and RESTART in self.troubles
        self.synced: FrozenKeyspace = {}
        """What is on disk: the keys of the last whole second."""
        self.synced_at = 0
        self.restarts = 0
        self.refused: Exception | None = None
        """What a lane did that cannot be put in order, whatever its code made of that."""
        self._polled = False
        self.footprint: StepFootprint | None = None
        """What the last step touched."""

    # -- lanes -----------------------------------------------------------------------------------------------

    def add(self, run: Callable[[], Any], client: str, daemon: bool = False) -> Lane:
        """A further lane: a client, or a thread of the lane that runs now."""
        parent = self.lane
        if parent is None:
            name = client
        else:
            parent.children += 1
            name = f"{parent.name}.{parent.children}"
            client = parent.client
        lane = Lane(name, client, run, daemon)
        lane.seed = f"{self.seed}:{name}"
        self.lanes[name] = lane
        if parent is not None:
            self.touched.writes.add(("lanes", client))
        return lane

    def live(self, lane: Lane) -> None:
        """Run the code of a lane to its end."""
        try:
            lane.result = lane.run()
        except (Killed, greenlet.GreenletExit):
            lane.is_killed = True
        except BaseException as error:
            lane.error = error
        lane.is_done = True

    def _begin(self, lane: Lane) -> None:
        """Give a lane a greenlet: one whose last lane is over, if there is one, as new ones ask for memory."""
        idle = _workers.idle
        if not idle:
            worker = greenlet.greenlet(_work)
            worker.switch(greenlet.getcurrent())
            idle.append(worker)
        lane.greenlet = idle.pop()
        lane.greenlet.switch((self, lane))

    def pend(self, op: Op) -> None:
        """In a lane: stop here until the scheduler lets this step be made."""
        lane = self.lane
        assert lane is not None
        if lane.is_killed or self.ending:
            self._die(lane)
        lane.op = op
        if lane.loop is None:
            self.hub.switch()
        else:  # who runs meanwhile may have an event loop of its own, and Python knows one for each thread
            _set_running_loop(None)
            hooks = sys.get_asyncgen_hooks()
            self.hub.switch()
            sys.set_asyncgen_hooks(*hooks)
            _set_running_loop(lane.loop)
        if lane.opens is not None and not self.ending:
            lane.opens()
        if lane.trouble or lane.is_killed or self.ending:
            self.granted(lane)

    def granted(self, lane: Lane) -> None:
        """In a lane whose step may now be made: let befall it what shall."""
        if lane.is_killed or self.ending:
            self._die(lane)
        if lane.trouble == "killed":
            for other in self.lanes.values():
                if other.client == lane.client:
                    other.is_killed = True
            lane.trouble = ""
            self._die(lane)
        if lane.trouble in PAUSES:
            op, longer_us = lane.op, PAUSES[lane.trouble]
            lane.trouble = ""
            self.pend(Op("sleep", "paused", _never, self._past_deadline_us() + longer_us))
            self.pend(op)
        elif lane.trouble == LATE:
            op, lane.trouble = lane.op, ""
            self.pend(Op("sleep", LATE, _never, self._next_moment_us()))
            self.pend(op)

    def _die(self, lane: Lane) -> None:
        lane.kills += 1
        if lane.kills > 50:  # code that catches everything and tries again would never end
            self._graveyard.append(lane.greenlet)
            lane.is_done = True
            while True:
                self.hub.switch()
        raise Killed

    def forsake(self, error: BaseException) -> None:
        """In a lane: leave its code where it is, for good, and raise ``error`` where the execution was asked for."""
        lane = self.lane
        assert lane is not None
        lane.is_done = True
        _forsaken.append(lane.greenlet or greenlet.getcurrent())
        self.hub.throw(error)

    def _past_deadline_us(self) -> int:
        ahead = [ms for ms in self.shard.all_deadlines_ms() if ms >= self.shard.now_ms]
        return (min(ahead) + 1) * 1000 if ahead else self.now_us + 1_000_000

    def _next_moment_us(self) -> int | None:
        """When a key ends or a client that has begun goes on by itself; None where none of them does."""
        begun = [lane for lane in self.lanes.values() if lane.client in self.begun and not lane.is_done]
        moments = [lane.op.until_us for lane in begun if lane.op.until_us is not None]
        timeout_ms = self.shard.waits.next_timeout_ms() if self.shard.waits else None
        moments += [timeout_ms * 1000] if timeout_ms is not None else []
        ends = [(ms + 1) * 1000 for ms in self.shard.all_deadlines_ms() if ms >= self.shard.now_ms]
        return min((*moments, *ends)) if moments else None

    def _late_ones(self, gathered: Sequence[Choice]) -> list[Choice]:
        """The clients that may come later, where those that have begun sleep or wait for a while: time goes by for no
        other."""
        clients = [self.lanes[name].client for name, _ in gathered]
        if not self.begun or self.begun.intersection(clients) or self._next_moment_us() is None:
            return []
        coming = [
            (name, client)
            for (name, _), client in zip(gathered, clients, strict=True)
            if self.lanes[name].op.kind in ("command", "mark")
        ]
        self.late_cut |= any(self.late[client] >= LATE_MAX for _, client in coming)
        return [(name, LATE) for name, client in coming if self.late[client] < LATE_MAX]

    def random(self) -> random.Random:
        """The draws of the lane that runs."""
        assert self.lane is not None
        return self.lane.rng

    # -- steps -----------------------------------------------------------------------------------------------

    def command(self, client: Client, argv: Sequence[bytes]) -> Reply:
        """Carry out one command, as a part of the step that is being made."""
        shard = self.shard if self.nodes is None else self.nodes.of(client)
        effects, touched = self.effects, self.touched
        effects.clear()
        name = argv[0].upper()
        if name == b"EXEC":
            touched.note_watched(client)
        host = shard.lua_host
        loaded, drawn = len(host.scripts) if host is not None else 0, shard.random_state
        reply = shard.execute(argv, client)
        host = shard.lua_host
        if host is not None and len(host.scripts) != loaded:
            touched.writes.add(SCRIPTS)
        if shard.random_state != drawn:
            touched.writes.add(("draws",))
        if client.waiting is not None:
            touched.note_waiting(client.waiting.keys)
        touched.note(effects)
        return reply

    def command_of_one_key(self, client: Client, argv: Sequence[bytes]) -> Reply:
        """``command`` of one that ``is_of_one_key``, without the kernel's own notes, which are a fifth of a step."""
        shard = self.shard
        if shard.waits:  # who waits is served meanwhile, and touches other keys
            return self.command(client, argv)
        dirty, drawn = shard.dirty, shard.random_state
        shard.effects = None
        reply = shard.execute(argv, client)
        shard.effects = self.effects
        if len(argv) > 1:
            self.touched.reads.add(argv[1])
            if shard.dirty != dirty:
                self.touched.writes.add(argv[1])
        if shard.random_state != drawn:
            self.touched.writes.add(("draws",))
        return reply

    def enabled(self) -> list[Choice]:
        """The steps that can be made now, those of the lane that made the last one first."""
        now_us = self.now_us
        gathered: list[Choice] = []
        last = self.choices[-1][0] if self.choices else ""
        polling: list[Choice] = []
        for name, lane in self.lanes.items():
            if lane.is_done:
                continue
            op = lane.op
            ready = op.ready
            if ready is None or lane.is_killed or (op.until_us is not None and now_us >= op.until_us) or ready():
                if lane.polls >= self.polls_max:
                    polling.append(lane.choice)
                elif name == last:
                    gathered.insert(0, lane.choice)
                else:
                    gathered.append(lane.choice)
        if polling:
            if gathered:
                self.polls_cut = True
            else:
                gathered = polling
        plain = tuple(gathered)
        gathered += self._late_ones(plain)
        if len(self.used) < self.budget:
            for name, _ in plain:
                lane = self.lanes[name]
                if lane.op.kind in ("command", "mark"):
                    gathered += [(name, trouble) for trouble in self.troubles if can_befall(self, lane.op, trouble)]
        return gathered

    def make(self, choice: Choice) -> StepFootprint:
        """Make one step; what it touched."""
        name, trouble = choice
        lane, shard = self.lanes[name], self.shard
        op = lane.op
        self.choices.append(choice)
        before = shard.freeze() if self.recording or self.keeps_last_write else {}
        lane.trouble = trouble
        if trouble == LATE:
            self.late[lane.client] += 1
            self.touched.is_whole = True  # who comes when: time goes by
        elif trouble:
            self._befall(lane, choice)
        if op.kind != "start" and op.what != LATE and trouble != LATE:
            self.begun.add(lane.client)
        where = self._where(lane) if self.recording else ("", "")
        self.reply = None
        dirty = shard.dirty
        self.lane = lane
        if lane.greenlet is None:
            self._begin(lane)
        else:
            lane.greenlet.switch()
        follower = lane.follower
        if follower is not None and follower.op.ready is not None and not follower.is_done and follower.op.ready():
            self.lane = follower
            follower.greenlet.switch()
        self.lane = None
        is_changed = shard.dirty != dirty
        if lane.is_done or (lane.children and len(self.lanes) > 3):
            self.touched.writes.add(("lanes", lane.client))
        footprint = self.touched.taken()
        is_progress = bool(footprint.writes)  # before what a thread might have done to memory is added
        if lane.children or "." in name:
            # Threads of one client share its memory, which nobody watches.
            footprint = StepFootprint(footprint.reads, footprint.writes | {("client", lane.client)}, footprint.is_whole)
        if is_progress or is_changed or footprint.is_whole or lane.is_done or op.kind == "start":
            self.idle = 0
            if self._polled:
                self._polled = False
                for other in self.lanes.values():
                    other.polls = 0
                    other.asked.clear()
        else:
            self._count(lane, op)
        if is_changed and self.keeps_last_write:
            self.last_write = before
            footprint = StepFootprint(footprint.reads, footprint.writes | {LAST_WRITE}, footprint.is_whole)
        if self.recording:
            self.steps.append(
                LaneStep(name, trouble, op.kind, op.what, self.reply, shard.now_ms, *where, before, shard.freeze())
            )
        if self.checks_always is not None and footprint.writes:
            self.checks_always()
            footprint = StepFootprint(footprint.reads, footprint.writes | {("always",)}, footprint.is_whole)
        return footprint

    def _befall(self, lane: Lane, choice: Choice) -> None:
        """Let a fault strike before a step, or leave it to the step."""
        trouble = choice[1]
        self.used.append(choice)
        self.touched.writes.add(("trouble",))
        if trouble in PAUSES or is_condition(trouble):
            self.touched.is_whole = True  # how long it lasts, or whether it strikes, depends on what is there
        if self.nodes is not None and trouble in MIGRATIONS:
            what = self.lanes[choice[0]].op.what
            self.nodes.migrate(what if isinstance(what[0], tuple) else (what,), trouble == MOVED)
            self.touched.is_whole = True
            lane.trouble = ""
        elif trouble == "scripts-flushed":
            self._flush_scripts()
            self.touched.writes.add(SCRIPTS)
            lane.trouble = ""
        elif trouble == RESTART:
            self.shard.load(self.synced)
            self._flush_scripts()
            self.touched.is_whole = True
            self.restarts += 1
            lane.trouble = ""
        elif trouble == "failover":
            self.shard.load(self.last_write or {})
            self.touched.is_whole = True
            lane.trouble = ""

    def _flush_scripts(self) -> None:
        for shard in [self.shard] if self.nodes is None else self.nodes.shards:
            shard.execute((b"SCRIPT", b"FLUSH"), Client())

    def _count(self, lane: Lane, op: Op) -> None:
        """Notice lanes that only ask again what they asked before, one command or several in turn."""
        self.idle += 1
        self._polled = True
        if op.kind == "command":
            reply, often = lane.asked.get(op.what, (None, -1))
            lane.polls = often + 1 if often < 0 or repr(reply) == repr(self.reply) else 0
            lane.asked[op.what] = self.reply, lane.polls
        elif op.kind == "sleep":
            lane.polls = 0
            lane.asked.clear()

    def _where(self, lane: Lane) -> tuple[str, str]:
        return lane.place or place_of(lane.greenlet and lane.greenlet.gr_frame, self.folder)

    # -- time ------------------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """Let time go by to the next moment at which a lane can go on. Returns False where there is none."""
        moments = [
            lane.op.until_us for lane in self.lanes.values() if not lane.is_done and lane.op.until_us is not None
        ]
        timeout_ms = self.shard.waits.next_timeout_ms() if self.shard.waits else None
        if timeout_ms is not None:
            moments.append(timeout_ms * 1000)
        if not moments:
            return False
        if self.keeps_synced and min(moments) // 1_000_000 > self.now_us // 1_000_000:
            self.sync()
        self.go_to(min(moments))
        return True

    def go_to(self, moment_us: int) -> None:
        """Let time go by until then."""
        self.now_us = max(self.now_us, moment_us)
        self.shard.now_ms = self.now_us // 1000
        self.lapsed.update(self.shard.lapsed())
        if self.shard.waits:
            self.shard.waits.time_out()

    def sync(self) -> None:
        """Write the keys to disk."""
        if self.keeps_synced:
            self.synced, self.synced_at = self.shard.freeze(), self.shard.dirty

    def run(self, choose: Chooser, prefix: Sequence[Choice] = ()) -> None:
        """Go on until every lane has ended, none can, or the chooser has seen enough.

        ``prefix``: steps that led somewhere before; they are made again, and nobody looks what else could be made.
        Raises Unstable where one of them cannot.
        """
        self.hub = greenlet.getcurrent()
        current.execution, outer = self, current.execution
        collecting = gc.isenabled()
        gc.disable()  # what it would end late in one lane would send commands in another
        try:
            for name in [name for name, lane in self.lanes.items() if lane.op.kind == "start"]:
                self.make((name, ""))  # up to its first step, which nobody else can see
                self.choices.clear()
            for made in prefix:
                self.come_to(made)
                self.footprint = self.make(made)
            while True:
                for lane in self.lanes.values():
                    if not lane.is_done and not lane.daemon:
                        break
                else:
                    break
                enabled = self.enabled()
                if not enabled:
                    if not self.advance():
                        self.is_stuck = True
                        break
                    continue
                if len(self.choices) >= STEPS_MAX:
                    self.is_cut = f"an execution of more than {STEPS_MAX:,} steps"
                    break
                if self.idle > IDLE_STEPS_MAX + self.polls_max * len(self.lanes) and not self._deadline_ahead():
                    self.is_stuck = True
                    break
                choice = choose(self, enabled)
                if choice is None:
                    self.is_cut = "seen"
                    break
                self.footprint = self.make(choice)
        finally:
            self.close()
            current.execution = outer
            if collecting:
                gc.enable()

    def come_to(self, choice: Choice) -> None:
        """Let time go by until a step can be made. Raises Unstable where it never can."""
        lane = self.lanes.get(choice[0])
        while lane is not None and not lane.is_done:
            op = lane.op
            if op.ready is None or lane.is_killed or (op.until_us is not None and self.now_us >= op.until_us):
                return
            if op.ready() or not self.advance():
                break
        if lane is None or lane.is_done or not op.ready or not op.ready():
            error = lane.error if lane is not None else None
            why = f": {type(error).__name__}: {error}" if error is not None else ""
            raise Unstable(f"step {len(self.choices) + 1}: client {choice[0]} could go on, and cannot{why}")

    def _deadline_ahead(self) -> bool:
        return any(ms >= self.shard.now_ms for ms in self.shard.all_deadlines_ms())

    def close(self) -> None:
        """End the lanes that are left."""
        self.ending = True
        for lane in list(self.lanes.values()):
            for _ in range(60):
                if lane.is_done or lane.greenlet is None:
                    break
                self.lane = lane
                lane.greenlet.switch()
        self.lane = None

    def let_go(self) -> None:
        """Part with what leads back to this execution, so that its memory is free at once."""
        self.checks_always = None
        self.ways.clear()
        self.pools.clear()
        for lane in self.lanes.values():
            lane.run, lane.op = _never, _OVER
            lane.locals.clear()


def _never() -> bool:
    return False


_OVER: Final = Op("over")
