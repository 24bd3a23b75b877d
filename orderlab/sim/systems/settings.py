"""Settings of a system, from `--set`, a file, or a preset to a checked value: those that every system has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from orderlab.model.errors import InputError, did_you_mean
from orderlab.model.files import read_toml
from orderlab.model.protocol.packet_id import MODULUS, TWO_BYTES_MAX
from orderlab.sim.costs.cost_model import first_error
from orderlab.sim.engine.packs import NUMBER_BYTES
from orderlab.sim.mqtt.clients import Pattern, parse_shares
from orderlab.sim.mqtt.connections import UNLIMITED
from orderlab.sim.mqtt.topics import RETAINED_FROM
from orderlab.sim.redis.versions import ServerName

GC_EVERY_MIN_S = 0.001
RATE_MIN = 1e-6
"""Messages per second and publisher: one in eleven days. Far below it the microseconds between two are no number that a
machine counts."""


class Settings(BaseModel):
    """Base of every system's settings: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lasts_s: ClassVar[Mapping[str, float]] = {}
    """By the faults of a system that has its own: how long they last unless told otherwise."""


S = TypeVar("S", bound=Settings)


def make_settings(kind: type[S], given: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], system: str) -> S:
    """Settings from ``given``, whose key ``row`` names a published row to begin with. Raises InputError."""
    given = dict(given)
    row = given.pop("row", None)
    base: Mapping[str, Any] = {}
    if row is not None:
        if not rows:
            raise InputError(f"{system}: row {row}: no rows were published for it; remove it")
        if str(row).lower() not in rows:
            raise InputError(f"{system}: row {row}: no such published row; it is one of {', '.join(rows)}")
        base = rows[str(row).lower()]
    for name in given:
        if name not in kind.model_fields:
            raise InputError(f'{system}: unknown setting "{name}"; {did_you_mean(name, ("row", *kind.model_fields))}')
    try:
        made = kind.model_validate({**base, **given})
    except ValidationError as error:
        raise InputError(f"{system}: {first_error(error)}") from None
    # Kafka takes them: they stand by, and look as if they worked.
    if isinstance(made, DeviceSettings) and made.brokers > made.partitions:
        raise InputError(
            f"{system}: partitions {made.partitions}: {made.brokers} brokers read them, some would have none; set "
            f"{made.brokers} at least"
        )
    return made


def read_config(path: Path) -> dict[str, Any]:
    """What a TOML file holds: settings, or a sweep. Raises InputError."""
    return read_toml(path)


