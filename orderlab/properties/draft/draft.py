"""The text of a first ``store.toml``: what is known, and gaps that say what is missing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from orderlab.properties.draft.facts import Facts, Slot
from orderlab.properties.draft.guess import COMMON, OPERATIONS, TAGS, Guess, field_for, plain_name
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


def draft(facts: Sequence[Facts], guess: Guess) -> str:
    """The text of a ``store.toml`` for scripts."""
    lines = [
        "# Drafted by orderlab init from what the scripts say. Lines with TODO are gaps: fill them in, then run",
        "# orderlab validate, which names the next one. orderlab docs bindings says what can be written here.",
    ]
    if guess.contract is None:
        choices = f"one of {', '.join(OPERATIONS)}, or FILE.py:Class"
        lines += [f'specification = "{TODO}"  # {TODO}: {guess.reason}; {choices}', ""]
    else:
        lines += [f'specification = "{guess.contract}"  # a guess: {guess.reason}', ""]
    keys = _key_names(facts)
    lines += ["[keys]  # one hash tag: on a cluster a script's keys lie in one slot"]
    tag = TAGS.get(guess.contract or "", "{store}")
    for name, (types, scripts) in keys.items():
        kind = " or ".join(sorted(types)) or "of a type that the scripts do not tell"
        lines.append(
            f'{_bare(name)} = "{tag}:{name}"  # {kind}, in {len(scripts)} scripts; spell it as your clients do'
        )
    known = fields_of(guess.contract) if guess.contract is not None else {}
    for one in facts:
        operation = guess.operations.get(one.script.name)
        lines += ["", *_operation(one, operation, known.get(operation or "", ()))]
    return "\n".join(lines) + "\n"


def _key_names(facts: Sequence[Facts]) -> dict[str, tuple[set[str], list[str]]]:
    """Name of a key -> what it is taken for, and by which scripts."""
    found: dict[str, tuple[set[str], list[str]]] = {}
    for one in facts:
        for slot in one.keys:
            types, scripts = found.setdefault(slot.name, (set(), []))
            types |= slot.types
            scripts.append(one.script.name)
    return found


def _operation(one: Facts, operation: str | None, fields: Sequence[str]) -> list[str]:
    does = "writes" if one.writes else "reads only"
    head = f"# {one.script.name} {does}: {', '.join(one.commands) or 'no command'}; returns {', '.join(one.replies)}"
    if operation is None:
        left = [
            head,
            f"# {TODO}: none of the contract's operations is called like this; name one, or leave it out",
            f"# [operations.{_bare(plain_name(one) or 'operation')}]",
        ]
        return left + [f"# {line}" for line in _call(one, fields)]
    return [head, f"[operations.{operation}]", *_call(one, fields)]


def _call(one: Facts, fields: Sequence[str]) -> list[str]:
    lines = [f"script = {json.dumps(one.script.name)}"]
    if one.keys:
        lines.append(f"keys = {json.dumps([slot.name for slot in one.keys])}")
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


def _argument(slot: Slot, fields: Sequence[str], taken: list[str]) -> str:
    found = field_for(slot.name, fields, taken) if slot.is_named else None
    read = " or ".join(sorted(slot.types)) or "text"
    if slot.members:
        read += f" with {', '.join(sorted(slot.members))}"
    if found is None:
        free = [name for name in fields if name not in taken]
        choices = (
            f"; fields of this operation: {', '.join(free)}" if free else "; or plain text, the same in every call"
        )
        return f'"<{TODO} {slot.name}>",  # {TODO}: {slot.name}, read as {read}{choices}'
    taken.append(found)
    return f'"<{found}>",  # {slot.name}, read as {read}'


def _bare(name: str) -> str:
    """A name as a key of TOML."""
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)
