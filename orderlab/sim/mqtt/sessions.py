"""The session store as a broker calls it: prepared calls, the node of a client, what a reply assigns.

A call is rendered once by the store's binding with marks in place of what changes, and prepared
(`orderlab.sim.redis.prepared`). Names of clients and topics have one length each, so no length prefix changes.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Sequence
from typing import cast

from orderlab.model.protocol.packet_id import MODULUS
from orderlab.sim.engine.packs import NUMBER_BYTES, NumberedNames, Numbers
from orderlab.sim.redis.hash_slots import SLOT_COUNT, hash_slot
from orderlab.sim.redis.prepared_command import BYTES, PreparedCommand, columns_of
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.servers.redis import RedisNode
from orderlab.sim.servers.requests import Calls, Request
from orderlab.sim.stores.binding import Binding, Fetched, Message, ScriptCall
from orderlab.sim.stores.bound import uses

EPOCH_MS = 1_700_000_000_000
"""What clocks show at instant 0 (13 digits, and so for 270 years)."""
_BATCH = 777_000_000_777
_TIME = 1_888_000_000_000
_ACK_TOKEN = 666_000_000_666
_ACK_ID = 64_951
_ENCODED = 6
"""Place, among the marks of a save, of what its first message holds in base64."""
_ACK_EPOCH = 555_000_000_555
FIRST_EPOCH = 1
"""Of sessions and queues that were there before the run."""


class StoredSessions:
    """Calls on the session store of a cluster of ``nodes``. Client names have equal lengths, and so have topics."""

    def __init__(
        self,
        binding: Binding,
        nodes: int,
        limit: int,
        qos: int,
        payload_bytes: int,
        lengths: tuple[int, int],
        expiry_ms: int | None = None,
    ) -> None:
        """``expiry_ms``: the Message Expiry Interval of every message."""
        self.binding = binding
        self.opens_sessions = "open" in binding.operations
        self.numbers_batches = uses(binding, "save", "batch", 1, 2)
        self.has_tokens = uses(binding, "acknowledge", "sequence", 1, 2)
        self.refuses_closed = binding.operation("save").reader.table.closed is not None
        self.nodes = nodes
        self.limit = limit
        self.qos = qos
        self.expiry_ms = expiry_ms
        self._sizes = payload_bytes, lengths
        self._padding = b"." * (payload_bytes - NUMBER_BYTES)
        self._client_mark = _mark(b"Qc", lengths[0])
        self._topic_length = lengths[1]
        self._saves: dict[int | tuple[tuple[int, ...], bool], PreparedCommand] = {}
        """By how many messages are saved at once, or by what is special about them."""
        self._acknowledge = self._prepare_pair("acknowledge")
        self._release = self._prepare_pair("release")
        self._key = binding.keys[next(iter(binding.keys))]
        self._previous = binding.operation("save").reader.table.shape == "integer"
        """The reply to a save is the identifier before the first; otherwise pairs of identifier and token."""

    def keeping_all(self, binding: Binding | None = None) -> StoredSessions:
        """The same store, or the one of ``binding``, for queues that neither trim nor expire."""
        return StoredSessions(binding or self.binding, self.nodes, MODULUS, 2, *self._sizes)

    def node_of(self, client: bytes) -> int:
        """The node that serves the client's slot: slots are shared out evenly, in order."""
        return self.owner_of(self.slot_of(client))

    def slot_of(self, client: bytes) -> int:
        """The slot of all keys of the client's session."""
        return hash_slot(self._key.render({"client": client}))

    def owner_of(self, slot: int) -> int:
        """The node that serves a slot, until slots move."""
        return slot * self.nodes // SLOT_COUNT

    def payload(self, number: int) -> bytes:
        """The payload of message ``number``."""
        return b"%09d" % number + self._padding

    def open(self, client: bytes, clean_start: bool, epoch: int) -> Request:
        """Begin or find a session."""
        return self._plain("open", client=client, epoch=epoch, clean_start=int(clean_start))

    def save(
        self,
        client: bytes,
        messages: Sequence[tuple[int, bytes, int]],
        producer: int,
        batch: int,
        epoch: int = 1,
        qos: tuple[int, ...] = (),
        retained: bool = False,
    ) -> Request:
        """Save messages given as (number, topic, time in ms). ``qos``: of each delivery, where they differ;
        ``retained``: these answer a SUBSCRIBE."""
        count = len(messages)
        kind = (qos, retained) if qos or retained else count
        prepared = self._saves.get(kind)
        if prepared is None:
            prepared = self._saves[kind] = self._prepare_save(qos or (self.qos,) * count, retained)
        is_encoded = prepared.takes(_ENCODED)
        values: list[bytes | int] = [client, batch, producer, epoch]
        for number, topic, time_ms in messages:
            values += (topic, number, b2a_base64(b"%09d" % number, newline=False) if is_encoded else b"", time_ms)
        return _request(prepared, values, "save", count)

    def save_each(
        self,
        clients: Sequence[bytes],
        numbers: Numbers,
        topics: Sequence[bytes],
        time_ms: int,
        producers: Numbers,
        batches: Numbers,
        epochs: Numbers,
    ) -> Calls:
        """Save one message for each of these clients."""
        prepared = self._saves.get(1)
        if prepared is None:
            prepared = self._saves[1] = self._prepare_save((self.qos,), False)
        encoded = NumberedNames(b"", NUMBER_BYTES, numbers, is_encoded=True) if prepared.takes(_ENCODED) else ()
        return Calls(
            prepared.render,
            (clients, batches, producers, epochs, topics, numbers, encoded, [time_ms] * len(clients)),
            "save",
        )

    def acknowledge(self, client: bytes, packet_id: int, token: int, epoch: int = 1) -> Request:
        """Remove a message, for a PUBACK or PUBCOMP in the session ``epoch``."""
        return _request(self._acknowledge, (client, packet_id, token, epoch), "acknowledge")

    def acknowledge_each(
        self, clients: Sequence[bytes], packet_ids: Sequence[int], tokens: Sequence[int], epochs: Sequence[int]
    ) -> Calls:
        """Remove one message of each of these clients."""
        return Calls(self._acknowledge.render, (clients, packet_ids, tokens, epochs), "acknowledge")

    def release(self, client: bytes, packet_id: int, token: int, epoch: int = 1) -> Request:
        """Keep a PUBREL in place of a message, for a PUBREC."""
        return _request(self._release, (client, packet_id, token, epoch), "release")

    def fetch(self, client: bytes) -> Request:
        """All that waits, in order."""
        return self._plain("fetch", client=client, **self._of_session_store(count=self.limit, after=0))

    def newest(self, client: bytes) -> Request | None:
        """The token of the last message that was saved: the second number of ``lua/session``'s field ``m``. The
        published store does not tell."""
        if not self.opens_sessions:
            return None
        return Request([b"HGET", self.binding.keys["body"].render({"client": client}), b"m"], "newest")

    def told_epoch(self, reply: Reply) -> int | None:
        """The epoch, which the answer to ``newest`` tells as well; 0 where nothing is there, None for an error."""
        if isinstance(reply, bytes):
            return int(reply.split()[0])
        return 0 if reply is None else None

    def told_newest(self, reply: Reply) -> int | None:
        """What the answer says; 0 where nothing was ever saved, None for an error."""
        if isinstance(reply, bytes):
            return int(reply.split()[1])
        return 0 if reply is None else None

    def clear(self, client: bytes, epoch: int = 1) -> Request:
        """End a session."""
        return self._plain("clear", client=client, epoch=epoch)

    def assigned(self, reply: Reply, count: int) -> list[tuple[int, int]] | None:
        """(packet identifier, token) of each message saved; None if the save did not happen."""
        if type(reply) is int and self._previous:
            if count == 1:
                return [(reply % MODULUS + 1, 0)]
            return [((reply + i) % MODULUS + 1, 0) for i in range(count)]
        if type(reply) is list and len(reply) == 2 * count:
            return [(reply[2 * i], reply[2 * i + 1]) for i in range(count)]
        return None

    def assigned_each(self, replies: Sequence[Reply]) -> tuple[Sequence[int], Sequence[int]] | None:
        """The packet identifiers and the tokens of messages that were each saved alone; None if one of them was not."""
        kinds = set(map(type, replies))
        if kinds == {int} and self._previous:
            return [reply % MODULUS + 1 for reply in cast(Sequence[int], replies)], [0] * len(replies)
        if kinds == {list}:
            pairs = cast(Sequence[list[int]], replies)
            if set(map(len, pairs)) == {2}:
                return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        return None

    def was_saved_before(self, reply: Reply) -> bool:
        """Whether the store says that it has this batch already, under identifiers that it does not tell again."""
        return self.numbers_batches and reply == b"STALE"

    def was_closed(self, reply: Reply) -> bool:
        """Whether a save was refused because its session has ended. The published scripts refuse none."""
        return self.refuses_closed and reply == b"CLOSED"

    def is_damaged(self, reply: Reply) -> bool:
        """Whether a save was refused because parts of the session are gone. The published scripts do not notice."""
        return isinstance(reply, ErrorReply) and b"the session is damaged" in reply.message

    def was_opened(self, reply: Reply) -> bool:
        """Whether an ``open`` has found or begun a session, and no later CONNECT has it."""
        return isinstance(reply, list)

    def was_answered(self, reply: Reply) -> bool:
        """Whether an ``open`` or ``clear`` has run, were it in vain because a later CONNECT was faster."""
        return isinstance(reply, int | list) or reply == b"STALE"

    def fetched(self, reply: Reply) -> list[tuple[int, int, int, bool]] | None:
        """(message number, packet identifier, token, is a PUBREL) in order; None for an error."""
        result = self.binding.decode("fetch", reply)
        if not isinstance(result, Fetched):
            return None
        return [
            (
                int((message.payload or b"-1")[:NUMBER_BYTES]),
                message.packet_id or 0,
                message.sequence or 0,
                message.kind == "PUBREL",
            )
            for message in result.messages
        ]

    def _plain(self, operation: str, **fields: object) -> Request:
        call = self.binding.call(operation, **fields)
        assert isinstance(call, ScriptCall), f"{operation} is not one script"
        return Request(call.argv, operation)

    def _prepare_save(self, qos: Sequence[int], retained: bool) -> PreparedCommand:
        count = len(qos)
        topics = [_mark(b"Zt%04d" % i, self._topic_length) for i in range(count)]
        raws = [b"N%08d" % i for i in range(count)]
        call = self.binding.call(
            "save",
            client=self._client_mark,
            **self._of_session_store(epoch=8_888_881, producer=b"99993", batch=_BATCH),
            limit=self.limit,
            messages=[
                Message(raws[i] + self._padding, topics[i], qos[i], self.expiry_ms, _TIME + i, retained)
                for i in range(count)
            ],
        )
        assert isinstance(call, ScriptCall), "save is not one script"
        marks = [(self._client_mark, BYTES), (b"%d" % _BATCH, 0), (b"99993", 0), (b"8888881", 0)]
        for i in range(count):
            encoded = b2a_base64(raws[i], newline=False)
            marks += ((topics[i], BYTES), (raws[i], NUMBER_BYTES), (encoded, BYTES), (b"%d" % (_TIME + i), 0))
        return PreparedCommand(call.argv, marks)

    def _prepare_pair(self, operation: str) -> PreparedCommand:
        call = self.binding.call(
            operation,
            client=self._client_mark,
            packet_id=_ACK_ID,
            **self._of_session_store(epoch=_ACK_EPOCH, sequence=_ACK_TOKEN),
        )
        assert isinstance(call, ScriptCall), f"{operation} is not one script"
        numbers = ((b"%d" % number, 0) for number in (_ACK_ID, _ACK_TOKEN, _ACK_EPOCH))
        return PreparedCommand(call.argv, ((self._client_mark, BYTES), *numbers))

    def _of_session_store(self, **fields: object) -> dict[str, object]:
        return fields if self.opens_sessions else {}


