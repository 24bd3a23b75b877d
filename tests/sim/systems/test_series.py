"""A run over time, what decides in it, and how long it takes to recover from a fault."""

import pytest

from orderlab.sim.systems.catalogue import entry, settings_of
from orderlab.sim.systems.series import recoveries_over, recovery, table_over

SMALL = {"publishers": 60, "rate": 50, "warm_up_s": 0.2, "duration_s": 0.6, "partitions": 2, "redis_nodes": 1}


def run(system="tbmq-p2p", **settings):
    built = entry(system).assemble(settings_of(system, {**SMALL, **settings}), 3, [])
    return built, built.run()


@pytest.fixture(scope="module")
def stalled():
    return run(faults="redis-stall@0.4:0:0.1")


def test_the_stages_of_the_way_add_up_to_all_of_it():
    _, report = run()
    assert sum(report["stages_ms"].values()) == pytest.approx(
        report["latency"]["publish_to_delivery"]["mean_ms"], rel=0.001
    )


@pytest.mark.parametrize("warm_up_s", [0.2, 0.15, 0.1234])
def test_slices_hold_every_message_once(warm_up_s):
    """Also where the measured interval does not begin at the end of a slice: there the next one begins."""
    built, report = run(faults="redis-stall@0.4:0:0.1", warm_up_s=warm_up_s)
    rows = built.series.table()
    width = [b["at_s"] - a for a, b in zip([0.0, *(row["at_s"] for row in rows)], rows, strict=False)]
    assert round(sum(row["out_per_s"] * each for row, each in zip(rows, width, strict=True))) == pytest.approx(
        report["counts"]["delivered"], rel=0.01
    )
    assert (
        round(sum(row["in_per_s"] * each for row, each in zip(rows, width, strict=True)))
        == report["counts"]["published"]
    )


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


@pytest.mark.parametrize(("per_s", "recovered_s"), [(1000, None), (100, 0.0)])
def test_nothing_published_and_nothing_arrived_is_a_disturbance_where_that_is_no_chance(per_s, recovered_s):
    """Publishers that wait for answers publish nothing while nobody answers; with two messages a slice one without any
    is nothing odd."""
    rows = [
        {"at_s": at / 50, "in_per_s": per_s * (at <= 20), "latency_ms": 1.0 if at <= 20 else None}
        for at in range(1, 41)
    ]
    assert recovery("redis-stall", "redis-0", 400_000, 800_000, rows).recovered_s == recovered_s


def slices(latencies, out_per_s=1000, published_until=40):
    """Of 20 ms each, the publishers at work in the first ``published_until``."""
    return [
        {"at_s": at / 50, "in_per_s": 1000 * (at <= published_until), "latency_ms": each, "out_per_s": out_per_s}
        for at, each in enumerate(latencies, 1)
    ]


def test_no_recovery_is_told_while_latency_climbs_nor_where_one_slice_before_was_high():
    """A slice at the beginning was high, so that none that climbs is above it; steady ones are no climb."""
    before = [9.0, *[1.0] * 19]
    climbing = [1.0 + 0.3 * number for number in range(20)]
    told = recovery("redis-stall", "redis-0", 400_000, 800_000, slices([*before, *climbing]))
    assert (told.recovered_s, told.why[:20]) == (None, "latency still climbe")
    for calm in ([1.0, 1.05] * 10, climbing[::-1], [1.0] * 19 + [3.0]):
        assert recovery("redis-stall", "redis-0", 400_000, 800_000, slices([*before, *calm])).recovered_s == 0.0


@pytest.mark.parametrize(
    ("out_per_s", "is_last", "over_us", "recovered_s"),
    [
        (1000, True, 2_000_000, 0.7),
        (1000, False, 2_000_000, 0.0),  # another fault struck in between
        (1000, True, 1_100_000, None),  # the run was over before all had come
        (1, True, 2_000_000, 0.0),  # the slow ones come last, and are fewer at once than were under way before
    ],
)
def test_what_comes_late_after_the_publishers_have_stopped_is_in_the_recovery(out_per_s, is_last, over_us, recovered_s):
    rows = slices([*[1.0] * 40, *[None] * 10]) + [
        {"at_s": at / 50, "in_per_s": 0, "latency_ms": 700.0, "out_per_s": out_per_s} for at in range(51, 56)
    ]
    told = recovery("kafka-leader-change", "kafka-0", 400_000, 800_000, rows, is_last=is_last, over_us=over_us)
    assert told.recovered_s == recovered_s


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


def strike(recovered_s, fault="redis-stall", node="redis-0", at_s=0.4, why=""):
    return {"fault": fault, "node": node, "at_s": at_s, "recovered_s": recovered_s, "why": why}


