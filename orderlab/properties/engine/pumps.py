"""Rounds of calls that make a number in a store grow: to where a script changes what it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, NamedTuple

from orderlab.model.contracts.base import Call, Crowd
from orderlab.model.contracts.client_steps import Begin, ClientStep, Wait
from orderlab.model.contracts.judge import TooManyStates
from orderlab.properties.engine.run import ContractRun, Report
from orderlab.properties.shadow.marked import NUMBER, SIZE, Unknown
from orderlab.sim.redis.backends import Backend
from orderlab.sim.redis.registry import find

SEEN_MAX = 24
"""Replies that a client remembers while it goes round and round."""
ROUNDS = 4
"""Rounds by which it is seen whether a number grows."""
LETTERS_MAX, LENGTH_MAX = 14, 3
"""Calls that rounds are made of, and how many of them one round has."""
CYCLES_MAX = 260
READ_INSTEAD = {
    b"INCR": b"GET", b"DECR": b"GET", b"INCRBY": b"GET", b"DECRBY": b"GET", b"HINCRBY": b"HGET", b"ZINCRBY": b"ZSCORE",
    b"LPUSH": b"LLEN", b"RPUSH": b"LLEN",
}  # fmt: skip
MEMBER_AT = {b"ZINCRBY": 3}


class Probe(NamedTuple):
    """A command that shows a number of the store, and where in its reply."""

    argv: tuple[bytes, ...]
    at: tuple[int, ...] = ()

    def read(self, backend: Backend) -> int | None:
        """What it is now."""
        reply = backend.execute(*self.argv)
        for place in self.at:
            reply = reply[place - 1] if isinstance(reply, list) and len(reply) >= place else None
        if isinstance(reply, list):
            return len(reply)
        if isinstance(reply, bytes) and reply.removeprefix(b"-").isdigit() and len(reply) < 20:
            return int(reply)
        return reply if isinstance(reply, int) else 0 if reply is None else None


def probe_of(symbol: Unknown) -> Probe | None:
    """What shows a symbol at any time; None where nothing does."""
    if symbol.kind not in (SIZE, NUMBER):
        return None
    argv = tuple(part for part in symbol.place if isinstance(part, bytes))
    at = tuple(part for part in symbol.place if isinstance(part, int))
    name = argv[0].upper()
    if name in READ_INSTEAD:
        shown = {b"HGET": 3, b"ZSCORE": 2}.get(READ_INSTEAD[name], 2)
        rest = (argv[1], argv[MEMBER_AT[name]]) if name in MEMBER_AT else argv[1:shown]
        return Probe((READ_INSTEAD[name], *rest))
    command = find(argv)
    return Probe(argv, at) if command is not None and not command.is_write else None


class Letter(NamedTuple):
    """One call of a round: which of those that its client finds worth trying."""

    client: int
    name: str
    shape: tuple[tuple[str, Any], ...]
    """The fields that are numbers: names are new in every round."""

    def find(self, run: ContractRun) -> Call | None:
        """The call that it is now."""
        calls = run.judge.asked.calls(self.client, run.clients[self.client].seen)
        return next((call for call in calls if call.name == self.name and _shape(call) == self.shape), None)


def _shape(call: Call) -> tuple[tuple[str, Any], ...]:
    return tuple(item for item in call.fields if isinstance(item[1], int) and item[0] not in ("token", "marker"))


@dataclass(frozen=True)
class Cycle:
    """Calls that are made again and again, from the empty store on, until a number stands where it shall."""

    letters: tuple[Letter, ...]
    slope: int
    start: int
    """What the number was after the first round, less the slope."""
    grows: bool
    """The contract's state grows as well, so that each round takes longer."""

    def rounds_to(self, target: int) -> int:
        """How many rounds lead to the number, or as near below it as they come."""
        return (target - self.start) // self.slope


