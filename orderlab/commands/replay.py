"""`orderlab replay`: take the steps of a recorded trace again, on any backend, judge each, and export them for
others."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from orderlab.commands.options import Expect
from orderlab.commands.replay_race import OnClients, race_in
from orderlab.commands.replay_scripts import OnScripts, scripts_again, scripts_in
from orderlab.exit_codes import ExitCode, tell
from orderlab.model.errors import InputError
from orderlab.report.forms import EXPORT_HELP, EXPORTS, RUNNING_EXPORTS

if TYPE_CHECKING:
    from orderlab.model.contracts.base import AnyTrace
    from orderlab.properties.contracts.kind import Kind
    from orderlab.properties.export.on_server import Plan
    from orderlab.properties.export.transcript import Move, Transcript
    from orderlab.report.report import Finding
    from orderlab.sim.stores.binding.binding import Binding


UNCHANGED_SHOWN = 6
"""Keys, or places of a state, that a step leaves as they are and that are shown all the same."""
UNREPLAYED = {"one-slot": "the keys that each call names", "bounded": "the work of each call"}
"""Laws that validation judges without a run, and what they speak of."""


def replay(
    file: Annotated[
        Path, typer.Argument(help="A trace, a JSON report, or what validate --json or explore --json printed.")
    ],
    store: Annotated[Path | None, typer.Option(help="The store to replay on; by default the one in the trace.")] = None,
    law: Annotated[str | None, typer.Option(help="Which witness of a validation; by default the first.")] = None,
    finding: Annotated[int | None, typer.Option(min=1, help="Which finding of a report, by its number.")] = None,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="REV|PATH", help="The old scripts, where a trace needs them; by default those of the report."
        ),
    ] = None,
    backend: Annotated[str, typer.Option(help="kernel, fakeredis, auto or redis://HOST:PORT.")] = "kernel",
    step: Annotated[
        bool, typer.Option("--step", help="Step by step, with what each changed; at a terminal it waits for you.")
    ] = False,
    first: Annotated[
        int | None, typer.Option("--from", min=1, metavar="N", help="With --step: begin to tell at this step.")
    ] = None,
    export: Annotated[list[str] | None, typer.Option(metavar="FORM=FILE", help=EXPORT_HELP)] = None,
    expect: Expect = "broken",
    trust_adapter: Annotated[
        bool, typer.Option(help="Run the Python that the store names: its adapter, its contract.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Take the steps of a trace again and judge each.

    Exit code 0: no law is broken; 1: one is; 2: unusable input.
    """
    from orderlab.report.output import wanted_files

    wanted = wanted_files("--export", export, EXPORTS)
    if first is not None and not step:
        raise InputError(f"--from {first}: the steps are told from there with --step; add it")
    if step and as_json and first is not None:
        raise InputError("--from with --json: JSON has every step; leave one of them out")
    exports = _expecting(expect, wanted)
    recording = read_recording(file, law, finding)
    if isinstance(recording, OnClients):
        if store is not None or base is not None:
            raise InputError(f"{file}: a race of clients has no store; leave out --base and --store")
        raise typer.Exit(_replay_race(recording, file, backend, trust_adapter, wanted, expect, step, first, as_json))
    if isinstance(recording, Told):
        if backend != "kernel" or store is not None or base is not None:
            raise InputError(
                f"{file}: {recording.what}; there is no store to take its steps on: leave out --backend, --base "
                "and --store"
            )
        is_broken = _replay_told(recording, file, wanted, step, first, as_json)
    elif isinstance(recording, OnScripts):
        if base is not None:
            raise InputError(f"--base {base}: {file} is of scripts without a binding; name the old ones with --store")
        _reach(first, len(recording.steps))
        moves, place = scripts_again(recording, file, store, wanted, backend)
        is_broken = _tell(iter(moves), len(moves) - 1, place, None, step, first, as_json, str(store or recording.path))
    else:
        _reach(first, len(recording.trace.steps))
        is_broken = _replay_store(recording, file, store, base, backend, trust_adapter, exports, step, first, as_json)
    raise typer.Exit(ExitCode.VIOLATED if is_broken else ExitCode.HOLDS)


