"""The same three laws in the query engines: first deliveries in order, no acknowledged message missing, QoS 2 once.

Both get what helps them: plain integer codes, the lane packed into one number by the query itself, one pass of
grouping from which all three answers come. They return the counts of violations.
"""

from __future__ import annotations

import os
from typing import Any

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

    def check() -> Counts:
        fifo, lost, twice = connection.execute(DUCKDB).fetchall()[0]
        return int(fifo), int(lost), int(twice)

    return check


def polars_checker(path: str) -> Any:
    """A function that answers from the Arrow file at PATH, read into memory before, with one thread."""
    os.environ["POLARS_MAX_THREADS"] = "1"
    import polars as pl

    events = pl.read_ipc(path).rechunk()
    lane = (pl.col("publisher").cast(pl.Int64) * 2**34 + pl.col("subscriber").cast(pl.Int64) * 4 + pl.col("qos")).alias(
        "lane"
    )
    message = (pl.col("topic").cast(pl.Int64) * 2**32 + pl.col("sequence")).alias("message")
    delivered = pl.col("kind") == 2

    def check() -> Counts:
        frame = events.lazy()
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
        acknowledged = (
            frame.filter(pl.col("kind") == 1).select("publisher", "topic", "qos", "sequence").unique().collect()
        )
        ordered = arrivals.lazy().filter(pl.col("first_event").is_not_null()).sort("first_event")
        highest = pl.col("sequence").cum_max().over("lane", "topic")
        fifo = ordered.filter(highest > pl.col("sequence")).select(pl.len()).collect().item()
        sizes = acknowledged.group_by("publisher", "topic", "qos").len("messages")
        lanes = arrivals.select("lane", "publisher", "topic", "qos").unique()
        owed = lanes.join(sizes, on=["publisher", "topic", "qos"])["messages"].sum()
        came = arrivals.join(acknowledged, on=["publisher", "topic", "qos", "sequence"], how="semi").height
        twice = arrivals.filter((pl.col("qos") == 2) & (pl.col("undupped") > 1))["undupped"]
        return int(fifo), int(owed) - came, int(twice.sum()) - len(twice)

    return check
