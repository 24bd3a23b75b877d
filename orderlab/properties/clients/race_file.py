"""A race's schedule to be made again: the steps that a gate forces on a server, and a test that stands alone."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Final

from orderlab.model.errors import InputError
from orderlab.properties.clients import (
    draws,
    executors,
    gate,
    gate_marks,
    gate_tasks,
    gate_wire,
    schedule_outcome,
    stillness,
    whole_order,
)
from orderlab.properties.clients.event_loop import EVENT_LOOP
from orderlab.properties.clients.gate import ScheduledStep
from orderlab.properties.clients.race import RaceVerdict, shown_steps, told_reply, told_step
from orderlab.properties.clients.scenario import Scenario
from orderlab.properties.clients.troubles import LATE, PAUSES
from orderlab.properties.export.transcript import Move, Transcript, shown_keys
from orderlab.sim.redis.backends.backend import FIRST_MS
from orderlab.sim.redis.blocking import Waiting

LONGEST_MS: Final = 60_000
"""Virtual time of a schedule up to which a server replay waits."""
EXPORTED: Final = (draws, executors, gate_wire, gate, gate_marks, gate_tasks, stillness, whole_order, schedule_outcome)
"""What an exported test is the text of: the standard library, redis-py and each other are all that they need."""
ON_SERVER: Final = ("reply-lost", "refused", "timeout", "killed", *PAUSES, LATE, "scripts-flushed")
"""Faults that a gate can bring about between a client and a server that is well."""


def gated_steps(scenario: Scenario, verdict: RaceVerdict) -> list[ScheduledStep]:
    """The steps of a verdict's schedule as a gate forces them. Raises InputError where that cannot be on a server."""
    who = f"{scenario.name}: its schedule cannot be forced on a server"
    if scenario.cluster:
        raise InputError(f"{who}: it is on a cluster; make it again on the kernel (--backend kernel)")
    steps: list[ScheduledStep] = []
    last_ms, dead = FIRST_MS, set[str]()
    numbers = {id(step): number for number, step in enumerate(shown_steps(verdict), 1)}
    for step in verdict.steps:
        client = step.lane.partition(".")[0]
        if step.trouble and step.trouble not in ON_SERVER:
            raise InputError(
                f"{who}: no gate makes a server show {step.trouble}; make it again on the kernel (--backend kernel)"
            )
        is_still = step.trouble in (*PAUSES, LATE) or step.what in ("paused", LATE, EVENT_LOOP)
        if client in dead or step.kind in ("start", "wait") or is_still:
            continue
        name = ""
        if step.kind == "command":
            words = step.what[0] if isinstance(step.what[0], tuple) else step.what
            name = words[0].decode(errors="replace").upper()
        waits = step.kind == "command" and isinstance(step.reply, Waiting)
        gap_ms = step.now_ms - last_ms
        steps.append(ScheduledStep(step.lane, step.kind, name, step.trouble, waits, gap_ms, numbers.get(id(step), 0)))
        last_ms = step.now_ms
        if step.trouble == "killed":
            dead.add(client)
    if last_ms - FIRST_MS > LONGEST_MS:
        raise InputError(f"{who}: it takes {(last_ms - FIRST_MS) / 1000:,.0f} s; give leases and sleeps of seconds")
    return steps


def told_steps(verdict: RaceVerdict) -> list[str]:
    """What each step of the schedule does, as reports have it."""
    return [
        f"client {step.lane}{f' [{step.trouble}]' if step.trouble else ''}: {told_step(step)}"
        for step in shown_steps(verdict)
    ]


def transcript_of_race(verdict: RaceVerdict) -> Transcript:
    """The schedule step by step, with the keys after each."""
    steps = shown_steps(verdict)
    moves = [
        Move(
            f"client {step.lane}",
            f"client {step.lane}: {told_step(step)}" + (f"   {Path(step.line).name}" if step.line else ""),
            told_reply(step),
            step.trouble,
            ((verdict.law, verdict.what),) if verdict.law and step is steps[-1] else (),
            shown_keys(step.after, FIRST_MS),
        )
        for step in steps
    ]
    start = Move("", "before the first step", state=shown_keys(steps[0].before, FIRST_MS) if steps else {})
    title = f"{verdict.scenario}: {verdict.law} is violated: {verdict.what}" if verdict.law else verdict.scenario
    return Transcript(title, verdict.law, start, tuple(moves))


