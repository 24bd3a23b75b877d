"""The validation of a store with a contract of its owner's: its searches, what grows, how a witness of it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from orderlab.model.contracts.base import ALL_OR_NOTHING, Contract, Discrepancy
from orderlab.model.contracts.client_steps import ContractTrace
from orderlab.model.contracts.sequential import AT_LENGTH as LONG_EFFORT
from orderlab.model.contracts.sequential import BOUNDED, NO_RESIDUE, SMALLEST, WAKE_UP, Scope, SequentialTerms
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.properties.engine.boundaries import solve
from orderlab.properties.engine.certificate import certificate_of
from orderlab.properties.engine.closed_scope import CLIENTS, NOT_CLOSED
from orderlab.properties.engine.closing import close
from orderlab.properties.engine.crowds import AT_LENGTH, crowd
from orderlab.properties.engine.growth import Growth, Writer, measure
from orderlab.properties.engine.memory import Memory
from orderlab.properties.engine.run import REMEMBERED_MAX, ContractRun, Core, Remembered
from orderlab.properties.engine.search import Met, Search, befallen, explore, is_accepted, walk
from orderlab.properties.engine.situations import AFTER_TROUBLE, ONE_BY_ONE, situate
from orderlab.properties.engine.witness import (
    ContractPerformer,
    ContractReruns,
    PlainerCalls,
    explain,
)
from orderlab.properties.harness.recording import LuaLine, script_of
from orderlab.properties.validation.effort import witness_steps
from orderlab.properties.validation.findings import FOREIGN_TYPE, Explored, Finding, Findings, meets_foreign_type
from orderlab.properties.validation.schedule import Analysis, Schedule
from orderlab.properties.validation.validation import Validation, run_rounds
from orderlab.properties.validation.verdicts import Judge, LawResult
from orderlab.properties.validation.work_order import USUAL, WorkOrder
from orderlab.properties.witness.confirmation import Confirmer
from orderlab.properties.witness.shortening import shortened
from orderlab.properties.witness.witness import Explanation
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.bound import CpuBudget, kernel_of

SKEW_MS = 700
"""By how much the second client's clock is ahead of the server's, where a store asks its clients for the time."""
WALKS, LENGTH = 30, 40
"""Random walks for each unit of effort, and how long they are."""
COUNTING = "counting; the steps are one round"


def foreign_value_cure(operation: str) -> str:
    """What an owner may do about an operation that such a value stops after it has written."""
    accepted = (
        f'[[accept]] law = "{ALL_OR_NOTHING}", operation = "{operation}", trouble = "{FOREIGN_TYPE}", why = "..."'
    )
    return (
        f"{operation} under {FOREIGN_TYPE}: this takes another program that writes under the store's own keys; look at "
        f"types before the first write, or, if none does, end store.toml with these, each on a line: {accepted}"
    )


@dataclass(frozen=True)
class ContractValidation(Validation):
    """With the name of the contract."""

    data: dict[str, Any] = field(default_factory=dict)
    """What scripts do with their arguments."""
    certificate: dict[str, Any] | None = None
    """Of the scope that was closed, where one is asked for."""

    @property
    def facts(self) -> dict[str, str]:
        """The class."""
        return {"contract": self.terms.name}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the owner takes for granted, and what he accepts."""
        return (*self.binding.assumptions, *map(str, self.binding.accepted))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to do about violations that take another program's value under a key of the store."""
        witnesses = [witness for each in self.results if each.law == ALL_OR_NOTHING for witness in each.witnesses]
        traces = [witness.finding.trace for witness in witnesses if meets_foreign_type(witness.finding.trace)]
        operations = dict.fromkeys(befallen(trace.steps)[0] for trace in traces)
        return (*super().remarks, *map(foreign_value_cure, operations))

    def to_json(self) -> dict[str, Any]:
        """The schema is in ``notes/contracts.md``."""
        return super().to_json() | {"contract": self.terms.name, "data": self.data}

    def law_to_json(self, result: LawResult) -> dict[str, Any]:
        """One law in plain values."""
        is_violated = result.outcome is Outcome.VIOLATED
        return {
            "law": result.law,
            "statement": self.terms.laws[result.law],
            "outcome": str(result.outcome),
            "tested": result.tested,
            "witnesses": [one.to_json() for one in result.witnesses],
            "not_covered": [result.because]
            if is_violated and not result.witnesses
            else []
            if is_violated
            else list(result.verdict.not_covered),
            "not_applicable": result.not_applicable or None,
        }


