"""Calibration: a real server's counters become a cost model that loads, with a source for every number."""

import datetime
import tomllib

from orderlab.sim.costs.cost_model import costs_of, load_costs
from orderlab.sim.costs.fit import BATCH, Measured, cost_model, measure, to_toml
from orderlab.sim.redis.backends.server import ServerBackend


def told(save=11.0, larger=60.0, commands=None):
    return Measured(
        "redis 7.0.15 at here", commands or {"get": (0.3, 10), "config|set": (1.0, 1)}, {"save": 12.0},
        {"save": save, f"save of {BATCH}": larger}, 1.5, 13.0,
    )  # fmt: skip


def model(**published):
    both = {"published": told(**published), "session": told(commands={"get": (9.0, 1), "hset": (2.0, 5)})}
    return cost_model(both, "cluster", 20_000, datetime.date(2026, 11, 21))


def test_a_script_costs_something_once_and_something_per_message():
    redis = model(save=11.0, larger=65.0)["redis"]
    assert redis["lua_per_message_us"] == 6.0
    assert redis["evalsha_us"] == 5.0


def test_the_published_scripts_come_first_and_what_nobody_calls_is_kept():
    content = model()
    redis, before = content["redis"]["commands_us"], load_costs("cluster").redis.commands_us
    assert (redis["get"], redis["hset"], redis["zadd"]) == (0.3, 2.0, before["zadd"])
    assert "config|set" not in redis
    assert "2026-11-21, redis 7.0.15 at here" in content["sources"]["redis.commands_us.get"]
    assert "kept from cluster.toml" in content["sources"]["redis.commands_us.zadd"]


def test_what_is_written_is_read_back():
    content = model()
    assert tomllib.loads(to_toml(content, "one\ntwo")) == content
    costs_of(tomllib.loads(to_toml(content, "one")))


def test_a_real_server_is_measured_and_left_empty():
    server = ServerBackend.start()
    try:
        measured = measure(server, 1000)
        assert server.execute(b"DBSIZE") == 0
    finally:
        server.close()
    published = measured["published"]
    assert {"get", "set", "zadd", "zcard", "zrevrange", "del", "zrem"} <= set(published.commands)
    assert 0 < published.own_us["save"] < published.operations["save"] < published.operations[f"save of {BATCH}"]
    assert "hset" in measured["session"].commands
    assert cost_model(measured, "cluster", 1000, datetime.date(2026, 11, 21))["redis"]["evalsha_us"] >= 0