def _replay_told(
    recording: Told, file: Path, wanted: Sequence[tuple[str, Path]], step: bool, first: int | None, as_json: bool
) -> bool:
    for form, _ in wanted:
        if form in RUNNING_EXPORTS:
            raise InputError(
                f"--export {form}: {file} is {recording.what}, which makes no calls; export svg, mermaid or states"
            )
    from orderlab.properties.export.export import write_transcript
    from orderlab.report.output import write_files

    told = recording.transcript
    _reach(first, len(told.moves))
    write_files([(target, write_transcript(form, told)) for form, target in wanted])
    return _tell(iter([told.start, *told.moves]), len(told.moves), recording.what, None, step, first, as_json, "")


def _replay_race(
    recorded: OnClients,
    file: Path,
    backend: str,
    trust_adapter: bool,
    wanted: Sequence[tuple[str, Path]],
    expect: str,
    step: bool,
    first: int | None,
    as_json: bool,
) -> ExitCode:
    from orderlab.commands.replay_race import on_server, race_again, write_race
    from orderlab.properties.clients.race_file import told_steps, transcript_of_race

    if backend != "kernel" and (step or first is not None):
        raise InputError(f"--step, --from: not with --backend {backend}; leave them out, or replay on the kernel")
    if not trust_adapter:
        raise InputError(f"{file}: its steps are those of {recorded.file}, which is Python; add --trust-adapter")
    scenario, verdict = race_again(recorded)
    if wanted:
        write_race(scenario, verdict, Path(recorded.file), wanted, expect)
    if backend != "kernel":
        return on_server(scenario, verdict, backend, as_json)
    race = transcript_of_race(verdict)
    _reach(first, len(race.moves))
    is_broken = _tell(iter([race.start, *race.moves]), len(race.moves), "kernel", None, step, first, as_json, "")
    strayed = recorded.strayed(told_steps(verdict))
    if strayed:
        tell("orderlab replay", f"it went otherwise than recorded, as the code has changed: {strayed}")
    return ExitCode.VIOLATED if is_broken else ExitCode.UNKNOWN if strayed else ExitCode.HOLDS


def _expecting(expect: str, wanted: Sequence[tuple[str, Path]]) -> Sequence[tuple[str, Path]]:
    """The exports, the pytest file as a regression test where it is to fail until the scripts are repaired."""
    if expect == "broken":
        return wanted
    if not any(form == "pytest" for form, _ in wanted):
        raise InputError("--expect fixed: it speaks of the exported test; add --export pytest=FILE")
    return [("regression" if form == "pytest" else form, target) for form, target in wanted]


def _reach(first: int | None, count: int) -> None:
    if first is not None and first > count:
        raise InputError(f"--from {first}: the trace has {count} steps; name one of them")


def _replay_store(
    recorded: OnStore,
    file: Path,
    store: Path | None,
    base: str | None,
    backend: str,
    trust_adapter: bool,
    wanted: Any,
    step: bool,
    first: int | None,
    as_json: bool,
) -> bool:
    """Whether a law was broken. The exports that were asked for always tell what the kernel does."""
    from orderlab.properties.comparison.base_revision import old_store

    path = store or Path(recorded.trace.store)
    if base is None and not (recorded.by_old_scripts or recorded.needs_old_scripts):
        return _replay_on(_load(path, trust_adapter), recorded.trace, file, backend, wanted, step, first, as_json)
    named = base or recorded.base
    if not named:
        raise InputError(f"{file}: the old scripts serve some of its steps; name them with --base REV|PATH")
    with old_store(path, named, trust_adapter) as old:
        if not recorded.needs_old_scripts:
            return _replay_on(old, recorded.trace, file, backend, wanted, step, first, as_json)
        mixed = replace(_load(path, trust_adapter), base=old)
        return _replay_on(mixed, recorded.trace, file, backend, wanted, step, first, as_json)


