"""The calls of a trace as a real server can be sent them, with what it should reply: what the pytest file and the
script have in common.

The kernel takes the steps three times: as they are, a day later, and with every call taking a few milliseconds. What
moves with the day is a moment, and is written as an offset from the beginning; what changes with the milliseconds is a
time that is left, and is compared with some slack; if anything else changes, the witness hinges on the clock, and the
export says so.

Time passes by waiting where all waits together are short, else by moving the deadlines that Redis keeps. A condition of
the node is entered by the commands of ``error_conditions``; a call that a crash, a kill or a busy node kept from having
any effect is not sent; what no command can bring about is put in place afterwards, key by key, and told.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orderlab.model.contracts.base import AnyTrace
from orderlab.model.errors import InputError
from orderlab.properties.contracts.kind import Kind
from orderlab.properties.export.transcript import (
    CRASHED,
    NOTED_MAX,
    STOPPED,
    Argv,
    Move,
    SentCall,
    Transcript,
    commands_between,
    recorded,
    transcript_of_store,
)
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.redis.backends.backend import FIRST_MS
from orderlab.sim.redis.backends.dump import reader_of
from orderlab.sim.redis.blocking import Waiting
from orderlab.sim.redis.database import DatabaseKey
from orderlab.sim.redis.error_conditions import CONDITIONS
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.stores.binding.binding import Binding

LONGEST_WAIT_MS = 5_000
"""All waits together, up to which an export really waits."""
DAY_MS = 86_400_000
ALIGNMENTS_MS = (1, 1_000, 60_000, DAY_MS)
"""What the clock of the beginning has to be a multiple of, where the steps depend on it: windows of a second, a minute,
a day."""
DRIFT_MS = 3
LATE_MS = 100
WRONG_TYPE = "wrong-type"
BY_NAME = {condition.name: condition for condition in CONDITIONS}


class Elapsed(NamedTuple):
    """So many ms after the beginning, written in ``unit``: ``ms``, ``s`` or ``us``; or ``deadline``, as Redis keeps it:
    in ms, nearer by what was not waited for."""

    offset_ms: int
    unit: str = "ms"


class Left(NamedTuple):
    """A number that depends on how long the steps take: about this."""

    value: int


class Unknown(NamedTuple):
    """What is not compared."""


class Text(NamedTuple):
    """Bytes with moments in them: ``bytes``, ``Elapsed``, ``Left`` or ``Unknown`` in turn."""

    parts: tuple[Any, ...]


Woven = Any
"""A reply as values: ``bytes | int | None | ErrorReply | list[Woven] | Text | Moment | Left | Unknown``."""


class TimePasses(NamedTuple):
    """Time passes."""

    ms: int


class Put(NamedTuple):
    """Commands whose replies do not matter: a foreign value, keys that are put in place."""

    commands: tuple[tuple[Woven, ...], ...]
    why: str = ""


class StoreCall(NamedTuple):
    """A call of the store: what is sent, what should come back."""

    argv: tuple[Woven, ...]
    reply: Woven
    enter: tuple[Argv, ...] = ()
    """Commands before it that bring the node into the condition that it meets, and back."""
    leave: tuple[Argv, ...] = ()
    connection: int = 0
    """See ``SentCall``."""


class LeftOut(NamedTuple):
    """A call that is not sent, for it had no effect."""

    argv: Argv
    why: str


class Held(NamedTuple):
    """A key as it should be: type, what its reader replies (sets and hashes sorted), deadline as an offset or None."""

    kind: str
    value: Woven
    deadline: Elapsed | None


Act = TimePasses | Put | StoreCall | LeftOut


@dataclass(frozen=True)
class ReplayedStep:
    """A step: what is done, and the keys after it."""

    number: int
    move: Move
    acts: tuple[Act, ...]
    keys: dict[bytes, Held]


@dataclass(frozen=True)
class Plan:
    """All steps, and what a reader has to know of them."""

    transcript: Transcript
    steps: tuple[ReplayedStep, ...]
    notes: list[str] = field(default_factory=list)
    align_ms: int = 1
    sleeps: bool = True
    late_ms: int = LATE_MS
    """By how much the steps may come late before a difference is put down to that."""


SENT_AT_ONCE = 1000
"""Calls that take no longer than the slack that steps have."""


def plan_of(kind: Kind, trace: AnyTrace, binding: Binding) -> Plan:
    """What to send a server. Raises InputError where the trace cannot be taken on the kernel."""
    plain = _moves(kind, trace, binding, FIRST_MS, 0)
    slower = _moves(kind, trace, binding, FIRST_MS, DRIFT_MS)
    align_ms, later, delta_ms = _aligned(lambda ms: _moves(kind, trace, binding, FIRST_MS + ms, 0), plain)
    transcript = transcript_of_store(trace, binding, plain)
    notes: list[str] = []
    late_ms = LATE_MS
    if align_ms > 1:
        notes.append(f"the steps depend on the clock: they begin when it shows a whole {_period(align_ms)}")
    if not _alike(plain, slower, by_laws=False):  # a judge without slack minds the milliseconds themselves
        notes.append("the steps hinge on single milliseconds: a server that takes its time may not show the same")
        slower = plain
        late_ms = 0
    total_ms = sum(move.passed_ms + sum(call.passed_ms for call in move.calls) for move in plain)
    sleeps = total_ms <= LONGEST_WAIT_MS
    if total_ms and sleeps:
        notes.append(f"time passes by waiting: {total_ms:,} ms in all")
    elif total_ms:
        notes.append(
            f"{total_ms:,} ms pass by moving the deadlines of keys; a script that asks for TIME does not see that"
        )
    sent = sum(len(move.calls) for move in plain)
    if sent > SENT_AT_ONCE and any(
        deadline_ms is not None for move in plain for _, _, deadline_ms in move.keys.values()
    ):
        notes.append(
            f"{sent:,} calls take a server seconds, and redis-cli a process each: deadlines of keys come nearer "
            "meanwhile, and what shows too late is told as late"
        )
    weaver = _Weaver(delta_ms)
    moves = zip(plain, later, slower, strict=True)
    steps = tuple(_step(number, *three, weaver, notes) for number, three in enumerate(moves))
    return Plan(transcript, steps, list(dict.fromkeys([*notes, *weaver.notes])), align_ms, sleeps, late_ms)


def _moves(kind: Kind, trace: AnyTrace, binding: Binding, start_ms: int, drift_ms: int) -> list[Move]:
    if binding.tables is not None:
        raise InputError(f"{binding.place}: its operations are transactions of PostgreSQL, and no calls for redis-cli")
    return list(recorded(kind, trace, binding, KernelBackend(start_ms, binding.server), drift_ms))


def _period(ms: int) -> str:
    return {1_000: "second", 60_000: "minute", DAY_MS: "day"}[ms]


def _aligned(again: Callable[[int], list[Move]], plain: list[Move]) -> tuple[int, list[Move], int]:
    """The finest alignment of the clock under which a later beginning does the same; and that run, and how much
    later."""
    is_long = any(move.call_count > NOTED_MAX for move in plain)
    for align_ms in ALIGNMENTS_MS[:: len(ALIGNMENTS_MS) - 1] if is_long else ALIGNMENTS_MS:
        delta_ms = DAY_MS + (align_ms * 7_919 if align_ms < DAY_MS else 0)
        later = again(delta_ms)
        if _alike(plain, later):
            return align_ms, later, delta_ms
    return 1, plain, 0


def _alike(some: Sequence[Move], others: Sequence[Move], by_laws: bool = True) -> bool:
    """Whether two runs made the same kinds of calls, left the same keys, and broke the same laws."""
    return len(some) == len(others) and all(
        (not by_laws or [law for law, _ in one.broken] == [law for law, _ in other.broken])
        and one.call_count == other.call_count
        and all(map(_same_shape, one.calls, other.calls))
        and {key: value[0] for key, value in one.keys.items()} == {key: value[0] for key, value in other.keys.items()}
        for one, other in zip(some, others, strict=True)
    )


def _same_shape(one: SentCall, other: SentCall) -> bool:
    """Whether the same script was called, and an error replied by both or neither."""
    return one.argv[:2] == other.argv[:2] and isinstance(one.reply, ErrorReply) == isinstance(other.reply, ErrorReply)


# -- one step
# --------------------------------------------------------------------------------------------------------------


def _step(number: int, plain: Move, later: Move, slower: Move, weaver: _Weaver, notes: list[str]) -> ReplayedStep:
    acts: list[Act] = []
    if plain.call_count > NOTED_MAX:
        why = f"step {number} makes {plain.call_count:,} calls; the keys after it are put in place instead"
        notes.append(why)
        acts.append(_put(_anew(plain), _anew(later), weaver, why))
    else:
        for three in zip(plain.calls, later.calls, slower.calls, strict=True):
            acts += _acts(number, three, weaver, notes)
        if plain.passed_ms:
            acts.append(TimePasses(plain.passed_ms))
        if plain.placed:
            acts.append(_put(plain.placed, later.placed, weaver, "what was there comes back"))
    keys = _held(plain.keys, later.keys, slower.keys, weaver)
    if any(kind == "stream" for kind, _, _ in plain.keys.values()):
        notes.append("of streams the entries are compared, not the groups")
    if any(isinstance(name, DatabaseKey) for name in plain.keys):
        notes.append("keys of other databases than 0 are not compared")
    return ReplayedStep(number, plain, tuple(acts), keys)


def _anew(move: Move) -> tuple[Argv, ...]:
    """Commands that put all keys after a step in place."""
    return ((b"FLUSHDB",), *commands_between({}, move.keys))


def _put(commands: Sequence[Argv], later: Sequence[Argv], weaver: _Weaver, why: str) -> Put:
    """The commands with moments, and deadlines, on the server's clock. ``later``: those of the run that began later."""
    alike = [len(one) for one in commands] == [len(one) for one in later]
    woven: list[tuple[Woven, ...]] = []
    for argv, other in zip(commands, later if alike else commands, strict=True):
        if argv[0] == b"PEXPIREAT":
            woven.append((*argv[:2], Text((Elapsed(int(argv[2]) - FIRST_MS, "deadline"),))))
        else:
            woven.append(tuple(weaver.argument(one, another, one) for one, another in zip(argv, other, strict=True)))
    return Put(tuple(woven), why)


