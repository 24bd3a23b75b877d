"""How replies of stores of messages are read, from what scripts replied: two messages put in, then a page of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from orderlab.model.errors import InputError
from orderlab.properties.draft.facts import Slot
from orderlab.properties.draft.guess import TABLES, Guess, known_field
from orderlab.properties.draft.probing import Bench, Probed, renewed
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.stores.binding.session import MESSAGE_FIELDS

_IS: Mapping[tuple[int, ...], str] = {(1, 2): "last", (0, 1): "previous"}
"""What two saves of one message each replied -> what such an integer is."""


def replies_seen(probes: Sequence[Probed], guess: Guess) -> Mapping[str, str]:
    """Operation -> its reply as TOML, where two saves and a fetch have shown it. Raises nothing: what cannot be run
    shows nothing."""
    table = TABLES["messages"].get(guess.contract)
    if table is None:
        return {}
    by_operation = {guess.operations.get(probe.facts.label): probe for probe in probes if probe.is_run}
    save, fetch = by_operation.get(table["batch"]), by_operation.get(table["page"])
    if save is None or fetch is None or fetch.best is None:
        return {}
    place = next((at for at, slot in enumerate(save.facts.arguments) if _is_payload(slot)), None)
    if place is None:
        return {}
    bench, now_ms = Bench(), fetch.best.now_ms
    state: FrozenKeyspace = {}
    saved: list[Reply] = []
    payloads: list[bytes] = []
    try:
        for number in (1, 2):
            if (call := renewed(save, number, now_ms)) is None:
                return {}
            run = bench.run(call, state, now_ms)
            state = run.after
            saved.append(run.reply)
            payloads.append(call.arguments[place])
        page = bench.run(fetch.best.call, state, now_ms).reply
    except InputError:
        return {}
    replies = {table["batch"]: _saved(saved), table["page"]: _page(page, payloads, saved, table["told"][0])}
    return {operation: reply for operation, reply in replies.items() if reply}


def _is_payload(slot: Slot) -> bool:
    return known_field(slot, MESSAGE_FIELDS, ()) == "payload"


def _saved(saved: Sequence[Reply]) -> str:
    numbers = tuple(reply for reply in saved if type(reply) is int)
    if len(numbers) != len(saved):
        return ""
    meaning = _IS.get(numbers)
    return f'{{ shape = "integer", is = "{meaning}" }}' if meaning else ""


def _page(page: Reply, payloads: Sequence[bytes], saved: Sequence[Reply], identifier: str) -> str:
    """A page of two messages: texts, rows within rows, or rows one after the other."""
    if not isinstance(page, list | tuple) or len(page) % 2:
        return ""
    if [*page] == [*payloads]:
        return '{ shape = "strings" }'
    is_nested = len(page) == 2 and all(isinstance(row, list | tuple) for row in page)
    half = len(page) // 2
    rows = [[*row] for row in page] if is_nested else [[*page[:half]], [*page[half:]]]
    names = [_column(cells, payloads, saved, identifier) for cells in zip(*rows, strict=False)]
    if "payload" not in names or "" in names or len({*names}) < len(names):
        return ""
    nested = "nested = true, " if is_nested else ""
    return f'{{ shape = "records", {nested}columns = {json.dumps(names)} }}'


def _column(cells: Sequence[Reply], payloads: Sequence[bytes], saved: Sequence[Reply], identifier: str) -> str:
    if [*cells] == [*payloads]:
        return "payload"
    texts = [b"%d" % cell if type(cell) is int else cell for cell in cells]
    numbers = [b"%d" % reply if type(reply) is int else reply for reply in saved]
    return identifier if texts in (numbers, [b"1", b"2"]) else ""