def _load(path: Path, trust_adapter: bool) -> Binding:
    """The store to replay on."""
    from orderlab.sim.stores.binding.loader import load_binding

    return load_binding(path, trust_adapter=trust_adapter)


def _replay_on(
    binding: Binding,
    trace: AnyTrace,
    file: Path,
    backend: str,
    wanted: Any,
    step: bool,
    first: int | None,
    as_json: bool,
) -> bool:
    from orderlab.properties.contracts.kind import kind_of
    from orderlab.properties.export.transcript import recorded
    from orderlab.report.output import write_files
    from orderlab.sim.redis.backends import open_backend

    kind = kind_of(binding)
    if not kind.reads(trace.to_json()):
        raise InputError(f"{file}: a trace of another kind of store than {binding.place}; name another with --store")
    write_files(_exports(kind, trace, binding, wanted))  # before telling: whoever reads may go away meanwhile
    with open_backend(backend) as opened:
        place = opened.describe()
        moves = recorded(kind, trace, binding, opened)
        is_broken = _tell(moves, len(trace.steps), place, trace.seed, step, first, as_json, str(binding.path))
    if not is_broken and not as_json and trace.law in UNREPLAYED:
        print(
            f"{trace.law} is not judged by taking steps: it speaks of {UNREPLAYED[trace.law]}; orderlab validate "
            "judges it"
        )
    return is_broken


def _exports(kind: Kind, trace: AnyTrace, binding: Binding, wanted: Any) -> list[tuple[Path, str]]:
    if not wanted:
        return []
    from orderlab.properties.export.export import write_plan
    from orderlab.properties.export.on_server import plan_of

    plan: Plan = plan_of(kind, trace, binding)
    return [(target, write_plan(form, plan)) for form, target in wanted]


# -- telling
# ---------------------------------------------------------------------------------------------------------------


def _tell(
    moves: Iterator[Move],
    count: int,
    place: str,
    seed: int | None,
    step: bool,
    first: int | None,
    as_json: bool,
    store: str,
) -> bool:
    """Print the steps as they are taken; whether one broke a law."""
    start = next(moves)
    if step and not as_json and sys.stdin.isatty() and sys.stdout.isatty():
        taken = _walk(start, moves, count, first or 1)
    else:
        taken = []
        for number, move in enumerate(moves, 1):
            if not as_json and number >= (first or 1):
                lines = told_step(number, move, [start, *taken][-1]) if step else told_briefly(number, move)
                print("\n".join(lines))
            taken.append(move)
    is_broken = any(move.broken for move in taken)
    if as_json:
        steps = [
            {"step": move.action, "result": move.answer, "broken": [list(one) for one in move.broken]}
            | ({"keys": dict(move.state)} if step else {})
            for move in taken
        ]
        print(json.dumps({"backend": place, "store": store, "seed": seed, "steps": steps}))
    else:
        seeded = "" if seed is None else f"; seed: {seed}"
        short = "" if len(taken) == count else f" in the first {len(taken)} of {count} steps"
        print(f"on {place}: {'violated' if is_broken else 'no law is broken'}{short}{seeded}")
    return is_broken


def told_briefly(number: int, move: Move) -> Iterator[str]:
    """One step: what it was, what came of it, which laws it broke."""
    from orderlab.report.words import harmless

    yield f"{number}. {harmless(move.action)}"
    if move.answer:
        yield f"   {harmless(move.answer)}"
    for name, text in move.broken:
        yield f"   {name} is violated: {harmless(text)}"


def told_step(number: int, move: Move, before: Move) -> Iterator[str]:
    """One step with what there is after it, and how that differs from before."""
    from orderlab.properties.export.transcript import changes_between
    from orderlab.report.words import harmless

    yield from told_briefly(number, move)
    found = changes_between(before.state, move.state)
    still = [one for one in found if not one.sign]
    left_out = still[UNCHANGED_SHOWN:] if len(still) > UNCHANGED_SHOWN + 1 else []
    for one in found:
        if one in left_out:
            continue
        if one.sign == "~":
            yield f"   ~ {harmless(one.name)} = {harmless(one.value)}"
            yield f"     it was {harmless(one.was)}"
        else:
            yield f"   {one.sign or ' '} {harmless(one.name)} = {harmless(one.value)}"
    if left_out:
        yield f"     and {len(left_out):,} more that did not change"
    if found and len(still) == len(found):
        yield "     nothing changed"
    elif not found and move.call_count:
        yield "     the store holds nothing, as before"


