"""A worker's part: the runs of one chunk, each in a child under limits, committed in batches of a few seconds."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from orderlab.model.errors import InputError
from orderlab.spark_sweeps.digests import code_digest, has_changed, scripts_digest, subject_digest
from orderlab.spark_sweeps.isolation import isolated
from orderlab.spark_sweeps.plan import Plan
from orderlab.spark_sweeps.result_folder import ResultFolder
from orderlab.spark_sweeps.rows import row_of, schema_of, table_of
from orderlab.spark_sweeps.specification import sweep_of
from orderlab.spark_sweeps.subject import Observed, Subject, subject_of

COMMIT_S = 5.0
COMMIT_ROWS = 1024
"""A driver holds one file's rows at a time: its memory depends on this, not on the number of runs."""


@dataclass(frozen=True)
class Order:
    """What every worker must know, as plain text and numbers."""

    sweep: str
    """The sweep file as JSON."""
    file: str
    """Its name, for messages and commands."""
    folder: str
    attempt: int
    code_digest: str
    scripts_digest: str
    subject_digest: str
    sweep_digest: str


@lru_cache(maxsize=2)
def _prepared(order: Order) -> tuple[Plan, Subject, pa.Schema]:
    """Once per process: the plan, and all that its runs import, so that children need not."""
    if (code_digest(), scripts_digest()) != (order.code_digest, order.scripts_digest):
        raise InputError(
            "workers have another orderlab than the driver; ship its code (notes/spark.md), or start again if files were edited"
        )
    plan = Plan(sweep_of(json.loads(order.sweep), order.file), order.file)
    subject = subject_of(plan.sweep.system)
    if subject_digest(plan.sweep) != order.subject_digest:
        raise InputError(
            f"{order.file}: workers have another {plan.sweep.system.partition(':')[0]} (or what it imports, or a cost model) "
            "than the driver; ship it, or start again if files were edited"
        )
    subject.warm_up()
    return plan, subject, schema_of(plan)


def observe(plan: Plan, subject: Subject, number: int, folder: ResultFolder | None) -> Observed:
    """One run, in this process."""
    run, keep = plan.run(number), plan.sweep.record.histories
    path = None if folder is None or keep == "none" else folder.histories / f"{number:08d}.parquet"
    return subject.run(run.parameters, run.seed, path, keep)


def work_through(order: Order, numbers: Sequence[int]) -> int:
    """Do the runs of a chunk and commit their rows; how many. Raises InputError where rows cannot be kept."""
    plan, subject, schema = _prepared(order)
    folder, limits = ResultFolder(order.folder), plan.sweep.limits
    digests = {
        "code_digest": order.code_digest, "scripts_digest": order.scripts_digest,
        "subject_digest": order.subject_digest, "sweep_digest": order.sweep_digest,
    }  # fmt: skip
    waiting: list[dict[str, Any]] = []
    committed = time.perf_counter()
    for ended in isolated(
        lambda number: observe(plan, subject, number, folder),
        [int(n) for n in numbers],
        limits.wall_s,
        limits.memory_mib,
    ):
        waiting.append(row(plan, subject, order.file, ended, order.attempt, digests))
        if time.perf_counter() - committed > COMMIT_S or len(waiting) == COMMIT_ROWS:
            _commit(folder, order, plan, table_of(waiting, schema))
            waiting, committed = [], time.perf_counter()
    if waiting:
        _commit(folder, order, plan, table_of(waiting, schema))
    return len(numbers)


def _commit(folder: ResultFolder, order: Order, plan: Plan, rows: pa.Table) -> None:
    """Raise InputError where rows cannot be kept, or may be of another text than their digests say."""
    changed = has_changed(plan.sweep, order.scripts_digest, order.subject_digest)
    if changed is not None:
        raise InputError(
            f"{order.file}: {changed} was edited while the sweep ran; what is committed is of the text before: restore that, or "
            "name another folder (--output)"
        )
    folder.commit(rows)


def row(plan: Plan, subject: Subject, file: str, ended: Any, attempt: int, digests: dict[str, str]) -> dict[str, Any]:
    """The row of a run with the command that does it again on its own."""
    try:
        run = plan.run(ended.item)
        replay = subject.replay(run.parameters, run.seed)
    except InputError:  # a derived parameter without a value here: the error says so, the row keeps the axes
        run, replay = plan.undecided(ended.item), None
    replay = replay or shlex.join(["orderlab", "sweep", file, "--only", str(ended.item)])
    return row_of(plan, run, ended, attempt, digests, replay)
