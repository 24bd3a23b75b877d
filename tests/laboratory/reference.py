"""The pages of reference that are made of the code: keys of ``store.toml``, laws, rules of lint, commands.

``python -m tests.laboratory.reference`` writes them into ``notes/``, between their marks. ``tests/orderlab/
test_reference.py`` holds the pages against what it would write.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orderlab.application import command
from orderlab.commands import COMMANDS
from orderlab.model.files import write_whole
from orderlab.report.explanations import Explained, laws, rules
from orderlab.sim.stores.binding.json_schema import schema_of_stores
from orderlab.sim.stores.binding.schema import CONTRACTS
from orderlab.sim.stores.binding.session import COMMON_FIELDS, MESSAGE_FIELDS, OPERATION_FIELDS

NOTES = Path(__file__).parents[2] / "notes"
BEGIN, END = (
    "<!-- the table below is written by: python -m tests.laboratory.reference -->",
    "<!-- end of the table -->",
)
TITLES = {
    "session": "session stores",
    "lock": "locks and semaphores",
    "limiter": "limiters",
    "job_queue": "job queues",
    "feed": "feeds",
    "own": "stores with a class of one's own",
}
"""By kind of store."""
TABLES = {
    "Accepted": "[[accept]]",
    "Callers": "[callers]",
    "ContractOperation": "[operations.NAME]",
    "Edit": "[[edits]]",
    "Fixed": "[fixed]",
    "JsonArgument": "{ json = … }",
    "MessageFormat": "[message]",
    "MsgpackArgument": "{ msgpack = … }",
    "Operation": "[operations.NAME]",
    "Operations": "[operations]",
    "Repeated": "{ each = …, items = … }",
    "ReplyTable": "reply",
    "SpecimenTable": "[specimen]",
    "StepTable": "[[operations.NAME.steps]]",
    "ValueReply": "reply",
}
"""Tables of the loader -> how they stand in the file."""
INTRODUCTIONS = {
    "session": "What the fields of templates mean, and how replies are read: `notes/binding-session.md`; the first\n"
    "steps: `notes/how-to-session-store.md`.",
    "own": "How to write the class: `notes/contracts.md`.",
}
"""What else to read, where it is not the page of contracts."""
CONTRACT = "What it promises, in words: `notes/contracts-bundled.md`; the first steps: `notes/how-to-{page}.md`."


def pages() -> Mapping[str, str]:
    """Name of a page -> its text."""
    schema = schema_of_stores()["$defs"]
    made = {}
    for kind, title in TITLES.items():
        head = INTRODUCTIONS.get(kind, CONTRACT.format(page=kind.replace("_", "-")))
        text = "\n".join(_of_store(kind, schema))
        made[f"reference-{kind.replace('_', '-')}.md"] = _page(f"store.toml of {title}", head, text)
    made["reference-laws.md"] = _page(
        "Laws",
        "What each law says; `orderlab explain LAW` prints one. What a law means for a store, and how far a verdict "
        "goes:\n`notes/semantics.md`, `notes/history-laws.md`.",
        "\n".join(_of_laws()),
    )
    made["reference-lint.md"] = _page(
        "Rules of lint",
        "`orderlab lint` applies them, `orderlab explain RULE` prints one; how to allow a line: `notes/lint.md`.",
        "\n".join(_of_rules()),
    )
    made["reference-commands.md"] = _page(
        "Commands", "As `orderlab COMMAND --help` says. Exit codes: `orderlab explain 3`.", "\n".join(_of_commands())
    )
    return made


def _page(title: str, head: str, text: str) -> str:
    return f"# {title}\n\n{head}\n\n{BEGIN}\n\n{text.strip()}\n\n{END}\n"


# -- store.toml


def _of_store(kind: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """Every table of a kind of store, the operations with the fields that templates may name first."""
    yield from _operations(kind, schema)
    whole = schema[kind]
    yield from _table("The file", whole)
    promises = whole["properties"].get("promises", {})
    if "properties" in promises:
        yield from _table("`[promises]`", promises)
    for name in _inner(kind, whole, schema):
        yield from _table(f"`{TABLES[name.partition('.')[2]]}`", schema[name])


def _operations(kind: str, schema: Mapping[str, Any]) -> Iterator[str]:
    if kind == "own":
        return
    fields: Mapping[str, tuple[str, ...]] = OPERATION_FIELDS
    common: tuple[str, ...] = COMMON_FIELDS
    if kind in CONTRACTS:
        module, _, attribute = CONTRACTS[kind].partition(":")
        fields, common = getattr(importlib.import_module(module), attribute).operations, ("now_ms",)
    yield from ("## Operations", "", "| operation | fields of its templates |", "|---|---|")
    for operation, names in fields.items():
        yield f"| `{operation}` | {', '.join(f'`<{name}>`' for name in names)} |"
    more = f"; of one message {', '.join(f'`<{name}>`' for name in MESSAGE_FIELDS)}" if kind == "session" else ""
    yield from ("", f"All of them: {', '.join(f'`<{name}>`' for name in common)}, `<key.NAME>`{more}.", "")


def _inner(kind: str, whole: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Names of the tables that a kind is made of, in the order in which they are met."""
    found: list[str] = []
    pending = [whole]
    while pending:
        for name in re.findall(r"#/\$defs/([\w.]+)", json.dumps(pending.pop(0))):
            if name not in found and name.startswith(f"{kind}."):
                found.append(name)
                pending.append(schema[name])
    return found