def contract_of(binding: Binding) -> Contract:
    """The contract that the binding names. Raises InputError when it is none."""
    if not isinstance(binding.contract, Contract):
        kind = type(binding.contract).__name__
        raise InputError(
            f"{binding.place}: specification: {kind} is no Contract; derive it from orderlab.contract.Contract"
        )
    return binding.contract


def laws_of(terms: SequentialTerms, laws: Iterable[str] | None) -> list[str]:
    """Those that were asked for, or all. Raises InputError for one that the contract does not have."""
    wanted = list(laws) if laws is not None else list(terms.laws)
    for name in wanted:
        if name not in terms.laws:
            raise InputError(f"--law {name}: not a law of {terms.name}; one of {', '.join(terms.laws)}")
    return wanted


def validate_contract(binding: Binding, order: WorkOrder = USUAL) -> ContractValidation:
    """Judge the store of ``binding`` by its own contract. Raises InputError when the scripts or the contract cannot be
    run at all."""
    contract = contract_of(binding)
    terms = SequentialTerms(contract)
    wanted = laws_of(terms, order.laws)
    laws_of(terms, (each.law for each in binding.accepted))
    effects: Memory[Core, Remembered] = Memory(REMEMBERED_MAX)

    def make(clients: int = 0) -> ContractRun:
        run = run_of(binding, clients)
        run.effects = effects
        return run

    budget, findings = CpuBudget(), Findings(frozenset(wanted))
    reruns = ContractReruns(make)
    judge = ContractJudge(terms, binding, order, reruns, findings, budget)
    met = Met()

    def searching(own: Findings) -> Search:
        return Search(reruns, own, budget, met)

    def explored(scope: Scope, follows: bool = False) -> Analysis:
        few = 0 if scope.is_carried_on else scope.present
        return Analysis(
            scope.name, lambda own, now, done: explore(make(few), scope, searching(own), now), follows=follows
        )

    def crowded(own: Findings, now: float, done: float) -> None:
        effects.forget()  # of small stores: what is in a crowd takes room enough
        crowd(make, searching(own), counts_lua=order.effort >= LONG_EFFORT)

    def solved(own: Findings, now: float, done: float) -> tuple[list[str], dict[str, Any]]:
        marks = solve(make, searching(own), now).marks
        return marks.moved_fields(), marks.to_json()

    def grown(own: Findings, now: float, done: float) -> Growth:
        growth = measure(lambda: make(max(3, terms.contract.clients + 1)), lambda: budget.is_past)  # one comes and goes
        note_growth(growth, reruns, own)
        return growth

    scopes = terms.scopes_at(order.effort)
    solitary = [scope for scope in scopes if scope.is_solitary]
    analyses = (
        *(explored(scope, follows=True) for scope in scopes if scope.is_smallest),
        Analysis(ONE_BY_ONE, lambda own, now, done: situate(make(), searching(own), now), follows=True),
        Analysis(
            "random walks",
            lambda own, now, done: walk(make(), searching(own), order.seed, max(int(WALKS * order.effort), 10), LENGTH),
            follows=True,
        ),
        Analysis("boundaries", solved, note=judge.note_data, follows=True),
        *(explored(scope, scope is not solitary[0]) for scope in solitary),
        Analysis(AFTER_TROUBLE, lambda own, now, _: situate(make(), searching(own), now, AFTER_TROUBLE), follows=True),
        *(explored(scope) for scope in scopes if not scope.is_carried_on),
        Analysis("closing", lambda own, now, done: closed_scope(make, searching(own), order), note=judge.note_closed),
        Analysis("crowds", crowded),
        Analysis("what grows", grown, note=judge.note_growth),
    )
    # One round: what a search of a smaller effort finds, that of a larger one finds first.
    schedule = Schedule(analyses, findings, budget, order.progress, order.processes)
    is_whole = run_rounds(schedule, judge, [order.effort], order.budget_s)
    results = tuple(with_accepted(judge.result(name), binding, findings) for name in wanted)
    gaps = (*judge.gaps, *never_passed(binding, contract))
    notes = (*findings.notes, *(said + one for said, one in findings.examples.items()))
    return ContractValidation(
        binding, terms, results, notes, gaps, dict(findings.work), order.seed, order.effort, findings.seen,
        not is_whole, judge.data, None if findings.by_law else judge.certificate,
    )  # fmt: skip


