"""A store with its writers, readers and troubles as one transition system."""
from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import permutations
from typing import Any, ClassVar

from orderlab.model.contracts.session.refinement import Account
from orderlab.model.contracts.session.spec import FOREVER_MS, Entry
from orderlab.model.laws import LAWS
from orderlab.model.spec.transition_system import Invariant, Label, Law, Sometimes, TransitionSystem
from orderlab.properties.contracts.session.exploration.effects import SessionEffects
from orderlab.properties.contracts.session.exploration.moves import Move, Moves
from orderlab.properties.contracts.session.exploration.scope import (
    AFTER_FAILOVER,
    EXPIRIES,
    FAILOVER,
    FREE,
    SCRIPT_FLUSH,
    Broken,
    Interned,
    Known,
    Node,
    Scope,
    Writer,
    explored_laws,
    goals,
    name_of,
    shown,
    situations,
)
from orderlab.sim.redis.backends.backend import FIRST_MS
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.lua_text import scale


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
        found[f"writer {at}"] = written(system.writers[writer])
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


def written(writer: Writer) -> str:
    """How far a writer is."""
    pending = writer.last is not None and not writer.last.is_answered
    return f"{writer.position} of {writer.quota} saved" + (", no reply to the last" if pending else "")


State = tuple[int, ...]
"""For each reader the numbers of its session (core) and of what is known around it; each writer's; the node's."""

Step = tuple[int, Label, int, int, tuple[tuple[int, int], ...], tuple[bool, Broken, bool] | None]
"""Cost, label, core and known afterwards, writers afterwards by place in the state, what happens to the node."""


