"""A worker's part, the runs of one chunk, each in a child under limits; and the engines that keep workers.

Rows are committed in batches of a few seconds. An engine sees that every chunk is worked through, wherever its workers
are: here is the one of processes of this machine, for one without Java; that of Spark is in
`orderlab.spark_sweeps.spark`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shlex
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from orderlab import platform
from orderlab.child import dying_with_parent
from orderlab.model.errors import InputError
from orderlab.spark_sweeps.results.folder import ResultFolder
from orderlab.spark_sweeps.results.rows import row_of, schema_of, table_of
from orderlab.spark_sweeps.runs.digests import code_digest, has_changed, scripts_digest, subject_digest
from orderlab.spark_sweeps.runs.isolation import isolated
from orderlab.spark_sweeps.runs.subject import Observed, Subject, subject_of
from orderlab.spark_sweeps.sweep_file.plan import Plan
from orderlab.spark_sweeps.sweep_file.specification import sweep_of

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
            "workers have another orderlab than the driver; ship its code (notes/spark.md), or start again if files "
            "were edited"
        )
    plan = Plan(sweep_of(json.loads(order.sweep), order.file), order.file)
    subject = subject_of(plan.sweep.system)
    if subject_digest(plan.sweep) != order.subject_digest:
        raise InputError(
            f"{order.file}: workers have another {plan.sweep.system.partition(':')[0]} (or what it imports, or a "
            "cost model) "
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
        waiting.append(row(plan, subject, ended, order.attempt, digests))
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
            f"{order.file}: {changed} was edited while the sweep ran; what is committed is of the text before: "
            "restore that, or "
            "name another folder (--output)"
        )
    folder.commit(rows)


def row(plan: Plan, subject: Subject, ended: Any, attempt: int, digests: dict[str, str]) -> dict[str, Any]:
    """The row of a run with the command that does it again on its own: that of the system, or the one of the folder,
    whose manifest has the seed and, of a question, the parameters that no sweep file has."""
    try:
        run = plan.run(ended.item)
        replay = subject.replay(run.parameters, run.seed)
    except InputError:  # a derived parameter without a value here: the error says so, the row keeps the axes
        run, replay = plan.undecided(ended.item), None
    replay = replay or shlex.join(["orderlab", "runs", plan.sweep.output, "--replay", str(ended.item)])
    return row_of(plan, run, ended, attempt, digests, replay)


POLL_S = 0.25


class Engine(Protocol):
    """Runs chunks. Rows never come back through it: workers commit them."""

    @property
    def cores(self) -> int:
        """How many chunks run at once."""

    def run(self, order: Order, chunks: Sequence[np.ndarray], should_stop: Callable[[], bool]) -> bool:
        """Begin the chunks in order; ask ``should_stop`` every POLL_S seconds. False if it said so. Raises
        InputError."""

    def close(self) -> None:
        """End the workers."""


TRIES_MAX = 4


class PoolEngine:
    """Fresh processes, each with a pipe, kept from chunk to chunk."""

    def __init__(self, cores: int | None = None) -> None:
        self.cores = cores or platform.cores()
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[Any, Any] = {}

    def run(self, order: Order, chunks: Sequence[np.ndarray], should_stop: Callable[[], bool]) -> bool:
        """Hand the chunks out in order; hand one out again when its worker is gone."""
        try:
            return self._run(order, chunks, should_stop)
        except BaseException:
            self._end_workers()  # they are amid chunks that nobody waits for any more
            raise

    def _run(self, order: Order, chunks: Sequence[np.ndarray], should_stop: Callable[[], bool]) -> bool:
        waiting = list(enumerate(chunks))[::-1]
        tries = [0] * len(chunks)
        busy: dict[Connection, int] = {}
        while waiting or busy:
            while waiting and len(busy) < self.cores:
                place, chunk = waiting.pop()
                pipe = self._free_worker(busy)
                pipe.send((order, chunk.tolist()))
                busy[pipe] = place
            ready = wait(list(busy), POLL_S)
            for pipe in [one for one in busy if one in ready]:
                place = busy.pop(pipe)
                try:
                    complaint = pipe.recv()
                except (EOFError, ConnectionResetError):
                    self._workers.pop(pipe).join()
                    tries[place] += 1
                    if tries[place] == TRIES_MAX:
                        line = f"chunk {place}: its worker was ended {TRIES_MAX} times; is memory short?"
                        raise InputError(line) from None
                    waiting.append((place, chunks[place]))
                    continue
                if complaint is not None:
                    raise InputError(complaint)
            if should_stop():
                self._end_workers()
                return False
        return True

    def _free_worker(self, busy: dict[Any, int]) -> Any:
        for pipe in self._workers:
            if pipe not in busy:
                return pipe
        mine, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, os.getpid()), daemon=True)
        process.start()
        theirs.close()
        self._workers[mine] = process
        return mine

    def close(self) -> None:
        """End the workers; what they have not committed is lost."""
        self._end_workers()

    def _end_workers(self) -> None:
        for pipe, process in self._workers.items():
            process.kill()
            process.join()
            pipe.close()
        self._workers.clear()


def _serve(pipe: Any, driver: int) -> None:
    """A worker: chunks in, None or a complaint out. Ctrl-C is the driver's affair, and its death ends this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    dying_with_parent(driver)()
    try:
        while True:
            order, numbers = pipe.recv()
            try:
                work_through(order, numbers)
                pipe.send(None)
            except InputError as error:
                pipe.send(str(error))
    except EOFError:
        pass
