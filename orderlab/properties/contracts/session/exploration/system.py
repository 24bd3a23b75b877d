"""A store with its writers, readers and troubles as one transition system: the one explorer of session stores.

A state is a handful of small numbers. Behind each stands a value that many states share: one session with its keys and
the judge's account (``effects``), what its reader has been told, how far a writer is (``moves``), the condition of the
node. `orderlab explore store` asks for laws of states; validation, mutation and comparison hear of each step that
breaks something as it is taken, with the state it was taken in, and states carry nothing of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, permutations
from typing import Any, ClassVar, NamedTuple

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.session.contract import Scope
from orderlab.model.contracts.session.refinement import Account
from orderlab.model.contracts.session.refinement.account import name_of
from orderlab.model.contracts.session.spec import FOREVER_MS, Entry
from orderlab.model.contracts.session.traces import Step, Upkeep, Wait
from orderlab.model.explorer.space import Space
from orderlab.model.laws import LAWS
from orderlab.model.spec.transition_system import Invariant, Label, Law, Sometimes, TransitionSystem
from orderlab.properties.contracts.session.exploration.effects import Broken, SessionEffects, told_once
from orderlab.properties.contracts.session.exploration.moves import (
    CRASHES,
    ERRORS,
    EXPIRIES,
    FAILOVER,
    FREE,
    SCRIPT_FLUSH,
    Conditions,
    Known,
    Move,
    Moves,
    Writer,
    shown,
)
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.engine.memory import Interned
from orderlab.sim.redis.backends.backend import FIRST_MS
from orderlab.sim.stores.bound import BudgetExceeded, SessionStore
from orderlab.sim.stores.memo import MemoStore

State = tuple[int, ...]
"""For each reader the numbers of its session (core) and of what is known around it; each writer's; the node's."""
Heard = Callable[[State, Step, Sequence[Discrepancy]], None]
"""Hears what a step out of a state breaks."""

EXPLORED = (
    "store-order",
    "no-loss",
    "packet-id",
    "legal-trim",
    "expiry",
    "no-residue",
    "all-or-nothing",
    "counter",
    "retransmission",
    "no-phantom",
    "drain",
)
"""Laws of a session store that one session's steps can break. What an operation costs, and its slots, are not seen."""

AFTER_FAILOVER = " after failover"
"""A law so marked is broken by the loss of what the replica had not received: no script can keep it."""


class NodeCondition(NamedTuple):
    """The condition of the node, and what is left of each budget."""

    left: tuple[int, ...]
    has_scripts: bool = True
    replica: tuple[int, ...] | None = None
    """The sessions as a lagging replica has them, by core; None: it has all."""
    has_failed_over: bool = False
    broken: Broken = ()
    """What the step that led here has broken."""
    is_over: bool = False
    """Nothing after this can be judged."""


class StepEvent(NamedTuple):
    """What a step does beside what it leaves in its session."""

    node_restarts: bool
    broken: Broken
    is_over: bool
    """Nothing comes after it."""
    discrepancies: tuple[Discrepancy, ...]


class StateChange(NamedTuple):
    """One step as it changes a state."""

    step: Step
    cost: int
    label: Label
    core: int
    known: int
    writers: tuple[tuple[int, int], ...]
    """Afterwards, by place in the state."""
    event: StepEvent | None


