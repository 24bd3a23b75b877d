"""Templates: text with ``<field|filter:argument>`` in it, compiled once into functions of an operation's fields.

Braces are plain text, so that a hash tag reads as it is written in Redis: ``{<client>}_messages``. A literal ``<`` is
written ``<<``. A template that is a single placeholder keeps the type of its value where types matter (JSON).

From top to bottom: JSON, filters, templates, and the codecs that make one argument of a whole message.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orderlab.model.errors import InputError, did_you_mean
from orderlab.sim.stores.binding.packed_values import dump_msgpack, load_msgpack

_SPECIAL = re.compile(rb'["\\\x00-\x1f\x7f]')
_ESCAPES = {b'"': rb"\"", b"\\": rb"\\", b"\n": rb"\n", b"\r": rb"\r", b"\t": rb"\t"}


def _escape(match: re.Match[bytes]) -> bytes:
    found = match[0]
    return _ESCAPES.get(found) or b"\\u%04x" % found[0]


def dump_json(value: Any) -> bytes:
    """``value`` as compact JSON. ``bytes`` become strings as they are; keys keep their order.

    >>> dump_json({"a": [b"\\xff\\"", 1, 2.5, None, True]})
    b'{"a":["\\xff\\\\"",1,2.5,null,true]}'
    """
    if isinstance(value, bytes):
        return b'"' + _SPECIAL.sub(_escape, value) + b'"'
    if isinstance(value, str):
        return dump_json(value.encode("utf-8", "surrogateescape"))
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value).encode()
    if isinstance(value, dict):
        members = (dump_json(str(name)) + b":" + dump_json(member) for name, member in value.items())
        return b"{" + b",".join(members) + b"}"
    if isinstance(value, (list, tuple)):
        return b"[" + b",".join(map(dump_json, value)) + b"]"
    raise TypeError(f"{type(value).__name__} has no JSON form")


def load_json(text: bytes) -> Any:
    """The value of a JSON text; strings inside carry odd bytes as surrogate escapes (``to_bytes`` undoes that).

    Raises ValueError when ``text`` is no JSON.
    """
    try:
        return json.loads(text.decode("utf-8", "surrogateescape"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def to_bytes(text: str) -> bytes:
    """The bytes that a string of ``load_json`` stood for."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a surrogate pair, written as an escape in the JSON itself
        return text.encode("utf-8", "surrogatepass")


Filter = Callable[[Any, Any], Any]
"""(value, argument or None) -> value. Raises ValueError or TypeError when the value does not fit."""


def to_text(value: Any) -> bytes:
    """``value`` as the bytes of a script argument: decimal numbers, JSON for lists and tables, empty for None.

    >>> to_text(2.0), to_text(1.5), to_text(None), to_text(True), to_text([1, b"a"])
    (b'2', b'1.5', b'', b'1', b'[1,"a"]')
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"1" if value else b"0"
    if isinstance(value, int):
        return b"%d" % value
    if value is None:
        return b""
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) <= 2**53
        return b"%d" % int(value) if whole else repr(value).encode()
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return dump_json(value)


def tag(value: bytes) -> bytes:
    """An injective spelling of ``value`` for use inside a hash tag: never empty, never with a brace.

    >>> tag(b"dev-7"), tag(b"}x"), tag(b"{}"), tag(b""), tag(b"50%")
    (b'dev-7', b'%7Dx', b'%7B%7D', b'%', b'50%25')
    """
    if not value:
        return b"%"  # no other value has a % without two hexadecimal digits after it
    return value.replace(b"%", b"%25").replace(b"{", b"%7B").replace(b"}", b"%7D")


def number(value: Any) -> int | float:
    """``value`` as a number; text is read as decimal. Raises ValueError."""
    if isinstance(value, (int, float)):
        return value
    text = to_text(value).decode("ascii")
    try:
        return int(text)
    except ValueError:
        return float(text)


def _exact_quotient(value: int | float, divisor: int) -> int | float:
    quotient = value / divisor if isinstance(value, float) or value % divisor else value // divisor
    return int(quotient) if isinstance(quotient, float) and quotient.is_integer() else quotient


def _rounded(rounding: Callable[[float], int], value: Any) -> Any:
    found = number(value)
    return rounding(found) if math.isfinite(found) else found


def _length(value: Any, _: Any) -> int:
    return len(value)


def _at(value: Any, position: Any) -> Any:
    """Item ``position`` of a list, counted from the end when negative; None beyond its ends or without a list."""
    index = int(position)
    if not isinstance(value, (list, tuple)):
        return None
    return value[index] if -len(value) <= index < len(value) else None


def _packet_id(value: Any, modulus: Any) -> int:
    divisor: int = _divisor("packet_id", int(number(modulus)))
    return (int(number(value)) - 1) % divisor + 1


def _modulo(value: Any, operand: Any) -> Any:
    return number(value) % _divisor("modulo", number(operand))


def _divisor(name: str, given: Any) -> Any:
    if not given:
        raise ValueError(f"{name}:{given}: division by zero; give another number")
    return given


def _none(value: Any, meaning: Any) -> Any:
    """No value where it is the one that stands for none (``PTTL`` says -1)."""
    try:
        is_it = number(value) == number(meaning)
    except ValueError:
        is_it = to_text(value) == to_text(meaning)
    return None if is_it else value


ENCODERS: dict[str, Filter] = {
    "tag": lambda value, _: tag(to_text(value)),
    "base64": lambda value, _: base64.b64encode(to_text(value)),
    "hex": lambda value, _: to_text(value).hex().encode(),
    "text": lambda value, _: to_text(value),
    "json": lambda value, _: dump_json(value),
    "msgpack": lambda value, _: dump_msgpack(value),
    "seconds": lambda value, _: _exact_quotient(number(value), 1000),
    "milliseconds": lambda value, _: number(value) * 1000,
    "floor": lambda value, _: _rounded(math.floor, value),
    "ceil": lambda value, _: _rounded(math.ceil, value),
    "add": lambda value, operand: number(value) + number(operand),
    "subtract": lambda value, operand: number(value) - number(operand),
    "modulo": _modulo,
    "packet_id": _packet_id,
    "length": _length,
    "at": _at,
    "or": lambda value, other: other if value is None else value,
}
"""Filters of templates. ``seconds`` turns milliseconds into seconds, ``milliseconds`` the other way."""

DECODERS: dict[str, Filter] = {
    "base64": lambda value, _: base64.b64decode(to_text(value), validate=True),
    "hex": lambda value, _: binascii.unhexlify(to_text(value)),
    "json": lambda value, _: load_json(to_text(value)),
    "msgpack": lambda value, _: load_msgpack(to_text(value)),
    "text": lambda value, _: to_bytes(value) if isinstance(value, str) else to_text(value),
    "none": _none,
    **{
        name: ENCODERS[name]
        for name in ("seconds", "milliseconds", "floor", "ceil", "add", "subtract", "modulo", "packet_id", "at")
    },
}
"""Filters of reply fields."""

TAKES_ARGUMENT = frozenset({"add", "subtract", "modulo", "packet_id", "at", "or", "none"})
"""Filters that need an argument, ``name:argument``; it is a number, a field's name, or for ``or`` any text."""


FieldValues = dict[str, Any]
"""Values by field name at the moment of a call."""
Evaluate = Callable[[FieldValues], Any]

_TOKEN = re.compile(r"<<|<([^<>]*)>|<")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
VALUE_BYTES_MAX = 64 << 20
"""What one template may make: far above any key or argument of use, far below the memory of a machine."""
FILTERS_MAX = 32
FEW_PARTS = 64
"""So many parts are joined unmeasured: a client's name has 65,535 bytes at most."""
PLACEHOLDERS_MAX = 4096
REMEMBERED_MAX = 1024
"""Values of one field for which a template's text is remembered."""
REMEMBERED_BYTES_MAX = 256


@dataclass(frozen=True)
class Vocabulary:
    """What placeholders may name at one place of a binding, and how each is evaluated.

    ``computed`` are names with a function of their own (a key, the encoded message); ``fields`` are read from the
    scope as they are.
    """

    fields: tuple[str, ...]
    computed: Mapping[str, Evaluate]
    read: set[str] = field(default_factory=set)
    """Names that what was compiled so far reads, wherever in a placeholder they stand."""

    @property
    def known(self) -> tuple[str, ...]:
        """All names, for error messages."""
        return (*self.fields, *self.computed)

    def with_fields(self, *more: str) -> Vocabulary:
        """The same with further fields."""
        return Vocabulary((*self.fields, *more), self.computed, self.read)

    def find(self, name: str, place: str) -> Evaluate:
        """How to evaluate ``name``. Raises InputError when it is unknown."""
        self.read.add(name)
        if name in self.computed:
            return self.computed[name]
        if name in self.fields:
            return lambda scope: scope[name]
        cure = did_you_mean(name, tuple(dict.fromkeys(self.known)))
        if name.startswith("TODO"):
            cure = f"a gap that orderlab init left: write what the client passes here; {cure}"
        elif not cure.endswith("?"):
            cure = f"what is the same in every call is plain text: write {name} without < >; {cure}"
        raise InputError(f'{place}: unknown field "{name}"; {cure}')


@dataclass(frozen=True)
class Template:
    """A compiled template. ``render`` gives bytes; ``value`` keeps the type of a single placeholder."""

    text: str
    value: Evaluate
    names: frozenset[str]
    """The fields that the template uses."""
    render: Callable[[FieldValues], bytes]
    """The text for a scope, as it goes to the server."""


def compile_template(text: str, vocabulary: Vocabulary, place: str) -> Template:
    """Compile ``text``. Raises InputError, beginning with ``place``, for an unknown field or filter."""
    parts: list[Evaluate] = []
    names: set[str] = set()
    literal = ""
    position = 0
    for match in _TOKEN.finditer(text):
        literal += text[position : match.start()]
        position = match.end()
        if match[0] == "<<":
            literal += "<"
            continue
        if match[1] is None:
            raise InputError(f'{place}: "<" without ">" in "{text:.60}"; write << for a plain <')
        if literal:
            parts.append(_constant(literal))
            literal = ""
        parts.append(_placeholder(match[1], vocabulary, place, names))
        if len(parts) > 2 * PLACEHOLDERS_MAX:
            raise InputError(f"{place}: more than {PLACEHOLDERS_MAX} placeholders; give a shorter template")
    literal += text[position:]
    if literal or not parts:
        parts.append(_constant(literal))
    if len(parts) == 1:
        return Template(text, parts[0], frozenset(names), as_text(parts[0]))
    joined = _joined(parts, place)
    if len(names) == 1 and names <= set(vocabulary.fields):
        joined = _remembered(joined, *names)
    return Template(text, joined, frozenset(names), joined)


def _constant(literal: str) -> Evaluate:
    encoded = literal.encode()
    return lambda scope: encoded


def as_text(evaluate: Evaluate) -> Callable[[FieldValues], bytes]:
    """Its value as the bytes of a script argument."""

    def render(scope: FieldValues) -> bytes:
        value = evaluate(scope)
        return value if type(value) is bytes else to_text(value)

    return render


def _remembered(evaluate: Callable[[FieldValues], bytes], name: str) -> Callable[[FieldValues], bytes]:
    """The same for a text of one field: few clients are asked for again and again, and every call names their keys."""
    known: dict[bytes, bytes] = {}

    def recall(scope: FieldValues) -> bytes:
        value = scope[name]
        if type(value) is not bytes or len(value) > REMEMBERED_BYTES_MAX:
            return evaluate(scope)
        found = known.get(value)
        if found is None:
            if len(known) >= REMEMBERED_MAX:
                known.clear()
            found = known[value] = evaluate(scope)
        return found

    return recall


def _joined(parts: list[Evaluate], place: str) -> Callable[[FieldValues], bytes]:
    if len(parts) <= FEW_PARTS:
        texts = [as_text(part) for part in parts]
        return lambda scope: b"".join([text(scope) for text in texts])

    def evaluate(scope: FieldValues) -> bytes:
        made, size = [], 0
        for part in parts:
            text = to_text(part(scope))
            size += len(text)
            if size > VALUE_BYTES_MAX:
                raise _too_long(place)
            made.append(text)
        return b"".join(made)

    return evaluate


def _too_long(place: str) -> InputError:
    return InputError(f"{place}: makes a value of more than {VALUE_BYTES_MAX >> 20} MiB; give a shorter template")


def _parts(placeholder: str) -> list[str]:
    """Its name, then its filters."""
    return [part.strip() for part in placeholder.split("|")]


def _placeholder(text: str, vocabulary: Vocabulary, place: str, names: set[str]) -> Evaluate:
    name, *filters = _parts(text)
    evaluate = vocabulary.find(name, place)
    names.add(name)
    if len(filters) > FILTERS_MAX:
        raise InputError(f"{place}: more than {FILTERS_MAX} filters in a row; give fewer")
    for filter_text in filters:
        evaluate = _filtered(evaluate, filter_text, vocabulary, place, names)
    return evaluate


def _filtered(inner: Evaluate, text: str, vocabulary: Vocabulary, place: str, names: set[str]) -> Evaluate:
    name, colon, argument = text.partition(":")
    found = find_filter(name, bool(colon), ENCODERS, place)
    operand: Evaluate | None = None
    if argument in vocabulary.known:
        operand = vocabulary.find(argument, place)
        names.add(argument)
    elif colon and name != "or" and not _NUMBER.fullmatch(argument):
        raise InputError(
            f'{place}: filter "{name}" takes a number or a field, not "{argument}"; '
            f"{did_you_mean(argument, vocabulary.known)}"
        )

    def evaluate(scope: FieldValues) -> Any:
        value = inner(scope)
        if value is None and name != "or":
            return None
        try:
            made = found(value, operand(scope) if operand else argument.encode())
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f'{place}: filter "{name}" does not fit {value!r:.60} ({error})') from None
        if isinstance(made, bytes) and len(made) > VALUE_BYTES_MAX:
            raise _too_long(place)
        return made

    return evaluate


def find_filter(name: str, has_argument: bool, table: Mapping[str, Filter], place: str) -> Filter:
    """The filter called ``name``. Raises InputError when it is unknown or its argument is missing or too much."""
    if name not in table:
        cure = did_you_mean(name, tuple(table))
        cure = f"a gap that orderlab init left: say how the value is written; {cure}" if name == "TODO" else cure
        raise InputError(f'{place}: unknown filter "{name}"; {cure}')
    if has_argument != (name in TAKES_ARGUMENT):
        cure = f"needs an argument, {name}:..." if name in TAKES_ARGUMENT else "takes no argument"
        raise InputError(f'{place}: filter "{name}" {cure}')
    return table[name]


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

        def fill(scope: FieldValues) -> dict[str, Any]:
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

    def encode(scope: FieldValues) -> bytes:
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