def _acts(number: int, three: tuple[SentCall, SentCall, SentCall], weaver: _Weaver, notes: list[str]) -> Iterator[Act]:
    """What is done for one call. Raises InputError where a client waits."""
    call, later, slower = three
    if isinstance(call.reply, Waiting):
        raise InputError(
            f"step {number}: {call.argv[0].decode()} waits for another client, which no exported file can; export "
            "svg, mermaid or states"
        )
    if call.passed_ms:
        yield TimePasses(call.passed_ms)
    if call.placed:
        yield _put(call.placed, later.placed, weaver, "something else writes under a key")
    if call.ended == STOPPED:
        notes.append(
            f"step {number}: a script was stopped at the limits of the sandbox; a server would run it until SCRIPT "
            "KILL, so it is not sent"
        )
        yield LeftOut(call.argv, "it does not end")
        yield from _in_place(call, later, weaver)
        return
    condition = BY_NAME.get(call.condition)
    if condition is not None and condition.name == "killed" and b"killed" not in getattr(call.reply, "message", b""):
        condition = None  # it ended before the call at which it would have been killed
    if condition is None or condition.enter:
        argv = tuple(weaver.argument(*parts) for parts in zip(call.argv, later.argv, slower.argv, strict=False))
        reply = weaver.weave(call.reply, later.reply, slower.reply)
        yield StoreCall(
            argv, reply, *((condition.enter, condition.leave) if condition is not None else ((), ())), call.connection
        )
        if condition is not None:
            notes.append(
                f"step {number}: {condition.name} is brought about by "
                f"{' '.join(b' '.join(condition.enter[-1]).decode().split())}"
            )
        return
    if call.before == call.after:
        notes.append(f"step {number}: {condition.name} keeps the call from having any effect, so it is not sent")
        yield LeftOut(call.argv, condition.meaning)
        return
    name = CRASHED if call.ended == CRASHED else condition.name
    notes.append(
        f"step {number}: no command brings a server that runs alone into {name}; what the call left behind is put "
        "in place"
    )
    yield LeftOut(call.argv, condition.meaning)
    yield from _in_place(call, later, weaver)


