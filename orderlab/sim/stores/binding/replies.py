"""Reading replies: from what a script returns to the result that the specification speaks of.

A reply is first split into rows (one per message), then each attribute of the result is taken from a row by a path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from orderlab.model.errors import InputError, did_you_mean
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.stores.binding.results import ContractReply, Failed, Fields, Result
from orderlab.sim.stores.binding.session import (
    COMMON_FIELDS,
    DEFAULTS,
    INTEGER_MEANINGS,
    LISTS,
    OPERATION_FIELDS,
    RESULT_ATTRIBUTES,
    SAVES,
    ReplyTable,
    refused,
    result_of,
)
from orderlab.sim.stores.binding.templates import (
    DECODERS,
    Filter,
    Unpack,
    dump_json,
    find_filter,
    load_json,
    number,
    to_bytes,
    to_text,
)

Row = dict[str, Any]
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")
Getter = Callable[[Row, Fields], Any]
"""From a row, and the fields of the call that it answers, to an attribute."""


@dataclass(frozen=True)
class ValueReader:
    """Reads the reply of an operation whose contract is the store's owner's: a plain value, or a word for one."""

    words: Mapping[str, str | int]
    """Reply as text -> what the contract calls it; ``nil`` for a null reply."""
    otherwise: str | int | None = None
    """What the contract calls a reply that is none of ``words``; None: it stays as it is."""
    members: tuple[tuple[str, ...], ...] = ()
    """Paths to what is taken of a text, or of an array and the texts in it: one gives a value, more a tuple of
    them."""
    format: str = "json"
    """What such a text is: a decoder's name."""
    errors: Mapping[str, str | int] = field(default_factory=dict)
    """Whole words with which an error begins that is a reply like any other -> what the contract calls it."""
    table: ClassVar[ReplyTable] = ReplyTable(shape="ignored")
    """Says that it tells nothing that a contract of the suite speaks of."""

    def tells(self, attribute: str) -> bool:
        """Whether a reply tells this attribute of a result."""
        return False

    def read(self, reply: Reply, fields: Fields, modulus: int) -> Result:
        """The value that ``reply`` stands for."""
        if isinstance(reply, Exception):
            failed = Failed(reply.message if isinstance(reply, ErrorReply) else str(reply).encode())
            text = failed.error.decode("utf-8", "replace") + " "
            words = (word for start, word in self.errors.items() if text.startswith(start + " "))
            return next((ContractReply(word) for word in words), failed)
        value = self._taken(reply) if self.members and isinstance(reply, bytes | list) else plain(reply)
        other = value if self.otherwise is None else self.otherwise
        if isinstance(value, tuple):
            return ContractReply(other)
        if self.words or self.otherwise is not None:
            value = self.words.get("nil" if value is None else str(value), other)
        return ContractReply(value)

    def _taken(self, reply: bytes | list[Any]) -> object:
        """The members of a text or an array. A text of another format stays as it is: ``words``, or else the contract,
        speaks of it."""
        whole: Any = reply
        if isinstance(reply, bytes):
            try:
                whole = DECODERS[self.format](reply, None)
            except (ValueError, RecursionError):
                return plain(reply)
        members = [_plain_member(self._member(whole, path)) for path in self.members]
        if whole is None or (isinstance(whole, list) and all(item is None for item in whole)):
            return None  # an array of nothing tells nothing
        return members[0] if len(members) == 1 else tuple(members)

    def _member(self, value: Any, path: Iterable[str]) -> Any:
        """What lies at ``path`` within a value, through texts of the format; None where nothing does."""
        for name in path:
            if isinstance(value, bytes):
                try:
                    value = DECODERS[self.format](value, None)
                except (ValueError, RecursionError):
                    return None
            if isinstance(value, dict):
                value = value.get(name)
            elif isinstance(value, list) and name.isascii() and name.isdigit() and int(name) < len(value):
                value = value[int(name)]
            else:
                return None
        return value


def paths_of(members: Iterable[str], place: str) -> tuple[tuple[str, ...], ...]:
    """The paths that ``members`` write. Raises InputError for one with an empty part."""
    for at, member in enumerate(members):
        if not all(member.split(".")):
            raise InputError(
                f'{place}[{at}]: "{member}" has an empty part; write names with a dot between, such as job.id'
            )
    return tuple(tuple(member.split(".")) for member in members)


def _plain_member(value: Any) -> object:
    """A member as replies are plain: whole numbers are integers, true and false 1 and 0, objects are JSON."""
    if isinstance(value, list):
        return tuple(map(_plain_member, value))
    if isinstance(value, str):
        return plain(to_bytes(value))
    if isinstance(value, dict):
        return plain(dump_json(value))
    if isinstance(value, float):
        return int(value) if value.is_integer() else plain(to_text(value))
    return int(value) if isinstance(value, bool) else plain(value)


