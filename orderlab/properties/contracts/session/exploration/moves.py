"""What a reader, or a writer towards one session, can do next, trouble included, and where each step leads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.contract import BUDGETS, Scope, message
from orderlab.model.contracts.session.refinement.account import Batch, Cursor, name_of
from orderlab.model.contracts.session.traces import (
    Acknowledge,
    Clear,
    DrainQueue,
    Fetch,
    Interleave,
    Open,
    Quiesce,
    Release,
    Retry,
    Save,
    Serve,
    Step,
    kind_of_step,
)
from orderlab.properties.contracts.session.exploration.effects import START, Effect, Sendings, SessionEffects
from orderlab.properties.engine.memory import Interned
from orderlab.sim.stores.trace_faults import CLIENT_DIES

CRASHES, LOST_REPLIES, DUPLICATES, EXPIRIES, CLEARS, ERRORS, SCRIPT_FLUSH, FAILOVER = range(len(BUDGETS))
FREE = -1
"""What a step costs: an index into ``BUDGETS``, or nothing."""
Arguments = tuple[tuple[str, Any], ...]
Faultable = Save | Fetch | Acknowledge | Release | Clear | Open
MOST_CALLS = 16
"""Of one operation, between which its caller may die."""


class Conditions(NamedTuple):
    """What a step meets beside its session."""

    has_lost_scripts: bool
    """The node knows none when the step begins."""
    may_fail: bool
    """Whether something may still stop a step on this path."""


class Known(NamedTuple):
    """What goes on around one session: messages that were sent its way, and what its reader was told."""

    addressed: int = 0
    writers: int = 0
    """That have saved here, and so have a name here."""
    sendings: Sendings = ()
    cursor: Cursor = START

    def told(self, effect: Effect) -> Known:
        """With later sendings in place of earlier ones of the same messages."""
        if not effect.told:
            return self
        return self._replace(sendings=tuple(sorted({**dict(self.sendings), **dict(effect.told)}.items())))


class Last(NamedTuple):
    """A writer's last save, as long as it may be sent again."""

    reader: int
    batch: Batch
    is_answered: bool


class Writer(NamedTuple):
    """How far a writer is with its program, and its name towards each reader's session: 1 for the first to save there;
    0, none yet.
    """

    program: int
    position: int
    names: tuple[int, ...]
    last: Last | None = None


class Move(NamedTuple):
    """One step: what it costs, what it is called, and what it leaves."""

    step: Step
    cost: int
    action: str
    arguments: Arguments
    core: int
    known: int
    discrepancies: Sequence[Discrepancy] = ()
    diverges: bool = False
    writer: int = -1
    """The writer afterwards, for a step of a writer."""
    other: int = -1
    """Afterwards, the writer that came in between."""
    leads_on: bool = True
    """Whether anything comes after it: it is not only to see what would be."""

    @property
    def node_restarts(self) -> bool:
        """Whether it comes back without its scripts."""
        fault = getattr(self.step, "fault", None)
        return fault is not None and fault.kind == "crashed"


