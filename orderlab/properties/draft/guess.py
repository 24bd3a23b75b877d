"""Which contract a store's scripts are of, and which operation each is: a guess by names, with its reason."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from orderlab.properties.draft.facts import Facts, Slot
from orderlab.properties.lint.rule import words

TABLES: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
OPERATIONS: Mapping[str, Mapping[str, Sequence[str]]] = TABLES["operations"]
"""Contract -> operation -> what scripts of that kind are called, letters alone, in small ones."""
FIELDS: Mapping[str, Sequence[str]] = TABLES["fields"]
"""A contract's field -> words in names of variables that speak of it."""
KEYS: Mapping[str, Sequence[str]] = TABLES["keys"]
"""Operation -> words in the first key of a script that more than one is carried out by."""
WANTED: Mapping[str, Mapping[str, str]] = TABLES["wanted"]
"""Contract -> operation -> what it replies, where a script hardly ever says it in the same words."""
NAMELESS: Mapping[str, Mapping[str, str]] = TABLES["nameless"]
"""Operation -> field that stands for the thing where it has no name of its own -> the name's field."""
TAGS: Mapping[str, str] = TABLES["tags"]
"""Contract -> the hash tag of a store's keys, where that is not the store itself."""
COMMON: Mapping[str, Sequence[str]] = TABLES["common"]
"""Contract -> fields that every operation has beside its own."""


CREATING = frozenset(("acquire", "add", "post", "save", "hit"))
"""Operations that put something there."""
REPLIES: Mapping[str, str] = TABLES["only"]
"""Operations of which one kind of reply alone can be read."""
CREATES = words(
    """SET SETNX SETEX PSETEX GETSET INCR INCRBY INCRBYFLOAT APPEND SETBIT MSET HSET HSETNX HMSET HINCRBY HINCRBYFLOAT
    RPUSH LPUSH LMOVE RPOPLPUSH SADD ZADD ZINCRBY XADD PFADD RENAME COPY EVAL"""
)
"""Commands that can."""


ESSENTIAL: Mapping[str, Sequence[Sequence[str]]] = TABLES["essential"]
"""Contract -> operations without which a store is none of its kind, one of each list."""
FEW = 2
"""So few scripts may be a part of a store."""
SPOKEN: Mapping[str, Sequence[str]] = {"limiter": ("limit", "window_ms")}
"""Contract -> fields that decide for it where as many scripts are called like operations of another."""


@dataclass(frozen=True)
class Guess:
    """What a store seems to be."""

    contract: str | None
    operations: Mapping[str, str]
    """Script -> operation; those that fit none are left out."""
    reason: str


def guessed(facts: Sequence[Facts], wanted: str | None = None) -> Guess:
    """The contract that most scripts fit by their names; None where fewer than two fit, or one of a single script."""
    best: tuple[tuple[int, bool], dict[str, str], str | None] = ((0, False), {}, None)
    for contract in OPERATIONS if wanted is None else (wanted,):
        fits = _fits(contract, facts)
        if (
            wanted is None
            and len(facts) > FEW
            and not all({*group} & {*fits.values()} for group in ESSENTIAL[contract])
        ):
            continue
        fit = (len(fits), _speaks_of(contract, facts))
        if fit[0] and fit > best[0]:
            best = (fit, fits, contract)
    (count, _), operations, likeliest = best
    ranged = {
        each.label for each in facts if settles_a_range(each, wanted or likeliest, operations.get(each.label, ""))
    }
    operations = {label: operation for label, operation in operations.items() if label not in ranged}
    if wanted is not None:
        return Guess(wanted, operations, "as asked for")
    if likeliest is None or count < min(2, len(facts), len(OPERATIONS[likeliest])):
        return Guess(None, {}, "no contract has operations of these names")
    names = {(each.script.name, each.function) for each in facts if each.label in operations}
    scripts = {(each.script.name, each.function) for each in facts}
    return Guess(likeliest, operations, f"{len(names)} of {len(scripts)} scripts are called like operations of it")


def _speaks_of(contract: str, facts: Sequence[Facts]) -> bool:
    """Whether some script is given all that alone makes the contract: a limit and its window."""
    wanted = SPOKEN.get(contract, ())
    return bool(wanted) and any(
        all(any(field_for(slot.name, (name,), ()) == name for slot in each.arguments) for name in wanted)
        for each in facts
    )