class StoreExploration(TransitionSystem[State]):
    """A store within ``scope``, each step judged against the abstract session. ``run`` is on it, which is empty, with
    one client.

    ``law``: judge only this one. ``heard`` hears what each step breaks. ``remembers``: look up what has been found out;
    False is slow and gives the same. ``given`` is what the user asked for.
    """

    name: ClassVar[str] = "store"
    deadlock_is_violation: ClassVar[bool] = False
    resumable: ClassVar[bool] = False

    def __init__(
        self,
        store: MemoStore,
        run: SessionRun,
        scope: Scope,
        law: str | None = None,
        heard: Heard | None = None,
        remembers: bool = True,
        given: Mapping[str, Any] | None = None,
    ) -> None:
        self.scope = scope
        self.law = law
        self.heard = heard
        self.given = dict(given or {})
        self.is_cut_short = False
        """Whether the work ran out before all steps had been tried; only where somebody hears of what is found."""
        self.effects = SessionEffects(store, run, scope, remembers)
        self.moves = Moves(self.effects)
        self.known, self.writers = self.moves.known, self.moves.writers
        self.nodes: Interned[NodeCondition] = Interned()
        self._remembers = remembers
        self._of_reader: dict[tuple[int, int, int, Conditions], list[StateChange]] = {}
        self._of_writer: dict[tuple[int, int, int, int, int, Conditions], list[StateChange]] = {}
        self._nodes_after: dict[tuple[int, int, StepEvent | None], int] = {}
        self._moved_readers: dict[tuple[int, tuple[int, ...]], int] = {}
        self._orders = list(permutations(range(scope.readers)))[1:]
        self._writers_at = 2 * scope.readers
        self._situations: dict[int, frozenset[str]] = {}
        self._taken: list[Step | None] = []
        """The steps behind what ``successors`` gave last; None where the node alone acted."""

    # -- the transition system -----------------------------------------------------------------------------------------

    def initial_states(self) -> Iterable[State]:
        scope = self.scope
        readers = (self.effects.first, self.known.number(Known())) * scope.readers
        nobody = (0,) * scope.readers
        programs = [self.moves.programs.index(one) for one in scope.programs]
        writers = [self.writers.number(Writer(one, 0, nobody)) for one in programs]
        return [(*readers, *writers, self.nodes.number(NodeCondition(scope.budgets)))]

    def is_terminal(self, state: State) -> bool:
        return True

    def successors(self, state: State) -> list[tuple[Label, State]]:
        node = self.nodes[state[-1]]
        self._taken = []
        if node.is_over or self.is_cut_short:
            return []
        may_fail = self.scope.deaths or bool(node.left[CRASHES] or node.left[ERRORS])
        at_node = Conditions(self.effects.minds_lost_scripts and not node.has_scripts, may_fail)
        found: list[tuple[Label, State]] = []
        for reader in range(self.scope.readers):
            core, known = state[2 * reader], state[2 * reader + 1]
            for at in range(self._writers_at, len(state) - 1):
                steps = self._writer_steps(at, state[at], reader, core, known, at_node)
                self._add(found, state, node, reader, steps)
            self._add(found, state, node, reader, self._overlaps(state, reader, core, known))
            self._add(found, state, node, reader, self._reader_steps(reader, core, known, at_node))
        self._add_time(found, state, node)
        for what in self.effects.store.upkeep:
            self._add_for_all(found, state, node, Upkeep(what), FREE, Label("store", what))
        self._add_node(found, state, node)
        return found

    def path_to(self, space: Space, state: State) -> tuple[Step, ...]:
        """The steps by which a search first reached a state, even if the search was cut short. Raises BudgetExceeded
        where that takes work anew."""
        number = space.number_of(state)
        assert number is not None
        chain = [number]
        while space.parent(chain[-1]) >= 0:
            chain.append(space.parent(chain[-1]))
        (heard, self.heard), was_cut_short = (self.heard, lambda *_: None), self.is_cut_short
        steps: list[Step] = []
        try:
            for before, after in pairwise(reversed(chain)):
                self.is_cut_short = False
                reached = [one for _, one in self.successors(space.state(before))]
                if space.state(after) not in reached:  # what was cut off beside it does not matter
                    assert self.is_cut_short
                    raise BudgetExceeded
                step = self._taken[reached.index(space.state(after))]
                assert step is not None
                steps.append(step)
        finally:
            self.heard, self.is_cut_short = heard, was_cut_short
        return tuple(steps)

    def _add(
        self,
        found: list[tuple[Label, State]],
        state: State,
        node: NodeCondition,
        reader: int,
        steps: Sequence[StateChange],
    ) -> None:
        left, at, number = node.left, 2 * reader, state[-1]
        nodes_after, taken = self._nodes_after, self._taken
        for step, cost, label, core, known, writers, event in steps:
            if cost != FREE and not left[cost]:
                continue
            if event is not None and self.heard is not None:
                if event.discrepancies:
                    self.heard(state, step, event.discrepancies)
                if event.is_over:
                    continue
            after_node = nodes_after.get((number, cost, event))
            if after_node is None:
                after_node = self._node_after(number, cost, event)
            after = [*state]
            after[at], after[at + 1], after[-1] = core, known, after_node
            for place, writer in writers:
                after[place] = writer
            found.append((label, tuple(after)))
            taken.append(step)

    # -- steps of readers and writers, remembered
    # -------------------------------------------------------------------------

    def _reader_steps(self, reader: int, core: int, known: int, at_node: Conditions) -> list[StateChange]:
        asked = reader, core, known, at_node
        steps = self._of_reader.get(asked)
        if steps is None:
            moves = self.moves.of_reader(core, known, at_node)
            steps = self._changes(f"reader {reader + 1}", reader, moves, ())
            if self._remembers:
                self._of_reader[asked] = steps
        return steps

    def _writer_steps(
        self, at: int, writer: int, reader: int, core: int, known: int, at_node: Conditions
    ) -> list[StateChange]:
        asked = at, writer, reader, core, known, at_node
        steps = self._of_writer.get(asked)
        if steps is None:
            moves = self.moves.of_writer(writer, reader, core, known, at_node)
            steps = self._changes(self._actor(at), reader, moves, (at,))
            if self._remembers:
                self._of_writer[asked] = steps
        return steps

    def _overlaps(self, state: State, reader: int, core: int, known: int) -> list[StateChange]:
        found: list[StateChange] = []
        places = range(self._writers_at, len(state) - 1) if self.moves.has_overlaps else ()
        for at, other in permutations(places, 2):
            moves = self.moves.overlaps(state[at], state[other], reader, core, known)
            found += self._changes(self._actor(at), reader, moves, (at, other))
        return found

    def _actor(self, at: int) -> str:
        return f"writer {at - self._writers_at + 1}"

    def _changes(self, actor: str, reader: int, moves: Iterator[Move], places: tuple[int, ...]) -> list[StateChange]:
        """Moves as steps of this system; none if nothing after it can be judged and its law is not asked for."""
        found: list[StateChange] = []
        try:
            for move in moves:
                told = tuple(one for one in move.discrepancies if self.law in (None, one.law))
                is_over = move.diverges or not move.leads_on
                if is_over and not told:
                    continue
                given = move.arguments
                if self.scope.readers > 1 and places:
                    given = (*given, ("reader", reader + 1))
                event = None
                if move.node_restarts or told:
                    event = StepEvent(move.node_restarts, () if self.heard else told_once(told), is_over, told)
                writers = tuple(zip(places, (move.writer, move.other), strict=False))
                label = Label(actor, move.action, given)
                found.append(StateChange(move.step, move.cost, label, move.core, move.known, writers, event))
        except BudgetExceeded:
            if self.heard is None:
                raise
            self.is_cut_short = True
        return found

    # -- time, and the node
    # ------------------------------------------------------------------------------------------------

    def _add_time(self, found: list[tuple[Label, State]], state: State, node: NodeCondition) -> None:
        """To the next deadlines: just before, and at."""
        if not node.left[EXPIRIES]:
            return
        effects, end = self.effects, self._writers_at
        now_ms = effects.cores[state[0]].now_ms
        deadlines_ms = sorted({one for core in state[:end:2] for one in effects.deadlines_ms(core)})[:2]
        waits_ms = {ms for one in deadlines_ms for ms in (one - now_ms - 1, one - now_ms) if ms > 0}
        for ms in sorted(waits_ms):
            if ms <= 1 << 40:
                self._add_for_all(found, state, node, Wait(ms), EXPIRIES, Label("time", "wait", (("ms", ms),)))

    def _add_for_all(
        self,
        found: list[tuple[Label, State]],
        state: State,
        node: NodeCondition,
        step: Wait | Upkeep,
        cost: int,
        label: Label,
    ) -> None:
        """A step of no client's, which all sessions take."""
        effects = self.effects
        try:
            passed = [effects.of_nobody(core, step) for core in state[: self._writers_at : 2]]
        except BudgetExceeded:
            if self.heard is None:
                raise
            self.is_cut_short = True
            return
        told = [one for effect in passed for one in effect.discrepancies]
        diverges = any(one.diverges for one in passed)
        broken = once_each(told_once(one.discrepancies) for one in passed)
        if self.heard is not None:
            broken = ()
            if told:
                self.heard(state, step, told)
            if diverges:
                return
        replica = None if node.replica is None else tuple(effects.of_nobody(core, step).core for core in node.replica)
        after = self._after_event(node._replace(replica=replica), cost, False, broken, diverges)
        if after is not None:
            cores = [one.core for one in passed]
            found.append((label, (*self._with_cores(state, cores), self.nodes.number(after))))
            self._taken.append(step)

    def _add_node(self, found: list[tuple[Label, State]], state: State, node: NodeCondition) -> None:
        quiet = node._replace(broken=())
        if node.left[SCRIPT_FLUSH] and node.has_scripts:
            after = quiet._replace(left=spent(node.left, SCRIPT_FLUSH), has_scripts=False)
            found.append((Label("node", "script flush"), (*state[:-1], self.nodes.number(after))))
        if not node.left[FAILOVER]:
            return
        if node.replica is None:
            after = quiet._replace(replica=state[: self._writers_at : 2])
            found.append((Label("node", "replication lags"), (*state[:-1], self.nodes.number(after))))
            return
        pairs = zip(state[: self._writers_at : 2], node.replica, strict=True)
        restored = [self.effects.fail_over(now, then) for now, then in pairs]
        broken = once_each(one for _, one in restored)
        down = quiet._replace(replica=None, has_failed_over=True)
        failed = self._after_event(down, FAILOVER, True, broken, False)
        assert failed is not None
        cores = [core for core, _ in restored]
        found.append((Label("node", "failover"), (*self._with_cores(state, cores), self.nodes.number(failed))))

    def _with_cores(self, state: State, cores: Sequence[int]) -> tuple[int, ...]:
        after = list(state[:-1])
        after[: self._writers_at : 2] = cores
        return tuple(after)

    def _node_after(self, number: int, cost: int, event: StepEvent | None) -> int:
        restarts, broken, is_over, _ = event or (False, (), False, ())
        after = self._after_event(self.nodes[number], cost, restarts, broken, is_over)
        assert after is not None
        known = self._nodes_after[number, cost, event] = self.nodes.number(after)
        return known

    def _after_event(
        self, node: NodeCondition, cost: int, restarts: bool, broken: Broken, diverges: bool
    ) -> NodeCondition | None:
        """The node after an operation, which has loaded its scripts, or after a wait; None: of no interest."""
        told = tuple(one for one in broken if self.law in (None, one[0]))
        if diverges and not told:
            return None
        if node.has_failed_over:
            told = tuple((law + AFTER_FAILOVER, text) for law, text in told)
        has_scripts = node.has_scripts if cost == EXPIRIES else not restarts
        left = node.left if cost == FREE else spent(node.left, cost)
        return node._replace(left=left, has_scripts=has_scripts, broken=told, is_over=diverges)

    # -- laws, symmetry, words -----------------------------------------------------------------------------------------

    def laws(self) -> Sequence[Law]:
        found: list[Law] = [
            Invariant(
                name,
                self._holds(name),
                statement=LAWS[name.removesuffix(AFTER_FAILOVER)].statement,
                stops=not name.endswith(AFTER_FAILOVER),
                why=self._why(name),
            )
            for name in explored_laws(self.scope, self.effects.store.operations, self.law)
        ]
        if self.law is None:
            found += [Sometimes(name, self._reached(name)) for name in goals(self.scope, self.effects.store)]
        return found

    def _holds(self, law: str) -> Callable[[State], bool]:
        nodes = self.nodes

        def holds(state: State) -> bool:
            broken = nodes[state[-1]].broken
            return not broken or all(name != law for name, _ in broken)

        return holds

    def _why(self, law: str) -> Callable[[State], str]:
        return lambda state: dict(self.nodes[state[-1]].broken).get(law, "")

    def _reached(self, goal: str) -> Callable[[State], bool]:
        return lambda state: any(goal in self._situations_of(core) for core in state[: self._writers_at : 2])

    def _situations_of(self, core: int) -> frozenset[str]:
        known = self._situations.get(core)
        if known is None:
            known = self._situations[core] = frozenset(situations(self.effects.cores[core].account, self.scope))
        return known

    def canonical(self, state: State) -> State:
        """Writers sorted, and the least order of readers: names of both are given by coming first, so neither shows
        in a session.
        """
        end = self._writers_at
        least = (*state[:end], *sorted(state[end:-1]), state[-1])
        for order in self._orders:
            columns = [state[2 * reader + half] for reader in order for half in (0, 1)]
            writers = sorted(self._writer_moved(writer, order) for writer in state[end:-1])
            other = (*columns, *writers, self._node_moved(state[-1], order))
            least = min(least, other)
        return least

    def _writer_moved(self, writer: int, order: tuple[int, ...]) -> int:
        """The writer when the reader at place ``order[i]`` is called ``i``."""
        known = self._moved_readers.get((writer, order))
        if known is None:
            at = self.writers[writer]
            last = at.last and at.last._replace(reader=order.index(at.last.reader))
            moved = at._replace(names=tuple(at.names[reader] for reader in order), last=last)
            known = self._moved_readers[writer, order] = self.writers.number(moved)
        return known

    def _node_moved(self, number: int, order: tuple[int, ...]) -> int:
        replica = self.nodes[number].replica
        if replica is None:
            return number
        return self.nodes.number(self.nodes[number]._replace(replica=tuple(replica[reader] for reader in order)))

    def parameters(self) -> Mapping[str, Any]:
        return self.given

    def action_names(self) -> Sequence[str]:
        scope, operations = self.scope, self.effects.store.operations
        names = ["save", "fetch", *(["acknowledge"] if "acknowledge" in operations else [])]
        names += ["release"] if has_qos_2(scope) and "release" in operations else []
        names += ["save, reply lost"] if scope.lost_replies else []
        names += ["save again"] if scope.lost_replies or scope.duplicates else []
        names += ["wait"] if scope.expiries else []
        names += [one for one in ("clear", "open") if scope.clears and one in operations]
        names += ["script flush"] if scope.script_flush else []
        names += ["replication lags", "failover"] if scope.failover else []
        names += self.effects.store.upkeep
        return names if self.law is None else []

    def describe(self, state: State) -> Mapping[str, Any]:
        return described(self, state)

    def source_text(self) -> str:
        scripts = b"\0".join(script.source for script in self.effects.store.binding.scripts)
        return super().source_text() + hashlib.sha256(scripts).hexdigest()


