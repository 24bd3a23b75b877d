"""Histories and their judges: see ``notes/histories.md``. Needs the extra ``check``.

>>> from orderlab.history import Question, judge, parse_history, source_of
>>> told, rows = judge(source_of(parse_history("P1 A1 P2 A2 D2 D1")), Question())
>>> rows, [one.law for one in told if one.outcome == "violated"]
(6, ['fifo'])

A recorder writes what happened, one row an event; whoever has the file asks again:

>>> from pathlib import Path
>>> from tempfile import TemporaryDirectory
>>> from orderlab.history import open_history, write_history
>>> with TemporaryDirectory() as folder:
...     file = Path(folder) / "run.parquet"
...     write_history(parse_history("P1 A1 P2 A2 D1 D2"), file)
...     judge(open_history(file), Question(laws=("fifo",)))[0][0].outcome.value
'holds'

`correct_histories` and `histories_with` are Hypothesis's strategies of such lines. On the command line: ``orderlab
check FILE``.
"""

from __future__ import annotations

from orderlab.extras import told_of

with told_of(__name__):
    from orderlab.model.checkers.judge import LAWS, Question, Source, in_memory, judge
    from orderlab.model.history.disk import HistoryReader, HistoryWriter, open_history, read_history, write_history
    from orderlab.model.history.events import EventBatch, EventKind, History, Names
    from orderlab.model.history.notation import parse_history
    from orderlab.model.verdict import Outcome, Verdict, overall
    from orderlab.properties.strategies.histories import ANOMALIES, Planted, correct_histories, histories_with

__all__ = [
    "ANOMALIES", "LAWS", "EventBatch", "EventKind", "History", "HistoryReader", "HistoryWriter", "Names", "Outcome",
    "Planted", "Question", "Source", "Verdict", "correct_histories", "histories_with", "in_memory", "judge",
    "open_history", "overall", "parse_history", "read_history", "source_of", "write_history",
]  # fmt: skip


def source_of(history: History, place: str = "history") -> Source:
    """A history in memory as a judge takes it; messages call it ``place``."""
    return in_memory(place, history.batches, history.names)
