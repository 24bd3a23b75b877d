"""How a broker spreads its work over threads: what that does to latency, that order survives it, and the published
rows."""

from statistics import median

import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.errors import InputError
from orderlab.sim.costs.cost_model import load_costs
from orderlab.sim.systems.catalogue import entry, settings_of


def run(costs, seed=1, system="tbmq-p2p", **settings):
    batches = []
    built = entry(system).assemble(
        settings_of(system, {**settings, "costs": f"cluster {costs}"}), seed, [batches.append]
    )
    return built, built.run(), batches


BUSY = {"publishers": 600, "rate": 28, "partitions": 1, "warm_up_s": 0.1, "duration_s": 0.2}
"""16,800 messages a second through one partition, whose thread has 65 us of work for each: more than it can do."""


def latency_ms(threads):
    _, report, _ = run(f"broker.match_us=65 {threads}", **BUSY)
    return report["latency"]["publish_to_delivery"]["mean_ms"]


def test_what_the_one_thread_of_a_partition_leaves_to_others_costs_no_latency():
    alone, in_halves, in_a_pack = (
        latency_ms(f"threads.{split}") for split in ("consumer_share=1", "consumer_share=0.5", "pack=4")
    )
    assert in_halves < 0.8 * alone
    assert in_a_pack < 0.8 * alone


SPREAD = {"publishers": 20, "brokers": 3, "rate": 100, "warm_up_s": 0.1, "duration_s": 0.3, "partitions": 4}


@pytest.mark.parametrize(
    "threads", ["pack=4 threads.consumer_share=0", "downlink_partitions=5", "downlink_partitions=1", "all_consumers=1"]
)
def test_order_survives_however_the_work_is_spread(threads):
    built, _, batches = run(f"threads.{threads}", **SPREAD)
    verdicts, _ = judge(in_memory("run", batches, built.names()), Question())
    fifo = next(verdict for verdict in verdicts if verdict.law == "fifo")
    assert str(fifo.outcome) == "holds"


def test_a_downlink_of_several_partitions_lingers_where_one_fills_its_batches():
    """Between two brokers: 5,000 records a second that fill batches of 8 in one partition, and not in each of 12."""
    hop = {
        "publishers": 500,
        "rate": 20,
        "brokers": 2,
        "partitions": 2,
        "batch_bytes": 8 * 302,
        "warm_up_s": 0.1,
        "duration_s": 0.2,
    }
    one, twelve = (
        median(
            run(f"threads.downlink_partitions={count}", seed, **hop)[1]["latency"]["publish_to_delivery"]["mean_ms"]
            for seed in (1, 2, 3)
        )
        for count in (1, 12)
    )
    assert twelve > one + 1.5


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("threads.pack=0", "threads.pack"),
        ("threads.consumer_share=1.5", "threads.consumer_share"),
        ("threads.all_consumers=0", "threads.all"),
    ],
)
def test_threads_that_no_broker_has_are_refused(change, names):
    with pytest.raises(InputError, match=names):
        load_costs(f"cluster {change}")


def test_a_cost_model_without_a_source_for_its_threads_is_refused(tmp_path):
    text = (load_costs.__globals__["FOLDER"] / "cluster.toml").read_text()
    file = tmp_path / "mine.toml"
    file.write_text("\n".join(line for line in text.splitlines() if not line.startswith('"threads.pack"')))
    with pytest.raises(InputError, match=r"threads\.pack"):
        load_costs(str(file))


PUBLISHED_MS = {"200k": 32, "400k": 50, "600k": 57, "1m": 75}


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", PUBLISHED_MS)
def test_every_published_row_comes_out_within_15_percent(row):
    _, report, _ = run("", seed=0, row=row, warm_up_s=0.4, duration_s=0.3)
    assert report["latency"]["publish_to_delivery"]["mean_ms"] == pytest.approx(PUBLISHED_MS[row], rel=0.15)
    assert report["latency"]["publish_to_puback"]["mean_ms"] < 10
    assert max(report["utilisation"]["broker"]) < 0.96


@pytest.mark.exhaustive
def test_the_published_numbers_of_consumers_need_threads_that_only_hand_on():
    """``notes/predictions-cluster.md``: several partitions a thread cost as much as the thread itself for a message."""
    light, heavy = (
        run(
            f"threads.all_consumers=4 threads.persisted_consumers=3 threads.consumer_share={share}",
            seed=0,
            row="200k",
            warm_up_s=0.2,
            duration_s=0.15,
        )[1]
        for share in (0, 0.5)
    )
    assert light["latency"]["publish_to_delivery"]["mean_ms"] == pytest.approx(32, rel=0.15)
    assert heavy["latency"]["publish_to_delivery"]["mean_ms"] > 1.5 * 32
    assert max(max(packs["records"]) for packs in heavy["packs"].values()) < 1000