def spent(left: tuple[int, ...], cost: int) -> tuple[int, ...]:
    """What is left of the budgets after one of ``cost``."""
    return (*left[:cost], left[cost] - 1, *left[cost + 1 :])


def once_each(broken: Iterable[Broken]) -> Broken:
    """One text for each law, the same whichever of the sessions comes first."""
    texts: dict[str, str] = {}
    for law, text in sorted(one for some in broken for one in some):
        texts.setdefault(law, text)
    return tuple(texts.items())


def has_qos_2(scope: Scope) -> bool:
    """Whether a message is released before it is done with."""
    return any(one.qos == 2 for one in scope.messages)


def explored_laws(scope: Scope, operations: Collection[str], law: str | None) -> list[str]:
    """The laws of a scope by name."""
    names = [name for name in EXPLORED if law in (None, name)]
    if not has_qos_2(scope) or "release" not in operations:
        names = [name for name in names if name != "retransmission" or law == name]
    return [*names, *(name + AFTER_FAILOVER for name in names if scope.failover)]


def goals(scope: Scope, store: SessionStore) -> list[str]:
    """Situations without which the laws would hold for want of trying."""
    most, modulus = len(scope.messages), store.capabilities.modulus
    found = ["several messages live"] if most > 1 and scope.limit > 1 else []
    found += ["the queue is full"] if most >= scope.limit else []
    found += ["a message is trimmed"] if most > scope.limit else []
    found += ["the identifier wraps while a message is live"] if most > modulus > 1 and scope.limit > 1 else []
    found += ["a message is acknowledged"] if "acknowledge" in store.operations else []
    found += ["a message expires"] if scope.expiries else []
    found += ["a message is released"] if has_qos_2(scope) and "release" in store.operations else []
    found += ["a session is cleared"] if scope.clears and "clear" in store.operations else []
    return found


