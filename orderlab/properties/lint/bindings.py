"""What a binding says of its calls that no script's own text does: an operation of several calls is open between
them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from orderlab.model.errors import InputError
from orderlab.model.files import toml_of
from orderlab.properties.lint.keys import APART, LIVES, gives_deadline
from orderlab.properties.lint.linter import LintFinding
from orderlab.properties.lint.rule import WARNING, words
from orderlab.properties.lint.values import ParsedScript
from orderlab.sim.stores.binding.loader import FILE_NAME, read_text_file
from orderlab.sim.stores.binding.results import Script

_CREATES = words(
    """INCR INCRBY INCRBYFLOAT DECR DECRBY SET SETNX APPEND HSET HSETNX HMSET HINCRBY RPUSH LPUSH SADD ZADD ZINCRBY
    XADD"""
)
"""Commands after which a key may be there that was not."""


class StepKey(NamedTuple):
    """One call of a step on a key, named as the binding names it."""

    key: str
    command: str
    has_deadline: bool


def lint_bindings(paths: Sequence[Path], scripts: Sequence[Script]) -> list[LintFinding]:
    """What is said of the operations of the stores at these paths."""
    findings: list[LintFinding] = []
    for path in paths:
        file = path / FILE_NAME if path.is_dir() else path
        if file.suffix == ".toml" and file.is_file():
            findings += _findings(file, {script.name: script for script in scripts})
    return findings


def _findings(file: Path, scripts: Mapping[str, Script]) -> Iterator[LintFinding]:
    text = read_text_file(file).decode("utf-8", "replace")
    try:
        content = toml_of(text.encode(), str(file))
    except InputError:
        return  # told where the store is loaded
    operations = content.get("operations")
    for name, table in operations.items() if isinstance(operations, dict) else ():
        steps = table.get("steps") if isinstance(table, dict) else None
        line = _line_of(text, name)
        if not isinstance(steps, list) or _is_allowed(text, name):
            continue
        for key, first, second in _apart([list(_uses(step, scripts)) for step in steps if isinstance(step, dict)]):
            message = (
                f"{name}: {first} makes {key} in one call, {second} gives it a deadline in another; a client that dies "
                "between them leaves it for ever"
            )
            yield LintFinding(APART, WARNING, file, line, 1, message, text.splitlines()[line - 1].strip())


def _apart(steps: Sequence[Sequence[StepKey]]) -> Iterator[tuple[str, str, str]]:
    """(key, command that makes it, command that gives it a deadline), once for each key."""
    reported: set[str] = set()
    for number, uses in enumerate(steps):
        safe = {use.key for use in uses if use.has_deadline}
        for use in uses:
            if use.command not in _CREATES or use.key in safe or use.key in reported:
                continue
            later = (other for step in steps[number + 1 :] for other in step)
            given = next((other for other in later if other.key == use.key and other.command in LIVES), None)
            if given is not None:
                reported.add(use.key)
                yield use.key, use.command, given.command


def _uses(step: Mapping[str, Any], scripts: Mapping[str, Script]) -> Iterator[StepKey]:
    """The keys that a step touches: of a command its first argument, of a script what it calls on KEYS."""
    if "transaction" in step:  # these calls are carried out together
        for inner in step["transaction"]:
            yield from _uses(inner, scripts)
        return
    command = step.get("command")
    if isinstance(command, list) and len(command) >= 2 and all(isinstance(word, str) for word in command[:2]):
        name, options = command[0].upper(), {str(word).upper().encode() for word in command[2:]}
        yield StepKey(_plain(command[1]), name, gives_deadline(name, options))
    elif (script := scripts.get(str(step.get("script")))) is not None:
        yield from _uses_of_script(script, [_plain(key) for key in step.get("keys", ()) if isinstance(key, str)])


def _uses_of_script(script: Script, keys: Sequence[str]) -> Iterator[StepKey]:
    try:
        parsed = ParsedScript(script.source, str(script.path))
    except InputError:
        return  # told where scripts are linted
    source = script.source.decode("utf-8", "replace")
    names = {name: int(place) for name, place in re.findall(r"(\w+)\s*=\s*KEYS\[(\d+)\]", source)}
    for call in parsed.calls:
        if not call.command.arguments:
            continue
        text = parsed.text(call.command.arguments[0])
        direct = re.fullmatch(r"KEYS\[(\d+)\]", text)
        place = int(direct[1]) if direct else names.get(text, 0)
        if 0 < place <= len(keys):
            options = {(parsed.string(part) or b"").upper() for part in call.command.arguments[2:]}
            yield StepKey(keys[place - 1], call.name, gives_deadline(call.name, options))


def _plain(key: str) -> str:
    """The name of a key, ``<key.hits>`` as ``hits``."""
    named = re.fullmatch(r"<key\.([^|>]+)>", key)
    return named[1] if named else key


def _line_of(text: str, operation: str) -> int:
    header = re.search(rf"^\[+operations\.[\"']?{re.escape(operation)}\b", text, re.MULTILINE)
    return 1 if header is None else text.count("\n", 0, header.start()) + 1


def _is_allowed(text: str, operation: str) -> bool:
    """Whether a comment before or within an operation allows it, with a reason."""
    lines = text.splitlines()
    begin = _line_of(text, operation) - 1
    end = next(
        (
            number for number in range(begin + 1, len(lines))
            if re.match(r"\[", lines[number]) and f"operations.{operation}" not in lines[number]
        ),
        len(lines),
    )  # fmt: skip
    around: Collection[str] = lines[max(0, begin - 1) : end]
    return any(re.search(rf"#\s*orderlab: allow {APART}\b[\s:,-]*\w", line) for line in around)
