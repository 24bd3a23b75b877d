"""A terse notation: a history in one line, for tests, notes and witnesses.

One word an event, a millisecond apart: a letter, the sequence number, and what differs from the defaults (publisher
`p`, topic `t`, QoS 1, subscriber `s`).

    P publish             A publish acknowledged   D deliver      R receive (PUBREC)   L release (PUBREL)
    K acknowledge         T trim                   E expire       C clear              S subscribe
    U unsubscribe         + connect                - disconnect   H heal               X cut        F fault
    Z end of the recording

    .b publisher b     >c subscriber c     q2 QoS 2      d1 delivered at QoS 1    #7 packet identifier 7    ! DUP
    ~ retained         %30 expiry interval 30 ms         =3 session 3             :a/b topic or filter, last in its word
    ^2 receive maximum 2    &50 Will with a delay of 50 ms      *2 connection 2      $0 reason code 0

A client's name runs to the next mark, so QoS comes before it. A word `@500` sets the clock to 500 ms.
`P1 A1 P2 A2 D2 D1` is a history that breaks `fifo`.

Store operations: `0(enqueue:1` process 0 invokes `enqueue` with the JSON value 1, `0)` it returns what it was given,
`0):2` it returns 2, `0!` it fails, `0?` its outcome is unknown; `0(write.x:1` names the key x.
"""

from __future__ import annotations

import json
import re
from typing import Any

from orderlab.model.errors import InputError
from orderlab.model.history.events import COLUMNS, EventBatch, EventKind, History, Names

_LETTERS = {
    "P": EventKind.PUBLISH,
    "A": EventKind.PUBLISH_ACKNOWLEDGED,
    "D": EventKind.DELIVER,
    "R": EventKind.RECEIVE,
    "L": EventKind.RELEASE,
    "K": EventKind.ACKNOWLEDGE,
    "T": EventKind.TRIM,
    "E": EventKind.EXPIRE,
    "C": EventKind.CLEAR,
    "S": EventKind.SUBSCRIBE,
    "U": EventKind.UNSUBSCRIBE,
    "+": EventKind.CONNECT,
    "-": EventKind.DISCONNECT,
    "H": EventKind.HEAL,
    "X": EventKind.CUT,
    "F": EventKind.FAULT,
    "Z": EventKind.END,
}
_MESSAGE_KINDS = (
    EventKind.PUBLISH,
    EventKind.PUBLISH_ACKNOWLEDGED,
    EventKind.DELIVER,
    EventKind.TRIM,
    EventKind.EXPIRE,
)
_WITHOUT_SUBSCRIBER = (
    EventKind.PUBLISH,
    EventKind.PUBLISH_ACKNOWLEDGED,
    EventKind.HEAL,
    EventKind.CUT,
    EventKind.FAULT,
    EventKind.END,
)
_EVENT = re.compile(r"(?P<letter>[A-Z+-])(?P<sequence>\d+)?(?P<rest>[^:]*)(?::(?P<topic>.+))?")
_FIELD = re.compile(
    r"\.(?P<publisher>\w+)|>(?P<subscriber>\w+)|q(?P<qos>[012])|d(?P<delivered_qos>[012])|#(?P<packet_id>\d+)"
    r"|(?P<dup>!)|(?P<retained>~)|%(?P<expiry>\d+)|=(?P<session>\d+)|\^(?P<receive_maximum>\d+)"
    r"|&(?P<will_delay>\d+)|\*(?P<connection>\d+)|\$(?P<reason_code>\d+)"
)
_OPERATION = re.compile(r"(?P<process>\d+)(?P<mark>[()!?])(?P<name>\w*)(?:\.(?P<key>\w+))?(?::(?P<value>.+))?")
_MARKS = {"(": EventKind.INVOKE, ")": EventKind.OK, "!": EventKind.FAIL, "?": EventKind.INFO}


def parse_history(line: str) -> History:
    """The history that a line in this notation stands for. Raises InputError at a word that it cannot read."""
    names, clock_us = Names(), 0
    rows: list[dict[str, Any]] = []
    open_operations: dict[int, dict[str, Any]] = {}
    for word in line.split():
        if word.startswith("@"):
            clock_us = int(word[1:]) * 1000
            continue
        row = _operation(word, open_operations) if word[0].isdigit() else _event(word)
        rows.append({"event_id": len(rows), "time_us": clock_us, **row})
        clock_us += 1000
    columns: dict[str, list[int]] = {}
    for column in COLUMNS:
        table = names.table(column)
        cells = [row.get(column) for row in rows]
        columns[column] = [
            -1 if cell is None else table.code(str(cell)) if table is not None else int(cell) for cell in cells
        ]
    return History((EventBatch.of(**columns),), names)


def _event(word: str) -> dict[str, Any]:
    parsed = _EVENT.fullmatch(word)
    kind = None if parsed is None else _LETTERS.get(parsed["letter"])
    if parsed is None or kind is None:
        raise InputError(f"history notation: {word!r} is not an event; see the letters in model/history/notation.py")
    row: dict[str, Any] = {"kind": kind}
    if kind in _MESSAGE_KINDS or parsed["sequence"] is not None:
        row |= {"publisher": "p", "topic": "t", "qos": 1, "sequence": int(parsed["sequence"] or 0)}
    if kind in (EventKind.SUBSCRIBE, EventKind.UNSUBSCRIBE):
        row["topic"] = "t"
    if kind not in _WITHOUT_SUBSCRIBER:
        row["subscriber"] = "s"
    if kind == EventKind.FAULT:
        row["operation"] = "fault"
    position = 0
    while position < len(parsed["rest"]):
        found = _FIELD.match(parsed["rest"], position)
        if found is None:
            raise InputError(f"history notation: {word!r}: cannot read {parsed['rest'][position:]!r}")
        position = found.end()
        for name, cell in found.groupdict().items():
            if cell is None:
                continue
            if name == "expiry":
                row["expiry_interval_us"] = int(cell) * 1000
            elif name == "will_delay":
                row["will_delay_us"] = int(cell) * 1000
            else:
                row[name] = (
                    cell if name in ("publisher", "subscriber") else 1 if name in ("dup", "retained") else int(cell)
                )
    if parsed["topic"] is not None:
        row["topic"] = parsed["topic"]
    return row


def _operation(word: str, open_operations: dict[int, dict[str, Any]]) -> dict[str, Any]:
    parsed = _OPERATION.fullmatch(word)
    if parsed is None:
        raise InputError(f"history notation: {word!r} is not a store operation")
    process, kind = int(parsed["process"]), _MARKS[parsed["mark"]]
    value = None if parsed["value"] is None else json.dumps(json.loads(parsed["value"]), separators=(",", ":"))
    if kind == EventKind.INVOKE:
        open_operations[process] = {
            "process": process,
            "operation": parsed["name"],
            "key": parsed["key"],
            "value": value,
        }
        return {"kind": kind, **open_operations[process]}
    if process not in open_operations:
        raise InputError(f"history notation: {word!r}: process {process} has no open operation")
    row = {"kind": kind, **open_operations.pop(process)}
    return row if value is None else row | {"value": value}
