"""From steps that break a contract to a short story: fewer steps, what each did, the Lua line, a real server's word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orderlab.model.contracts.contract import ALL_OR_NOTHING, Contract, Failed, shown
from orderlab.model.contracts.judge import Violation
from orderlab.model.contracts.steps import REPLY_LOST, Begin, ClientStep, ContractTrace, Die, Resume, Wait, told_step
from orderlab.properties.contracts.sequential.run import ContractRun, Report
from orderlab.properties.harness.keyspace import shown_keyspace
from orderlab.properties.harness.recording import LuaLine, line_to_look_at, record_of
from orderlab.sim.redis.backends import Backend, KernelBackend
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.results import Failed as FailedCall

Steps = tuple[ClientStep, ...]
SHORTER_MAX = 600
"""Runs that making one witness shorter may take."""


@dataclass(frozen=True)
class ContractWitness:
    """One law broken, the steps that show it, and what they do."""

    law: str
    trace: ContractTrace
    text: str
    told: tuple[str, ...]
    """What each step did."""
    states: tuple[str, ...]
    """The states that explain the replies, after each step."""
    before: FrozenKeyspace
    after: FrozenKeyspace
    """The keys around the last step."""
    lua: LuaLine
    search: str
    confirmation: str
    keyspaces: tuple[FrozenKeyspace, ...] = ()
    """The keys after each step."""

    @property
    def steps(self) -> Steps:
        """The steps, the last of which breaks the law."""
        return self.trace.steps

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "law": self.law,
            "text": self.text,
            "trace": self.trace.to_json(),
            "told": list(self.told),
            "states": list(self.states),
            "keys_before": shown_keyspace(self.before),
            "keys_after": shown_keyspace(self.after),
            "line": self.lua.place,
            "call": self.lua.call,
            "source": self.lua.source,
            "found_by": self.search,
            "confirmation": self.confirmation,
        }


class Rerun:
    """Runs steps from the empty store, as often as one likes."""

    def __init__(self, make: Callable[[], ContractRun]) -> None:
        self._run = make()
        self._start = self._run.state
        self.runs = 0

    @property
    def run(self) -> ContractRun:
        """The run, at the empty store."""
        self._run.go_to(self._start)
        return self._run

    def violation(self, steps: Sequence[ClientStep]) -> tuple[int, Violation] | None:
        """The first step that no state explains, and what it breaks. None too if a client makes a call that the
        contract would not have it make there (a token that it was never told)."""
        self.runs += 1
        run = self.run
        for index, step in enumerate(steps):
            if isinstance(step, Begin) and not is_legal(run, step):
                return None
            report = run.perform(step)
            if report.violation is not None:
                return index, report.violation
        return None


def is_legal(run: ContractRun, step: Begin) -> bool:
    """Whether the contract has the client make this call after what it has seen, or it is sent once more."""
    client = run.clients[step.client]
    return step.call == client.retry or step.call in run.judge.asked.calls(step.client, client.seen)


def shortened(rerun: Rerun, steps: Steps, law: str) -> Steps:
    """Fewer and plainer steps that break the same law, at the last of them."""

    def breaks(some: Steps) -> Steps | None:
        found = rerun.violation(some)
        if found is None or law not in found[1].laws:
            return None
        cut = some[: found[0] + 1]
        return cut if law != ALL_OR_NOTHING or is_about_atomicity(rerun, cut) else None

    limit = rerun.runs + SHORTER_MAX
    best = breaks(steps) or steps
    changed = True
    while changed and rerun.runs < limit:
        changed = False
        for shorter in _plainer(best):
            found = breaks(shorter)
            if found is not None:
                best, changed = found, True
                break
    return best


def _plainer(steps: Steps) -> list[Steps]:
    """Variants that are plainer, those that are so by most first."""
    variants: list[Steps] = []
    size = len(steps) // 2
    while size:
        variants += [steps[:at] + steps[at + size :] for at in range(0, len(steps) - size + 1, max(size // 2, 1))]
        size //= 2
    for at, step in enumerate(steps):
        if isinstance(step, Begin | Resume) and step.trouble is not None:
            variants.append((*steps[:at], replace(step, trouble=None), *steps[at + 1 :]))
        if isinstance(step, Wait) and at and isinstance(earlier := steps[at - 1], Wait):
            variants.append((*steps[: at - 1], Wait(earlier.ms + step.ms), *steps[at + 1 :]))
        if isinstance(step, Wait):
            variants += [(*steps[:at], Wait(ms), *steps[at + 1 :]) for ms in (1, 10, 100, 1000) if ms < step.ms]
        if not isinstance(step, Wait) and step.client:
            variants.append((*steps[:at], replace(step, client=0), *steps[at + 1 :]))
    return variants


def is_about_atomicity(rerun: Rerun, steps: Steps) -> bool:
    """Whether what was stopped part-way is to blame: the same steps with each such operation left out, and with each
    carried out whole, are explained."""
    stopped = [at for at, step in enumerate(steps) if isinstance(step, Die) or getattr(step, "trouble", None)]
    if not stopped:
        return False
    whole = tuple(
        replace(step, trouble=replace(step.trouble, kind=REPLY_LOST))
        if isinstance(step, Begin | Resume) and step.trouble is not None
        else step
        for step in steps
    )
    without = tuple(step for at, step in enumerate(steps) if at not in stopped)
    return rerun.violation(_resumed(whole)) is None and rerun.violation(_resumed(without)) is None


def _resumed(steps: Steps) -> Steps:
    """With every operation that was left in the middle carried on to its end in place of its client's death."""
    found: list[ClientStep] = []
    for step in steps:
        found += [Resume(step.client)] * 4 if isinstance(step, Die) else [step]
    return tuple(found)


