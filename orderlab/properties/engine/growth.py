"""Whether a store grows while its contract's state does not: what its keys hold, and the calls of one operation.

Rounds of the calls that the contract finds worth trying are carried out, and after each the store is left alone until
time changes nothing any more. What is left of operations then is what the contract's state says; a store that holds a
byte more with every round, and goes on so, leaves something behind.

The names that clients choose come again in some contracts and never in others. Most clients stay, and one goes after
every second round: another comes in its place, under a new number and with nothing seen, so that all that it names is
new.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from typing import NamedTuple

from orderlab.model.contracts.base import Call, Discrepancy, Exchange
from orderlab.model.contracts.client_steps import Begin, ClientStep, Die, Wait
from orderlab.model.contracts.judge import TooManyStates
from orderlab.model.errors import InputError
from orderlab.properties.engine.run import ClientState, ContractRun, Report
from orderlab.properties.engine.search import moments
from orderlab.properties.engine.witness import told_report
from orderlab.properties.harness.keyspace import bytes_in
from orderlab.properties.harness.recording import REMOVING
from orderlab.sim.redis.shard import Effect, FrozenKeyspace
from orderlab.sim.stores.records import Record, record_of

ROUNDS = ((12, 28), (104, 124, 144))
"""When a store is measured, at first and to be sure: what keeps the last hundred of something stops before."""
NUMBER = re.compile(rb"(?<!\d)\d{1,20}(?!\d)")
"""Digits that are one number; a longer row of them are many, appended."""
SEEN_MAX = 24
"""Replies that a client remembers: the calls that it finds worth trying shall not grow more with every round."""
CALLS_MAX = 24
"""Of one client in one round."""
ROOM = 10
"""By how much the contract's state may grow: what only adds to it would leave no room for what takes away."""
ROOM_LEFT = 2
"""Of it to who came last alone: those who stay would use up all of it with what they name again and again."""
POSSIBLE_MAX = 5_000
"""States of the contract that were possible besides one, each time that they were measured: a budget of the rounds."""
DRAINS_MAX = 12
"""Rounds until nothing is left, or no less after two."""
RESTS_MAX = 8
"""Waits until time changes nothing any more."""
STAYING_MAX = 6
"""Steps of a round after which a key may be seen to stay."""
SILENCE_MS = 400 * 24 * 3600 * 1000
"""What a store keeps no longer than this is kept for a while."""
ONLY_REMOVING = REMOVING - {b"set"} | {b"xdel", b"persist"}
STREAM_NODE = 100
"""Entries that a stream keeps together (``stream-node-max-entries``): MAXLEN ~ drops no fewer."""


class Measured(NamedTuple):
    """One moment at rest."""

    rounds: int
    size: int
    """Of the contract's state."""
    bytes_by_key: dict[bytes, int]
    calls: dict[str, int]
    """The most Redis calls of one operation in the last round, by its name."""

    @property
    def total(self) -> int:
        return sum(self.bytes_by_key.values())

    def without(self, keys: Set[bytes]) -> Measured:
        """All but these keys."""
        return self._replace(bytes_by_key={key: size for key, size in self.bytes_by_key.items() if key not in keys})


class Writer(NamedTuple):
    """Who changed a key last."""

    operation: str
    effect: Effect
    caller: bytes


@dataclass
class Trimming:
    """What operations do to one key: whether each that may add to it also trims it, and to how many things."""

    caps: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))
    """Before the first measurement, and after it."""
    is_always: bool = True

    @property
    def is_capped(self) -> bool:
        """Whether it cannot grow for ever: its number has a bound, which does not grow."""
        before, after = self.caps
        return self.is_always and bool(after) and after <= before


def cap_of(argv: Sequence[bytes]) -> int | None:
    """To how many things a command trims its key, whatever else it does to it; None where it does not."""
    name, words = argv[0].lower(), [one.lower() for one in argv[2:]]
    try:
        if name in (b"xadd", b"xtrim"):
            words = words[words[0] == b"nomkstream" :]  # the options stand first, then identifier and fields
            is_near = words[1] == b"~"
            bound, *limit = words[1 + (words[1] in (b"~", b"=")) :]
            if words[0] != b"maxlen" or (is_near and limit[:1] == [b"limit"] and 0 < int(limit[1]) < STREAM_NODE):
                return None  # of what is near, a node goes as a whole or not at all
            return int(bound)
        if name == b"ltrim":
            start, stop = int(words[0]), int(words[1])
            things = -start if start < 0 and stop == -1 else stop - start + 1 if start >= 0 and stop >= 0 else None
            return None if things is None else max(things, 0)
        if name == b"zremrangebyrank":
            start, stop = int(words[0]), int(words[1])
            things = -stop - 1 if start == 0 and stop < 0 else start if start >= 0 and stop == -1 else None
            return things
    except (ValueError, IndexError):
        pass
    return None


