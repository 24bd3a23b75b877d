"""The pipelined driver: flushes, NOSCRIPT, replay, timeouts, redirections; and the node behind it."""

import hashlib
from itertools import pairwise

import pytest

from orderlab.sim.costs.cost_model import load_costs
from orderlab.sim.drivers.pipelined import TIMED_OUT, PipelinedDriver, PipelineSettings
from orderlab.sim.engine.clock import Clock
from orderlab.sim.redis.cluster import Cluster
from orderlab.sim.redis.hash_slots import SLOT_COUNT, hash_slot
from orderlab.sim.servers.redis import COUNT_EVERY, COUNT_SELDOM, RedisNode
from orderlab.sim.servers.requests import Calls, Request

PUSH = b"return redis.call('RPUSH', KEYS[1], ARGV[1])"
SHA = hashlib.sha1(PUSH).hexdigest().encode()


def push(value, key=b"list"):
    return Request((b"EVALSHA", SHA, b"1", key, b"%d" % value), "push")


def one_by_one(values):
    return list(map(push, values))


def as_columns(values):
    """The same commands; their arguments are made where they run."""
    values = list(values)
    return Calls(lambda places, _: [[*push(values[place]).argv] for place in places], (values,), "push")


made = one_by_one


@pytest.fixture(autouse=True, params=[one_by_one, as_columns])
def commands(request, monkeypatch):
    """How a group is handed over: nothing that may happen to it depends on that."""
    monkeypatch.setitem(globals(), "made", request.param)


def system(nodes=1, batch=3, command_timeout_us=30_000_000, **node):
    env = Clock()
    made = [RedisNode(env, f"redis-{i}", load_costs("cluster").redis, [PUSH], **node) for i in range(nodes)]
    driver = PipelinedDriver(
        env, made, PipelineSettings(batch, 3000, 5000, command_timeout_us), {SHA: PUSH}, lambda: 100
    )
    return env, made, driver


def stored(node):
    return [int(value) for value in node.shard.execute((b"LRANGE", b"list", b"0", b"-1"))]


def submit(driver, values, node=0):
    replies = []
    driver.submit([node] * len(values), made(values), replies.extend)
    return replies


def test_a_full_buffer_is_flushed_at_once_and_the_rest_by_the_timer():
    env, (node,), driver = system()
    submit(driver, [1, 2, 3, 4])
    env.run(2900)
    assert stored(node) == [1, 2, 3]
    env.run(3200)
    assert stored(node) == [1, 2, 3, 4]
    assert driver.flushes == 2


def test_replies_come_in_the_order_of_the_commands():
    env, _, driver = system(nodes=2)
    replies = []
    driver.submit([0, 1, 0], made([1, 2, 3]), replies.extend)
    env.run(10_000)
    assert replies == [1, 1, 2]


@pytest.mark.parametrize("kept_by", [{"sync": "always"}, {"replica_lag_us": 0}, {"sync": "everysec"}])
def test_what_waits_in_the_queue_of_a_node_that_dies_has_not_run(kept_by):
    env, (node,), _ = system(**kept_by)
    heard = []
    node.receive([push(1)], heard.extend)
    env.run(3_000_000)
    node.stall(6_000_000)
    node.receive([push(2)], heard.extend)
    node.receive([push(3)], heard.extend)
    env.run(3_500_000)
    node.crash()
    assert (node.fail_over() if "replica_lag_us" in kept_by else node.restart()) == 0
    assert stored(node) == [1]
    env.run(9_000_000)
    assert heard == [1]


def test_a_clock_that_is_set_back_does_not_keep_commands_from_a_replica():
    env, (node,), _ = system(replica_lag_us=1000)
    node.epoch_us += 60_000_000
    node.receive([push(1)], lambda replies: None)
    node.epoch_us -= 60_000_000
    env.run(10_000)
    node.receive([push(2)], lambda replies: None)
    env.run(20_000)
    node.crash()
    assert node.fail_over() == 0
    assert stored(node) == [1, 2]


def test_an_unknown_script_is_loaded_and_called_again():
    env, (node,), driver = system()
    node.shard.execute((b"SCRIPT", b"FLUSH"))
    replies = submit(driver, [1, 2, 3])
    env.run(20_000)
    assert stored(node) == [1, 2, 3]
    assert replies == [1, 2, 3]
    assert driver.reloads == 3


def test_what_has_no_answer_is_sent_again_after_a_lost_connection_and_runs_twice():
    env, (node,), driver = system()
    replies = submit(driver, [1, 2, 3])
    env.run(105)  # the node has run them, the answer is on its way
    assert stored(node) == [1, 2, 3]
    driver.connections[0].lose()
    submit(driver, [4, 5, 6])
    env.run(20_000)
    assert stored(node) == [1, 2, 3, 1, 2, 3, 4, 5, 6]
    assert replies == [4, 5, 6]
    assert driver.replayed == 3


def test_a_failover_keeps_what_had_reached_the_replica():
    env, (node,), driver = system(replica_lag_us=4000)
    submit(driver, [1, 2, 3])
    env.run(5000)
    submit(driver, [4, 5, 6])
    env.run(6000)
    node.crash()
    env.run(60_000)  # nothing follows a dead master
    assert node.fail_over() == 3
    assert stored(node) == [1, 2, 3]


@pytest.mark.parametrize(("sync", "kept"), [("no", []), ("always", [1, 2, 3])])
def test_a_restart_keeps_what_the_file_holds(sync, kept):
    env, (node,), driver = system(sync=sync)
    submit(driver, [1, 2, 3])
    env.run(5000)
    node.crash()
    node.restart()
    assert stored(node) == kept


