"""Histories judged on Spark: the verdicts and witnesses of one process, keyed or not, whatever is broken in them."""

import random

import pytest

from orderlab.model.checkers.judge import Question, judge
from orderlab.model.errors import InputError
from orderlab.model.history.disk import HistoryFile, write_history
from orderlab.model.history.events import EventBatch, EventKind, History, Names, NameTable
from orderlab.model.verdict import Outcome
from orderlab.spark_sweeps.histories import KeyedHistoryWriter, check_folder, history_parts
from tests.model.checkers.test_delivery_second_algorithm import BOUND_US, generated

pytestmark = pytest.mark.xdist_group("spark")
QUESTION = Question(drain_bound_us=BOUND_US)
_MESSAGES = [{"publisher": 0, "topic": 0, "qos": 1, "sequence": number} for number in (1, 2)]
PUBLISHED_AGAIN = (  # the session that begins with row 2 gets what was published again, in its order of arrival
    {"kind": EventKind.SUBSCRIBE, "subscriber": 2, "topic": 0},
    {"kind": EventKind.PUBLISH, **_MESSAGES[0]},
    {"kind": EventKind.CLEAR, "subscriber": 2},
    {"kind": EventKind.SUBSCRIBE, "subscriber": 2, "topic": 0},
    {"kind": EventKind.PUBLISH, **_MESSAGES[1]},
    {"kind": EventKind.PUBLISH, "dup": 1, **_MESSAGES[0]},
    {"kind": EventKind.DELIVER, "subscriber": 2, **_MESSAGES[1]},
    {"kind": EventKind.DELIVER, "subscriber": 2, **_MESSAGES[0]},
)


