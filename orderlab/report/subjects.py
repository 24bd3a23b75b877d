"""From what a command found to the subjects of its report."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orderlab.model.contracts.client_steps import fault_of, lane_of
from orderlab.model.laws import LAWS
from orderlab.model.verdict import Outcome, Verdict, to_plain
from orderlab.report.report import (
    CHANGED,
    Change,
    ChangedFile,
    ChangedLine,
    Finding,
    JudgedLaw,
    Line,
    Step,
    Subject,
    fingerprint_of,
)
from orderlab.report.words import counted, whereabouts
from orderlab.sim.redis.error_conditions import WRONG_TYPE_FOUND

if TYPE_CHECKING:
    from orderlab.model.explorer.exploration import Exploration
    from orderlab.model.explorer.witness import Behaviour
    from orderlab.properties.comparison.differences import Comparison, Difference
    from orderlab.properties.harness.recording import LuaLine
    from orderlab.properties.validation.validation import Validation
    from orderlab.properties.witness.witness import Witness
    from orderlab.sim.redis.shard import FrozenKeyspace

KEYS_NOTED = 60
"""Of a state after a step; larger ones are left out."""


# -- stores
# ----------------------------------------------------------------------------------------------------------------


def subject_of_store(validation: Validation) -> Subject:
    """The subject for a store of any kind."""
    findings: list[Finding] = []
    laws = []
    for result in validation.results:
        certain = result.witnesses
        uncertain = [result.small_scope] if result.small_scope is not None else []
        findings += [_of_witness(witness, validation.binding.name) for witness in certain]
        findings += [_of_witness(witness, validation.binding.name, is_certain=False) for witness in uncertain]
        laws.append(
            JudgedLaw(
                law=result.law,
                statement=validation.terms.laws[result.law],
                clauses=tuple(validation.terms.clauses(result.law)),
                outcome=result.outcome,
                tested=result.tested if "antecedents" in result.verdict.work else None,
                is_applicable=not result.not_applicable,
                because="" if certain else result.because,
            )
        )
    return Subject(
        name=validation.binding.name,
        path=_file_of(validation.binding.path),
        kind="store",
        outcome=validation.outcome,
        laws=tuple(laws),
        findings=_plainest_first(findings),
        facts=validation.facts,
        assumptions=validation.assumptions,
        notes=validation.remarks,
        not_covered=validation.gaps,
        scope=(*_work(validation.work), *validation.scope),
    )


def _of_witness(witness: Witness, store: str, is_certain: bool = True) -> Finding:
    from orderlab.properties.harness.keyspace import shown_keyspace
    from orderlab.properties.witness.telling import changes_told

    trace, explained, cause, terms = witness.finding.trace, witness.explanation, witness.cause, witness.terms
    law, lua = witness.finding.law, explained.lua
    keyspaces = explained.keyspaces or (None,) * len(trace.steps)
    ran = explained.ran or ((),) * len(trace.steps)
    rows = zip(trace.steps, explained.told, changes_told(explained.states), keyspaces, ran, strict=True)
    around = ", ".join(terms.circumstances(trace))
    return Finding(
        law=law,
        headline=witness.headline,
        cause="\0".join(
            (cause.place, cause.written, cause.error, around, *_troubles(trace.steps))
            if cause.place
            else (law, cause.wording)
        ),
        fingerprint=fingerprint_of(store, law, _name(lua), lua.source, cause.error, cause.wording),
        steps=tuple(
            Step(
                lane=lane_of(step, trace.steps), action=terms.told_step(step, trace), answer=answer,
                state=f"{terms.state_words}: {state}" if state else "", fault=_fault(step), keys=_keys(keys),
                scripts=tuple(dict.fromkeys(path.name for path, _ in lines)),
            )
            for step, answer, state, keys, lines in rows
        ),
        before=shown_keyspace(explained.before),
        after=shown_keyspace(explained.after),
        line=_line(lua),
        related=_written(lua),
        call=lua.call,
        found_by=witness.finding.analysis,
        confirmation=witness.confirmation,
        is_certain=is_certain,
        witness=trace.to_json(),
    )  # fmt: skip


def subject_of_comparison(comparison: Comparison, base: str, is_strict: bool = False) -> Subject:
    """The subject for a change of a store's scripts. ``base``: what the old ones were called by the user."""
    newly = {change.law for change in comparison.newly_broken}
    mixed = {change.law for change in comparison.rolling.broken} - newly
    still = {change.law for change in comparison.still_broken} - newly
    laws = []
    judged_after = subject_of_store(comparison.after)
    for judged in judged_after.laws:
        law = judged.law
        update: dict[str, object] = {}
        if law in newly:
            update = {"outcome": Outcome.VIOLATED}
        elif law in mixed:
            update = {"outcome": Outcome.VIOLATED, "because": "", "is_applicable": True}
        elif law in still and not is_strict:
            update = {"is_applicable": False, "because": "broken before as well"}
        elif (
            judged.outcome is Outcome.UNKNOWN
            and judged.is_applicable
            and law not in comparison.no_longer_known
            and not comparison.is_cut
        ):
            update = {"is_applicable": False, "because": f"undecided before as well: {judged.because}"}
        laws.append(judged.model_copy(update=update))
    findings = [
        _of_witness(change.witness, comparison.new.name, change.is_certain).model_copy(
            update={
                "change": kind,
                **(where_the_change_is(change.witness, comparison) if kind in (Change.NEW, Change.MIX) else {}),
            }
        )
        for kind, changes in (
            (Change.NEW, comparison.newly_broken),
            (Change.MIX, comparison.rolling.broken),
            (Change.SAME, comparison.still_broken),
            (Change.FIXED, comparison.fixed),
        )
        for change in changes
        if change.witness is not None
    ]
    findings += [
        _of_difference(difference, comparison)
        for difference in comparison.differences
        if not (difference.breaks or difference.broke)
    ]
    return Subject(
        name=f"{comparison.new.name} against {base}",
        path=_file_of(comparison.new.path),
        kind="change",
        outcome=comparison.outcome(is_strict),
        laws=tuple(laws),
        findings=tuple(_on_the_store(finding, comparison) for finding in findings),
        assumptions=judged_after.assumptions,
        notes=(*comparison.not_in_both, *comparison.costs),
        not_covered=(*comparison.gaps, *comparison.rolling.gaps),
        scope=(*_work(comparison.work), *comparison.scope, *comparison.rolling.scope),
        verdict=_verdict(comparison),
        changed=tuple(_changed_files(comparison)),
        base=base,
    )


