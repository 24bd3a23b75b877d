"""`orderlab replay` of a race: its schedule again on the kernel step by step, or forced on a real server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orderlab.commands.options import server_of
from orderlab.exit_codes import ExitCode
from orderlab.model.errors import InputError
from orderlab.sim.redis.versions import DEFAULT

if TYPE_CHECKING:
    from orderlab.properties.clients.race import RaceVerdict
    from orderlab.properties.clients.scenario import Scenario


class OnClients(NamedTuple):
    """A schedule of a scenario."""

    file: str
    scenario: str
    schedule: str
    server: str | None = None
    did: tuple[str, ...] = ()
    """What each step did when it was recorded."""

    def strayed(self, now: Sequence[str]) -> str:
        """Where steps that are made again do otherwise; empty: nowhere."""
        for number, (then, here) in enumerate(zip(self.did, now, strict=False), 1):
            if then != here:
                return f"step {number}: {here}, not {then.partition(': ')[2] or then}"
        if len(now) < len(self.did):
            return f"it ends before step {len(now) + 1}: {self.did[len(now)]}"
        return ""


def race_in(data: Mapping[str, Any], place: str) -> OnClients:
    """The schedule that ``witness`` of a report or a verdict of ``race --json`` holds. Raises InputError."""
    try:
        schedule = data["schedule"]
        text = schedule if isinstance(schedule, str) else ",".join("!".join(filter(None, each)) for each in schedule)
        does = tuple(data.get("told") or map(_told, data.get("steps", ())))
        gathered = OnClients(
            str(data["file"]), str(data["scenario"]), text, data.get("server"), tuple(filter(None, does))
        )
    except (KeyError, TypeError) as error:
        raise InputError(f"{place}: no schedule of a race ({type(error).__name__}: {error}); write it again") from None
    if data.get("outcome", "violated") != "violated":
        raise InputError(f"{place}: {gathered.scenario} was not violated, and has no schedule")
    return gathered


def _told(step: Mapping[str, Any]) -> str:
    """What a step of ``race --json`` did; empty: nothing that is told."""
    trouble, does = step["trouble"], step["does"]
    is_told = trouble != "late" and does != "start"
    return f"client {step['client']}{f' [{trouble}]' if trouble else ''}: {does}" if is_told else ""


def race_again(recorded: OnClients) -> tuple[Scenario, RaceVerdict]:
    """Make the schedule again on the kernel. Raises InputError."""
    from orderlab.properties.clients.race import replayed
    from orderlab.properties.clients.runs import controlled
    from orderlab.properties.clients.scenario import load

    with controlled():
        scenario = load(f"{recorded.file}:{recorded.scenario}")[0]
        scenario = replace(scenario, server=server_of(recorded.server, scenario.server))
    return scenario, replayed(scenario, recorded.schedule)


def write_race(
    scenario: Scenario, verdict: RaceVerdict, file: Path, wanted: Sequence[tuple[str, Path]], expect: str
) -> None:
    """Write the exports of a violated schedule."""
    from orderlab.properties.clients.race_file import pytest_of_race, transcript_of_race
    from orderlab.properties.export.export import TELLING, write_transcript
    from orderlab.report.output import write_files

    transcript = transcript_of_race(verdict)
    texts = [
        (target, write_transcript(form, transcript) if form in TELLING
         else pytest_of_race(scenario, verdict, file, target, expect))
        for form, target in wanted
    ]  # fmt: skip
    write_files(texts)


def on_server(scenario: Scenario, verdict: RaceVerdict, backend: str, as_json: bool) -> ExitCode:
    """Force the schedule on a server that holds nothing, and tell what comes of it."""
    import redis

    from orderlab.properties.clients.gate_operations import operations_of
    from orderlab.properties.clients.race_file import gated_steps
    from orderlab.properties.clients.schedule_outcome import judged
    from orderlab.sim.redis.backends import ServerBackend

    steps = gated_steps(scenario, verdict)
    with ServerBackend.start() if backend == "auto" else ServerBackend.from_url(backend) as opened:
        username, password = opened.credentials
        server = redis.Redis.from_url(opened.place, username=username, password=password)
        meant = scenario.server or DEFAULT
        if meant is not DEFAULT and not opened.describe().startswith(meant.family):
            raise InputError(f"--backend {backend}: it is {opened.describe()}, and the schedule is for {meant}")
        if server.info("keyspace"):
            raise InputError(f"--backend {backend}: the server is emptied, and holds keys; name one that holds nothing")
        seen = judged(server, scenario, steps, operations_of(scenario.contract))
        server.close()
        place = opened.describe()
    if as_json:
        rows = [step._asdict() for step in steps]
        print(json.dumps({"backend": place, "scenario": scenario.name, **seen._asdict(), "steps": rows}))
    else:
        for number, step in enumerate(steps, 1):
            fault = f" [{step.fault}]" if step.fault else ""
            waits = f" after {step.gap_ms:,} ms" if step.gap_ms else ""
            print(f"{step.number or number}. client {step.lane}{fault}: {step.name or step.kind}{waits}")
        if seen.strayed:
            print(f"it went otherwise: {seen.strayed}")
        what = f"violated ({seen.law}): {seen.what}" if seen.law else "no law is broken"
        print(f"on {place}: " + (f"undecided: {seen.undecided}" if seen.undecided else what))
    if seen.law:
        return ExitCode.VIOLATED
    return ExitCode.UNKNOWN if seen.strayed or seen.undecided else ExitCode.HOLDS