class ClientSettings(Settings):
    """How clients behave. By default: one QoS, a steady rate, everyone stays and reads at once."""

    rate: float = Field(default=1.0, ge=RATE_MIN, le=1000, allow_inf_nan=False)
    """Messages per second and publisher; with on and off times, while it is on."""
    publish_on_s: float | None = Field(default=None, ge=0.001, le=86_400)
    publish_off_s: float | None = Field(default=None, ge=0.001, le=86_400)
    """Publishers publish for a while and are silent for a while; by default they never stop."""
    publish_pattern: Pattern = "regular"
    """Of on and off times: exactly as long, at a phase of each publisher's own; exponential; or the same for all at
    once."""
    qos: int = Field(default=1, ge=0, le=2)
    """Of publishers and subscriptions. QoS 0 is neither stored nor acknowledged."""
    publish_qos: str = ""
    """Shares of the publishers by QoS, ``0=0.2 1=0.5 2=0.3``; by default all have ``qos``."""
    subscription_qos: str = ""
    """Shares of the subscriptions by granted QoS, likewise."""
    outgoing_qos: Literal["lower", "granted", "published"] = "lower"
    """The QoS of a delivery: the lower of the two, as the standard has it; or wrong: that of the subscription, as
    brokers do that upgrade, or that of the publish."""
    receive_maximum: int = Field(default=UNLIMITED, ge=1, le=UNLIMITED)
    """Of every subscriber: how many PUBLISH packets it takes without having acknowledged one."""
    slow_share: float = Field(default=0.0, ge=0, le=1)
    """Of the subscribers, how many read slowly all the time."""
    slow_read_ms: float = Field(default=50.0, gt=0, le=3_600_000)
    """Between two packets that a slow one reads."""
    offline_share: float = Field(default=0.0, ge=0, le=1)
    """Of the subscribers, how many lose their connection again and again."""
    online_s: float = Field(default=0.5, ge=0.001, le=86_400)
    offline_s: float = Field(default=0.2, ge=0.001, le=86_400)
    """How long they are with and without a connection."""
    reconnect_pattern: Literal["exponential", "regular", "together"] = "exponential"
    """Of those times: exponential around these means; exactly as long, at a phase of each subscriber's own; or all are
    lost at once, as when a load balancer restarts, and come back after exponential times."""
    clean_start_share: float = Field(default=0.0, ge=0, le=1)
    """Of their connects, how many have Clean Start 1: the session ends, a new one begins."""
    takeover_share: float = Field(default=0.0, ge=0, le=1)
    """Of their connects, how many come, to another broker if there is one, while the client is still connected."""
    session_expiry_s: float | None = Field(default=None, ge=0, le=2**32 - 1)
    """Session Expiry Interval of every subscriber; by default sessions do not expire."""
    resubscribe: bool = False
    """Whether subscribers send SUBSCRIBE after every CONNECT, as many clients do, though their session has it."""
    keep_alive_s: float = Field(default=0.0, ge=0, le=TWO_BYTES_MAX)
    """Keep Alive of every subscriber, in seconds; 0: off, and nobody notices that a link is dead."""
    server_keep_alive_s: float | None = Field(default=None, ge=0.001, le=TWO_BYTES_MAX)
    """Server Keep Alive: what the server sets in its place (MQTT-3.1.2-21)."""
    will_delay_s: float | None = Field(default=None, ge=0, le=2**32 - 1)
    """Will Delay Interval of every subscriber; by default they have no Will Message."""
    will_watched: float = Field(default=1.0, ge=0, le=1)
    """Of the subscribers, how many have a Will that somebody watches: a client of its own that has subscribed to it,
    has no Will, and neither comes nor goes. By default all, so that every Will is judged; the others are counted."""
    wills: Literal["owner", "replicated", "claimed"] = "owner"
    """Who publishes a Will: the broker that had the connection, from its memory; or, as all know the Wills, also the
    next broker when that one has been silent for the session timeout; or so, and whoever publishes it, or has the
    client anew, claims it in the store before. With the last two what Kafka refuses is sent again."""
    goodbye_share: float = Field(default=0.0, ge=0, le=1)
    """Of the connections of those who come and go, how many they end with DISCONNECT and Reason Code 0, which discards
    the Will; the others are lost."""
    retained_share: float = Field(default=0.0, ge=0, le=1)
    """Of the publishers, how many set RETAIN on all that they publish."""
    retained_clear_every: int = Field(default=0, ge=0)
    """Of what those publish, every so-manieth message is empty and removes the retained one; 0: none."""
    retain_handling: Literal[0, 1, 2] = 0
    """Of subscriptions: retained messages at every SUBSCRIBE, only where the subscription is new, or never."""
    retain_as_published: bool = False
    """Of subscriptions: whether what is sent on keeps its RETAIN flag."""

    @field_validator("retain_handling", mode="before")
    @classmethod
    def _a_number(cls, given: object) -> object:
        return int(given) if isinstance(given, str) and given.isdecimal() else given

    @property
    def sessions_end(self) -> bool:
        """Whether a session may end in a run."""
        return self.clean_start_share > 0 or self.session_expiry_s is not None

    @model_validator(mode="after")
    def _movers_exist(self) -> ClientSettings:
        for name in ("clean_start_share", "takeover_share", "goodbye_share"):
            if getattr(self, name) and not self.offline_share:
                raise ValueError(f"{name} is of the connects of those who come and go; set offline_share above 0")
        return self

    @model_validator(mode="after")
    def _bursts_have_both(self) -> ClientSettings:
        on_s, off_s = self.publish_on_s, self.publish_off_s
        if (on_s is None) != (off_s is None):
            raise ValueError("publish_on_s and publish_off_s go together; set both or neither")
        if on_s is not None and on_s * self.rate < 1:
            raise ValueError(
                f"publish_on_s {on_s:g} is shorter than the time between two messages; set rate to 1/{on_s:g} at least"
            )
        if on_s is None and self.publish_pattern != "regular":
            raise ValueError("publish_pattern is of on and off times; set publish_on_s and publish_off_s")
        return self

    @model_validator(mode="after")
    def _shares_add_up(self) -> ClientSettings:
        for name in ("publish_qos", "subscription_qos"):
            try:
                if getattr(self, name):
                    parse_shares(name, getattr(self, name))
            except InputError as error:
                raise ValueError(str(error)) from None
        return self

    @model_validator(mode="after")
    def _somebody_subscribes_later(self) -> ClientSettings:
        if self.retained_share and not (self.offline_share and (self.resubscribe or self.sessions_end)):
            raise ValueError(
                "nobody subscribes after a publish; set offline_share, and resubscribe=true or clean_start_share"
            )
        return self