class Noted(NamedTuple):
    """One step of the first round, for the story."""

    step: ClientStep
    told: str
    """What it did, in words."""
    states: str
    keyspace: FrozenKeyspace


@dataclass(frozen=True)
class Growth:
    """What grows though the contract's state does not."""

    tested: int = 0
    """Intervals that were compared."""
    keys: str = ""
    """Of what the keys hold; empty when nothing does."""
    calls: str = ""
    """Of the calls of one operation."""
    why_not: str = ""
    """Why nothing could be compared."""
    is_of_contract: bool = False
    """Because the contract's state itself grows, so that the law says nothing about this store."""
    round: tuple[Noted, ...] = ()
    """What one round is, if something grows."""
    before: FrozenKeyspace = field(default_factory=dict)
    after: FrozenKeyspace = field(default_factory=dict)
    """The keys when they were measured first and last."""
    capped: tuple[str, ...] = ()
    """Keys that grew, but that whoever writes to them keeps within a bound of its own."""
    writer: Writer | None = None
    """Of the key that grows most."""
    broken: tuple[tuple[ClientStep, ...], tuple[Discrepancy, ...]] | None = None
    """All steps up to one that breaks another law, and how it does."""


def measure(make: Callable[[], ContractRun], is_over: Callable[[], bool]) -> Growth:
    """Take the rounds and compare. Nothing is said of the growth of a store that breaks another law on the way. Where
    nothing can be compared because of things that lapse, each is ended in its round; where it cannot because of clients
    that come and go, or the contract knows no more clients than it says, all stay."""
    found = Growth(why_not="the contract leaves so much open on the way that more states explain it than are kept")
    for are_staying, is_lapsing in product((False, True), (True, False)):
        with suppress(TooManyStates, *(() if are_staying else (InputError,))):
            found = _measured(make, is_over, are_staying, is_lapsing)
            if found.tested or found.broken is not None:
                break
    return found if found.keys or found.broken is not None else _with_staying(found, make)


def _with_staying(found: Growth, make: Callable[[], ContractRun]) -> Growth:
    """With a key that stays for ever where the contract's state needs none, after as few of a round's steps as that
    takes."""
    whole = Rounds(make())
    needs_nothing = whole.run.judge.asked.contract.needs_nothing
    if not all(map(needs_nothing, whole.run.judge.states())) or whole.take() is None:
        return found
    for length in range(1, min(len(whole.steps), STAYING_MAX) + 1):
        rounds = Rounds(make())
        for step in (*whole.steps[:length], Wait(SILENCE_MS)):
            before = rounds.run.backend.keyspace()
            rounds.perform(step)
        after = rounds.run.backend.keyspace()
        stays = min((key for key, (_, _, deadline_ms) in after.items() if deadline_ms is None), default=None)
        if stays is not None and all(map(needs_nothing, rounds.run.judge.states())):
            text = f"{stays.decode('latin-1')} has no deadline and stays for ever, though all that it was for is over"
            writer, story = whole.writers.get(stays), tuple(rounds.first)
            return replace(
                found, tested=found.tested + 1, keys=text, writer=writer, round=story, before=before, after=after
            )
    return replace(found, tested=found.tested + 1)


def _measured(
    make: Callable[[], ContractRun], is_over: Callable[[], bool], are_staying: bool, is_lapsing: bool
) -> Growth:
    found = Growth()
    for rounds in ROUNDS:
        found = _compared(Rounds(make(), are_staying), rounds, is_over, is_lapsing)
        if not (found.keys or found.calls):
            break  # what seemed to grow has stopped
    return found