def _on_the_store(finding: Finding, comparison: Comparison) -> Finding:
    """The finding with the name of the store that was judged: where the old scripts lay is gone."""
    return finding.model_copy(update={"witness": {**(finding.witness or {}), "store": str(comparison.new.path)}})


def _verdict(comparison: Comparison) -> str:
    cut = "; not compared to the end" if comparison.is_cut else ""
    if comparison.is_same_text:
        return (
            f"the scripts and the binding are the same{cut}"
            if cut
            else "equivalent: the scripts and the binding are the same"
        )
    if comparison.is_same_code:
        return (
            f"{'' if cut else 'equivalent: '}compiled, the scripts are the same (comments, lines, names of locals){cut}"
        )
    if comparison.is_equivalent:
        common = ", of what both have" if comparison.not_in_both else ""
        return f"equivalent within the scope{common}{', at another cost' if comparison.costs else ''}"
    newly, mixed, cured, still = (
        list(dict.fromkeys(change.law for change in changes))
        for changes in (comparison.newly_broken, comparison.rolling.broken, comparison.fixed, comparison.still_broken)
    )
    fixed = [law for law in cured if law not in {*newly, *still}]
    in_part = [law for law in cured if law not in fixed]
    parted = (
        (newly, f"{counted(len(newly), 'law')} newly broken"),
        (mixed, f"{counted(len(mixed), 'law')} broken during the rolling upgrade"),
        (fixed, f"{counted(len(fixed), 'law')} fixed ({', '.join(fixed)})"),
        (in_part, f"fixed in part: {', '.join(in_part)}, which another cause still breaks"),
        (still, f"{counted(len(still), 'law')} broken as before"),
    )
    parts = [words for laws, words in parted if laws]
    behaviour = sum(not (difference.breaks or difference.broke) for difference in comparison.differences)
    if behaviour:
        parts.append(f"{counted(behaviour, 'difference')} in behaviour that every law allows")
    return (", ".join(parts) or ("no difference so far" if cut else "different, and no law is concerned")) + cut


