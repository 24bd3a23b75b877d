"""The text of a first ``store.toml``: what is known, and gaps that say what is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from orderlab.properties.draft.callers import told_by_callers
from orderlab.properties.draft.facts import DURATION_S, MOMENT_S, Facts, Slot
from orderlab.properties.draft.guess import COMMON, OPERATIONS, TAGS, Guess, field_for, plain_name
from orderlab.properties.draft.probing import key_names
from orderlab.sim.stores.binding.schema import CONTRACTS
from orderlab.sim.stores.binding.session import OPERATION_FIELDS

TODO = "TODO"
"""In a template it is a field that no contract has, so that validation names it."""


def fields_of(contract: str) -> Mapping[str, Sequence[str]]:
    """Operation -> fields of a contract."""
    import importlib

    common = tuple(COMMON.get(contract, ()))
    if contract not in CONTRACTS:
        return {operation: (*fields, *common) for operation, fields in OPERATION_FIELDS.items()}
    module, _, name = CONTRACTS[contract].partition(":")
    operations: Mapping[str, Sequence[str]] = getattr(importlib.import_module(module), name).operations
    return operations


Own = Mapping[str, tuple[str, Sequence[str]]]
"""Script -> operation and fields of a class of one's own."""


def draft(
    facts: Sequence[Facts],
    guess: Guess,
    ran: Mapping[str, str] = MappingProxyType({}),
    own: tuple[str, Own] | None = None,
) -> str:
    """The text of a ``store.toml`` for scripts. ``ran``: what runs of each have shown, by its name; ``own``: the class
    that was drafted for them, where no contract fits, and its operations."""
    lines = [
        "# Drafted by orderlab init from what the scripts say. Lines with TODO are gaps: fill them in, then run",
        "# orderlab validate, which names the next one. orderlab docs bindings says what can be written here.",
    ]
    if own is not None:
        lines += [f'specification = "{own[0]}"  # {guess.reason}: say in this class what they promise', ""]
    elif guess.contract is None:
        choices = f"one of {', '.join(OPERATIONS)}, or FILE.py:Class"
        lines += [f'specification = "{TODO}"  # {TODO}: {guess.reason}; {choices}', ""]
    else:
        lines += [f'specification = "{guess.contract}"  # a guess: {guess.reason}']
        lines += [*_promises(facts, guess), ""]
    keys = _key_names(facts)
    lines += ["[keys]  # one hash tag: on a cluster a script's keys lie in one slot"]
    tag = TAGS.get(guess.contract or "", "{store}")
    for name, (types, scripts, callers) in keys.items():
        kind = " or ".join(sorted(types)) or "of a type that the scripts do not tell"
        advice = callers or "; spell it as your clients do"
        lines.append(f'{_bare(name)} = "{tag}:{name}"  # {kind}, in {len(scripts)} scripts{advice}')
    known = fields_of(guess.contract) if guess.contract is not None else {}
    for one, names in zip(facts, key_names(facts), strict=True):
        operation = guess.operations.get(one.script.name)
        if own is not None:
            operation, known = own[1][one.script.name][0], dict(own[1].values())
        lines += ["", *_operation(one, names, operation, known.get(operation or "", ()), ran.get(one.script.name, ""))]
    return "\n".join(lines) + "\n"


def _promises(facts: Sequence[Facts], guess: Guess) -> Iterator[str]:
    """What the scripts tell of promises that their contract leaves open."""
    by_operation = {guess.operations[one.script.name]: one for one in facts if one.script.name in guess.operations}
    if guess.contract == "lock" and (acquire := by_operation.get("acquire")) is not None:
        fields, taken = fields_of("lock")["acquire"], list[str]()
        for slot in acquire.arguments:
            _argument(slot, fields, taken)
        if "token" in taken:
            yield 'promises = { tokens = "caller" }  # a guess: acquire is given the token'
    commands = set(by_operation["hit"].commands) if guess.contract == "limiter" and "hit" in by_operation else set()
    if {"INCR", "INCRBY"} & commands and {"EXPIRE", "PEXPIRE"} & commands:
        yield 'promises = { window = "from the first hit" }  # a guess: it counts up, and a deadline ends the count'