def _compared(rounds: Rounds, checkpoints: tuple[int, ...], is_over: Callable[[], bool], is_lapsing: bool) -> Growth:
    measured: list[Measured] = []
    keyspaces: list[FrozenKeyspace] = []
    for number in range(1, checkpoints[-1] + 1):
        if number % 2 == 1:
            rounds.exchange_client()
        rounds.is_second = number % 2 == 0
        rounds.is_lapsing = is_lapsing and not rounds.is_second  # all are ended in those that are measured
        if is_over():
            return Growth(why_not="the cap on the time was reached")
        calls = rounds.take()
        if calls is None:
            return Growth(why_not="another law is broken on the way", broken=rounds.broken)
        if number in checkpoints:
            if not rounds.drain():
                return Growth(why_not="another law is broken on the way", broken=rounds.broken)
            keyspaces.append(rounds.run.backend.keyspace())
            measured.append(Measured(number, rounds.size, _bytes_of(keyspaces[-1]), calls))
            rounds.is_later = True
    start, end = measured[0], measured[-1]
    if end.size > start.size or (rounds.left_out and not rounds.grew):
        return Growth(why_not="the contract's state grows as well", is_of_contract=True)
    found = Growth(len(measured) - 1, before=keyspaces[0], after=keyspaces[-1], round=tuple(rounds.first))
    told = f"after {end.rounds} rounds of what clients do, each left to rest; after {start.rounds} it was"
    no_larger = "; the contract's state is no larger"
    capped = {key for key in start.bytes_by_key if key in rounds.trimmings and rounds.trimmings[key].is_capped}
    measured = [one.without(capped) for one in measured]
    start, end = measured[0], measured[-1]
    grew = sorted(
        key.decode("latin-1")
        for key in capped
        if _bytes_of(keyspaces[-1]).get(key, 0) > _bytes_of(keyspaces[0]).get(key, 0)
    )
    found = replace(found, capped=tuple(grew))
    if all(later.total - earlier.total >= later.rounds - earlier.rounds for earlier, later in pairwise(measured)):
        key = max(end.bytes_by_key, key=lambda one: (end.bytes_by_key[one] - start.bytes_by_key.get(one, 0), one))
        size = f"{end.total:,} bytes in {len(end.bytes_by_key):,} keys"
        text = (
            f"the store holds {size} {told} {start.total:,} in {len(start.bytes_by_key):,}{no_larger}; most in "
            f"{key.decode('latin-1')}"
        )
        found = replace(found, keys=text, writer=rounds.writers.get(key))
    if found.keys and _is_cleared_in_time(rounds, start.total, capped):
        found = replace(found, keys="", writer=None)
    for name, most in end.calls.items():
        series = [(one.rounds, one.calls.get(name, most)) for one in measured]
        if all(later[1] - earlier[1] >= later[0] - earlier[0] for earlier, later in pairwise(series)):
            found = replace(found, calls=f"{name} makes {most:,} Redis calls {told} {series[0][1]:,}{no_larger}")
    return found


