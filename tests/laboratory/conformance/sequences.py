"""Sequences of commands for one database: what is drawn, in which proportions, and how a line is spoilt."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from tests.laboratory.conformance.commands import AGED, SAMPLED, TIMED, UNORDERED, UNORDERED_WHEN_LARGE, templates
from tests.laboratory.conformance.grammar import JUNK, TIME_STEP_S, Argv, Draw, Template
from tests.laboratory.conformance.scripts import ESCAPES, FAILURES, script_step

GROUPS = templates()
WEIGHTS = {
    "strings": 5,
    "keys": 5,
    "hashes": 5,
    "lists": 5,
    "sets": 5,
    "sorted sets": 8,
    "streams": 8,
    "lexical ranges": 3,
    "places": 3,
    "hyperloglogs": 2,
    "databases": 2,
    "connections": 2,
    "times": 5,
    "scripts": 3,
}
NOT_IN_SCRIPTS = AGED | SAMPLED | TIMED | UNORDERED | UNORDERED_WHEN_LARGE
"""Replies of these may differ, and a script would carry the difference on."""
SMALL_ENCODINGS = {
    b"hash-max-listpack-entries": 4,
    b"hash-max-listpack-value": 8,
    b"zset-max-listpack-entries": 4,
    b"zset-max-listpack-value": 8,
    b"set-max-intset-entries": 3,
    b"stream-node-max-entries": 3,
    b"stream-node-max-bytes": 90,
}
"""Limits that short sequences cross."""
DEFAULT_ENCODINGS = {
    b"hash-max-listpack-entries": 512,
    b"hash-max-listpack-value": 64,
    b"zset-max-listpack-entries": 128,
    b"zset-max-listpack-value": 64,
    b"set-max-intset-entries": 512,
    b"stream-node-max-entries": 100,
    b"stream-node-max-bytes": 4096,
}


class Times(Enum):
    """Which deadlines a sequence sets; see ``arguments``."""

    RELATIVE = "relative times"
    ABSOLUTE = "absolute times"


Step = Argv | int
"""A command, or milliseconds that pass."""


@dataclass(frozen=True, slots=True)
class CommandSequence:
    """Steps for one empty database."""

    steps: tuple[Step, ...]
    resp: int = 2
    has_small_encodings: bool = False
    """Whether ``SMALL_ENCODINGS`` holds instead of the server's defaults."""


class SeededDraw(random.Random):
    """The fast source of choices."""

    serial = 0

    def randrange(self, stop: int) -> int:  # type: ignore[override]
        """Uniform enough in 0..stop-1, and several times faster than the inherited one."""
        return int(self.random() * stop)


class Generator:
    """Draws sequences. ``knows`` says which commands (lower case) take part; without ``escapes`` no script tries the
    walls of its sandbox."""

    def __init__(self, knows: Collection[bytes], escapes: bool = True) -> None:
        self._failures = FAILURES + ESCAPES if escapes else FAILURES

        def kept(group: str) -> list[Template]:
            return [one for one in GROUPS[group] if all(name.encode() in knows for name in one.names)]

        self.groups = {group: kept(group) for group in GROUPS}
        self.scriptable = {
            times: [
                template
                for group in (*GROUPS,)
                if group not in ("connections", *(other.value for other in Times if other is not times))
                for template in self.groups[group]
                if len(template.names) == 1
                and template.names[0].encode() not in NOT_IN_SCRIPTS
                and "REFCOUNT" not in template.text
            ]
            for times in Times
        }
        self._has_scripts = b"eval" in knows
        self._wheel = [
            name for name, weight in WEIGHTS.items() for _ in range(weight) if name != "scripts" or self._has_scripts
        ]

    def sequence(self, draw: Draw, length: int = 50) -> CommandSequence:
        """About ``length`` commands."""
        draw.serial = 0
        times = Times.RELATIVE if draw.random() < 0.5 else Times.ABSOLUTE
        steps: list[Step] = []
        while len(steps) < length:
            if times is Times.RELATIVE and draw.random() < 0.03 and not in_transaction(steps):
                steps.append((draw.randrange(500_000) * TIME_STEP_S + 500) * 1000)
            steps += self._step(draw, times)
        return CommandSequence(tuple(steps), 3 if draw.random() < 0.15 else 2, draw.random() < 0.5)

    def _step(self, draw: Draw, times: Times) -> list[Argv]:
        group = self._wheel[draw.randrange(len(self._wheel))]
        if group == "scripts":
            commands = [self._scriptable(draw, times) for _ in range(1 + draw.randrange(4))]
            return script_step(draw, commands, self._failures)
        forms = self.groups[times.value if group == "times" else group]
        if not forms:
            return []
        step = forms[draw.randrange(len(forms))].generate(draw)
        if len(step) == 1 and group != "lexical ranges" and draw.random() < 0.04:
            return [spoil(step[0], draw)]
        return step

    def _scriptable(self, draw: Draw, times: Times) -> Argv:
        forms = self.scriptable[times]
        form = forms[draw.randrange(len(forms))]
        argv = form.generate(draw)[0]
        return spoil(argv, draw) if "lex_key" not in form.text and draw.random() < 0.04 else argv


def in_transaction(steps: Sequence[Step]) -> bool:
    """Whether time must not pass now, because MULTI or WATCH may be in force: it would pass by another command."""
    is_queueing = is_watching = False
    for step in steps:
        if isinstance(step, int):
            continue
        name = step[0].lower()
        if name == b"multi" and len(step) == 1:
            is_queueing = True
        elif (
            name in (b"exec", b"discard") and len(step) == 1 and is_queueing
        ):  # else an error, and WATCH stays in force
            is_queueing = is_watching = False
        elif name == b"watch":
            is_watching = True
    return is_queueing or is_watching


def _drop(argv: list[bytes], draw: Draw) -> None:
    if len(argv) > 1:
        argv.pop(1 + draw.randrange(len(argv) - 1))


def _repeat(argv: list[bytes], draw: Draw) -> None:
    argv.insert(1, argv[draw.randrange(len(argv))])


def _add(argv: list[bytes], draw: Draw) -> None:
    argv.insert(1 + draw.randrange(len(argv)), JUNK[draw.randrange(len(JUNK))])


def _replace(argv: list[bytes], draw: Draw) -> None:
    if len(argv) > 1:
        argv[1 + draw.randrange(len(argv) - 1)] = JUNK[draw.randrange(len(JUNK))]


def _change_case(argv: list[bytes], draw: Draw) -> None:
    at = draw.randrange(len(argv))
    argv[at] = argv[at].swapcase()


SPOILERS: Sequence[Callable[[list[bytes], Draw], None]] = (_drop, _repeat, _add, _replace, _change_case)


def spoil(argv: Argv, draw: Draw) -> Argv:
    """The same command line with one mistake."""
    line = list(argv)
    SPOILERS[draw.randrange(len(SPOILERS))](line, draw)
    return tuple(line)
