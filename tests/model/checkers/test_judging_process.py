"""A history that is judged while it is recorded gets the verdicts that its file gets."""

import pytest

from orderlab.model.checkers import judging_process
from orderlab.model.checkers.judge import Question, judge
from orderlab.model.checkers.judging_process import JudgedBeside
from orderlab.model.history.disk import HistoryFile, write_history
from orderlab.model.history.notation import parse_history

LINE = "S + P1 A1 P2 A2 D2 F D1 H P3 A3 D3#1 - + @90 D3#1! P4 A4 Z"
QUESTION = Question(drain_bound_us=10_000)


def told(verdicts):
    """Without the seconds."""
    plain = [verdict.to_json() for verdict in verdicts]
    for one in plain:
        one["work"].pop("seconds", None)
    return plain


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Few rows are enough for the other process."""
    monkeypatch.setattr(judging_process, "ROWS_MIN", 1)


@pytest.fixture
def recorded(tmp_path):
    history = parse_history(LINE).split([3, 4, 2])
    write_history(history, tmp_path / "h.parquet")
    return history, tmp_path / "h.parquet"


def test_the_verdicts_are_those_of_the_file(recorded):
    history, path = recorded
    expected, rows = judge(HistoryFile(path), QUESTION)
    assert {verdict.law for verdict in expected if verdict.outcome == "violated"} >= {"fifo", "at-least-once"}
    with JudgedBeside(history.names, QUESTION, cores=2) as judged:
        for batch in history:
            judged.write(batch)
        assert judged._process is not None
        found, number = judged.verdicts(path)
    assert (told(found), number) == (told(expected), rows)


def test_whoever_dies_is_stood_in_for_and_nobody_waits_for_ever(recorded, monkeypatch):
    monkeypatch.setattr(judging_process, "BATCHES_WAITING", 1)
    history, path = recorded
    with JudgedBeside(history.names, QUESTION, cores=2) as judged:
        for number, batch in enumerate([*history] * 5):
            judged.write(batch)
            if number == 1:
                judged._process.kill()
        found, _ = judged.verdicts(path)
    assert told(found) == told(judge(HistoryFile(path), QUESTION)[0])


@pytest.mark.parametrize(("cores", "batches"), [(1, 4), (2, 1)])
def test_a_single_core_and_a_single_batch_are_judged_here(recorded, cores, batches):
    history, path = recorded
    with JudgedBeside(history.names, QUESTION, cores=cores) as judged:
        for batch in history.batches[:batches]:
            judged.write(batch)
        assert judged._process is None
        assert judged.verdicts(path)[1] == len(history)


def test_that_the_other_process_compiles_is_told_unless_it_is_over():
    class Said:
        def __init__(self, *items):
            self.items = list(items)

        def recv(self):
            return self.items.pop(0)

        def poll(self):
            return len(self.items) == 2  # two are here already, the others come later

    judged, heard = JudgedBeside(None, QUESTION), []
    on, off = judging_process._Compiling(True), judging_process._Compiling(False)
    judged._connection = Said(on, off, on, off, ([], 7))
    assert judged._answer(heard.append) == ([], 7)
    assert heard == [True, False, False]


def test_the_last_row_of_a_short_history_begins_no_process(recorded, monkeypatch):
    """A recording ends with a batch of what is left, as little as it may be."""
    history, path = recorded
    monkeypatch.setattr(judging_process, "ROWS_MIN", sum(map(len, history.batches)) + 1)
    with JudgedBeside(history.names, QUESTION, cores=2) as judged:
        for batch in history:
            judged.write(batch)
        assert judged._process is None
        assert told(judged.verdicts(path)[0]) == told(judge(HistoryFile(path), QUESTION)[0])
