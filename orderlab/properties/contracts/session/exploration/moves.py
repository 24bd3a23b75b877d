"""What a reader, or a writer towards one session, can do next, trouble included, and where each step leads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from orderlab.model.contracts.session.refinement.account import Batch
from orderlab.model.contracts.session.steps import (
    Acknowledge,
    Clear,
    Fetch,
    Interleave,
    Open,
    Release,
    Retry,
    Save,
    kind_of_step,
)
from orderlab.model.contracts.steps import Fault
from orderlab.properties.contracts.session.exploration.effects import Effect, Sendings, SessionEffects
from orderlab.properties.contracts.session.exploration.scope import (
    CLEARS,
    CRASHES,
    DUPLICATES,
    ERRORS,
    FREE,
    LOST_REPLIES,
    Broken,
    Interned,
    Known,
    Last,
    Scope,
    Writer,
    name_of,
    shown,
)
from orderlab.sim.stores.faults import NODE_CONDITIONS

Arguments = tuple[tuple[str, Any], ...]
Faultable = Save | Fetch | Acknowledge | Release | Clear

MOST_CALLS = 16
"""Of one operation, between which its caller may die."""


class Move(NamedTuple):
    """One step: what it costs, what it is called, and what it leaves."""

    cost: int
    action: str
    arguments: Arguments
    core: int
    known: int
    writer: int = -1
    """The writer afterwards, for a step of a writer."""
    other: int = -1
    """Afterwards, the writer that came in between."""
    node_restarts: bool = False
    broken: Broken = ()
    diverges: bool = False


class Moves:
    """Finds them out. ``known`` and ``writers`` number what they are about."""

    def __init__(self, effects: SessionEffects, known: Interned[Known], writers: Interned[Writer]) -> None:
        self.effects = effects
        self.known = known
        self.writers = writers
        self.scope: Scope = effects.scope
        binding = effects.store.binding
        self.operations = effects.store.operations
        self._in_parts = {name for name, bound in binding.operations.items() if not bound.is_atomic}

    # -- readers -------------------------------------------------------------------------------------------------------

    def of_reader(self, core: int, known: int, without_scripts: bool) -> list[Move]:
        """Everything that a reader can do on its session."""
        found = list(self._fetches(core, known, without_scripts))
        for label, sending in self.known[known].sendings:
            answers: list[Acknowledge | Release] = [Acknowledge(label)]
            if self.scope.qos == 2 and "release" in self.operations:
                answers.append(Release(label))
            given = (("message", name_of(label)),)
            for step in answers:
                for cost, action, effect in self._tried(step, core, ((label, sending),), (), without_scripts):
                    found.append(_move(cost, action, given, effect, known))
        found += self._session_steps(core, known, without_scripts)
        settled = self.effects.settle(core)
        if settled:
            found.append(Move(FREE, "settle", (), core, known, broken=settled, diverges=True))
        return found

    def _fetches(self, core: int, known: int, without_scripts: bool) -> Iterator[Move]:
        for cost, action, effect in self._tried(Fetch(), core, (), (), without_scripts):
            after = self.known.number(self.known[known].told(effect.told))
            yield _move(cost, action, (), effect, after)
            if self.scope.lost_replies and cost == FREE and after != known and not effect.broken:
                yield _move(LOST_REPLIES, "fetch, reply lost", (), effect, known)

    def _session_steps(self, core: int, known: int, without_scripts: bool) -> Iterator[Move]:
        """The end of a session, and CONNECT. Both cost; after an end the next CONNECT is free."""
        if not self.scope.clears:
            return
        is_open = self.effects.cores[core].connection.is_open
        for cost, action, effect in self._tried(Clear(), core, (), (), without_scripts) if is_open else ():
            if cost in (FREE, CLEARS):
                yield _move(CLEARS, action, (), effect, known)
            else:
                yield _move(cost, action, (), effect, known)
        for clean in (True, False):
            found = self.effects.perform(core, Open(0, clean), (), (), without_scripts)
            if found is not None:
                given = (("clean_start", int(clean)),)
                yield _move(CLEARS if is_open else FREE, "open", given, found, known)

    # -- writers -------------------------------------------------------------------------------------------------------

    def of_writer(self, writer: int, reader: int, core: int, known: int, without_scripts: bool) -> list[Move]:
        """Everything that a writer can do towards one reader's session."""
        at = self.writers[writer]
        found = list(self._repetitions(at, reader, core, known, without_scripts))
        if at.position < at.quota:
            found += self._saves(at, reader, core, known, without_scripts)
        return found

    def _saves(self, at: Writer, reader: int, core: int, known: int, without_scripts: bool) -> Iterator[Move]:
        """The reply to a save decides whether its writer sends it again: a loss, a crash or an error lets it."""
        step, moved, before = self._next_save(at, reader, self.known[known])
        label = step.messages[0].label
        session, connection = self.effects.cores[core].account.session, self.effects.cores[core].connection
        epochs = [(step, session.epoch)]
        if connection.cleared_epoch:
            epochs.append((replace(step, stale=True), connection.cleared_epoch))
        unheard = self.known.number(before)
        batches = self._batches(step.producer, Batch(at.position))
        given = (("message", name_of(label)),)
        for one, epoch in epochs:
            last = Last(reader, label, at.position, epoch, False, one.stale)
            for cost, action, effect in self._tried(one, core, (), batches, without_scripts):
                action += ", routed before the clear" if one.stale else ""
                if cost != FREE:
                    yield _move(cost, action, given, effect, unheard, self.writers.number(moved._replace(last=last)))
                    continue
                after = self.known.number(before.told(effect.told))
                yield _move(cost, action, given, effect, after, self.writers.number(self._answered(moved, last)))
                if self.scope.lost_replies and not effect.broken:
                    unsure = self.writers.number(moved._replace(last=last))
                    yield _move(LOST_REPLIES, action + ", reply lost", given, effect, unheard, unsure)

    def _next_save(self, at: Writer, reader: int, known: Known) -> tuple[Save, Writer, Known]:
        """A writer's next save for a reader; the writer, and what is known around the session, once it is on its way.

        Writers and messages are named in the order in which they first come to a session.
        """
        name = at.names[reader] or known.writers + 1
        moved = at._replace(
            position=at.position + 1, names=(*at.names[:reader], name, *at.names[reader + 1 :]), last=None
        )
        before = known._replace(addressed=known.addressed + 1, writers=max(known.writers, name))
        return self._save(before.addressed, at.position, name), moved, before

    def _save(self, label: int, position: int, name: int, is_stale: bool = False) -> Save:
        limit = self.effects.store.binding.fixed.get("limit", self.scope.limit)
        return Save((self.scope.publication(label, position),), 0, name - 1, limit, is_stale)

    def _repetitions(self, at: Writer, reader: int, core: int, known: int, without_scripts: bool) -> Iterator[Move]:
        """The last save once more: by its writer, who has no reply; or though it was answered (a duplicate)."""
        last = at.last
        if last is None or last.reader != reader:
            return
        name = at.names[reader]
        step = self._save(last.label, last.position, name, last.is_stale)
        was_done = self.effects.is_saved(core, last.label)
        batches = self._batches(name - 1, Batch(last.position + 1, step, last.epoch, was_done))
        found = self.effects.perform(core, Retry(name - 1), (), batches, without_scripts)
        if found is not None:
            after = self.known.number(self.known[known].told(found.told))
            answered = self.writers.number(self._answered(at, last))
            cost = DUPLICATES if last.is_answered else FREE
            yield _move(cost, "save again", (("message", name_of(last.label)),), found, after, answered)

    def _answered(self, writer: Writer, last: Last) -> Writer:
        return writer._replace(last=last._replace(is_answered=True) if self.scope.duplicates else None)

    def _batches(self, producer: int, batch: Batch) -> tuple[Batch, ...]:
        return tuple(batch if at == producer else Batch() for at in range(max(self.scope.writers, 2)))

    @property
    def has_overlaps(self) -> bool:
        """Whether a save takes several calls, so that another can come in between."""
        return "save" in self._in_parts

    def overlaps(self, writer: int, other: int, reader: int, core: int, known: int) -> list[Move]:
        """One writer's save between two calls of another one's, where a save takes several."""
        at, late = self.writers[writer], self.writers[other]
        if at.position == at.quota or late.position == late.quota:
            return []
        step, moved, between = self._next_save(at, reader, self.known[known])
        during, late_moved, after = self._next_save(late, reader, between)
        given = (("message", name_of(step.messages[0].label)), ("between", name_of(during.messages[0].label)))
        numbers = {step.producer: Batch(at.position), during.producer: Batch(late.position)}
        batches = tuple(numbers.get(one, Batch()) for one in range(max(self.scope.writers, 2)))
        found = []
        for calls in range(1, MOST_CALLS):
            effect = self.effects.perform(core, Interleave(step, during, calls), (), batches)
            if effect is None:
                continue
            told = self.known.number(after.told(effect.told))
            ended = [self.writers.number(one) for one in (moved, late_moved)]
            found.append(_move(FREE, "save, another within", given, effect, told, ended[0], ended[1]))
        return found

    # -- trouble -------------------------------------------------------------------------------------------------------

    def _tried(
        self, step: Faultable, core: int, sendings: Sendings, batches: tuple[Batch, ...], without_scripts: bool
    ) -> Iterator[tuple[int, str, Effect]]:
        """A step without trouble, then with each kind that the scope has and that makes itself felt."""
        action = kind_of_step(step)
        plain = self.effects.perform(core, step, sendings, batches, without_scripts)
        if plain is None:
            return
        yield FREE, action, plain
        for cost, words, fault in self._faults(action, core, plain.core):
            faulted = replace(step, fault=fault)
            effect = self.effects.perform(core, faulted, sendings, batches, without_scripts)
            if effect is not None and (effect.was_stopped if cost == CRASHES else not effect.is_done):
                yield cost, f"{action}, {words}", effect

    def _faults(self, operation: str, core: int, after: int) -> Iterator[tuple[int, str, Fault]]:
        """A crash takes back what a script has done so far, so it matters at the first call and between scripts."""
        if self.scope.crashes:
            yield CRASHES, "node crashes", Fault("crashed")
            for calls in range(1, MOST_CALLS) if operation in self._in_parts else ():
                yield CRASHES, f"client dies after {calls}", Fault("client-dies", at=calls)
        if self.scope.errors:
            for kind in NODE_CONDITIONS:
                yield ERRORS, kind, Fault(kind)
            store, cores = self.effects.store, self.effects.cores
            before = store.frozen(cores[core].keyspace)
            for key, (kind, _, _) in sorted({**before, **store.frozen(cores[after].keyspace)}.items()):
                others = ("list" if kind == "string" else "string", "hash" if kind != "hash" else "list")
                for found in others if key not in before else others[:1]:
                    yield ERRORS, f"{shown(key)} is a {found}", Fault("wrong-type", key=key, found=found)


def _move(
    cost: int, action: str, given: Arguments, effect: Effect, known: int, writer: int = -1, other: int = -1
) -> Move:
    restarts = effect.was_stopped and action.endswith("node crashes")
    return Move(cost, action, given, effect.core, known, writer, other, restarts, effect.broken, effect.diverges)