def _of_difference(difference: Difference, comparison: Comparison) -> Finding:
    from orderlab.properties.harness.keyspace import shown_keyspace
    from orderlab.properties.witness.telling import changes_told

    words = comparison.after.terms.state_words
    keyspaces = difference.new.keyspaces or (None,) * len(difference.trace.steps)
    rows = zip(
        difference.trace.steps,
        difference.told_steps,
        difference.new.told,
        difference.old.told,
        changes_told(difference.new.states),
        keyspaces,
        strict=True,
    )
    lua = difference.new.lua
    return Finding(
        law=difference.kind,
        headline=difference.text,
        cause=f"{difference.kind}\0{difference.text}",
        change=Change.BEHAVIOUR,
        fingerprint=fingerprint_of(
            comparison.new.name, difference.kind, _name(lua), lua.source, difference.text.split(" ", 1)[0]
        ),
        steps=tuple(
            Step(
                lane=lane_of(step, difference.trace.steps),
                action=action,
                answer=answer,
                before=before if before != answer else "",
                state=f"{words}: {live}" if live else "",
                fault=_fault(step),
                keys=_keys(keys),
            )
            for step, action, answer, before, live, keys in rows
        ),
        before=shown_keyspace(difference.old.after),
        after=shown_keyspace(difference.new.after),
        line=_line(lua),
        call=lua.call,
        found_by="comparison of both scripts",
        is_certain=not difference.small_scope,
        witness=difference.trace.to_json(),
    )


def _changed_files(comparison: Comparison) -> Iterable[ChangedFile]:
    for name, old, new in _texts(comparison):
        rows: list[ChangedLine] = []
        for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(3):
            for _, begin, end, begin_new, end_new in group:
                olds = [(number + 1, old[number]) for number in range(begin, end)]
                news = [(number + 1, new[number]) for number in range(begin_new, end_new)]
                for (at, before), (at_new, after) in zip_longest(olds, news, fillvalue=(None, None)):
                    rows.append(ChangedLine(old=before, new=after, old_number=at, new_number=at_new))
        yield ChangedFile(path=name, rows=tuple(rows))


def _texts(comparison: Comparison) -> Iterator[tuple[str, list[str], list[str]]]:
    """The lines of every file that differs, old and new, by its name."""
    texts = [
        {name: text.decode("utf-8", "replace") for script in binding.scripts for name, text in script.files.items()}
        for binding in (comparison.old, comparison.new)
    ]
    for name in sorted(texts[0].keys() | texts[1].keys()):
        old, new = (text.get(name, "").splitlines() for text in texts)
        if old != new:
            yield name, old, new


def where_the_change_is(witness: Witness, comparison: Comparison) -> dict[str, Any]:
    """The location of what a change breaks: of its lines that which the witness runs through last, or comes nearest to
    in a script that it runs. The line where the harm is noticed is a related one then."""
    explained = witness.explanation
    paths = {
        name: path
        for script in comparison.new.scripts
        for name, path in ([(piece.name, piece.path) for piece in script.pieces] or [(script.name, script.path)])
    }
    near: list[tuple[bool, int, int, Line]] = []
    for name, old, new in _texts(comparison):
        for tag, _, _, begin, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if tag == "equal" or not new or name not in paths:
                continue
            for step, lines in enumerate(explained.ran):
                for path, at in lines:
                    if path == paths[name]:
                        line = min(max(at, begin + 1), max(end, begin + 1), len(new))
                        there = Line(path=str(path), line=line, source=new[line - 1].strip(), role=CHANGED)
                        near.append((line == at, step, -abs(line - at), there))
    if not near:
        return {}
    changed = max(near, key=lambda place: place[:3])[3]
    noticed = _line(explained.lua)
    if noticed is None or (noticed.path, noticed.line) == (changed.path, changed.line):
        return {"line": changed, "call": "", "related": _written(explained.lua)}
    related = noticed.model_copy(update={"role": f"noticed here{f', by {noticed.role}' if noticed.role else ''}"})
    return {"line": changed, "call": "", "related": (related, *_written(explained.lua))}


def _fault(step: Any) -> str:
    """What befalls a step, empty where nothing does."""
    fault = fault_of(step)
    return "" if fault is None else str(fault)


def _troubles(steps: Iterable[Any]) -> list[str]:
    """The kinds of trouble that befall a run, by name: one that goes wrong without any has another cause."""
    return sorted({fault.kind for fault in map(fault_of, steps) if fault is not None})


def _plainest_first(findings: list[Finding]) -> tuple[Finding, ...]:
    """What is certain before what is not; what needs no trouble first, and last what needs a value of another type
    under a key of the store; then what takes fewer steps."""

    def rank(finding: Finding) -> tuple[bool, int, int]:
        troubles = [step.fault for step in finding.steps if step.fault]
        is_foreign = any(trouble.startswith(WRONG_TYPE_FOUND.name) for trouble in troubles)
        return not finding.is_certain, bool(troubles) + is_foreign, len(finding.steps)

    return tuple(sorted(findings, key=rank))


def _keys(keyspace: FrozenKeyspace | None) -> dict[str, str] | None:
    from orderlab.properties.harness.keyspace import shown_keyspace

    return None if keyspace is None or len(keyspace) > KEYS_NOTED else shown_keyspace(keyspace)


