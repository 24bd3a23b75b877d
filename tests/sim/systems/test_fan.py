"""Fan-out without sessions, and fan-in by groups of devices, each with an application of its own."""

import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.errors import InputError
from orderlab.sim.systems.catalogue import entry, settings_of

SMALL = {"warm_up_s": 0.05, "duration_s": 0.2, "publishers": 12, "rate": 50, "brokers": 2}
APART = {**SMALL, "applications": 4, "shared_groups": 2, "group_members": 2, "device_groups": 4}


def run(name, **given):
    """(verdicts by law, counts, the system)."""
    batches = []
    system = entry(name).assemble(settings_of(name, given), 1, [batches.append])
    report = system.run()
    verdicts, _ = judge(in_memory("run", batches, system.names()), Question())
    return {verdict.law: verdict.outcome for verdict in verdicts}, report["counts"], system


def test_every_subscriber_with_a_wildcard_gets_every_message_in_order():
    verdicts, counts, _ = run("tbmq-fan-out", **SMALL, subscribers=20)
    assert counts["delivered"] == 20 * counts["published"] > 0
    assert {verdicts[law] for law in ("fifo", "no-phantom", "subscribed")} == {"holds"}
    assert "violated" not in verdicts.values()


@pytest.mark.parametrize(
    "fault", ["broker-crash", "client-link-cut", "session-takeover", "network-partition", "client-half-open"]
)
def test_a_subscriber_that_comes_back_without_a_session_is_owed_nothing(fault):
    verdicts, counts, _ = run("tbmq-fan-out", **SMALL, subscribers=20, faults=f"{fault}@0.1:0")
    assert 0 < counts["delivered"] <= 20 * counts["published"]
    assert verdicts["no-phantom"] == "holds"


@pytest.mark.parametrize(
    "given",
    [
        {"qos": 1},
        {"publish_qos": "0=0.5 1=0.5"},
        {"retained_share": 0.5},
        {"clean_start_share": 0.5},
        {"session_expiry_s": 1},
    ],
)
def test_fan_out_has_no_store_for_what_is_kept(given):
    with pytest.raises(InputError):
        settings_of("tbmq-fan-out", {**SMALL, **given})


def test_an_application_reads_its_own_group_of_devices_alone():
    verdicts, counts, system = run("tbmq-application", **APART)
    assert counts["delivered"] == pytest.approx(1.5 * counts["published"], abs=3), (
        "four groups of devices are read once, two of them twice"
    )
    assert "violated" not in verdicts.values()
    assert [queue.topic_filter for queue in system.applications.queues] == [
        "p/0/+",
        "p/1/+",
        "p/2/+",
        "p/3/+",
        "$share/g0/p/0/+",
        "$share/g1/p/1/+",
    ]


def test_one_group_of_devices_is_read_by_all():
    _, counts, _ = run("tbmq-application", **{**APART, "device_groups": 1})
    assert counts["delivered"] == 6 * counts["published"] > 0