class Moves:
    """Finds them out. ``known`` and ``writers`` number what they are about."""

    def __init__(self, effects: SessionEffects) -> None:
        self.effects = effects
        self.scope: Scope = effects.scope
        self.known: Interned[Known] = Interned()
        self.writers: Interned[Writer] = Interned()
        self.programs = list(dict.fromkeys(self.scope.programs))
        """Writers with the same program are alike."""
        binding = effects.store.binding
        self.operations = effects.store.operations
        self._in_parts = {name for name, bound in binding.operations.items() if not bound.is_atomic}
        scope = self.scope
        self._may_repeat = bool(scope.lost_replies or scope.duplicates or scope.errors or scope.crashes)
        self._has_pages = scope.pages != (None,)
        for step in (
            map(self._labelled, range(1, len(scope.messages) + 1)) if scope.renames else sum(scope.programs, ())
        ):
            effects.run.register(step)

    def _labelled(self, label: int) -> Save:
        first = self.scope.messages[0]
        return Save((message(label, first.interval_ms, first.qos),))

    # -- readers -------------------------------------------------------------------------------------------------------

    def of_reader(self, core: int, known: int, at_node: Conditions) -> Iterator[Move]:
        """Everything that a reader can do on its session."""
        yield from self._fetches(core, known, at_node)
        for label, sending in self.known[known].sendings:
            answers: list[Acknowledge | Release] = [Acknowledge(label)]
            if "release" in self.operations and self.effects.run.publications[label][1].qos == 2:
                answers.append(Release(label))
            given = (("message", name_of(label)),)
            for step in answers:
                for cost, action, tried, effect in self._tried(step, core, ((label, sending),), (), at_node):
                    yield _move(tried, cost, action, given, effect, known)
        if self.scope.clears:
            yield from self._session_steps(core, known, at_node)
        yield from self._served_by_another(core, known)
        yield from self._ends(core, known)

    def _served_by_another(self, core: int, known: int) -> Iterator[Move]:
        """Where either version of the scripts may serve: the other one from here on."""
        versions = self.effects.store.versions
        for one in versions if len(versions) > 1 else ():
            step = Serve(one)
            found = self.effects.perform(core, step)
            if found is not None:
                yield _move(step, FREE, f"served by the {one} scripts", (), found, known)

    def _fetches(self, core: int, known: int, at_node: Conditions) -> Iterator[Move]:
        at = self.known[known]
        for count in self.scope.pages:
            for cost, action, step, effect in self._tried(Fetch(0, count), core, (), (), at_node):
                after = self._fetched(at, effect)
                yield _move(step, cost, action, (), effect, after)
                if self.scope.lost_replies and cost == FREE and after != known and not effect.discrepancies:
                    yield _move(step, LOST_REPLIES, "fetch, reply lost", (), effect, known)
            if count is not None and at.cursor.passed:
                onward = Fetch(0, count, True)
                found = self.effects.perform(core, onward, (), (), at_node.has_lost_scripts, at.cursor)
                if found is not None:
                    yield _move(onward, FREE, "fetch, onward", (), found, self._fetched(at, found))

    def _fetched(self, known: Known, effect: Effect) -> int:
        after = known.told(effect)
        return self.known.number(after._replace(cursor=effect.cursor) if self._has_pages else after)

    def _session_steps(self, core: int, known: int, at_node: Conditions) -> Iterator[Move]:
        """The end of a session, and CONNECT. Both cost; after an end the next CONNECT is free."""
        is_open = self.effects.cores[core].connection.is_open
        fresh = self.known.number(self.known[known]._replace(cursor=START))
        ends: list[tuple[Clear | Open, Arguments]] = [(Clear(), ())] if is_open or self.scope.late else []
        ends += [(Open(0, clean), (("clean_start", int(clean)),)) for clean in (True, False)]
        for step, given in ends:
            usual = CLEARS if is_open or isinstance(step, Clear) else FREE
            for cost, action, tried, effect in self._tried(step, core, (), (), at_node):
                yield _move(tried, usual if cost == FREE else cost, action, given, effect, fresh)
        late: list[Step] = [Clear(stale=True)]
        if self.effects.store.capabilities.tells_connects:
            late += [Open(0, True, stale=True), Open(0, False, stale=True), Open(again=True)]
        for one in late if self.scope.late else ():
            found = self.effects.perform(core, one, (), (), at_node.has_lost_scripts)
            if found is not None:
                yield _move(one, CLEARS, f"{kind_of_step(one)}, late", (), found, known)

    def _ends(self, core: int, known: int) -> Iterator[Move]:
        """What would be if the reader stayed, or if nothing came any more."""
        at = self.effects.cores[core]
        if at.account.queue:
            for count in (1, 2) if self.scope.drains else ():
                step = DrainQueue(0, count)
                found = self.effects.perform(core, step)
                if found is not None:
                    yield _move(step, FREE, "drain", (), found, known, leads_on=False)
        elif at.connection.is_open and (self.scope.drains or self.scope.settles):
            found = self.effects.settle(core)
            if found is None:
                return
            # other laws that this one message may break are left to the steps that it takes
            told = [one for one in found.discrepancies if self.scope.drains or one.law == "no-residue"]
            if told:
                yield Move(Quiesce(), FREE, "settle", (), core, known, told, diverges=True, leads_on=False)

    # -- writers -------------------------------------------------------------------------------------------------------

    def of_writer(self, writer: int, reader: int, core: int, known: int, at_node: Conditions) -> Iterator[Move]:
        """Everything that a writer can do towards one reader's session."""
        at = self.writers[writer]
        yield from self._repetitions(at, reader, core, known, at_node)
        if at.position < len(self.programs[at.program]):
            yield from self._saves(at, reader, core, known, at_node)

    def _saves(self, at: Writer, reader: int, core: int, known: int, at_node: Conditions) -> Iterator[Move]:
        """The reply to a save decides whether its writer sends it again: a loss, a crash or an error lets it."""
        step, moved, before, batches = self._next_save(at, reader, self.known[known])
        unheard = self.known.number(before)
        given = (("message", ", ".join(name_of(one.label) for one in step.messages)),)
        for one in (step, replace(step, stale=True)) if self.effects.cores[core].connection.cleared_epoch else (step,):
            words = ", routed before the clear" if one.stale else ""
            for cost, action, tried, effect in self._tried(one, core, (), batches, at_node):
                unsure = self._after_save(moved, reader, tried, effect, is_answered=False)
                if tried.fault is not None:
                    yield _move(tried, cost, action + words, given, effect, unheard, unsure)
                    continue
                after = self.known.number(before.told(effect))
                answered = self._after_save(moved, reader, tried, effect, is_answered=True)
                yield _move(tried, cost, action + words, given, effect, after, answered)
                if self.scope.lost_replies and not effect.discrepancies:
                    lost = f"{action}{words}, reply lost"
                    yield _move(tried, LOST_REPLIES, lost, given, effect, unheard, unsure)

    def _next_save(self, at: Writer, reader: int, known: Known) -> tuple[Save, Writer, Known, tuple[Batch, ...]]:
        """A writer's next save for a reader; the writer, and what is known around the session, once it is on its way;
        and the batches before it.
        """
        program = self.programs[at.program]
        step = program[at.position]
        if self.scope.renames:
            name = at.names[reader] or known.writers + 1
            names = (*at.names[:reader], name, *at.names[reader + 1 :])
            labels = range(known.addressed + 1, known.addressed + 1 + len(step.messages))
            known = known._replace(addressed=labels.stop - 1, writers=max(known.writers, name))
            parts = zip(labels, step.messages, strict=True)
            named = tuple(message(label, one.interval_ms, one.qos) for label, one in parts)
            step, moved = replace(step, messages=named, producer=name - 1), at._replace(names=names)
        else:
            moved = at
        last = Batch(sum(max(1, len(one.messages)) for one in program[: at.position]))
        if self.scope.late and at.last is not None and at.last.reader == reader:
            last = at.last.batch
        moved = moved._replace(position=at.position + 1, last=None)
        return step, moved, known, self._batches({step.producer: last})

    def _repetitions(self, at: Writer, reader: int, core: int, known: int, at_node: Conditions) -> Iterator[Move]:
        """The last save once more: by its writer, who has no reply; or though it was answered (a duplicate)."""
        if at.last is None or at.last.reader != reader or at.last.batch.step is None:
            return
        step = at.last.batch.step
        given = (("message", ", ".join(name_of(one.label) for one in step.messages)),)
        batches = self._batches({step.producer: at.last.batch})
        for older in (False, True) if self.scope.late else (False,):
            again = Retry(step.producer, older)
            found = self.effects.perform(core, again, (), batches, at_node.has_lost_scripts)
            if found is None:
                continue
            after = self.known.number(self.known[known].told(found))
            answered = self._after_save(at, reader, step, found, is_answered=True)
            cost = DUPLICATES if at.last.is_answered or older else FREE
            yield _move(again, cost, "save again", given, found, after, answered)

    def _after_save(self, writer: Writer, reader: int, step: Step, effect: Effect, is_answered: bool) -> int:
        """The writer with what it may send again. What was stopped on the way may have been done all the same."""
        if not self._may_repeat or (is_answered and not self.scope.duplicates):
            return self.writers.number(writer._replace(last=None))
        assert isinstance(step, Save)
        batch = effect.batches[step.producer]
        has_had = effect.was_stopped and self.effects.has_had(effect.core, (one.label for one in step.messages))
        sent = replace(batch.step, fault=None) if batch.step is not None else None
        batch = batch._replace(
            step=sent, was_done=batch.was_done or has_had, earlier=batch.earlier if self.scope.late else None
        )
        return self.writers.number(writer._replace(last=Last(reader, batch, is_answered)))

    def _batches(self, by_producer: dict[int, Batch]) -> tuple[Batch, ...]:
        return tuple(by_producer.get(at, one) for at, one in enumerate(self.effects.no_batches))

    @property
    def has_overlaps(self) -> bool:
        """Whether a save takes several calls, so that another can come in between."""
        return self.scope.overlaps and "save" in self._in_parts

    def overlaps(self, writer: int, other: int, reader: int, core: int, known: int) -> Iterator[Move]:
        """One writer's save between two calls of another one's, where a save takes several."""
        at, late = self.writers[writer], self.writers[other]
        if at.position == len(self.programs[at.program]) or late.position == len(self.programs[late.program]):
            return
        step, moved, between, batches = self._next_save(at, reader, self.known[known])
        during, late_moved, after, others = self._next_save(late, reader, between)
        batches = self._batches({step.producer: batches[step.producer], during.producer: others[during.producer]})
        names = (name_of(one.messages[0].label) for one in (step, during))
        given = tuple(zip(("message", "between"), names, strict=True))
        alone = self.effects.perform(core, step, (), batches)
        ended = [self.writers.number(one) for one in (moved, late_moved)]
        for calls in range(1, MOST_CALLS):
            overlap = Interleave(step, during, calls)
            effect = self.effects.perform(core, overlap, (), batches)
            if effect is None or (alone is not None and effect.core == alone.core):
                return  # the save has fewer calls
            told = self.known.number(after.told(effect))
            yield _move(overlap, FREE, "save, another within", given, effect, told, ended[0], ended[1])

    # -- trouble -------------------------------------------------------------------------------------------------------

    def _tried(
        self, step: Faultable, core: int, sendings: Sendings, batches: tuple[Batch, ...], at_node: Conditions
    ) -> Iterator[tuple[int, str, Faultable, Effect]]:
        """A step without trouble, then with each kind that the scope has and that makes itself felt."""
        action = kind_of_step(step)
        plain = self.effects.perform(core, step, sendings, batches, at_node.has_lost_scripts)
        if plain is None:
            return
        yield FREE, action, step, plain
        for cost, words, fault in self._faults(action, core, plain.core) if at_node.may_fail else ():
            faulted = replace(step, fault=fault)
            effect = self.effects.perform(core, faulted, sendings, batches, at_node.has_lost_scripts)
            if effect is not None and (effect.differs(plain) if cost == ERRORS else effect.was_stopped):
                yield cost, f"{action}, {words}", faulted, effect

    def _faults(self, operation: str, core: int, after: int) -> Iterator[tuple[int, str, Fault]]:
        """A crash takes back what a script has done so far, so it matters at the first call and between scripts."""
        if self.scope.crashes:
            yield CRASHES, "node crashes", Fault("crashed")
        if (self.scope.crashes or self.scope.deaths) and operation in self._in_parts:
            cost = CRASHES if self.scope.crashes else FREE
            for calls in range(1, MOST_CALLS):
                yield cost, f"client dies after {calls}", Fault(CLIENT_DIES, at=calls)
        if self.scope.errors:
            store, cores = self.effects.store, self.effects.cores
            for kind in store.conditions:
                yield ERRORS, kind, Fault(kind)
            if store.backend.trouble:
                return  # no keys that something else could hold
            before = store.frozen(cores[core].keyspace)
            for key, (kind, _, _) in sorted({**before, **store.frozen(cores[after].keyspace)}.items()):
                others = ("list" if kind == "string" else "string", "hash" if kind != "hash" else "list")
                for found in others if key not in before else others[:1]:
                    yield ERRORS, f"{shown(key)} is a {found}", Fault("wrong-type", key=key, found=found)


def _move(
    step: Step, cost: int, action: str, given: Arguments, effect: Effect, known: int, writer: int = -1, other: int = -1,
    leads_on: bool = True,
) -> Move:  # fmt: skip
    return Move(
        step, cost, action, given, effect.core, known, effect.discrepancies, effect.diverges, writer, other, leads_on
    )


def shown(value: Any) -> str:
    """A frozen value with its bytes as text."""
    if isinstance(value, bytes):
        text = value.decode("latin-1")
        return text if text.isprintable() else repr(value)[2:-1]
    if isinstance(value, tuple | list | frozenset):
        items = sorted(map(shown, value)) if isinstance(value, frozenset) else [shown(item) for item in value]
        return "[" + ", ".join(items) + "]"
    return str(value)
