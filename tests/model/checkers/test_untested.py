"""For each law that a history did not test the verdict says why: what is not there, or what never happened."""

import pytest

from orderlab.model.checkers.findings import VACUOUS
from orderlab.model.checkers.judge import LAWS, PIPELINE_LAWS, Question, in_memory, judge
from orderlab.model.checkers.untested import ANTECEDENTS
from orderlab.model.history.notation import parse_history
from orderlab.model.verdict import Outcome


def verdicts(line, **options):
    history = parse_history(line)
    found, _ = judge(in_memory("a line", history.batches, history.names), Question(**options))
    return {verdict.law: verdict for verdict in found}


@pytest.mark.parametrize(
    ("law", "line", "reason"),
    [
        ("retransmission", "P1 D1 -", 'it has no deliver rows with "packet_id", and no connect rows'),
        ("retransmission", "+ D1#1 K#1", "its antecedent was met 0 times (a subscriber connects again"),
        ("expiry", "P1 D1", 'it has no publish rows with "expiry_interval_us"'),
        (
            "expiry",
            "P1%30",
            "its antecedent was met 0 times (a message with an expiry interval is delivered or expires)",
        ),
        ("subscribed", "P1 D1", "it has no subscribe rows"),
        ("granted-qos", "S P1 D1", 'it has no subscribe rows with "qos"'),
        ("no-phantom", "D1", "it has no publish rows"),
        ("at-least-once", "S P1 D1", "it has no publish_acknowledged rows"),
        ("at-least-once", "S P1q0 A1q0", "its antecedent was met 0 times"),
        ("handshake", "P1q2 D1q2#1 -", 'it has no receive or release or acknowledge rows with "packet_id"'),
        ("receive-maximum", "+ D1#1", 'it has no connect rows with "receive_maximum"'),
        ("fifo", "P1 D1", "its antecedent was met 0 times (a second message"),
    ],
)
def test_the_reason_names_what_is_not_there_or_never_happened(law, line, reason):
    verdict = verdicts(line)[law]
    assert (verdict.outcome, verdict.vacuous) == (Outcome.UNKNOWN, True)
    assert any(note.startswith(f"{VACUOUS}: {reason}") for note in verdict.not_covered), verdict.not_covered


@pytest.mark.parametrize(
    ("law", "line", "reason"),
    [
        (
            "no-lost-write",
            '0(send:[["send","k",1]] 0):[["send","k",[0,1]]]',
            "a send is acknowledged with an offset at or below",
        ),
        ("no-phantom", '0(send:[["send","k",1]] 0):[["send","k",[0,1]]]', "a poll returns a value"),
        ("linearizability", "0(write.x:1 0)", "an operation completes with a result"),
    ],
)
def test_the_reason_of_laws_of_operations(law, line, reason):
    verdict = verdicts(line)[law]
    assert verdict.vacuous
    assert any(reason in note for note in verdict.not_covered), verdict.not_covered


def test_every_law_has_one():
    assert set(ANTECEDENTS) >= set(LAWS)


@pytest.mark.parametrize(
    "line", ["P1", "S", "+", "C", "H", "F", "T1", "K#1", "R#1", "Z", "X", "P1 D1", "S P1 A1 D1", "D1#1"]
)
def test_no_law_holds_that_was_not_tested(line):
    for verdict in verdicts(line, drain_bound_us=1000).values():
        if verdict.law in PIPELINE_LAWS and not verdict.work["antecedents"]:
            assert verdict.vacuous
            assert any(note.startswith(f"{VACUOUS}: ") for note in verdict.not_covered)
