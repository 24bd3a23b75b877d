"""How a store writes one message as a single value: a JSON object, a packed binary record, or the bare payload."""
from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orderlab.model.errors import InputError, did_you_mean
from orderlab.sim.stores.binding.templates import (
    Evaluate,
    Scope,
    Vocabulary,
    compile_template,
    dump_json,
    load_json,
    to_text,
)

INTEGER_FORMATS = {"u8": ">B", "u16": ">H", "u32": ">I", "u64": ">Q"}
LENGTH_FORMATS = {"bytes8": ">B", "bytes16": ">H", "bytes32": ">I", "json16": ">H", "json32": ">I"}
PACKED_TYPES = (*INTEGER_FORMATS, *LENGTH_FORMATS, "rest")

Unpack = Callable[[bytes], dict[str, Any]]


@dataclass(frozen=True)
class MessageCodec:
    """``encode`` gives the value of the field ``message``; ``unpack`` splits such a value into fields again.

    ``unpack`` is None where a value has no parts of its own (raw) or is read by the reply's own paths (JSON).
    """

    encode: Evaluate
    unpack: Unpack | None = None


RAW = MessageCodec(lambda scope: scope["payload"])
"""The message is its payload."""


def json_codec(tree: Mapping[str, Any], vocabulary: Vocabulary, place: str) -> MessageCodec:
    """Messages as JSON objects; a member whose template gives None is left out."""
    return MessageCodec(compile_tree(tree, vocabulary, place))


def compile_tree(tree: Any, vocabulary: Vocabulary, place: str) -> Evaluate:
    """A TOML value with templates in its strings, as a function to the same value with fields filled in."""
    if isinstance(tree, str):
        return compile_template(tree, vocabulary, place).value
    if isinstance(tree, Mapping):
        members = {name: compile_tree(member, vocabulary, f"{place}.{name}") for name, member in tree.items()}

        def fill(scope: Scope) -> dict[str, Any]:
            values = ((name, member(scope)) for name, member in members.items())
            return {name: value for name, value in values if value is not None}

        return fill
    if isinstance(tree, list):
        items = [compile_tree(item, vocabulary, f"{place}[{index}]") for index, item in enumerate(tree)]
        return lambda scope: [item(scope) for item in items]
    return lambda scope: tree


def packed_codec(layout: Sequence[str], vocabulary: Vocabulary, place: str) -> MessageCodec:
    """Messages as binary records: ``name:type`` in order, integers big-endian, lengths before their bytes.

    ``bytes16`` is the string of MQTT: two bytes of length, then the bytes. ``rest`` must stand last.
    """
    parts: list[tuple[str, str, Evaluate]] = []
    for index, item in enumerate(layout):
        here = f"{place}[{index}]"
        name, _, kind = item.partition(":")
        if kind not in PACKED_TYPES:
            raise InputError(f'{here}: unknown type "{kind}" of "{item}"; {did_you_mean(kind, PACKED_TYPES)}')
        if kind == "rest" and index != len(layout) - 1:
            raise InputError(f'{here}: "{item}" takes all that is left; put it last')
        parts.append((name, kind, vocabulary.find(name, here)))

    def encode(scope: Scope) -> bytes:
        return b"".join([_pack(kind, value(scope), f"{place}: {name}") for name, kind, value in parts])

    return MessageCodec(encode, lambda record: _unpack(record, [(name, kind) for name, kind, _ in parts]))


def _pack(kind: str, value: Any, place: str) -> bytes:
    try:
        if kind in INTEGER_FORMATS:
            return struct.pack(INTEGER_FORMATS[kind], int(value or 0))
        if kind == "rest":
            return to_text(value)
        body = dump_json(value) if kind.startswith("json") else to_text(value)
        return struct.pack(LENGTH_FORMATS[kind], len(body)) + body
    except (struct.error, ValueError) as error:
        raise InputError(f"{place}: {value!r:.60} does not fit {kind} ({error}); use a wider type") from None


def _unpack(record: bytes, parts: list[tuple[str, str]]) -> dict[str, Any]:
    """The fields of ``record``. Raises ValueError when it is too short."""
    fields: dict[str, Any] = {}
    position = 0
    for name, kind in parts:
        form = INTEGER_FORMATS.get(kind) or LENGTH_FORMATS.get(kind)
        if form is None:
            fields[name] = record[position:]
            continue
        size = struct.calcsize(form)
        if position + size > len(record):
            raise ValueError(f"the record ends before {name}")
        (value,) = struct.unpack_from(form, record, position)
        position += size
        if kind in INTEGER_FORMATS:
            fields[name] = value
            continue
        body = record[position : position + value]
        if len(body) < value:
            raise ValueError(f"the record ends inside {name}")
        position += value
        fields[name] = load_json(body) if kind.startswith("json") else body
    return fields
