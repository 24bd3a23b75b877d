"""A trace as numbered states, in the form in which TLC prints a behaviour: the action, then ``/\\ variable =
value``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from orderlab.model.errors import InputError
from orderlab.properties.export.transcript import Change, Move, Transcript, changes_between

MARKS = {"+": "new", "~": "changed", "-": "gone", "": ""}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+|\[\d+\])*")
_STATE = re.compile(r"State (\d+): <(.*)>$")
_VARIABLE = re.compile(r'/\\ (key\["(?:[^"\\]|\\.)*"\]|\S+) = (.*?)(?:  \\\* (new|changed|gone).*)?$')


class StateRead(NamedTuple):
    """One state of a listing, as ``read`` finds it."""

    number: int
    action: str
    variables: dict[str, Any]
    marks: dict[str, str]


def states(told: Transcript) -> str:
    """The text of the listing."""
    lines = [f"\\* {_line(told.title)}"]
    if told.store:
        lines.append(
            "\\* Variables are the keys of the store with their types and values; deadlines count from the beginning."
        )
    before = Move("", "")
    for number, move in enumerate((told.start, *told.moves), 1):
        actor = f"{move.lane}: " if move.lane and not move.action.startswith(move.lane) else ""
        action = "Initial predicate" if number == 1 else _line(f"{actor}{move.action}")
        lines += ["", f"State {number}: <{action}>"]
        lines += [f"\\* {_line(line)}" for line in _remarks(move)]
        found = changes_between(before.state, move.state)
        lines += [_variable(one, bool(told.store), number == 1) for one in found] or ["/\\ TRUE"]
        before = move
    if told.loop_start is not None:
        last = len(told.moves)
        lines += ["", f"Back to state {told.loop_start + 1}" if told.loop_start < last else "Stuttering"]
    return "\n".join(lines) + "\n"


def read(text: str) -> list[StateRead]:
    """The states of a listing. Raises InputError for a line that is none of one."""
    found: list[StateRead] = []
    for number, line in enumerate(text.splitlines(), 1):
        state, variable = _STATE.match(line), _VARIABLE.match(line)
        if state:
            found.append(StateRead(int(state[1]), state[2], {}, {}))
        elif variable and found:
            name, value, mark = variable.groups()
            name = json.loads(name[4:-1]) if name.startswith("key[") else name
            if mark != "gone":
                found[-1].variables[name] = json.loads(value)
            if mark:
                found[-1].marks[name] = mark
        elif line and not line.startswith(("\\*", "Back to state ", "Stuttering", "/\\ TRUE")):
            raise InputError(f"line {number}: no part of a listing of states: {line[:80]}; export it again")
    return found


def _remarks(move: Move) -> Iterator[str]:
    if move.answer:
        yield f"replied: {move.answer}"
    if move.fault:
        yield f"fault: {move.fault}"
    for law, text in move.broken:
        yield f"{law} is violated: {text}"


def _variable(one: Change, is_store: bool, is_first: bool) -> str:
    name = one.name if not is_store and _NAME.fullmatch(one.name) else f"key[{json.dumps(one.name)}]"
    mark = "" if is_first else MARKS[one.sign]
    value = json.dumps(one.value)
    was = f"; it was {json.dumps(one.was)}" if one.sign == "~" and mark else ""
    return f"/\\ {name} = {value}" + (f"  \\* {mark}{was}" if mark else "")


def _line(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
