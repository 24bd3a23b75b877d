"""From commands that a server was sent to the operations of a binding: its templates, read backwards.

An operation of one call is found by its script, function or command, by its keys, and by the plain text of its
templates; where several fit, the one with most of such text. What a placeholder stands for is undone filter by filter,
and the operation is called anew with it: only what gives the same arguments is taken for it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from orderlab.model.errors import InputError, did_you_mean
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.operations import OperationBinding
from orderlab.sim.stores.binding.results import Call, CommandCall, Script, ScriptCall
from orderlab.sim.stores.binding.schema import ContractStore, Repeated, StepTable
from orderlab.sim.stores.binding.templates import number

_TOKEN: Final = re.compile(r"<<|<([^<>]*)>")
_SCRIPTS: Final = (b"eval", b"eval_ro")
_LOADED: Final = (b"evalsha", b"evalsha_ro")
_FUNCTIONS: Final = (b"fcall", b"fcall_ro")
Head = tuple[str, bytes]
"""What a call is known by: SHA1 of its script, name of its function, or the command."""
Undo = Callable[[Any, str], Any]
_UNDOING: Final[dict[str, Undo]] = {
    "text": lambda value, _: value,
    "floor": lambda value, _: number(value),
    "ceil": lambda value, _: number(value),
    "seconds": lambda value, _: number(value) * 1000,
    "milliseconds": lambda value, _: number(value) / 1000,
    "add": lambda value, operand: number(value) - number(operand.encode()),
    "subtract": lambda value, operand: number(value) + number(operand.encode()),
    "base64": lambda value, _: base64.b64decode(value, validate=True),
    "hex": lambda value, _: binascii.unhexlify(value),
    "or": lambda value, other: None if value == other.encode() else value,
}
"""Filters of templates, backwards. Raise ValueError for what they never give."""


@dataclass(frozen=True, slots=True)
class FoundOperation:
    """A call that is one of the store's operations."""

    name: str
    fields: Mapping[str, Any]
    """As they stood in the arguments: texts, or numbers where a filter made one."""
    instance: str
    """What ``*`` stands for in its keys: which of several such stores it is."""


_ITEM: Final = re.compile(r"<item(?:\|at:(\d+))?>")


class _Items:
    """Templates that are repeated for each element of a list: ``<item>``, or its parts by ``<item|at:0>``."""

    plain = 0

    def __init__(self, table: Repeated) -> None:
        self.name = table.each
        places = [_ITEM.fullmatch(text) for text in table.items]
        self._places = [int(place[1] or 0) for place in places if place is not None]
        self._is_whole = table.items == ["<item>"]
        are_all = sorted(self._places) == list(range(len(places)))
        self.is_readable = self._is_whole or (are_all and all(place is not None and place[1] for place in places))

    def read(self, arguments: Sequence[bytes], fields: dict[str, Any]) -> bool:
        """Whether these may be the elements."""
        width = len(self._places)
        if len(arguments) % width:
            return False
        elements = []
        for at in range(0, len(arguments), width):
            parts = dict(zip(self._places, arguments[at : at + width], strict=True))
            elements.append(parts[0] if self._is_whole else tuple(parts[place] for place in range(width)))
        fields[self.name] = tuple(elements)
        return True


