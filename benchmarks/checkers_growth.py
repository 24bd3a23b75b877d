"""How the delivery pass grows: `python -m benchmarks.checkers_growth ROWS` prints seconds and peak memory."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pyarrow as pa

from benchmarks.checkers import PUBLISHES_PER_BLOCK, ROWS_PER_BATCH, judged
from benchmarks.checkers_history import PLANTED, arrow, block
from orderlab.model.checkers.delivery.laws import DeliveryChecker, delivery_verdicts
from orderlab.model.history.decoding import ArrowDecoder


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


if __name__ == "__main__":
    print(json.dumps(grow(int(sys.argv[1]))))
