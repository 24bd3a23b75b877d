"""Recorded calls on a Redis server, judged by the contract of a store: is there an order of the operations that the
contract allows, each at a moment between its call and its reply?

The commands are read as operations by the store's binding (`sim/stores/binding/read_back`), and held against the
contract by the judge of all contracts (`model/contracts/judge`), each instance of the store for itself, since
linearizability is local. Verified: replies of operations of one call. Not verified: operations of several calls,
commands that are none of the store's (they are counted), what clients do with what they are told. Where it can be
wrong: times are the recorder's, so that the end of a lease on another machine may be some milliseconds off.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from orderlab.model.checkers.findings import VACUOUS
from orderlab.model.checkers.judge import Source
from orderlab.model.contracts.base import SPECIFICATION, AnyOf, Call, Contract, Exchange, Failed
from orderlab.model.contracts.judge import Judge, TooManyStates, Violation
from orderlab.model.errors import InputError
from orderlab.model.history.events import STORE_KINDS, EventKind
from orderlab.model.verdict import UNFINISHED, Outcome, Verdict
from orderlab.sim.recording.redis_calls import OPEN, reply_from_json, text_from_json
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.read_back import FoundOperation, ReadBack
from orderlab.sim.stores.binding.replies import UNREADABLE, ReplyMismatch
from orderlab.sim.stores.binding.results import ContractReply
from orderlab.sim.stores.binding.results import Failed as FailedCall
from orderlab.sim.stores.binding.templates import to_text

OPEN_FOR_US: Final = 5_000_000
"""A call may take effect for so long whose connection its server has not closed."""
OVERLAPPING_MAX: Final = 1000
"""Events since nothing was under way; with each reply all of them are gone through anew."""
SHOWN_BEFORE: Final = 8
"""Operations of a witness that had ended before what cannot be explained began."""
_NOTED: Final = 6
"""Kinds of commands that a note names."""


@dataclass
class RecordedCall:
    """A call of a connection, and its end."""

    argv: list[bytes]
    connection: int
    invoked_us: int
    rows: list[int]
    returned_us: int | None = None
    """None: it never did, as far as is known."""
    lost_us: int | None = None
    """Until when it may have happened whose connection has gone."""
    reply: Reply = None
    is_refused: bool = False
    """It was not carried out."""
    database: int = 0


@dataclass(frozen=True)
class RecordedOperation:
    """An operation of the store."""

    call: Call
    reply: Any
    source: RecordedCall


@dataclass(frozen=True)
class Unexplained:
    """What shows that no order explains a recording."""

    why: str
    operations: tuple[Mapping[str, Any], ...]
    """Those since nothing was under way, with some before."""
    key: str
    """The instance."""


@dataclass
class _Judged:
    """What came out for the instances so far."""

    tested: Counter[str] = field(default_factory=Counter)
    violations: dict[str, Unexplained] = field(default_factory=dict)
    """The first of each law."""
    undecided: list[str] = field(default_factory=list)
    operations: int = 0
    unanswered: int = 0
    instances: int = 0


def recorded_calls(source: Source) -> tuple[list[RecordedCall], int]:
    """The calls of a recording in the order in which they were made, and how many rows it has. Raises InputError."""
    calls: list[RecordedCall] = []
    open_calls: dict[int, RecordedCall] = {}
    names, rows = source.names, 0
    for batch in source:
        columns = (batch.event_id, batch.time_us, batch.kind, batch.process, batch.connection, batch.value)
        for event, at_us, kind, process, connection, value in zip(*(each.tolist() for each in columns), strict=True):
            rows += 1
            if kind not in STORE_KINDS:
                continue
            place = f"{source.place}: event {event}"
            content = json.loads(names.values.names[value]) if value >= 0 else None
            if kind == EventKind.INVOKE:
                call = RecordedCall(_words(content, place), connection, at_us, [event])
                open_calls[process] = call
                calls.append(call)
                continue
            ended = open_calls.pop(process, None)
            if ended is None:
                raise InputError(f"{place}: process {process} completes without an invocation")
            ended.rows.append(event)
            if kind == EventKind.INFO:
                ended.lost_us = at_us + (OPEN_FOR_US if content == OPEN else 0)
                continue
            ended.returned_us, ended.is_refused = at_us, kind == EventKind.FAIL
            try:
                ended.reply = reply_from_json(content)
            except ValueError as error:
                raise InputError(f"{place}: {error}; a reply is as `orderlab record redis` writes it") from None
    return calls, rows


def _words(content: Any, place: str) -> list[bytes]:
    try:
        if isinstance(content, list) and content:
            return [text_from_json(word) for word in content]
    except ValueError:
        pass
    raise InputError(f"{place}: no command; --contract judges what `orderlab record redis` writes")


def settled(calls: Sequence[RecordedCall]) -> Iterator[RecordedCall]:
    """The calls that a server carried out, or may have: those of a transaction in its EXEC; with their databases."""
    databases: Counter[int] = Counter()
    queues: dict[int, list[RecordedCall]] = {}
    for call in calls:
        name = call.argv[0].lower()
        call.database = databases[call.connection]
        queue = queues.get(call.connection)
        if call.is_refused and name != b"exec":
            continue
        if name == b"select" and not isinstance(call.reply, ErrorReply) and call.argv[-1].isdigit():
            databases[call.connection] = int(call.argv[-1])
        elif name == b"multi":
            queues[call.connection] = []
        elif name == b"exec" and queue is not None:
            del queues[call.connection]
            yield from _of_transaction(call, queue)
        elif name == b"discard":
            queues.pop(call.connection, None)
        elif queue is not None:
            queue.append(call)
        else:
            yield call


def _of_transaction(exec_: RecordedCall, queue: Sequence[RecordedCall]) -> Iterator[RecordedCall]:
    """What EXEC has carried out, as if it had been called then."""
    replies = exec_.reply if isinstance(exec_.reply, list) else None
    if replies is None and exec_.returned_us is not None:
        return
    for call, reply in zip(queue, replies or [None] * len(queue), strict=False):
        rows = [*call.rows[:1], *exec_.rows]
        yield replace(
            call, invoked_us=exec_.invoked_us, returned_us=exec_.returned_us, lost_us=exec_.lost_us, reply=reply,
            rows=rows,
        )  # fmt: skip


class RecordingJudge:
    """Holds a recording against the contract of a binding."""

    def __init__(self, binding: Binding, keys: Mapping[str, str] | None = None, budget_s: float | None = None) -> None:
        self._binding = binding
        self._contract = cast(Contract, binding.contract)
        self._read_back = ReadBack(binding, keys)
        self._numbers = _numbers_of(self._contract)
        self._deadline_s = None if budget_s is None else time.monotonic() + budget_s
        self._others: Counter[str] = Counter()
        self._why_not: str | None = None
        """Of the first call of the store's scripts that is no operation of it."""
        self._judged = _Judged()

    def judge(self, source: Source) -> tuple[list[Verdict], int]:
        """A verdict for each law of the contract, and how many rows there were. Raises InputError."""
        begun_s = time.perf_counter()
        calls, rows = recorded_calls(source)
        last_us = max((call.returned_us or call.lost_us or call.invoked_us for call in calls), default=0)
        for instance, its_calls in self._by_instance(calls).items():
            self._judged.instances += 1
            if self._judged.undecided:  # what is not told may explain anything
                break
            self._judge_instance(instance, self._operations(its_calls), last_us)
        return self._verdicts(round(time.perf_counter() - begun_s, 6)), rows

    def _by_instance(self, calls: Sequence[RecordedCall]) -> dict[str, list[tuple[RecordedCall, FoundOperation]]]:
        by_instance: dict[str, list[tuple[RecordedCall, FoundOperation]]] = {}
        for call in settled(calls):
            operation = self._read_back.find(call.argv)
            if operation is None:
                self._why_not = self._why_not or self._read_back.why_not(call.argv)
                self._others[call.argv[0].decode("utf-8", "replace").upper()[:20]] += 1
                if self._read_back.is_of_unreadable(call.argv):
                    self._judged.undecided.append("; ".join(self._read_back.unreadable.values()))
                continue
            place = f"{operation.instance} in database {call.database}" if call.database else operation.instance
            by_instance.setdefault(place, []).append((call, operation))
        return by_instance

    def _operations(self, its_calls: Sequence[tuple[RecordedCall, FoundOperation]]) -> list[RecordedOperation]:
        replies = [self._reply(call, operation) for call, operation in its_calls]
        heard = {part for reply in replies for part in _parts(reply)}
        return [
            RecordedOperation(self._call(operation, heard), reply, call)
            for (call, operation), reply in zip(its_calls, replies, strict=True)
        ]

    def _reply(self, call: RecordedCall, operation: FoundOperation) -> Any:
        """What the binding makes of a reply, as the engine does."""
        if call.returned_us is None:
            return None
        try:
            answer = self._binding.step(operation.name, operation.fields, (call.reply,))
        except ReplyMismatch as mismatch:
            return Failed(f"{UNREADABLE}: {mismatch}")
        if isinstance(answer, FailedCall):
            return Failed(answer.error.decode("utf-8", "replace"))
        return answer.reply if isinstance(answer, ContractReply) else answer

    def _call(self, operation: FoundOperation, heard: set[Any]) -> Call:
        """The contract's call. A text is a number where the contract speaks of one, or where a reply gave a number that
        is written so, and none gave this text: clients pass on what they were told."""
        fields: dict[str, Any] = {}
        for name in self._contract.operations[operation.name]:
            value = operation.fields.get(name)
            if isinstance(value, bytes | tuple):
                is_number = name in self._numbers or f"{operation.name}.{name}" in self._numbers
                value = _plain(value, is_number, heard)
            elif isinstance(value, float) and value.is_integer():
                value = int(value)
            fields[name] = value
        return Call.of(operation.name, **fields)

    # -- one instance --------------------------------------------------------------------------------------

    def _judge_instance(self, instance: str, operations: Sequence[RecordedOperation], last_us: int) -> None:
        judged, events = self._judged, _events(operations, last_us)
        judged.operations += len(operations)
        judged.unanswered += sum(operation.source.returned_us is None for operation in operations)
        name = instance or self._binding.name
        # First an order is sought in which operations take effect when one begins. It is one of all, so that what it
        # explains is explained; only where it does not every millisecond is tried, each of which adds states.
        for is_fine in (False, True):
            judge = Judge(self._contract, events[0][0] // 1000)
            try:
                unexplained = self._first_unexplained(judge, operations, events, is_fine)
            except (TooManyStates, _OutOfTime) as error:
                if is_fine or isinstance(error, _OutOfTime):
                    judged.undecided.append(f"{name}: {error}")
                    break
                continue
            if unexplained is None:
                break
            if is_fine:
                number, violation = unexplained
                shown = _shown(operations, number)
                for law in violation.laws:
                    judged.violations.setdefault(law, Unexplained(violation.text, shown, instance))
        judged.tested.update(judge.tested)
        judged.tested[SPECIFICATION] += judge.explained

    def _first_unexplained(
        self,
        judge: Judge,
        operations: Sequence[RecordedOperation],
        events: Sequence[tuple[int, str, int]],
        is_fine: bool,
    ) -> tuple[int, Violation] | None:
        """The first operation whose reply no order explains. Raises TooManyStates, _OutOfTime."""
        for at_us, what, number in events:
            if self._deadline_s is not None and time.monotonic() > self._deadline_s:
                raise _OutOfTime("the budget ran out")
            if len(judge.overlapping) > OVERLAPPING_MAX:
                raise _OutOfTime("operations overlap without a quiet moment for too long")
            now_ms = max(at_us // 1000, judge.now_ms)
            while is_fine and judge.under_way and judge.now_ms < now_ms:
                judge.at(judge.now_ms + 1)
            if what == "begin" or not judge.under_way:
                judge.at(now_ms)
            if what == "begin":
                judge.begin(number, operations[number].call)
            elif what == "stop":
                judge.stop(number, "its connection ended", False)
            elif (violation := judge.finish(number, operations[number].reply)) is not None:
                return number, violation
        return None

    # -- what came out -------------------------------------------------------------------------------------

    def _verdicts(self, seconds: float) -> list[Verdict]:
        judged, notes = self._judged, tuple(self._notes())
        work: dict[str, float | int] = {
            "operations": judged.operations, "unanswered": judged.unanswered, "instances": judged.instances,
            "seconds": seconds,
        }  # fmt: skip
        if judged.undecided:
            work[UNFINISHED] = 1
        verdicts: list[Verdict] = []
        for law in (SPECIFICATION, *(each.name for each in self._contract.laws), *judged.violations):
            if any(verdict.law == law for verdict in verdicts):
                continue
            its_work = {**work, "antecedents": judged.tested[law]}
            witness = judged.violations.get(law)
            if witness is not None:
                verdicts.append(Verdict(law, Outcome.VIOLATED, witness, its_work, notes))
            elif judged.undecided:
                verdicts.append(Verdict(law, Outcome.UNKNOWN, None, its_work, (*judged.undecided[:1], *notes)))
            elif not judged.tested[law]:
                verdicts.append(Verdict(law, Outcome.UNKNOWN, None, its_work, (VACUOUS, *notes)))
            else:
                verdicts.append(Verdict(law, Outcome.HOLDS, None, its_work, notes))
        return verdicts

    def _notes(self) -> Iterator[str]:
        yield from self._read_back.unreadable.values()
        if self._why_not is not None:
            yield self._why_not
        if self._others:
            most = ", ".join(f"{name} ({count})" for name, count in self._others.most_common(_NOTED))
            more = f" and {len(self._others) - _NOTED} kinds more" if len(self._others) > _NOTED else ""
            yield f"commands that are none of {self._binding.name}: {most}{more}"
        if self._judged.violations:
            yield "after the first reply that no order explains nothing more of its instance was judged"


class _OutOfTime(Exception):
    pass


def _events(operations: Sequence[RecordedOperation], last_us: int) -> list[tuple[int, str, int]]:
    """When each operation begins and ends, in the order of the rows."""
    events: list[tuple[int, int, str, int]] = []
    for number, operation in enumerate(operations):
        call = operation.source
        events.append((call.invoked_us, call.rows[-2] if len(call.rows) > 2 else call.rows[0], "begin", number))
        if call.returned_us is not None:
            events.append((call.returned_us, call.rows[-1], "finish", number))
        else:
            until_us = last_us if call.lost_us is None else min(last_us, call.lost_us)
            order = call.rows[-1] if until_us == call.lost_us else 1 << 62
            events.append((max(until_us, call.invoked_us), order, "stop", number))
    return [(at_us, what, number) for at_us, _, what, number in sorted(events, key=lambda event: event[:2])]


def _shown(operations: Sequence[RecordedOperation], number: int) -> tuple[Mapping[str, Any], ...]:
    """The operation that cannot be explained, those that overlap it, and some before."""
    end_us = operations[number].source.returned_us or 0
    begun = [at for at, each in enumerate(operations) if each.source.invoked_us <= end_us]
    chosen = [
        at for at in begun if (operations[at].source.returned_us or end_us) >= operations[number].source.invoked_us
    ]
    before = [at for at in begun if at not in chosen][-SHOWN_BEFORE:]
    return tuple(_described(operations[at]) for at in sorted({*before, *chosen, number}))


def _described(operation: RecordedOperation) -> Mapping[str, Any]:
    call = operation.source
    return {
        "connection": call.connection,
        "operation": str(operation.call),
        "reply": "none" if call.returned_us is None else str(operation.reply),
        "from_us": call.invoked_us,
        "to_us": call.returned_us,
        "rows": list(call.rows),
    }


def _numbers_of(contract: Contract) -> Set[str]:
    """Fields that the contract speaks of as numbers: in its ranges, and in the calls that it finds worth trying, each
    operation once."""
    numbers, left = {*contract.ranges()}, {*contract.operations}
    seen: tuple[Exchange, ...] = ()
    state = contract.initial()
    while call := next((one for one in contract.calls(0, seen) if one.name in left), None):
        left.discard(call.name)
        numbers |= {f"{call.name}.{name}" for name, value in call.fields if type(value) is int}
        allowed = next(iter(contract.outcomes(state, call, 0)), None)
        if allowed is None:
            break
        reply, after = allowed
        heard = reply.example if isinstance(reply, AnyOf) else reply
        state = after(heard) if callable(after) else after
        seen = (*seen, Exchange(call, heard))
    return numbers


def _parts(reply: Any) -> Iterator[Any]:
    """The plain values of a reply."""
    if isinstance(reply, tuple) and not isinstance(reply, Failed):
        for part in reply:
            yield from _parts(part)
    else:
        yield reply


def _plain(value: Any, is_number: bool, heard: set[Any]) -> Any:
    """A text of a command, or a list of such, as a value of the contract."""
    if isinstance(value, tuple):
        return tuple(_plain(part, is_number, heard) for part in value)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value
    if value.lstrip(b"-").isdigit():
        number = int(value)
        if (is_number or (number in heard and text not in heard)) and to_text(number) == value:
            return number
    return text
