"""A class of ``orderlab.contract`` for scripts that no contract of the suite fits: its operations are filled in, what
they promise is to be written."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from orderlab.properties.draft.facts import Facts, Slot
from orderlab.properties.draft.guessed_promises import TODO
from orderlab.properties.draft.probing import choices
from orderlab.properties.draft.questions import names_of_operations

CONTRACT_FILE, CLASS = "contract.py", "Store"
SPECIFICATION = f"{CONTRACT_FILE}:{CLASS}"
NOW_MS = 1_700_000_000_000


def named_fields(facts: Sequence[Facts]) -> Mapping[str, tuple[str, Sequence[str]]]:
    """Script -> (operation, fields): every argument has a field of its own, and is noted in ``facts`` under it."""
    operations = {}
    for script_facts, operation in zip(facts, names_of_operations(facts), strict=True):
        fields: list[str] = []
        for slot in script_facts.arguments:
            if not _is_field(slot):
                continue
            name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\W+", "_", slot.name).strip("_").lower() or "value"
            name = f"{name}_" if keyword.iskeyword(name) else name
            name = name if name not in fields else f"{name}_{len(fields) + 1}"
            slot.name, slot.is_named = name, True
            fields.append(name)
        operations[script_facts.label] = (operation, fields)
    return operations


def contract_text(facts: Sequence[Facts], operations: Mapping[str, tuple[str, Sequence[str]]]) -> str:
    """The text of the class."""
    head = [
        f'"""What these scripts promise. Drafted by orderlab init; lines with {TODO} are to be written.',
        "",
        "orderlab docs contracts says what each method is for, and works one through.",
        '"""',
        "",
        "from orderlab.contract import Call, Contract",
        "",
        "",
        f"class {CLASS}(Contract):",
        "    operations = {",
        *(
            f'        "{name}": ({"".join(f"{field!r}, " for field in fields)}),'
            for name, fields in operations.values()
        ),
        "    }",
        "",
        "    def initial(self):",
        f"        return ()  # {TODO}: the state of an empty store; any value that can be hashed",
        "",
        "    def outcomes(self, state, call, now_ms):",
    ]
    for script_facts in facts:
        name, fields = operations[script_facts.label]
        head += [
            f"        if call.name == {json.dumps(name)}:  "
            f"# {script_facts.script.name} returns {', '.join(script_facts.replies)}",
            f"            # {TODO}: each reply that {name}({', '.join(fields)}) may give, with the state after it:",
            "            # yield reply, state",
            f'            raise NotImplementedError("write what {name} may reply")',
        ]
    head += ["", "    def calls(self, client, seen):"]
    for script_facts in facts:
        name, fields = operations[script_facts.label]
        slots = [slot for slot in script_facts.arguments if _is_field(slot)]
        given = [f"{field}={_value(choices(slot, NOW_MS))}" for field, slot in zip(fields, slots, strict=True)]
        head.append(f"        yield Call.of({', '.join([json.dumps(name), *given])})")
    return "\n".join(head) + "\n"


def _is_field(slot: Slot) -> bool:
    """Whether a caller chooses it: neither a constant nor read from the clock."""
    return not slot.is_constant and (slot.moment is None or slot.moment.unit == "?")


def _names(fields: Sequence[str]) -> str:
    return ", ".join(f'"{field}"' for field in fields) + ("," if len(fields) == 1 else "")


def _value(tried: Sequence[bytes]) -> str:
    text = tried[0].decode("utf-8", "replace") if tried else ""
    return text if re.fullmatch(r"-?[1-9]\d{0,15}|0", text) else json.dumps(text)


def first_gap(file: Path) -> str | None:
    """What is still to be written in a drafted class, with its line; None where nothing is."""
    if not file.is_file():
        return None
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if (gap := re.search(rf"# {TODO}: (.*)", line)) is not None:
            return f"{file}:{number}: {gap[1].rstrip(':')}; orderlab docs contracts says how"
    return None
