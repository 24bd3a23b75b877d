"""Judging in a process of its own while the history is recorded: the last rows are here, and so are nearly all
verdicts.

A small history is judged where it is: the other process begins with the second batch, once there are ROWS_MIN rows.
What it cannot do, for whatever reason, is done here from the file, so that it changes nothing but the time.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

from orderlab import platform
from orderlab.model.checkers.judge import Judgement, Question, judge
from orderlab.model.history.disk import HistoryFile
from orderlab.model.history.events import COLUMNS, EventBatch, Names
from orderlab.model.machine_code import compilation
from orderlab.model.verdict import Verdict

BATCHES_WAITING = 16
"""So many wait for the other process, of 65,536 rows each, before the recording waits for it: memory does not grow with
the run."""

ROWS_MIN = 32_768
"""Fewer are judged sooner than another process has imported what it takes; recordings send 65,536 at once, and at the
end what is left."""


class JudgedBeside:
    """``write`` is a sink of the recording; ``verdicts``, once the file is written, what it comes to. Use as a context
    manager."""

    def __init__(self, names: Names, question: Question, cores: int | None = None) -> None:
        """``names``: as the recording codes them. ``cores``: those of this process by default; a single one is better
        left alone."""
        self.names, self.question = names, question
        self._cores = cores or platform.cores()
        self._held: list[EventBatch] = []
        self._waiting: Queue[dict[str, Any] | Path | None] = Queue(BATCHES_WAITING)
        self._process: Any = None

    def write(self, batch: EventBatch) -> None:
        """Take in the next rows."""
        if self._cores < 2:
            return
        if self._process is None:
            self._held.append(batch)
            if len(self._held) < 2 or sum(map(len, self._held)) < ROWS_MIN:
                return
            self._begin()
            for held in self._held[:-1]:
                self._waiting.put(_filled(held))
            self._held.clear()
        self._waiting.put(_filled(batch))

    def verdicts(
        self, path: Path, on_compiling: Callable[[bool], None] = lambda is_on: None
    ) -> tuple[list[Verdict], int]:
        """The verdicts on the rows, which the file at PATH has too, and their number. ``on_compiling`` hears whether
        the other process makes machine code. Raises InputError as `judge` does."""
        if self._process is not None:
            self._waiting.put(path)
            try:
                told: tuple[list[Verdict], int] | None = self._answer(on_compiling)
            except (EOFError, OSError):
                told = None
            if told is not None:
                return told
        return judge(HistoryFile(path), self.question)

    def _answer(self, on_compiling: Callable[[bool], None]) -> tuple[list[Verdict], int] | None:
        depth = 0
        while isinstance(told := self._connection.recv(), _Compiling):
            depth += 1 if told.is_on else -1
            if not self._connection.poll():  # what is over need not be told
                on_compiling(depth > 0)
        answer: tuple[list[Verdict], int] | None = told
        return answer

    def __enter__(self) -> JudgedBeside:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._waiting.put(None)  # the feeder throws away what is before it
            self._connection.close()

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_judge_what_comes, args=(theirs, self.names, self.question), daemon=True)
        self._process.start()
        theirs.close()  # so that this end hears when the other process is gone
        Thread(target=self._feed, daemon=True).start()

    def _feed(self) -> None:
        """Hand over what waits; where nobody takes it any more, throw it away, so that the recording goes on."""
        is_gone = False
        while (item := self._waiting.get()) is not None:
            try:
                if not is_gone:
                    self._connection.send(item)
            except OSError:
                is_gone = True
            if isinstance(item, Path):
                return


def _filled(batch: EventBatch) -> dict[str, Any]:
    """The columns that say something."""
    columns = {name: getattr(batch, name) for name in COLUMNS}
    return {name: column for name, column in columns.items() if len(column) and column.max() >= 0}


@dataclass(frozen=True, slots=True)
class _Compiling:
    """Tells that the other process makes machine code from now on, or no more."""

    is_on: bool


def _judge_what_comes(connection: Connection, names: Names, question: Question) -> None:
    """Judge batches until a path comes; answer with verdicts and the number of rows, or None where the other side had
    better do it itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who began it ends it
    answer: tuple[list[Verdict], int] | None = None
    judgement = Judgement(names, question)
    try:
        with compilation(lambda is_on: connection.send(_Compiling(is_on))):
            while not isinstance(item := connection.recv(), Path):
                judgement.observe(EventBatch.of(**item))
            answer = judgement.verdicts(HistoryFile(item)), judgement.rows
    except (EOFError, BrokenPipeError):
        return
    except Exception:  # the other side will meet it too, and can tell it
        answer = None
    connection.send(answer)
