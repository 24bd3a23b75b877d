"""``--server`` of `race`, `cost` and `simulate`, and ``server`` of ``[tool.orderlab]``: one reader says which holds."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from orderlab.properties.clients.processes import Programs, carried_out
from orderlab.sim.redis.versions import VERSIONS, ServerName
from tests.in_process import ROOT, orderlab
from tests.properties.clients.test_processes import CLIENT

POP = "return redis.call('LMPOP', 1, KEYS[1], 'LEFT')\n"
SCENARIO = """
from redis import ResponseError

from orderlab.clients import scenario


def pops(redis):
    try:
        redis.execute_command("LMPOP", 1, "queue", "LEFT")
    except ResponseError as error:
        redis.set("said", str(error))


@scenario(clients=[pops]{told})
def nothing_is_said(redis):
    assert redis.get("said") is None, redis.get("said")
"""


def race(folder: Path, *more: str, told: str = "") -> dict[str, object]:
    (folder / "race_queue.py").write_text(SCENARIO.format(told=told))
    ended = orderlab("race", folder / "race_queue.py", "--json", *more, cwd=folder)
    assert ended.stdout, ended.stderr
    (verdict,) = json.loads(ended.stdout)["verdicts"]
    return {name: verdict[name] for name in ("server", "outcome", "what", "schedule")}


def test_clients_race_on_the_server_that_is_named(tmp_path: Path) -> None:
    assert race(tmp_path)["outcome"] == "holds"
    older = race(tmp_path, "--server", "6.2")
    assert older["server"] == "6.2"
    assert "unknown command `LMPOP`" in str(older["what"])
    said = race(tmp_path, told=', server="6.2"')
    assert said == older
    assert race(tmp_path, "--server", "7.4", told=', server="6.2"')["server"] == "7.4"
    (tmp_path / "pyproject.toml").write_text('[tool.orderlab]\nserver = "6.2"\n')
    assert race(tmp_path) == older
    assert race(tmp_path, "--server", "7.0")["outcome"] == "holds"


def test_a_schedule_is_made_again_on_its_server(tmp_path: Path) -> None:
    (tmp_path / "race_queue.py").write_text(SCENARIO.format(told=""))
    report = tmp_path / "report.json"
    orderlab("race", tmp_path / "race_queue.py", "--server", "6.2", "--report", f"json={report}")
    assert "--server 6.2" in report.read_text()
    again = orderlab("replay", report, "--trust-adapter")
    assert again.returncode == 1, again.stdout + again.stderr
    assert "unknown command `LMPOP`" in again.stdout


def test_programs_race_on_the_server_that_is_named(tmp_path: Path) -> None:
    program = tmp_path / "pops.py"
    program.write_text(CLIENT + "print(ask('LMPOP', '1', 'queue', 'LEFT')[:20])\n")
    programs = Programs((f"{sys.executable} -S -E {program}",))
    told = [
        carried_out(replace(programs, server=VERSIONS[name]), lambda _, enabled: enabled[0]).ended.ends
        for name in ("7.0", "6.2")
    ]
    assert ["unknown command" in str(ends) for ends in told] == [False, True]


def test_a_simulation_runs_scripts_on_the_server_that_is_named(tmp_path: Path) -> None:
    size = ("--set", "publishers=4", "--set", "duration_s=0.2", "--seed", "1")
    for server in ("7.0", "6.2"):
        ended = orderlab("simulate", "tbmq-jedis", *size, "--server", server, "--history", tmp_path / f"{server}.jsonl")
        assert ended.returncode in (0, 3), ended.stderr
    assert (tmp_path / "7.0.jsonl").read_bytes() == (tmp_path / "6.2.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("simulate", "tbmq-postgres", "--server", "6.2"), "there is no Redis in tbmq-postgres"),
        (("simulate", "tbmq-p2p", "--server", "9.9"), "--server 9.9: not a server that is known"),
        (("race", "none.py", "--command", "true", "--server", "9.9"), "--command: takes no PATH"),
        (
            ("cost", "orderlab/lua/lock", "--trust-adapter", "--server", "9.9"),
            "--server 9.9: not a server that is known",
        ),
        (("cost", "orderlab/lua/lock", "--server", "6.2", "--server", "7.0"), "--server 7.0: a second one of its kind"),
    ],
)
def test_what_names_no_server_is_one_line(given: tuple[str, ...], said: str) -> None:
    ended = orderlab(*given, cwd=ROOT)
    assert ended.returncode == 2
    assert said in ended.stderr


def test_costs_are_those_of_the_server_that_is_named() -> None:
    store = ROOT / "orderlab/lua/limiter"
    told = orderlab("cost", store, "--trust-adapter", "--json", "--length", "10", "--batch", "10", "--server", "6.2")
    assert json.loads(told.stdout)["imitates"] == "Redis 6.2.14"


def test_a_repository_names_the_server_of_its_stores(tmp_path: Path) -> None:
    (tmp_path / "pop.lua").write_text(POP)
    (tmp_path / "pyproject.toml").write_text('[tool.orderlab]\nserver = "6.2"\n')
    lint = [orderlab("lint", "pop.lua", *more, cwd=tmp_path).returncode for more in ((), ("--server", "7.0"))]
    assert lint == [1, 0]
    validated = orderlab("validate", ".", "--effort", "0.01", "--backend", "kernel", cwd=tmp_path)
    assert "LMPOP came with Redis 7.0" in validated.stdout
    (tmp_path / "store.toml").write_text('server = "7.0"\n')
    assert orderlab("lint", "pop.lua", cwd=tmp_path).returncode == 0, "what the store says comes first"
    (tmp_path / "pyproject.toml").write_text('[tool.orderlab]\nserver = "9.9"\n')
    ended = orderlab("lint", "pop.lua", cwd=tmp_path)
    assert ended.returncode == 2
    assert "tool.orderlab.server 9.9: not a server that is known" in ended.stderr


def test_every_name_of_a_server_is_taken_by_files_too() -> None:
    assert get_args(ServerName) == tuple(VERSIONS)
