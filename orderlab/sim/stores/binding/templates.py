"""Templates: text with ``<field|filter:argument>`` in it, compiled once into functions of an operation's fields.

Braces are plain text, so that a hash tag reads as it is written in Redis: ``{<client>}_messages``. A literal ``<`` is
written ``<<``. A template that is a single placeholder keeps the type of its value where types matter (JSON).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orderlab.model.errors import InputError, did_you_mean
from orderlab.sim.stores.binding.filters import ENCODERS, TAKES_ARGUMENT, Filter, to_text

Scope = dict[str, Any]
"""Values by field name at the moment of a call."""
Evaluate = Callable[[Scope], Any]

_TOKEN = re.compile(r"<<|<([^<>]*)>|<")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
VALUE_BYTES_MAX = 64 << 20
"""What one template may make: far above any key or argument of use, far below the memory of a machine."""
FILTERS_MAX = 32
FEW_PARTS = 64
"""So many parts are joined unmeasured: a client's name has 65,535 bytes at most."""
PLACEHOLDERS_MAX = 4096


@dataclass(frozen=True)
class Vocabulary:
    """What placeholders may name at one place of a binding, and how each is evaluated.

    ``computed`` are names with a function of their own (a key, the encoded message); ``fields`` are read from the
    scope as they are.
    """

    fields: tuple[str, ...]
    computed: Mapping[str, Evaluate]

    @property
    def known(self) -> tuple[str, ...]:
        """All names, for error messages."""
        return (*self.fields, *self.computed)

    def with_fields(self, *more: str) -> Vocabulary:
        """The same with further fields."""
        return Vocabulary((*self.fields, *more), self.computed)

    def find(self, name: str, place: str) -> Evaluate:
        """How to evaluate ``name``. Raises InputError when it is unknown."""
        if name in self.computed:
            return self.computed[name]
        if name in self.fields:
            return lambda scope: scope[name]
        raise InputError(f'{place}: unknown field "{name}"; {did_you_mean(name, self.known)}')


@dataclass(frozen=True)
class Template:
    """A compiled template. ``render`` gives bytes; ``value`` keeps the type of a single placeholder."""

    text: str
    value: Evaluate
    names: frozenset[str]
    """The fields that the template uses."""

    def render(self, scope: Scope) -> bytes:
        """The text for ``scope``, as it goes to the server."""
        return to_text(self.value(scope))


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
    return Template(text, parts[0] if len(parts) == 1 else _joined(parts, place), frozenset(names))


def _constant(literal: str) -> Evaluate:
    encoded = literal.encode()
    return lambda scope: encoded


def _joined(parts: list[Evaluate], place: str) -> Evaluate:
    if len(parts) <= FEW_PARTS:
        return lambda scope: b"".join([to_text(part(scope)) for part in parts])

    def evaluate(scope: Scope) -> bytes:
        texts, size = [], 0
        for part in parts:
            text = to_text(part(scope))
            size += len(text)
            if size > VALUE_BYTES_MAX:
                raise _too_long(place)
            texts.append(text)
        return b"".join(texts)

    return evaluate


def _too_long(place: str) -> InputError:
    return InputError(f"{place}: makes a value of more than {VALUE_BYTES_MAX >> 20} MiB; give a shorter template")


def _placeholder(text: str, vocabulary: Vocabulary, place: str, names: set[str]) -> Evaluate:
    name, *filters = (part.strip() for part in text.split("|"))
    evaluate = vocabulary.find(name, place)
    names.add(name)
    if len(filters) > FILTERS_MAX:
        raise InputError(f"{place}: more than {FILTERS_MAX} filters in a row; give fewer")
    for filter_text in filters:
        evaluate = _filtered(evaluate, filter_text, vocabulary, place)
    return evaluate


def _filtered(inner: Evaluate, text: str, vocabulary: Vocabulary, place: str) -> Evaluate:
    name, colon, argument = text.partition(":")
    found = find_filter(name, bool(colon), ENCODERS, place)
    operand: Evaluate | None = None
    if argument in vocabulary.known:
        operand = vocabulary.find(argument, place)
    elif colon and name != "or" and not _NUMBER.fullmatch(argument):
        raise InputError(
            f'{place}: filter "{name}" takes a number or a field, not "{argument}"; '
            f"{did_you_mean(argument, vocabulary.known)}"
        )

    def evaluate(scope: Scope) -> Any:
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
        raise InputError(f'{place}: unknown filter "{name}"; {did_you_mean(name, tuple(table))}')
    if has_argument != (name in TAKES_ARGUMENT):
        cure = f"needs an argument, {name}:..." if name in TAKES_ARGUMENT else "takes no argument"
        raise InputError(f'{place}: filter "{name}" {cure}')
    return table[name]