def situations(account: Account, scope: Scope) -> Iterator[str]:
    """The situations that an account is in, or has been in."""
    queue = account.queue
    fates = {fate for _, fate in account.fates}
    if len(queue) > 1:
        yield "several messages live"
        if queue[0].packet_id > queue[-1].packet_id:
            yield "the identifier wraps while a message is live"
    if len(queue) >= scope.limit:
        yield "the queue is full"
    if any(entry.kind == "PUBREL" for entry in queue):
        yield "a message is released"
    for fate, words in (
        ("trimmed", "a message is trimmed"),
        ("acknowledged", "a message is acknowledged"),
        ("expired", "a message expires"),
        ("cleared", "a session is cleared"),
    ):
        if fate in fates:
            yield words


def described(system: StoreExploration, state: State) -> dict[str, Any]:
    """What each reader's session holds and its keys, what its reader was told, writers, and the node."""
    found: dict[str, Any] = {}
    effects, node = system.effects, system.nodes[state[-1]]
    for reader in range(system.scope.readers):
        core, known = effects.cores[state[2 * reader]], system.known[state[2 * reader + 1]]
        name = f"reader {reader + 1}"
        found[f"{name} queue"] = queue_of(core.account)
        found[f"{name} was told"] = [f"{name_of(label)} has {one.packet_id}" for label, one in known.sendings]
        found[f"{name} keys"] = {
            shown(key): f"{kind} {shown(value)}"
            for key, (kind, value, _) in sorted(effects.store.frozen(core.keyspace).items())
        }
    for at, writer in enumerate(state[system._writers_at : -1], 1):
        found[f"writer {at}"] = written(
            system.writers[writer], len(system.moves.programs[system.writers[writer].program])
        )
    found["ms passed"] = effects.cores[state[0]].now_ms - FIRST_MS
    found["scripts loaded"] = node.has_scripts
    if system.scope.failover:
        replica = node.replica
        found["replica"] = "in step" if replica is None else [queue_of(effects.cores[one].account) for one in replica]
    found["broken"] = [f"{law}: {text}" for law, text in node.broken]
    return found


def queue_of(account: Account) -> list[str]:
    """The live messages as the abstract session has them, oldest first."""
    return [entry_text(entry) for entry in account.queue]


def entry_text(entry: Entry) -> str:
    """``m3 under 1, sent``."""
    words = f"{name_of(entry.label)} under {entry.packet_id}"
    words += ", released" if entry.kind == "PUBREL" else ""
    words += ", sent" if entry.sent else ""
    lives = entry.latest_ms < FOREVER_MS
    return words + (f", until {entry.latest_ms - FIRST_MS} ms" if lives else "")


def written(writer: Writer, quota: int) -> str:
    """How far a writer is."""
    pending = writer.last is not None and not writer.last.is_answered
    return f"{writer.position} of {quota} saved" + (", no reply to the last" if pending else "")
