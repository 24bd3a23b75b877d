"""What scripts tell of the promises that their contract leaves open, and of what their replies mean to it: guesses by
the tables of ``names.toml``, each with its reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from orderlab.properties.draft.facts import DURATION_MS, DURATION_S, MOMENT_S, Facts, Slot
from orderlab.properties.draft.guess import TABLES, Guess, field_for
from orderlab.properties.lint.rule import words

TODO = "TODO"
"""In a template it is a field that no contract has, so that validation names it."""
LATER_MS = 10_000
"""What is tried where a program passes a moment that is later by some time: so long that a second is no matter."""
_LOOKS = words("EXISTS HEXISTS SISMEMBER ZSCORE HGET GET HSETNX SETNX LPOS")
_Rule = Mapping[str, Any]


class PromiseLine(NamedTuple):
    """One promise, as a line of TOML, and why it is guessed."""

    text: str
    reason: str


def promises(facts: Sequence[Facts], guess: Guess, taken: Mapping[str, Collection[str]]) -> Iterator[PromiseLine]:
    """The lines of ``[promises]``. ``taken``: the fields that each operation's arguments stand for."""
    bound = {guess.operations[each.label]: each for each in facts if each.label in guess.operations}
    for rule in TABLES["promised"].get(guess.contract, ()):
        if not _applies(rule, bound, taken):
            continue
        for value in _constants(rule, bound) if "constant" in rule else [""]:
            yield PromiseLine(rule["line"].format(value), rule["reason"])
    if guess.contract in TABLES["clocks"] and any("now_ms" in names for names in taken.values()):
        yield PromiseLine('clocks = "agree"', "callers pass their own clock; take it out if those may differ")


def with_fixed_durations(facts: Sequence[Facts], guess: Guess) -> list[Facts]:
    """The facts of a lock whose release is passed its duration as well, so that a program has one for all: it is tried
    with a fixed one."""
    releases = [each for each in facts if guess.contract == "lock" and guess.operations.get(each.label) == "release"]
    if not any(_lasts(slot) for each in releases for slot in each.arguments):
        return [*facts]
    return [replace(each, arguments=[_fixed(slot) for slot in each.arguments]) for each in facts]


def _lasts(slot: Slot) -> bool:
    return slot.is_named and bool(slot.units) and field_for(slot.name, ("ttl_ms",), ("now_ms",)) == "ttl_ms"


def _fixed(slot: Slot) -> Slot:
    if not _lasts(slot):
        return slot
    value = LATER_MS // 1000 if DURATION_S in slot.units else LATER_MS
    return replace(slot, value=str(value))


def _applies(rule: _Rule, bound: Mapping[str, Facts], taken: Mapping[str, Collection[str]]) -> bool:
    facts = bound.get(rule["operation"])
    if facts is None:
        return False
    spoken = {name for names in taken.values() for name in names}
    moments = [slot for each in bound.values() for slot in each.arguments if MOMENT_S in slot.units]
    checks: Mapping[str, Callable[[Any], bool]] = {
        "given": lambda field: field in taken.get(rule["operation"], ()),
        "nobody_given": lambda field: field not in spoken,
        "commands": lambda groups: all({*group} & {*facts.commands} for group in groups),
        "lacks": lambda group: not {*group} & {*facts.commands},
        "looks_for_doubles": lambda wanted: looks_for_doubles(facts) == wanted,
        "in_seconds": lambda wanted: bool(moments) == wanted,
        "named": lambda field: any(field_for(slot.name, (field,), ()) == field for slot in facts.arguments),
        "later": lambda wanted: any(slot.moment and slot.moment.added for slot in facts.arguments) == wanted,
    }
    return all(checks[name](value) for name, value in rule.items() if name in checks)


def _constants(rule: _Rule, bound: Mapping[str, Facts]) -> Iterator[str]:
    """What the program always passes: under a name, or, of ``time``, how long something lasts, in ms."""
    for slot in bound[rule["operation"]].arguments:
        always = slot.value or (slot.spelled if slot.is_constant else "")
        is_number = always.isdigit()
        if rule["constant"] != "time":
            field = rule["constant"]
            if is_number and (field in slot.name.lower() or field_for(slot.name, (field,), ("now_ms",)) == field):
                yield always
        elif is_number and slot.units & {DURATION_S, DURATION_MS}:
            yield str(int(always) * (1000 if DURATION_S in slot.units else 1))
        elif slot.moment is not None and slot.moment.added.isdigit():
            yield str(int(slot.moment.added) * (1000 if slot.moment.unit == "s" else 1))


def looks_for_doubles(facts: Facts) -> bool:
    """Whether a script looks for what is there already."""
    return bool(_LOOKS & {*facts.commands}) or b"NX" in facts.script.source.upper()


def reply_of(facts: Facts, contract: str | None, operation: str | None, written: Collection[str]) -> str:
    """How the reply of an operation is read, as TOML; empty where it is as the contract's, or nothing is known.
    ``written``: members that the scripts give to messages."""
    kinds = {*facts.replies} - {"error"}
    for rule in TABLES["replies"].get(contract, ()):
        is_meant = operation in rule["operations"] and ("kinds" not in rule or kinds <= {*rule["kinds"]})
        is_meant &= {*rule.get("commands", ())} <= {*facts.commands} and {*rule.get("replies", ())} <= kinds
        if is_meant and rule.get("looks_for_doubles", looks_for_doubles(facts)) == looks_for_doubles(facts):
            errors = ", ".join(f'{json.dumps(text)} = "{rule["errors"]}"' for text in facts.errors if "errors" in rule)
            text = str(rule["reply"])
            text = text.replace('"OK"', json.dumps(facts.statuses[0])) if facts.statuses else text
            return text.replace("{ ", f"{{ errors = {{ {errors} }}, ", 1) if errors else text
    if operation == TABLES["messages"].get(contract, {}).get("page"):
        names = {field_for(name, TABLES["messages"][contract]["told"], ()): name for name in sorted(written)}
        fields = ", ".join(f'{field} = "{name}"' for field, name in names.items() if field)
        return f'{{ shape = "messages", fields = {{ payload = "payload|{TODO}", {fields} }} }}' if fields else ""
    return ""


def message_table(facts: Sequence[Facts], guess: Guess) -> Iterator[str]:
    """``[message]`` of a store whose messages are JSON: what the script reads of one, and a gap for the rest."""
    table = TABLES["messages"].get(guess.contract)
    if table is None:
        return
    adding = [each for each in facts if guess.operations.get(each.label) == table["batch"]]
    batch = next((slot for each in adding for slot in each.arguments if slot.members), None)
    if batch is None:
        return
    known = {member: field_for(member, table["fields"], ()) for member in sorted(batch.members - batch.written)}
    fields = [f'{member} = "<{field or f"{TODO} {member}"}>"' for member, field in known.items()]
    if "payload" not in known.values():
        fields.append(f'payload = "<{TODO} payload>"')
    yield f"[message]  # {TODO}: one message as the program writes it; scripts read {', '.join(known) or 'nothing'}"
    yield 'format = "json"'
    yield f"fields = {{ {', '.join(fields)} }}  # such as <payload|base64>, <expiry_ms|seconds>, <topic>"
    yield ""