def _fits(contract: str, facts: Sequence[Facts]) -> dict[str, str]:
    """The scripts that are called like operations of a contract; of two that fit one, that with the nearer name."""
    scored = []
    for one in facts:
        name = plain_name(one)
        for operation, names in OPERATIONS[contract].items():
            if operation in CREATING and not CREATES & {*one.commands}:
                continue
            if operation == "take" and not one.writes:
                continue  # whoever takes a job keeps it from others
            if not _is_told(contract, operation, one):
                continue
            if operation in REPLIES and REPLIES[operation] not in one.replies:
                continue
            if name == operation.replace("_", ""):
                scored.append((0, _far(one, operation), one.label, operation))
            elif name in names:
                scored.append((1, _far(one, operation), one.label, operation))
            elif any(_begins_or_ends(name, _last_word(one), word) for word in names if len(word) > 2):
                scored.append((2, _far(one, operation), one.label, operation))
    fits: dict[str, str] = {}
    for _, _, script, operation in sorted(scored, key=lambda each: each[:2]):
        if script not in fits and operation not in fits.values():
            fits[script] = operation
    return fits


def _is_told(contract: str, operation: str, facts: Facts) -> bool:
    """Whether a script is given what its contract's operation cannot do without: a page of a feed, from where."""
    needed = TABLES["needed"].get(contract, {}).get(operation)
    return needed is None or any(known_field(slot, (needed,), ("now_ms",)) == needed for slot in facts.arguments)


def settles_a_range(facts: Facts, contract: str | None, operation: str) -> bool:
    """Whether a script settles all up to an identifier where the contract's operation settles one."""
    ranges: Mapping[str, Sequence[str]] = TABLES["ranges"].get(contract, {})
    return bool({*ranges.get(operation, ())} & {*facts.commands})


def _far(facts: Facts, operation: str) -> bool:
    """Whether a script that is called with several sets of keys is called with others than those of an operation."""
    spoken = KEYS.get(operation, ())
    return bool(facts.called_on) and not any(word in facts.called_on.split(", ")[0].lower() for word in spoken)


def _begins_or_ends(name: str, last: str, word: str) -> bool:
    """Whether a word begins or ends a name. Three letters may end one by chance, as in "spend" or "rollback"."""
    return name.startswith(word) or (name.endswith(word) if len(word) > 3 else last == word)


def _last_word(facts: Facts) -> str:
    """The last word of a script's name, in small letters."""
    parts: list[str] = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", _written_name(facts))
    return parts[-1].lower() if parts else ""


def plain_name(facts: Facts) -> str:
    """What a script is called, letters alone: its file's stem, or the name in its program."""
    name = re.sub(r"[^a-z]", "", _written_name(facts).lower())
    return re.sub(r"^(?:lua|script)|(?:lua|script|job|sha|cmd|command)$", "", name) or name


def _written_name(facts: Facts) -> str:
    file, _, inner = facts.script.name.partition("#")
    told = inner.removesuffix(".lua").split(".")[-1] if inner else PurePath(file).stem
    return re.sub(r"\[\d+\]", "", facts.called_in or facts.function or told)


def field_for(name: str, fields: Sequence[str], taken: Sequence[str]) -> str | None:
    """The field of an operation that a variable's name speaks of; none of what keys begin with."""
    if name in fields and name not in taken:
        return name
    parts = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())
    whole = "".join(parts)
    if "prefix" in whole:
        return None
    for candidate in (*fields, "now_ms"):
        if candidate not in taken and whole == candidate.replace("_", ""):
            return candidate
    for candidate in (*fields, "now_ms"):
        if candidate in taken:
            continue
        spoken = FIELDS.get(candidate, ())
        if whole in spoken or any(word in spoken for word in parts):
            return candidate
    return None


def known_field(slot: Slot, fields: Sequence[str], taken: Sequence[str]) -> str | None:
    """The field that an argument's name, or a caller's spelling of it, speaks of."""
    is_path = re.fullmatch(r"\{[\w.$@>:()-]*\}", slot.spelled) is not None
    hint = re.findall(r"[A-Za-z]\w*", slot.spelled)[::-1] if is_path else []
    taken = (*taken, "now_ms") if any("duration" in unit for unit in slot.units) else taken
    known = field_for(slot.name, fields, taken) if slot.is_named else None
    return known or next(filter(None, (field_for(word, fields, taken) for word in hint)), None)
