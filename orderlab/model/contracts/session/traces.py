"""A trace: a finite list of steps on a session store that reproduces a behaviour, on any backend, as JSON and as text.

Steps speak of messages by label, never by packet identifier, so that a step can be left out and the rest keeps its
meaning: an acknowledgement is for "the last sending of m2", whatever identifier that had. A step that has no meaning in
its place (an acknowledgement of something never sent) does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from orderlab.model.contracts.client_steps import Fault
from orderlab.model.errors import InputError
from orderlab.model.protocol.packet_id import MODULUS

SCHEMA = 1
"""Number of the JSON form (``notes/validate-json.md``)."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A message as its publisher gave it."""

    label: int
    payload: bytes
    topic: bytes = b"t"
    qos: int = 1
    interval_ms: int | float | None = None
    """Message Expiry Interval in ms, unchecked; None when the publisher gave none."""


@dataclass(frozen=True, slots=True)
class Save:
    """A producer's next batch for one client. ``stale``: the record was routed before the session was cleared."""

    messages: tuple[Publication, ...]
    client: int = 0
    producer: int = 0
    limit: int = 100
    stale: bool = False
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """The reply to the producer's last save was lost: it sends the very same call again.

    ``older``: it goes back further, to the batch before its last one, as a reader of a log does that begins again at
    its last commit.
    """

    producer: int = 0
    older: bool = False


@dataclass(frozen=True, slots=True)
class Fetch:
    """A page. ``onward``: behind the last message of the client's previous page. ``count`` None is everything."""

    client: int = 0
    count: int | None = None
    onward: bool = False
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """PUBACK or PUBCOMP for the last sending of a message, however late."""

    label: int
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """PUBREC for the last sending of a message."""

    label: int
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An acknowledgement, or with ``release`` a PUBREC, for an identifier under which nothing was ever sent."""

    packet_id: int
    client: int = 0
    release: bool = False


@dataclass(frozen=True, slots=True)
class Clear:
    """Clean start or end of the session. ``stale``: the end of an earlier one, which comes after the next has begun."""

    client: int = 0
    fault: Fault | None = None
    stale: bool = False

    @property
    def is_new(self) -> bool:
        """Whether it ends the session that there is."""
        return not self.stale


@dataclass(frozen=True, slots=True)
class Open:
    """CONNECT, with or without Clean Start.

    ``stale``: an earlier CONNECT of the client, overtaken by the one that began its session. ``again``: the reply to
    the last CONNECT was lost, and the very same comes once more.
    """

    client: int = 0
    clean_start: bool = False
    fault: Fault | None = None
    stale: bool = False
    again: bool = False

    @property
    def is_new(self) -> bool:
        """Whether the client connects now, and not long ago or once more."""
        return not (self.stale or self.again)


@dataclass(frozen=True, slots=True)
class Wait:
    """Time passes."""

    ms: int


@dataclass(frozen=True, slots=True)
class Serve:
    """From here on nodes with this version of the scripts serve, on the data that is there: a rolling upgrade, or its
    rollback."""

    scripts: str
    """``old`` or ``new``. A run begins with the old ones, where there are two."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The store does what it does by itself now and then: cleans up, writes its log to disk, ends and recovers."""

    what: str


@dataclass(frozen=True, slots=True)
class DrainQueue:
    """The subscriber stays connected: pages of ``count`` are fetched and acknowledged until nothing comes any more."""

    client: int = 0
    count: int = 2


@dataclass(frozen=True, slots=True)
class Quiesce:
    """A client with an empty queue fetches, one message comes and goes, it fetches again: what remains is residue."""

    client: int = 0


@dataclass(frozen=True, slots=True)
class Churn:
    """``count`` other messages are saved for a client and are acknowledged, or expire: identifiers go by.

    Those that expire take a second for each batch, and far less work.
    """

    count: int
    client: int = 0
    producer: int = 0
    by_expiry: bool = False


@dataclass(frozen=True, slots=True)
class Interleave:
    """``step`` takes several calls; after ``at`` of them ``during`` comes in between. A single script is one call."""

    step: Step
    during: Step
    at: int = 1


Step = (
    Save
    | Retry
    | Fetch
    | Acknowledge
    | Release
    | Answer
    | Clear
    | Open
    | Wait
    | Serve
    | Upkeep
    | DrainQueue
    | Quiesce
    | Churn
    | Interleave
)
KINDS: dict[str, type[Any]] = {
    "save": Save,
    "repeat": Retry,
    "fetch": Fetch,
    "acknowledge": Acknowledge,
    "release": Release,
    "answer": Answer,
    "clear": Clear,
    "open": Open,
    "wait": Wait,
    "serve": Serve,
    "keep up": Upkeep,
    "drain": DrainQueue,
    "settle": Quiesce,
    "pass": Churn,
    "overlap": Interleave,
}
"""Kind of step -> its class. These names are what traces on disk say."""
NAMES = {made: name for name, made in KINDS.items()}


