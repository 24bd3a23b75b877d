"""The same chunks in processes of this machine, for one without Java. A worker that is killed is replaced."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from orderlab.model.errors import InputError
from orderlab.spark_sweeps.engines.engine import POLL_S
from orderlab.spark_sweeps.isolation import leave_with
from orderlab.spark_sweeps.work import Order, work_through

TRIES_MAX = 4


class PoolEngine:
    """Fresh processes, each with a pipe, kept from chunk to chunk."""

    def __init__(self, cores: int | None = None) -> None:
        self.cores = cores or len(os.sched_getaffinity(0))
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
    leave_with(driver)
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
