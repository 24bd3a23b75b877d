"""A race of client code as the subject of a report: its laws, and the schedule as the steps of a finding."""

from __future__ import annotations

import linecache
import shlex

from orderlab.model.verdict import Outcome
from orderlab.properties.clients.lane import LaneStep
from orderlab.properties.clients.process_orders import STATEMENTS, ProcessVerdict, laws_of
from orderlab.properties.clients.processes import Programs
from orderlab.properties.clients.race import RaceVerdict, schedule_of, statement_of, told_reply, told_step
from orderlab.properties.harness.keyspace import shown_keyspace
from orderlab.report.report import Finding, JudgedLaw, Line, Step, Subject, fingerprint_of

KEYS_NOTED = 20


def subject_of_race(verdict: RaceVerdict, path: str) -> Subject:
    """One scenario. ``path``: its file."""
    laws = dict.fromkeys((*verdict.laws, *([verdict.law] if verdict.law else [])))
    others = verdict.outcome if verdict.outcome is not Outcome.VIOLATED else Outcome.UNKNOWN
    return Subject(
        name=verdict.scenario,
        path=path,
        kind="scenario",
        outcome=verdict.outcome,
        laws=tuple(
            JudgedLaw(
                law=law,
                statement=statement_of(law, verdict.statements),
                outcome=Outcome.VIOLATED if law == verdict.law else others,
                because="" if law == verdict.law or others is not Outcome.UNKNOWN else _why(verdict),
            )
            for law in laws
        ),
        findings=(_finding(verdict, path),) if verdict.law else (),
        scope=(verdict.how_far,),
    )


def subject_of_processes(verdict: ProcessVerdict, programs: Programs) -> Subject:
    """Processes of other languages."""
    others = verdict.outcome if verdict.outcome is not Outcome.VIOLATED else Outcome.UNKNOWN
    because = "the search ended at the first violation" if verdict.law else "not every order was visited"
    name = " | ".join(dict.fromkeys(programs.clients))
    return Subject(
        name=name,
        kind="processes",
        outcome=verdict.outcome,
        laws=tuple(
            JudgedLaw(
                law=law,
                statement=STATEMENTS[law],
                outcome=Outcome.VIOLATED if law == verdict.law else others,
                because="" if law == verdict.law or others is not Outcome.UNKNOWN else because,
            )
            for law in laws_of(programs)
        ),
        findings=(_finding_of_processes(verdict, programs, name),) if verdict.law else (),
        scope=(verdict.how_far,),
    )


def _finding_of_processes(verdict: ProcessVerdict, programs: Programs, name: str) -> Finding:
    actions = {step.partition(": ")[2] for step in verdict.steps}
    faults = [word.partition("!")[2] for word in verdict.schedule.split(",")]
    none: dict[str, str] = {}
    return Finding(
        law=verdict.law,
        headline=verdict.what,
        cause=f"{name}\0{verdict.law}",
        fingerprint=fingerprint_of(name, verdict.law, *sorted(actions)),
        steps=tuple(
            Step(lane=step.partition(":")[0].partition(" [")[0], action=step, fault=fault, keys=keys)
            for step, fault, keys in zip(verdict.steps, faults, verdict.keys, strict=True)
        ),
        before=verdict.keys[-2] if len(verdict.keys) > 1 else none,
        after=verdict.keys[-1] if verdict.keys else none,
        found_by="every order of the processes' commands",
        replay=command_of(programs, verdict.schedule),
        witness={"commands": list(programs.clients), "schedule": verdict.schedule, "server": programs.server.name},
    )


def command_of(programs: Programs, schedule: str) -> str:
    """The call that makes a schedule of processes again."""
    words = ["orderlab", "race"]
    for command in programs.clients:
        words += ["--command", command]
    if len(programs.clients) == 1:
        words += ["--clients", "1"]
    for option, value in (("--setup", programs.setup), ("--check", programs.check), ("--schedule", schedule)):
        words += [option, value] if value else []
    return shlex.join([*words, *(["--server", programs.server.name] if programs.server.assumed() else [])])


def _why(verdict: RaceVerdict) -> str:
    return "the search ended at the first violation" if verdict.law else verdict.what or "not every order was visited"


def _finding(verdict: RaceVerdict, path: str) -> Finding:
    steps = [step for step in verdict.steps if step.kind != "start"]
    lines = [line for step in steps for line in (_line(step.line), _line(step.beneath, "library beneath")) if line]
    last = next((step for step in reversed(steps) if step.kind == "command"), None)
    own = [line for line in lines if not line.role]
    return Finding(
        law=verdict.law,
        headline=verdict.what,
        cause=f"{verdict.scenario}\0{verdict.law}",
        fingerprint=fingerprint_of(verdict.scenario, verdict.law, *dict.fromkeys(line.source for line in own)),
        steps=tuple(_step(step) for step in steps),
        before=shown_keyspace(last.before) if last is not None else {},
        after=shown_keyspace(last.after) if last is not None else {},
        line=own[-1] if own else Line(path=path, line=1),
        related=tuple(dict.fromkeys(own[:-1])),
        found_by="every order of the clients' commands",
        replay=f"orderlab race {path}:{verdict.scenario} --schedule {schedule_of(verdict) or repr('')}"
        + "".join(f" --server {verdict.server.name}" for _ in verdict.server.assumed()),
        witness={
            "file": path,
            "scenario": verdict.scenario,
            "schedule": schedule_of(verdict),
            "server": verdict.server.name,
        },
    )


def _line(place: str, role: str = "") -> Line | None:
    file, _, number = place.rpartition(":")
    if not file or not number.isdigit():
        return None
    return Line(path=file, line=int(number), source=linecache.getline(file, int(number)).strip(), role=role)


def _step(step: LaneStep) -> Step:
    return Step(
        lane=f"client {step.lane}",
        action=f"client {step.lane}{f' [{step.trouble}]' if step.trouble else ''}: {told_step(step)}",
        answer=told_reply(step),
        fault=step.trouble,
        keys=shown_keyspace(step.after) if len(step.after) <= KEYS_NOTED else None,
    )