class _Pattern:
    """One template, backwards."""

    def __init__(self, text: str, keys: Mapping[str, str], place: str, is_word: bool = False) -> None:
        self.captures: list[tuple[str, list[tuple[str, str]]]] = []
        self.plain = 0
        """Letters that are no placeholder's."""
        self._place = place
        self.expression = re.compile(
            self._expression(text, keys).encode(), re.DOTALL | (re.IGNORECASE if is_word and text.isalpha() else 0)
        )

    def _expression(self, text: str, keys: Mapping[str, str]) -> str:
        parts, position = [], 0
        for match in _TOKEN.finditer(text):
            parts.append(self._literal(text[position : match.start()]))
            position = match.end()
            if match[0] == "<<":
                parts.append(self._literal("<"))
                continue
            name, *filters = (part.strip() for part in match[1].split("|"))
            if name.startswith("key.") and not filters and name[4:] in keys:
                parts.append(self.of_key(keys[name[4:]]))
                continue
            undone = [(word, argument) for word, _, argument in (each.partition(":") for each in filters)]
            for word, _ in undone:
                if word not in _UNDOING:
                    raise InputError(f'{self._place}: filter "{word}" cannot be read back from a recording')
            parts.append("(.*?)")
            self.captures.append((name, undone[::-1]))
        parts.append(self._literal(text[position:]))
        return "".join(parts)

    def of_key(self, text: str) -> str:
        """A key: its template, in which ``*`` is the name of the instance."""
        before, star, after = text.partition("*")
        if not star:
            return self._expression(text, {})
        if "(?P<instance>" in before or "*" in after:
            raise InputError(f'{self._place}: "{text}" has more than one *')
        return f"{self._expression(before, {})}(?P<instance>.*?){self._expression(after, {})}"

    def _literal(self, text: str) -> str:
        self.plain += len(text)
        return re.escape(text)

    def read(self, argument: bytes, fields: dict[str, Any], instances: set[bytes]) -> bool:
        """Whether an argument is of this template; what it tells is added."""
        match = self.expression.fullmatch(argument)
        if match is None:
            return False
        groups = match.groupdict()
        if groups.get("instance") is not None:
            instances.add(groups["instance"])
        values = [value for at, value in enumerate(match.groups(), 1) if at != match.re.groupindex.get("instance")]
        for (name, filters), value in zip(self.captures, values, strict=True):
            given: Any = value
            try:
                for word, operand in filters:
                    given = _UNDOING[word](given, operand) if given is not None else None
            except ValueError:
                return False
            fields[name] = given
        return True


def _is_readable(item: Any) -> bool:
    return isinstance(item, str) or (isinstance(item, Repeated) and _Items(item).is_readable)


def _head(command: Sequence[Any] | None, script: Script | None, function: str | None) -> Head:
    if command is not None:
        return "command", str(command[0]).lower().encode()
    if function is not None:
        return "function", function.encode()
    return "script", b"" if script is None else script.sha1.encode()


def _head_of(argv: Sequence[bytes]) -> Head:
    word = argv[0].lower()
    if word in _FUNCTIONS and len(argv) > 1:
        return "function", argv[1]
    if word in _LOADED and len(argv) > 1:
        return "script", argv[1].lower()
    if word in _SCRIPTS and len(argv) > 1:
        return "script", hashlib.sha1(argv[1]).hexdigest().encode()
    return "command", word


@dataclass(frozen=True)
class _Readable:
    """An operation of one call."""

    operation: str
    keys: tuple[_Pattern, ...]
    arguments: tuple[_Pattern | _Items, ...]
    spelled: str
    """Its keys, as the binding spells them."""

    @property
    def plain(self) -> int:
        """How much of it is plain text."""
        return sum(pattern.plain for pattern in (*self.keys, *self.arguments))


