"""Several processes on one interpreted search, each the owner of the states that a hash gives it.

The search goes in rounds, each over a stretch of consecutive states. A worker steps the states of the stretch that it
owns; a new state goes to its owner, once from each worker, with its *key*: the number of the state that it was reached
from, and which step of it that was. The owner keeps the lowest key, which is where a search in one process would have
met the state. Workers then tell each other their keys, sorted; the rank of a key among all of them is the number of its
state. So states have the numbers that one process would have given them, whatever the number of workers, and findings,
counts, verdicts and witnesses follow. States are judged once, by their owners. What fails in a worker is left for the
searching process to do again alone, where the error is told.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orderlab.child import quiet_fork
from orderlab.model.errors import WorkerDied
from orderlab.model.spec.transition_system import (
    DEADLOCK,
    Constraint,
    Invariant,
    Sometimes,
    StepInvariant,
    TransitionSystem,
)
from orderlab.platform import resident_bytes_max

FIRST_STRETCH = 256
SHORTEST_STRETCH = 64
ROUND_S = (0.05, 0.25)
"""A round that takes less is followed by a longer stretch, one that takes more by a shorter one: what workers tell each
other costs the same for a short stretch as for a long one, and between two rounds budgets and interrupts are looked
at."""
STEPS_AT_MOST = 1 << 31
"""Out of one state: the lower half of a key."""
SENT = -1
"""In `known`, of a state that was sent to its owner, who has the number."""


@dataclass(frozen=True)
class Judges:
    """Everything that is asked of a state or a step."""

    system: TransitionSystem[Any]
    canonical: Callable[[Any], Any] | None
    invariants: Sequence[Invariant[Any]]
    step_laws: Sequence[StepInvariant[Any]]
    goals: Sequence[Sometimes[Any]]
    constraints: Sequence[Constraint[Any]]


@dataclass(frozen=True)
class Stretch:
    """The states first..last-1, to be stepped while `count` states are known. `found` names what needs no judging any
    more; `at_most` is how many states may be known afterwards, or all is as before."""

    first: int
    last: int
    count: int
    at_most: int | None
    found: frozenset[str]
    keep: bool
    """Whether the round before counts."""


@dataclass
class RoundReport:
    """What a worker has done in one round. `fired` has for each action the lowest key and how often."""

    steps: int = 0
    fired: dict[str, tuple[int, int]] = field(default_factory=dict)
    found: dict[str, int] = field(default_factory=dict)
    met: dict[str, int] = field(default_factory=dict)
    cut: list[int] = field(default_factory=list)
    new: int = 0
    """States that all workers have entered."""
    bytes_more: int = 0
    """Memory beyond what the process began with."""
    failed: bool = False
    too_many: bool = False


class Share:
    """The states of one worker, and what it does in a round.

    `known` has the number of each state that this worker owns or knew when the workers began, `SENT` for those that it
    sent away, and in a round -2 and less for the places of new ones.
    """

    def __init__(
        self, judges: Judges, rank: int, peers: Mapping[int, Connection], known: dict[Hashable, int], cut: set[int]
    ):
        self.judges = judges
        self.rank = rank
        self.peers = peers
        self.known = known
        self.cut = cut
        self._workers = len(peers) + 1
        own = [(number, state) for state, number in known.items() if self._owner(state) == rank]
        self.numbers = array("q", (number for number, _ in own))
        self.states = [state for _, state in own]
        self.parents = array("q", repeat(-1, len(own)))
        self.told = len(own)
        """How many of them the searching process has."""
        self._sent: list[Any] = []
        self._keys: list[int] = []
        self._new: list[Any] = []
        self._entered: NDArray[np.int64] = np.empty(0, np.int64)
        self._order: NDArray[np.int64] = np.empty(0, np.int64)
        self._cut: list[int] = []
        self._first = 0
        self._began_with = resident_bytes()

    def _owner(self, state: Any) -> int:
        # The lower bits of a hash may follow the structure of the state: an integer is its own hash.
        return (hash(state) * 0x9E3779B97F4A7C15 >> 40) % self._workers

    def round(self, stretch: Stretch) -> RoundReport:
        """One round with the other workers, to be kept or dropped when the next begins."""
        self.end_round(stretch.keep)
        report, self._first = RoundReport(), stretch.first
        outgoing: list[tuple[list[int], list[Any]]] = [([], []) for _ in range(self._workers)]
        try:
            self._step(stretch, report, outgoing)
            parcels = {rank: pickle.dumps(outgoing[rank], pickle.HIGHEST_PROTOCOL) for rank in self.peers}
        except Exception:
            report.failed = True
            parcels = dict.fromkeys(self.peers, b"")
        received = self._exchange(parcels)
        if report.failed or not all(received.values()):
            return RoundReport(failed=True)
        for rank in received:
            self._receive(*pickle.loads(received[rank]))
        keys = np.array(self._keys, np.int64)
        self._order = np.argsort(keys)
        keys = keys[self._order]
        others = [
            np.frombuffer(one, np.int64) for one in self._exchange(dict.fromkeys(self.peers, keys.tobytes())).values()
        ]
        report.new = len(keys) + sum(map(len, others))
        if stretch.at_most is not None and stretch.count + report.new > stretch.at_most:
            return RoundReport(too_many=True)
        self._entered = stretch.count + np.arange(len(keys), dtype=np.int64)
        for other in others:
            self._entered += np.searchsorted(other, keys)
        try:
            self._judge(stretch, report)
        except Exception:
            return RoundReport(failed=True)
        self._cut = report.cut
        report.bytes_more = resident_bytes() - self._began_with
        return report

    def _step(self, stretch: Stretch, report: RoundReport, outgoing: list[tuple[list[int], list[Any]]]) -> None:
        """Step the own states of the stretch: the search's hot loop."""
        judges, known, fired, found = self.judges, self.known, report.fired, report.found
        successors, canonical, step_laws = judges.system.successors, judges.canonical, judges.step_laws
        begin, end = bisect_left(self.numbers, stretch.first), bisect_left(self.numbers, stretch.last)
        for at in range(begin, end):
            number, state = self.numbers[at], self.states[at]
            if number in self.cut:
                continue
            key = begin_key = (number - stretch.first) * STEPS_AT_MOST
            for label, after in successors(state):
                action = label.action
                earliest, times = fired.get(action, (key, 0))
                fired[action] = earliest, times + 1
                for law in step_laws:
                    if law.name not in stretch.found and law.name not in found and not law.holds(state, label, after):
                        found[law.name] = number
                if canonical is not None:
                    after = canonical(after)
                if after not in known:
                    owner = self._owner(after)
                    if owner == self.rank:
                        known[after] = -2 - len(self._new)
                        self._keys.append(key)
                        self._new.append(after)
                    else:
                        known[after] = SENT
                        self._sent.append(after)
                        keys, states = outgoing[owner]
                        keys.append(key)
                        states.append(after)
                key += 1
            report.steps += key - begin_key
            is_judged = DEADLOCK in stretch.found or DEADLOCK in found
            if key == begin_key and not is_judged and not judges.system.is_terminal(state):
                found[DEADLOCK] = number

    def _receive(self, keys: list[int], states: list[Any]) -> None:
        for key, state in zip(keys, states, strict=True):
            place = self.known.get(state)
            if place is None:
                self.known[state] = -2 - len(self._new)
                self._keys.append(key)
                self._new.append(state)
            elif place <= -2:
                self._keys[-2 - place] = min(self._keys[-2 - place], key)

    def _judge(self, stretch: Stretch, report: RoundReport) -> None:
        judges, found = self.judges, report.found
        for place, number in zip(self._order.tolist(), self._entered.tolist(), strict=True):
            state = self._new[place]
            for law in judges.invariants:
                if law.antecedent is not None:
                    if not law.antecedent(state):
                        continue
                    report.met[law.name] = report.met.get(law.name, 0) + 1
                if law.name not in stretch.found and law.name not in found and not law.holds(state):
                    found[law.name] = number
            for goal in judges.goals:
                if goal.name not in stretch.found and goal.name not in found and goal.reached(state):
                    found[goal.name] = number
            if judges.constraints and not all(one.holds(state) for one in judges.constraints):
                report.cut.append(number)

    def end_round(self, keep: bool) -> None:
        """Enter the states of the last round under their numbers, or forget them."""
        known = self.known
        if keep:
            states = [self._new[place] for place in self._order]
            numbers = self._entered.tolist()
            known.update(zip(states, numbers, strict=True))
            sources = np.array(self._keys, np.int64)[self._order] // STEPS_AT_MOST + self._first
            self.states += states
            self.numbers.extend(numbers)
            self.parents.extend(sources.tolist())
            self.cut.update(self._cut)
        else:
            for state in (*self._new, *self._sent):
                del known[state]
        self._new, self._keys, self._sent, self._cut = [], [], [], []
        self._order = self._entered = np.empty(0, np.int64)

    def untold(self) -> tuple[array[int], array[int], list[Any]]:
        """Numbers, parents and states that the searching process does not have yet."""
        at, self.told = self.told, len(self.states)
        return self.numbers[at:], self.parents[at:], self.states[at:]

    def _exchange(self, parcels: Mapping[int, bytes]) -> dict[int, bytes]:
        """Give each other worker its parcel and take theirs. Of two, the lower one sends first and all go through the
        others in the same order, so that no circle waits."""
        received = {}
        for rank, pipe in self.peers.items():
            if self.rank < rank:
                pipe.send_bytes(parcels[rank])
                received[rank] = pipe.recv_bytes()
            else:
                received[rank] = pipe.recv_bytes()
                pipe.send_bytes(parcels[rank])
        return received