def _walk(start: Move, moves: Iterator[Move], count: int, first: int, ask: Callable[[str], str] = input) -> list[Move]:
    """Step by step at a terminal: Enter takes the next, a number goes to any step, forwards or back, ``q`` ends."""
    known = [start]

    def take(number: int) -> bool:
        while len(known) <= number:
            move = next(moves, None)
            if move is None:
                return False
            known.append(move)
        return True

    at = first
    while True:
        if not take(at):
            print(f"   the steps end after {len(known) - 1}: nothing can be judged any more")
            at = len(known) - 1
        else:
            print("\n".join(told_step(at, known[at], known[at - 1])))
        at = _asked(at, count, ask)
        if not at:
            break
    return known[1:]


def _asked(at: int, count: int, ask: Callable[[str], str]) -> int:
    """Which step comes next; 0 for none."""
    while True:
        try:
            said = ask(f"step {at} of {count} [Enter: next, number: go to it, q: end] ").strip().lower()
        except (EOFError, KeyboardInterrupt):
            print()
            return 0
        if said in ("q", "quit") or (not said and at >= count):
            return 0
        if not said:
            return at + 1
        if said.isdecimal() and 1 <= int(said) <= count:
            return int(said)
        print(f"   give a number from 1 to {count}, q, or nothing")


# -- reading
# ---------------------------------------------------------------------------------------------------------------


class OnStore(NamedTuple):
    """A trace, and which scripts its steps are taken with."""

    trace: AnyTrace
    base: str = ""
    """What the report calls the old scripts."""
    by_old_scripts: bool = False
    """Of something fixed: the old scripts show it, the new ones do not."""

    @property
    def needs_old_scripts(self) -> bool:
        """Whether some steps are served by the old and some by the new ones."""
        return any(getattr(one, "served_by", "") or hasattr(one, "scripts") for one in self.trace.steps)


class Told(NamedTuple):
    """What has steps and no store: the behaviour of a specification, the events of a history."""

    what: str
    transcript: Transcript


def read_recording(file: Path, law: str | None, finding: int | None = None) -> OnStore | OnClients | OnScripts | Told:
    """The trace in ``file``, or what else has steps. Raises InputError when there is none."""
    from orderlab.model.files import read_json
    from orderlab.properties.contracts.kind import trace_from_json

    data: Any = read_json(file, "give what validate --json printed")
    if isinstance(data, dict) and isinstance(data.get("runs"), list):
        raise InputError(f"{file}: a SARIF log, which has no steps; replay what --report json=FILE wrote")
    if isinstance(data, dict) and "subjects" in data:
        return _of_report(data, file, law, finding)
    if isinstance(data, dict) and data.get("kind") == "scripts" and isinstance(data.get("findings"), list):
        return scripts_in(data["findings"], str(file), law, finding)
    if finding is not None:
        raise InputError(f"{file}: no report, and --finding is of one; give what --report json=FILE wrote")
    if isinstance(data, dict) and "initial" in data and "loop_start" in data:
        return _behaviour(data, str(data.get("law", law or "a law")), "", str(file))
    if isinstance(data, dict) and isinstance(data.get("verdicts"), list):
        races = [one for one in data["verdicts"] if isinstance(one, dict) and "schedule" in one]
        if races:
            broken = [one for one in races if one["schedule"] and law in (None, one.get("law"))] or races
            return race_in({"file": data.get("file")} | broken[0], str(file))
        return _of_verdicts(data, file, law)
    if isinstance(data, dict) and "laws" in data:
        try:
            asked = [one for one in data["laws"] if law in (None, one["law"])]
            found = [w for one in asked for w in (one.get("witnesses") or [one.get("witness")]) if w]
            if not found:
                raise InputError(f"{file}: no witness{f' of {law}' if law else ''} in it; every such law held")
            data = found[0]["trace"]
        except (KeyError, TypeError, AttributeError):
            raise InputError(f"{file}: not a validation; give what validate --json printed") from None
    return OnStore(trace_from_json(data, str(file)))


