"""Chunks as the partitions of one Spark job. Spark tries a task again when its executor is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from model.errors import InputError
from spark_sweeps import tasks
from spark_sweeps.engines.engine import POLL_S
from spark_sweeps.spark_session import explained, start_session
from spark_sweeps.work import Order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP = "orderlab-sweep"


class SparkEngine:
    """The engine of every promise: ``local[*]`` or a cluster."""

    def __init__(self, master: str | None, log: Path, session: SparkSession | None = None) -> None:
        self.master, self.log = master, log
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

    def close(self) -> None:
        """Stop the session, if it was started here."""
        if self._owned:
            self.session.stop()
