"""Histories survive the way to disk and back; what is malformed is one line with its row; writes are whole or
nothing."""

import json
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orderlab.model.errors import InputError
from orderlab.model.files import write_whole
from orderlab.model.history import decoding, disk
from orderlab.model.history.disk import HistoryFile, HistoryWriter, read_history, to_arrow, to_rows, write_history
from orderlab.model.history.events import COLUMNS, SCHEMA, EventBatch, EventKind, History, Names, NameTable
from orderlab.model.history.footer import row_groups_of
from orderlab.model.history.notation import parse_history

LINE = 'S P1%30 A1 P2q2d1 D1#7! D2q2#8~=3 T1>b C - + H F X 0(write.x:"a" 0):1 1(read.x 1?'


def rows_of(history):
    return [row for batch in history for row in to_rows(batch, history.names)]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "csv"])
def test_a_history_is_read_as_it_was_written(tmp_path, suffix):
    history = parse_history(LINE)
    path = tmp_path / f"history.{suffix}"
    write_history(history.split([3, 4]), path)
    assert rows_of(read_history(path)) == rows_of(history)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_integers_may_stand_for_names(tmp_path):
    path = tmp_path / "numbers.parquet"
    batch = EventBatch.of(
        event_id=[1, 2], time_us=[1, 2], kind=[0, 2], publisher=[5, 5], topic=[6, 6], qos=[1, 1], sequence=[1, 1],
        subscriber=[-1, 9],
    )  # fmt: skip
    write_history(History((batch,), Names()), path)
    assert pq.read_schema(path).field("publisher").type == pa.int32()
    read = read_history(path).joined()
    for column in COLUMNS:
        assert np.array_equal(getattr(read, column), getattr(batch, column))


def test_the_schema_on_disk_is_the_documented_one(tmp_path):
    history = parse_history(LINE)
    assert to_arrow(history.joined(), history.names).schema == SCHEMA


def test_a_large_name_table_is_cut_down_to_what_a_batch_uses(tmp_path):
    names = Names()
    rng = random.Random(1)
    for number in range(5000):
        names.clients.code(f"client-{number}")
    names.topics.code("t")
    codes = [rng.randrange(5000) for _ in range(50)]
    batch = EventBatch.of(event_id=range(50), time_us=range(50), kind=[11] * 50, subscriber=codes)
    history = History((batch,), names)
    write_history(history, tmp_path / "h.parquet")
    assert rows_of(read_history(tmp_path / "h.parquet")) == rows_of(history)


def test_a_history_file_can_be_read_twice_with_the_same_codes(tmp_path):
    write_history(parse_history(LINE), tmp_path / "h.jsonl")
    file = HistoryFile(tmp_path / "h.jsonl")
    first, second = ([batch.publisher.tolist() for batch in file] for _ in range(2))
    assert first == second


def test_a_column_is_left_unread_only_where_no_row_group_fills_it(tmp_path):
    base = {"event_id": [0, 1], "time_us": [0, 0], "kind": ["heal", "heal"]}
    schema = pa.schema([("event_id", "int64"), ("time_us", "int64"), ("kind", "string"), ("session", "int64"),
                        ("node", "int32")])  # fmt: skip
    absent, late = (
        {**base, "session": [None] * 2, "node": [None] * 2},
        {**base, "session": [None, 7], "node": [None] * 2},
    )
    late |= {"event_id": [2, 3]}
    for write_statistics in (True, False):
        with pq.ParquetWriter(tmp_path / "h.parquet", schema, write_statistics=write_statistics) as writer:
            for columns in (absent, late):
                writer.write_table(pa.table(columns, schema))
        whole = read_history(tmp_path / "h.parquet").joined()
        assert (whole.session.tolist(), whole.node.tolist()) == ([-1, -1, -1, 7], [-1] * 4)
    always = pa.table({**base, "kind": pa.array([None, None], pa.string())})
    pq.write_table(always, tmp_path / "h.parquet")
    with pytest.raises(InputError, match='row 1: "kind" is null'):
        read_history(tmp_path / "h.parquet")


