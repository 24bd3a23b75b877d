"""A step that comes between two calls of a save: what a store may do about it, and what may not be done to a store."""

from __future__ import annotations

from typing import Any

from orderlab.model.contracts.session.traces import Fetch, Interleave, Publication, Retry, Save, Step
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.run import StepReport
from orderlab.sim.stores.binding.results import Failed, Fields, Result, Saved
from tests.properties.contracts.session.test_session_run import PlainStore


class ComparesAndSets(PlainStore):
    """A save reads a number, and in its second call writes only where the number is as it was."""

    def perform(self, operation: str, client: bytes, fields: Fields, between: Any = None) -> Result:
        if operation != "save":
            return super().perform(operation, client, fields)
        queue = self.queue(client)
        version = queue.sequence
        if between is not None:
            between(1)
        if self.flaw == "declines-always" or (queue.sequence != version and self.flaw != "lies"):
            return Failed(b"ERR busy") if self.flaw == "error" else Saved(refused="BUSY")
        done = super().perform(operation, client, fields)
        return Saved(refused="BUSY") if queue.sequence != version + 1 else done


def saved(label: int, producer: int) -> Save:
    return Save((Publication(label, b"m%d" % label),), producer=producer, limit=3)


def performed(store: PlainStore, *steps: Step) -> list[StepReport]:
    run = SessionRun(store, (b"c",))
    return [run.perform(step) for step in steps]


def laws(report: StepReport) -> list[str]:
    return sorted({one.law for one in report.discrepancies})


def test_a_save_that_was_overtaken_may_decline_by_a_word_or_an_error() -> None:
    for flaw in ("", "error"):
        for report in performed(ComparesAndSets(flaw), Interleave(saved(1, 0), saved(2, 1), 1), Retry(0), Fetch()):
            assert laws(report) == []
            assert report.result is not None


def test_one_that_was_not_overtaken_may_not() -> None:
    assert laws(performed(ComparesAndSets("declines-always"), saved(1, 0))[0]) == ["no-loss"]
    overlap = Interleave(saved(1, 0), saved(2, 1), 2)  # there is no second moment between two calls
    assert laws(performed(ComparesAndSets("declines-always"), overlap, saved(3, 1))[0]) == ["no-loss"]
    after = performed(ComparesAndSets("declines-always"), Interleave(saved(1, 0), Fetch(), 1), saved(2, 1))
    assert laws(after[1]) == ["no-loss"]


def test_nor_say_so_when_it_has_saved() -> None:
    assert laws(performed(ComparesAndSets("lies"), Interleave(saved(1, 0), saved(2, 1), 1))[0]) == ["all-or-nothing"]


def test_a_producer_sends_one_batch_after_the_other() -> None:
    for during in (saved(2, 0), Retry(0)):
        (report,) = performed(ComparesAndSets(), Interleave(saved(1, 0), during, 1))
        assert report.result is None
        assert laws(report) == []
