"""`orderlab race --command`: processes of any language, each order of their commands from the beginning."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

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
    assert "leave the rest out" in orderlab("race", "--command", "true", "--trouble", "1").stderr
