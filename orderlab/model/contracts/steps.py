"""Steps of clients on a store with a contract, as values and as JSON: what a trace of such a store is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orderlab.model.contracts.contract import Call
from orderlab.model.errors import InputError

SCHEMA = 1
REPLY_LOST = "reply-lost"
"""The operation was carried out; its client never hears of it."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What befalls one call: a condition of ``orderlab.sim.redis.raisable``, or ``reply-lost``."""

    kind: str
    key: bytes = b""
    """wrong-type: of which key."""
    at: int = 0
    """crashed, killed: before which ``redis.call`` of the script, from 0."""

    def __str__(self) -> str:
        where = f" of {self.key.decode('latin-1').encode('unicode_escape').decode()}" if self.key else ""
        return f"{self.kind}{where}" + (f" before redis.call {self.at + 1}" if self.kind in ("crashed", "killed") else "")


@dataclass(frozen=True, slots=True)
class Begin:
    """A client calls an operation; its first call reaches the store."""

    client: int
    call: Call
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """The next call of the operation that the client has begun reaches the store."""

    client: int
    trouble: Trouble | None = None


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
    trouble = getattr(step, "trouble", None)
    if trouble is not None:
        told["trouble"] = {"kind": trouble.kind, "key": trouble.key.decode("latin-1"), "at": trouble.at}
    return told


def _plain(value: Any) -> Any:
    return {"bytes": value.decode("latin-1")} if isinstance(value, bytes) else value


def from_json(content: Any, place: str) -> ClientStep:
    """The step that ``content`` describes. Raises InputError that begins with ``place``."""
    try:
        kind = content["step"]
        if kind == "wait":
            return Wait(int(content["ms"]))
        told = content.get("trouble")
        trouble = told and Trouble(str(told["kind"]), told["key"].encode("latin-1"), int(told["at"]))
        client = int(content["client"])
        if kind == "begin":
            fields = {
                name: value["bytes"].encode("latin-1") if isinstance(value, dict) else value
                for name, value in content["fields"].items()
            }
            return Begin(client, Call.of(content["operation"], **fields), trouble)
        if kind in ("resume", "die"):
            return Resume(client, trouble) if kind == "resume" else Die(client)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{place}: no step ({type(error).__name__}: {error}); export the trace again") from None
    raise InputError(f"{place}: unknown step {kind!r}; one of begin, resume, die, wait")