def digest_of(argv: Sequence[Woven]) -> bytes:
    """Of the script that a command runs; empty if it runs none."""
    name = argv[0].lower() if isinstance(argv[0], bytes) else b""
    if len(argv) < 2 or not isinstance(argv[1], bytes):
        return b""
    return {b"evalsha": argv[1], b"evalsha_ro": argv[1], b"eval": hashlib.sha1(argv[1]).hexdigest().encode()}.get(
        name, b""
    )


def _in_place(call: SentCall, later: SentCall, weaver: _Weaver) -> Iterator[Put]:
    commands = commands_between(call.before, call.after)
    if commands:
        yield _put(commands, commands_between(later.before, later.after), weaver, "what it left behind, put in place")


def _held(plain: FrozenKeyspace, later: FrozenKeyspace, slower: FrozenKeyspace, weaver: _Weaver) -> dict[bytes, Held]:
    found = {}
    read, read_later, read_slower = (_read(one) for one in (plain, later, slower))
    for name in sorted(plain):
        if isinstance(name, DatabaseKey):
            continue
        kind, _, deadline_ms = plain[name]
        value = weaver.weave(read[name], read_later.get(name), read_slower.get(name))
        found[name] = Held(kind, value, None if deadline_ms is None else Elapsed(deadline_ms - FIRST_MS, "deadline"))
    return found