def test_numbers_for_names_are_written_though_the_first_batch_has_none(tmp_path):
    """As a simulation does whose first rows are connects: the type of a column is that of the first batch."""
    path, names = tmp_path / "h.parquet", Names(clients=NameTable(numeric=True), topics=NameTable(numeric=True))
    with HistoryWriter(path, names) as writer:
        for row in (
            {"event_id": [0], "time_us": [0], "kind": [EventKind.CONNECT], "subscriber": [7]},
            {
                "event_id": [1],
                "time_us": [1],
                "kind": [EventKind.PUBLISH],
                "publisher": [5],
                "topic": [3],
                "qos": [2],
                "sequence": [0],
            },
        ):
            writer.write(EventBatch.of(**{name: np.array(value) for name, value in row.items()}))
    assert read_history(path).joined().publisher.tolist() == [-1, 5]


def test_a_failed_write_leaves_what_was_there(tmp_path):
    path = tmp_path / "h.parquet"
    path.write_bytes(b"before")
    history = parse_history(LINE)

    def write_half():
        with HistoryWriter(path, history.names) as writer:
            writer.write(history.joined())
            raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        write_half()
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("rows", [1, 20_000])  # the disk is full at the end, or before
def test_a_full_disk_is_told_with_the_file_and_leaves_nothing(suffix, rows, tmp_path, monkeypatch):
    path = tmp_path / f"h.{suffix}"
    made = tempfile.NamedTemporaryFile

    def on_full_disk(*given, **named):
        file = made(*given, **named)
        os.dup2(os.open("/dev/full", os.O_WRONLY), file.fileno())
        return file

    def write():
        with HistoryWriter(path, Names()) as writer:
            numbers = np.arange(rows)
            writer.write(
                EventBatch.of(
                    event_id=numbers, time_us=numbers**2 % 7919 + numbers * 7919, kind=np.full(rows, EventKind.CUT)
                )
            )

    monkeypatch.setattr("orderlab.model.files.tempfile.NamedTemporaryFile", on_full_disk)
    with pytest.raises(InputError, match=f"{path}: cannot be written .No space left on device.; free some space"):
        write()
    assert not list(tmp_path.iterdir())


def test_a_folder_in_the_place_of_a_history_is_told_before_anything_is_written(tmp_path):
    (tmp_path / "h.parquet").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        HistoryWriter(tmp_path / "h.parquet", Names())
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_file_that_is_not_whole_leaves_nothing_beside_it(error, tmp_path, monkeypatch):
    def interrupted(descriptor):
        raise error

    path = tmp_path / "trace.json"
    path.write_bytes(b"before")
    monkeypatch.setattr("orderlab.model.files.os.fsync", interrupted)
    with pytest.raises((KeyboardInterrupt, InputError)):
        write_whole(path, b"after")
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"before"]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize(
    ("line", "row", "low", "high"),
    [
        ("P1 P3 P2", 3, 2, 3),
        ("P5 A5 P5:u P1.b P4", 5, 4, 5),
        ("P5q2 P5 P0q2", 3, 0, 5),
        ("P2 P1! P2! P3 D3 D1 P1", 7, 1, 3),
    ],
)
def test_a_publish_whose_sequence_goes_down_is_refused(tmp_path, line, row, low, high, suffix):
    path = tmp_path / f"h.{suffix}"
    write_history(parse_history(line), path)
    with pytest.raises(InputError) as caught:
        read_history(path)
    assert str(caught.value) == (
        f"{path}: row {row}: a publish event has sequence {low} after {high} of the same publisher, topic and qos;"
        " number messages upwards in publish order, or set dup where one is sent again"
    )


