"""A large history judged on Spark (`local[2]`, keyed files, no shuffle) beside DuckDB with two threads, from one disk.

DuckDB reads the same rows from Parquet with plain integer codes, so that it need not compare texts, and answers
the same three laws in one query; ours also judges phantoms and agreement, which come with the pass.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

from benchmarks.checkers_history import PLANTED, arrow, block
from benchmarks.checkers_peers import DUCKDB
from orderlab.model.checkers.judge import Question
from orderlab.model.history.events import EventBatch, Names
from orderlab.spark_sweeps.histories.check import check_folder
from orderlab.spark_sweeps.histories.keyed import KeyedHistoryWriter
from orderlab.spark_sweeps.spark.session import start_session

LAWS = ("fifo", "at-least-once", "exactly-once")
ROWS_PER_PUBLISH = 12.05
PUBLISHES_PER_BLOCK = 500_000
SMALL = 20_000
PARTS = 16


def spark_check_vs_duckdb(events: int, rounds: int) -> tuple[float, dict[str, Any]]:
    """Our rows/s ÷ DuckDB's (median of the rounds' ratios), and what was measured."""
    import duckdb

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        rows, blocks = _write(folder, events)
        session = start_session("local[2]", folder / "spark.log")
        connection = duckdb.connect(config={"threads": 2, "temp_directory": str(folder / "spill")})
        connection.execute(f"create view events as select * from read_parquet('{folder}/plain/*.parquet')")
        times: dict[str, list[float]] = {"orderlab": [], "duckdb": []}
        expected = [PLANTED[law] * blocks for law in LAWS]
        check_folder(folder / "keyed-small", Question(laws=LAWS), session, folder / "spark.log")  # starts the workers
        for _ in range(rounds):
            begun = time.perf_counter()
            verdicts, counted = check_folder(folder / "keyed", Question(laws=LAWS), session, folder / "spark.log")
            times["orderlab"].append(time.perf_counter() - begun)
            found = [int(verdict.work["violations"]) for verdict in verdicts]
            assert (found, counted) == (expected, rows), (found, counted, expected, rows)
            begun = time.perf_counter()
            theirs = [int(count) for count in connection.execute(DUCKDB).fetchall()[0]]
            times["duckdb"].append(time.perf_counter() - begun)
            assert theirs == expected, (theirs, expected)
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    ratio = median(other / mine for mine, other in zip(times["orderlab"], times["duckdb"], strict=True))
    return ratio, {"rows": rows, "rows_per_s": {who: round(rows / median(each)) for who, each in times.items()}}


def _write(folder: Path, events: int) -> tuple[int, int]:
    """The history twice: keyed parts for us, plain codes for DuckDB. The number of rows and of blocks."""
    per_block = min(PUBLISHES_PER_BLOCK, max(SMALL, int(events / ROWS_PER_PUBLISH) // 2000 * 2000))
    blocks = max(1, round(events / ROWS_PER_PUBLISH / per_block))
    names, rows = Names(), 0
    (folder / "plain").mkdir()
    for name, many in (("keyed-small", 1), ("keyed", blocks)):
        with KeyedHistoryWriter(folder / name, names, PARTS) as writer:
            for number in range(many):
                columns = block(number, SMALL if name == "keyed-small" else per_block)
                writer.write(EventBatch.of(**columns))
                if name == "keyed":
                    pq.write_table(_table(columns), folder / "plain" / f"{number:04d}.parquet", compression="zstd")
                    rows += len(columns["kind"])
    return rows, blocks


def _table(columns: dict[str, Any]) -> Any:
    import pyarrow as pa

    return pa.Table.from_batches([arrow(columns, labels=False)])