def told_report(step: ClientStep, report: Report) -> str:
    """What a step did, in words."""
    if isinstance(step, Wait):
        return ""
    if report.is_idle:
        return "nothing: another operation is under way" if isinstance(step, Begin) else "nothing: no operation is under way"
    if report.stopped:
        return f"stopped: {report.stopped}"
    if not report.is_over:
        return "more calls to come"
    return f"replied {report.reply if isinstance(report.reply, Failed) else repr(report.reply)}"


def witness(
    rerun: Rerun, steps: Steps, law: str, search: str, binding: Binding, server: Callable[[], Backend] | None, seed: int = 0
) -> ContractWitness:
    """Run ``steps`` once more and take notes."""
    run = rerun.run
    told, states, keyspaces = [], [], []
    before: FrozenKeyspace = run.backend.keyspace()
    report, operation = Report(), ""
    pending: dict[int, str] = {}
    for step in steps:
        before = run.backend.keyspace()
        report = run.perform(step)
        if isinstance(step, Begin):
            pending[step.client] = step.call.name
        if isinstance(step, Begin | Resume):
            operation = pending[step.client]
        told.append(told_report(step, report))
        states.append("; ".join(sorted(shown(state) for state in run.judge.states())) if report.violation is None else "none")
        keyspaces.append(run.backend.keyspace())
    failed = None
    if report.violation is not None and isinstance(report.reply, Failed):
        failed = FailedCall(report.reply.text.encode())
    records = [record_of(operation, b"", report.effects)] if report.effects else []
    lua = line_to_look_at(records, binding, failed) if operation else LuaLine()
    text = report.violation.text if report.violation is not None else "not reproduced"
    confirmation = "not confirmed: no real server" if server is None else confirmed(steps, law, binding, run.contract, len(run.clients), run.skews_ms, server)
    kind = type(run.contract).__name__
    trace = ContractTrace(steps, len(run.clients), tuple(run.skews_ms), str(binding.path), kind, law, seed)
    return ContractWitness(
        law, trace, text, tuple(told), tuple(states), before, run.backend.keyspace(), lua, search, confirmation, tuple(keyspaces)
    )


def confirmed(
    steps: Steps, law: str, binding: Binding, contract: Contract, clients: int, skews_ms: Sequence[int], server: Callable[[], Backend]
) -> str:
    """What a real server says of the same steps, in words."""
    troubled = next((step.trouble for step in steps if isinstance(step, Begin | Resume) and step.trouble), None)
    if troubled is not None and troubled.kind != REPLY_LOST:
        return f"not confirmed: a server is not brought into {troubled.kind} here"
    backend = server()
    if isinstance(backend, KernelBackend):
        return "not confirmed: no real server"
    backend.flush()
    run = ContractRun(binding, contract, backend, clients, skews_ms)
    try:
        for number, step in enumerate(steps, 1):
            report = run.perform(step)
            if report.violation is not None:
                same = law in report.violation.laws
                return f"confirmed by {backend.describe()}" if same and number == len(steps) else (
                    f"{backend.describe()} breaks {', '.join(report.violation.laws)} at step {number}"
                )
    finally:
        backend.flush()
    return f"not shown by {backend.describe()}"


def story_lines(found: ContractWitness) -> list[tuple[str, str]]:
    """Lines with the style that a terminal gives them."""
    lines = [(f"{found.law} is violated: {found.text}", "bold")]
    for number, (step, told, states) in enumerate(zip(found.steps, found.told, found.states, strict=True), 1):
        lines.append((f"  {number}. {told_step(step)}", ""))
        if told:
            lines.append((f"     {told}; the contract's state: {states}", "dim"))
    for name, keyspace in (("before", found.before), ("after", found.after)):
        lines.append((f"  keys {name} the last step:", ""))
        lines += [(f"     {key} = {value}", "dim") for key, value in shown_keyspace(keyspace).items()] or [("     none", "dim")]
    if found.lua.place:
        lines.append((f"  {found.lua.place}: {found.lua.source}", ""))
    elif found.lua.call:
        lines.append((f"  called by no script: {found.lua.call}", ""))
    return [*lines, (f"  found by {found.search}; {found.confirmation}", "")]