def closed_scope(
    make: Callable[[int], ContractRun], search: Search, order: WorkOrder
) -> tuple[str, dict[str, Any] | None]:
    """What a closed scope shows, empty where none is; and its certificate, where one is asked for."""
    scope = close(make(CLIENTS), search, order)
    if scope is None or not scope.is_closed:
        return "", None
    run = make(CLIENTS)
    laws = [*SequentialTerms(run.contract).laws]
    return scope.words, certificate_of(scope, run, laws, order.seed) if order.certifies else None


def note_what_cannot_be(findings: Findings, binding: Binding, contract: Contract) -> None:
    """Laws that say nothing about this store, for nothing ever tested them."""
    if WAKE_UP in findings.wanted and not findings.coverage[WAKE_UP]:
        findings.not_applicable[WAKE_UP] = "no client waited without a timeout"
    for one in contract.laws:
        if one.needs and not set(one.needs) & set(binding.operations) and not findings.coverage[one.name]:
            findings.not_applicable[one.name] = f"the store has no {' and no '.join(one.needs)}"


def with_accepted(result: LawResult, binding: Binding, findings: Findings) -> LawResult:
    """The result; unknown where something is accepted that was not seen, for then nobody knows what the line is for."""
    unseen = [
        f"[[accept]] of {each.operation}{f' under {each.trouble}' if each.trouble else ''} did not occur; remove it "
        "from store.toml, or take more effort"
        for each in binding.accepted
        if each.law == result.law and (each.law, each.operation, each.trouble) not in findings.accepted
    ]
    if not unseen or result.outcome is not Outcome.HOLDS:
        return result
    gaps = (*result.verdict.not_covered, *unseen)
    return replace(result, verdict=replace(result.verdict, outcome=Outcome.UNKNOWN, not_covered=gaps))


def never_passed(binding: Binding, contract: Contract) -> Iterator[str]:
    """The fields of the contract's operations that no template of the store reads, in words."""
    for operation, bound in binding.operations.items():
        known = {*contract.optional.get(operation, ()), *bound.reads}
        left = [one for one in contract.operations.get(operation, ()) if one not in known]
        if left:
            yield (
                f"{operation} never passes {', '.join(left)}: what depends on {'it' if len(left) == 1 else 'them'} "
                "is not judged"
            )


def run_of(binding: Binding, clients: int = 0) -> ContractRun:
    """The store on a kernel of its own, under so many clients (as many as random walks have, unless said), one of whose
    clocks may be ahead. Raises InputError when the binding names no contract."""
    contract = contract_of(binding)
    skews = (0, SKEW_MS) if asks_clients_for_time(binding) and not contract.clocks_agree else ()
    return ContractRun(binding, contract, kernel_of(binding), clients or max(3, contract.clients), skews)


def asks_clients_for_time(binding: Binding) -> bool:
    """Whether any call reads the client's clock."""
    return any("now_ms" in bound.reads for bound in binding.operations.values())