def test_what_is_sent_again_and_what_is_another_fifo_may_have_any_sequence(tmp_path):
    write_history(parse_history("P3 P1! P3 P3! P9:u P1.b P1q2 P1q0 P7 D9 D1 A7 A3 T2"), tmp_path / "h.jsonl")
    assert len(read_history(tmp_path / "h.jsonl")) == 14


def test_generated_publishes_are_refused_exactly_where_one_goes_down(tmp_path):
    refused = 0
    for seed in range(300):
        rng, highest, first = random.Random(seed), {}, None
        words = []
        for row in range(1, rng.randrange(2, 30)):
            fifo, number, dup = (
                (rng.choice("pq"), rng.choice("tu"), rng.randrange(3)),
                rng.randrange(row),
                rng.random() < 0.5,
            )
            words.append(f"P{number}.{fifo[0]}q{fifo[2]}{'!' if dup else ''}:{fifo[1]}")
            if first is None and not dup and number < highest.get(fifo, -1):
                first = row
            highest[fifo] = max(highest.get(fifo, -1), number)
        path = tmp_path / "h.jsonl"
        write_history(parse_history(" ".join(words)), path)
        if first is None:
            assert len(read_history(path)) == len(words)
            continue
        refused += 1
        with pytest.raises(InputError, match=f": row {first}: a publish event has sequence"):
            read_history(path)
    assert 100 < refused < 280


@pytest.mark.parametrize("after", [0, 1])
def test_a_row_after_the_end_event_is_refused(tmp_path, after: int) -> None:
    """Nothing comes after the last row; without a row after it the same history is read."""
    path = tmp_path / "history.jsonl"
    rows = [GOOD, {"event_id": 2, "time_us": 6, "kind": "end"}, {**GOOD, "event_id": 3, "time_us": 6}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[: 2 + after]))
    if after:
        with pytest.raises(InputError, match="row 3: it comes after the end event of row 2"):
            read_history(path)
    else:
        read_history(path)


GOOD = {"event_id": 1, "time_us": 5, "kind": "deliver", "publisher": "p", "topic": "t", "qos": 1, "sequence": 1}
GOOD |= {"subscriber": "s"}
MALFORMED = [
    ({"subscriber": None}, 'row 2: a deliver event needs "subscriber" and has none'),
    ({"kind": "delivery"}, 'row 2: unknown kind "delivery"; did you mean "deliver"?'),
    ({"event_id": 1}, "row 2: duplicate event_id 1, already the id of row 1"),
    ({"event_id": 0}, "row 2: event_id 0 after 1"),
    ({"time_us": 4}, "row 2: time_us goes back from 5 to 4"),
    ({"qos": 3}, "row 2: qos is 3, must be in 0..2"),
    ({"packet_id": 0}, "row 2: packet_id is 0, must be in 1..65535"),
    ({"packet_id": 65536}, "row 2: packet_id is 65536, must be in 1..65535"),
    ({"sequence": -5}, "row 2: sequence is -5"),
    ({"time_us": None}, 'row 2: "time_us" is'),
    ({"expiry_interval_us": -1}, "row 2: expiry_interval_us is -1, must be in 0..9223372036854775807"),
    ({"packet_id": -1}, "row 2: packet_id is -1, must be in 1..65535"),
    ({"time_us": -1}, "row 2: time_us"),
    ({"topic": "a/#"}, "row 2: topic 'a/#': a topic name has no wildcard (MQTT-3.3.2-2)"),
    ({"topic": "a/+/b"}, "row 2: topic 'a/+/b': a topic name has no wildcard (MQTT-3.3.2-2)"),
    ({"topic": "a\0b"}, "row 2: topic 'a\\x00b': U+0000 is not allowed (MQTT-4.7.3-2)"),
    ({"topic": "t" * 65_536}, "row 2: topic of 65536 bytes: at most 65535 (MQTT-4.7.3-3)"),
    *(
        ({"kind": "subscribe", "topic": topic}, f"row 2: filter {topic!r}: ")
        for topic in (
            "a/#/b",
            "a#",
            "a+/b",
            "a/b+",
            "$share/g",
            "$share//t",
            "$share/g/",
            "$share/g+/t",
            "$share/g/a/#/b",
        )
    ),
    ({"subscriber": "a\0b"}, "row 2: client identifier 'a\\x00b': U+0000 is not allowed (MQTT-1.5.4-2); take it out"),
    ({"publisher": "\0"}, "row 2: client identifier '\\x00': U+0000 is not allowed"),
    ({"subscriber": "s" * 65_536}, "row 2: client identifier of 65536 bytes: at most 65535 (1.5.4); shorten it"),
    ({"kind": "unsubscribe", "topic": "#/a"}, "row 2: filter '#/a': "),
]


