"""What the scripts of a store do with their data: calls of a run carried out with marked values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orderlab.model.contracts.base import Call, Contract
from orderlab.model.contracts.client_steps import Begin, ClientStep, Resume
from orderlab.properties.engine.run import ContractRun, Report, RunState
from orderlab.properties.shadow.marked import ARGUMENT, LENGTH, MOVED, USES, Unknown
from orderlab.properties.shadow.running import Shadowed, compare, run_in_shadow
from orderlab.sim.stores.binding.replies import ReplyMismatch
from orderlab.sim.stores.binding.results import ScriptCall

KNOWN_BY_TEXT = 2
"""Bytes from which on a text in an argument is taken for the field that holds it."""


class Met(NamedTuple):
    """A call that was carried out with marked values, and where."""

    way: tuple[ClientStep, ...]
    state: RunState
    step: Begin
    seen: Shadowed


@dataclass
class Marks:
    """What was seen of every argument, over all runs."""

    uses: dict[str, dict[int, set[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    """Script -> index in ARGV -> what is done with it; nothing: it is only moved."""
    passed: dict[tuple[str, str], set[tuple[str, int]]] = field(default_factory=lambda: defaultdict(set))
    """Operation and field -> script and index in ARGV that it was passed as."""
    not_followed: dict[str, str] = field(default_factory=dict)
    """Script -> why nothing is known of it."""
    runs: int = 0

    def note(self, call: Call, seen: Shadowed) -> None:
        """Add one run."""
        name = seen.call.script.name
        self.runs += 1
        if seen.why_not:
            self.not_followed[name] = seen.why_not
            return
        for at, text in enumerate(seen.call.args, 1):
            self.uses[name][at] |= seen.path.uses.get(at, set())
            for field_name, value in call.fields:
                if is_passed_as(value, text):
                    self.passed[call.name, field_name].add((name, at))

    def of_field(self, operation: str, name: str) -> set[str] | None:
        """What scripts do with a field; None where that is not known."""
        places = self.passed.get((operation, name))
        if not places or any(script in self.not_followed for script, _ in places):
            return None
        return set().union(*(self.uses[script][at] for script, at in places))

    def moved_fields(self) -> list[str]:
        """The fields of texts that every operation with them only moves."""
        names = {name for _, name in self.passed}
        collected = []
        for name in sorted(names):
            uses = [self.of_field(operation, each) for operation, each in self.passed if each == name]
            if all(item is not None and not item for item in uses):
                collected.append(name)
        return collected

    def to_json(self) -> dict[str, Any]:
        """By script and argument, and by operation and field."""
        return {
            "scripts": {
                name: {f"ARGV[{at}]": _words(uses) for at, uses in sorted(by_place.items())}
                for name, by_place in sorted(self.uses.items())
                if name not in self.not_followed
            },
            "fields": {
                f"{operation}.{name}": _words(uses)
                for operation, name in sorted(self.passed)
                if (uses := self.of_field(operation, name)) is not None
            },
            "not_followed": dict(sorted(self.not_followed.items())),
        }


def _words(uses: set[str]) -> list[str]:
    return [use for use in USES if use in uses] or [MOVED]


def is_passed_as(value: Any, text: bytes) -> bool:
    """Whether an argument holds the value of a field, as far as its text shows."""
    if isinstance(value, tuple):
        return any(is_passed_as(part, text) for part in value)
    if isinstance(value, int):
        return text == b"%d" % value
    return isinstance(value, str) and len(value) >= KNOWN_BY_TEXT and value.encode() == text


class Carried(NamedTuple):
    """An operation that was carried out to its end, or to where it waits."""

    mets: list[Met]
    way: tuple[ClientStep, ...]
    report: Report


def carried_out(run: ContractRun, way: tuple[ClientStep, ...], begin: Begin, is_marked: bool = True) -> Carried:
    """Carry out one operation, each script of it with marked values first."""
    mets: list[Met] = []
    step: ClientStep = begin
    replies: tuple[Any, ...] = ()
    while True:
        if is_marked:
            call, before = _next_call(run, begin, replies), run.state
            if isinstance(call, ScriptCall):
                mets.append(Met(way, before, begin, _seen(run, call, before)))
        report = run.perform(step)
        way = (*way, step)
        if report.is_over or report.violation is not None or run.clients[begin.client].waits is not None:
            return Carried(mets, way, report)
        step, replies = Resume(begin.client), run.clients[begin.client].replies


def _seen(run: ContractRun, call: ScriptCall, before: RunState) -> Shadowed:
    """A script with marked values, compared with the kernel's own run of it. The state is as before then."""
    seen = run_in_shadow(call, run.backend)
    here = run.backend.keyspace()
    run.go_to(before)
    reply = run.backend.execute(*call.argv)
    compare(seen, here, run.backend.keyspace(), reply)
    run.go_to(before)
    return seen


def _next_call(run: ContractRun, begin: Begin, replies: tuple[Any, ...]) -> Any:
    fields = {"now_ms": run.backend.now_ms + run.skews_ms[begin.client], **dict(begin.call.fields)}
    try:
        return run.served(begin.served_by).step(begin.call.name, fields, replies)
    except ReplyMismatch:
        return None


def with_argument(run: ContractRun, met: Met, symbol: Unknown, value: int) -> tuple[Call | None, str]:
    """The call with an argument of its script as the solver wants it, within what the contract lets callers give; and
    the name of the field, if that is all that stands against it."""
    call, at = met.step.call, symbol.place
    text = met.seen.call.args[at - 1]
    outside = ""
    for name, given in call.fields:
        if not is_passed_as(given, text) or isinstance(given, tuple) or not is_told(run, call.name, name):
            continue
        low, high = range_of(run.contract, call.name, name)
        if not low <= value <= high:
            outside = outside or (f"{call.name}.{name}" if (low, high) == NO_RANGE else "")
            continue
        wanted: Any = value if symbol.kind == ARGUMENT else _of_length(given, value)
        if wanted is None or isinstance(given, str) is not (symbol.kind == LENGTH):
            continue
        return Call(call.name, tuple((key, wanted if key == name else each) for key, each in call.fields)), ""
    return None, outside


def _of_length(text: Any, size: int) -> str | None:
    if not isinstance(text, str) or size < len(text):
        return None
    return text + "x" * (size - len(text))


def is_told(run: ContractRun, operation: str, name: str) -> bool:
    """Whether the store is told a field: of one that it is not told callers have no choice. A binding's own code may
    read any."""
    return run.binding.adapter is not None or name in run.binding.operations[operation].reads


NO_RANGE = (1, 0)


def range_of(contract: Contract, operation: str, name: str) -> tuple[int, int]:
    """The least and the greatest that callers may give, of a text its bytes; an empty range where nothing is said."""
    ranges: Mapping[str, tuple[int, int]] = contract.ranges()
    return ranges.get(f"{operation}.{name}", ranges.get(name, NO_RANGE))


def is_variant(contract: Contract, call: Call, usual: Call) -> bool:
    """Whether a call is the ``usual`` one but for values that the contract lets callers give."""
    if call.name != usual.name or [key for key, _ in call.fields] != [key for key, _ in usual.fields]:
        return False
    return all(
        value == other or _is_given(value, other, *range_of(contract, call.name, name))
        for (name, value), (_, other) in zip(call.fields, usual.fields, strict=True)
    )


def _is_given(value: Any, usual: Any, low: int, high: int) -> bool:
    if isinstance(value, str) and isinstance(usual, str):
        return value == _of_length(usual, len(value)) and low <= len(value.encode()) <= high
    return type(value) is int and type(usual) is int and low <= value <= high
