"""What scripts may tell apart of a state, and nothing else: its canonical form, by which a state counts as met before.

Four things are left out, each of which is an ``Equivalence`` that is tested on the scripts
(``orderlab.properties.engine.equivalence_tests``) and taken back where they can tell:

- *instants*: a moment counts by how far it is from now;
- *past*: of moments that are over it counts in which order they were;
- *counters*: of numbers that only ever grow (tokens, serials) it counts which is greater;
- *clients*: while nobody is in the middle of an operation it does not count which client holds what.

Everything else stays as it is: names, payloads, types, other numbers, the order of members, what clients hold and may
send again, every state of the contract that explains what was seen. So a state that differs in anything else is
another, and where scripts remember what only grows nothing closes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass, replace
from enum import StrEnum
from hashlib import sha256
from itertools import groupby
from typing import Any, NamedTuple

from orderlab.model.contracts.base import Call, Exchange
from orderlab.model.contracts.judge import Candidate, Event
from orderlab.properties.engine.run import ClientState, Core, RunState

NEAR_MS = 10**10
"""Numbers no farther than this from now are moments: some 115 days."""
DIGITS = re.compile(r"(\d+)")
Path = tuple[object, ...]
"""Where a number stands, without which of several alike."""
Put = Callable[[Path, Any], Any]
"""What stands for a number at a path."""


class Equivalence(StrEnum):
    """What a canonical form leaves out."""

    INSTANTS = "instants"
    PAST = "past"
    COUNTERS = "counters"
    CLIENTS = "clients"


WORDS = {
    Equivalence.INSTANTS: "moments by how far they are from now",
    Equivalence.PAST: "moments that are over by their order",
    Equivalence.COUNTERS: "numbers that only grow by their order",
    Equivalence.CLIENTS: "clients by what they hold",
}


class Mapped:
    """A state with every number in it put through ``put``. Texts are taken apart into digits and what is between;
    ``joined`` puts them together again."""

    def __init__(self, put: Put, joined: Callable[[list[Any], Any], Any]) -> None:
        self._put, self._joined = put, joined

    def state(self, state: RunState) -> RunState:
        """Core and clients. What a client has begun so far is its own count, and no part of a state's future here."""
        core = state.core
        keys = {self.value(key, ("key",)): self._key(key, entry) for key, entry in core.keyspace.items()}
        judged = self._judged(core.judged)
        clients = tuple(self._client(item) for item in state.clients)
        return RunState(Core(keys, self._put(("now",), core.now_ms), judged, core.line, core.watches), clients)

    def _key(self, key: bytes, entry: tuple[str, Any, int | None]) -> tuple[str, Any, Any]:
        kind, value, until_ms = entry
        path = ("in", DIGITS.sub("#", key.decode("latin-1")), kind)
        deadline = None if until_ms is None else self._put((*path, "deadline"), until_ms)
        if kind != "hash":
            return kind, self.value(value, path), deadline
        encoding, pairs, *more = value
        held = tuple(
            (self.value(item[0], (*path, "field")), *(self.value(part, (*path, _shape(item[0]))) for part in item[1:]))
            for item in pairs
        )
        return kind, (encoding, held, *(self.value(part, (*path, "more")) for part in more)), deadline

    def _judged(self, judged: Any) -> Any:
        candidates, overlapping, quiet_ms, under_way, stopped, is_foreign = judged
        return (
            frozenset(Candidate(self.value(item.state, ("state",)), item.done) for item in candidates),
            tuple(self._event(item) for item in overlapping),
            self._put(("now",), quiet_ms),
            tuple((number, self.value(call, ())) for number, call in under_way),
            stopped,
            is_foreign,
        )

    def _event(self, event: Event) -> Event:
        if event.kind == "at":
            return event._replace(number=self._put(("now",), event.number))
        return event._replace(value=self.value(event.value, ("reply", "")))

    def _client(self, client: ClientState) -> ClientState:
        return client._replace(
            seen=tuple(self.value(item, ()) for item in client.seen),
            pending=self.value(client.pending, ()),
            replies=tuple(self.value(item, ("raw",)) for item in client.replies),
            begun=0,
            retry=self.value(client.retry, ()),
        )

    def value(self, value: Any, path: Path) -> Any:
        """Any plain or abstract value."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            return self._put(path, value)
        if isinstance(value, bytes | str):
            return self._text(value, path)
        if isinstance(value, Exchange):
            return Exchange(self.value(value.call, ()), self.value(value.reply, ("reply", value.call.name)))
        if isinstance(value, Call):
            given = tuple((name, self.value(item, ("call", value.name, name))) for name, item in value.fields)
            return Call(value.name, given)
        if isinstance(value, frozenset):
            return frozenset(self.value(item, path) for item in value)
        if isinstance(value, list):
            return [self.value(item, path) for item in value]
        if isinstance(value, tuple):
            return self._tuple(value, path)
        if is_dataclass(value) and not isinstance(value, type):
            names = [item.name for item in fields(value)]
            return replace(value, **{name: self.value(getattr(value, name), (*path, name)) for name in names})
        return value

    def _tuple(self, value: tuple[Any, ...], path: Path) -> Any:
        if hasattr(value, "_fields"):
            return type(value)(*(self.value(getattr(value, item), (*path, item)) for item in value._fields))
        if len({type(item) for item in value}) == 1:
            return tuple([self.value(item, (*path, "each")) for item in value])
        return tuple([self.value(item, (*path, at)) for at, item in enumerate(value)])

    def _text(self, value: Any, path: Path) -> Any:
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        if not any("0" <= item <= "9" for item in text):
            return value
        parts: list[Any] = DIGITS.split(text)
        for at in range(1, len(parts), 2):
            digits = parts[at]
            if digits.isascii() and len(digits) <= 18:
                put = self._put((*path, at, len(parts)), int(digits))
                parts[at] = (put, len(digits) if digits[0] == "0" and len(digits) > 1 else 0)
        return self._joined(parts, value)


def _shape(field: Any) -> str:
    return DIGITS.sub("#", field.decode("latin-1")) if isinstance(field, bytes) else ""


def together(parts: list[Any], value: Any) -> Any:
    """A text of its parts, of the type of ``value``; numbers written as wide as they were where zeros led."""
    text = "".join(str(part[0]).zfill(part[1]) if isinstance(part, tuple) else part for part in parts)
    return text.encode("latin-1") if isinstance(value, bytes) else text


def changed(state: RunState, put: Put) -> RunState:
    """A state that differs in its numbers only; members of one score stand in the order of their bytes."""
    made = Mapped(put, together).state(state)
    core = made.core
    keys = dict(sorted((key, _sorted(entry)) for key, entry in core.keyspace.items()))
    return made._replace(core=Core(keys, core.now_ms, core.judged, core.line, core.watches))


def _sorted(entry: tuple[str, Any, Any]) -> tuple[str, Any, Any]:
    kind, value, until_ms = entry
    return (kind, (value[0], tuple(sorted(value[1])), *value[2:]), until_ms) if kind == "zset" else entry


def is_moment(number: float, now_ms: int) -> bool:
    """Whether a number is taken for a moment."""
    return number >= NEAR_MS and abs(number - now_ms) <= NEAR_MS


class Ranks:
    """The numbers of a state whose order alone counts, put in order."""

    def __init__(self, form: Form, now_ms: int) -> None:
        self.form, self.now_ms = form, now_ms
        self.past: set[float] = set()
        self.grown: set[float] = set()

    def see(self, path: Path, number: float) -> float:
        """Take a number up."""
        if is_moment(number, self.now_ms):
            if number < self.now_ms:
                self.past.add(number)
        elif number > 0 and path in self.form.counters:
            self.grown.add(number)
        return number

    def order(self) -> Put:
        """What stands for each number in the canonical form."""
        past = {number: rank for rank, number in enumerate(sorted(self.past, reverse=True), 1)}
        grown = {number: rank for rank, number in enumerate(sorted(self.grown), 1)}

        def put(path: Path, number: float) -> Any:
            if is_moment(number, self.now_ms):
                if number < self.now_ms and Equivalence.PAST in self.form.used:
                    return f"past {past[number]} {type(number).__name__}"
                return f"now{number - self.now_ms:+} {type(number).__name__}"
            if number > 0 and path in self.form.counters:
                return f"rank {grown[number]} {type(number).__name__}"
            return number if type(number) is int else f"{number!r} {type(number).__name__}"

        return put


class Form(NamedTuple):
    """Which canonical form is meant."""

    used: frozenset[Equivalence]
    counters: frozenset[Path] = frozenset()
    """Where numbers stand that only grow."""


def canonical(state: RunState, form: Form, phase: int = 0, exchange: Exchange | None = None) -> Hashable:
    """A state's canonical form; with a call and its reply, if those are to be the same too. ``phase``: where the moment
    lies on the steps in which time passes.

    How the last operation was stopped names the law that a later reply breaks, and tells no states apart."""
    ranks = Ranks(form, state.core.now_ms)
    seeing = Mapped(ranks.see, together)
    seeing.state(state)
    seeing.value(exchange, ())
    ordered = Mapped(ranks.order(), lambda parts, value: (type(value).__name__, *parts))
    formed = ordered.state(state)
    core = formed.core
    keys = frozenset((key, _untied(entry)) for key, entry in core.keyspace.items())
    whole: Any = core.judged
    judged = whole[:4]
    clients = formed.clients
    if Equivalence.CLIENTS in form.used and is_quiet(state):
        clients = tuple(sorted(clients, key=_told))
    return phase, keys, judged, core.line, core.watches, clients, ordered.value(exchange, ())


def is_quiet(state: RunState) -> bool:
    """Whether nobody is in the middle of an operation."""
    judged: Any = state.core.judged
    return not (judged[1] or judged[3] or any(item.pending for item in state.clients))


def digest(form: Hashable) -> str:
    """A canonical form in few letters, the same in every process."""
    return sha256(_told(form).encode()).hexdigest()[:24]


def _untied(entry: tuple[str, Any, Any]) -> tuple[str, Any, Any]:
    """A key with members of one score in the order of what stands for them: 9 comes after 10 in the order of bytes."""
    kind, value, until = entry
    if kind != "zset":
        return entry
    encoding, members, *more = value
    tied = [list(some) for _, some in groupby(members, key=lambda item: repr(item[0]))]
    return kind, (encoding, tuple(item for some in tied for item in sorted(some, key=_told)), *more), until


def _told(value: Any) -> str:
    """A value in words that are the same in every process: sets in order."""
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_told, value)))}}}"
    if isinstance(value, tuple):
        return f"{type(value).__name__}({', '.join(map(_told, value))})"
    if isinstance(value, list):
        return f"[{', '.join(map(_told, value))}]"
    if is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}({', '.join(_told(getattr(value, one.name)) for one in fields(value))})"
    return repr(value)