SCRIPTS = Path(__file__).parents[2] / "lua"
STORES = {"published": SCRIPTS / "specimens" / "published", "session": SCRIPTS / "session"}
FENCED = SCRIPTS / "inbound"
"""Of publishers' queues that refuse what an older connection brings."""


class DeviceSettings(ClientSettings):
    """Each publisher with a subscriber of its own, whatever keeps the sessions."""

    publishers: int = Field(default=100_000, ge=1, le=2_000_000)
    brokers: int = Field(default=1, ge=1, le=100)
    broker_cores: int = Field(default=16, ge=1, le=1024)
    kafka_brokers: int = Field(default=3, ge=1, le=100)
    partitions: int = Field(default=12, ge=1, le=1000)
    linger_ms: float = Field(default=10.0, ge=0, le=10_000)
    batch_bytes: int = Field(default=16_384, ge=1)
    """The producers' ``batch.size``."""
    acks: Literal["0", "1", "all"] = "1"
    idempotent: bool = False
    max_poll_records: int = Field(default=1000, ge=1)
    payload_bytes: int = Field(default=62, ge=NUMBER_BYTES, le=1_000_000)
    limit: int = Field(default=10_000, ge=1, le=MODULUS)
    """Messages kept per session."""
    faults: str = ""
    """``name@seconds:target:duration``, separated by blanks; target and duration may be left out."""
    fault_rates: str = ""
    """``name=rate/s``, separated by blanks: faults that strike at random."""
    handover: Literal["after-commit", "before-commit"] = "after-commit"
    """When what was saved goes on to whoever holds the connection; published: after the commit. Before it, a broker
    that dies in between leaves repetitions instead of gaps, and a store that knows a batch again has its session read
    anew."""
    session_timeout_s: float = Field(default=10.0, ge=0.001, le=86_400)
    request_timeout_s: float = Field(default=30.0, ge=0.001, le=86_400)
    retries: int = Field(default=1, ge=0, le=2**31 - 1)
    max_in_flight: int = Field(default=5, ge=1, le=1000)
    """``max.in.flight.requests.per.connection`` of the producers."""
    min_insync_replicas: int = Field(default=1, ge=1, le=100)
    """``min.insync.replicas``: how many a partition must have for acks=all to be answered."""
    unclean_election: bool = False
    """``unclean.leader.election.enable``: whether a replica that is not in sync may lead."""
    replica_lag_max_s: float = Field(default=30.0, ge=0.001, le=86_400)
    """``replica.lag.time.max.ms``: after which a follower that cannot keep up is not in sync any more."""
    offsets_lag_ms: float = Field(default=0.0, ge=0, le=86_400_000)
    """How much a new coordinator of the consumer groups has not got of the offsets' topic: 0, as Kafka promises with
    its defaults; above 0 what ``offsets.commit.required.acks=1``, an unclean election or a topic without replicas leave
    it."""
    gc_every_s: float = Field(default=0.0, ge=0, le=86_400)
    """Mean time between two pauses of the collector in a broker; 0: none beside those that ``thread_hop_us`` has on
    average."""
    gc_median_ms: float = Field(default=17.6, ge=0.001, le=3_600_000)
    gc_sigma: float = Field(default=0.27, ge=0, le=5)
    """How long they last: lognormal, with this median and this spread of the logarithm. Measured (notes/calibration.md,
    Collector pauses)."""
    pack_pause_s: float = Field(default=1.0, ge=0.001, le=86_400)
    """Before what failed of a pack is tried again."""
    ownership: Literal["at-once", "last-event", "by-connection", "woken"] = "at-once"
    """How brokers know who is connected where: all at once; or by a topic of Kafka, late: the last event counts; or
    that of the newest connection; or so, and what went to the wrong broker is read anew from the store when it is known
    where the client is."""
    server_receive_maximum: int = Field(default=UNLIMITED, ge=1, le=UNLIMITED)
    """How many publishes with QoS above 0 a publisher may have unanswered (MQTT 5.0, 3.2.2.3.3)."""
    producer_records_max: int = Field(default=0, ge=0)
    """Records without an answer of Kafka above which a broker reads nothing from its publishers; 0: no bound."""
    socket_packets: int = Field(default=0, ge=0, le=1_000_000)
    """How many packets the socket of a slow reader takes; what comes then is not written. 0: no bound."""
    on_full_socket: Literal["leave", "read-anew"] = "leave"
    """What was not written stays in the store until the next connection; or is read anew when there is room."""
    removals: Literal["once", "awaited"] = "once"
    """What an acknowledged message owes to the store: published, its removal is asked for once, and the session is read
    by the next CONNECT whether or not that has happened; or it is asked for until it has happened, and the session is
    not read before."""
    pack_retries: int = Field(default=3, ge=0, le=2**31 - 1)
    """How often; what still fails is given up, and committed with the rest."""
    drain_s: float = Field(default=1.0, ge=0.001, le=3600)
    """After the measured interval nobody publishes; the run goes on until all has arrived, at most for this long."""
    costs: str = "cluster"
    tick_us: int = Field(default=500, ge=10, le=100_000)
    warm_up_s: float = Field(default=0.15, ge=0, le=3600)
    duration_s: float = Field(default=0.3, ge=0.001, le=86_400)

    @property
    def holds_publishers_up(self) -> bool:
        """Whether a message may be sent later than its application asked for it."""
        return self.server_receive_maximum < UNLIMITED or self.producer_records_max > 0

    @property
    def may_fill(self) -> bool:
        """Whether a session may reach its limit in a run, were every message of its publisher saved twice."""
        return self.limit < 2 * (self.rate * (self.warm_up_s + self.duration_s) + 2)

    @field_validator("gc_every_s")
    @classmethod
    def _leaves_time(cls, given: float) -> float:
        if 0 < given < GC_EVERY_MIN_S:
            raise ValueError(f"pauses leave a broker no time; set {GC_EVERY_MIN_S:g} at least, or 0 for none")
        return given

    @model_validator(mode="after")
    def _sockets_are_bounded_once(self) -> DeviceSettings:
        if self.socket_packets and self.receive_maximum < UNLIMITED:
            raise ValueError("socket_packets: receive_maximum bounds what waits for a client already; set one of them")
        return self

    @model_validator(mode="after")
    def _somebody_hears_late(self) -> DeviceSettings:
        if self.ownership != "at-once" and self.brokers < 2:
            raise ValueError("ownership is what brokers know of each other's clients; set brokers=2 at least")
        return self

    @model_validator(mode="after")
    def _reads_anew_by_tokens(self) -> DeviceSettings:
        for name, wanted in (("ownership", "woken"), ("on_full_socket", "read-anew")):
            if getattr(self, name) == wanted and getattr(self, "scripts", "published") != "session":
                raise ValueError(
                    f"{name}={wanted} reads sessions anew, for which messages need tokens; set scripts=session"
                )
        return self

    @model_validator(mode="after")
    def _removes_by_tokens(self) -> DeviceSettings:
        if self.removals == "awaited" and getattr(self, "scripts", "published") != "session":
            raise ValueError(
                "removals=awaited asks again, and an identifier alone may be another message's by then; set "
                "scripts=session, which has tokens"
            )
        return self

    @model_validator(mode="after")
    def _kafka_would_start(self) -> DeviceSettings:
        """The Java client refuses the same, as the sequence could not be kept."""
        if self.idempotent and (self.acks != "all" or not self.retries):
            raise ValueError("idempotent: such a producer needs acks=all and retries above 0; set these too")
        if self.idempotent and self.max_in_flight > 5:
            raise ValueError(
                "idempotent: a leader knows the last five batches of a producer; set max_in_flight=5 at most"
            )
        if self.min_insync_replicas > self.kafka_brokers:
            raise ValueError(
                f"min_insync_replicas {self.min_insync_replicas}: there are {self.kafka_brokers} Kafka brokers; "
                "set fewer"
            )
        return self

    @model_validator(mode="after")
    def _numbers_fit(self) -> DeviceSettings:
        messages = self.publishers * (1 + self.rate * (self.warm_up_s + self.duration_s + 2))
        most = RETAINED_FROM if self.retained_share else 10**NUMBER_BYTES
        if messages >= most:
            raise ValueError(f"about {messages:.3g} messages; at most {most:.3g}: shorten the run")
        return self


