"""Whatever stands in a file that a user names, a command ends with a verdict or with one line, and never with a defect
of ours.

Each input begins as one that is read to its end; then values in it are exchanged, lines are dropped, doubled or moved,
bytes are cut or turned. What comes of it is a verdict (0, 1, 3), or exit code 2 with one line on standard error and
nothing on standard output.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orderlab.model.history.disk import write_history
from orderlab.model.history.notation import parse_history
from tests.in_process import ROOT, orderlab

STANDARD = 8
"""Mutants of each input in every run of the tests; ORDERLAB_MUTANTS sets another number, and fresh seeds come with
`make exhaustive`."""
SECONDS = 300
"""A command that takes longer hangs."""


@dataclass(frozen=True)
class Input:
    """A file that a command reads: how a good one is made in a folder, and how the command is called with it."""

    make: Callable[[Path], Path]
    command: Callable[[Path], list[object]]


def a_store(name: str, law: str) -> Input:
    """The ``store.toml`` of a bundled store, with its scripts and its contract."""

    def make(folder: Path) -> Path:
        shutil.copytree(ROOT / "orderlab" / "lua" / name, folder / name)
        return folder / name / "store.toml"

    return Input(make, lambda file: ["validate", file, "--effort", "0.01", "--law", law, "--trust-adapter"])


def a_history(form: str) -> Input:
    """A history in one of its forms."""

    def make(folder: Path) -> Path:
        write_history(parse_history("S + P1 A1 P2 A2 D1#1 D2#2 K#1 K#2"), folder / f"h.{form}")
        return folder / f"h.{form}"

    return Input(make, lambda file: ["check", file])


def written(name: str, text: str, *command: object) -> Input:
    """A file with this text, which is the last word of the command."""

    def make(folder: Path) -> Path:
        (folder / name).write_text(text)
        return folder / name

    return Input(make, lambda file: [*command, file])


def told(name: str, made_by: list[object], *command: object) -> Input:
    """A file with what another command prints."""

    def make(folder: Path) -> Path:
        (folder / name).write_text(orderlab(*made_by).stdout)
        return folder / name

    return Input(make, lambda file: [*command, file])


SMALL = (
    "publishers = 4\nbrokers = 1\nduration_s = 0.05\npartitions = 2\nqos = 1\nrate = 20.0\nfaults = "
    '"redis-stall@0.02:0:0.01"\n'
)
QUICK = ["--set", "publishers=4", "--set", "duration_s=0.05", "--set", "brokers=1"]
EDN = """{:index 0, :type :invoke, :process 0, :f :send, :key nil, :value [[:send 0 1]], :time 10}
{:index 1, :type :ok, :process 0, :f :send, :value [[:send 0 [0 1]]], :time 20}
{:index 2, :type :invoke, :process 1, :f :poll, :value [[:poll]], :time 30}
{:index 3, :type :ok, :process 1, :f :poll, :value [[:poll {0 [[0 1]]}]], :time 40}
"""
LINES = (
    "0 :invoke :write 1",
    "1 :invoke :read nil",
    "0 :ok :write 1",
    "1 :ok :read 1",
    "0 :invoke :cas [1 2]",
    "0 :info :cas :timed-out",
)


def checkpoint(folder: Path) -> Path:
    """An exploration that was ended early."""
    orderlab("explore", "two-phase-commit", "--max-states", "30", "--checkpoint", folder / "c.checkpoint")
    return folder / "c.checkpoint"


INPUTS = {
    "session": a_store("session", "counter"),
    "lock": a_store("lock", "mutual-exclusion"),
    "job queue": a_store("job_queue", "no-loss"),
    **{form: a_history(form) for form in ("jsonl", "csv", "parquet")},
    "log in EDN": written("log.edn", EDN, "check"),
    "log of lines": written(
        "etcd.log", "".join(f"INFO  jepsen.util - {line}\n" for line in LINES), "check", "--model", "cas-register"
    ),
    "checkpoint": Input(
        checkpoint, lambda file: ["explore", "two-phase-commit", "--checkpoint", file, "--max-states", "60"]
    ),
    "settings": written("s.toml", SMALL, "simulate", "tbmq-p2p", "--json", "--config"),
    "costs": Input(
        lambda folder: Path(shutil.copy(ROOT / "orderlab" / "sim" / "costs" / "cluster.toml", folder / "c.toml")),
        lambda file: ["simulate", "tbmq-p2p", "--json", *QUICK, "--set", f"costs={file}"],
    ),
    "an earlier run": told(
        "r.json", ["simulate", "tbmq-p2p", "--json", *QUICK], "simulate", "tbmq-p2p", *QUICK, "--against"
    ),
    "sweep": Input(
        lambda folder: Path(
            shutil.copy(ROOT / "orderlab" / "spark_sweeps" / "examples" / "fault_risk.toml", folder / "s.toml")
        ),
        lambda file: ["sweep", file, "--dry-run"],
    ),
    "trace": told(
        "t.json",
        ["validate", "lua/specimens/fetch-removes", "--law", "no-loss", "--effort", "0.01", "--json"],
        "replay",
    ),
    "path of an exploration": told(
        "e.json", ["explore", "two-phase-commit", "--set", "flaw=abort-after-vote", "--json"], "replay"
    ),
}

ODD = [
    "0",
    "-1",
    "1",
    "9223372036854775808",
    "-9223372036854775809",
    "9" * 5000,
    "1e400",
    "nan",
    "inf",
    "1.5",
    "true",
    "null",
    '""',
    '"\\u0000"',
    '"\\ud800"',
    '"<qos|modulo:0>"',
    '"<packet_id:0>"',
    '"<packet_id|modulo:0>"',
    '"<nothing>"',
    '"../../etc/passwd"',
    '"/dev/zero"',
    '"' + "a" * 70_000 + '"',
    '"{"',
    '"%s%n"',
    "[]",
    "{}",
    "[[]]",
    '["a", 1]',
    "[" * 200_000,
    '{"a": ' * 5_000,
    "1979-05-27T07:32:00Z",
    "0x10",
    "1_000",
    '{"a" = 1}',
    "{a = {b = {c = 1}}}",
    '"redis://127.0.0.1:1/0"',
    "#",
    "\x00",
    "é",
]
VALUE = re.compile(rb'"(?:[^"\\\n]|\\.)*"|[-+]?\d+(?:\.\d+)?|\b(?:true|false|null|nil)\b')


def mutant(content: bytes, draw: random.Random) -> bytes:
    """``content`` with one to three things changed."""
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        lines = content.split(b"\n")
        at = draw.randrange(len(lines))
        values = list(VALUE.finditer(content))
        what = draw.choice(
            ("value",) * 8 + ("values swapped", "drop", "double", "move", "cut", "byte", "bytes", "append")
        )
        if what == "value" and values:
            begin, end = draw.choice(values).span()
            content = content[:begin] + draw.choice(ODD).encode() + content[end:]
        elif what == "values swapped" and len(values) > 1:
            first, second = sorted(draw.sample(range(len(values)), 2))
            (a, b), (c, d) = values[first].span(), values[second].span()
            content = content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]
        elif what == "drop":
            content = b"\n".join(lines[:at] + lines[at + 1 :])
        elif what == "double":
            content = b"\n".join(lines[: at + 1] + lines[at:])
        elif what == "move":
            line = lines.pop(at)
            lines.insert(draw.randrange(len(lines) + 1), line)
            content = b"\n".join(lines)
        elif what == "cut":
            content = content[: draw.randrange(len(content) + 1)]
        elif what in ("byte", "bytes") and content:
            changed = bytearray(content)
            for _ in range(1 if what == "byte" else 20):
                changed[draw.randrange(len(changed))] = draw.randrange(256)
            content = bytes(changed)
        elif what == "append":
            content += draw.choice(ODD).encode()
    return content


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise TimeoutError after so long."""

    def late(*_: object) -> None:
        raise TimeoutError(f"still at work after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("smallest_scopes")
@pytest.mark.parametrize("name", INPUTS)
def test_a_damaged_input_is_one_line_or_a_verdict(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    given = INPUTS[name]
    file = given.make(tmp_path)
    good = file.read_bytes()
    codes: Counter[int] = Counter()
    for number in range(int(os.environ.get("ORDERLAB_MUTANTS", STANDARD))):
        seed: Any = f"{name}:{os.environ.get('ORDERLAB_MUTANT_SEED', '0')}:{number}"
        bad = good if number == 0 else mutant(good, random.Random(seed))
        file.write_bytes(bad)
        with within(SECONDS):
            found = orderlab(*given.command(file), cwd=tmp_path if name == "sweep" else ROOT)
        codes[found.returncode] += 1
        said = f"{seed}: exit code {found.returncode}: {found.stderr[:2000]}"
        assert found.returncode in (0, 1, 2, 3), said
        if found.returncode == 2:
            assert (len(found.stderr.splitlines()), found.stdout, len(found.stderr) < 2000) == (1, "", True), said
            assert number > 0, said
    assert len(codes) > 1, codes
    assert codes[2], codes