@pytest.mark.parametrize(("change", "message"), MALFORMED)
@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_a_malformed_row_is_one_line_with_its_number(tmp_path, change, message, suffix):
    both = {**GOOD, "packet_id": 3, "expiry_interval_us": 7}
    rows = [both, {**both, "event_id": 2, "packet_id": 4, **change}]
    path = write_rows(tmp_path / f"h.{suffix}", rows)
    with pytest.raises(InputError) as error:
        read_history(path)
    assert message in str(error.value)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def write_rows(path, rows):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        cells = [",".join("" if cell is None else str(cell) for cell in row.values()) for row in rows]
        path.write_text("\n".join([",".join(rows[0]), *cells]) + "\n")
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


TEXTS = [
    ("h.csv", "", "the file is empty"),
    ("h.csv", "event_id,time_us,kind\n", "no events"),
    ("h.jsonl", "\n\n", "no events"),
    ("h.csv", "event_id,kind\n1,heal\n", 'missing column "time_us"'),
    ("h.csv", "event_id,time_us,kind,publsher\n1,2,heal,\n", 'unknown column "publsher"; did you mean "publisher"?'),
    ("h.csv", "event_id,time_us,kind,kind\n1,2,heal,heal\n", 'column "kind" appears twice'),
    ("h.csv", "event_id,time_us,kind\n1,2,heal\n3,heal\n", "row 2 (line 3): 2 cells under 3 columns"),
    ("h.csv", "event_id,time_us,kind\n1,2,deliver\n", 'missing column "publisher", which row 1 (deliver) needs'),
    ("h.csv", "event_id,time_us,kind\n1,late,heal\n", "row 1: time_us must be an integer, not 'late'"),
    ("h.csv", "event_id,time_us,kind\n99999999999999999999,2,heal\n", "row 1: event_id is 99999999999999999999"),
    ("h.jsonl", '{"event_id": 1,', "row 1 (line 1): not JSON"),
    ("h.jsonl", '{"event_id": ' + "9" * 5000 + "}", "row 1 (line 1): not JSON (Exceeds the limit"),
    (
        "h.jsonl",
        '{"event_id": 1, "time_us": 2, "kind": "connect", "subscriber": "\\ud800"}',
        "row 1: subscriber is '\\ud800': half of",
    ),
    ("h.jsonl", "[1, 2]\n", "row 1 (line 1): one JSON object per line"),
    ("h.jsonl", '{"event_id": 1, "time_us": 2.5, "kind": "heal"}\n', "row 1: time_us must be an integer, not 2.5"),
    ("h.jsonl", '{"event_id": 1, "time_us": 2, "kind": 7}\n', "row 1: kind must be a string, not 7"),
    ("h.jsonl", '{"event_id": 1, "kind": "heal"}\n', 'row 1 (line 1): missing column "time_us"'),
    ("h.jsonl", '{"event_id": 1, "time_us": true, "kind": "heal"}\n', "row 1: time_us must be an integer, not True"),
    (
        "h.jsonl",
        '{"event_id":1,"time_us":1,"kind":"connect","subscriber":"s"}\n'
        '{"event_id":2,"time_us":1,"kind":"connect","subscriber":7}\n',
        "row 2: subscriber mixes names and integers",
    ),
    ("h.parquet", "PAR1 and no more", "truncated or not Parquet"),
    ("h.xyz", "hello", "not a history"),
]