def test_what_costs_the_same_is_counted_ever_less_often_and_a_change_is_noticed():
    as_long = b"for _ = 1, redis.call('LLEN', KEYS[1]) do redis.call('EXISTS', KEYS[1]) end"
    _env, (node,), _ = system()
    node.shard.execute((b"SCRIPT", b"LOAD", as_long))
    write = [Request((b"EVALSHA", hashlib.sha1(as_long).hexdigest().encode(), b"1", b"list"), "walk")] * 64
    counted, count = [], node._count
    node._count = lambda request: (counted.append(node.requests), count(request))[1]

    def serve(commands):
        until = node.requests + commands
        while node.requests < until:
            node.run_requests(0, write)

    serve(5 * COUNT_SELDOM)
    gaps, known = [later - before for before, later in pairwise(counted)], len(counted)
    assert gaps[0] < 2 * COUNT_EVERY < gaps[1] < gaps[2] < gaps[-1] <= COUNT_SELDOM + 2 * len(write)
    node.shard.execute((b"RPUSH", b"list", b"1", b"2", b"3"))
    serve(COUNT_SELDOM + 2 * len(write))
    before = node.commands
    serve(len(write))
    assert node.commands - before == 5 * len(write), "EVALSHA, LLEN and three EXISTS"
    assert counted[known + 1] - counted[known] < 2 * COUNT_EVERY, "from then on it is counted as often as at first"


def test_commands_of_scripts_are_counted_and_cost_what_the_model_says():
    env, (node,), driver = system()
    submit(driver, [1, 2, 3])
    env.run(5000)
    assert node.commands == 6
    assert node.requests == 3
    costs = node.costs
    each = costs.io_us + costs.evalsha_us + costs.unknown_command_us
    assert node.busy_us == pytest.approx(costs.syscall_us + 3 * each)


def test_a_stalled_node_answers_later():
    env, (node,), driver = system()
    node.stall(50_000)
    replies = submit(driver, [1, 2, 3])
    env.run(49_000)
    assert replies == []
    env.run(51_000)
    assert replies == [1, 2, 3]


def test_a_command_without_an_answer_fails_for_its_caller_and_may_run_all_the_same():
    env, (node,), driver = system(command_timeout_us=20_000)
    node.stall(50_000)
    replies = submit(driver, [1, 2, 3])
    late = []
    env.run(15_000)
    driver.submit([0], made([4]), late.extend)
    env.run(20_500)
    assert replies == [TIMED_OUT] * 3
    assert late == []
    env.run(100_000)
    assert late == [TIMED_OUT]  # flushed at 18 ms
    assert stored(node) == [1, 2, 3, 4]
    assert driver.timeouts == 4


def test_an_answer_just_in_time_is_no_timeout():
    env, (node,), driver = system(command_timeout_us=60_000)
    node.stall(50_000)
    replies = submit(driver, [1, 2, 3])
    env.run(200_000)
    assert replies == [1, 2, 3]
    assert driver.timeouts == 0


def test_what_has_timed_out_is_not_sent_again_with_the_rest():
    env, (node,), driver = system(command_timeout_us=20_000)
    driver.connections[0].link.cut()
    submit(driver, [1, 2, 3])
    env.run(21_000)
    replies = submit(driver, [4, 5, 6])
    driver.lose(0)
    env.run(30_000)
    driver.connections[0].link.heal()
    env.run(40_000)
    assert stored(node) == [4, 5, 6]
    assert replies == [1, 2, 3]  # lengths of the list


def test_a_partition_shorter_than_the_timeout_delays_and_repeats_nothing():
    env, (node,), driver = system(command_timeout_us=500_000)
    driver.connections[0].link.cut()
    replies = submit(driver, [1, 2, 3])
    env.run(50_000)
    driver.connections[0].link.heal()
    env.run(400_000)
    assert replies == [1, 2, 3]
    assert stored(node) == [1, 2, 3]


def cluster_of_two():
    """Two nodes; the slot of ``list`` belongs to the first one."""
    env, nodes, driver = system(nodes=2)
    cluster = Cluster.of([node.shard for node in nodes], [0] * SLOT_COUNT)
    return env, nodes, driver, cluster


def test_moved_is_followed_and_remembered():
    env, nodes, driver, cluster = cluster_of_two()
    slot = hash_slot(b"list")
    cluster.begin_migration(slot, 0, 1)
    cluster.end_migration(slot, 0, 1)
    replies = submit(driver, [1, 2, 3])
    env.run(20_000)
    assert replies == [1, 2, 3]
    assert stored(nodes[1]) == [1, 2, 3]
    assert driver.redirections == 3
    assert submit(driver, [4, 5, 6]) == []
    env.run(40_000)
    assert stored(nodes[1]) == [1, 2, 3, 4, 5, 6]
    assert driver.redirections == 3


def test_ask_is_followed_and_not_remembered_even_where_the_script_is_unknown():
    env, nodes, driver, cluster = cluster_of_two()
    nodes[1].shard.execute((b"SCRIPT", b"FLUSH"))
    cluster.begin_migration(hash_slot(b"list"), 0, 1)
    replies = submit(driver, [1, 2, 3])
    env.run(20_000)
    assert replies == [1, 2, 3]
    assert driver.redirections == 3
    assert driver.reloads > 0
    assert not driver.moved
    assert not driver.redirected


def test_a_command_that_is_sent_in_circles_is_given_up():
    env, _, driver, cluster = cluster_of_two()
    cluster.slots(0).assign([hash_slot(b"list")], cluster.ids[1])
    replies = submit(driver, [1])
    env.run(20_000)
    assert b"MOVED" in replies[0].message
