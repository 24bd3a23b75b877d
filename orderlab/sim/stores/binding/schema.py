"""The shape of ``store.toml`` whatever the store is for: tables, keys and types; what a session store has beside is in
``session``.

A field has the same name in ``store.toml``, in Python and in error messages; units are last in a name. pydantic checks
the tables, and its errors become one line each (``loader``). What the values mean (templates, filters, scripts) is
checked where they are compiled, in ``orderlab.sim.stores.binding.operations``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, StrictInt, Tag

from orderlab.model.protocol.packet_id import MODULUS
from orderlab.sim.redis.versions import ServerName

JOINED = " + "
"""Between the names of files that make a script one after the other."""


class Table(BaseModel):
    """A TOML table in which every key must be known."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, strict=True)


class Repeated(Table):
    """Items once per element of a list: ``{ each = "messages", items = ["<payload>"] }``."""

    each: str
    """A field that is a list, or what a step captured."""
    items: list[str] = Field(min_length=1)
    """Templates, once for each element."""


class JsonArgument(Table):
    """One argument that is a JSON text: ``{ json = { client = "<client>", batch = "<messages>" } }``."""

    content: Any = Field(alias="json")
    """A table, a list or a text, with templates within."""


class MsgpackArgument(Table):
    """One argument in MessagePack: ``{ msgpack = ["<job>", "<payload>"] }``."""

    content: Any = Field(alias="msgpack")
    """A table, a list or a text, with templates within."""


def _kind_of_item(item: Any) -> str:
    """Which of the forms an item has: a part of a TOML file, or what has been made of one."""
    if isinstance(item, dict):
        return next((kind for kind in ("json", "msgpack") if kind in item), "repeated")
    return KINDS.get(type(item), "template")


KINDS: dict[type, str] = {Repeated: "repeated", JsonArgument: "json", MsgpackArgument: "msgpack"}


Argument = Annotated[
    Annotated[str, Tag("template")]
    | Annotated[Repeated, Tag("repeated")]
    | Annotated[JsonArgument, Tag("json")]
    | Annotated[MsgpackArgument, Tag("msgpack")],
    Discriminator(_kind_of_item),
]
Key = Annotated[Annotated[str, Tag("template")] | Annotated[Repeated, Tag("repeated")], Discriminator(_kind_of_item)]
TAGS = frozenset({"template", "repeated", "json", "msgpack"})


def _one_name(value: Any) -> Any:
    """Names of files that make a script one after the other, as one name."""
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return JOINED.join(value)
    return value


ScriptName = Annotated[str, BeforeValidator(_one_name)]
"""A file of the store's (``take.lua``), a string that a program's file holds (``Queue.java#TAKE``), or a list of such,
put one after the other."""


class StepTable(Table):
    """One call of an operation: a script, a function of a library, a plain command, WATCH of keys, or calls between
    MULTI and EXEC."""

    script: ScriptName | None = None
    """A file of the folder, or a string of a program: ``Queue.java#TAKE``; a list is put one after the other."""
    library: ScriptName | None = None
    """The file of a library of Redis functions; ``function`` names which is called."""
    function: str | None = None
    """The function of ``library`` that is called."""
    command: list[Argument] | None = None
    """A plain command: ``["GET", "<key.total>"]``."""
    watch: list[Key] | None = Field(None, min_length=1)
    """WATCH of these keys."""
    transaction: list[StepTable] | None = Field(None, min_length=1)
    """Calls between MULTI and EXEC."""
    keys: list[Key] = []
    """KEYS: names of ``[keys]``, or templates."""
    args: list[Argument] = []
    """ARGV: templates."""
    each: str | None = None
    """A list: the call is made once for each element."""
    when: str | None = None
    """A capture or field: the step is taken only if it is there."""
    unless: str | None = None
    """A capture or field: the step is taken only if it is not there."""
    capture: str | None = None
    """The name by which later steps and templates know the reply."""


class Calls(Table):
    """What every operation has: either the call itself, or ``steps``."""

    script: ScriptName | None = None
    """A file of the folder, or a string of a program: ``Queue.java#TAKE``; a list is put one after the other."""
    library: ScriptName | None = None
    """The file of a library of Redis functions; ``function`` names which is called."""
    function: str | None = None
    """The function of ``library`` that is called."""
    command: list[Argument] | None = None
    """A plain command: ``["GET", "<key.total>"]``."""
    keys: list[Key] = []
    """KEYS: names of ``[keys]``, or templates."""
    args: list[Argument] = []
    """ARGV: templates."""
    steps: list[StepTable] | None = None
    """Several calls, one after the other, in place of one."""
    read_only: bool = False
    """The operation writes nothing, and a write is a violation."""


class Fixed(Table):
    """Values that the scripts fix themselves, so that callers cannot choose them."""

    limit: int | None = None
    """The most that a queue takes."""
    default_expiry_ms: int | None = None
    """How long what has no interval of its own is kept."""


class Edit(Table):
    """A piece of a script that stands in it once, and what takes its place: a variant in a few lines."""

    script: str
    """The script that is changed."""
    find: str = Field(min_length=1)
    """What stands in it once."""
    replace: str
    """What takes its place."""