def many(count, seed):
    """One history of many small ones side by side: anomalies of every kind, over many clients and topics."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        one = (
            [{**row, "time_us": time_us} for time_us, row in enumerate(PUBLISHED_AGAIN)]
            if number == count - 1
            else generated(random.Random(rng.random()), True)
        )
        for row in one:
            if row["kind"] == EventKind.CUT:
                continue  # one would leave all histories undecided
            values = {name: value for name, value in row.items() if value >= 0}
            if row["kind"] == EventKind.FAULT:
                values["operation"] = 0
            for name in ("publisher", "subscriber", "topic"):
                if name in values:
                    values[name] += number * 5
            rows.append(values)
    rows.sort(key=lambda row: row["time_us"])
    for event_id, row in enumerate(rows):
        row["event_id"] = event_id
    columns = {name: [row.get(name, -1) for row in rows] for name in EventBatch.__dataclass_fields__}
    names = Names(
        clients=NameTable(f"c{code}" for code in range(5 * count)),
        topics=NameTable(f"t/{code}" for code in range(5 * count)),
        operations=NameTable(["redis-stall"]),
    )
    return History((EventBatch.of(**columns),), names)


def told(verdicts):
    """Verdicts as JSON, times aside."""
    found = []
    for verdict in verdicts:
        plain = verdict.to_json()
        plain["work"].pop("seconds", None)
        found.append(plain)
    return found


@pytest.fixture(scope="module")
def history():
    return many(13, seed=4)


@pytest.fixture(scope="module")
def expected(history, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "history.parquet"
    write_history(history, path)
    verdicts, rows = judge(HistoryFile(path), QUESTION)
    broken = {verdict.law for verdict in verdicts if verdict.outcome is Outcome.VIOLATED}
    assert {"fifo", "at-least-once", "exactly-once", "no-phantom", "retransmission"} <= broken
    assert any("order of arrival" in note for verdict in verdicts for note in verdict.not_covered)
    return told(verdicts), rows


def test_parts_without_a_key_are_shuffled_once_and_judged_alike(history, expected, spark, tmp_path):
    for number, part in enumerate(history.split([100, 250]).batches):
        write_history(History((part,), history.names), tmp_path / f"{number}.parquet")
    verdicts, rows = check_folder(tmp_path, QUESTION, spark, tmp_path / "log")
    assert (told(verdicts), rows) == expected


def test_parts_that_are_keyed_are_judged_alike(history, expected, spark, tmp_path):
    with KeyedHistoryWriter(tmp_path / "keyed", history.names, 3) as writer:
        for batch in history.split([100, 250]):
            writer.write(batch)
    parts = history_parts(tmp_path / "keyed")
    assert (parts.keyed, parts.subscribers_whole, parts.rows) == (True, False, expected[1])
    verdicts, rows = check_folder(tmp_path / "keyed", QUESTION, spark, tmp_path / "log")
    assert (told(verdicts), rows) == expected


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"parts": 3', '{"parts": 1, "parts": 1}', "[" * 100_000, "\udc80"]
)
def test_a_damaged_manifest_of_a_history_is_named(text, history, tmp_path):
    write_history(history, tmp_path / "0.parquet")
    (tmp_path / "history.json").write_text(text, errors="surrogateescape")
    with pytest.raises(InputError, match=r"history.json: .*; (write the history again|keep one)") as caught:
        history_parts(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_simulation_with_a_subscriber_for_each_publisher_needs_no_shuffle(spark, tmp_path):
    from orderlab.sim.systems.catalogue import entry, settings_of

    given = {"publishers": 40, "rate": 20, "duration_s": 0.1, "warm_up_s": 0.05, "offline_share": 0.5}
    batches = []
    system = entry("tbmq-p2p").assemble(settings_of("tbmq-p2p", given), 3, [batches.append])
    system.run()
    whole = History(tuple(batches), system.names())
    write_history(whole, tmp_path / "h.parquet")
    with KeyedHistoryWriter(tmp_path / "keyed", whole.names, 4) as writer:
        for batch in batches:
            writer.write(batch)
    assert history_parts(tmp_path / "keyed").subscribers_whole
    alone, rows = judge(HistoryFile(tmp_path / "h.parquet"), Question())
    verdicts, counted = check_folder(tmp_path / "keyed", Question(), spark, tmp_path / "log")
    assert (told(verdicts), counted) == (told(alone), rows)


def test_a_phantom_alone_in_its_part_is_seen(spark, tmp_path):
    columns = {
        "event_id": range(4),
        "time_us": range(4),
        "kind": [0, 1, 2, 2],
        "publisher": [0, 0, 0, 3],
        "topic": [0, 0, 0, 1],
        "qos": [1] * 4,
        "subscriber": [-1, -1, 2, 4],
        "sequence": [1, 1, 1, 9],
    }
    names = Names(clients=NameTable("abcde"), topics=NameTable("xy"))
    with KeyedHistoryWriter(tmp_path / "keyed", names, 64) as writer:
        writer.write(EventBatch.of(**{name: list(values) for name, values in columns.items()}))
    verdicts, _ = check_folder(tmp_path / "keyed", Question(laws=("no-phantom",)), spark, tmp_path / "log")
    assert verdicts[0].outcome is Outcome.VIOLATED
    assert (verdicts[0].witness.publisher, verdicts[0].work["antecedents"]) == ("d", 2)


def test_what_cannot_be_judged_is_said_in_one_line(spark, tmp_path):
    with pytest.raises(InputError, match="no Parquet files"):
        check_folder(tmp_path, Question(), spark, tmp_path / "log")
    with pytest.raises(InputError, match="one process judges store operations"):
        check_folder(tmp_path, Question(laws=("linearizability",)), spark, tmp_path / "log")
    calls = EventBatch.of(event_id=[0], time_us=[0], kind=[15], process=[1], operation=[0])
    write_history(History((calls,), Names(operations=NameTable(["read"]))), tmp_path / "calls.parquet")
    with pytest.raises(InputError, match="store operations, which one process judges"):
        check_folder(tmp_path, Question(), spark, tmp_path / "log")
    (tmp_path / "calls.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="truncated or not Parquet"):
        check_folder(tmp_path, Question(), spark, tmp_path / "log")
