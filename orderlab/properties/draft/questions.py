"""What a draft does not know and its author does: asked on a terminal, one gap at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from orderlab.model.errors import did_you_mean
from orderlab.properties.draft.callers import told_by_callers
from orderlab.properties.draft.draft import fields_of
from orderlab.properties.draft.facts import Facts
from orderlab.properties.draft.guess import OPERATIONS, Guess, guessed, known_field, plain_name

Ask = Callable[[str, Sequence[str]], str]
"""A question and the answers that it has -> one of these, ``=text``, or nothing where the gap is to stay."""
OWN = "own"
"""None of the suite's contracts: a class of one's own."""


def answered(facts: Sequence[Facts], guess: Guess, ask: Ask) -> Guess:
    """The guess, with what the answers add; what is said of arguments is noted in ``facts``."""
    if guess.contract is None:
        names = ", ".join(each.script.name for each in facts)
        wanted = ask(f"What are these scripts ({names})?", [*OPERATIONS, OWN])
        if wanted not in OPERATIONS:
            return guess
        guess = replace(guessed(facts, wanted), reason="as was answered")
    assert guess.contract is not None
    fields = fields_of(guess.contract)
    guess = replace(guess, operations=dict(_operations(facts, guess, list(fields), ask)))
    for script_facts in facts:
        if script_facts.label in guess.operations:
            _arguments(script_facts, guess.operations[script_facts.label], fields, ask)
    return guess


def _operations(facts: Sequence[Facts], guess: Guess, all_of: Sequence[str], ask: Ask) -> Iterator[tuple[str, str]]:
    taken = set(guess.operations.values())
    for script_facts in facts:
        operation = guess.operations.get(script_facts.label, "")
        free = [name for name in all_of if name not in taken]
        if not operation and free:
            does = "writes" if script_facts.writes else "reads"
            operation = ask(
                f"{script_facts.script.name} {does} with {', '.join(script_facts.commands)}: which operation is it?",
                free,
            )
        if operation:
            taken.add(operation)
            yield script_facts.label, operation


def _arguments(script_facts: Facts, operation: str, fields: Mapping[str, Sequence[str]], ask: Ask) -> None:
    taken: list[str] = []
    for number, slot in enumerate(script_facts.arguments, 1):
        known = known_field(slot, fields[operation], taken)
        free = [name for name in fields[operation] if name not in taken]
        if known is None and not slot.is_constant and free:
            about = f"{script_facts.script.name} as {operation}: what is ARGV[{number}]"
            about += f" ({slot.name}{told_by_callers(slot)})?"
            known = ask(f"{about} =TEXT for a text that is always the same.", free)
            if known.startswith("="):
                slot.spelled, slot.is_constant = known[1:], True
            elif known:
                slot.name, slot.is_named = known, True
        if known in fields[operation]:
            taken.append(str(known))


def asked_on_terminal(question: str, choices: Sequence[str]) -> str:
    """Ask until the answer is one of ``choices`` (or the beginning of one alone), a text behind ``=``, or empty."""
    print(f"{question}\n  {', '.join(choices)}; Enter leaves it open")
    while True:
        try:
            said = input("> ").strip()
        except EOFError:
            return ""
        alike = [choice for choice in choices if choice.startswith(said)]
        if not said or said in choices or said.startswith("="):
            return said
        if len(alike) == 1:
            return alike[0]
        print(f"{said} is none of them; {did_you_mean(said, choices)}")


def names_of_operations(facts: Sequence[Facts]) -> list[str]:
    """A name for each script as an operation of one's own: its own, with a number where two are called alike."""
    names: list[str] = []
    for script_facts in facts:
        name = plain_name(script_facts) or "call"
        names.append(name if name not in names else f"{name}_{sum(other.startswith(name) for other in names) + 1}")
    return names
