"""The shape of ``store.toml``: the fields that operations and replies have, and tables, keys and types.

A field has the same name in ``store.toml``, in Python and in error messages; units are last in a name. pydantic checks the
tables, and its errors become one line each. What the values mean (templates, filters, scripts) is checked where they are
compiled, in ``orderlab.sim.stores.binding.operations``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from orderlab.model.errors import InputError, did_you_mean

Specification = Literal["session", "pending"]
"""The kinds of store that speak it, as ``store.toml`` names them; any other names a class of its owner's."""

COMMON_FIELDS = ("client", "epoch", "now_ms", "modulus")

OPERATION_FIELDS: dict[str, tuple[str, ...]] = {
    "open": ("clean_start",),
    "save": ("limit", "default_expiry_ms", "producer", "batch", "messages"),
    "fetch": ("count", "after", "limit", "default_expiry_ms"),
    "acknowledge": ("packet_id", "sequence"),
    "release": ("packet_id", "sequence"),
    "clear": (),
}
"""Beside the common fields, by operation. See ``notes/bindings.md`` for what each means."""

MESSAGE_FIELDS = ("payload", "topic", "qos", "expiry_ms", "time_ms", "retained", "properties", "index", "message")
"""Inside ``each = "messages"``, and anywhere in a save whose ``batch_max`` is 1."""

RESULT_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "open": ("session_present", "epoch"),
    "save": ("packet_id", "sequence"),
    "fetch": ("payload", "packet_id", "sequence", "kind", "remaining_ms", "deadline_ms", "topic", "qos"),
    "acknowledge": ("count",),
    "release": ("count",),
    "clear": ("count",),
}
"""What ``reply.fields`` and ``reply.columns`` may fill, by operation."""

INTEGER_MEANINGS: dict[str, tuple[str, ...]] = {
    "open": ("session_present", "epoch"),
    "save": ("first", "last", "previous", "sequence", "count"),
    "fetch": (),
    "acknowledge": ("count", "flag", "found"),
    "release": ("count", "flag", "found"),
    "clear": ("count", "flag", "found"),
}
"""What an integer reply may stand for (``reply.is``), by operation."""

DEFAULTS: dict[str, Any] = {
    "client": b"",
    "epoch": 1,
    "now_ms": 0,
    "clean_start": 0,
    "limit": 10_000,
    "default_expiry_ms": 604_800_000,
    "producer": b"",
    "batch": 0,
    "messages": (),
    "count": 10_000,
    "after": 0,
    "packet_id": 0,
    "sequence": 0,
}
"""Value of a field that the caller of an operation leaves out (``modulus`` comes from the binding)."""


Shape = Literal["ignored", "status", "integer", "strings", "messages", "json", "pairs", "records"]


class Table(BaseModel):
    """A TOML table in which every key must be known."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, strict=True)


class Repeated(Table):
    """Items once per element of a list: ``{ each = "messages", items = ["<payload>"] }``."""

    each: str
    items: list[str] = Field(min_length=1)


class JsonArgument(Table):
    """One argument that is a JSON text: ``{ json = { client = "<client>", batch = "<messages>" } }``."""

    content: Any = Field(alias="json")


def _kind_of_item(item: Any) -> str:
    if isinstance(item, dict):
        return "json" if "json" in item else "repeated"
    return "template"


Argument = Annotated[
    Annotated[str, Tag("template")] | Annotated[Repeated, Tag("repeated")] | Annotated[JsonArgument, Tag("json")],
    Discriminator(_kind_of_item),
]
Key = Annotated[Annotated[str, Tag("template")] | Annotated[Repeated, Tag("repeated")], Discriminator(_kind_of_item)]
_TAGS = frozenset({"template", "repeated"})


class ReplyTable(Table):
    """How an operation's reply is read."""

    shape: Shape
    means: str | None = Field(None, alias="is")
    columns: list[str] | None = None
    nested: bool = False
    skip: int = Field(0, ge=0)
    source: str | None = Field(None, alias="from")
    fields: dict[str, str] = {}
    kinds: dict[str, Literal["PUBLISH", "PUBREL"]] = {}
    refused: list[str] = []
    consecutive: bool = True
    answers_again: bool = False
    closed: str | None = None
    older: str | None = None

    @property
    def words(self) -> list[str]:
        """Replies that decline the operation, nothing done."""
        return [*self.refused, *(word for word in (self.closed, self.older) if word is not None)]


class StepTable(Table):
    """One call of an operation: a script, a function of a library, or a plain command."""

    script: str | None = None
    library: str | None = None
    function: str | None = None
    command: list[Argument] | None = None
    keys: list[Key] = []
    args: list[Argument] = []
    each: str | None = None
    when: str | None = None
    unless: str | None = None
    capture: str | None = None


class Calls(Table):
    """What every operation has: either the call itself, or ``steps``."""

    script: str | None = None
    library: str | None = None
    function: str | None = None
    command: list[Argument] | None = None
    keys: list[Key] = []
    args: list[Argument] = []
    steps: list[StepTable] | None = None
    read_only: bool = False


class Operation(Calls):
    """One operation of a session store."""

    reply: ReplyTable | None = None
    batch_max: int | None = Field(None, ge=1)


