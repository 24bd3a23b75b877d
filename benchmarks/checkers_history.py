"""A made history for the checkers' benchmarks, and the query engines that judge it: fan-out, with a known handful of
violations.

Each publisher has one topic and `FAN_OUT` subscribers; its messages are acknowledged, and delivered to each subscriber
after that lane's own delay, so that deliveries of many lanes interleave. 1 % of the QoS 1 deliveries come again with
DUP, 0.1 % of all are trimmed instead. Planted per block: a swap of two first deliveries, a loss, and a QoS 2 message
that comes again without DUP.

The peers judge first deliveries in order, no acknowledged message missing, QoS 2 once. Both get what helps them: plain
integer codes, the lane packed into one number by the query itself, one pass of grouping from which all three answers
come. They return the counts of violations.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from orderlab.model.history.events import KIND_LABELS, EventKind

FAN_OUT = 10
FIFOS = 2000
PLANTED = {"fifo": 1, "at-least-once": 1, "exactly-once": 1}
"""Violations per block."""


def block(number: int, publishes: int, planted: Collection[str] = tuple(PLANTED)) -> dict[str, Any]:
    """The rows of the `number`-th run of publishes as columns; blocks continue each other's sequences and times.
    ``planted``: the laws that it breaks, once each."""
    rng = np.random.default_rng(number)
    per_fifo = publishes // FIFOS
    publishes = per_fifo * FIFOS  # so many, of any number that is asked for
    fifo = rng.permutation(np.repeat(np.arange(FIFOS), per_fifo))
    order = np.argsort(fifo, kind="stable")
    sequence = np.empty(publishes, np.int64)
    sequence[order] = np.tile(np.arange(per_fifo), FIFOS) + number * per_fifo + 1
    moment = np.arange(publishes) * 16.0  # a publish every 16 time units leaves room for what happens in between
    kinds = [np.full(publishes, EventKind.PUBLISH), np.full(publishes, EventKind.PUBLISH_ACKNOWLEDGED)]
    message = [np.arange(publishes)] * 2
    subscriber = [np.full(publishes, -1)] * 2
    times = [moment, moment + 40.5]
    dup = [np.full(publishes, -1)] * 2
    for lane in range(FAN_OUT):
        delay = 50.25 + 17 * lane + rng.random(FIFOS)[fifo] * 1000
        kind = np.where(rng.random(publishes) < 0.001, EventKind.TRIM, EventKind.DELIVER)
        again = np.flatnonzero((rng.random(publishes) < 0.01) & (fifo % 2 == 0) & (kind == EventKind.DELIVER))
        kind[:8] = EventKind.DELIVER  # what is planted must be there
        for rows, when, which, flag in (
            (np.arange(publishes), moment + delay, kind, 0),
            (again, moment[again] + delay[again] + 5000, np.full(len(again), EventKind.DELIVER), 1),
        ):
            kinds.append(which)
            message.append(rows)
            subscriber.append(np.full(len(rows), FIFOS) + fifo[rows] * FAN_OUT + lane)
            times.append(when)
            dup.append(np.full(len(rows), flag))
    at, what, who, which, flags = (np.concatenate(parts) for parts in (times, kinds, subscriber, message, dup))
    at, what, who, which, flags = _plant(planted, fifo, publishes, at, what, who, which, flags)
    order = np.argsort(at, kind="stable")
    which = which[order]
    rows = len(order)
    return {
        "event_id": np.arange(rows) + number * publishes * (FAN_OUT + 3),
        "time_us": (at[order] + number * (publishes * 16.0 + 10_000)).astype(np.int64),
        "kind": what[order].astype(np.int8),
        "publisher": fifo[which].astype(np.int32),
        "topic": fifo[which].astype(np.int32),
        "qos": np.where(fifo[which] % 2 == 0, 1, 2).astype(np.int8),
        "subscriber": who[order].astype(np.int32),
        "sequence": sequence[which],
        "dup": flags[order].astype(np.int8),
    }


def _plant(
    planted: Collection[str], fifo: Any, publishes: int, at: Any, what: Any, who: Any, which: Any, flags: Any
) -> Any:
    """A swap and a loss at QoS 1, a repeat at QoS 2, each on the first lane of a logical FIFO."""
    lane_rows = slice(2 * publishes, 3 * publishes)  # the deliveries of lane 0, message by message
    quiet = what[lane_rows] == EventKind.DELIVER
    ones = [rows for rows in _messages_of(fifo, (0, 2)) if quiet[rows[:3]].all()]
    swap, lost = ones[0][:2], ones[-1][2]
    first, second = (2 * publishes + row for row in swap)
    if "fifo" in planted:
        at[first], at[second] = at[second], at[first]
    twice = np.array([2 * publishes + _messages_of(fifo, (1,))[0][0]][: "exactly-once" in planted], np.int64)
    keep = (np.arange(len(at)) != 2 * publishes + lost) | ("at-least-once" not in planted)
    extra = [np.append(column[keep], column[twice]) for column in (what, who, which, flags)]
    return np.append(at[keep], at[twice] + 20_000), *extra


def _messages_of(fifo: Any, chosen: tuple[int, ...]) -> list[Any]:
    return [np.flatnonzero(fifo == number) for number in chosen]


def arrow(columns: dict[str, Any], labels: bool) -> pa.RecordBatch:
    """The columns as Arrow: with `kind` as the history's dictionary, or as its plain code for a query engine."""
    arrays = {}
    for name, column in columns.items():
        if name == "kind" and labels:
            arrays[name] = pa.DictionaryArray.from_arrays(pa.array(column), pa.array(KIND_LABELS))
        elif name == "dup":
            arrays[name] = pa.array(column == 1) if labels else pa.array(column)
        else:
            arrays[name] = pa.array(column, mask=column < 0) if name == "subscriber" else pa.array(column)
    return pa.RecordBatch.from_pydict(arrays)


