"""The recorder sorts, streams, and notices what comes too late."""

import numpy as np
import pytest

from orderlab.model.history.events import EventKind
from orderlab.sim.engine import recorder as recording
from orderlab.sim.engine.recorder import HistoryRecorder


def test_rows_leave_in_time_order_and_equal_times_keep_theirs(monkeypatch):
    monkeypatch.setattr(recording, "FLUSH_ROWS", 4)
    batches = []
    recorder = HistoryRecorder([batches.append], slack_us=10)
    recorder.add(EventKind.PUBLISH, [30, 10], publisher=1, sequence=[1, 0])
    recorder.add(EventKind.DELIVER, [10, 50], subscriber=2)
    recorder.advance(45)
    recorder.add(EventKind.DELIVER, [35], subscriber=3)
    recorder.close()
    assert [batch.time_us.tolist() for batch in batches] == [[10, 10, 30], [35, 50], [50]]
    assert batches[0].kind.tolist() == [EventKind.PUBLISH, EventKind.DELIVER, EventKind.PUBLISH]
    assert np.concatenate([batch.event_id for batch in batches]).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_row_that_comes_after_its_successors_have_left_is_an_error(monkeypatch):
    monkeypatch.setattr(recording, "FLUSH_ROWS", 1)
    recorder = HistoryRecorder([], slack_us=0)
    recorder.add(EventKind.CUT, [10])
    recorder.advance(20)
    recorder.add(EventKind.CUT, [19])
    with pytest.raises(AssertionError, match="19 us"):
        recorder.close()


def test_the_digest_depends_on_the_rows():
    def digest(last):
        recorder = HistoryRecorder([], slack_us=0)
        for time in (1, 2, 3, last):
            recorder.add(EventKind.PUBLISH, [time], sequence=time)
        recorder.close()
        return recorder.digest

    assert digest(4) == digest(4) != digest(5)
