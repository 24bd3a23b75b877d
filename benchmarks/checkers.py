"""History checkers: order, loss and duplicates beside DuckDB and Polars; linearizability of a long queue history.

Every contender starts from the same Arrow table in memory and ends with the same counts of violations, on one thread.
Ours does what `orderlab check` does with it: decode, inspect every row, judge (phantoms and agreement come with the
pass). Growth is measured in a process of its own for each size, fed block by block, so that the peak of its memory is
the checker's: ``python -m benchmarks.checkers grow ROWS``.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.checkers_history import PLANTED, Counts, arrow, block, duckdb_checker, polars_checker
from benchmarks.timing import ROUNDS_MIN, Contender, report, take_turns
from orderlab.model.checkers.delivery.checker import DeliveryChecker, delivery_verdicts
from orderlab.model.checkers.linearizability.decide import decide
from orderlab.model.checkers.linearizability.operations import operations_of_history
from orderlab.model.history.decoding import ArrowDecoder
from orderlab.model.history.events import EventBatch, EventKind, Names
from orderlab.model.verdict import Outcome

TO_REACH = {
    "fifo_vs_best": (">=", 2.0),
    "whole_vs_best": (">=", 1.2),
    "whole_with_violations_vs_best": (">=", 1.2),
    "queue_linearizability_ops_per_s": (">=", 200_000.0),
}
WHOLE = {
    "whole_vs_best": ((), ()),
    "whole_with_violations_vs_best": (("fifo", "at-least-once", "exactly-once"), ("fifo", "at-least-once")),
}
"""What each half of a history breaks: nothing, and five times."""
LAWS = ("fifo", "at-least-once", "exactly-once")
ROWS_PER_BATCH = 1 << 16
PUBLISHES_PER_BLOCK = 50_000


def judged(batches: Sequence[pa.RecordBatch]) -> Counts:
    """What `orderlab check` does with Arrow batches: the violations of each law."""
    decoder = ArrowDecoder("the benchmark's history", batches[0].schema)
    checker = DeliveryChecker(decoder.names)
    for batch in batches:
        checker.observe(decoder.decode(batch))
    return _counts(checker)


def _counts(checker: DeliveryChecker) -> Counts:
    fifo, lost, twice = (int(verdict.work["violations"]) for verdict in delivery_verdicts(checker.partial(), LAWS, {}))
    return fifo, lost, twice


def compared(deliveries: int, rounds: int) -> tuple[float, dict[str, Any]]:
    """Our rows/s ÷ the faster peer's, and what was measured."""
    columns = block(0, deliveries // 10)
    rows = len(columns["kind"])
    ours = pa.Table.from_batches([arrow(columns, labels=True)]).to_batches(max_chunksize=ROWS_PER_BATCH)
    expected = tuple(PLANTED[law] for law in LAWS)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "events.arrow")
        plain = arrow(columns, labels=False)
        with pa.ipc.new_file(path, plain.schema) as file:
            file.write(plain)
        del columns, plain
        checks = {
            "orderlab": lambda: judged(ours),
            "duckdb": duckdb_checker(path),
            "polars": polars_checker(path),
        }

    def contender(name: str) -> Contender:
        def work() -> int:
            found = checks[name]()
            assert found == expected, f"{name} counts {found} violations, planted were {expected}"
            return rows

        return Contender(name, lambda: None, work)

    timings = take_turns([contender(name) for name in checks], rounds)
    best = max(("duckdb", "polars"), key=timings.median)
    rates = {name: round(timings.median(name)) for name in checks}
    detail = {"rows": rows, "deliveries": deliveries, "rows_per_s": rates, "best_peer": best, "violations": expected}
    return timings.ratio("orderlab", best), detail


def whole(publishes: int, rounds: int) -> tuple[dict[str, float], dict[str, Any]]:
    """A Parquet file to a verdict, in a process of its own: `orderlab check` with all laws and the rows of its
    witnesses, beside the peers' counts. By processor time: starting, reading and ending are a part of it."""
    figures, detail = {}, {}
    for figure, halves in WHOLE.items():
        with tempfile.TemporaryDirectory() as folder:
            ours, plain = Path(folder) / "history.parquet", Path(folder) / "codes.parquet"
            rows = _write(ours, publishes, halves, labels=True)
            _write(plain, publishes, halves, labels=False)
            expected = [sum(law in half for half in halves) for law in LAWS]
            peers = {name: ["benchmarks.checkers_history", name, str(plain)] for name in ("duckdb", "polars")}
            commands = {"orderlab": ["orderlab", "check", str(ours), "--json"], **peers}
            timings = take_turns([_process(name, given, rows, expected) for name, given in commands.items()], rounds)
        best = max(peers, key=timings.core_median)
        seconds = {name: round(rows / timings.core_median(name), 2) for name in commands}
        figures[figure] = timings.core_ratio("orderlab", best)
        detail[figure] = {"rows": rows, "cpu_s": seconds, "best_peer": best, "violations": expected}
    return figures, detail