def _file_of(path: Path) -> str:
    return str(path / "store.toml" if path.is_dir() else path)


def _name(lua: LuaLine) -> str:
    return lua.path.name if lua.path is not None else ""


def _line(lua: LuaLine) -> Line | None:
    if lua.path is None or lua.line is None:
        return None
    return Line(path=str(lua.path), line=lua.line, source=lua.source, role=lua.call)


def _written(lua: LuaLine) -> tuple[Line, ...]:
    """The line with which a script had written before it failed."""
    place, _, call = lua.written.partition(": ")
    path, _, number = place.rpartition(":")
    return (
        (Line(path=path, line=int(number), source=call, role="written before it failed"),) if number.isdigit() else ()
    )


def _work(work: Mapping[str, float]) -> Iterable[str]:
    return [", ".join(f"{number:,} {name}" for name, number in work.items())] if work else []


# -- histories, specifications, simulations
# ----------------------------------------------------------------------------------


def subject_of_history(name: str, rows: int, verdicts: Sequence[Verdict], outcome: Outcome, path: str = "") -> Subject:
    """The subject for one history, or one linearizability log."""
    return Subject(
        name=name, path=path, kind="history", outcome=outcome, laws=_judged(verdicts),
        findings=tuple(finding_of_events(verdict, name) for verdict in verdicts if verdict.outcome is Outcome.VIOLATED),
        facts={"rows": f"{rows:,}"}, not_covered=_gaps(verdicts),
    )  # fmt: skip


def subject_of_simulation(result: Mapping[str, Any], verdicts: Sequence[Verdict], outcome: Outcome) -> Subject:
    """The subject for one run of a system; what may differ between two runs of one seed is left out."""
    through = result["throughput_per_s"]
    facts = {
        "messages in, per s": f"{through['in']:,}",
        "messages out, per s": f"{through['out']:,}",
        "measured, s": f"{result['measured_s']:g}",
        "history": f"{result['history_rows']:,} rows, {result['history_digest']}",
    }
    for stage, latency in result["latency"].items():
        if latency["count"]:
            facts[f"latency {stage.replace('_', ' ')}, ms"] = (
                f"mean {latency['mean_ms']:g}, 50 % {latency['p50_ms']:g}, 99 % {latency['p99_ms']:g}, max "
                f"{latency['max_ms']:g}"
            )
    for kind, used in result["utilisation"].items():
        facts[f"utilisation {kind}"] = f"mean {sum(used) / len(used):.1%}, max {max(used):.1%} of {len(used)}"
    name = f"{result['system']}, seed {result['seed']}"
    return Subject(
        name=name, kind="simulation", outcome=outcome, laws=_judged(verdicts),
        findings=tuple(finding_of_events(verdict, name) for verdict in verdicts if verdict.outcome is Outcome.VIOLATED),
        facts=facts, not_covered=_gaps(verdicts),
    )  # fmt: skip


def _judged(verdicts: Iterable[Verdict]) -> tuple[JudgedLaw, ...]:
    return tuple(
        JudgedLaw(
            law=verdict.law,
            statement=LAWS[verdict.law].statement if verdict.law in LAWS else "",
            clauses=LAWS[verdict.law].clauses if verdict.law in LAWS else (),
            outcome=Outcome.UNKNOWN if verdict.vacuous else verdict.outcome,
            tested=int(verdict.work["antecedents"]) if "antecedents" in verdict.work else None,
            because=""
            if verdict.outcome is not Outcome.UNKNOWN and not verdict.vacuous
            else "; ".join(verdict.not_covered) or "vacuous",
            is_applicable=not verdict.vacuous,
        )
        for verdict in verdicts
    )