def pytest_of_race(scenario: Scenario, verdict: RaceVerdict, file: Path, target: Path, expect: str) -> str:
    """The text of a test that forces the schedule on a real server.

    ``expect``: ``broken``, it passes while the law is broken; ``fixed``, it fails while it is.
    """
    if scenario.contract is not None:
        raise InputError(
            f"{scenario.name}: --export pytest: a contract is judged by orderlab; use replay --backend auto"
        )
    steps = gated_steps(scenario, verdict)
    place = os.path.relpath(file.resolve(), target.resolve().parent)
    name = re.sub(r"\W", "_", f"{scenario.name}_{verdict.law}")
    lines = [
        f"    # {ascii(told_step(each))[1:-1]}"[:100]
        for each in verdict.steps
        if each.kind in ("command", "sleep", "mark")
    ]
    shown = len(lines) == len(steps)
    rows = [f"{lines[at]}\n    {each!r}," if shown else f"    {each!r}," for at, each in enumerate(steps)]
    text = "\n\n".join(map(_body, EXPORTED))
    law, told = verdict.law, verdict.what.replace("\\", "\\\\").replace('"""', "'''").replace("\n", " ")
    if expect == "fixed":
        end = "    if seen.undecided:\n        pytest.skip(seen.undecided)\n"
        end += f'    assert seen.law != {law!r}, f"{{seen.law}}: {{seen.what}}"\n'
    else:
        end = f"    assert seen.law == {law!r}, seen\n"
    header = (
        f'"""{scenario.name}: {law}: {told}\n\n'
        "Needs pytest, redis (redis-py), and redis-server on PATH or the address of an empty server in REDIS_URL.\n"
        f'Its clients are those of {place}, whose own code runs.\n"""\n\n'
    )
    return (
        f"{header}from __future__ import annotations\n\n{text}\n\n"
        f"FILE, NAME = {place!r}, {scenario.name!r}\nSCHEDULE = [\n" + "\n".join(rows) + "\n]\n"
        f"{SERVER}\n\ndef test_{name}(server):\n"
        "    scenario = load(Path(__file__).parent / FILE, NAME)\n"
        f"    seen = judged(server, scenario, SCHEDULE)\n{end}"
    )


def _body(module: ModuleType) -> str:
    """The text of a module without its docstring and what it imports of this suite."""
    text = inspect.getsource(module)
    text = re.sub(r"^from orderlab\S* import (\(.*?\)|.*?)$", "", text[text.index('"""', 3) + 3 :], flags=re.M | re.S)
    return text.replace("from __future__ import annotations\n", "").strip() + "\n"


SERVER: Final = '''

import shutil
import subprocess
import tempfile

import pytest


@pytest.fixture
def server():
    """An empty server: the one at REDIS_URL, or one of our own on a free port of the loopback interface."""
    url, process, folder = os.environ.get("REDIS_URL"), None, tempfile.mkdtemp()
    if url is None:
        program = shutil.which("redis-server")
        if program is None:
            pytest.fail("no redis-server on PATH; install it, or name a server that holds nothing in REDIS_URL")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        url = f"redis://127.0.0.1:{port}/0"
        settings = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder]
        process = subprocess.Popen([program, *settings], stdout=subprocess.DEVNULL)
    try:
        for _ in range(500):
            try:
                connected = redis.Redis.from_url(url)
                connected.ping()
                break
            except redis.ConnectionError:
                time.sleep(0.01)
        if connected.info("keyspace"):
            pytest.fail(f"{url} is not empty and is left alone; name a server that holds nothing")
        yield connected
    finally:
        if process is not None:
            process.terminate()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
'''
"""What an exported test has beyond the gate."""