def _table(title: str, shape: Mapping[str, Any]) -> Iterator[str]:
    said = _words(shape.get("description", ""))
    yield from (
        f"## {title}",
        "",
        *([said, ""] if said else []),
        "| key | takes | unless said | |",
        "|---|---|---|---|",
    )
    required = shape.get("required", ())
    for key, inner in shape["properties"].items():
        if inner.get("type") == "null":
            continue  # a key of other kinds of store
        default = "must be there" if key in required else _default(inner.get("default"))
        yield f"| `{key}` | {_takes(inner)} | {default} | {_cell(_words(inner.get('description', '')))} |"
    yield ""


def _default(value: object) -> str:
    return "" if value in (None, [], {}) or isinstance(value, dict) else f"`{json.dumps(value)}`"


def _words(text: str) -> str:
    """A docstring as Markdown: what stands in angle brackets is code, and no HTML."""
    return re.sub(r"(?<![`<\w])(<[\w.]+>)", r"`\1`", " ".join(text.replace("``", "`").split()))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _takes(shape: Mapping[str, Any]) -> str:
    """What a key takes, in a few words."""
    if "const" in shape:
        return f"`{json.dumps(shape['const'])}`"
    if "enum" in shape:
        return ", ".join(f"`{json.dumps(one)}`" for one in shape["enum"])
    if "$ref" in shape:
        return f"`{TABLES[shape['$ref'].rpartition('.')[2]]}`"
    if "anyOf" in shape or "oneOf" in shape:
        several = [one for one in shape.get("anyOf", shape.get("oneOf")) if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(_takes(one) for one in several))
    kind = shape.get("type")
    if kind == "array":
        return f"a list: {_takes(shape.get('items', {}))}"
    if kind == "object":
        inner = shape.get("additionalProperties")
        return f"a table: {_takes(inner)} each" if isinstance(inner, dict) else "a table"
    if kind == "integer":
        least, most = shape.get("minimum"), shape.get("maximum")
        bounds = f", {least} to {most}" if least is not None and most is not None else ""
        return f"a number{bounds or (f', {least} or more' if least is not None else '')}"
    return {"string": "a text", "boolean": "`true`, `false`"}.get(str(kind), "anything")


# -- laws, rules, commands


def _of_laws() -> Iterator[str]:
    by_kind: dict[str, list[Explained]] = {}
    for law in laws():
        by_kind.setdefault(law.kind, []).append(law)
    for kind, found in by_kind.items():
        title = kind.replace("law of a ", "Of a ").replace("_", " ")
        yield from (f"## {title}", "", "| law | |", "|---|---|")
        for name, text in {law.name: law.text for law in found}.items():
            yield f"| `{name}` | {_cell(' '.join(text.split()))} |"
        yield ""


def _of_rules() -> Iterator[str]:
    for rule in rules():
        yield from (f"## {rule.name}", "", rule.text, "")


def _of_commands() -> Iterator[str]:
    for name in COMMANDS:
        told = command(name)
        yield from (f"## orderlab {name}", "", " ".join((told.help or "").split()), "")
        rows = [row for row in map(_parameter, told.params) if row]
        yield from ("| option | |", "|---|---|", *rows, "")


def _parameter(parameter: Any) -> str:
    """A row of the table of options; empty for what every command has."""
    names = (*parameter.opts, *parameter.secondary_opts)
    if "--help" in names:
        return ""
    if parameter.param_type_name == "argument":
        names = (str(parameter.name).upper(),)
    text = " ".join((getattr(parameter, "help", "") or "").split())
    return f"| {', '.join(f'`{name}`' for name in names)} | {_cell(text)} |"


def main() -> None:
    """Write the pages."""
    for name, text in pages().items():
        write_whole(NOTES / name, text.encode())


if __name__ == "__main__":
    from orderlab import exit_codes

    exit_codes.run(main, "reference")
