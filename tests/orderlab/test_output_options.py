"""What an output option of any command names stays what it is unless it is a plain file: a device is written into or
refused, a link is followed. Every option that takes a path or a text is told here to be an output or none, so that a
new one cannot be forgotten.
"""

from __future__ import annotations

import os
import shutil
import stat
import typing
from importlib import import_module
from pathlib import Path

import pytest

from orderlab.commands import COMMANDS
from orderlab.commands.places import OUTPUTS as PLACES
from orderlab.model.history.disk import write_history
from orderlab.model.history.notation import parse_history
from tests.in_process import ROOT, orderlab

LOCK = "validate lua/lock --trust-adapter --effort 0.01 --law one-slot --backend kernel"
SIMULATE = "simulate tbmq-p2p --set duration_s=0.05 --set publishers=2"
OUTPUTS = {
    "validate --report": f"{LOCK} --report json=OUT",
    "validate --certificate": "validate lua/limiter --trust-adapter --effort 0.01 --backend kernel --certificate OUT",
    "lint --report": "lint lua/lock --trust-adapter --report json=OUT",
    "cost --report": "cost lua/limiter --trust-adapter --length 20 --batch 5 --payload 100 --report json=OUT",
    "compare --report": "compare --stores lua/limiter --systems none --trust-adapter --effort 0.01 --report json=OUT",
    "compare --note": "compare --stores lua/limiter --systems none --trust-adapter --effort 0.01 --note OUT",
    "mutate --out": "mutate lua/lock --trust-adapter --limit 1 --effort 0.01 --out OUT",
    "replay --export": "replay TRACE --trust-adapter --export mermaid=OUT",
    "race --report": "race CLIENTS --report json=OUT",
    "race --export": "race CLIENTS --export mermaid=OUT",
    "explore --checkpoint": "explore two-phase-commit --max-states 10 --checkpoint OUT",
    "explore --graph": "explore two-phase-commit --graph OUT",
    "explore --report": "explore two-phase-commit --report json=OUT",
    "simulate --history": f"{SIMULATE} --history OUT",
    "simulate --trace": f"{SIMULATE} --trace OUT",
    "simulate --timeline": f"{SIMULATE} --timeline OUT",
    "simulate --report": f"{SIMULATE} --report json=OUT",
    "calibrate --out": "calibrate auto --calls 1000 --out OUT",
    "check --report": "check HISTORY --law fifo --report json=OUT",
    "runs --export": "runs RUNS --export OUT",
    "record --history": "record mqtt --broker 127.0.0.1:1 --history OUT",
    "sweep --output": "sweep spark_sweeps/examples/cluster_rows.toml --engine pool --output OUT",
}
"""By command and parameter, a call that writes there."""
SUFFIX = {
    "explore --graph": ".dot",
    "simulate --history": ".jsonl",
    "record --history": ".jsonl",
    "simulate --timeline": ".html",
} | {
    "calibrate --out": ".toml",
    "runs --export": ".csv",
}
NO_OUTPUTS = """
validate --effort --backend --law --base --server; certify --store; lint --base --server; init --specification; binding;
explain; docs; specimens --effort; compare --stores --systems --effort; mutate --only
--effort; replay --store --law --base --backend --expect;
cost --base --server; race --command --setup --check --effort --fault --schedule --expect --server;
record --broker --start --server;
serve --host --password --faults --server --acl-file; explore --settings --engine --law --constraint; simulate
--settings
--config --trace-window --against --server; calibrate --base; check --model --contract --key --law --master --corpus
--verdicts;
sweep --master --engine --costs;
runs --where --columns --sort --sql --replay;
bench --part
"""


def options_of(command: str) -> set[str]:
    """The options of a command that take a path or a text."""
    function = getattr(import_module(f"orderlab.commands.{command}"), command)
    found = set()
    for name, hint in typing.get_type_hints(function, include_extras=True).items():
        kind, *about = typing.get_args(hint) if typing.get_origin(hint) is typing.Annotated else (hint,)
        if about and type(about[0]).__name__ == "OptionInfo" and any(one in str(kind) for one in ("Path", "str")):
            found.add(f"{command} --{name.replace('_', '-')}")
    return found


def test_every_option_is_known_to_write_or_not_to() -> None:
    told = set(OUTPUTS)
    for line in NO_OUTPUTS.replace("\n", " ").split(";"):
        command, *options = line.split()
        told |= {f"{command} {option}" for option in options}
    assert set().union(*map(options_of, COMMANDS)) == told


