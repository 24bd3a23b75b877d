"""Steps of clients on a store with a contract, as values and as JSON: what a trace of such a store is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orderlab.model.contracts.base import Call
from orderlab.model.errors import InputError

SCHEMA = 1
CLIENTS_MAX = 100
WAIT_MS_MAX = 10**12
TIME = "time"
"""The lane of what nobody does."""
DEPLOYMENT = "deployment"
"""The lane of scripts that are replaced."""
REPLY_LOST = "reply-lost"
"""The operation was carried out; its client never hears of it."""
OWN_ERROR = "own-error"
"""An error that the operation's script raises by itself ends it, as one that strikes it from outside would."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What stops or befalls an operation: a condition of the node, or an event at one call."""

    kind: str
    """The name of a condition of ``orderlab.sim.redis.error_conditions``, ``client-dies``, ``reply-lost`` or
    ``own-error``."""
    at: int = 0
    """killed, crashed: before which ``redis.call`` of the script, from 0; client-dies: after how many calls."""
    key: bytes = b""
    """wrong-type: of which key."""
    found: str = ""
    """wrong-type: the type of the value that is found there."""

    def __str__(self) -> str:
        where = (
            f" of {self.key.decode('latin-1').encode('unicode_escape').decode()}{self.found and f' (a {self.found})'}"
            if self.key
            else ""
        )
        return f"{self.kind}{where}" + (
            f" before redis.call {self.at + 1}" if self.kind in ("crashed", "killed") else ""
        )


@dataclass(frozen=True, slots=True)
class Begin:
    """A client calls an operation; its first call reaches the store."""

    client: int
    call: Call
    trouble: Fault | None = None
    served_by: str = ""
    """``old`` or ``new``: which version of the scripts, during a rolling upgrade."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The next call of the operation that the client has begun reaches the store."""

    client: int
    trouble: Fault | None = None