def _key_names(facts: Sequence[Facts]) -> dict[str, tuple[set[str], list[str], str]]:
    """Name of a key -> what it is taken for, by which scripts, and how a caller spells it."""
    keys: dict[str, tuple[set[str], list[str], str]] = {}
    for script, names in zip(facts, key_names(facts), strict=True):
        for slot, name in zip(script.keys, names, strict=True):
            types, scripts, callers = keys.get(name, (set(), [], ""))
            keys[name] = (types | slot.types, [*scripts, script.script.name], callers or told_by_callers(slot))
    return keys


def _operation(one: Facts, names: Sequence[str], operation: str | None, fields: Sequence[str], ran: str) -> list[str]:
    does = "writes" if one.writes else "reads only"
    head = f"# {one.script.name} {does}: {', '.join(one.commands) or 'no command'}; returns {', '.join(one.replies)}"
    head += f"\n# {ran}" if ran else ""
    if operation is None:
        left = [
            head,
            f"# {TODO}: none of the contract's operations is called like this; name one, or leave it out",
            f"# [operations.{_bare(plain_name(one) or 'operation')}]",
        ]
        return left + [f"# {line}" for line in _call(one, names, fields)]
    return [head, f"[operations.{operation}]", *_call(one, names, fields)]


def _call(one: Facts, names: Sequence[str], fields: Sequence[str]) -> list[str]:
    lines = [f"script = {json.dumps(one.script.name)}"]
    if one.keys:
        lines.append(f"keys = {json.dumps([*names])}")
    if one.has_more_keys:
        lines.append(f"# {TODO}: more of KEYS are read, at places that the text does not tell")
    if one.arguments:
        lines.append("args = [")
        taken: list[str] = []
        for slot in one.arguments:
            lines.append(f"  {_argument(slot, fields, taken)}")
        lines.append("]")
    if one.has_more_arguments:
        lines.append(f"# {TODO}: more of ARGV are read, at places that the text does not tell")
    if not one.writes:
        lines.append("read_only = true")
    return lines


def known_field(slot: Slot, fields: Sequence[str], taken: Sequence[str]) -> str | None:
    """The field that an argument's name, or a caller's spelling of it, speaks of."""
    is_path = re.fullmatch(r"\{[\w.$@>:()-]*\}", slot.spelled) is not None
    hint = re.findall(r"[A-Za-z]\w*", slot.spelled)[::-1] if is_path else []
    known = field_for(slot.name, fields, taken) if slot.is_named else None
    return known or next(filter(None, (field_for(word, fields, taken) for word in hint)), None)


def _argument(slot: Slot, fields: Sequence[str], taken: list[str]) -> str:
    known = known_field(slot, fields, taken)
    read = " or ".join(sorted(slot.types)) or "text"
    if slot.members:
        read += f" with {', '.join(sorted(slot.members))}"
    read += "".join(f", a {unit}" for unit in sorted(slot.units)) + told_by_callers(slot)
    if known is None and slot.is_constant:
        return f"{json.dumps(slot.spelled.replace('<', '<<'))},  # {slot.name}, read as {read}"
    if known is None:
        free = [name for name in fields if name not in taken]
        choices = (
            f"; fields of this operation: {', '.join(free)}" if free else "; or plain text, the same in every call"
        )
        return f'"<{TODO} {slot.name}>",  # {TODO}: {slot.name}, read as {read}{choices}'
    taken.append(known)
    is_in_seconds = known.endswith("_ms") and slot.units & {DURATION_S, MOMENT_S}
    scale = "|seconds|ceil" if is_in_seconds else ""
    return f'"<{known}{scale}>",  # {slot.name}, read as {read}'


def _bare(name: str) -> str:
    """A name as a key of TOML."""
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)
