"""How a session store's replies are read, from what its scripts replied: two saves, then a fetch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from orderlab.model.errors import InputError
from orderlab.properties.draft.facts import Slot
from orderlab.properties.draft.guess import Guess, known_field
from orderlab.properties.draft.probing import Bench, Probed, renewed
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.stores.binding.session import MESSAGE_FIELDS

_IS: Mapping[tuple[int, ...], str] = {(1, 2): "last", (0, 1): "previous"}
"""What two saves of one message each replied -> what such an integer is."""


def session_replies(probes: Sequence[Probed], guess: Guess) -> Mapping[str, str]:
    """Operation -> its reply as TOML, where two saves and a fetch have shown it. Raises nothing: what cannot be run
    shows nothing."""
    if guess.contract != "session":
        return {}
    by_operation = {guess.operations.get(probe.facts.label): probe for probe in probes if probe.is_run}
    save, fetch = by_operation.get("save"), by_operation.get("fetch")
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
    replies = {"save": _saved(saved), "fetch": _page(page, payloads, saved)}
    return {operation: reply for operation, reply in replies.items() if reply}


def _is_payload(slot: Slot) -> bool:
    return known_field(slot, MESSAGE_FIELDS, ()) == "payload"


def _saved(saved: Sequence[Reply]) -> str:
    numbers = tuple(reply for reply in saved if type(reply) is int)
    if len(numbers) != len(saved):
        return ""
    meaning = _IS.get(numbers)
    return f'{{ shape = "integer", is = "{meaning}" }}' if meaning else ""


def _page(page: Reply, payloads: Sequence[bytes], saved: Sequence[Reply]) -> str:
    """A page of two messages: texts, rows within rows, or rows one after the other."""
    if not isinstance(page, list | tuple) or len(page) % 2:
        return ""
    if [*page] == [*payloads]:
        return '{ shape = "strings" }'
    is_nested = len(page) == 2 and all(isinstance(row, list | tuple) for row in page)
    half = len(page) // 2
    rows = [[*row] for row in page] if is_nested else [[*page[:half]], [*page[half:]]]
    names = [_column(cells, payloads, saved) for cells in zip(*rows, strict=False)]
    if "payload" not in names or "" in names or len({*names}) < len(names):
        return ""
    nested = "nested = true, " if is_nested else ""
    return f'{{ shape = "records", {nested}columns = {json.dumps(names)} }}'


def _column(cells: Sequence[Reply], payloads: Sequence[bytes], saved: Sequence[Reply]) -> str:
    if [*cells] == [*payloads]:
        return "payload"
    texts = [b"%d" % cell if type(cell) is int else cell for cell in cells]
    told = [b"%d" % reply if type(reply) is int else reply for reply in saved]
    return "packet_id" if texts in (told, [b"1", b"2"]) else ""