@dataclass(frozen=True, slots=True)
class Die:
    """The client dies between two calls of its operation; another process takes its place, and knows what it knew."""

    client: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Time passes."""

    ms: int


ClientStep = Begin | Resume | Die | Wait


def to_json(step: ClientStep) -> dict[str, Any]:
    """A step as plain values."""
    if isinstance(step, Wait):
        return {"step": "wait", "ms": step.ms}
    told: dict[str, Any] = {"step": type(step).__name__.lower(), "client": step.client}
    if isinstance(step, Begin):
        told |= {"operation": step.call.name, "fields": {name: _plain(value) for name, value in step.call.fields}}
        if step.served_by:
            told["served_by"] = step.served_by
    trouble = getattr(step, "trouble", None)
    if trouble is not None:
        told["trouble"] = {
            "kind": trouble.kind,
            "key": trouble.key.decode("latin-1"),
            "at": trouble.at,
            "found": trouble.found,
        }
    return told


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return {"bytes": value.decode("latin-1")} if isinstance(value, bytes) else value


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_read, value))
    return value["bytes"].encode("latin-1") if isinstance(value, dict) else value


def from_json(content: Any, place: str) -> ClientStep:
    """The step that ``content`` describes. Raises InputError that begins with ``place``."""
    try:
        kind = content["step"]
        if kind == "wait":
            return Wait(int(content["ms"]))
        told = content.get("trouble")
        trouble = told and Fault(str(told["kind"]), int(told["at"]), told["key"].encode("latin-1"), str(told["found"]))
        client = int(content["client"])
        if kind == "begin":
            fields = tuple((str(name), _read(value)) for name, value in content["fields"].items())
            return Begin(client, Call(str(content["operation"]), fields), trouble, str(content.get("served_by", "")))
        if kind in ("resume", "die"):
            return Resume(client, trouble) if kind == "resume" else Die(client)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{place}: no step ({type(error).__name__}: {error}); export the trace again") from None
    raise InputError(f"{place}: unknown step {kind!r}; one of begin, resume, die, wait")


def lane_of(step: Any, steps: Sequence[Any]) -> str:
    """Who takes a step: the writer or the client that it names, or time itself."""
    if hasattr(step, "during"):
        return lane_of(step.step, steps)
    if hasattr(step, "producer"):
        return f"producer {step.producer + 1}"
    if hasattr(step, "ms"):
        return TIME
    if hasattr(step, "scripts"):
        return DEPLOYMENT
    if hasattr(step, "client"):
        return f"client {step.client + 1}"
    label = getattr(step, "label", None)
    for one in steps:
        saved = getattr(one, "step", one)
        if any(message.label == label for message in getattr(saved, "messages", ())):
            return f"client {saved.client + 1}"
    return "client 1"


def fault_of(step: Any) -> Fault | None:
    """What befalls a step, or the operation that others come between."""
    inner = getattr(step, "step", step)
    found: Fault | None = getattr(inner, "fault", None) or getattr(inner, "trouble", None)
    return found


def told_step(step: ClientStep, skews_ms: Sequence[int] = ()) -> str:
    """A step in words. ``skews_ms``: the clients' clocks less the server's."""
    if isinstance(step, Wait):
        return f"{step.ms:,} ms pass"
    who = f"client {step.client + 1}"
    if isinstance(step, Die):
        return f"{who} dies in the middle of its operation"
    under = f", under {step.trouble}" if step.trouble is not None else ""
    skew_ms = skews_ms[step.client] if step.client < len(skews_ms) else 0
    if skew_ms:
        who += f", whose clock is {abs(skew_ms):,} ms {'ahead' if skew_ms > 0 else 'behind'}"
    by = f", served by the {step.served_by} scripts" if isinstance(step, Begin) and step.served_by else ""
    return (
        f"{who}: {step.call}{by}{under}" if isinstance(step, Begin) else f"{who}: the next call of its operation{under}"
    )


@dataclass(frozen=True, slots=True)
class ContractTrace:
    """Steps of clients on a store with a contract, and what is needed to take them again."""

    steps: tuple[ClientStep, ...]
    clients: int
    skews_ms: tuple[int, ...] = ()
    """The clients' clocks less the server's."""
    store: str = ""
    """Folder of the store that it was found on, as the user named it."""
    contract: str = ""
    law: str = ""
    """The law that it shows to be violated, if it does."""
    seed: int | None = None

    @property
    def world(self) -> int:
        """There is one only."""
        return 0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "schema": SCHEMA,
            "contract": self.contract,
            "store": self.store,
            "law": self.law,
            "seed": self.seed,
            "clients": self.clients,
            "skews_ms": list(self.skews_ms),
            "steps": [to_json(step) for step in self.steps],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], place: str) -> ContractTrace:
        """The trace that ``to_json`` gave ``data`` for. Raises InputError that names what is wrong where."""
        if data.get("schema") != SCHEMA:
            raise InputError(f"{place}: schema {data.get('schema')!r}; this version reads schema {SCHEMA}")
        if not isinstance(data.get("steps"), list):
            raise InputError(f"{place}: steps is no list; give the JSON that validate --json writes under 'trace'")
        steps = tuple(from_json(one, f"{place}: steps[{at}]") for at, one in enumerate(data["steps"]))
        try:
            clients, skews = int(data["clients"]), tuple(int(one) for one in data.get("skews_ms", ()))
        except (KeyError, ValueError, TypeError) as error:
            raise InputError(f"{place}: {type(error).__name__} {error}; clients and skews_ms are numbers") from None
        if not 1 <= clients <= CLIENTS_MAX or len(skews) > clients:
            raise InputError(
                f"{place}: clients {clients}, {len(skews)} skews_ms; at most {CLIENTS_MAX}, and a skew for each at most"
            )
        for at, step in enumerate(steps):
            if isinstance(step, Wait) and not 0 <= step.ms <= WAIT_MS_MAX:
                raise InputError(f"{place}: steps[{at}].ms: {step.ms}; give 0 to {WAIT_MS_MAX}")
            if not isinstance(step, Wait) and not 0 <= step.client < clients:
                raise InputError(f"{place}: steps[{at}].client: {step.client}; there are {clients} clients, from 0")
        store, contract, law = (str(data.get(name, "")) for name in ("store", "contract", "law"))
        return cls(steps, clients, skews, store, contract, law, data.get("seed"))
