"""The store of one MQTT session as a sequential specification, for histories of client code (``oracle="session"``).

An operation takes effect at one moment: ``save`` appends a message under the next packet identifier that is free and
trims the oldest beyond the limit, ``fetch`` tells the oldest, ``acknowledge`` and ``clear`` take away. In the last
millisecond of a message it lives or is over, both are right. ``spec`` has the whole session, with batches, epochs and
the second half of QoS 2; stores that a ``store.toml`` binds are held against that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from orderlab.model.contracts.base import AnyOf, Call, Contract, Exchange, Outcome, Reply, law
from orderlab.model.contracts.session.spec import next_packet_id
from orderlab.model.protocol.packet_id import MODULUS

ANYTHING = AnyOf(lambda reply: True, 0, "anything")


class SessionPromises(BaseModel):
    """What a session store says of itself: ``promises=`` of a scenario."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(MODULUS, ge=1, le=MODULUS)
    """Messages that are kept; the oldest go first."""
    page: int = Field(MODULUS, ge=1)
    """Messages that a fetch tells at most."""
    identifiers: Literal["counter", "any"] = "counter"
    """Which identifier a message gets: the next that is free, or any that is."""


class KeptMessage(NamedTuple):
    """A live message."""

    message: Reply
    packet_id: int
    until_ms: int | None = None


class SessionQueueState(NamedTuple):
    """The live messages, the oldest first, and the last identifier that was given."""

    queue: tuple[KeptMessage, ...] = ()
    last: int = 0


class SessionQueue(Contract):
    """See the module's text. ``save`` replies the identifier, ``fetch`` pairs of identifier and message."""

    operations: ClassVar = {"save": ("message", "ttl_ms"), "fetch": (), "acknowledge": ("packet_id",), "clear": ()}
    optional: ClassVar = {"save": ("ttl_ms",)}
    promises_table: ClassVar[type[SessionPromises]] = SessionPromises

    def __init__(self, promises: SessionPromises | None = None) -> None:
        self.promises = promises or SessionPromises()

    def initial(self) -> SessionQueueState:
        return SessionQueueState()

    def elapse(self, state: SessionQueueState, now_ms: int) -> SessionQueueState:
        return self._without(state, lambda entry: entry.until_ms is not None and now_ms > entry.until_ms)

    def deadlines_ms(self, state: SessionQueueState) -> Iterable[int]:
        return [entry.until_ms for entry in state.queue if entry.until_ms is not None]

    def outcomes(self, state: SessionQueueState, call: Call, now_ms: int) -> Iterator[Outcome]:
        for each in self._at(state, now_ms):
            if call.name == "save":
                yield from self._save(each, call, now_ms)
            elif call.name == "fetch":
                yield self._page(each), each
            elif call.name == "acknowledge":
                yield ANYTHING, self._without(each, lambda entry: entry.packet_id == int(call["packet_id"]))
            else:
                yield ANYTHING, SessionQueueState()
                yield ANYTHING, SessionQueueState(last=each.last)

    def _at(self, state: SessionQueueState, now_ms: int) -> Iterator[SessionQueueState]:
        """The state, and the one in which what ends in this millisecond is over."""
        yield state
        over = self._without(state, lambda entry: entry.until_ms == now_ms)
        if over != state:
            yield over

    @staticmethod
    def _without(state: SessionQueueState, is_gone: Any) -> SessionQueueState:
        return state._replace(queue=tuple(entry for entry in state.queue if not is_gone(entry)))

    def _save(self, state: SessionQueueState, call: Call, now_ms: int) -> Iterator[Outcome]:
        ttl_ms = dict(call.fields).get("ttl_ms")
        until_ms = None if ttl_ms is None else now_ms + int(ttl_ms)

        def after(packet_id: int) -> SessionQueueState:
            queue = (*state.queue, KeptMessage(call["message"], packet_id, until_ms))
            return SessionQueueState(queue[-self.promises.limit :], packet_id)

        if self.promises.identifiers == "counter":
            yield self._next(state), after(self._next(state))
        else:
            free = AnyOf(lambda reply: self._is_free(state, reply), self._next(state), "an identifier that is free")
            yield free, after

    def _next(self, state: SessionQueueState) -> int:
        live = {entry.packet_id for entry in state.queue}
        packet_id = next_packet_id(state.last)
        while packet_id in live and len(live) < MODULUS:
            packet_id = next_packet_id(packet_id)
        return packet_id

    @staticmethod
    def _is_free(state: SessionQueueState, reply: Reply) -> bool:
        live = {entry.packet_id for entry in state.queue}
        return type(reply) is int and 1 <= reply <= MODULUS and reply not in live

    def _page(self, state: SessionQueueState) -> tuple[tuple[int, Reply], ...]:
        return tuple((entry.packet_id, entry.message) for entry in state.queue[: self.promises.page])

    def calls(self, client: int, seen: Sequence[Exchange]) -> Iterator[Call]:
        saved = [entry for entry in seen if entry.call.name == "save"]
        yield Call.of("save", message=f"m{client}.{len(saved)}")
        yield Call.of("fetch")
        yield from (Call.of("acknowledge", packet_id=entry.reply) for entry in saved[-1:])
        yield Call.of("clear")

    # -- laws --------------------------------------------------------------------------------------------------

    @law("packet-id", "no two live messages share an identifier, and each is one of MQTT", ["save"])
    def packet_ids(self, before: SessionQueueState, call: Call, reply: Reply, now_ms: int) -> bool | None:
        return self._is_free(before, reply) if call.name == "save" else None

    @law("counter", "identifiers are given in order, and those in use are left out", ["save"])
    def counts(self, before: SessionQueueState, call: Call, reply: Reply, now_ms: int) -> bool | None:
        if call.name != "save" or self.promises.identifiers != "counter":
            return None
        return any(reply == self._next(each) for each in self._at(before, now_ms))

    @law("no-phantom", "what is fetched was saved and is live", ["fetch"])
    def no_phantom(self, before: SessionQueueState, call: Call, reply: Reply, now_ms: int) -> bool | None:
        live = {(entry.packet_id, entry.message) for entry in before.queue}
        return set(reply or ()) <= live if call.name == "fetch" else None

    @law("no-loss", "what was saved and is live is fetched", ["fetch"])
    def no_loss(self, before: SessionQueueState, call: Call, reply: Reply, now_ms: int) -> bool | None:
        if call.name != "fetch":
            return None
        return any(set(self._page(each)) <= set(reply or ()) for each in self._at(before, now_ms))

    @law("store-order", "messages are fetched in the order in which they were saved", ["fetch"])
    def in_order(self, before: SessionQueueState, call: Call, reply: Reply, now_ms: int) -> bool | None:
        if call.name != "fetch":
            return None
        places = {(entry.packet_id, entry.message): place for place, entry in enumerate(before.queue)}
        found = [places[entry] for entry in reply or () if entry in places]
        return all(first < second for first, second in pairwise(found))