_DEEPEST = 16
"""Arrays within each other; a server takes thousands, and no contract speaks of so many."""


def plain(reply: Reply, depth: int = 0) -> object:
    """A reply as None, an integer, text (bytes where it is not UTF-8), or a tuple of such. ``depth``: within so many
    arrays; what lies deeper than 16 is told as text."""
    if isinstance(reply, list | tuple):
        if depth == _DEEPEST:
            return f"an array within {_DEEPEST} others"
        return tuple([plain(each, depth + 1) for each in reply])
    if isinstance(reply, bytes):
        try:
            return bytes(reply).decode()
        except UnicodeDecodeError:
            return bytes(reply)
    return reply


class ReplyMismatch(InputError):
    """A reply that the binding cannot read: the binding is wrong, or the script is (a mutant, a damaged store)."""


UNREADABLE = "the binding cannot read the reply"
"""With this begins what an operation ends in then."""

PARTS = "message."
"""Where a row keeps what a packed message was taken apart into, for paths such as ``message.topic``."""
DEFAULT_COLUMNS = {"strings": ("value",), "pairs": ("first", "second")}
ROW_SHAPES = ("strings", "messages", "json", "pairs", "records")


@dataclass(frozen=True)
class ReplyReader:
    """How one operation's replies are read."""

    operation: str
    table: ReplyTable
    place: str
    columns: tuple[str, ...]
    getters: dict[str, Getter]
    unpack: Unpack | None

    def tells(self, attribute: str) -> bool:
        """Whether a reply that is read tells this attribute of the result."""
        return attribute in self.getters or self.table.means == attribute

    def read(self, reply: Reply, fields: Fields, modulus: int) -> Result:
        """The result that ``reply`` stands for. Raises ReplyMismatch when the reply has another shape."""
        if isinstance(reply, Exception):
            return Failed(reply.message if isinstance(reply, ErrorReply) else str(reply).encode())
        word = self._refusal(reply)
        if word is not None:
            return refused(self.operation, word)
        try:
            return self._result(reply, fields, modulus)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise ReplyMismatch(f"{self.place}: {self.table.shape} does not fit {_show(reply)} ({error})") from None

    def _refusal(self, reply: Reply) -> str | None:
        words = self.table.words
        if not words or isinstance(reply, list):
            return None
        word = "nil" if reply is None else to_text(reply).decode("utf-8", "replace")
        return word if word in words else None

    def _result(self, reply: Reply, fields: Fields, modulus: int) -> Result:
        if self.table.shape not in ROW_SHAPES:
            whole = int(number(reply)) if self.table.shape == "integer" and reply is not None else None
            return result_of(self.operation, self.table, (), whole, _batch(fields), modulus)
        values = (
            {name: getter(row, fields) for name, getter in self.getters.items()} for row in list(self._rows(reply))
        )
        return result_of(self.operation, self.table, values, None, _batch(fields), modulus)

    def _rows(self, reply: Reply) -> Iterator[Row]:
        """One dictionary per message; a nil reply, and a nil among the rows, is no message."""
        if reply is None:
            return
        shape = self.table.shape
        if shape == "json":
            decoded = load_json(to_text(reply))
            yield from decoded or []  # cjson writes an empty list as {}
            return
        if not isinstance(reply, list):
            raise TypeError("a list was expected")
        items = reply[self.table.skip :]
        if shape in ("messages", "strings"):
            for item in items:
                if item is not None:
                    yield load_json(to_text(item)) if shape == "messages" else self._row([item])
        elif self.table.nested:
            yield from map(self._row, items)
        else:
            width = len(self.columns)
            if len(items) % width:
                raise ValueError(f"{len(items)} items are no multiple of {width} columns")
            for start in range(0, len(items), width):
                yield self._row(items[start : start + width])

    def _row(self, items: list[Any]) -> Row:
        row = dict(zip(self.columns, items, strict=True))
        if self.unpack is not None and "message" in row:
            # One that is only to be released may have dropped its content.
            parts = self.unpack(row["message"]) if row["message"] else {}
            row |= parts
            row[PARTS] = parts
        return row


def _batch(fields: Fields) -> int:
    messages: Any = fields.get("messages", ())
    return len(messages)


