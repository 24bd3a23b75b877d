"""Sessions that are full: what the limit pushed out is in the history, and nothing else is excused."""

import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.sim.mqtt.connections import TrimTracker
from orderlab.sim.systems.tbmq_p2p import P2PSettings, P2PSystem
from tests.laboratory.schedules import WAITING


def run(before=lambda system: None, seed=0, **settings):
    batches = []
    small = {
        "publishers": 20, "rate": 100.0, "warm_up_s": 0.1, "duration_s": 0.3, "drain_s": 2.0,
        "offline_share": 1.0, "online_s": 0.1, "offline_s": 0.1,
    }  # fmt: skip
    system = P2PSystem(P2PSettings(**{**small, **settings}), seed, [batches.append])
    before(system)
    counts = system.run()["counts"]
    verdicts, _ = judge(in_memory("run", batches, system.names()), Question())
    return counts, {verdict.law for verdict in verdicts if verdict.outcome == "violated"}


@pytest.mark.parametrize(("scripts", "limit"), [("published", 1), ("session", 1), ("published", 3), ("session", 3)])
def test_what_the_limit_pushes_out_is_not_lost(scripts, limit):
    counts, violated = run(scripts=scripts, limit=limit)
    assert "at-least-once" not in violated
    assert counts["trimmed"] > 0
    assert counts["delivered"] + counts["trimmed"] >= counts["published"]


@pytest.mark.parametrize("seed", [2, 43])
def test_what_was_trimmed_before_it_was_sent_on_does_not_overtake(seed):
    stalled = {**WAITING, "online_s": 0.5, "limit": 3, "faults": "redis-stall@0.25:0", "scripts": "session"}

    def forget_tokens(system):
        system.world.delivery.replayed.has_tokens = False

    assert not run(seed=seed, **stalled)[1]
    assert "fifo" in run(forget_tokens, seed, **stalled)[1]


def test_a_store_that_trims_below_its_limit_loses():
    def expect_more(system):
        system.world.delivery.trims.limit = 30

    assert "at-least-once" in run(limit=1, before=expect_more)[1]


def test_the_oldest_go_first_and_only_those_beyond_the_limit():
    trims = TrimTracker(2)
    assert trims.saved(7, [(0, 1), (1, 2)]) == []
    assert trims.saved(7, [(2, 3)]) == [(0, 1)]
    trims.removed(7, (1, 2))
    assert trims.saved(7, [(3, 4)]) == []
    assert trims.saved(8, [(4, 1)]) == []
    trims.cleared(7)
    assert trims.saved(7, [(5, 1), (6, 2), (7, 3)]) == [(5, 1)]


def test_nothing_is_kept_where_no_session_can_fill():
    assert not P2PSettings().may_fill
    assert P2PSettings(limit=2).may_fill
