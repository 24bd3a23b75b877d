"""Cost models: what each step costs in microseconds, one TOML file each, every number with its source.

Simulated systems are timed by a whole model (`Costs`); `estimate_us` says of one call of a script how long it keeps a
node busy.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from orderlab.model.errors import InputError, shortened
from orderlab.model.files import read_toml
from orderlab.sim.redis.shard import Effect

FOLDER = Path(__file__).parent
LARGEST = 1e9
SMALLEST_RATE = 1e-3
Cost = Annotated[float, Field(ge=0, le=LARGEST)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _can_be_added_up(cls, given: Any) -> Any:
        if isinstance(given, (int, float)) and given > LARGEST:
            raise ValueError(f"at most {LARGEST:.0e}; microseconds are meant, or bytes")
        return given


class RedisCosts(_Table):
    """A single-threaded node. A script costs ``evalsha_us``, its commands, and ``lua_per_message_us`` per message."""

    evalsha_us: float = Field(ge=0)
    lua_per_message_us: float = Field(ge=0)
    io_us: float = Field(ge=0)
    """Per command of a client: reading, parsing, writing, when many share a system call."""
    syscall_us: float = Field(ge=0)
    """Per read of a socket and write of its replies."""
    unknown_command_us: float = Field(ge=0)
    fsync_us: float = Field(ge=0)
    """Of the append-only file, with ``appendfsync always``: once per read of a socket."""
    commands_us: dict[str, Cost]
    speed: float = Field(ge=SMALLEST_RATE)
    """How much faster the machine is than the one on which the other numbers were taken."""


class BrokerCosts(_Table):
    """CPU of a broker per message and stage."""

    ingest_us: float = Field(ge=0)
    puback_us: float = Field(ge=0)
    match_us: float = Field(ge=0)
    persist_us: float = Field(ge=0)
    downlink_us: float = Field(ge=0)
    """Per message that goes to another broker, at the sender; as much again at the receiver."""
    deliver_us: float = Field(ge=0)
    acknowledge_us: float = Field(ge=0)
    poll_us: float = Field(ge=0)
    """Per poll, whatever it brings."""
    thread_hop_us: float = Field(ge=0)
    """Delay, not work: a hand-over between threads, incl. scheduling and the pauses of the collector, on average."""


class ThreadCosts(_Table):
    """How a broker spreads its work over threads."""

    all_consumers: int = Field(ge=1, le=1000)
    """Of `msg.all`, in each broker, one thread each; likewise below."""
    persisted_consumers: int = Field(ge=1, le=1000)
    downlink_consumers: int = Field(ge=1, le=1000)
    downlink_partitions: int = Field(ge=1, le=1000)
    """Of the topic by which the other brokers reach a broker."""
    pack: int = Field(ge=1, le=1000)
    """Threads that work on one pack of a consumer."""
    consumer_share: float = Field(ge=0, le=1)
    """Of what routing and saving a message take before it is handed on, the part that those threads do, in order;
    others do the rest."""


class KafkaCosts(_Table):
    """A Kafka broker."""

    threads: int = Field(ge=1)
    request_us: float = Field(ge=0)
    record_us: float = Field(ge=0)
    fetched_record_us: float = Field(ge=0)
    replication_lag_us: int = Field(ge=0)
    record_overhead_bytes: int = Field(ge=0)
    """Topic, identifiers, properties, headers: a record without its payload. It decides when a batch is full."""


class NetworkCosts(_Table):
    """One zone of a data centre."""

    floor_us: float = Field(ge=0)
    median_us: float = Field(ge=0)
    sigma: float = Field(ge=0, le=5)
    """Of the logarithm: at 5 one delay in a thousand is five million times the median."""
    gbit_per_s: float = Field(ge=SMALLEST_RATE)


class PostgresCosts(_Table):
    """A PostgreSQL server: CPU of a backend per statement and row, and the write-ahead log."""

    transaction_us: float = Field(ge=0)
    """BEGIN and COMMIT, beside the wait for the log."""
    select_us: float = Field(ge=0)
    """One row by its primary key, or each row of a range."""
    insert_us: float = Field(ge=0)
    """One row of ``device_publish_msg``, into the heap and two indexes."""
    upsert_us: float = Field(ge=0)
    """One row of ``device_session_ctx``."""
    update_us: float = Field(ge=0)
    delete_us: float = Field(ge=0)
    vacuum_us: float = Field(ge=0)
    """Per dead row version, spent by autovacuum later."""
    insert_bytes: int = Field(ge=0)
    """Of write-ahead log per row; likewise below."""
    upsert_bytes: int = Field(ge=0)
    update_bytes: int = Field(ge=0)
    delete_bytes: int = Field(ge=0)
    wire_save_bytes: int = Field(ge=0)
    """Between client and server, both ways: a save of one message of 62 bytes; likewise below."""
    wire_fetch_bytes: int = Field(ge=0)
    """Without its rows."""
    wire_row_bytes: int = Field(ge=0)
    wire_acknowledge_bytes: int = Field(ge=0)
    fsync_us: float = Field(ge=0)
    log_mb_per_s: float = Field(ge=SMALLEST_RATE)


class HostCosts(_Table):
    """One machine that runs everything."""

    blocking_call_us: float = Field(ge=0)
    """CPU of a client thread per round trip: write, wait, be woken, read."""
    other_us: float = Field(ge=0)
    """Per message, of whatever else the machine runs: clients of the test, kernel, collector."""


class WebCosts(_Table):
    """The web head of a feed."""

    request_us: float = Field(ge=0)
    """CPU per request, whatever the store does: HTTP, authentication, JSON."""
    call_us: float = Field(ge=0)
    """CPU per round trip to the store: what is sent is built, the reply is parsed."""
    pause_share: float = Field(ge=0, le=1)
    """Of the round trips, how many are held up beside the network: another greenlet that does not yield, a delayed
    acknowledgement of TCP."""
    pause_us: float = Field(ge=0)
    """For how long, on average; exponential."""


class Costs(_Table):
    """All that a system costs. ``sources`` says for every number where it comes from."""

    redis: RedisCosts
    broker: BrokerCosts
    threads: ThreadCosts
    kafka: KafkaCosts
    network: NetworkCosts
    postgres: PostgresCosts | None = None
    host: HostCosts | None = None
    web: WebCosts | None = None
    sources: dict[str, str]


def load_costs(written: str) -> Costs:
    """The cost model that ``written`` names: one in this folder or a path, then, separated by blanks, what is changed
    in it (``cluster redis.speed=0.7 broker.match_us=12``). Raises InputError."""
    name, *changes = written.split() or [""]
    path = FOLDER / f"{name}.toml"
    if not path.is_file():
        path = Path(name)
    if not path.is_file():
        raise InputError(f"costs {name}: no such cost model; it is one of {', '.join(known_costs())}, or a .toml file")
    try:
        return costs_of(changed(_read(path), changes))
    except ValidationError as error:
        raise InputError(f"{path.name}: {first_error(error)}") from None


def known_costs() -> list[str]:
    """The names of the cost models in this folder; ``redis`` is a part of others."""
    return sorted(file.stem for file in FOLDER.glob("*.toml") if file.stem != "redis")


def _read(path: Path) -> dict[str, Any]:
    """The content of a file, upon that of the one in this folder which its key ``base`` names."""
    content = read_toml(path)
    base = content.pop("base", None)
    if base is None:
        return content
    if not (FOLDER / f"{base}.toml").is_file():
        raise InputError(f"{path.name}: base: there is no cost model {base}")
    whole = _read(FOLDER / f"{base}.toml")
    for table, values in content.items():
        whole[table] = {**whole.get(table, {}), **values} if isinstance(values, dict) else values
    return whole


def changed(content: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """``content`` of a file with other numbers in some places, each written ``table.key=value``. Raises InputError."""
    for change in changes:
        place, equals, value = change.partition("=")
        *tables, key = place.split(".")
        within = content
        for table in tables:
            found = within.get(table)
            within = found if isinstance(found, dict) else {}
        if not equals or key not in within or "sources" in tables:
            raise InputError(f"costs: {change}: no such number; write table.key=value, redis.speed=0.7")
        within[key] = value
    return content


def costs_of(content: dict[str, Any]) -> Costs:
    """Validate, and insist on a source for every number. Raises ValidationError, InputError."""
    costs = Costs.model_validate(content)
    for table, values in costs.model_dump(exclude={"sources"}, exclude_none=True).items():
        for name in values:
            if f"{table}.{name}" not in costs.sources:
                raise InputError(f'sources: nothing says where {table}.{name} comes from; add "{table}.{name}" = "..."')
    return costs


def first_error(error: ValidationError) -> str:
    """The first complaint of pydantic as one line: place, what is wrong."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "settings"
    if first["type"] == "extra_forbidden":
        return f"{place}: no such key; remove it or correct its name"
    given = f" (given: {shortened(first['input'])})" if not isinstance(first["input"], dict) else ""
    return f"{place}: {first['msg'].removeprefix('Value error, ')}{given}"


CALLS_FILE = Path(__file__).with_name("redis.toml")


@functools.cache
def costs_of_calls() -> dict[str, Any]:
    """Microseconds of each command within a script, as they stand in the file."""
    return read_toml(CALLS_FILE)


def elements_in(effect: Effect) -> int:
    """Elements that a call handed over or got back beyond one: arguments after the key, items of an array reply."""
    returned = len(effect.reply) if isinstance(effect.reply, list) else 0
    return max(0, len(effect.argv) - 3, returned - 1)


def estimate_us(calls: Iterable[Effect], instructions: int = 0) -> float:
    """Microseconds for which a script with these calls blocks its node: an estimate, not a measurement.
    ``instructions``: of Lua, beside the calls."""
    model = costs_of_calls()
    script, default = model["script"], model["default"]
    total: float = script["start_us"] + instructions * script["instruction_us"]
    for effect in calls:
        cost = model["commands"].get(effect.argv[0].decode("latin-1").lower(), default)
        per_element = cost.get("element_us", default["element_us"])
        total += script["call_us"] + cost["base_us"] + per_element * elements_in(effect)
    return total