def note_growth(growth: Growth, reruns: ContractReruns, findings: Findings) -> None:
    """What the keys hold after more and more rounds, and the calls of one operation. It takes many rounds to see it, so
    that a replay of one breaks nothing. What breaks another law on the way is a finding as any other."""
    trace = reruns.trace([one.step for one in growth.round])
    if growth.is_of_contract:
        findings.not_applicable[NO_RESIDUE] = growth.why_not
    elif growth.why_not:
        findings.untested[NO_RESIDUE] = growth.why_not
    findings.coverage[NO_RESIDUE] += growth.tested
    if growth.broken is not None:
        steps, broken = growth.broken
        findings.add(broken, reruns.trace(steps), "what grows")
    findings.notes += [f"{key} grew to the end; whoever adds to it keeps it to so many things" for key in growth.capped]
    for law, text in ((NO_RESIDUE, growth.keys), (BOUNDED, growth.calls)):
        if text:
            findings.add([Discrepancy(law, text)], trace, COUNTING)


class ContractJudge(Judge):
    """``Judge`` for stores with a contract: what breaks a law breaks it as it stands."""

    def __init__(
        self,
        terms: SequentialTerms,
        binding: Binding,
        order: WorkOrder,
        reruns: ContractReruns,
        findings: Findings,
        budget: CpuBudget,
    ) -> None:
        confirmer = Confirmer(order.backend, ContractPerformer(binding, terms.contract), budget)
        super().__init__(terms, binding, order, reruns, findings, budget, confirmer)
        self.of_contract = reruns
        self.of_terms = terms
        self.growth = Growth()
        self.closed = ""
        """What a closed scope shows; empty where none is."""
        self.certificate: dict[str, Any] | None = None
        self.otherwise: set[str] = set()
        """Laws of which a finding was another law's."""
        self.moved: list[str] = []
        """Fields that scripts only move."""
        self.data: dict[str, Any] = {}
        """What scripts do with their arguments."""

    def note_growth(self, growth: Growth | None) -> None:
        """What grows, and which laws nothing ever tests."""
        self.growth = growth if growth is not None else self.growth
        note_what_cannot_be(self.findings, self.binding, contract_of(self.binding))

    def note_data(self, known: tuple[list[str], dict[str, Any]] | None) -> None:
        """Which fields scripts only move, and all that they do with their arguments."""
        self.moved, self.data = known if known is not None else (self.moved, self.data)

    def note_closed(self, known: tuple[str, dict[str, Any] | None] | None) -> None:
        """What came of closing a scope."""
        self.closed, self.certificate = known if known is not None else ("", None)

    def consider(self, effort: float) -> bool:
        """Make witnesses; where one of any law is enough, until there is one."""
        if not self.order.any_law:
            return super().consider(effort)
        self.rounds, self._share = self.rounds + 1, witness_steps(effort)
        self._used.clear()
        waiting = (law for law in self.terms.laws if law in self.findings.by_law)
        return all(any(self.witnesses.values()) or self._within_share(law, self.plain) for law in waiting)

    def has_soon(self, effort: float) -> bool:
        """As of any judge; where one of any law is enough, whether there is one."""
        if not self.order.any_law:
            return super().has_soon(effort)
        if self.findings.by_law:
            self.budget.allow(inf)
            self.consider(effort)
        return any(self.witnesses.values())

    def is_counted(self, finding: Finding) -> bool:
        """Whether it was seen by counting."""
        return is_counted(finding)

    def reproduced(self, finding: Finding) -> ContractTrace | None:
        """Made short; None for what is broken for another reason than the law says."""
        if finding.law != ALL_OR_NOTHING and self.of_contract.is_another_law(finding.trace, finding.law):
            self._forget(finding)
            self.otherwise.add(finding.law)
            return None
        trace: ContractTrace = shortened(finding.trace, finding.law, self.of_contract, PlainerCalls())
        if self.reruns.law_broken(trace, finding.law) is None:
            return None
        if is_accepted(self.binding, self.findings, finding.law, trace.steps):
            # What befell the run before it was short had nothing to do with it.
            self._forget(finding)
            return None
        return trace

    def _forget(self, finding: Finding) -> None:
        """It is no finding of this law: nobody shall hear that it was not reproduced."""
        known = self.findings.by_law[finding.law]
        self.findings.by_law[finding.law] = [each for each in known if each is not finding]

    def full_scale(self, law: str) -> list[Finding]:
        """What is broken for the reason that the law says."""
        known = self.findings.by_law[law]
        return [one for one in known if law != ALL_OR_NOTHING or self.reruns.law_broken(one.trace, law) is not None]

    def result(self, law: str) -> LawResult:
        """What breaks without anything being stopped is not about atomicity, and breaks its own law. What is accepted
        is no violation."""
        # What is another law's has to be told under that one, where it was asked for.
        is_told = law not in self.otherwise or any(self.witnesses.values()) or len(self.findings.wanted) == 1
        if (law == ALL_OR_NOTHING and not self.witnesses.get(law)) or (self.findings.by_law.get(law) == [] and is_told):
            self.findings.by_law.pop(law, None)
        result = super().result(law)
        if result.outcome is not Outcome.HOLDS:
            return result
        how, is_enough = looked_at(self.of_terms.scopes_at(self.order.effort), self.findings.explored)
        if self.moved:
            how += f"; {', '.join(self.moved)}: only moved, so any"
        if law == BOUNDED and self.order.effort < LONG_EFFORT:
            how += "; Lua instructions are counted from effort standard on"
        if self.closed and law not in NOT_CLOSED:
            how = self.closed
        if is_enough:
            return replace(result, verdict=replace(result.verdict, how=how))
        gaps = (*result.verdict.not_covered, f"too little was seen for any law to hold: {how}")
        return replace(result, verdict=replace(result.verdict, outcome=Outcome.UNKNOWN, not_covered=gaps))

    def explain(self, finding: Finding) -> Explanation:
        """What the steps do; of what was counted, what one round does, and the keys before the first and after the
        last."""
        if finding.analysis != COUNTING:
            return explain(self.of_contract, finding.trace)
        growth = self.growth
        told = tuple(one.told for one in growth.round)
        states, keyspaces = (tuple(one.states for one in growth.round), tuple(one.keyspace for one in growth.round))
        lua = self._line(growth.writer) if finding.law == NO_RESIDUE else LuaLine()
        return Explanation(told, states, growth.before, growth.after, lua, keyspaces=keyspaces)

    def _line(self, writer: Writer | None) -> LuaLine:
        script = None if writer is None else script_of(self.binding, writer.operation, writer.caller)
        if writer is None or script is None or writer.effect.line is None:
            return LuaLine()
        _, path, line = script.place_of(writer.effect.line)
        return LuaLine(path, line, "", script.text_of(writer.effect.line))


