"""The Lua of a binding as text: its tokens, whether it compiles, and its literal 65535 scaled down."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lupa import lua51

from orderlab.model.errors import InputError
from orderlab.model.protocol.packet_id import MODULUS
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.results import Script
from orderlab.sim.stores.binding.session import Store

_LONG_OPENING = re.compile(rb"\[(=*)\[")
_NUMBER = re.compile(rb"0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_NAME = re.compile(rb"[A-Za-z_\x80-\xff][A-Za-z0-9_\x80-\xff]*")
_SPACE = re.compile(rb"[ \t\r\n\f\v]+")
_SYMBOL = re.compile(rb"\.\.\.|\.\.|==|~=|<=|>=|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Token:
    """One token: ``source[start:end]``. ``kind`` is space, comment, string, number, name or symbol."""

    kind: str
    start: int
    end: int
    line: int
    """Counts from 1."""


def tokens(source: bytes) -> Iterator[Token]:
    """Every byte of ``source`` in exactly one token, in order. Never raises: an unfinished token ends with the file."""
    position = 0
    line = 1
    if source.startswith(b"#!"):
        position = _end_of_line(source, 0)
        yield Token("comment", 0, position, line)
    while position < len(source):
        kind, end = _next(source, position)
        yield Token(kind, position, end, line)
        line += source.count(b"\n", position, end)
        position = end


def _next(source: bytes, position: int) -> tuple[str, int]:
    if source.startswith(b"--", position):
        opening = _LONG_OPENING.match(source, position + 2)
        return "comment", _end_of_long(source, opening) if opening else _end_of_line(source, position)
    opening = _LONG_OPENING.match(source, position)
    if opening:
        return "string", _end_of_long(source, opening)
    if source[position : position + 1] in (b'"', b"'"):
        return "string", _end_of_quoted(source, position)
    for kind, pattern in (("space", _SPACE), ("number", _NUMBER), ("name", _NAME), ("symbol", _SYMBOL)):
        found = pattern.match(source, position)
        if found:
            return kind, found.end()
    raise AssertionError("every byte is a symbol at least")


def _end_of_line(source: bytes, position: int) -> int:
    end = source.find(b"\n", position)
    return len(source) if end < 0 else end


def _end_of_long(source: bytes, opening: re.Match[bytes]) -> int:
    closing = b"]" + opening[1] + b"]"
    end = source.find(closing, opening.end())
    return len(source) if end < 0 else end + len(closing)


def _end_of_quoted(source: bytes, position: int) -> int:
    quote = source[position]
    at = position + 1
    while at < len(source) and source[at] != quote:
        at += 2 if source[at] == ord("\\") else 1
    return min(at + 1, len(source))


MEMORY_LIMIT_BYTES = 64 << 20


@functools.cache
def _compiler() -> Any:
    """A function (source, chunk name) -> error text or None, in a Lua of its own that never runs a script."""
    runtime = lua51.LuaRuntime(encoding=None, max_memory=MEMORY_LIMIT_BYTES)
    return runtime.eval(b"function(source, name) local _, message = loadstring(source, name) return message end")


def compiled_form(source: bytes) -> bytes:
    """``source`` as the server compiles it: the body of a function; a shebang line becomes an empty one."""
    if source.startswith(b"#!"):
        newline = source.find(b"\n")
        source = source[newline:] if newline >= 0 else b""
    return b"function script() " + source + b"\nend"


def check_syntax(script: Script) -> None:
    """Raise InputError, with file and line, when a server would not compile ``script``."""
    chunk_name = b"@" + str(script.path).encode("utf-8", "surrogateescape")[:50]
    message = _compiler()(compiled_form(script.source), chunk_name)
    if message is None:
        return
    if not script.source.startswith((b"\x1b", b"#!")):  # never a binary chunk
        message = _compiler()(script.source, chunk_name) or message  # says where a block that is left open began
    text = message.decode("utf-8", "replace")
    _, _, detail = text.rpartition(chunk_name[1:].decode("utf-8", "replace"))
    located = re.match(r":(\d+)(.*)", detail, re.DOTALL)
    if located is None:
        raise InputError(f"{script.path}: {detail}; correct the script")
    _, path, line = script.place_of(int(located[1]))
    detail = re.sub(r"(?<=at line )\d+", lambda found: _other_line(script, path, int(found[0])), located[2])
    raise InputError(f"{path}:{line}{detail}; correct the script")


def _other_line(script: Script, path: Path, line: int) -> str:
    """A line that a message about ``path`` tells of; with its file where it is another."""
    _, other, number = script.place_of(line)
    return str(number) if other == path else f"{number} of {other.name}"


TELLING = 256
"""A modulus below this is a number like any other: it says nothing about the literals that equal it."""
_FOLLOWS = re.compile(r"[<:]\s*modulus\s*(?:[|>]|$)")
"""The field ``modulus`` in a template, or as the argument of a filter."""


@dataclass(frozen=True, slots=True)
class RewrittenLine:
    """One line that scaling changed: ``line`` counts from 1; 0: a value of ``store.toml``."""

    file: str
    line: int
    before: str
    after: str


def scale(binding: Binding, modulus: int) -> tuple[Binding, list[RewrittenLine]]:
    """``binding`` with packet identifiers 1..``modulus``, and the lines that differ."""
    full = binding.modulus
    sources: dict[str, bytes] = {}
    rewritten: list[RewrittenLine] = []
    for script in binding.scripts:
        sources[script.name] = scale_source(script.source, modulus, full)
        rewritten += _changed_lines(script, sources[script.name])
    content = binding.store.model_dump(by_alias=True, exclude_none=True, warnings=False)
    tables, in_toml = _scale_tables(content["operations"], modulus, full)
    rewritten += in_toml
    store = Store.model_validate({**content, "modulus": modulus, "operations": tables})
    scaled = binding.with_sources(sources).with_store(store)
    return scaled, list(dict.fromkeys(rewritten))  # a file that several scripts include is told once


def scale_source(source: bytes, modulus: int, full: int = MODULUS) -> bytes:
    """``source`` with its literals scaled; everything else byte for byte."""
    parts = []
    for token in tokens(source):
        text = source[token.start : token.end]
        if token.kind == "number":
            text = _scaled_number(text, modulus, full)
        parts.append(text)
    return b"".join(parts)


def _scaled_number(text: bytes, modulus: int, full: int) -> bytes:
    value = int(text, 16) if text[:2].lower() == b"0x" else float(text)
    return b"%d" % (modulus + int(value) - full) if _is_near(value, full) else text


def _is_near(value: float, full: int) -> bool:
    """Whether a number is ``full`` or one of its neighbours."""
    return full >= TELLING and value in (full - 1, full, full + 1)


def _changed_lines(script: Script, source: bytes) -> list[RewrittenLine]:
    before, after = script.source.split(b"\n"), source.split(b"\n")
    found = []
    for number, (old, new) in enumerate(zip(before, after, strict=True), 1):
        if old != new:
            name, _, line = script.place_of(number)
            found.append(RewrittenLine(name, line, old.decode("utf-8", "replace"), new.decode("utf-8", "replace")))
    return found


def _scale_tables(value: Any, modulus: int, full: int, key: str = "operations") -> tuple[Any, list[RewrittenLine]]:
    """Templates that are nothing but one of the numbers, anywhere in the operations."""
    if isinstance(value, dict):
        pairs = {name: _scale_tables(member, modulus, full, f"{key}.{name}") for name, member in value.items()}
        return {name: one for name, (one, _) in pairs.items()}, [line for _, lines in pairs.values() for line in lines]
    if isinstance(value, list):
        items = [_scale_tables(item, modulus, full, f"{key}[{index}]") for index, item in enumerate(value)]
        return [one for one, _ in items], [line for _, lines in items for line in lines]
    if isinstance(value, str) and value.isdigit() and _is_near(int(value), full):
        scaled = str(modulus + int(value) - full)
        return scaled, [RewrittenLine("store.toml", 0, f"{key} = {value}", f"{key} = {scaled}")]
    if isinstance(value, str) and _FOLLOWS.search(value):
        return value, [RewrittenLine("store.toml", 0, f"{key} = {value}: {full}", f"{key} = {value}: {modulus}")]
    return value, []


PAGE_MIN, PAGE_MAX, LARGE_PAGE_MAX = 10, 2_000, 100_000
"""Numbers of scripts that are taken for pages, batches and limits: below them any crowd is larger."""
_SCALES = frozenset((b"*", b"/", b"%"))


def pages_in(sources: Iterable[bytes]) -> frozenset[int]:
    """The numbers that the texts of scripts may mean as a page, a batch or a limit."""
    numbers = {number for source in sources for number in _numbers(source)}
    return frozenset(number for number in numbers if PAGE_MIN <= number <= PAGE_MAX)


def with_pages(source: bytes, above: int, page: int) -> bytes:
    """The text with a smaller page wherever a number above ``above`` may mean one; the last index of one stays that."""
    parts, end = [], 0
    for token in tokens(source):
        text = source[token.start : token.end]
        digits = text.strip(b"'\"")
        if token.kind in ("number", "string") and digits.isdigit() and above < int(digits) <= LARGE_PAGE_MAX:
            parts += [source[end : token.start], text.replace(digits, b"%d" % (page - (int(digits) % 10 == 9)))]
            end = token.end
    return b"".join([*parts, source[end:]])


def _numbers(source: bytes) -> Iterator[int]:
    texts = [
        source[token.start : token.end] for token in tokens(source) if token.kind in ("number", "string", "symbol")
    ]
    for before, text, after in zip([b"", *texts], texts, [*texts[1:], b""], strict=False):
        digits = text.strip(b"'\"")
        if digits.isdigit() and not {before, after} & _SCALES:
            yield int(digits)
