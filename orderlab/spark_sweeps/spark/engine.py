"""Chunks as the partitions of one Spark job. Spark tries a task again when its executor is lost."""
from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orderlab.model.errors import InputError
from orderlab.spark_sweeps.runs.workers import POLL_S, Order
from orderlab.spark_sweeps.spark import tasks
from orderlab.spark_sweeps.spark.session import explained, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


GROUP = "orderlab-sweep"
PATIENCE_S = 30.0
"""How long a cluster may grant no executor before that is told."""


class SparkEngine:
    """The engine of every promise: ``local[*]`` or a cluster."""

    def __init__(
        self, master: str | None, log: Path, session: SparkSession | None = None, tell: Callable[[str], None] | None = None
    ) -> None:
        self.master, self.log = master, log
        self._tell = tell or _on_stderr
        self._waited_since: float | None = time.monotonic()
        self._owned = session is None
        self.session = session or start_session(master, log, only_hands_out=True)
        self.cores = max(1, self.session.sparkContext.defaultParallelism)

    def run(self, order: Order, chunks: Sequence[np.ndarray], should_stop: Callable[[], bool]) -> bool:
        """One job; its tasks begin in the order of the chunks."""
        context = self.session.sparkContext
        told = tuple(str(part) for part in astuple(order))
        packed = [np.ascontiguousarray(chunk, "<i8").tobytes() for chunk in chunks]
        raised: list[BaseException] = []

        def job() -> None:
            try:
                context.setJobGroup(GROUP, order.file, interruptOnCancel=True)
                context.parallelize(packed, len(packed)).mapPartitions(partial(tasks.do_partition, told)).count()
            except BaseException as error:
                raised.append(error)

        from pyspark import InheritableThread

        thread: Any = InheritableThread(target=job, daemon=True)
        thread.start()
        stopped = False
        try:
            while thread.is_alive():
                thread.join(POLL_S)
                self._watch_for_executors()
                if thread.is_alive() and should_stop():
                    stopped = True
                    context.cancelJobGroup(GROUP)
                    thread.join()
        except KeyboardInterrupt:
            context.cancelJobGroup(GROUP)
            thread.join(10)
            raise
        if raised and not stopped:
            raise InputError(explained(raised[0], self.master, self.log))
        return not stopped

    def _watch_for_executors(self) -> None:
        """Say once that nobody works: Spark itself waits for ever, without a word that reaches the terminal."""
        if self._waited_since is None:
            return
        if self.executors() > 0:
            self._waited_since = None
        elif time.monotonic() - self._waited_since >= PATIENCE_S:
            self._waited_since = None
            wants = self.session.conf.get("spark.executor.memory", "1g")
            self._tell(
                f"Spark on {self.session.sparkContext.master}: no executor after {PATIENCE_S:.0f} s, nothing runs yet; are workers "
                f"alive, with {wants} of memory and a core free each (spark.executor.memory, spark.cores.max)? Still waiting; "
                f"Ctrl-C ends it"
            )

    def executors(self) -> int:
        """How many processes can run tasks now; a local master is one itself."""
        context = self.session.sparkContext
        if context.master is None or (context.master.startswith("local") and not context.master.startswith("local-cluster")):
            return 1
        blocks: Any = context._jsc.sc().getExecutorMemoryStatus()  # of the driver, too
        return int(blocks.size()) - 1

    def close(self) -> None:
        """Stop the session, if it was started here."""
        if self._owned:
            self.session.stop()


def _on_stderr(line: str) -> None:
    print(f"\r\x1b[K{line}" if sys.stderr.isatty() else line, file=sys.stderr, flush=True)