@pytest.mark.parametrize(("name", "text", "message"), TEXTS)
def test_an_unusable_file_is_one_line(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_history(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_flipped_bit_of_a_parquet_file_changes_no_row(tmp_path):
    """Pages have checksums; a bit that nobody reads may change."""
    path, draw = tmp_path / "h.parquet", random.Random(0)
    write_history(parse_history("P1 P2 D1 D2 A1 A2"), path)
    whole, rows = path.read_bytes(), list(to_rows(read_history(path).joined(), read_history(path).names))
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        try:
            history = read_history(path)
        except InputError:
            refused += 1
        else:
            assert list(to_rows(history.joined(), history.names)) == rows
    assert refused > 100


def test_a_truncated_parquet_file_is_one_line_wherever_it_ends(tmp_path):
    write_history(parse_history(LINE), tmp_path / "whole.parquet")
    whole = (tmp_path / "whole.parquet").read_bytes()
    for length in range(1, len(whole) - 1, 97):
        path = tmp_path / "cut.parquet"
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"truncated|not a history"):
            read_history(path)


@pytest.mark.parametrize(
    ("text", "damaged", "message"),
    [
        (
            b"\x25\x02\x18\x03qos",
            b"\x25\x00\x18\x03qos",
            "unreadable after row 0 .* size mismatch",
        ),  # optional: required
        (b"topic", b"topi\xcb", "truncated or not Parquet .*utf-8"),
    ],
)
def test_a_damaged_footer_of_a_parquet_file_is_one_line(tmp_path, text, damaged, message):
    """To ask pyarrow for the statistics of the first one would end the process."""
    path = tmp_path / "h.parquet"
    history = parse_history("P1 D1")
    pq.write_table(pa.Table.from_batches([to_arrow(history.joined(), history.names)]), path)
    whole = path.read_bytes()
    assert text in whole
    path.write_bytes(whole.replace(text, damaged, 1))
    with pytest.raises(InputError, match=message):
        read_history(path)


@pytest.mark.parametrize("options", [{}, {"row_group_size": 2, "write_page_index": True}, {"write_statistics": False}])
def test_a_footer_is_read_as_pyarrow_reads_it(tmp_path, options):
    path = tmp_path / "h.parquet"
    history = parse_history(LINE)
    pq.write_table(pa.Table.from_batches([to_arrow(history.joined(), history.names)]), path, **options)
    metadata = pq.read_metadata(path)
    groups = row_groups_of(path, pq.ParquetFile(path).schema)
    assert len(groups) == metadata.num_row_groups
    for number, group in enumerate(groups):
        theirs = metadata.row_group(number)
        assert group.rows == theirs.num_rows
        for place, (column, chunk) in enumerate(group.chunks.items()):
            said = theirs.column(place)
            assert (column, chunk.values) == (said.path_in_schema, said.num_values)
            assert chunk.nulls == (said.statistics and said.statistics.null_count)
        greatest = theirs.column(1).statistics and theirs.column(1).statistics.max.to_bytes(8, "little")
        assert group.chunks["time_us"].greatest == greatest


@pytest.mark.parametrize(("column", "kind"), [("topic", 12), ("sequence", 4)])
@pytest.mark.parametrize("rows", [2, 4])
def test_a_column_of_another_type_in_a_row_group_is_named(tmp_path, column, kind, rows):
    """To ask pyarrow for that column would end the process."""
    path = tmp_path / "h.parquet"
    history = parse_history("P1 D1 P2 D2")
    pq.write_table(pa.Table.from_batches([to_arrow(history.joined(), history.names)]), path, row_group_size=rows)
    chunk = b"\x195\x00\x06\x10\x19\x18" + bytes([len(column)]) + column.encode()
    whole, typed = path.read_bytes(), bytes([0x15, kind]) + chunk
    assert typed in whole
    path.write_bytes(whole.replace(typed, b"\x15\x0e" + chunk))
    with pytest.raises(InputError, match=f'column "{column}" has one type in the schema and another in a row group'):
        read_history(path)


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"])
def test_texts_of_any_encoding_are_read(tmp_path, encoding):
    """pyarrow reads the first two not as a dictionary; DuckDB writes the second."""
    path, history = tmp_path / "h.parquet", parse_history("P1 D1 P2 D2")
    rows = list(to_rows(history.joined(), history.names))
    table = pa.table({name: [row.get(name) for row in rows] for name in COLUMNS if any(name in row for row in rows)})
    texts = [column.name for column in table.schema if pa.types.is_string(column.type)]
    pq.write_table(table, path, use_dictionary=False, column_encoding=dict.fromkeys(texts, encoding))
    read = read_history(path)
    assert list(to_rows(read.joined(), read.names)) == rows


def test_an_entry_that_no_dictionary_has_is_told_with_its_row(tmp_path):
    indices = pa.array([0, 1, 2], pa.int8())
    kinds = pa.DictionaryArray.from_arrays(indices, pa.array(["heal", "end"]), safe=False)
    rows = pa.record_batch({"event_id": [1, 2, 3], "time_us": [1, 2, 3], "kind": kinds})
    with pytest.raises(InputError, match="row 3: kind is entry 2 of a dictionary of 2"):
        decoding.ArrowDecoder("h", rows.schema).decode(rows)


def test_a_flipped_bit_in_a_footer_is_read_or_told_in_one_line(tmp_path):
    path = tmp_path / "h.parquet"
    table = {"event_id": [1, 2], "time_us": [1, 2], "kind": ["heal", "heal"], "node": [None, "b"]}
    pq.write_table(pa.table(table), path, store_schema=False)
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    said = []
    for bit in range(footer * 8, len(whole) * 8, 29):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            read_history(path)
            said.append("")
        except InputError as error:
            said.append(str(error))
    assert 20 < said.count("") < len(said) - 20
    assert not any("\n" in line for line in said)


def test_a_column_of_the_wrong_type_is_named(tmp_path):
    path = tmp_path / "h.parquet"
    pq.write_table(pa.table({"event_id": [1.5], "time_us": [1], "kind": ["heal"]}), path)
    with pytest.raises(InputError, match='column "event_id" has type double; it must be int64'):
        read_history(path)


def test_a_nested_column_is_named(tmp_path):
    path = tmp_path / "h.parquet"
    pq.write_table(pa.table({"event_id": [1], "time_us": [1], "kind": ["heal"], "node": [{"a": 1}]}), path)
    with pytest.raises(InputError, match='column "node" has type struct'):
        read_history(path)


def test_a_column_that_appears_twice_is_named(tmp_path):
    ids, kinds = pa.array([1]), pa.array(["heal"])
    pq.write_table(
        pa.Table.from_arrays([ids, ids, kinds, kinds], ["event_id", "time_us", "kind", "kind"]), tmp_path / "h.parquet"
    )
    with pytest.raises(InputError, match='column "kind" appears twice'):
        read_history(tmp_path / "h.parquet")


def test_binary_rubbish_is_one_line(tmp_path):
    path = tmp_path / "h.jsonl"
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="not UTF-8"):
        read_history(path)