def kind_of_step(step: Step) -> str:
    """The kind of a step, as traces call it."""
    return next(NAMES[kind] for kind in type(step).__mro__ if kind in NAMES)


PRODUCERS = (b"p0", b"p1")
"""What producers are called, unless a trace says otherwise."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Steps and what they need: the clients' identifiers, the producers' names and the store's default expiry
    interval."""

    steps: tuple[Step, ...]
    clients: tuple[bytes, ...] = (b"c1", b"c2")
    default_expiry_ms: int = 604_800_000
    modulus: int = MODULUS
    store: str = ""
    """Folder of the store it was found on, as the user named it."""
    law: str = ""
    """The law that it shows to be violated, if it does."""
    seed: int | None = field(default=None)
    producers: tuple[bytes, ...] = PRODUCERS

    @property
    def world(self) -> int:
        """How many packet identifiers there are."""
        return self.modulus

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; bytes as Latin-1 text."""
        return {
            "schema": SCHEMA,
            "store": self.store,
            "law": self.law,
            "seed": self.seed,
            "modulus": self.modulus,
            "default_expiry_ms": self.default_expiry_ms,
            "clients": [client.decode("latin-1") for client in self.clients],
            **({} if self.producers == PRODUCERS else {"producers": [one.decode("latin-1") for one in self.producers]}),
            "steps": [step_to_json(step) for step in self.steps],
        }

    @classmethod
    def from_json(cls, data: Any, place: str = "trace") -> Trace:
        """The trace that ``to_json`` gave ``data`` for. Raises InputError naming what is wrong where."""
        if not isinstance(data, Mapping) or not isinstance(data.get("steps"), Sequence):
            raise InputError(f"{place}: not a trace; give the JSON that validate --json writes under 'trace'")
        if data.get("schema") != SCHEMA:
            raise InputError(f"{place}: schema {data.get('schema')!r}; this version reads schema {SCHEMA}")
        steps = tuple(step_from_json(one, f"{place}: steps[{at}]") for at, one in enumerate(data["steps"]))
        try:
            clients = tuple(str(client).encode("latin-1") for client in data["clients"])
            producers = tuple(str(one).encode("latin-1") for one in data.get("producers", ())) or PRODUCERS
            return cls(
                steps,
                clients,
                int(data["default_expiry_ms"]),
                int(data["modulus"]),
                str(data.get("store", "")),
                str(data.get("law", "")),
                data.get("seed"),
                producers,
            )
        except (KeyError, ValueError, TypeError) as error:
            needed = "clients, default_expiry_ms and modulus are needed"
            raise InputError(f"{place}: {type(error).__name__} {error}; {needed}") from None


def step_to_json(step: Step) -> dict[str, Any]:
    """One step; fields at their defaults are left out."""
    body = _plain(asdict(step))
    if isinstance(step, Interleave):
        body |= {"step": step_to_json(step.step), "during": step_to_json(step.during)}
    usual = {f.name: f.default for f in fields(step) if f.default is not MISSING}
    told = {name: value for name, value in body.items() if name not in usual or value != _plain(usual[name])}
    return {"do": kind_of_step(step), **told}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def step_from_json(data: Any, place: str) -> Step:
    """The step that ``step_to_json`` gave ``data`` for."""
    if not isinstance(data, Mapping) or data.get("do") not in KINDS:
        raise InputError(f"{place}: no such step; 'do' is one of {', '.join(KINDS)}")
    step: Step = _build(KINDS[data["do"]], {key: value for key, value in data.items() if key != "do"}, place)
    return step


def _build(kind: type[Any], data: Mapping[str, Any], place: str) -> Any:
    hints = get_type_hints(kind)
    for name in data:
        if name not in hints:
            raise InputError(
                f"{place}.{name}: unknown field; {NAMES[kind] if kind in NAMES else kind.__name__.lower()} has "
                f"{', '.join(hints)}"
            )
    try:
        return kind(**{name: _read(hints[name], value, f"{place}.{name}") for name, value in data.items()})
    except TypeError as error:
        raise InputError(f"{place}: {error}") from None


def _read(hint: Any, value: Any, place: str) -> Any:
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if value is None and type(None) in options:
        return None
    if bytes in options and isinstance(value, str):
        return value.encode("latin-1")
    if isinstance(value, bool | int | float | str):
        if type(value) in options:
            return value
    elif isinstance(value, Mapping) and Save in options:
        return step_from_json(value, place)
    elif isinstance(value, Mapping) and Fault in options:
        return _build(Fault, value, place)
    elif isinstance(value, Sequence) and get_origin(hint) is tuple:
        return tuple(_build(Publication, one, f"{place}[{at}]") for at, one in enumerate(value))
    raise InputError(f"{place}: {value!r} is not a {hint}")


MANY = 8
"""Messages of one batch that are told one by one."""
FAULTS = {
    "out-of-memory": "while the node is out of memory",
    "read-only": "on a read-only replica",
    "too-few-replicas": "while too few replicas are in touch",
    "disk-error": "while the node cannot save to disk",
    "disk-full": "while the append-only file cannot be written",
    "slot-migrates": "while the hash slot migrates",
}


def told_step(step: Step, trace: Trace) -> str:
    """One step as a sentence."""
    return _told(step, trace) + _told_fault(getattr(step, "fault", None))


def _told(step: Step, trace: Trace) -> str:
    several = len(trace.clients) > 1
    client = getattr(step, "client", 0)
    whose = f" for client {client + 1}" if several or len(trace.clients[0]) != len(b"client-one") else ""
    if whose and not several:
        whose = f" for client {trace.clients[0][:40].decode('latin-1')!r}"
    match step:
        case Save():
            messages = told_messages(step.messages)
            stale = ", a record from before the session was cleared" if step.stale else ""
            endless = trace.default_expiry_ms == 0 and any(one.interval_ms is None for one in step.messages)
            default = ", default interval 0: never expires" if endless else ""
            return f"{_named(step.producer, trace)} saves {messages}{whose}, limit {step.limit}{default}{stale}"
        case Retry(older=True):
            return f"{_named(step.producer, trace)} goes back and sends the save before its last again"
        case Retry():
            return f"the reply was lost: {_named(step.producer, trace)} sends the same save again"
        case Fetch():
            what = "everything" if step.count is None else f"a page of {step.count}"
            return f"fetch {what}{', the next page' if step.onward else ''}{whose}"
        case Acknowledge():
            return f"acknowledge the last sending of m{step.label}"
        case Release():
            return f"PUBREC for the last sending of m{step.label}: release"
        case Answer():
            return (
                f"{'PUBREC' if step.release else 'acknowledge'} {step.packet_id}, under which nothing was sent{whose}"
            )
        case Clear(stale=True):
            return f"the end of the session before this one comes late: clear{whose}"
        case Clear():
            return f"clear the session{whose}"
        case Open(again=True):
            return f"the reply was lost: the same CONNECT comes again{whose}"
        case Open(stale=True):
            return f"a CONNECT from before the session began comes late, Clean Start {int(step.clean_start)}{whose}"
        case Open():
            return f"connect with Clean Start {int(step.clean_start)}{whose}"
        case Wait():
            return f"{step.ms:,} ms pass"
        case Serve():
            return f"the {step.scripts} scripts serve from here on"
        case Upkeep():
            return f"the store's own work: {step.what}"
        case DrainQueue():
            return f"fetch pages of {step.count} and acknowledge until nothing comes{whose}"
        case Quiesce():
            return f"fetch, save and acknowledge one message more, fetch{whose}"
        case Churn():
            fate = "expire" if step.by_expiry else "are acknowledged"
            return f"{step.count:,} other messages are saved and {fate}{whose}"
        case Interleave():
            return f"{told_step(step.step, trace)}; after {step.at} of its calls: {told_step(step.during, trace)}"


def _named(producer: int, trace: Trace) -> str:
    """``producer 1``, or the name that a trace gives it."""
    if trace.producers == PRODUCERS:
        return f"producer {producer + 1}"
    return f"the producer called '{trace.producers[producer].decode('latin-1')}'"


def _told_fault(fault: Fault | None) -> str:
    if fault is None:
        return ""
    if fault.kind == "wrong-type":
        return f", while {fault.key[:60].decode('latin-1')!r} holds a {fault.found}"
    if fault.kind == "client-dies":
        return f"; the client dies after {fault.at} calls"
    if fault.kind in ("killed", "crashed"):
        return f"; {fault.kind} before call {fault.at}"
    return f", {FAULTS.get(fault.kind, fault.kind)}"


def told_messages(messages: Sequence[Publication]) -> str:
    """The messages of a batch; the middle of a long one is left out."""
    if len(messages) <= MANY:
        return ", ".join(map(told_message, messages)) or "nothing"
    first, last = told_message(messages[0]), told_message(messages[-1])
    return f"{first}, {told_message(messages[1])} ... {last} ({len(messages):,} messages)"


def told_message(message: Publication) -> str:
    """A message with what is out of the ordinary about it."""
    told = f"m{message.label}"
    if len(message.payload) < 100 and not message.payload.startswith((b"m%d" % message.label, b"<%d>" % message.label)):
        told += f" {message.payload.decode('latin-1')!r}"
    if message.qos != 1:
        told += f" QoS {message.qos}"
    if message.interval_ms is not None:
        told += f" (expires in {message.interval_ms / 1000:g} s)"
    return told