class Operations(Table):
    """The operations that the store has; save and fetch at least."""

    open: Operation | None = None
    save: Operation
    fetch: Operation
    acknowledge: Operation | None = None
    release: Operation | None = None
    clear: Operation | None = None


class MessageFormat(Table):
    """How one message is written as a value (the field ``message``)."""

    format: Literal["raw", "json", "packed"]
    fields: dict[str, Any] | None = None
    layout: list[str] | None = None


class Fixed(Table):
    """Values that the scripts fix themselves, so that callers cannot choose them."""

    limit: int | None = None
    default_expiry_ms: int | None = None


class Callers(Table):
    """What callers may give, where it is not what they may give any store."""

    limit: Literal["permitted", "any"] = "permitted"
    """permitted: 1 to the number of identifiers; any: the store promises to decline another."""
    default_expiry_ms: Literal["any", "positive"] = "any"
    """any: 0 as well, for messages that never expire; positive: none does without an interval of its own."""


class Edit(Table):
    """A piece of a script that stands in it once, and what takes its place: a variant in a few lines."""

    script: str
    find: str = Field(min_length=1)
    replace: str


class SpecimenTable(Table):
    """What a flawed store is there to show."""

    id: str
    breaks: list[str] = Field(min_length=1)
    scenario: str
    neighbour: str


class Store(Table):
    """A whole ``store.toml``."""

    name: str | None = None
    base: str | None = None
    edits: list[Edit] = []
    specification: Specification = "session"
    modulus: int = Field(65535, ge=1, le=65535)
    assumptions: list[str] = []
    adapter: str | None = None
    keys: dict[str, str] = {}
    message: MessageFormat | None = None
    fixed: Fixed = Fixed()
    callers: Callers = Callers()
    operations: Operations
    specimen: SpecimenTable | None = None


class ValueReply(Table):
    """How the reply of an operation with a contract of its own becomes a plain value."""

    words: dict[str, str] = {}


class ContractOperation(Calls):
    """One operation of a store whose contract is its owner's: its fields are those that the contract names."""

    reply: ValueReply | None = None
    batch_max: None = None


class ContractStore(Table):
    """A ``store.toml`` whose specification is a class of the owner's: ``specification = "limiter.py:SlidingWindow"``."""

    name: str | None = None
    base: str | None = None
    edits: list[Edit] = []
    specification: str
    assumptions: list[str] = []
    keys: dict[str, str] = {}
    operations: dict[str, ContractOperation] = Field(min_length=1)
    specimen: SpecimenTable | None = None
    message: None = None
    adapter: None = None
    modulus: int = Field(65535, ge=1, le=65535)
    fixed: Fixed = Fixed()


def has_own_contract(content: dict[str, Any]) -> bool:
    """Whether the specification is a class in a Python file."""
    return ":" in str(content.get("specification", ""))


_TABLES: dict[str, type[Table]] = {
    "edits": Edit,
    "message": MessageFormat,
    "fixed": Fixed,
    "callers": Callers,
    "specimen": SpecimenTable,
    "operations": Operations,
    "reply": ReplyTable,
    "steps": StepTable,
    **dict.fromkeys(OPERATION_FIELDS, Operation),
}


def check_store(content: dict[str, Any], place: str) -> Store | ContractStore:
    """``content``, the parsed TOML, as a Store. Raises InputError that names ``place``, the key and the cure."""
    try:
        store = (ContractStore if has_own_contract(content) else Store).model_validate(content)
    except ValidationError as error:
        mistakes = error.errors()
        unknown = [one for one in mistakes if one["type"] == "extra_forbidden"]  # often why another key is missing
        raise InputError(f"{place}: {_explain((unknown or mistakes)[0])}") from None
    if store.name is not None and not store.name.isprintable():
        raise InputError(f"{place}: name: {store.name!a:.60} would not print as it is; use letters, digits and blanks")
    return store


def _explain(error: Any) -> str:
    steps = [step for step in error["loc"] if step not in _TAGS]
    where = _path(steps)
    kind = error["type"]
    if kind == "extra_forbidden":
        known = tuple(_toml_names(_table_at(steps[:-1])))
        colon = ": " if steps[1:] else ""
        return f'{_path(steps[:-1])}{colon}unknown key "{steps[-1]}"; {did_you_mean(str(steps[-1]), known)}'
    if kind == "missing":
        return f"{where}: missing; add it"
    if kind == "literal_error":
        found = str(error["input"])
        choices = tuple(error["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", "))
        return f'{where}: unknown value "{found}"; {did_you_mean(found, choices)}'
    message = error["msg"]
    return f"{where}: {message[0].lower()}{message[1:]}, not {error['input']!r:.60}"


def _path(steps: list[int | str]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")


def _table_at(steps: list[int | str]) -> type[Table]:
    names = [step for step in steps if isinstance(step, str)]
    if names and names[-1] in ("args", "keys", "command"):
        return Repeated
    return _TABLES[names[-1]] if names else Store


def _toml_names(table: type[Table]) -> list[str]:
    return [field.alias or name for name, field in table.model_fields.items()]
