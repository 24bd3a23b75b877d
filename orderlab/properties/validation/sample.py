"""One sample call of each operation of a store, carried out on the kernel: what is sent, what runs, what its reply is
read as. It shows whether a binding says what its author means; nothing is judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from orderlab.properties.harness.recording import shown_bytes
from orderlab.sim.redis.registry import SCRIPT_CALLS
from orderlab.sim.redis.shard import Effect
from orderlab.sim.stores.binding.binding import Binding

RAN_MAX = 40
"""Commands of a script that are shown; of the others it is said how many there were."""


class Sampled(NamedTuple):
    """One operation, as a kind of store carried it out."""

    operation: str
    fields: Mapping[str, Any]
    effects: Sequence[Effect]
    """The commands that ran, those of a script before the call of it."""
    result: Any
    error: str = ""
    """Why the result is none: a reply that cannot be read, a script that does not end."""
    waits: str = ""


@dataclass
class SampleCall:
    """One call that an operation made."""

    what: str
    """The script, the function, or the command."""
    keys: tuple[str, ...]
    arguments: tuple[str, ...]
    ran: tuple[str, ...]
    """Commands of the script, in order."""
    reply: str


@dataclass
class Sample:
    """One operation, carried out once, in words."""

    operation: str
    fields: Mapping[str, str]
    templates: Sequence[str]
    """Of the arguments, as the binding has them."""
    calls: Sequence[SampleCall]
    result: str
    error: str


def samples(binding: Binding, carried_out: Iterable[Sampled]) -> list[Sample]:
    """What a kind of store carried out, in words."""
    return [
        Sample(
            one.operation,
            {name: _shown(value) for name, value in one.fields.items()},
            _templates(binding, one.operation),
            list(_calls(binding, one.effects)),
            one.waits or _shown(one.result),
            one.error,
        )
        for one in carried_out
    ]


def _templates(binding: Binding, operation: str) -> list[str]:
    table = dict(binding.store.operations)[operation]
    return [] if table is None else [part if isinstance(part, str) else "" for part in table.args]


def _calls(binding: Binding, effects: Sequence[Effect]) -> Iterator[SampleCall]:
    """The calls of the client: what has no line of a script. Commands of a script that did not end have no call."""
    names = {key: script.name for script in binding.scripts for key in (script.sha1.encode(), script.source)}
    inside: list[Effect] = []
    for effect in effects:
        if effect.line is not None:
            inside.append(effect)
            continue
        name, *rest = effect.argv
        if name.lower() in SCRIPT_CALLS:
            behind = 2 + int(rest[1])
            what = names.get(rest[0]) or shown_bytes(rest[0])
            keys, arguments = rest[2:behind], rest[behind:]
        else:
            what, keys, arguments = shown_bytes(name), [], rest
        yield SampleCall(
            what, tuple(map(shown_bytes, keys)), tuple(map(shown_bytes, arguments)), _ran(inside), _shown(effect.reply)
        )
        inside = []
    if inside:
        yield SampleCall("a script that did not end", (), (), _ran(inside), "nothing")


def _ran(effects: Sequence[Effect]) -> tuple[str, ...]:
    shown = [" ".join(shown_bytes(part[:40]) for part in effect.argv) for effect in effects[:RAN_MAX]]
    more = len(effects) - len(shown)
    return (*shown, *([f"{more:,} more"] if more > 0 else []))


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return shown_bytes(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return "nil" if value is None else str(value)
