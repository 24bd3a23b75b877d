"""What a log of offsets and transactions holds: operations, each a list of micro-operations on keys.

    [send key value]  →  [send key [offset value]]        [poll]  →  [poll {key [[offset value] …]}]

What polls returned is read from whatever completed, for it was seen however the operation ended; which offsets sends
got from what ended `ok`. A transaction is atomic, so one that ended with `info`, and of which a poll returned what
nobody else can have sent, has committed as a whole: then its other sends are as good as acknowledged, with the offsets
that its row tells.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from orderlab.model.checkers.findings import TimeBudget
from orderlab.model.checkers.linearizability.operations import FAIL, INFO, OK, OperationLog
from orderlab.model.errors import InputError

MODEL = "kafka"
SILENT = ("crash", "debug-topic-partitions", "close")
FUNCTIONS = ("txn", "send", "poll", "assign", "subscribe", *SILENT)
TRANSACTION = "txn"
SEEKS = "seek-to-beginning?"
"""The field of an `assign` that says that the consumer goes to the beginning of its keys."""


class Send(NamedTuple):
    """A value sent to a key; the offset is None where the log does not tell it."""

    key: str
    value: Any
    offset: int | None


class Poll(NamedTuple):
    """A value that a poll returned; `part` is the place of the poll among the operation's micro-operations."""

    key: str
    offset: int
    value: Any
    part: int


@dataclass(frozen=True)
class LogOperation:
    """An operation: `row` in the log, between which events, its micro-operations in their order."""

    row: int
    process: int
    function: str
    outcome: int
    invoked: int
    returned: int
    invoked_row: int
    returned_row: int
    """Where its two events stand in the source; the second also of one that ended with `info`, -1 of one without an
    end."""
    sends: tuple[Send, ...] = ()
    polls: tuple[Poll, ...] = ()
    keys: tuple[str, ...] = ()
    may_have_polled: bool = False
    from_beginning: bool = False
    has_committed: bool = False
    """Whether its sends are there: it ended `ok`, or is a transaction of which a part was polled."""


def has_functions(functions: Collection[str]) -> bool:
    """Whether a log with these functions is one of this kind."""
    return set(functions) <= set(FUNCTIONS) and bool({"txn", "send", "poll"} & set(functions))


def steps_of(log: OperationLog, budget: TimeBudget | None = None) -> list[LogOperation]:
    """The operations of a log. Raises InputError for what is no micro-operation."""
    steps = []
    told_of: dict[int, tuple[Send, ...]] = {}
    """What the row of an operation that ended with `info` tells of its sends."""
    for row, (function_code, outcome) in enumerate(zip(log.function.tolist(), log.outcome.tolist(), strict=True)):
        if budget is not None:
            budget.check()
        function = log.functions[function_code]
        place = f"row {log.invoked_row[row]}"
        if function not in FUNCTIONS:
            raise InputError(f"{place}: {MODEL} has no operation {function!r}; it has {', '.join(FUNCTIONS)}")
        argument, result = log.values[log.argument[row]], log.values[log.result[row]]
        at = (
            row,
            int(log.process[row]),
            function,
            outcome,
            int(log.invoked[row]),
            int(log.returned[row]),
            int(log.invoked_row[row]),
            int(log.returned_row[row]),
        )
        if function in ("assign", "subscribe"):
            keys, sought = _assigned(argument)
            steps.append(LogOperation(*at, keys=keys, from_beginning=sought and function == "assign"))
            continue
        if function in SILENT:
            steps.append(LogOperation(*at))
            continue
        asked = list(_micro_operations(place, function, argument))
        is_told = outcome == OK or (log.returned_row[row] >= 0 and result is not None)
        told = list(_micro_operations(f"row {log.returned_row[row]}", function, result)) if is_told else asked
        if [mop[0] for mop in asked] != [mop[0] for mop in told]:
            raise InputError(f"{place}: {function} returned other micro-operations than it was invoked with")
        sends: list[Send] = []
        polls: list[Poll] = []
        for part, (before, after) in enumerate(zip(asked, told, strict=True)):
            if before[0] == "send":
                sends.append(_send(place, before, after if outcome == OK else None))
            elif is_told:
                polls += _polled(f"row {log.returned_row[row]}", after, part)
        maybe = outcome != OK and any(mop[0] == "poll" for mop in asked)
        if outcome == INFO and is_told:
            told_of[row] = tuple(
                _told(before, after) for before, after in zip(asked, told, strict=True) if before[0] == "send"
            )
        step = LogOperation(
            *at, sends=tuple(sends), polls=tuple(polls), may_have_polled=maybe, has_committed=outcome == OK
        )
        steps.append(step)
    return _with_committed(steps, told_of)