class ReadBack:
    """The operations of a binding that can be told from commands. ``keys``: other templates for some of its keys, as
    clients spell them; one ``*`` in each is the name of the instance."""

    def __init__(self, binding: Binding, keys: Mapping[str, str] | None = None) -> None:
        if binding.contract is None:
            raise InputError(f"{binding.place}: a session store; recordings are judged by contracts of other stores")
        known = tuple(binding.store.keys)
        for name in keys or {}:
            if name not in known:
                raise InputError(f'--key {name}: {binding.place} has no key "{name}"; {did_you_mean(name, known)}')
        self._binding = binding
        self._keys = {**binding.store.keys, **(keys or {})}
        self._is_renamed = bool(keys)
        self.unreadable: dict[str, str] = {}
        """Operations that are not told, and why."""
        self._readable: dict[Head, list[_Readable]] = {}
        self._heads: set[Head] = set()
        """Of the calls of those operations."""
        for name, bound in binding.operations.items():
            self._add(name, bound, cast(ContractStore, binding.store).operations[name])
        if not self._readable:
            raise InputError(f"{binding.place}: {next(iter(self.unreadable.values()))}")

    def _add(self, name: str, bound: OperationBinding, table: Any) -> None:
        place = f"{self._binding.place}: operations.{name}"
        steps: Sequence[StepTable] = table.steps if table.steps is not None else [table]
        given = [*steps[0].keys, *steps[0].args, *(steps[0].command or ())]
        is_one_call = len(steps) == 1 and bound.is_atomic and not bound.steps[0].is_transaction
        if not is_one_call or getattr(steps[0], "watch", None):
            self.unreadable[name] = f"operations.{name}: several calls; only one call is read back from a recording"
        elif sum(not isinstance(item, str) for item in given) > 1 or not all(map(_is_readable, given)):
            self.unreadable[name] = f"operations.{name}: an argument is no template that can be read back"
        if name in self.unreadable:
            self._heads |= {_head(step.command, bound.steps[at].script, step.function) for at, step in enumerate(steps)}
            return
        step = steps[0]
        arguments = tuple(
            _Items(item) if isinstance(item, Repeated)
            else _Pattern(str(item), self._keys, place, step.command is not None)
            for item in step.command or step.args
        )  # fmt: skip
        spelled = " ".join(self._keys.get(str(text), str(text)) for text in step.keys)
        readable = _Readable(name, tuple(self._key(str(text), place) for text in step.keys), arguments, spelled)
        alike = self._readable.setdefault(_head(step.command, bound.steps[0].script, step.function), [])
        alike.append(readable)
        alike.sort(key=lambda each: -each.plain)

    def _key(self, text: str, place: str) -> _Pattern:
        return _Pattern(f"<key.{text}>" if text in self._keys else text, self._keys, place)

    def find(self, argv: Sequence[bytes]) -> FoundOperation | None:
        """The operation that a command is; None: none of this store's."""
        head = _head_of(argv)
        keys: Sequence[bytes] = ()
        arguments = argv
        if head[0] != "command":
            count = int(argv[2]) if len(argv) > 2 and argv[2].isdigit() else len(argv)
            if count > len(argv) - 3:
                return None
            keys, arguments = argv[3 : 3 + count], argv[3 + count :]
        for each in self._readable.get(head, ()):
            operation = self._read(each, keys, arguments)
            if operation is not None:
                return operation
        return None

    def is_of_unreadable(self, argv: Sequence[bytes]) -> bool:
        """Whether a command may be a part of an operation that is not told."""
        return _head_of(argv) in self._heads

    def why_not(self, argv: Sequence[bytes]) -> str | None:
        """Why a call of a script or function of the store is none of its operations; None: it calls none of them."""
        near = self._readable.get(_head_of(argv))
        if near is None or argv[0].lower() not in (*_SCRIPTS, *_LOADED, *_FUNCTIONS) or len(argv) < 3:
            return None
        count = int(argv[2]) if argv[2].isdigit() else 0
        keys = " ".join(key.decode("utf-8", "backslashreplace") for key in argv[3 : 3 + count])
        return (
            f"the script of operations.{near[0].operation} was called with KEYS {keys}, which the binding spells "
            f"{near[0].spelled}, or with other arguments; --key NAME=TEXT says how clients spell a key"
        )

    def _read(self, each: _Readable, keys: Sequence[bytes], arguments: Sequence[bytes]) -> FoundOperation | None:
        fields: dict[str, Any] = {}
        instances: set[bytes] = set()
        all_patterns, texts = [*each.keys, *each.arguments], [*keys, *arguments]
        patterns = [pattern for pattern in all_patterns if isinstance(pattern, _Pattern)]
        for at, items in enumerate(all_patterns):
            if isinstance(items, _Items):
                end = at + len(texts) - len(patterns)
                if end < at or not items.read(texts[at:end], fields):
                    return None
                del texts[at:end]
        if len(keys) != len(each.keys) or len(texts) != len(patterns):
            return None
        if not all(pattern.read(text, fields, instances) for pattern, text in zip(patterns, texts, strict=True)):
            return None
        if len(instances) > 1:
            return None
        instance = instances.pop().decode("utf-8", "backslashreplace") if instances else ""
        if not self._gives(each, fields, keys, arguments):
            return None
        return FoundOperation(each.operation, fields, instance)

    def _gives(
        self, each: _Readable, fields: Mapping[str, Any], keys: Sequence[bytes], arguments: Sequence[bytes]
    ) -> bool:
        """Whether the operation with these fields makes this very call; of keys that are spelled otherwise here, its
        other arguments."""
        try:
            call = self._binding.step(each.operation, fields)
        except InputError:
            return False
        if not isinstance(call, Call):
            return False
        if isinstance(call, ScriptCall):
            same_keys = self._is_renamed or list(call.keys) == list(keys)
            return same_keys and list(call.args) == list(arguments)
        if self._is_renamed:
            return True
        return isinstance(call, CommandCall) and [word.lower() for word in call.argv] == [
            word.lower() for word in arguments
        ]