def test_the_options_that_write_are_those_whose_places_are_compared() -> None:
    assert {option.split()[1] for option in OUTPUTS} == PLACES


@pytest.mark.parametrize(
    "words",
    [
        "check h.jsonl --report json=h.jsonl",
        "check h.jsonl --report json=out --report html=out",
        "check h.jsonl --report json=out --report html=link",
        "check h.jsonl --law fifo --report json=folder/../out --report sarif=out",
        "lint folder --report json=folder/store.toml",
        "validate folder --trust-adapter --report json=folder/a.lua",
        "validate folder --certificate out --report json=out",
        "explore two-phase-commit --checkpoint out --graph out",
        "replay h.jsonl --export mermaid=h.jsonl",
        f"{SIMULATE} --history out.jsonl --report json=./out.jsonl",
    ],
)
def test_no_output_goes_where_another_one_goes_or_what_is_read_lies(words: str, tmp_path: Path) -> None:
    write_history(parse_history("S + P1 A1 D1#1 K#1"), tmp_path / "h.jsonl")
    (tmp_path / "folder").mkdir()
    for name in ("store.toml", "a.lua"):
        (tmp_path / "folder" / name).write_text("return 1\n")
    (tmp_path / "link").symlink_to("out")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    ended = orderlab(*words.split(), cwd=tmp_path)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr
    assert "reads this file" in ended.stderr or "a file of its own" in ended.stderr
    assert before == {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}


def test_a_folder_of_results_has_a_name_in_utf_8(tmp_path: Path) -> None:
    words = ["spark_sweeps/examples/cluster_rows.toml", "--engine", "pool", "--output", tmp_path / os.fsdecode(b"\xff")]
    ended = orderlab("sweep", *words)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_device_takes_two_outputs_and_a_folder_of_scripts_an_old_report(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "orderlab" / "lua" / "limiter", tmp_path / "limiter")
    report = tmp_path / "limiter" / "report.json"
    for _ in range(2):
        words = ["--report", "json=/dev/null", "--report", "sarif=/dev/null", "--report", f"json={report}"]
        assert orderlab("lint", tmp_path / "limiter", "--trust-adapter", *words).returncode == 0
    assert report.exists()


def called(option: str, folder: Path, out: Path) -> tuple[int, list[str]]:
    words = OUTPUTS[option].replace("OUT", str(out))
    if "HISTORY" in words:
        write_history(parse_history("S + P1 A1 D1#1 K#1"), folder / "h.jsonl")
    if "TRACE" in words:
        orderlab("validate", "lua/specimens/lock-release-any", "--trust-adapter", "--effort", "0.01", "--law",
                 "own-release", "--backend", "kernel", "--report", f"json={folder / 'trace.json'}")  # fmt: skip
    if "CLIENTS" in words:
        (folder / "clients.py").write_text(
            "from orderlab.clients import scenario\n@scenario(clients=2)\n"
            "def one(redis):\n    redis.set('n', int(redis.get('n') or 0) + 1)\n"
        )
    if "RUNS" in words:
        (folder / "s.toml").write_text(f'system = "math:fsum"\noutput = "{folder}/runs"\n[axes]\na = [1]\n')
        orderlab("sweep", f"{folder}/s.toml", "--engine", "pool")  # its run fails, which is a row as well
    for name, place in (("HISTORY", "h.jsonl"), ("TRACE", "trace.json"), ("RUNS", "runs"), ("CLIENTS", "clients.py")):
        words = words.replace(name, f"{folder}/{place}")
    ended = orderlab(*words.split())
    return ended.returncode, ended.stderr.splitlines()


@pytest.mark.parametrize("option", OUTPUTS)
def test_a_device_and_what_leads_to_it_stay(option: str, tmp_path: Path) -> None:
    """The device is full: what tries to write into it is told so, in one line."""
    device, link = tmp_path / "full", tmp_path / f"link{SUFFIX.get(option, '.json')}"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
    except PermissionError:
        pytest.xfail("only root makes device nodes")
    link.symlink_to("full")
    code, lines = called(option, tmp_path, link)
    assert stat.S_ISCHR(device.stat().st_mode)
    assert link.is_symlink()
    assert code == 2, lines
    assert len(lines) == 1, lines
    assert link.name in lines[0], "refused for what it is, or for what it says when it is written into"
    left = {one.name for one in tmp_path.iterdir()} - {
        "h.jsonl",
        "trace.json",
        "s.toml",
        "runs",
        "clients.py",
        "__pycache__",
    }
    assert left == {"full", link.name}
