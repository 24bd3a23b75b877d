"""A run over time, what decides in it, and how long it takes to recover from a fault."""

import pytest

from orderlab.sim.systems.catalogue import entry, settings_of

SMALL = {"publishers": 60, "rate": 50, "warm_up_s": 0.2, "duration_s": 0.6, "partitions": 2, "redis_nodes": 1}


def run(system="tbmq-p2p", **settings):
    built = entry(system).assemble(settings_of(system, {**SMALL, **settings}), 3, [])
    return built, built.run()


@pytest.fixture(scope="module")
def stalled():
    return run(faults="redis-stall@0.4:0:0.1")


def test_the_stages_of_the_way_add_up_to_all_of_it():
    _, report = run()
    assert sum(report["stages_ms"].values()) == pytest.approx(report["latency"]["publish_to_delivery"]["mean_ms"], rel=0.001)


def test_slices_hold_every_message_once(stalled):
    built, report = stalled
    rows = built.series.table()
    width = [b["at_s"] - a for a, b in zip([0.0, *(row["at_s"] for row in rows)], rows, strict=False)]
    assert round(sum(row["out_per_s"] * each for row, each in zip(rows, width, strict=True))) == pytest.approx(report["counts"]["delivered"], rel=0.01)
    assert round(sum(row["in_per_s"] * each for row, each in zip(rows, width, strict=True))) == report["counts"]["published"]


def test_recovery_takes_as_long_as_the_stall_and_the_backlog(stalled):
    _, report = stalled
    (told,) = report["recovery"]
    assert (told["fault"], told["node"], told["at_s"]) == ("redis-stall", "redis-0", 0.4)
    assert 0.1 <= told["recovered_s"] <= 0.25


def test_a_fault_that_nobody_feels_needs_no_recovery():
    _, report = run(faults="broker-clock-skew@0.4:0")
    assert report["recovery"][0]["recovered_s"] == 0


def test_what_lasts_until_the_end_has_not_recovered():
    _, report = run(faults="redis-stall@0.4:0:5")
    (told,) = report["recovery"]
    assert told["recovered_s"] is None
    assert "still disturbed" in told["why"]


def test_a_fault_before_anything_was_delivered_is_measured_against_nothing():
    _, report = run(faults="redis-stall@0.001:0:0.05")
    assert report["recovery"][0]["why"] == "nothing was delivered before it"


def test_a_fault_after_the_last_publish_is_told_as_such():
    _, report = run(faults="redis-stall@0.9:0:0.05")
    assert report["recovery"][0]["why"] == "nobody published any more; strike before 0.8 s, or give a longer duration_s"


@pytest.mark.parametrize(("batch_bytes", "full"), [(302, 1.0), (1_000_000, 0.0)])
def test_batches_leave_because_they_are_full_or_have_lingered(batch_bytes, full):
    _, report = run(batch_bytes=batch_bytes)
    assert {each["full"] for each in report["batches"].values()} == {full}


def test_packs_hold_what_was_read(stalled):
    built, report = stalled
    records = built.world.measured.packs
    assert sum(count for name, (_, count, _) in records.items() if "/msg.all/" in name) == report["counts"]["published"]