def looked_at(scopes: Sequence[Scope], explored: Sequence[Explored]) -> tuple[str, bool]:
    """Which scopes were explored to their end, and where others stopped and how far they had come, in one line; and
    whether all runs of two operations were seen wherever a scope begins, in trouble as well, without which no law
    holds."""
    lines = []
    for level in dict.fromkeys(scope.level for scope in scopes):
        wanted = sum(scope.level == level for scope in scopes)
        known = [one for one in explored if one.level == level]
        stopped = [one for one in known if not one.is_exhausted]
        if len(known) - len(stopped) == wanted:
            lines.append(f"all runs of {level}")
        else:
            ended = f"in {len(known) - len(stopped)} of {wanted} situations, else " if wanted > 1 else ""
            few = min((one.operations for one in stopped), default=0)
            seen = f"all runs of {few}, " if few else ""
            lines.append(f"{level}: {ended}{seen}stopped after {sum(one.steps for one in stopped):,} steps")
    for one in explored:
        if one.level in (ONE_BY_ONE, AFTER_TROUBLE):
            lines.append(f"{one.level}: {'all' if one.is_exhausted else f'{one.steps:,} steps'}")
    core = [one for one in explored if one.is_core]
    is_enough = all(one.is_exhausted or one.operations >= SMALLEST for one in core)
    return "; ".join(lines), is_enough and len(core) == sum(scope.is_core for scope in scopes)


def is_counted(finding: Finding) -> bool:
    """Whether it was seen by counting calls and keys, which the steps alone do not show."""
    return finding.analysis in (COUNTING, AT_LENGTH) or finding.law == "one-slot"
