"""`orderlab race --command`: processes of any language, each order of their commands from the beginning."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from orderlab.properties.clients.footprints import SCRIPTS
from orderlab.properties.clients.processes import Programs, carried_out
from tests.in_process import orderlab

CLIENT = """
import os, random, socket, sys
line = socket.create_connection((os.environ["REDIS_HOST"], int(os.environ["REDIS_PORT"]))).makefile("rwb")
me = os.environ["ORDERLAB_CLIENT"]
def ask(*words):
    line.write(b"*%d\\r\\n" % len(words) + b"".join(b"$%d\\r\\n%b\\r\\n" % (len(w), w) for w in map(str.encode, words)))
    line.flush()
    return reply()
def reply():
    head = line.readline().strip()
    if head[:1] == b"$":
        return None if head == b"$-1" else line.read(int(head[1:]) + 2)[:-2]
    return [reply() for _ in range(int(head[1:]))] if head[:1] == b"*" else head
"""
PROGRAMS = {
    "counts": ("ask('INCR', 'n')", 0, ""),
    "reads_then_writes": ("ask('SET', 'n', str(int(ask('GET', 'n') or 0) + 1))", 1, "serializable"),
    "transaction": ("ask('MULTI'); ask('INCR', 'n'); ask('INCR', 'm'); ask('EXEC')", 0, ""),
    "told": (
        "print('first' if not ask('EXISTS', 'n')[1:] == b'1' else 'second'); ask('SET', 'n', '1')",
        1,
        "serializable",
    ),
    "ends": ("sys.exit(3 if ask('EXISTS', 'n') == b':1' else ask('SET', 'n', '1') and 0)", 1, "serializable"),
    "waits": (
        "ask('SETNX', 'held', me) == b':0' and ask('BLPOP', 'free', '0')\nask('DEL', 'held'); "
        "ask('EXISTS', 'asked') == b':0' or ask('RPUSH', 'free', '1')",
        1,
        "no-deadlock",
    ),
    "handed_on": ("ask('RPUSH', 'q', '1'); ask('BLPOP', 'q', '0')", 0, ""),
    "drawn": ("ask('SET', 'n', str(random.random()))", 3, ""),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_processes_are_judged_by_orders_of_whole_ones(name: str, tmp_path: Path) -> None:
    body, code, law = PROGRAMS[name]
    file = tmp_path / "worker.py"
    file.write_text(CLIENT + body + "\n")
    result = orderlab("race", "--command", f"{sys.executable} -S -E {file}", "--json")
    assert result.returncode == code, result.stdout + result.stderr
    verdict = json.loads(result.stdout)
    assert verdict["law"] == law, verdict
    assert ("uncontrolled" in verdict["how_far"]) == (code == 3)
    if law == "serializable":
        assert verdict["steps"], verdict


def test_every_order_that_differs_is_visited(tmp_path: Path) -> None:
    """Two processes of three writes that all see each other have twenty orders."""
    file = tmp_path / "worker.py"
    file.write_text(CLIENT + "ask('INCR', 'n'); ask('INCR', 'n'); ask('INCR', 'n')\n")
    result = orderlab("race", "--command", f"{sys.executable} -S -E {file}")
    assert result.returncode == 0, result.stdout
    assert "in 20 executions" in result.stdout


def test_what_cannot_be_is_told() -> None:
    assert "cannot be started" in orderlab("race", "--command", "/nowhere/worker").stderr
    assert "or --command with a program" in orderlab("race").stderr
    assert "leave them out" in orderlab("race", "--command", "true", "a.py").stderr
    assert "name at most 4" in orderlab("race", *["--command", "true"] * 5).stderr
    assert "for programs" in orderlab("race", "--check", "true").stderr
    assert "none that befalls" in orderlab("race", "--command", "true", "--trouble", "1", "--fault", "kiled").stderr
    assert "--setup false: exit code 1" in orderlab("race", "--command", "true", "--setup", "false").stderr
    assert "no program is named" in orderlab("race", "--command", "").stderr
    assert "No closing quotation" in orderlab("race", "--command", "'").stderr
    assert "is no step of these" in orderlab("race", "--command", "true", "--schedule", "2").stderr
    assert "end after 0 steps" in orderlab("race", "--command", "true", "--schedule", "0").stderr


def raced(tmp_path: Path, bodies: dict[str, str], *options: str) -> tuple[int, dict[str, object]]:
    """Exit code and verdict of programs; an option that is the name of one stands for its command."""
    for name, body in bodies.items():
        (tmp_path / f"{name}.py").write_text(CLIENT + body + "\n")
    given = [f"{sys.executable} -S -E {tmp_path / option}.py" if option in bodies else option for option in options]
    result = orderlab("race", *given, "--json")
    return result.returncode, json.loads(result.stdout)


TAKES = "job = ask('LPOP', 'jobs')\njob and ask('RPUSH', 'done', job.decode())"
MOVES = "ask('LMOVE', 'jobs', 'done', 'LEFT', 'RIGHT')"
JOBS = "ask('RPUSH', 'jobs', 'a', 'b')"
NONE_LOST = "sum(int(ask('LLEN', key)[1:]) for key in ('jobs', 'done')) == 2 or sys.exit('one is lost')"


@pytest.mark.parametrize(("body", "trouble", "code"), [(TAKES, "0", 0), (TAKES, "1", 1), (MOVES, "1", 0)])
def test_a_check_at_the_end_judges_what_dead_processes_leave(
    body: str, trouble: str, code: int, tmp_path: Path
) -> None:
    bodies = {"work": body, "jobs": JOBS, "check": NONE_LOST}
    given = ("--command", "work", "--setup", "jobs", "--check", "check")
    faults = ("--trouble", trouble, "--fault", "killed") if trouble != "0" else ()
    ended, verdict = raced(tmp_path, bodies, *given, *faults)
    assert ended == code, verdict
    if code:
        assert (verdict["law"], "one is lost" in str(verdict["what"])) == ("finally", True)
        again, shown = raced(tmp_path, bodies, *given, "--schedule", str(verdict["schedule"]))
        assert (again, shown["law"]) == (1, "finally")


def test_a_command_that_is_sent_again_after_a_lost_reply_counts_twice(tmp_path: Path) -> None:
    connect = (
        "line = socket.create_connection((os.environ['REDIS_HOST'], int(os.environ['REDIS_PORT']))).makefile('rwb')"
    )
    again = f"import os, socket\nif not ask('INCR', 'n'):\n    {connect}\n    ask('INCR', 'n')"
    assert raced(tmp_path, {"again": again}, "--command", "again")[0] == 0
    ended, verdict = raced(tmp_path, {"again": again}, "--command", "again", "--trouble", "1", "--fault", "reply-lost")
    assert (ended, verdict["law"]) == (1, "serializable")
    assert raced(tmp_path, {"again": again}, "--command", "again", "--trouble", "1", "--fault", "refused")[0] == 0


def test_programs_that_differ_are_clients_of_one_race(tmp_path: Path) -> None:
    reads = "ask('SET', 'copy', (ask('GET', 'a') or b'').decode() + (ask('GET', 'b') or b'').decode())"
    writes = "ask('SET', 'a', '1')\nask('SET', 'b', '1')"
    at_once = "ask('MSET', 'a', '1', 'b', '1')"
    for bodies, code in (
        ({"reads": reads, "writes": writes}, 1),
        ({"reads": "ask('MGET', 'a', 'b')", "writes": at_once}, 0),
    ):
        assert raced(tmp_path, bodies, "--command", "reads", "--command", "writes")[0] == code


def test_what_processes_break_is_told_in_every_form_of_a_report(tmp_path: Path) -> None:
    for name, body in {"pops": "job = ask('LPOP', 'todo')\njob and ask('SADD', 'done', job.decode())",
                       "fills": "ask('RPUSH', 'todo', 'a')",
                       "looks": "sys.exit(0 if ask('EXISTS', 'todo', 'done') == b':1' else 1)"}.items():  # fmt: skip
        (tmp_path / f"{name}.py").write_text(CLIENT + body + "\n")
    pops, fills, looks = (f"{sys.executable} -S -E {tmp_path / name}.py" for name in ("pops", "fills", "looks"))
    forms = {form: tmp_path / f"report.{form}" for form in ("json", "html", "sarif", "junit", "markdown")}
    words = ["--setup", fills, "--check", looks]
    wanted = [word for form, place in forms.items() for word in ("--report", f"{form}={place}")]
    faults = ["--trouble", "1", "--fault", "killed"]
    assert orderlab("race", "--command", pops, "--clients", "1", *words, *faults, *wanted).returncode == 1
    assert all("finally" in place.read_text() for place in forms.values())
    (subject,) = json.loads(forms["json"].read_text())["subjects"]
    (finding,) = subject["findings"]
    assert (subject["kind"], subject["outcome"], finding["law"]) == ("processes", "violated", "finally")
    last = finding["steps"][-1]
    assert (last["lane"], last["fault"], last["keys"]) == ("client 0", "killed", {})
    assert last["action"] == "client 0 [killed]: SADD done a"
    again = orderlab(*shlex.split(finding["replay"])[1:])
    assert again.returncode == 1, again.stderr
    right = orderlab("race", "--command", pops, "--clients", "1", *words, "--report", f"json={forms['json']}")
    assert right.returncode == 0
    laws = json.loads(forms["json"].read_text())["subjects"][0]["laws"]
    assert {law["law"]: law["outcome"] for law in laws} == {"finally": "holds", "no-deadlock": "holds"}


def test_a_flush_changes_place_with_no_step_that_needs_a_script(tmp_path: Path) -> None:
    file = tmp_path / "asks.py"
    file.write_text(CLIENT + "ask('GET', 'x')\n")
    programs = Programs((f"{sys.executable} -S -E {file}",))
    for fault in ("", "scripts-flushed"):
        run = carried_out(programs, lambda _, enabled, fault=fault: (0, fault), ("scripts-flushed",), 1)
        assert (SCRIPTS in run.footprints[0].writes) == bool(fault)
