"""Scaling a store down: its scripts with a smaller number of packet identifiers, so that a search can reach the wrap.

Every numeric literal that is the store's own modulus (65535 unless its binding says otherwise) becomes the smaller one,
the literals beside it the neighbours of that, in code but not in strings or comments; so do template arguments of
``store.toml`` that are exactly such a number. What was rewritten is listed, because a literal may have meant something
else. A template that names ``modulus`` follows by itself, and is listed too. A witness that is found at small scale
must be replayed on the unscaled store.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.calls import Script
from orderlab.sim.stores.binding.lua_tokens import tokens
from orderlab.sim.stores.binding.schema import Store

FULL_MODULUS = 65535
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
    return scaled, rewritten


def scale_source(source: bytes, modulus: int, full: int = FULL_MODULUS) -> bytes:
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
    return [
        RewrittenLine(script.name, number, old.decode("utf-8", "replace"), new.decode("utf-8", "replace"))
        for number, (old, new) in enumerate(zip(before, after, strict=True), 1)
        if old != new
    ]


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