Counts = tuple[int, int, int]

DUCKDB = """
with arrivals as (
    select (publisher::bigint << 34) | (subscriber::bigint << 2) | qos as lane,
        (topic::bigint << 32) | sequence as message, any_value(topic) as topic, any_value(sequence) as sequence,
        min(event_id) filter (kind = 2) as first_event, count(*) filter (kind = 2 and dup = 0) as undupped,
        any_value(publisher) as publisher, any_value(qos) as qos
    from events where kind in (2, 6, 7) group by lane, message),
acknowledged as (select distinct publisher, topic, qos, sequence from events where kind = 1),
ordered as (
    select sequence, max(sequence) over (
        partition by lane, topic order by first_event rows between unbounded preceding and 1 preceding) as highest
    from arrivals where first_event is not null),
owed as (
    select sum(messages) as owed from (select distinct lane, publisher, topic, qos from arrivals)
    join (select publisher, topic, qos, count(*) as messages from acknowledged group by all)
        using (publisher, topic, qos)),
came as (select count(*) as came from arrivals semi join acknowledged using (publisher, topic, qos, sequence))
select (select count(*) from ordered where highest > sequence),
    (select owed from owed) - (select came from came),
    (select coalesce(sum(undupped - 1), 0) from arrivals where qos = 2 and undupped > 1)
"""


def duckdb_checker(path: str) -> Any:
    """A function that answers from the Arrow file at PATH, read into memory before, with one thread."""
    import duckdb
    import pyarrow as pa

    events = pa.ipc.open_file(pa.memory_map(path)).read_all()
    connection = duckdb.connect(config={"threads": 1})
    connection.register("events_arrow", events)
    connection.execute("create table events as select * from events_arrow")
    return lambda: _duckdb_counts(connection)


def _duckdb_counts(connection: Any) -> Counts:
    fifo, lost, twice = connection.execute(DUCKDB).fetchall()[0]
    return int(fifo), int(lost), int(twice)


def polars_checker(path: str) -> Any:
    """A function that answers from the Arrow file at PATH, read into memory before, with one thread."""
    os.environ["POLARS_MAX_THREADS"] = "1"
    import polars as pl

    events = pl.read_ipc(path).rechunk()
    return lambda: _polars_counts(events.lazy())


def _polars_counts(frame: Any) -> Counts:
    import polars as pl

    lane = (pl.col("publisher").cast(pl.Int64) * 2**34 + pl.col("subscriber").cast(pl.Int64) * 4 + pl.col("qos")).alias(
        "lane"
    )
    message = (pl.col("topic").cast(pl.Int64) * 2**32 + pl.col("sequence")).alias("message")
    delivered = pl.col("kind") == 2
    arrivals = (
        frame.filter(pl.col("kind").is_in([2, 6, 7]))
        .group_by(lane, message)
        .agg(
            pl.col("topic", "sequence").first(),
            pl.col("event_id").filter(delivered).min().alias("first_event"),
            (delivered & (pl.col("dup") == 0)).sum().alias("undupped"),
            pl.col("publisher").first(),
            pl.col("qos").first(),
        )
        .collect()
    )
    acknowledged = frame.filter(pl.col("kind") == 1).select("publisher", "topic", "qos", "sequence").unique().collect()
    ordered = arrivals.lazy().filter(pl.col("first_event").is_not_null()).sort("first_event")
    highest = pl.col("sequence").cum_max().over("lane", "topic")
    fifo = ordered.filter(highest > pl.col("sequence")).select(pl.len()).collect().item()
    sizes = acknowledged.group_by("publisher", "topic", "qos").len("messages")
    lanes = arrivals.select("lane", "publisher", "topic", "qos").unique()
    owed = lanes.join(sizes, on=["publisher", "topic", "qos"])["messages"].sum()
    came = arrivals.join(acknowledged, on=["publisher", "topic", "qos", "sequence"], how="semi").height
    twice = arrivals.filter((pl.col("qos") == 2) & (pl.col("undupped") > 1))["undupped"]
    return int(fifo), int(owed) - came, int(twice.sum()) - len(twice)


def main(engine: str, path: str) -> None:
    """A whole process of a peer: the counts of a Parquet file, with one thread."""
    if engine == "duckdb":
        import duckdb

        connection = duckdb.connect(config={"threads": 1})
        connection.execute(f"create view events as select * from '{path}'")
        print(json.dumps(_duckdb_counts(connection)))
    else:
        os.environ["POLARS_MAX_THREADS"] = "1"
        import polars as pl

        print(json.dumps(_polars_counts(pl.scan_parquet(path))))


if __name__ == "__main__":
    main(*sys.argv[1:])
