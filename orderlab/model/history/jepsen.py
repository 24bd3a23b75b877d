"""Jepsen's two forms of a test log: EDN operation maps, and the plain lines that it logs while a test runs.

    {:process 0, :type :invoke, :f :cas, :value [1 2]}                  one a line, or all in one vector
    INFO  jepsen.util - 0   :invoke :cas    [1 2]                       with or without date and worker, before or after

What is read as it is meant: `:invoke` begins an operation, `:ok` completes it, `:fail` says that it did not happen,
`:info` that nobody knows. Processes that are not numbers (`:nemesis`) are not clients. A `:fail` or `:info` line may
end with the reason, in place of the value or after it. A `:key`, where there is one, names the object. So does the
first of each value where a test runs over independent keys: its values are pairs [key value], and what takes no
argument is invoked with [key nil], by which such a log is known.

`read_values` reads EDN, the data notation of Clojure, as far as test logs use it: all of its data, any tag, no
evaluation. Vectors and lists become tuples, sets frozen sets, maps dictionaries, keywords `Keyword`, symbols `Symbol`;
a tagged value is its value. Integers have up to 4,300 digits; N and M suffixes are accepted, and what Clojure prints
beside: ratios, hexadecimal numbers (within ``#object[…]``), ##Inf, ##-Inf, ##NaN, patterns ``#"…"`` (a string),
``#'vars`` and ``#:name{…}`` (a map).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from orderlab.model.checkers.linearizability.operations import DEEPEST, EventCollector, OperationLog, is_deep
from orderlab.model.errors import InputError
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
        raise InputError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from error
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
    clock = _Clock()
    try:
        for offset, operation in read_values(text, flat=True):
            line = bisect_right(line_ends, offset - 1) + 1
            events += _events_of_map(f"{path}: line {line}", operation, line, clock)
    except EdnError as error:
        line = bisect_right(line_ends, error.offset - 1) + 1
        raise InputError(f"{path}: line {line}: not EDN: {error}") from error
    except RecursionError as error:
        raise InputError(f"{path}: a map or set is nested deeper than {DEEPEST} levels in a key") from error
    if not events:
        raise InputError(f"{path}: no operations; expected maps like {{:process 0, :type :invoke, :f :read}}")
    return _log_of(path, events)


class _Clock:
    """The times that operations tell (`:time`, in nanoseconds since the test began): of one process they do not go
    back."""

    def __init__(self) -> None:
        self._last: dict[int, Any] = {}

    def check(self, place: str, process: int, time: Any) -> None:
        """Raise InputError for a time that is none, or that lies before the last one of the process."""
        if time is None:
            return
        if not isinstance(time, (int, float)) or isinstance(time, bool) or not time >= 0:
            raise InputError(
                f"{place}: :time is {time!r}, must be a number from 0 on; leave it out where it is not known"
            )
        last = self._last.get(process, 0)
        if time < last:
            raise InputError(
                f"{place}: :time of process {process} goes back from {last} to {time}; put the operations in the "
                "order in which they were recorded"
            )
        self._last[process] = time


def _events_of_map(place: str, operation: Any, line: int, clock: _Clock) -> list[_Event]:
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
    clock.check(place, process, operation.get("time"))
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
        process = _process(place, int(found["process"][:_DIGITS_MAX]))
        events.append(_Event(process, kind, found["function"], None, _value(place, kind, found["rest"]), number))
    if not events:
        raise InputError(f"{path}: no operations; expected lines like INFO  jepsen.util - 0 :invoke :read nil")
    return _log_of(path, events)


def _value(place: str, kind: EventKind, rest: str | None) -> Any:
    """The first value of what follows the function. After a failure a keyword, and anything more, is a reason."""
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
    is_reason = kind not in (EventKind.INVOKE, EventKind.OK) and bool(values) and isinstance(values[0], Keyword)
    return values[0] if values and not is_reason else None


_TOKEN = re.compile(
    r"""(?P<space>(?:[\s,]|;[^\n]*)+)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<pattern>\#"(?:[^"\\]|\\.)*")
    |(?P<open>\#?\{|[\[(])
    |(?P<close>[\])}])
    |(?P<discard>\#_)
    |(?P<tag>\#[A-Za-z][\w.*+!?<>=/-]*|\#'|\#::?[\w.*+!?<>=-]*(?=\s*\{))
    |(?P<character>\\(?:newline|return|space|tab|formfeed|backspace|u[0-9a-fA-F]{4}|.)(?![^\s,;"\[\](){}\\]))
    |(?P<symbolic>\#\#-?(?:Inf|NaN))
    |(?P<ratio>[+-]?\d+/\d+(?![^\s,;"\[\](){}]))
    |(?P<float>[+-]?\d+(?:\.\d*(?:[eE][+-]?\d+)?|[eE][+-]?\d+)M?(?![^\s,;"\[\](){}]))
    |(?P<hexadecimal>[+-]?0[xX][0-9a-fA-F]+N?(?![^\s,;"\[\](){}]))
    |(?P<integer>[+-]?(?:0|[1-9]\d*)[NM]?(?![^\s,;"\[\](){}]))
    |(?P<keyword>:[^\s,;"\[\](){}\\:][^\s,;"\[\](){}\\]*)
    |(?P<symbol>(?![+-]?\.?\d)[^\s,;"\[\](){}\\#:@^~`][^\s,;"\[\](){}\\]*)""",
    re.VERBOSE | re.DOTALL,
)
_CLOSES = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
# One object each: a NaN is the value that was written.
_SYMBOLIC = {name: float(name) for name in ("NaN", "Inf", "-Inf")}
_CONSTANTS = {"nil": None, "true": True, "false": False}
_CHARACTERS = {"newline": "\n", "return": "\r", "space": " ", "tab": "\t", "formfeed": "\f", "backspace": "\b"}
_DIGITS_MAX = 4300
"""Of an integer: Python reads and writes no more, as the time that it takes grows with their square."""
_HEXADECIMAL_MAX = 3500
"""They become fewer than 4,300 decimal ones, which a witness may show."""


class EdnError(ValueError):
    """The text is not EDN. `offset` is where."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


class Keyword(str):
    """A keyword, without its colon."""

    def __repr__(self) -> str:
        return f":{self}"


class Symbol(str):
    """A symbol."""


class _Open:
    """A collection that is being read; `discards` counts the values to come that do not count."""

    def __init__(self, opener: str, offset: int) -> None:
        self.opener, self.offset = opener, offset
        self.items: list[Any] = []
        self.discards = 0


def read_values(text: str, flat: bool = False) -> Iterator[tuple[int, Any]]:
    """(offset, value) of each value at the top level, as they are read. Raises EdnError.

    flat: of a vector or list at the top level give the items instead.
    """
    stack = [_Open("", 0)]
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise EdnError(f"cannot read {text[position : position + 20]!r}", position)
        kind, token, offset = found.lastgroup, found.group(), position
        position = found.end()
        if kind in ("space", "tag"):
            continue
        if kind == "discard":
            stack[-1].discards += 1
            continue
        if kind == "open":
            stack.append(_Open(token, offset))
            continue
        if kind == "close":
            if len(stack) == 1 or _CLOSES[stack[-1].opener] != token:
                raise EdnError(f"{token!r} closes nothing that is open", offset)
            done = stack.pop()
            value, offset = _collection(done), done.offset
            if flat and len(stack) == 1 and done.opener in "[(":
                continue  # its items have been yielded
        else:
            assert kind is not None
            value = _atom(kind, token, offset)
        if stack[-1].discards:
            stack[-1].discards -= 1
        elif len(stack) == 1 or (flat and len(stack) == 2 and stack[1].opener in "[("):
            yield offset, value
        else:
            stack[-1].items.append(value)
    if len(stack) > 1:
        raise EdnError(f"{stack[-1].opener!r} is not closed", stack[-1].offset)


def _collection(done: _Open) -> Any:
    if done.opener == "{":
        if len(done.items) % 2:
            raise EdnError("a map has a key without a value", done.offset)
        keys = _distinct(done, done.items[::2])
        return dict(zip(keys, done.items[1::2], strict=True))
    if done.opener == "#{":
        return frozenset(_distinct(done, done.items))
    return tuple(done.items)


def _distinct(done: _Open, items: Sequence[Any]) -> list[Any]:
    """Keys of a map, or members of a set: EDN has each once, and a reader that takes the last one loses the first."""
    keys = list(map(_key, items))
    if len(set(keys)) == len(keys):
        return keys
    seen: set[Any] = set()
    for key, item in zip(keys, items, strict=True):
        if (type(item), key) in seen:
            what = "the key" if done.opener == "{" else "the member"
            raise EdnError(
                f"{what} {item!r} is there twice in one "
                f"{'map' if done.opener == '{' else 'set'}; leave one of them out",
                done.offset,
            )
        seen.add((type(item), key))
    return keys


def _key(value: Any) -> Any:
    """A value as a member of a set or a key; a map there becomes the tuple of its pairs."""
    if isinstance(value, dict):
        return tuple(sorted(((key, _key(item)) for key, item in value.items()), key=repr))
    return tuple(map(_key, value)) if isinstance(value, tuple) else value


def _atom(kind: str, token: str, offset: int) -> Any:
    if kind == "string":
        return _ESCAPE.sub(lambda found: _unescaped(found[1], offset), token[1:-1])
    if kind == "pattern":
        return token[2:-1]
    digits_max = _HEXADECIMAL_MAX if kind == "hexadecimal" else _DIGITS_MAX
    if kind in ("integer", "hexadecimal", "ratio") and len(token) > digits_max:
        raise EdnError(f"a number of {len(token)} digits; {digits_max} are read", offset)
    if kind == "integer":
        return int(token.rstrip("NM"))
    if kind == "hexadecimal":
        return int(token.rstrip("N"), 16)
    if kind == "ratio":
        return _ratio(token, offset)
    if kind == "symbolic":
        return _SYMBOLIC[token.lstrip("#")]
    if kind == "float":
        return float(token.rstrip("M"))
    if kind == "keyword":
        return Keyword(token[1:])
    if kind == "character":
        name = token[1:]
        return chr(int(name[1:], 16)) if len(name) == 5 and name[0] == "u" else _CHARACTERS.get(name, name)
    return _CONSTANTS[token] if token in _CONSTANTS else Symbol(token)


def _ratio(token: str, offset: int) -> Fraction | int:
    """A ratio; an integer where it is one, as Clojure reads it."""
    above, below = map(int, token.split("/"))
    if below == 0:
        raise EdnError(f"{token} divides by zero", offset)
    ratio = Fraction(above, below)
    return int(ratio) if ratio.denominator == 1 else ratio


def _unescaped(escape: str, offset: int) -> str:
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    if escape not in _ESCAPES:
        raise EdnError(f"unknown escape \\{escape} in a string", offset)
    return _ESCAPES[escape]
