"""The text of a first ``store.toml``: what is known, and gaps that say what is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from orderlab.properties.draft.callers import told_by_callers
from orderlab.properties.draft.facts import DURATION_MS, DURATION_S, MOMENT_S, Facts, Slot
from orderlab.properties.draft.guess import (
    COMMON,
    NAMELESS,
    OPERATIONS,
    TABLES,
    WANTED,
    Guess,
    field_for,
    known_field,
    plain_name,
    settles_a_range,
)
from orderlab.properties.draft.guessed_promises import (
    LATER_MS,
    TODO,
    PromiseLine,
    message_table,
    promises,
    reply_of,
    with_fixed_durations,
)
from orderlab.properties.draft.key_lines import KeyLines, bare
from orderlab.properties.draft.probing import key_names
from orderlab.sim.stores.binding.schema import CONTRACTS
from orderlab.sim.stores.binding.session import MESSAGE_FIELDS, OPERATION_FIELDS
from orderlab.sim.stores.sources.spelling import TOLD_IN


def fields_of(contract: str) -> Mapping[str, Sequence[str]]:
    """Operation -> fields of a contract."""
    import importlib

    common = tuple(COMMON.get(contract, ()))
    if contract not in CONTRACTS:
        return {operation: (*fields, *common) for operation, fields in OPERATION_FIELDS.items()}
    module, _, name = CONTRACTS[contract].partition(":")
    operations: Mapping[str, Sequence[str]] = getattr(importlib.import_module(module), name).operations
    return operations


BATCHED, BATCH = ("recover", "promote"), 100
"""Operations that are told how many jobs one call moves, and how many are tried: as many as a queue promises that
says nothing."""
MAKES_NAMES = {"INCR", "INCRBY", "HINCRBY", "XADD"}
"""Commands by which a store makes names."""
NAMED = "job"
NAMED_BY_STORE = (
    f'names = "{TODO}"  # {TODO}: add is given no <{NAMED}>, so that the store names jobs, of which no contract here '
    "speaks; pass the name, or draft anew with --specification own"
)
HOLDERS, HOLDERS_TRIED = {"token", "ttl_ms"}, 2
"""Fields of a lock's acquire, and how many are tried where it is given the number of its holders."""
WITHOUT_INTERVALS = "save is passed no <expiry_ms>: MQTT's messages have one, and laws of expiry will fall"
INTERVALS = {"expiry_ms", "message", "messages"}
"""Fields by which a save is told how long a message lives."""
Own = Mapping[str, tuple[str, Sequence[str]]]
"""Script -> operation and fields of a class of one's own."""