class RedisSettings(DeviceSettings):
    """Sessions in Redis."""

    expiry_s: int | None = Field(default=None, ge=1, le=2**32 - 1)
    """Message Expiry Interval of every message; none by default."""
    redis_nodes: int = Field(default=3, ge=1, le=1000)
    server: ServerName = "7.0"
    """What the nodes are, as ``--server`` names it."""
    redis_replica_lag_ms: float | None = Field(default=None, ge=0, le=60_000)
    """Lag of a replica of each node; none by default, as published."""
    appendfsync: Literal["off", "no", "everysec", "always"] = "off"
    """Off, as published: no append-only file. Otherwise what is written to it is on disk when the system flushes it by
    itself, within a second, or before the reply. That matters when the machine dies; a process that dies leaves the
    whole file."""
    cluster_node_timeout_s: float = Field(default=15.0, ge=0.001, le=86_400)
    """``cluster-node-timeout``: after which a node that is out of reach counts as failed, and a master that reaches no
    majority serves nothing."""
    full_coverage: bool = True
    """``cluster-require-full-coverage``: whether all nodes refuse to serve while some slots have no master."""
    min_replicas_lag_s: float | None = Field(default=None, ge=0.001, le=86_400)
    """``min-replicas-to-write 1`` with this ``min-replicas-max-lag``: a master whose replica has been silent for so
    long takes no writes. Off by default."""
    resync_s: float = Field(default=0.0, ge=0, le=86_400)
    """How long a replica that begins anew has nothing yet: the delay before a transfer (repl-diskless-sync-delay, 5 s
    in Redis 7) and the transfer."""
    scripts: Literal["published", "session"] = "published"
    inbound: Literal["memory", "store", "fenced"] = "memory"
    """Where brokers keep which publishes with QoS 2 they have received and not released; in the store, a broker that
    dies takes nothing along, and sessions know messages again by publisher and number, however they came; fenced: so,
    and a publisher's queue there refuses what an older connection brings."""

    @model_validator(mode="after")
    def _numbers_come_in_order(self) -> RedisSettings:
        if self.inbound != "memory" and not (self.scripts == "session" and self.idempotent):
            raise ValueError(
                f"inbound={self.inbound} numbers what publishers send, and sessions refuse a lower number; set "
                "scripts=session, which has "
                "numbers, and idempotent=true, which keeps order"
            )
        return self


class PipelinedSettings(RedisSettings):
    """Sessions in Redis, through one pipeline per broker and node."""

    lettuce_batch: int = Field(default=150, ge=1, le=100_000)
    flush_ms: float = Field(default=3.0, ge=0.001, le=10_000)
    command_timeout_s: float = Field(default=30.0, ge=0.001, le=3600)
