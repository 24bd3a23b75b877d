"""A call that fails is made again after pauses that grow, as long as it matters to somebody."""

from collections import Counter
from types import SimpleNamespace

import pytest

from orderlab.sim.engine.clock import Clock
from orderlab.sim.mqtt.broker import node
from orderlab.sim.mqtt.broker.node import RetryingCaller
from orderlab.sim.systems.tbmq_p2p import P2PSettings, P2PSystem


class Broker:
    """A broker whose store answers each call at once with the next of ``replies``, the last one for ever."""

    def __init__(self, *replies, damaged=False):
        self.env, self.is_dead, self.counts, self.made_us = Clock(), False, Counter(), []
        self.replies = list(replies)
        self.driver = self
        store = SimpleNamespace(is_damaged=lambda reply: damaged)
        self.measured = SimpleNamespace(count=lambda what: self.counts.update([what]))
        self.storage = SimpleNamespace(node_of=[0], store=store)

    def submit(self, nodes, calls, on_done):
        self.made_us.append(self.env.now)
        on_done([self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]])


def make(broker, until_us, still_matters=lambda: True):
    calls, found, over = RetryingCaller(broker, broker.storage), [], []
    calls.make(
        0, "call", lambda reply: reply, found.append, still_matters, "failed", lambda: over.append(broker.env.now)
    )
    broker.env.run(until=until_us)
    return calls, found, over


def test_pauses_double_up_to_the_longest():
    broker = Broker(None)
    calls, found, _ = make(broker, 4_300_000)
    pauses = [after - before for before, after in zip(broker.made_us, broker.made_us[1:], strict=False)]
    assert pauses == [10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 640_000, 1_000_000, 1_000_000, 1_000_000]
    assert broker.counts["failed"] == 11
    assert not found
    assert calls.waiting == 1


def test_the_first_reply_that_says_something_ends_it():
    broker = Broker(None, None, 7)
    calls, found, over = make(broker, 1_000_000)
    assert (broker.made_us, found, over, calls.waiting) == ([0, 10_000, 30_000], [7], [], 0)
    assert make(Broker(7), 1_000_000)[1] == [7]


def test_what_does_not_matter_any_more_is_not_made_again():
    broker = Broker(None)
    calls, found, over = make(broker, 1_000_000, lambda: broker.env.now < 25_000)
    assert (broker.made_us, found, over, calls.waiting) == ([0, 10_000], [], [30_000], 0)


def test_nothing_is_under_way_where_the_session_is_damaged_for_good():
    assert make(Broker(None, damaged=True), 1_000_000)[0].waiting == 0


@pytest.mark.parametrize("scripts", ["published", "session"])
def test_a_store_that_refuses_for_long_is_not_asked_without_a_pause(scripts, monkeypatch):
    def clears_failed():
        settings = P2PSettings(
            publishers=20,
            rate=20.0,
            warm_up_s=0.1,
            duration_s=0.6,
            drain_s=3.0,
            offline_share=1.0,
            online_s=0.1,
            offline_s=0.1,
            clean_start_share=1.0,
            scripts=scripts,
            faults="redis-oom@0.3:0:1" if scripts == "session" else "redis-stall@0.3:0:1",
            command_timeout_s=0.02,
            pack_pause_s=0.1,
        )
        system = P2PSystem(settings, 1, [])
        counts = system.run()["counts"]
        assert not system.world.delivery.connections.fetching
        assert system.world.delivery.connections.exists.all()
        return counts["clears_failed"]

    patient = clears_failed()
    assert patient > 0
    monkeypatch.setattr(node, "LONGEST_PAUSE_US", 0)
    monkeypatch.setattr(node, "FIRST_PAUSE_US", 0)
    assert clears_failed() > 2 * patient