def _with_committed(steps: list[LogOperation], told_of: dict[int, tuple[Send, ...]]) -> list[LogOperation]:
    """The operations; transactions of unknown outcome of which a part was polled have committed."""
    if not told_of:
        return steps
    polled = {(poll.key, typed(poll.value)) for step in steps for poll in step.polls}
    senders: dict[tuple[str, Any], int] = {}
    for step in steps:
        for send in step.sends if step.outcome != FAIL else ():
            senders[send.key, typed(send.value)] = senders.get((send.key, typed(send.value)), 0) + 1
    for place, step in enumerate(steps):
        mine = [(send.key, typed(send.value)) for send in step.sends]
        if step.row in told_of and any(one in polled and senders[one] == 1 for one in mine):
            steps[place] = replace(step, sends=told_of[step.row], has_committed=True)
    return steps


def _told(asked: tuple[Any, ...], told: tuple[Any, ...]) -> Send:
    """A send as the row of an operation of unknown outcome has it, whose offset may be missing."""
    _, key, value = asked
    answer = told[2]
    is_answer = (
        isinstance(answer, tuple)
        and len(answer) == 2
        and typed(answer[1]) == typed(value)
        and typed(answer) != typed(value)
    )
    is_offset = is_answer and isinstance(answer[0], int) and not isinstance(answer[0], bool) and answer[0] >= 0
    return Send(str(key), value, answer[0] if is_offset else None)


def _assigned(argument: Any) -> tuple[tuple[str, ...], bool]:
    """The keys of an `assign` or `subscribe`, and whether it seeks their beginning: {keys […], seek-to-beginning?
    true}."""
    fields = dict(argument) if isinstance(argument, tuple) and argument and all(map(_is_field, argument)) else {}
    keys = fields.get("keys", argument)
    return tuple(map(str, keys if isinstance(keys, tuple) else ())), fields.get(SEEKS) is True


def _is_field(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and item[0] in ("keys", SEEKS)


def typed(value: Any) -> Any:
    """Keeps 1, 1.0 and true apart, within collections too."""
    return type(value), tuple(map(typed, value)) if isinstance(value, tuple) else value


def _micro_operations(place: str, function: str, value: Any) -> Iterator[tuple[Any, ...]]:
    if value is None:
        return
    if isinstance(value, tuple) and value and isinstance(value[0], str):
        value = (value,)  # a single one, not in a list
    if not isinstance(value, tuple):
        raise InputError(f"{place}: {function} takes a list of micro-operations, not {value!r}")
    for mop in value:
        if not (isinstance(mop, tuple) and mop and mop[0] in ("send", "poll")):
            raise InputError(f"{place}: {mop!r} is no micro-operation; one is [send key value] or [poll]")
        if mop[0] == "send" and len(mop) != 3:
            raise InputError(f"{place}: a send is [send key value], not {mop!r}")
        if mop[0] == "poll" and len(mop) > 2:
            raise InputError(f"{place}: a poll is [poll] or [poll {{key [[offset value] …]}}], not {mop!r}")
        yield mop


def _send(place: str, asked: tuple[Any, ...], told: tuple[Any, ...] | None) -> Send:
    _, key, value = asked
    if told is None or typed(told[2]) == typed(value):
        return Send(str(key), value, None)
    answer = told[2]
    if str(told[1]) != str(key) or not (isinstance(answer, tuple) and len(answer) == 2 and answer[1] == value):
        raise InputError(f"{place}: a send of {value!r} to {key} returned {told!r}; expected [send key [offset value]]")
    return Send(str(key), value, None if answer[0] is None else _offset(place, answer[0]))


def _polled(place: str, told: tuple[Any, ...], part: int) -> Iterator[Poll]:
    by_key = (told[1] if len(told) > 1 else None) or ()
    if not isinstance(by_key, tuple):
        raise InputError(f"{place}: a poll returns {{key [[offset value] …]}}, not {told!r}")
    for entry in by_key:
        if not (isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[1], tuple)):
            raise InputError(f"{place}: a poll returns {{key [[offset value] …]}}, not {told!r}")
        for message in entry[1]:
            if not (isinstance(message, tuple) and len(message) == 2):
                raise InputError(f"{place}: a poll returns pairs [offset value], not {message!r}")
            yield Poll(str(entry[0]), _offset(place, message[0]), message[1], part)


def _offset(place: str, offset: Any) -> int:
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise InputError(f"{place}: an offset is a number from 0 on, not {offset!r}")
    return offset