class Walker:
    """Takes whole operations on a run, and keeps the steps."""

    def __init__(self, run: ContractRun) -> None:
        self.run = run
        self.steps: list[ClientStep] = []
        self.work = 0
        self.is_over = False
        """It cannot go on."""

    @property
    def size(self) -> int:
        """How much the store may hold."""
        asked = self.run.judge.asked
        return max(map(asked.size, self.run.judge.states()), default=0)

    def take(self, step: ClientStep) -> Report:
        """One operation to its end, or time that passes."""
        report = self.run.carry_out(step, self.steps)
        self.work += report.work
        return report

    def round(self, letters: Sequence[Letter]) -> Report | None:
        """One round; None where it cannot be gone."""
        run, report = self.run, Report()
        for letter in letters:
            known = run.clients[letter.client]
            run.clients[letter.client] = known._replace(seen=known.seen[-SEEN_MAX:], begun=0)
            call = letter.find(run)
            if call is None or known.pending is not None:
                return None
            report = self.take(Begin(letter.client, call))
            if report.violation is not None:
                return report
        return report


def letters_of(calls: Sequence[tuple[int, Call]]) -> list[Letter]:
    """The calls that rounds are made of: each kind once, in the order in which they were met."""
    collected = [Letter(client, call.name, _shape(call)) for client, call in calls if client == 0]
    return list(dict.fromkeys(collected))[:LETTERS_MAX]


def cycles_of(
    make: Callable[[], ContractRun], probes: Sequence[Probe], calls: Sequence[tuple[int, Call]]
) -> tuple[dict[Probe, Cycle], int]:
    """For each probe the round that makes its number grow, one that leaves the store small if there is such; and the
    steps that it took to see."""
    run = make()
    empty, work = run.state, 0
    letters = letters_of(calls)
    collected: dict[Probe, Cycle] = {}
    tried: set[tuple[Letter, ...]] = set()
    waiting = [letters_tried for length in (1, 2) for letters_tried in product(letters, repeat=length)]
    while waiting and len(tried) < CYCLES_MAX:
        rounds = waiting.pop(0)
        if rounds in tried:
            continue
        tried.add(rounds)
        run.go_to(empty)
        walker = Walker(run)
        readings, sizes = _readings(walker, rounds, probes)
        work += walker.work
        for at, probe in enumerate(probes if len(readings) == ROUNDS else ()):
            slope = _slope([row[at] for row in readings])
            known = collected.get(probe)
            if not slope or (known is not None and not known.grows):
                continue
            first = readings[0][at]
            assert first is not None
            cycle = Cycle(rounds, slope, first - slope, sizes[-1] > sizes[0])
            if known is None or not cycle.grows:
                collected[probe] = cycle
            if known is None and cycle.grows and len(rounds) < LENGTH_MAX:  # perhaps a further call takes away
                waiting += [(*rounds, letter) for letter in letters]
    return collected, work


def _readings(
    walker: Walker, rounds: Sequence[Letter], probes: Sequence[Probe]
) -> tuple[list[list[int | None]], list[int]]:
    readings: list[list[int | None]] = []
    sizes: list[int] = []
    with suppress(TooManyStates):
        for _ in range(ROUNDS):
            report = walker.round(rounds)
            if report is None or report.violation is not None:
                break
            readings.append([probe.read(walker.run.backend) for probe in probes])
            sizes.append(walker.size)
    return readings, sizes


def crowd_slopes(
    make: Callable[[], ContractRun], crowd: Crowd, probes: Sequence[Probe]
) -> dict[Probe, tuple[int, int]]:
    """By how much each number grows with the size of a crowd, and what it would be in one of none."""
    readings: list[list[int | None]] = []
    run = make()
    empty = run.state
    for size in CROWDS:
        run.go_to(empty)
        walker = Walker(run)
        for given in crowd.steps(size):
            if walker.take(Wait(given) if isinstance(given, int) else Begin(*given)).violation is not None:
                return {}
        readings.append([probe.read(run.backend) for probe in probes])
    collected: dict[Probe, tuple[int, int]] = {}
    for at, probe in enumerate(probes):
        slope, first = _slope([row[at] for row in readings]), readings[0][at]
        if slope and first is not None:
            collected[probe] = slope, first - CROWDS[0] * slope
    return collected


CROWDS = (4, 5, 6)
"""Sizes of crowds by which it is seen what grows with them."""


def _slope(series: Sequence[int | None]) -> int:
    """By how much a number grows each time; 0 where it does not grow steadily."""
    steps = {b - a if a is not None and b is not None else 0 for a, b in pairwise(series)}
    slope = steps.pop() if len(steps) == 1 else 0
    return max(slope, 0)