def _gaps(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    gaps = dict.fromkeys(f"{verdict.law}: {gap}" for verdict in verdicts for gap in verdict.not_covered)
    return tuple(gaps)


def finding_of_events(verdict: Verdict, name: str) -> Finding:
    """The finding for a law that a history breaks, its events as steps."""
    witness = to_plain(verdict.witness)
    events = witness.get("events") or witness.get("operations") or ()
    where = {
        key: witness[key]
        for key in ("publisher", "topic", "qos", "subscriber", "sequence", "key")
        if witness.get(key) is not None
    }
    place = ", ".join(f"{key} {value}" for key, value in where.items())
    return Finding(
        law=verdict.law,
        headline=f"{witness['why']}{f' ({place})' if place else ''}",
        cause=f"{verdict.law}\0{place}",
        fingerprint=fingerprint_of(name, verdict.law, str(witness["why"]), place),
        steps=tuple(_event(event) for event in events),
        where=tuple(whereabouts(witness.get("where") or {})),
        witness=witness,
    )


def _event(event: Mapping[str, Any]) -> Step:
    """An event of a history, or an operation of a log by the rows of its two events."""
    rest = {name: value for name, value in event.items() if value is not None}
    if "event_id" not in rest:
        rows = "-".join(str(row) for row in rest.pop("rows", ()))
        lane = f"process {rest.pop('process')}" if "process" in rest else "client"
        return Step(lane=lane, action=f"{_pairs(rest)}{f' (rows {rows})' if rows else ''}")
    number, at_us, kind = rest.pop("event_id"), rest.pop("time_us"), rest.pop("kind")
    lane = next((str(rest[name]) for name in ("subscriber", "publisher", "client", "node") if rest.get(name)), "system")
    return Step(lane=lane, action=f"{kind} {_pairs(rest)} (event {number} at {at_us / 1e6:.6f} s)")


def _pairs(fields: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in fields.items())


def subject_of_specification(exploration: Exploration, command: Sequence[str] = (), path: str = "") -> Subject:
    """The subject for an explored specification. ``command``: what shows it again; ``path``: its name, or file and
    name."""
    parameters = dict(exploration.parameters)
    rewritten = [f"with fewer identifiers: {line}" for line in parameters.pop("rewritten", [])]
    scope = ", ".join(f"{name}={value}" for name, value in parameters.items())
    findings = tuple(
        _of_behaviour(verdict, exploration, command)
        for verdict in exploration.verdicts
        if verdict.outcome is Outcome.VIOLATED
    )
    whole = (
        "complete"
        if exploration.complete
        else f"not complete: {exploration.stopped_by or 'ended at the first violation'}"
    )
    states, transitions = exploration.distinct_states, exploration.transitions
    size = f"{states:,} distinct states, {transitions:,} transitions, depth {exploration.depth}, {whole}"
    fired = "actions: " + ", ".join(f"{name} {times:,}" for name, times in exploration.actions.items())
    return Subject(
        name=f"{exploration.specification}({scope})",
        path=path.rpartition(":")[0],
        kind="specification",
        outcome=exploration.outcome,
        laws=tuple(
            JudgedLaw(
                law=verdict.law,
                statement=_statement(verdict),
                outcome=verdict.outcome,
                tested=int(verdict.work["antecedents"]) if "antecedents" in verdict.work else None,
                because="; ".join(verdict.not_covered) if verdict.outcome is Outcome.UNKNOWN else verdict.how,
            )
            for verdict in exploration.verdicts
        ),
        findings=findings,
        notes=exploration.notes,
        scope=(size, fired, *rewritten),
        not_covered=_gaps(exploration.verdicts),
    )


def _statement(verdict: Verdict) -> str:
    return " ".join(str(getattr(verdict.witness, "statement", "")).split())


def _of_behaviour(verdict: Verdict, exploration: Exploration, command: Sequence[str]) -> Finding:
    from orderlab.model.explorer.witness import Behaviour

    witness = verdict.witness
    if not isinstance(witness, Behaviour):
        said = "; ".join(f"{name.replace('_', ' ')}: {value}" for name, value in to_plain(witness).items() if value)
        return Finding(
            law=verdict.law, headline=said, cause=verdict.law, steps=(),
            fingerprint=fingerprint_of(exploration.specification, verdict.law), witness=to_plain(witness),
        )  # fmt: skip
    return Finding(
        law=verdict.law,
        headline=witness.why or f"{verdict.law} is broken after {len(witness.steps)} steps",
        cause=verdict.law,
        fingerprint=fingerprint_of(exploration.specification, verdict.law),
        steps=tuple(_transitions(witness)),
        initial={name: str(value) for name, value in witness.initial.items()},
        replay=shlex.join(command),
        witness=witness.to_json(),
    )


def _transitions(witness: Behaviour) -> Iterable[Step]:
    state = {name: str(value) for name, value in witness.initial.items()}
    for number, step in enumerate(witness.steps):
        changed = {str(place): str(after) for place, _, after in step.changes}
        state = {**state, **changed}
        given = ", ".join(f"{name}={value}" for name, value in step.arguments.items())
        again = "from here on again and again: " if number == witness.loop_start else ""
        after = ", ".join(f"{place} = {value}" for place, value in changed.items())
        yield Step(
            lane=step.actor,
            action=f"{step.actor}: {again}{step.action}{f'({given})' if given else ''}",
            state=f"then {after}" if after else "",
        )