def _serve(share: Share, pipe: Connection, others: Sequence[Connection]) -> None:
    """Take part in rounds until the searching process closes its end. Ctrl-C is the searching process's to hear."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in others:
        other.close()
    try:
        while True:
            asked = pipe.recv()
            if isinstance(asked, Stretch):
                pipe.send(share.round(asked))
            else:
                share.end_round(asked)
                pipe.send(share.untold())
    except (EOFError, OSError):
        return


class Workers:
    """The searching process and those that it shares with. It is worker 1 itself."""

    def __init__(self, judges: Judges, workers: int, known: dict[Hashable, int], cut: set[int]):
        context = multiprocessing.get_context("fork")
        pipes: list[dict[int, Connection]] = [{} for _ in range(workers)]
        for low in range(workers):
            for high in range(low + 1, workers):
                pipes[low][high], pipes[high][low] = context.Pipe()
        self._processes: list[BaseProcess] = []
        for rank in range(1, workers):
            # Each keeps its own ends alone, so that all hear when one of them ends.
            others = [pipe for one in pipes if one is not pipes[rank] for pipe in one.values()]
            share = Share(judges, rank, pipes[rank], known, cut)
            process = context.Process(target=_serve, args=(share, pipes[rank][0], others), daemon=True)
            with quiet_fork():
                process.start()
            self._processes.append(process)
        for one in pipes[1:]:
            for pipe in one.values():
                pipe.close()
        self._pipes = pipes[0]
        self._share = Share(judges, 0, pipes[0], known, cut)
        self.size = workers
        self._keep = True
        self._stretch = FIRST_STRETCH

    def round(
        self, first: int, last: int, count: int, at_most: int | None, found: Mapping[str, int]
    ) -> tuple[int, list[RoundReport]]:
        """Step states from `first` on, at most up to `last`: where the round ended, and what the workers report.

        A round after which more than `at_most` states were known is repeated with the shortest stretch, whatever comes
        of that. No reports: something failed, and all is as before.
        """
        last = min(last, first + self._stretch)
        begun_s = time.monotonic()
        reports = self._all(Stretch(first, last, count, at_most, frozenset(found), self._keep))
        self._keep = not any(one.failed or one.too_many for one in reports)
        if any(one.too_many for one in reports):
            self._stretch = SHORTEST_STRETCH
            last = min(last, first + SHORTEST_STRETCH)
            reports = self._all(Stretch(first, last, count, None, frozenset(found), False))
            self._keep = not any(one.failed for one in reports)
        elif last - first == self._stretch:
            took_s = time.monotonic() - begun_s
            if took_s < ROUND_S[0]:
                self._stretch *= 2
            elif took_s > ROUND_S[1]:
                self._stretch = max(SHORTEST_STRETCH, self._stretch // 2)
        return (last, reports) if self._keep else (first, [])

    def _all(self, stretch: Stretch) -> list[RoundReport]:
        for pipe in self._pipes.values():
            self._talk(lambda p=pipe: p.send(stretch))  # type: ignore[misc]
        own: RoundReport = self._talk(lambda: self._share.round(stretch))
        return [own, *(self._talk(pipe.recv) for pipe in self._pipes.values())]

    def gathered(self) -> list[tuple[array[int], array[int], list[Any]]]:
        """Numbers, parents and states of each worker that were not told before."""
        for pipe in self._pipes.values():
            self._talk(lambda p=pipe: p.send(self._keep))  # type: ignore[misc]
        self._share.end_round(self._keep)
        self._keep = True
        return [self._share.untold(), *(self._talk(pipe.recv) for pipe in self._pipes.values())]

    def _talk(self, how: Callable[[], Any]) -> Any:
        try:
            return how()
        except (EOFError, OSError):
            ended = [self._code(process) for process in self._processes]
            rank = next((rank for rank, code in enumerate(ended) if code), 0)
            raise WorkerDied(
                f"worker {rank + 2} of the search ended with exit code {ended[rank]}: killed, or out of memory;"
                " give less --workers"
            ) from None

    @staticmethod
    def _code(process: BaseProcess) -> int | None:
        process.join(1)
        return process.exitcode

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes.values():
            pipe.close()
        for process in self._processes:
            process.join(1)
            if process.is_alive():
                process.terminate()


def travels(state: Any) -> bool:
    """Whether a state is the same after a journey to another process."""
    try:
        other = pickle.loads(pickle.dumps(state, pickle.HIGHEST_PROTOCOL))
        return bool(other == state) and hash(other) == hash(state)
    except Exception:
        return False


def resident_bytes() -> int:
    """Memory that this process holds now; where the system does not tell, the most that it ever held."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * 4096
    return resident_bytes_max()