def _read(keyspace: FrozenKeyspace) -> dict[bytes, Any]:
    """What the reader of each key replies; pairs of hashes and members of sets sorted."""
    backend = KernelBackend(0)
    backend.load(
        {name: (kind, value, None) for name, (kind, value, _) in keyspace.items() if not isinstance(name, DatabaseKey)}
    )
    found = {}
    for name, (kind, _, _) in keyspace.items():
        if isinstance(name, DatabaseKey):
            continue
        found[name] = in_order(kind, backend.execute(*reader_for(kind, name)))
    return found


def reader_for(kind: str, name: bytes) -> Argv:
    """The command that an export reads a key with: of a stream its entries, for groups tell when they were last heard
    of."""
    return (b"XRANGE", name, b"-", b"+") if kind == "stream" else reader_of(kind.encode(), name)


def in_order(kind: str, reply: Any) -> Any:
    """A reader's reply in an order of its own: fields and members sorted."""
    if kind == "hash":
        pairs = sorted(zip(reply[::2], reply[1::2], strict=True))
        return [part for pair in pairs for part in pair]
    return sorted(reply) if kind == "set" else reply


# -- times
# -----------------------------------------------------------------------------------------------------------------

_DIGITS = re.compile(rb"(\d+)")


class _Weaver:
    """Finds the moments in what three runs say, the second of which began ``delta_ms`` later."""

    def __init__(self, delta_ms: int) -> None:
        self.units = {delta_ms: "ms", delta_ms * 1000: "us"} if delta_ms else {}
        if delta_ms and delta_ms % 1000 == 0:
            self.units[delta_ms // 1000] = "s"
        self.notes: list[str] = []

    def weave(self, plain: Any, later: Any, slower: Any) -> Woven:
        """One value of the three."""
        if type(plain) is not type(later) or type(plain) is not type(slower):
            return Unknown()
        if isinstance(plain, list):
            if not len(plain) == len(later) == len(slower):
                return Unknown()
            return [self.weave(*three) for three in zip(plain, later, slower, strict=True)]
        if isinstance(plain, ErrorReply):
            return plain
        if isinstance(plain, bytes):
            return self._text(plain, later, slower)
        if isinstance(plain, int) and not isinstance(plain, bool):
            return self._number(plain, later, slower)
        return plain if plain == later == slower else Unknown()

    def argument(self, plain: bytes, later: bytes, slower: bytes) -> Woven:
        """An argument: what is no moment in it is sent as it was."""
        woven = self._text(plain, later, plain)
        if isinstance(woven, bytes):
            return woven
        if isinstance(woven, Text) and all(isinstance(part, bytes | Elapsed) for part in woven.parts):
            return woven
        self.notes.append("an argument depends on the clock in a way of its own; it is sent as it was on the kernel")
        return plain

    def _text(self, plain: bytes, later: bytes, slower: bytes) -> Woven:
        if plain == later == slower:
            return bytes(plain)
        split = [_DIGITS.split(one) for one in (plain, later, slower)]
        if len({len(one) for one in split}) > 1 or len({tuple(one[::2]) for one in split}) > 1:
            return Unknown()
        parts: list[Any] = []
        for at, three in enumerate(zip(*split, strict=True)):
            is_number = at % 2 and len(set(three)) != 1
            part = self._number(*map(int, three)) if is_number else three[0]
            if isinstance(part, int):
                part = three[0]
            if parts and isinstance(part, bytes) and isinstance(parts[-1], bytes):
                parts[-1] += part
            else:
                parts.append(part)
        return Text(tuple(part for part in parts if part != b""))

    def _number(self, plain: int, later: int, slower: int) -> Woven:
        if plain == later == slower:
            return plain
        unit = self.units.get(later - plain)
        if unit is not None:
            offset = {"ms": plain - FIRST_MS, "s": plain * 1000 - FIRST_MS, "us": plain // 1000 - FIRST_MS}[unit]
            return Elapsed(offset, unit)
        return Left(plain) if plain == later else Unknown()