def compile_reply(operation: str, table: ReplyTable, place: str, unpack: Unpack | None, modulus: int) -> ReplyReader:
    """The reader of ``operation``'s replies. Raises InputError for unknown attributes, columns or filters."""
    attributes = RESULT_ATTRIBUTES[operation]
    if table.shape == "integer":
        _check_meaning(operation, table, place)
    elif table.means is not None:
        raise InputError(f'{place}.is: only an integer reply has a meaning; set shape = "integer" or remove it')
    for key, promised in (("closed", table.closed), ("older", table.older), ("answers_again", table.answers_again)):
        if promised and operation != SAVES:
            raise InputError(f"{place}.{key}: a promise about saves; remove it")
    columns = tuple(table.columns or DEFAULT_COLUMNS.get(table.shape, ()))
    if table.shape == "records" and not columns:
        raise InputError(f"{place}.columns: missing; name the columns, such as {list(attributes)[:3]}")
    if table.shape == "pairs" and len(columns) != 2:
        raise InputError(f'{place}.columns: pairs have two columns, not {len(columns)}; set shape = "records"')
    getters: dict[str, Getter] = {}
    for name, path in table.fields.items():
        if name not in attributes:
            raise InputError(f'{place}.fields: unknown attribute "{name}"; {did_you_mean(name, attributes)}')
        getters[name] = _compile_path(path, columns, f"{place}.fields.{name}", modulus, operation)
    if operation == LISTS and table.shape not in ROW_SHAPES:
        raise InputError(f'{place}.shape: {LISTS} returns messages; "{table.shape}" has none: use one of {ROW_SHAPES}')
    provided = set(columns)
    if unpack is not None and "message" in columns:
        provided |= set(attributes)
    if table.shape == "strings" and not table.fields:
        getters[attributes[0]] = _compile_path("value", columns, place, modulus, operation)
    elif table.shape in ROW_SHAPES:
        for name in attributes:
            if name in provided or table.shape in ("messages", "json"):
                getters.setdefault(name, _compile_path(name, (), place, modulus, operation))
    return ReplyReader(operation, table, place, columns, getters, unpack)


def _check_meaning(operation: str, table: ReplyTable, place: str) -> None:
    meanings = INTEGER_MEANINGS[operation]
    if table.means is None:
        if "count" not in meanings or operation == SAVES:
            raise InputError(f'{place}.is: missing; say what the integer is, such as is = "{meanings[0]}"')
    elif table.means not in meanings:
        raise InputError(f'{place}.is: unknown meaning "{table.means}"; {did_you_mean(table.means, meanings)}')


def _compile_path(text: str, columns: tuple[str, ...], place: str, modulus: int, operation: str) -> Getter:
    """``column.member|decoder``: a column of the row, members of the JSON inside it, then decoders.

    The argument of a decoder is a number, a field of the call, or another such path.
    """
    path, *filters = (part.strip() for part in text.split("|"))
    find = _compile_members(path, columns, place)
    decoders: list[tuple[Filter, Getter]] = []
    for item in filters:
        name, colon, argument = item.partition(":")
        decode = find_filter(name, bool(colon), DECODERS, place)
        if name == "none":  # any text, as for ``or``
            decoders.append((decode, _constantly(argument.encode())))
        else:
            decoders.append((decode, _compile_operand(argument, columns, place, modulus, operation)))

    def get(row: Row, fields: Fields) -> Any:
        value = find(row)
        for decode, operand in decoders:
            if value is not None:
                argument = operand(row, fields)
                value = None if argument is None else decode(value, argument)
        return value

    return get


def _compile_members(path: str, columns: tuple[str, ...], place: str) -> Callable[[Row], Any]:
    first, *members = path.split(".")
    if columns and first not in columns:
        raise InputError(f'{place}: unknown column "{first}"; {did_you_mean(first, columns)}')

    def find(row: Row) -> Any:
        value = row.get(first)
        if members and first == "message" and PARTS in row:
            value = row[PARTS]
        for member in members:
            if isinstance(value, bytes):
                value = load_json(value)
            value = value.get(member) if isinstance(value, dict) else None
        return value

    return find


def _constantly(value: bytes) -> Getter:
    return lambda row, given: value


def _compile_operand(argument: str, columns: tuple[str, ...], place: str, modulus: int, operation: str) -> Getter:
    """What a decoder is given beside the value."""
    fields = tuple(name for name in (*COMMON_FIELDS, *OPERATION_FIELDS[operation]) if name != "messages")
    if argument == "modulus":
        return _constantly(b"%d" % modulus)
    if not argument or _NUMBER.fullmatch(argument):
        return _constantly(argument.encode())
    if argument in fields:
        return lambda row, given: given.get(argument, DEFAULTS[argument])
    if columns and argument.split(".")[0] not in columns:
        known = (*columns, *fields)
        raise InputError(f'{place}: "{argument}" is no number, column or field; {did_you_mean(argument, known)}')
    find = _compile_members(argument, columns, place)
    return lambda row, given: find(row)


def _show(reply: Reply) -> str:
    try:
        text = repr(reply)
    except RecursionError:
        return "arrays within arrays, too deep to be shown"
    return text if len(text) <= 80 else text[:77] + "..."