def _write(path: Path, publishes: int, halves: Sequence[Sequence[str]], labels: bool) -> int:
    parts = [arrow(block(number, publishes // 2, planted), labels) for number, planted in enumerate(halves)]
    pq.write_table(pa.Table.from_batches(parts), path)
    return sum(part.num_rows for part in parts)


def _process(name: str, given: Sequence[str], rows: int, expected: list[int]) -> Contender:
    """A module run as a program; it must find what was planted."""

    def work() -> int:
        done = subprocess.run(
            [sys.executable, "-m", *given], capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False
        )
        told = json.loads(done.stdout)
        if name == "orderlab":
            counts = {verdict["law"]: verdict["work"]["violations"] for verdict in told["verdicts"]}
            told = [counts[law] for law in LAWS]
        assert told == expected, f"{name} counts {told} violations, planted were {expected}"
        return rows

    return Contender(name, lambda: None, work, lambda: sum(os.times()[2:4]))


def queue_history(operations: int, clients: int, seed: int) -> tuple[EventBatch, Names]:
    """A queue that works, `clients` at a time: the events of `operations` enqueues and dequeues, as a history."""
    rng, names = random.Random(seed), Names()
    functions = {name: names.operations.code(name) for name in ("enqueue", "dequeue")}
    rows: list[tuple[int, int, int, int]] = []
    queue: list[int] = []
    head, begun = 0, 0
    running: dict[int, list[Any]] = {}
    while begun < operations or running:
        process = rng.randrange(clients)
        job = running.get(process)
        if job is None:
            if begun < operations:
                begun += 1
                name = rng.choice(("enqueue", "dequeue"))
                value = names.values.code(str(begun)) if name == "enqueue" else -1
                running[process] = [name, value, False]
                rows.append((EventKind.INVOKE, process, functions[name], value))
        elif not job[2]:
            job[2] = True  # it takes effect
            if job[0] == "enqueue":
                queue.append(job[1])
            elif head < len(queue):
                job[1], head = queue[head], head + 1
        else:
            rows.append((EventKind.OK, process, functions[job[0]], job[1]))
            del running[process]
    kind, who, operation, result = np.array(rows, np.int64).T
    moment = np.arange(len(rows))
    batch = EventBatch.of(event_id=moment, time_us=moment, kind=kind, process=who, operation=operation, value=result)
    return batch, names


def linearizability(operations: int, clients: int, rounds: int) -> tuple[float, dict[str, Any]]:
    """Operations a second from events in memory to the verdict, and how the time grows."""
    growth = {}
    for size in (operations // 10, operations, operations * 10):
        batch, names = queue_history(size, clients, seed=1)
        seconds, deciding = [], []
        for number in range(rounds + 1):
            begun = time.perf_counter()
            verdict = decide("queue", operations_of_history("events", [batch], names))
            elapsed = time.perf_counter() - begun
            assert verdict.outcome is Outcome.HOLDS
            if number:
                seconds.append(elapsed)
                deciding.append(verdict.work["seconds"])
        growth[size] = {"operations_per_s": round(size / median(seconds)), "deciding_s": median(deciding)}
    return growth[operations]["operations_per_s"], {"clients": clients, "by_operations": growth}


def growth(sizes: Sequence[int]) -> dict[int, Any]:
    """Rows/s and peak memory of the pass at each number of rows, each in a process of its own."""
    measured = {}
    for rows in sizes:
        command = [sys.executable, "-m", "benchmarks.checkers", "grow", str(rows)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
        measured[rows] = json.loads(done.stdout)
    return measured


def grow(rows: int) -> dict[str, float]:
    """Judge at least `rows` rows, made block by block between the timed parts."""
    first = arrow(block(0, PUBLISHES_PER_BLOCK), labels=True)
    judged([first])  # compiles
    at_start = _peak_mib()
    decoder = ArrowDecoder("the benchmark's history", first.schema)
    checker = DeliveryChecker(decoder.names)
    done, seconds, number = 0, 0.0, 0
    while done < rows:
        made = arrow(block(number, PUBLISHES_PER_BLOCK), labels=True)
        batches = pa.Table.from_batches([made]).to_batches(max_chunksize=ROWS_PER_BATCH)
        begun = time.process_time()
        for batch in batches:
            checker.observe(decoder.decode(batch))
        seconds += time.process_time() - begun
        done, number = done + made.num_rows, number + 1
    begun = time.process_time()
    (verdict,) = delivery_verdicts(checker.partial(), ("fifo",), {})
    seconds += time.process_time() - begun
    assert verdict.work["violations"] == number * PLANTED["fifo"]
    return {
        "rows": done,
        "cpu_s": round(seconds, 3),
        "rows_per_cpu_s": round(done / seconds),
        "peak_mib": round(_peak_mib()),
        "peak_mib_at_start": round(at_start),
    }


def _peak_mib() -> float:
    """Of this program: `ru_maxrss` would count what the process was before it ran this program."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def run(
    deliveries: int = 10_000_000,
    operations: int = 100_000,
    clients: int = 16,
    sizes: Sequence[int] = (10**6, 10**7, 10**8),
    rounds: int = ROUNDS_MIN,
) -> dict[str, Any]:
    """Measure; the sizes can be made small for a look."""
    ratio, against = compared(deliveries, rounds)
    wholes, processes = whole(deliveries // 12, rounds)
    rate, queue = linearizability(operations, clients, rounds)
    peers = {name: version(name) for name in ("duckdb", "polars")}
    detail = {"peers": peers, "delivery": against, "whole": processes, "growth": growth(sizes), "queue": queue}
    return report("checkers", {"fifo_vs_best": ratio, **wholes, "queue_linearizability_ops_per_s": rate}, detail)


if __name__ == "__main__":
    if sys.argv[1:2] == ["grow"]:
        print(json.dumps(grow(int(sys.argv[2]))))
    else:
        print(json.dumps(run(int(sys.argv[1])) if sys.argv[1:] else run()))
