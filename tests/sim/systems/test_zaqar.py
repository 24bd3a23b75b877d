"""Feeds behind a web head: each cure keeps the laws, none of them breaks `cursor-safe`; faults leave what they
leave."""

import tomllib
from typing import Any

import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.sim.costs.cost_model import FOLDER
from orderlab.sim.feed.reader import Reader
from orderlab.sim.systems.catalogue import SYSTEMS, settings_of

SHORT = {"duration_s": 0.3, "warm_up_s": 0.05, "drain_s": 0.5, "reconnect_ms": 10}


def simulated(name: str, seed: int = 1, **given: Any) -> tuple[dict[str, Any], dict[str, Outcome], str]:
    batches: list[Any] = []
    system = SYSTEMS[name].assemble(settings_of(name, {**SHORT, **given}), seed, [batches.append])
    report = system.run()
    verdicts, _ = judge(in_memory(name, batches, system.names()), Question(is_feed=True))
    return report, {one.law: one.outcome for one in verdicts if not one.vacuous}, system.digest


@pytest.mark.parametrize("name", ["zaqar-watch", "zaqar-lua"])
def test_a_cure_keeps_every_law(name: str) -> None:
    report, laws, digest = simulated(name, messages=2)
    assert set(laws.values()) == {Outcome.HOLDS}
    assert {"cursor-safe", "no-repeat", "fifo", "at-least-once", "no-phantom"} <= laws.keys()
    assert report["counts"]["orphans"] == report["counts"]["errors"] == 0
    assert (report["counts"]["conflicts"] > 0) == (name == "zaqar-watch")
    assert simulated(name, messages=2)[2] == digest


@pytest.mark.parametrize("name", ["zaqar-watch", "zaqar-lua", "zaqar-race"])
@pytest.mark.parametrize("poll_ms", [10, 1000])
def test_what_expires_before_the_run_is_over_is_not_lost(name: str, poll_ms: int) -> None:
    """But what a reader has passed over while it was there is."""
    report, laws, _ = simulated(name, producers=3, ttl_s=1, poll_ms=poll_ms, duration_s=1.1)
    assert (laws["at-least-once"] is Outcome.VIOLATED) == (name == "zaqar-race" and poll_ms == 10)
    assert Outcome.VIOLATED not in (laws["fifo"], laws["no-phantom"], laws["no-repeat"])
    assert report["counts"]["orphans"] == 0


def test_without_a_cure_messages_appear_behind_markers() -> None:
    assert simulated("zaqar-race", poll_ms=1)[1]["cursor-safe"] is Outcome.VIOLATED


def test_a_reader_whose_marker_stays_a_message_behind_is_handed_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def page(self: Reader) -> int:
        before, count = self.marker, listed(self)
        if count == 1:
            self.marker = before
        return count

    listed = Reader.page
    monkeypatch.setattr(Reader, "page", page)
    assert {law for law, outcome in simulated("zaqar-lua", poll_ms=1)[1].items() if outcome is Outcome.VIOLATED} == {
        "no-repeat"
    }


def test_one_producer_cannot_race_with_itself() -> None:
    report, laws, _ = simulated("zaqar-race", producers=1, poll_ms=1)
    assert laws["cursor-safe"] is Outcome.HOLDS
    report, _, _ = simulated("zaqar-watch", producers=1)
    assert report["counts"]["conflicts"] == 0


@pytest.mark.parametrize("name", ["zaqar-watch", "zaqar-lua"])
@pytest.mark.parametrize("fault", ["redis-restart", "redis-connection-loss"])
def test_a_lost_connection_loses_nothing(name: str, fault: str) -> None:
    report, laws, _ = simulated(name, faults=f"{fault}@0.15:0:0.05")
    assert set(laws.values()) == {Outcome.HOLDS}
    assert report["counts"]["retried"] > 0
    stored_twice = report["counts"]["delivered"] - report["counts"]["published"]
    assert report["counts"]["orphans"] > 0 if name == "zaqar-lua" else report["counts"]["orphans"] == 0
    assert abs(stored_twice) < report["counts"]["retried"] + 18


def test_a_stall_is_waited_for() -> None:
    report, laws, _ = simulated("zaqar-lua", faults="redis-stall@0.15:0:0.05")
    assert set(laws.values()) == {Outcome.HOLDS}
    assert report["latency"]["request"]["max_ms"] > 45
    assert report["counts"]["retried"] == 0


def test_a_request_that_never_gets_through_is_an_error_of_its_client() -> None:
    report, laws, _ = simulated("zaqar-watch", producers=30, queues=1, retry_s=0.02)
    assert report["counts"]["errors"] > 0
    assert set(laws.values()) == {Outcome.HOLDS}


@pytest.mark.parametrize("faults", ["broker-crash@0.1:0", "redis-stall@0.1:9", "redis-stall@90:0"])
def test_a_fault_that_cannot_strike_is_refused(faults: str) -> None:
    with pytest.raises(InputError, match="faults: "):
        simulated("zaqar-lua", faults=faults)


def test_costs_of_brokers_do_not_move_what_was_fitted_to_the_feed() -> None:
    """Every number of Redis and of the network that the feed uses stands in its own file."""
    own = tomllib.loads((FOLDER / "zaqar.toml").read_text())
    needed = {"evalsha_us", "io_us", "syscall_us", "unknown_command_us", "speed", "commands_us"}
    assert needed <= own["redis"].keys()
    assert {"floor_us", "median_us", "sigma"} <= own["network"].keys()


def test_slices_hold_every_message_and_a_fault_that_stops_all_is_recovered_from() -> None:
    def made(lasts_s: float) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        given = {
            "duration_s": 0.7,
            "warm_up_s": 0,
            "readers": 2,
            "reconnect_ms": 10,
            "faults": f"redis-restart@0.3:0:{lasts_s}",
        }
        system = SYSTEMS["zaqar-watch"].assemble(settings_of("zaqar-watch", given), 1, [])
        report = system.run()
        return system.series.table(), report

    rows, report = made(0.1)
    assert sum(row["in_per_s"] for row in rows) / 20 == report["counts"]["published"]
    assert sum(row["out_per_s"] for row in rows) / 20 >= 2 * report["counts"]["published"]
    assert sum(row["conflicts_per_s"] for row in rows) / 20 >= report["counts"]["conflicts"] > 0
    assert rows[-1]["unread_feeds"] <= 36, "the last poll"
    (told,) = report["recovery"]
    assert (told["fault"], told["node"], told["at_s"]) == ("redis-restart", "redis-0", 0.3)
    assert 0.1 <= told["recovered_s"] <= 0.3
    rows, report = made(5)
    assert report["recovery"][0]["recovered_s"] is None
    assert {row["in_per_s"] for row in rows if 0.4 < row["at_s"] <= 0.7} == {0}, "all wait for the process that is down"


def test_a_message_behind_a_marker_is_never_read() -> None:
    left = {}
    for name in ("zaqar-race", "zaqar-lua"):
        system = SYSTEMS[name].assemble(settings_of(name, {**SHORT, "poll_ms": 1}), 1, [])
        system.run()
        left[name] = system.series.table()[-1]["unread_feeds"]
    assert left["zaqar-race"] > 20 > left["zaqar-lua"]