class Inbound:
    """What lies outside of brokers: the publishers' queues, and what records in Kafka carry."""

    def __init__(self, store: StoredSessions, first_producer: int, is_fenced: bool = False) -> None:
        """``store`` must neither trim nor expire. ``first_producer``: the number by which subscribers' sessions know
        the first publisher; those below are partitions and brokers. ``is_fenced``: its queues refuse what an older
        connection brings."""
        self.store = store
        self.first_producer = first_producer
        self.is_fenced = is_fenced
        self.connection: dict[int, int] = {}
        """By publisher that has moved, the number of its last CONNECT; the others are at their first."""
        self.number_of: dict[int, int] = {}
        """By message, the number that its records carry. Records may be read again at any time, so nothing is
        forgotten."""
        self.opened: set[int] = set()

    def connect(self, publisher: int) -> int:
        """The number of a CONNECT that comes now."""
        self.connection[publisher] = self.connection.get(publisher, FIRST_EPOCH) + 1
        return self.connection[publisher]

    def ensure_open(self, nodes: Sequence[RedisNode], publisher: int, name: bytes) -> int:
        """The node of a publisher's queue, which was opened long before the run."""
        node = self.store.node_of(name)
        if publisher not in self.opened:
            self.opened.add(publisher)
            nodes[node].preload(self.store.open(name, clean_start=True, epoch=FIRST_EPOCH))
        return node


def _request(prepared: PreparedCommand, values: Sequence[bytes | int], kind: str, messages: int = 1) -> Request:
    return Request(prepared.render((0,), columns_of(tuple((value,) for value in values)))[0], kind, messages)


def _mark(word: bytes, length: int) -> bytes:
    """``word`` stretched to ``length`` with letters that no number has."""
    assert length >= len(word), f"names of {length} bytes are too short"
    return word + b"z" * (length - len(word))