def test_recovery_over_replications_has_an_interval():
    (told,) = recoveries_over([[strike(each)] for each in (0.1, 0.12, 0.14, 0.16)])
    assert (told["runs"], told["recovered_runs"], told["recovered_s"], told["node"]) == (4, 4, 0.13, "redis-0")
    assert (told["least_s"], told["greatest_s"]) == (0.1, 0.16)
    assert told["low_s"] == pytest.approx(0.0689, abs=1e-4)  # Student's t with 3 degrees of freedom, and a slice
    assert told["high_s"] == pytest.approx(0.1911, abs=1e-4)


def test_runs_that_did_not_recover_are_told_and_not_averaged():
    (told,) = recoveries_over([[strike(0.1)], [strike(None, why="too short")], [strike(0.2)]])
    assert (told["runs"], told["recovered_runs"], told["recovered_s"], told["why"]) == (3, 2, 0.15, "too short")
    (alone,) = recoveries_over([[strike(0.1)], [strike(None, why="too short")]])
    assert (alone["recovered_s"], alone["low_s"], alone["high_s"]) == (0.1, None, None)


def test_a_recovery_that_one_run_carries_says_so():
    (told,) = recoveries_over([[strike(0.1 + 0.001 * place)] for place in range(9)] + [[strike(3.0)]])
    assert told["carried"].startswith("recovered_s: 1 of 10 runs carries the mean")
    (even,) = recoveries_over([[strike(0.1 + 0.001 * place)] for place in range(10)])
    assert even["carried"] == ""


def test_equal_recoveries_are_no_certainty():
    (told,) = recoveries_over([[strike(0.1)]] * 5)
    assert (told["low_s"], told["high_s"]) == (0.08, 0.12)


def test_strikes_are_one_by_node_then_by_instant_then_by_fault():
    by_node = recoveries_over([[strike(0.1), strike(0.3, node="redis-1")]] * 2)
    assert [(one["node"], one["recovered_s"]) for one in by_node] == [("redis-0", 0.1), ("redis-1", 0.3)]
    (by_instant,) = recoveries_over([[strike(0.1)], [strike(0.3, node="redis-1")]])
    assert (by_instant["node"], by_instant["at_s"], by_instant["recovered_s"]) == ("", 0.4, 0.2)
    (drawn,) = recoveries_over([[strike(0.1, at_s=0.2), strike(0.3, at_s=0.5)], [], [strike(0.4, at_s=0.3)]])
    assert (drawn["at_s"], drawn["runs"], drawn["recovered_s"]) == (None, 2, 0.3)


def test_slices_over_replications_have_intervals_where_two_runs_have_a_figure():
    rows = [{"at_s": 0.02, "latency_ms": each} for each in (10.0, 12.0, None)]
    ends = [{"at_s": at_s, "latency_ms": 1.0} for at_s in (0.031, 0.04, 0.04)]
    (row,) = table_over([[one, end] for one, end in zip(rows, ends, strict=True)])
    assert (row["at_s"], row["latency_ms"], row["latency_ms_low"], row["latency_ms_high"]) == (
        0.02,
        11.0,
        0.0,
        pytest.approx(23.71),
    )
    (alone,) = table_over([[{"at_s": 0.02, "latency_ms": 3.0}]])
    assert (alone["latency_ms"], alone["latency_ms_low"]) == (3.0, None)


COVERED = {**SMALL, "duration_s": 0.5, "faults": "redis-stall@0.4:0:0.1"}


@pytest.mark.exhaustive
def test_intervals_of_recovery_and_of_slices_hold_the_means_of_many_runs():
    """The figures of ``notes/statistics.md``: 300 runs for the truth, 40 other sets of five that are held against
    it."""

    def one(seed):
        built = entry("tbmq-p2p").assemble(settings_of("tbmq-p2p", COVERED), seed, [])
        return built.run()["recovery"], built.series.table()

    runs = [one(seed) for seed in range(500)]
    truth, mean = (
        recoveries_over([recovery for recovery, _ in runs[:300]])[0]["recovered_s"],
        table_over([rows for _, rows in runs[:300]]),
    )
    held, slices = [], []
    for start in range(300, 500, 5):
        part = runs[start : start + 5]
        (told,) = recoveries_over([recovery for recovery, _ in part])
        held.append(told["low_s"] <= truth <= told["high_s"])
        for row, true in zip(table_over([rows for _, rows in part]), mean, strict=False):
            for name in ("latency_ms", "out_per_s"):
                if row[f"{name}_low"] is not None:
                    slices.append(row[f"{name}_low"] <= true[name] <= row[f"{name}_high"])
    print(f"recovery: {sum(held)} of {len(held)}; slices: {sum(slices) / len(slices):.1%} of {len(slices)}")
    assert sum(held) >= 0.95 * len(held) - 3 * (0.95 * 0.05 * len(held)) ** 0.5
    assert sum(slices) >= 0.9 * len(slices)  # slices in which a backlog empties are skewed