@dataclass
class Rounds:
    """The rounds that a store is taken through, and what is seen of its keys on the way."""

    run: ContractRun
    are_staying: bool = False
    """Whether no client goes."""
    came: int = 0
    """Clients that came in the place of one that went."""
    is_second: bool = False
    """Whether it is the second round of the one that came last, which has the first turn in it."""
    is_draining: bool = False
    """Whether nothing comes in this round."""
    is_later: bool = False
    """Whether the first measurement is over."""
    writers: dict[bytes, Writer] = field(default_factory=dict)
    trimmings: dict[bytes, Trimming] = field(default_factory=lambda: defaultdict(Trimming))
    first: list[Noted] = field(default_factory=list)
    """The steps of the first round."""
    is_first: bool = True
    is_lapsing: bool = False
    """Nothing is ended in this round, so that time has something to end."""
    steps: list[ClientStep] = field(default_factory=list)
    broken: tuple[tuple[ClientStep, ...], tuple[Discrepancy, ...]] | None = None
    """All steps up to one that breaks a law, and how it does."""
    grew: int = 0
    """Calls with which the contract's state grew, since the first measurement."""
    possible: int = 0
    """States of the contract that were possible besides one, each time that they were measured."""
    left_out: int = 0
    """Calls that were not made, since the state would have grown beyond its room."""

    def __post_init__(self) -> None:
        self.room = self.size + ROOM

    @property
    def size(self) -> int:
        """Of the contract's state. Raises TooManyStates where so many are possible that rounds would not end."""
        states = self.run.judge.states()
        self.possible += len(states) - 1
        if self.possible > POSSIBLE_MAX:
            raise TooManyStates("more states explain the rounds than are followed")
        return max(map(self.run.judge.asked.size, states))

    def exchange_client(self) -> None:
        """Let the last client go, and another come, unless the contract needs it."""
        if self.is_one_spare and not self.are_staying:
            self.run.clients[-1] = ClientState()
            self.came += 1

    @property
    def is_one_spare(self) -> bool:
        """Whether there is a client more than the contract is about."""
        return len(self.run.clients) > self.run.judge.asked.contract.clients

    def drain(self) -> bool:
        """Take rounds in which nothing comes, until nothing goes any more either: what is left of things that are there
        would hide what is left of those that were. Whether no reply breaks a law."""
        self.is_draining, left = True, [self.size]
        while len(left) <= DRAINS_MAX and left[-1] > 0 and (len(left) <= 2 or left[-1] < left[-3]):
            if self.take() is None:
                return False
            left.append(self.size)
        self.is_draining = False
        return True

    def is_staying(self, number: int) -> bool:
        return not self.came or number < len(self.run.clients) - 1

    def who(self, number: int) -> int:
        """The client of that place: one that came has a number of its own."""
        return number if self.is_staying(number) else number + self.came

    def take(self) -> dict[str, int] | None:
        """One round: what every client finds worth trying, with what the replies lead to, then rest. The most
        Redis calls of each operation, or None when a reply breaks a law."""
        run, most = self.run, dict[str, int]()
        turns = [*range(len(run.clients) - (self.is_one_spare and self.are_staying))]
        if self.came and self.is_second:  # others may take all that there is
            turns = [turns[-1], *turns[:-1]]
        for number in turns:
            run.clients[number] = run.clients[number]._replace(seen=_remembered(run.clients[number].seen))
            made: Counter[Call | str] = Counter()
            for _ in range(CALLS_MAX):
                worth_trying = run.judge.asked.calls(self.who(number), run.clients[number].seen)
                call = _untried(worth_trying, made, 1 + self.is_draining)
                if call is None:
                    break
                made.update((call, call.name))
                effects = self._call(number, call)
                if effects is None:
                    return None
                record = record_of(call.name, b"", effects)
                most[call.name] = max(most.get(call.name, 0), len(record.calls))
                self._note(record)
        for _ in range(RESTS_MAX):
            waits = moments(run)
            if not waits:
                break
            self.perform(Wait(waits[-1]))
        self.is_first = False
        return most

    def perform(self, step: ClientStep) -> Report:
        report = self.run.perform(step)
        self.steps.append(step if isinstance(step, Wait) else replace(step, client=self.who(step.client)))
        if report.violation is not None:
            self.broken = tuple(self.steps), tuple(report.discrepancies)
        if self.is_first:
            states = (
                "; ".join(sorted(map(repr, self.run.judge.states())))
                if report.violation is None
                else "none explains the reply"
            )
            self.first.append(Noted(step, told_report(step, report), states, self.run.backend.keyspace()))
        return report

    def _call(self, number: int, call: Call) -> list[Effect] | None:
        """What an operation called; None when its reply breaks a law. One that makes a full state grow is taken
        back, and where things shall lapse one that ends any."""
        size, noted, taken = self.size, len(self.first), len(self.steps)
        is_full = size >= self.room - ROOM_LEFT * self.is_staying(number)
        before = self.run.state if is_full or self.is_lapsing or self.is_draining else None
        effects = self.run.carry_out(Begin(number, call), perform=self.perform).effects
        if self.run.clients[number].waits is not None:  # nobody else comes who might end the wait
            self.perform(Die(number))
        if self.broken is not None:
            return None
        if before is not None and (
            is_full or self.is_draining if self.size > size else self.is_lapsing and self.size < size
        ):
            self.run.go_to(before)
            self.left_out += is_full and not self.is_draining
            del self.first[noted:], self.steps[taken:]
            return []
        self.grew += self.size > size and self.is_later
        return effects

    def _note(self, record: Record) -> None:
        for effect, caller in zip(record.calls, record.callers, strict=True):
            for key in effect.keys if effect.changes else ():
                self.writers[key] = Writer(record.operation, effect, caller)
        caps = [(effect, cap_of(effect.argv)) for effect in record.calls]
        trimmed = {
            key for effect, cap in caps if cap is not None and effect.argv[0].lower() != b"xadd" for key in effect.keys
        }
        for effect, cap in caps:
            for key in effect.keys:
                if cap is not None:
                    self.trimmings[key].caps[self.is_later].add(cap)
                elif effect.changes and key not in trimmed and effect.argv[0].lower() not in ONLY_REMOVING:
                    self.trimmings[key].is_always = False


def _remembered(seen: Sequence[Exchange]) -> tuple[Exchange, ...]:
    """The last that a client has seen, and of each other operation the last: what it named is not to be named anew."""
    recent = seen[-SEEN_MAX:]
    last = {one.call.name: one for one in seen}
    return (*(one for one in last.values() if one not in recent), *recent)


def _untried(calls: Iterable[Call], made: Counter[Call | str], times: int) -> Call | None:
    """Of those that were not made so many times, the first of the operation that was called least."""
    return min((call for call in calls if made[call] < times), key=lambda one: made[one.name], default=None)


def _is_cleared_in_time(rounds: Rounds, size: int, capped: Set[bytes]) -> bool:
    """Whether what is old goes as time passes, when a script comes by: then it is kept for a while, not left behind."""
    if rounds.run.perform(Wait(SILENCE_MS)).violation is not None or rounds.take() is None:
        return False
    return sum(taken for key, taken in _bytes_of(rounds.run.backend.keyspace()).items() if key not in capped) <= size


def _bytes_of(keyspace: FrozenKeyspace) -> dict[bytes, int]:
    """Bytes of each key, its name included; an element counts one more, for it may be empty.

    A number counts as one digit: what keeps the last hundred tokens takes more and more bytes as these get another one.
    """
    return {
        key: len(key) + sum(len(NUMBER.sub(b"0", one)) + 1 for one in bytes_in(value))
        for key, (_, value, _) in keyspace.items()
    }
