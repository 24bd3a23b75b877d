"""Jepsen's two forms of a test log: EDN operation maps, and the plain lines that it logs while a test runs.

    {:process 0, :type :invoke, :f :cas, :value [1 2]}                  one a line, or all in one vector
    INFO  jepsen.util - 0   :invoke :cas    [1 2]                       with or without date and worker, before or after

What is read as it is meant: `:invoke` begins an operation, `:ok` completes it, `:fail` says that it did not happen,
`:info` that nobody knows. Processes that are not numbers (`:nemesis`) are not clients. A `:fail` or `:info` line may
end with the reason, in place of the value or after it. A `:key`, where there is one, names the object. So does the first
of each value where a test runs over independent keys: its values are pairs [key value], and what takes no argument is
invoked with [key nil], by which such a log is known.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from orderlab.model.checkers.linearizability.operations import DEEPEST, EventCollector, OperationLog, is_deep
from orderlab.model.errors import InputError
from orderlab.model.history.edn import EdnError, Keyword, read_values
from orderlab.model.history.events import EventKind

_TYPES = {
    "invoke": EventKind.INVOKE,
    "ok": EventKind.OK,
    "fail": EventKind.FAIL,
    "info": EventKind.INFO,
}
SEEKS = "seek-to-beginning?"  # beside the keys that an assign lists
_WITHOUT_ARGUMENT = ("read", "r", "get", "dequeue", "deq", "drain")
_LINE = re.compile(
    r"^\s*(?:(?:\d.*?\s)?\[?[A-Z]{4,5}\b.*?\s)?(?P<process>-?\d+|:[\w-]+)\s+:(?P<type>[\w-]+)\s+:(?P<function>[\w-]+)(?:\s+(?P<rest>.*))?$"
)


def read_text(path: Path | str) -> str:
    """A whole text file. Raises InputError if it is missing, empty or not UTF-8."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    if not text.strip():
        raise InputError(f"{path}: the file is empty; a log has at least one operation")
    return text


class _Event(NamedTuple):
    """One event of a client, with the line that it stands in."""

    process: int
    kind: EventKind
    function: str
    key: Any
    value: Any
    line: int


def read_edn_operations(path: Path | str) -> OperationLog:
    """Operations from EDN maps. Raises InputError, with the line, for what is not EDN or not an operation."""
    text = read_text(path)
    line_ends = [found.start() for found in re.finditer("\n", text)]
    events: list[_Event] = []
    try:
        for offset, operation in read_values(text, flat=True):
            line = bisect_right(line_ends, offset - 1) + 1
            events += _events_of_map(f"{path}: line {line}", operation, line)
    except EdnError as error:
        line = bisect_right(line_ends, error.offset - 1) + 1
        raise InputError(f"{path}: line {line}: not EDN: {error}") from error
    except RecursionError as error:
        raise InputError(f"{path}: a map or set is nested deeper than {DEEPEST} levels in a key") from error
    if not events:
        raise InputError(f"{path}: no operations; expected maps like {{:process 0, :type :invoke, :f :read}}")
    return _log_of(path, events)


def _events_of_map(place: str, operation: Any, line: int) -> list[_Event]:
    if not isinstance(operation, Mapping):
        raise InputError(f"{place}: expected an operation map, not {str(operation)[:40]}")
    for field in ("process", "type", "f"):
        if field not in operation:
            raise InputError(f"{place}: the operation has no :{field}")
    process, kind, function = (operation[field] for field in ("process", "type", "f"))
    if not isinstance(process, int) or isinstance(process, bool):
        if isinstance(process, Keyword):
            return []
        raise InputError(f"{place}: :process must be a number or a keyword, not {process!r}")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise InputError(f"{place}: :type must be one of {', '.join(f':{name}' for name in _TYPES)}, not {kind!r}")
    value = operation.get("value")
    if is_deep((value, operation.get("key"))):
        raise InputError(f"{place}: the value is nested deeper than {DEEPEST} levels")
    if operation.get(SEEKS) is True and isinstance(value, tuple):
        value = {"keys": value, SEEKS: True}
    if operation.get("error") is not None and _TYPES[kind] is EventKind.FAIL:
        value = None  # it failed for that reason, not because of what it found
    return [_Event(_process(place, process), _TYPES[kind], str(function), operation.get("key"), value, line)]


def _process(place: str, process: int) -> int:
    if not -(2**63) <= process < 2**63:
        raise InputError(f"{place}: process {process} is beyond 64 bits")
    return process


def _log_of(path: Path | str, events: Sequence[_Event]) -> OperationLog:
    collector = EventCollector()
    for event in _keys_told(events):
        collector.add(*event)
    return collector.log(f"{path}: line ")


def _keys_told(events: Sequence[_Event]) -> Iterable[_Event]:
    """The events, with the key taken out of the value where the log is one of independent keys."""
    told = [event for event in events if event.kind in (EventKind.INVOKE, EventKind.OK)]
    asking = [event.value for event in told if event.kind is EventKind.INVOKE and event.function in _WITHOUT_ARGUMENT]
    if not (asking and all(_is_pair(event.value) and event.key is None for event in told)):
        return events
    if any(value[1] is not None for value in asking):
        return events
    return (
        event._replace(key=event.value[0], value=event.value[1]) if _is_pair(event.value) else event for event in events
    )


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def read_log_lines(path: Path | str) -> OperationLog:
    """Operations from plain log lines; other lines are not operations. Raises InputError, with the line."""
    events: list[_Event] = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        found = _LINE.match(line)
        if found is None or found["process"].startswith(":"):
            continue
        place = f"{path}: line {number}"
        kind = _TYPES.get(found["type"])
        if kind is None:
            raise InputError(
                f"{place}: unknown type :{found['type']}; it is one of {', '.join(f':{name}' for name in _TYPES)}"
            )
        process = _process(place, int(found["process"]))
        events.append(_Event(process, kind, found["function"], None, _value(place, kind, found["rest"]), number))
    if not events:
        raise InputError(f"{path}: no operations; expected lines like INFO  jepsen.util - 0 :invoke :read nil")
    return _log_of(path, events)


def _value(place: str, kind: EventKind, rest: str | None) -> Any:
    """The first value of what follows the function. After a failure anything more is a reason, in whatever words."""
    values: list[Any] = []
    try:
        for _, value in read_values(rest or ""):
            values.append(value)
    except EdnError as error:
        if kind in (EventKind.INVOKE, EventKind.OK):
            raise InputError(f"{place}: cannot read the value {rest!r:.80}: {error}") from error
        return None
    except RecursionError as error:
        raise InputError(f"{place}: a map or set is nested deeper than {DEEPEST} levels in a key") from error
    if is_deep(tuple(values)):
        raise InputError(f"{place}: the value is nested deeper than {DEEPEST} levels")
    if len(values) > 1:
        if kind in (EventKind.INVOKE, EventKind.OK):
            raise InputError(f"{place}: more than one value: {rest!r}")
        return None
    return values[0] if values else None