def _of_verdicts(data: Mapping[str, Any], file: Path, law: str | None) -> Told:
    """What explore, check or simulate printed as JSON: the first witness, or that of ``law``."""
    from orderlab.model.verdict import Outcome, Verdict
    from orderlab.report.subjects import finding_of_events

    name = str(data.get("specification") or data.get("file") or data.get("system") or file)
    try:
        judged = [*data.get("shrunk", ()), *data["verdicts"]]  # of a simulation, the smaller run first
        found = [(one["law"], one["witness"]) for one in judged if law in (None, one["law"]) and one.get("witness")]
        found = [(broken, witness) for broken, witness in found if witness.keys() & {"initial", "events", "operations"}]
        if not found:
            raise InputError(
                f"{file}: no witness{f' of {law}' if law else ''} with steps in it; name another law with --law"
            )
        broken, witness = found[0]
        if "initial" in witness:
            return _behaviour(witness, broken, name, str(file))
        return _events(finding_of_events(Verdict(broken, Outcome.VIOLATED, witness), name), "history")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{file}: no verdicts ({type(error).__name__}: {error}); give what explore --json or check --json printed"
        ) from None


def _events(finding: Finding, kind: str) -> Told:
    from orderlab.properties.export.transcript import transcript_of_events

    return Told(
        f"events of a {kind}",
        transcript_of_events(finding.law, finding.headline, [(s.lane, s.action) for s in finding.steps]),
    )


def _behaviour(data: Mapping[str, Any], law: str, name: str, place: str) -> Told:
    """A behaviour of a specification."""
    from orderlab.properties.export.transcript import transcript_of_behaviour

    try:
        return Told("a behaviour of a specification", transcript_of_behaviour(law, name or "specification", data))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{place}: no behaviour ({type(error).__name__}: {error}); give what explore --json or --report "
            "json=FILE wrote"
        ) from None


def _of_report(data: Any, file: Path, law: str | None, finding: int | None) -> OnStore | OnClients | OnScripts | Told:
    """One finding of a report, by its number, else the first one of ``law``."""
    from pydantic import ValidationError

    from orderlab.properties.contracts.kind import trace_from_json
    from orderlab.report.report import Change, Report

    try:
        report = Report.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{file}: not a report of this version ({error.errors()[0]['msg']}); write it again") from None
    findings = [(subject, one) for subject in report.subjects for one in subject.findings]
    if finding is not None and finding > len(findings):
        raise InputError(f"{file}: --finding {finding}: it has {len(findings)}; name one of them")
    asked = (
        findings[finding - 1 : finding]
        if finding is not None
        else [one for one in findings if law in (None, one[1].law)]
    )
    if not asked:
        raise InputError(f"{file}: no finding{f' of {law}' if law else ''} in it; every such law held")
    subject, one = asked[0]
    if one.witness is not None and subject.kind in ("store", "change"):
        return OnStore(trace_from_json(one.witness, str(file)), subject.base, one.change is Change.FIXED)
    if one.witness is not None and subject.kind == "scripts":
        return scripts_in([one.model_dump()], str(file), None)
    if one.witness is not None and subject.kind == "scenario":
        return race_in(one.witness | {"told": [each.action for each in one.steps if each.fault != "late"]}, str(file))
    if one.witness is not None and "initial" in one.witness:
        return _behaviour(one.witness, one.law, subject.name, str(file))
    if not one.steps:
        raise InputError(
            f"{file}: {one.law} has no steps in this report: {one.headline[:120]}; choose another with --finding "
            "or --law"
        )
    return _events(one, subject.kind)