def test_missing_files_and_folders_are_one_line(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_history(tmp_path / "nothing.csv")
    with pytest.raises(InputError, match="there is no folder"):
        write_history(parse_history("P1"), tmp_path / "no" / "folder.csv")
    with pytest.raises(InputError, match="unknown history format"):
        write_history(parse_history("P1"), tmp_path / "h.xlsx")


def test_names_that_are_not_utf_8_are_one_line(tmp_path):
    write_history(parse_history(LINE), tmp_path / "h.parquet")
    table = pq.read_table(tmp_path / "h.parquet", read_dictionary=[])
    broken = pa.Array.from_buffers(pa.string(), len(table), pa.array([b"p\xbet"] * len(table), pa.binary()).buffers())
    pq.write_table(table.set_column(table.schema.get_field_index("topic"), "topic", broken), tmp_path / "h.parquet")
    with pytest.raises(InputError, match='column "topic" holds text that is not UTF-8'):
        read_history(tmp_path / "h.parquet")


@pytest.mark.parametrize("kind", [pa.uint8(), pa.int16(), pa.uint64(), pa.int64()])
def test_a_column_of_any_integers_with_gaps_is_read(tmp_path, kind):
    """-1 stands for a gap where columns are numbers; unsigned integers have none."""
    file = tmp_path / "h.parquet"
    rows = {"event_id": [0, 1], "time_us": [0, 0], "kind": ["heal", "heal"], "packet_id": pa.array([None, 7], kind)}
    pq.write_table(pa.table(rows), file)
    assert read_history(file).joined().packet_id.tolist() == [-1, 7]


def test_arrays_are_made_and_read_as_pyarrow_does_it():
    numbers = np.array([3, -1, 70_000, 5], np.int64)
    absent = numbers < 0
    for mask in (None, absent):
        assert disk._array(numbers, pa.int32(), mask).equals(pa.array(numbers, pa.int32(), mask=mask))
    assert disk._array(absent, pa.bool_(), absent).equals(pa.array(absent, mask=absent))
    for names in ([], ["", "a", "é€"]):
        assert disk._strings(names).equals(pa.array(names, pa.string()))
    with pytest.raises(pa.ArrowInvalid, match="70000"):
        disk._array(numbers, pa.int16(), None)
    values = [None if n % 3 == 0 else n for n in range(40)]
    gaps = pa.array(values, pa.int32())
    for start, end in ((0, 40), (1, 3), (2, 5), (7, 9), (8, 17), (13, 40), (39, 40)):
        assert decoding._integers(gaps[start:end]).tolist() == [-1 if n is None else n for n in values[start:end]]


def test_writing_and_reading_a_history_imports_no_pandas(tmp_path):
    """It takes half a second, a third of a small run of `orderlab simulate`."""
    program = (
        "import sys; from orderlab.model.history.disk import HistoryFile, write_history\n"
        "from orderlab.model.history.notation import parse_history\n"
        "write_history(parse_history('P1 A1 D1'), sys.argv[1])\n"
        "assert sum(len(batch) for batch in HistoryFile(sys.argv[1])) > 0\n"
        "assert 'pandas' not in sys.modules"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "h.parquet")], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("topic", ["#", "+", "a/+/b", "a/#", "/", "$share/g/+/a", "$share/g/#", "$share", "t" * 65_535])
@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_every_filter_of_the_standard_is_read(tmp_path, topic, suffix):
    path = tmp_path / f"h.{suffix}"
    write_history(parse_history(f"S:{topic} P1 D1 U:{topic}"), path)
    assert len(read_history(path)) == 4


def test_an_empty_topic_is_refused(tmp_path):
    path = tmp_path / "h.jsonl"
    path.write_text(json.dumps({**GOOD, "topic": ""}) + "\n")
    with pytest.raises(InputError, match="row 1: topic '': at least one character is needed"):
        read_history(path)


@pytest.mark.parametrize(
    "text",
    [
        '{"event_id": 1, "kind": "heal", "time_us": 1, "kind": "cut"}',
        '{"event_id": 1, "time_us": 1, "kind": "invoke", "value": {"a": 1, "a": 2}}',
    ],
)
def test_a_json_object_with_a_key_twice_is_refused(tmp_path, text):
    path = tmp_path / "h.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=r"row 1 \(line 1\): the key '(kind|a)' stands twice in one object; keep one"):
        read_history(path)
