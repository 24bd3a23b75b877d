"""The tables of sensitivities: every number that nobody has published, varied one at a time."""

import pytest

from orderlab.model.errors import InputError
from orderlab.sim.costs.cost_model import load_costs
from tests.laboratory import cost_sensitivity as sensitivity


def test_what_was_published_is_not_varied_and_every_number_of_a_table_is():
    names = dict(sensitivity.uncertain(load_costs("prototype")))
    assert "network.gbit_per_s" not in names
    assert {"broker.persist_us", "postgres.select_us", "host.other_us", "redis.commands_us.hset"} <= set(names)
    assert names["redis.commands_us.hset"] == 0.9


def test_a_row_tells_half_and_double_and_whether_there_is_a_difference(monkeypatch):
    def figures(system, costs, more):
        return {"delivery ms": costs.partition("broker.match_us=")[2] or "base"}

    monkeypatch.setattr(sensitivity, "figures", figures)
    lines = list(sensitivity.table("tbmq-jedis", ["broker.match_us", "kafka.request_us"], {}))
    assert lines[2:] == [
        "| base | base |", "| `broker.match_us` 24 | 12.0, 48.0 |", "| `kafka.request_us` 60 | no difference |",
    ]  # fmt: skip


def test_a_dearer_stage_lowers_the_ceiling_and_a_name_alone_is_enough():
    small = {"publishers": "2000", "warm_up_s": "0.05", "duration_s": "0.1"}
    base, row = list(sensitivity.table("tbmq-jedis", ["host.other_us"], small))[2:]
    half, double = (float(cell.strip().rstrip("k")) for cell in row.split("|")[4].split(","))
    assert half > float(base.split("|")[4].strip().rstrip("k")) > double


def test_a_system_without_a_rate_to_vary_costs_at_is_refused():
    with pytest.raises(InputError, match="tbmq-application"):
        list(sensitivity.table("tbmq-application", [], {}))