class Callers(Table):
    """What callers may give, where it is not what they may give any store."""

    limit: Literal["permitted", "any"] = "permitted"
    """permitted: 1 to the number of identifiers; any: the store promises to decline another."""
    default_expiry_ms: Literal["any", "positive"] = "any"
    """any: 0 as well, for messages that never expire; positive: none does without an interval of its own."""


class SpecimenTable(Table):
    """What a flawed store is there to show."""

    id: str
    """A short name, for tables."""
    breaks: list[str] = Field(min_length=1)
    """Laws that the flaw breaks."""
    scenario: str
    """How, in a sentence."""
    neighbour: str
    """The nearest store without the flaw."""


class ValueReply(Table):
    """How the reply of an operation with a contract of its own becomes a plain value."""

    words: dict[str, str | StrictInt] = {}
    """Reply -> what the contract calls it."""
    otherwise: str | StrictInt | None = None
    """The word for a reply, nil included, that ``words`` does not name."""
    errors: dict[str, str | StrictInt] = {}
    """How the text of an error begins that is a reply like any other (``NOT FOUND``) -> what the contract calls it."""
    members: list[str] | None = Field(None, min_length=1)
    """What is taken of a text, an array, or texts in an array, by names and indices with dots between them
    (``jobs.0.id``)."""
    format: Literal["json", "msgpack"] = "json"
    """What the texts are that members are taken of."""
    value: str | None = None
    """Template over the fields and what was captured, in place of the last call's reply."""


class ContractOperation(Calls):
    """One operation of a store whose contract is its owner's: its fields are those that the contract names."""

    reply: ValueReply | None = None
    """How the reply becomes a value of the contract; as it is, unless said."""
    tries: int = Field(1, ge=1, le=1000)
    """How often the client begins before it gives up, where EXEC finds a watched key changed."""
    again_from: int = Field(0, ge=0)
    """The step that it begins again from, the first is 0."""
    batch_max: None = None
    """Of session stores alone."""


CONTRACTS: Mapping[str, str] = {
    "feed": "orderlab.model.contracts.feed.contract:FeedStore",
    "job_queue": "orderlab.model.contracts.job_queue.contract:JobQueue",
    "limiter": "orderlab.model.contracts.limiter.contract:LimiterStore",
    "lock": "orderlab.model.contracts.lock.contract:LockStore",
}
"""``specification`` of the suite's own contracts that are written like an owner's -> the class, looked up when it is
needed."""


class Accepted(Table):
    """A violation that the store's owner lives with: every report says so, and so it does once it occurs no more."""

    law: str
    """The law that is broken."""
    operation: str
    """Which is stopped; of a violation without trouble the one that breaks the law."""
    trouble: str = ""
    """What stops it, as reports name it (``wrong-type``); "" where nothing does."""
    why: str = Field(min_length=1)
    """The owner's reason."""

    def __str__(self) -> str:
        trouble = f" under {self.trouble}" if self.trouble else ""
        return f"{self.law} is broken by {self.operation}{trouble}, which is accepted: {self.why}"


class ContractStore(Table):
    """A ``store.toml`` whose specification is a class: one of the suite's contracts, or the owner's
    (``"limiter.py:SlidingWindow"``)."""

    name: str | None = None
    """How reports name the store; the folder's name unless said."""
    base: str | None = None
    """Another store.toml: what is not said here is as there."""
    edits: list[Edit] = []
    """Changes of the base's scripts."""
    includes: dict[str, str] = {}
    """Folders beside the store's own that its scripts may include files of, by the name of each."""
    holes: dict[str, str] = {}
    """What stands in strings of programs where they put a value in, by the text of what is put in."""
    specification: str
    """The contract: one of the suite's, or ``FILE.py:CLASS``."""
    server: ServerName = "7.0"
    """The server that the scripts are for."""
    assumptions: list[str] = []
    """Sentences that every report repeats: what the store takes for granted."""
    accept: list[Accepted] = []
    """Violations that the owner lives with."""
    keys: dict[str, str] = {}
    """Name -> template of a key. Braces are a hash tag, as in Redis."""
    promises: dict[str, Any] = {}
    """What the contract leaves to its stores to settle."""
    operations: dict[str, ContractOperation] = Field(min_length=1)
    """Operation -> how it is called, and how its reply is read."""
    specimen: SpecimenTable | None = None
    """Of a store that is flawed on purpose."""
    message: None = None
    """Of session stores alone."""
    adapter: None = None
    """Of session stores alone."""
    modulus: int = Field(MODULUS, ge=1, le=MODULUS)
    """How many packet identifiers there are."""
    fixed: Fixed = Fixed()
    """Values that the scripts fix themselves."""

    @property
    def tables(self) -> None:
        """No tables: a node of Redis carries the operations out."""

    @property
    def callers(self) -> Callers:
        """What callers may give any store; a contract says itself what its calls may be given."""
        return Callers()

    @property
    def contract_class(self) -> str:
        """Where the class of the contract is."""
        return self.specification

    def with_operations(self, names: Collection[str]) -> Self:
        """The same store with these of its operations alone."""
        kept = {name: operation for name, operation in self.operations.items() if name in names}
        return self.model_copy(update={"operations": kept})


def has_contract_class(content: dict[str, Any]) -> bool:
    """Whether the specification is a class: one of the suite's, or one in a Python file."""
    name = str(content.get("specification", ""))
    return name in CONTRACTS or ":" in name
