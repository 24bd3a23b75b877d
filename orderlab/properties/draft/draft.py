"""The text of a first ``store.toml``: what is known, and gaps that say what is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from orderlab.properties.draft.callers import told_by_callers
from orderlab.properties.draft.facts import DURATION_MS, DURATION_S, MOMENT_S, Facts, Slot
from orderlab.properties.draft.guess import (
    COMMON,
    CREATES,
    NAMELESS,
    OPERATIONS,
    TAGS,
    WANTED,
    Guess,
    field_for,
    plain_name,
)
from orderlab.properties.draft.guessed_promises import LATER_MS, TODO, PromiseLine, message_table, promises, reply_of
from orderlab.properties.draft.probing import key_names, shared_names
from orderlab.sim.stores.binding.schema import CONTRACTS
from orderlab.sim.stores.binding.session import OPERATION_FIELDS


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
    replied: Sequence[PromiseLine] = (),
) -> str:
    """The text of a ``store.toml`` for scripts. ``ran``: what runs of each have shown, by its name; ``own``: the class
    that was drafted for them, where no contract fits, and its operations; ``replied``: promises that replies of the
    first draft have shown, so that these are no gap."""
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
        lines += [f'specification = "{guess.contract}"  # a guess: {guess.reason}', ""]
    known = fields_of(guess.contract) if guess.contract is not None else {}
    written = set[str]().union(*(slot.written for each in facts for slot in each.arguments))
    taken: dict[str, Sequence[str]] = {}
    tables: list[str] = []
    for one, names in zip(facts, key_names(facts), strict=True):
        operation = guess.operations.get(one.label)
        if own is not None:
            operation, known = own[1][one.label][0], dict(own[1].values())
        fields = known.get(operation or "", ())
        table, spoken = _operation(one, names, operation, fields, ran.get(one.label, ""))
        if reply := reply_of(one, guess.contract, operation, written):
            why = TODO if TODO in reply else "a guess"
            table.append(f"reply = {reply}  # {why}: it returns {', '.join(one.replies)}")
        elif (
            (wanted := WANTED.get(guess.contract or "", {}).get(operation or ""))
            and {*one.replies} - {"text", "nil"}
            and not replied
        ):
            table.append(f"# {TODO}: reply: the contract's {operation} replies {wanted}")
        taken[operation or one.label] = spoken
        tables += ["", *table]
    guessed_lines = {line.text.partition(" ")[0]: line for line in (*promises(facts, guess, taken), *replied)}
    promised = [f"{line.text}  # a guess: {line.reason}" for line in guessed_lines.values()]
    lines += ["[promises]", *promised, ""] if promised else []
    return (
        "\n".join(
            [
                *lines,
                *_keys(facts, TAGS.get(guess.contract or "", "{store}")),
                "",
                *message_table(facts, guess),
                *tables[1:],
            ]
        )
        + "\n"
    )


def _keys(facts: Sequence[Facts], tag: str) -> Iterator[str]:
    """``[keys]``: as programs spell them, if all have a hash tag around what varies; else by one tag of their own."""
    keys: dict[str, list[Slot]] = {}
    scripts: dict[str, list[str]] = {}
    for script, names in zip(facts, key_names(facts), strict=True):
        for slot, name in zip(script.keys, names, strict=True):
            keys.setdefault(name, []).append(slot)
            scripts.setdefault(name, []).append(script.script.name)
    spelled = {name: _SPELLED.fullmatch(slots[0].shape) for name, slots in keys.items()}
    shared = shared_names(facts)
    yield "[keys]  # one hash tag: on a cluster a script's keys lie in one slot"
    for name, slots in keys.items():
        kind = (
            " or ".join(sorted(set().union(*(slot.types for slot in slots))))
            or "of a type that the scripts do not tell"
        )
        callers = next(filter(None, map(told_by_callers, slots)), "; spell it as your clients do")
        commands = set().union(*(slot.commands for slot in slots))
        template, match = f"{tag}:{name}", spelled[name]
        if match is not None and all(spelled.values()):
            template = f"{match['before'].replace('*', 'store')}{tag}{match['behind']}"
        gap = ""
        if commands and not commands & CREATES:
            gap = f"; {TODO}: no script here puts anything there: is it another of these keys?"
            template = template if slots[0].shape else f"<{TODO} {name}>"
        elif slots[0].name in shared and not slots[0].shape:
            gap = f"; {TODO}: two KEYS of a script are called {slots[0].name}: which key is this?"
            template = f"<{TODO} {name}>"
        yield f'{_bare(name)} = "{template}"  # {kind}, in {_scripts(scripts[name])}{callers}{gap}'


def _scripts(names: Sequence[str]) -> str:
    count = len(set(names))
    return f"{count} script{'s' if count > 1 else ''}"


_SPELLED = re.compile(r"(?P<before>\*?[\w:./-]*)\{\*\}(?P<behind>[\w:./-]*)")


def _operation(
    one: Facts, names: Sequence[str], operation: str | None, fields: Sequence[str], ran: str
) -> tuple[list[str], Sequence[str]]:
    """The lines of an operation, and the fields that its arguments stand for."""
    does = "writes" if one.writes else "only reads"
    called = f"calls {', '.join(one.commands)}" if one.commands else "calls no command"
    head = [f"# {one.label} {called}, and {does}; returns {', '.join(one.replies)}"]
    head += [f"# {ran}"] if ran else []
    call, taken = _call(one, names, operation, fields)
    if operation is None:
        head.append(f"# {TODO}: none of the contract's operations is called like this; name one, or leave it out")
        head.append(f"# [operations.{_bare(plain_name(one) or 'operation')}]")
        return head + [f"# {line}" for line in call], taken
    return [*head, f"[operations.{operation}]", *call], taken


def _call(
    one: Facts, names: Sequence[str], operation: str | None, fields: Sequence[str]
) -> tuple[list[str], Sequence[str]]:
    lines = [f"script = {json.dumps(one.script.name)}"]
    lines += [f"function = {json.dumps(one.function)}"] if one.function else []
    taken: list[str] = []
    if one.keys:
        lines.append(f"keys = {json.dumps([*names])}")
    if one.has_more_keys:
        lines.append(f"# {TODO}: more of KEYS are read, at places that the text does not tell")
    if one.arguments:
        lines.append("args = [")
        for slot in one.arguments:
            name = NAMELESS.get(operation or "", {}).get(known_field(slot, fields, ()) or "")
            if name is not None and not any(
                known_field(other, (name,), ()) for other in one.arguments if other != slot
            ):
                slot = replace(slot, name=name, is_named=True)
            lines.append(f"  {_argument(slot, fields, taken)}")
        lines.append("]")
    if one.has_more_arguments:
        lines.append(f"# {TODO}: more of ARGV are read, at places that the text does not tell")
    if not one.writes:
        lines.append("read_only = true")
    return lines, taken


def known_field(slot: Slot, fields: Sequence[str], taken: Sequence[str]) -> str | None:
    """The field that an argument's name, or a caller's spelling of it, speaks of."""
    is_path = re.fullmatch(r"\{[\w.$@>:()-]*\}", slot.spelled) is not None
    hint = re.findall(r"[A-Za-z]\w*", slot.spelled)[::-1] if is_path else []
    known = field_for(slot.name, fields, taken) if slot.is_named else None
    return known or next(filter(None, (field_for(word, fields, taken) for word in hint)), None)


def _argument(slot: Slot, fields: Sequence[str], taken: list[str]) -> str:
    read = " or ".join(sorted(slot.types)) or "text"
    if slot.members:
        read += f" with {', '.join(sorted(slot.members))}"
    read += "".join(f", a {unit}" for unit in sorted(slot.units)) + told_by_callers(slot)
    if slot.moment is not None and "now_ms" not in fields and slot.moment.unit == "?":
        return f'"<{TODO} {slot.name}>",  # {TODO}: {slot.name}, read as {read}; neither <now_ms> nor a sum with it'
    if slot.moment is not None and (slot.moment.added or slot.moment.unit == "s"):
        return _moment(slot, fields, taken, read)
    known = known_field(slot, fields, taken)
    if known is None and slot.is_constant:
        return f"{json.dumps(slot.spelled.replace('<', '<<'))},  # {slot.name}, read as {read}"
    if known is None:
        free = [name for name in fields if name not in taken]
        choices = (
            f"; fields of this operation: {', '.join(free)}" if free else "; or plain text, the same in every call"
        )
        return f'"<{TODO} {slot.name}>",  # {TODO}: {slot.name}, read as {read}{choices}'
    taken.append(known)
    scale, guess = "", ""
    if known.endswith("_ms") and slot.units & {DURATION_S, MOMENT_S}:
        scale = "|seconds|floor" if known == "now_ms" else "|seconds|ceil"
    elif known.endswith("_ms") and known != "now_ms" and not slot.units & {DURATION_MS}:
        guess = "; a guess: in ms"
    return f'"<{known}{scale}>",  # {slot.name}, read as {read}{guess}'


def _moment(slot: Slot, fields: Sequence[str], taken: list[str], read: str) -> str:
    """A moment that a program reads from its clock, and what it adds."""
    assert slot.moment is not None
    unit, added, is_whole = slot.moment
    cut = "" if unit != "s" else "|seconds|floor" if is_whole else "|seconds"
    guess = ""
    if added.isdigit():
        added = f"|add:{int(added) * (1000 if unit == 's' else 1)}"
    elif added:
        lasting = [name for name in fields if name.endswith("_ms") and name not in (*taken, "now_ms")]
        word = re.findall(r"[A-Za-z]\w*", added)[-1]
        known = field_for(word, lasting, [*taken, "now_ms"])
        if known is None and len(lasting) != 1:
            if lasting:
                return f'"<{TODO} {slot.name}>",  # {TODO}: {slot.name}, read as {read}; <now_ms|add:...{cut}>'
            known, guess = str(LATER_MS), "; a guess: this much later"
        elif known is None:
            known, guess = lasting[0], f"; a guess: {word} is {lasting[0]}"
        taken += [known] if known in fields else []
        added = f"|add:{known}"
    taken.append("now_ms")
    return f'"<now_ms{added}{cut}>",  # {slot.name}, read as {read}{guess}'


def _bare(name: str) -> str:
    """A name as a key of TOML."""
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)