class StoreExploration(TransitionSystem[State]):
    """The store of ``binding`` within ``scope``. Every step is judged against the abstract session.

    ``law``: judge only this one. ``remembers``: look up what has been found out; False is slow and gives the same.
    """

    name: ClassVar[str] = "store"
    deadlock_is_violation: ClassVar[bool] = False
    resumable: ClassVar[bool] = False

    def __init__(
        self, binding: Binding, scope: Scope | None = None, law: str | None = None, remembers: bool = True
    ) -> None:
        self.scope = scope or Scope()
        self.law = law
        self.binding, self.rewritten = scale(binding, min(self.scope.modulus, binding.modulus))
        self.effects = SessionEffects(self.binding, self.scope, remembers)
        self.known: Interned[Known] = Interned()
        self.writers: Interned[Writer] = Interned()
        self.nodes: Interned[Node] = Interned()
        self.moves = Moves(self.effects, self.known, self.writers)
        self._remembers = remembers
        self._of_reader: dict[tuple[int, int, int, bool], list[Step]] = {}
        self._of_writer: dict[tuple[int, int, int, int, int, bool], list[Step]] = {}
        self._nodes_after: dict[tuple[int, int, tuple[bool, Broken, bool] | None], int] = {}
        self._moved_readers: dict[tuple[int, tuple[int, ...]], int] = {}
        self._orders = list(permutations(range(self.scope.readers)))[1:]
        self._writers_at = 2 * self.scope.readers
        self._situations: dict[int, frozenset[str]] = {}

    # -- the transition system -----------------------------------------------------------------------------------------

    def initial_states(self) -> Iterable[State]:
        scope = self.scope
        readers = (self.effects.first, self.known.number(Known())) * scope.readers
        nobody = (0,) * scope.readers
        writers = [self.writers.number(Writer(scope.quota(one), 0, nobody)) for one in range(scope.writers)]
        return [(*readers, *writers, self.nodes.number(Node(scope.budgets)))]

    def is_terminal(self, state: State) -> bool:
        return True

    def successors(self, state: State) -> list[tuple[Label, State]]:
        node = self.nodes[state[-1]]
        if node.is_over:
            return []
        without_scripts = self.effects.minds_lost_scripts and not node.has_scripts
        found: list[tuple[Label, State]] = []
        for reader in range(self.scope.readers):
            core, known = state[2 * reader], state[2 * reader + 1]
            self._add(found, state, node, reader, self._reader_steps(reader, core, known, without_scripts))
            for at in range(self._writers_at, len(state) - 1):
                steps = self._writer_steps(at, state[at], reader, core, known, without_scripts)
                self._add(found, state, node, reader, steps)
            self._add(found, state, node, reader, self._overlaps(state, reader, core, known))
        self._add_time(found, state, node)
        self._add_node(found, state, node)
        return found

    def _add(
        self, found: list[tuple[Label, State]], state: State, node: Node, reader: int, steps: Sequence[Step]
    ) -> None:
        left, at, number = node.left, 2 * reader, state[-1]
        nodes_after = self._nodes_after
        for cost, label, core, known, writers, event in steps:
            if cost != FREE and not left[cost]:
                continue
            after_node = nodes_after.get((number, cost, event))
            if after_node is None:
                after_node = self._node_after(number, cost, event)
            after = [*state]
            after[at], after[at + 1], after[-1] = core, known, after_node
            for place, writer in writers:
                after[place] = writer
            found.append((label, tuple(after)))

    # -- steps of readers and writers, remembered -------------------------------------------------------------------------

    def _reader_steps(self, reader: int, core: int, known: int, without_scripts: bool) -> list[Step]:
        asked = reader, core, known, without_scripts
        steps = self._of_reader.get(asked)
        if steps is None:
            moves = self.moves.of_reader(core, known, without_scripts)
            steps = [step for move in moves for step in self._step(f"reader {reader + 1}", reader, move, ())]
            if self._remembers:
                self._of_reader[asked] = steps
        return steps

    def _writer_steps(
        self, at: int, writer: int, reader: int, core: int, known: int, without_scripts: bool
    ) -> list[Step]:
        asked = at, writer, reader, core, known, without_scripts
        steps = self._of_writer.get(asked)
        if steps is None:
            actor = f"writer {at - self._writers_at + 1}"
            moves = self.moves.of_writer(writer, reader, core, known, without_scripts)
            steps = [step for move in moves for step in self._step(actor, reader, move, ((at, move.writer),))]
            if self._remembers:
                self._of_writer[asked] = steps
        return steps

    def _overlaps(self, state: State, reader: int, core: int, known: int) -> list[Step]:
        if not self.moves.has_overlaps:
            return []
        found: list[Step] = []
        places = range(self._writers_at, len(state) - 1)
        for at, other in permutations(places, 2):
            for move in self.moves.overlaps(state[at], state[other], reader, core, known):
                actor = f"writer {at - self._writers_at + 1}"
                found += self._step(actor, reader, move, ((at, move.writer), (other, move.other)))
        return found

    def _step(self, actor: str, reader: int, move: Move, writers: tuple[tuple[int, int], ...]) -> Iterator[Step]:
        """A move as a step of this system; none if nothing after it can be judged and its law is not asked for."""
        broken = tuple(one for one in move.broken if self.law in (None, one[0]))
        if move.diverges and not broken:
            return
        given = move.arguments
        if self.scope.readers > 1 and actor.startswith("writer"):
            given = (*given, ("reader", reader + 1))
        event = (move.node_restarts, broken, move.diverges) if move.node_restarts or broken else None
        yield move.cost, Label(actor, move.action, given), move.core, move.known, writers, event

    # -- time, and the node ------------------------------------------------------------------------------------------------

    def _add_time(self, found: list[tuple[Label, State]], state: State, node: Node) -> None:
        """To the next deadlines: just before, and at."""
        if not node.left[EXPIRIES]:
            return
        effects, end = self.effects, self._writers_at
        now_ms = effects.cores[state[0]].now_ms
        deadlines_ms = sorted({one for core in state[:end:2] for one in effects.deadlines_ms(core)})[:2]
        waits_ms = {ms for one in deadlines_ms for ms in (one - now_ms - 1, one - now_ms) if ms > 0}
        for ms in sorted(waits_ms):
            if ms > 1 << 40:
                continue
            passed = [effects.wait(core, ms) for core in state[:end:2]]
            broken = once_each(one.broken for one in passed)
            replica = None if node.replica is None else tuple(effects.wait(core, ms).core for core in node.replica)
            label = Label("time", "wait", (("ms", ms),))
            diverges = any(one.diverges for one in passed)
            after = self._after_event(node._replace(replica=replica), EXPIRIES, False, broken, diverges)
            if after is not None:
                cores = [one.core for one in passed]
                found.append((label, (*self._with_cores(state, cores), self.nodes.number(after))))

    def _add_node(self, found: list[tuple[Label, State]], state: State, node: Node) -> None:
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

    def _node_after(self, number: int, cost: int, event: tuple[bool, Broken, bool] | None) -> int:
        restarts, broken, diverges = event or (False, (), False)
        after = self._after_event(self.nodes[number], cost, restarts, broken, diverges)
        assert after is not None
        known = self._nodes_after[number, cost, event] = self.nodes.number(after)
        return known

    def _after_event(self, node: Node, cost: int, restarts: bool, broken: Broken, diverges: bool) -> Node | None:
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
        return {
            "path": str(self.binding.path),
            **asdict(self.scope),
            "law": self.law or "all",
            "rewritten": [f"{one.file}:{one.line}: {one.after.strip()}" for one in self.rewritten],
        }

    def action_names(self) -> Sequence[str]:
        scope, operations = self.scope, self.effects.store.operations
        names = ["save", "fetch", *(["acknowledge"] if "acknowledge" in operations else [])]
        names += ["release"] if scope.qos == 2 and "release" in operations else []
        names += ["save, reply lost"] if scope.lost_replies else []
        names += ["save again"] if scope.lost_replies or scope.duplicates else []
        names += ["wait"] if scope.expiries else []
        names += [one for one in ("clear", "open") if scope.clears and one in operations]
        names += ["script flush"] if scope.script_flush else []
        names += ["replication lags", "failover"] if scope.failover else []
        return names if self.law is None else []

    def describe(self, state: State) -> Mapping[str, Any]:
        return described(self, state)

    def source_text(self) -> str:
        scripts = b"\0".join(script.source for script in self.binding.scripts)
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
