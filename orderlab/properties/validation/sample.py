"""One sample call of each operation of a store, carried out on the kernel: what is sent, what runs, what its reply is
read as. It shows whether a binding says what its author means; nothing is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orderlab.properties.contracts.kind import kind_of
from orderlab.properties.harness.recording import shown_bytes
from orderlab.sim.redis.backends import Backend
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.shard import Effect
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.replies import ReplyMismatch
from orderlab.sim.stores.binding.results import Call, ContractReply, Result, ScriptCall
from orderlab.sim.stores.bound import kernel_of, load_scripts

CALLS_MAX = 50
"""Calls of one operation that are shown."""


@dataclass
class SampleCall:
    """One call that an operation made."""

    what: str
    """The script, or the command."""
    keys: tuple[str, ...]
    arguments: tuple[str, ...]
    ran: tuple[str, ...]
    """Commands of the script, in order."""
    reply: str


@dataclass
class Sample:
    """One operation, carried out once."""

    operation: str
    fields: Mapping[str, str]
    templates: Sequence[str]
    """Of the arguments, where each stands for one."""
    calls: list[SampleCall] = field(default_factory=list)
    result: str = ""
    error: str = ""


def samples(binding: Binding) -> list[Sample]:
    """One of each operation that the contract has a call for."""
    backend = kernel_of(binding)
    load_scripts(binding, backend)
    found: list[Sample] = []
    done: list[tuple[str, Mapping[str, object], object]] = []
    while (wanted := kind_of(binding).sample_call(binding, done)) is not None:
        operation, fields = wanted
        given = {"now_ms": backend.now_ms, **fields}
        sample = Sample(
            operation, {name: _shown(value) for name, value in given.items()}, _templates(binding, operation)
        )
        found.append(sample)
        result = _carried_out(binding, backend, given, sample)
        done.append((operation, fields, result.reply if isinstance(result, ContractReply) else None))
    return found


def _carried_out(binding: Binding, backend: Backend, given: Mapping[str, object], sample: Sample) -> Result | None:
    """The result of an operation; None where its reply cannot be read, or it does not end."""
    replies: list[Reply] = []
    for _ in range(CALLS_MAX):
        try:
            answer = binding.step(sample.operation, given, replies)
        except ReplyMismatch as mismatch:
            sample.error = f"the binding cannot read the reply: {mismatch}"
            return None
        if isinstance(answer, Result):
            sample.result = _shown(answer.reply) if isinstance(answer, ContractReply) else str(answer)
            return answer
        effects: list[Effect] = []
        with backend.noting(effects):
            replies.append(backend.execute(*answer.argv))
        sample.calls.append(_call(answer, effects, replies[-1]))
    sample.error = f"more than {CALLS_MAX} calls"
    return None


def _templates(binding: Binding, operation: str) -> list[str]:
    table = dict(binding.store.operations)[operation]
    listed = [] if table is None else table.args
    return [one if isinstance(one, str) else "" for one in listed]


def _call(call: Call, effects: Sequence[Effect], reply: object) -> SampleCall:
    if isinstance(call, ScriptCall):
        what, keys, arguments = call.function or call.script.name, call.keys, call.args
    else:
        what, keys, arguments = shown_bytes(call.argv[0]), (), tuple(call.argv[1:])
    inside = effects[:-1] if isinstance(call, ScriptCall) else ()  # the last one is the call itself
    return SampleCall(
        what,
        tuple(map(shown_bytes, keys)),
        tuple(map(shown_bytes, arguments)),
        tuple(" ".join(shown_bytes(part[:40]) for part in one.argv) for one in inside),
        _shown(reply),
    )


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return shown_bytes(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return "nil" if value is None else str(value)