def draft(
    facts: Sequence[Facts],
    guess: Guess,
    ran: Mapping[str, str] = MappingProxyType({}),
    own: tuple[str, Own] | None = None,
    replied: Sequence[PromiseLine] | None = None,
    seen: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The text of a ``store.toml`` for scripts. ``ran``: what runs of each have shown, by its name; ``own``: the class
    that was drafted for them, where no contract fits, and its operations; ``replied``: promises that replies of the
    first draft have shown, so that these are no gap; None in that draft, which is carried out; ``seen``: operation ->
    how its reply is read, as runs have shown."""
    facts = with_fixed_durations(facts, guess)
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
    untold = False
    spoken_of = [guess.operations.get(each.label) if own is None else own[1][each.label][0] for each in facts]
    known = known if own is None else dict(own[1].values())
    every_field = [known.get(operation or "", ()) for operation in spoken_of]
    keys = KeyLines(facts, every_field, guess.contract)
    batch = TABLES["messages"].get(guess.contract, {}).get("batch")
    for one, names, operation, fields in zip(facts, key_names(facts), spoken_of, every_field, strict=True):
        is_single = operation is not None and operation == batch and _is_of_one_message(one)
        fields = (*_fields_of_a_message(one), *fields) if is_single else fields
        table, spoken = _operation(one, names, operation, fields, ran.get(one.label, ""), keys)
        if is_single:
            table += ["batch_max = 1", *([] if {*spoken} & INTERVALS else [f"# {TODO}: {WITHOUT_INTERVALS}"])]
        if shown := seen.get(operation or ""):
            table.append(f"reply = {shown}  # a guess: so it replied when it was run")
        elif reply := reply_of(one, guess.contract, operation, written):
            why = TODO if TODO in reply else "a guess"
            table.append(f"reply = {reply}  # {why}: it returns {', '.join(one.replies)}")
        elif (
            (wanted := WANTED.get(guess.contract or "", {}).get(operation or ""))
            and (operation != "take" or {*one.replies} - {"text", "nil"})
            and not (operation == "take" and replied)
        ):
            gap = TABLES["unread"].get(guess.contract, f'value = "<{TODO} reply>"')
            gap = "# " if replied is None or operation == "take" else f"reply = {{ {gap} }}  # "
            table.append(f"{gap}{TODO}: reply: the contract's {operation} replies {wanted}")
            untold |= operation == "take" and replied is not None
        taken[operation or one.label] = spoken
        tables += ["", *table]
    guessed_lines = {line.text.partition(" ")[0]: line for line in (*promises(facts, guess, taken), *(replied or ()))}
    promised = [f"{line.text}  # a guess: {line.reason}" for line in guessed_lines.values()]
    if untold:  # what it replies decides every verdict, so that no guess may stand
        told = f'tells = ["{TODO}"]  # {TODO}: what take replies with, in this order: job, token, attempt, payload'
        promised = [*(line for line in promised if not line.startswith("tells = ")), told]
    is_named = NAMED in taken.get("add", [NAMED]) or not any(NAMED in names for names in taken.values())
    if NAMED in known.get("add", ()) and not is_named:  # a name that the store makes, and its caller's: no verdict
        promised = [*(line for line in promised if not line.startswith("names = ")), NAMED_BY_STORE]
    lines += ["[promises]", *promised, ""] if promised else []
    return "\n".join([*lines, *keys.lines(), "", *message_table(facts, guess), *tables[1:]]) + "\n"


def _is_of_one_message(facts: Facts) -> bool:
    """Whether a save is given one message, as its payload, and no batch."""
    fields = [known_field(slot, MESSAGE_FIELDS, ()) for slot in facts.arguments]
    return "payload" in fields and not any(slot.members or slot.types & {"json", "msgpack"} for slot in facts.arguments)


def _fields_of_a_message(facts: Facts) -> Sequence[str]:
    """What a save of one message may be given of it. Keys that lapse together are no intervals of messages."""
    lapse_together = {*facts.commands} & {"EXPIRE", "PEXPIRE"}
    return [field for field in MESSAGE_FIELDS[:-1] if field != "expiry_ms" or not lapse_together]


def _operation(
    one: Facts, names: Sequence[str], operation: str | None, fields: Sequence[str], ran: str, keys: KeyLines
) -> tuple[list[str], Sequence[str]]:
    """The lines of an operation, and the fields that its arguments stand for."""
    does = "writes" if one.writes else "only reads"
    called = f"calls {', '.join(one.commands)}" if one.commands else "calls no command"
    head = [f"# {one.label} {called}, and {does}; returns {', '.join(one.replies)}"]
    head += [f"# {ran}"] if ran else []
    call, taken = _call(one, names, operation, fields, keys)
    if operation is None:
        why = "none of the contract's operations is called like this; name one, or leave it out"
        if any(settles_a_range(one, keys.contract, name) for name in OPERATIONS.get(keys.contract or "", ())):
            why = "it settles all up to an identifier, which no operation of the contract does: --specification own"
        head.append(f"# {TODO}: {why}")
        head.append(f"# [operations.{bare(plain_name(one) or 'operation')}]")
        return head + [f"# {line}" for line in call], taken
    return [*head, f"[operations.{operation}]", *call], taken


def _call(
    one: Facts, names: Sequence[str], operation: str | None, fields: Sequence[str], keys: KeyLines
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
            others = [each for each in one.arguments if each != slot]
            is_lacking = name is not None and not any(known_field(each, (name,), ()) == name for each in others)
            if name is not None and is_lacking and not {*one.commands} & MAKES_NAMES:
                slot = replace(slot, name=name, is_named=True)
            is_count = field_for(slot.name, ("count",), ()) == "count"
            if operation in BATCHED and is_count and not slot.is_constant:
                lines.append(f'  "{BATCH}",  # {slot.name}; a guess: up to so many in a call, as promised (batch)')
                continue
            lines.append(f"  {_argument(slot, fields, taken, keys.beginning(slot))}")
        lines.append("]")
    if one.has_more_arguments:
        lines.append(f"# {TODO}: more of ARGV are read, at places that the text does not tell")
    if not one.writes:
        lines.append("read_only = true")
    return lines, taken


def _argument(slot: Slot, fields: Sequence[str], taken: list[str], beginning: str | None) -> str:
    read = " or ".join(sorted(slot.types)) or "text"
    if slot.members:
        read += f" with {', '.join(sorted(slot.members))}"
    read += "".join(f", a {unit}" for unit in sorted(slot.units)) + told_by_callers(slot)
    if beginning is not None:
        return f'"{beginning}",  # {slot.name}, read as {read}; a guess: keys begin with it'
    if slot.value:
        return f'"{slot.value}",  # {slot.name}, read as {read}; a guess: always this long'
    if slot.moment is not None and "now_ms" not in fields and slot.moment.unit == "?":
        return f'"<{TODO} {slot.name}>",  # {TODO}: {slot.name}, read as {read}; neither <now_ms> nor a sum with it'
    if slot.moment is not None and (slot.moment.added or slot.moment.unit not in ("ms", "?")):
        return _moment(slot, fields, taken, read)
    known = known_field(slot, fields, taken)
    if known is None and {*fields} >= HOLDERS and slot.is_named and field_for(slot.name, ("holders",), ()):
        return f'"{HOLDERS_TRIED}",  # {slot.name}, read as {read}; a guess: how many may hold it, as promised'
    if known is None and slot.is_constant:
        return f"{json.dumps(slot.spelled.replace('<', '<<'))},  # {slot.name}, read as {read}"
    if known is None:
        free = [name for name in fields if name not in taken]
        choices = (
            f"; fields of this operation: {', '.join(free)}" if free else "; or plain text, the same in every call"
        )
        if _JSON.search(slot.spelled):
            choices += '; JSON is written { json = { id = "<field>", count = 0 } }'
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
    cut = _SCALES[unit] + ("|floor" if unit == "s" and is_whole else "")
    guess = ""
    if added.isdigit() and unit in ("us", "ns"):
        return f'"<{TODO} {slot.name}>",  # {TODO}: {slot.name}, read as {read}; <now_ms|add:...{cut}>, added in ms'
    if added.isdigit():
        added = f"|add:{int(added) * (1000 if unit == 's' else 1)}"
    elif added:
        lasting = [name for name in fields if name.endswith("_ms") and name not in (*taken, "now_ms")]
        words = re.findall(r"[A-Za-z]\w*", added)
        word = next((each for each in reversed(words) if not TOLD_IN.fullmatch(each)), words[-1])
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


_JSON = re.compile(r"json_encode|JSON\.stringify|json\.dumps|\.to_json|JSON\.generate|toJson|[sS]eriali[sz]e|Marshal")
_SCALES = {"s": "|seconds", "ms": "", "us": "|milliseconds", "ns": "|milliseconds|milliseconds", "?": ""}
