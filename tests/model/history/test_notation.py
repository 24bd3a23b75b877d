"""The notation says what its table says, and refuses what it cannot read."""

import pytest

from orderlab.model.errors import InputError
from orderlab.model.history.events import describe_event
from orderlab.model.history.notation import parse_history


def test_a_word_is_an_event_with_its_defaults_and_its_exceptions():
    history = parse_history("P1 @30 D2q2d1.b>c#7!%40=3:a/b 3(write.k:[1,2] 3)")
    events = [describe_event(history.joined(), row, history.names) for row in range(len(history))]
    assert events == [
        {"event_id": 0, "time_us": 0, "kind": "publish", "publisher": "p", "topic": "t", "qos": 1, "sequence": 1},
        {
            "event_id": 1,
            "time_us": 30_000,
            "kind": "deliver",
            "publisher": "b",
            "topic": "a/b",
            "qos": 2,
            "subscriber": "c",
            "sequence": 2,
            "packet_id": 7,
            "dup": True,
            "expiry_interval_us": 40_000,
            "delivered_qos": 1,
            "session": 3,
        },
        {
            "event_id": 2,
            "time_us": 31_000,
            "kind": "invoke",
            "process": 3,
            "operation": "write",
            "key": "k",
            "value": "[1,2]",
        },
        {
            "event_id": 3,
            "time_us": 32_000,
            "kind": "ok",
            "process": 3,
            "operation": "write",
            "key": "k",
            "value": "[1,2]",
        },
    ]


@pytest.mark.parametrize("line", ["Y1", "P1?", "P1.", "0)", "0<"])
def test_what_it_cannot_read_is_named(line):
    with pytest.raises(InputError, match="history notation"):
        parse_history(line)
