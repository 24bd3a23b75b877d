"""The blocking driver: one command at a time per connection, NOSCRIPT, timeouts, broken connections."""

import hashlib

import pytest

from orderlab.sim.costs.cost_model import load_costs
from orderlab.sim.drivers.blocking import BlockingDriver, PoolSettings
from orderlab.sim.engine.clock import Clock, Station, Tenant
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.servers.redis import RedisNode
from orderlab.sim.servers.requests import Request

PUSH = b"return redis.call('RPUSH', KEYS[1], ARGV[1])"
SHA = hashlib.sha1(PUSH).hexdigest().encode()


def push(value):
    return Request((b"EVALSHA", SHA, b"1", b"list", b"%d" % value), "push")


def system(nodes=1, **settings):
    env = Clock()
    made = [RedisNode(env, f"redis-{i}", load_costs("cluster").redis, [PUSH]) for i in range(nodes)]
    pool = PoolSettings(**{"threads": 2, "connections": 2, "reconnect_us": 5000, **settings})
    driver = BlockingDriver(env, made, pool, {SHA: PUSH}, lambda: 100, Station(4), 40.0)
    return env, made, driver


def stored(node):
    return [int(value) for value in node.shard.execute((b"LRANGE", b"list", b"0", b"-1"))]


def submit(driver, values, node=0):
    replies = []
    driver.submit([node] * len(values), [push(value) for value in values], replies.extend)
    return replies


def test_a_connection_carries_one_command_at_a_time():
    env, (node,), driver = system(threads=1)
    submit(driver, range(4))
    env.run(800)  # each: 40 us of work, 200 us on the way, and its service
    assert stored(node) == [0, 1, 2]
    env.run(2000)
    assert stored(node) == [0, 1, 2, 3]


def test_twice_the_threads_do_twice_as_much():
    def answered_by(threads, at_us):
        env, (node,), driver = system(threads=threads, connections=threads)
        submit(driver, range(1000))
        env.run(at_us)
        return node.requests

    assert answered_by(4, 20_000) == pytest.approx(2 * answered_by(2, 20_000), rel=0.05)


def test_a_thread_without_a_connection_waits_and_holds_up_others():
    env, nodes, driver = system(nodes=2, threads=2, connections=1)
    driver.submit([0, 0, 1], [push(1), push(2), push(3)], lambda replies: None)
    env.run(250)
    assert stored(nodes[1]) == []  # both threads are with node 0
    env.run(2000)
    assert stored(nodes[1]) == [3]
    assert not driver.is_busy


def test_an_unknown_script_is_loaded_and_called_again_by_the_same_thread():
    env, (node,), driver = system(threads=1)
    node.shard.execute((b"SCRIPT", b"FLUSH"))
    replies = submit(driver, [1, 2])
    env.run(10_000)
    assert replies == [1, 2]
    assert stored(node) == [1, 2]
    assert driver.reloads == 1


def test_a_script_that_is_forgotten_again_is_sent_whole():
    env, (node,), driver = system(threads=1)
    node.shard.execute((b"SCRIPT", b"FLUSH"))
    replies = submit(driver, [1])
    while not driver.reloads or node.requests < 2:
        env.step()
    node.shard.execute((b"SCRIPT", b"FLUSH"))
    env.run(10_000)
    assert replies == [1]
    assert driver.reloads == 1
    assert node.requests == 4  # EVALSHA, SCRIPT LOAD, EVALSHA, EVAL


def test_other_errors_are_not_tried_again():
    env, (node,), driver = system()
    node.shard.execute((b"SET", b"list", b"a string"))
    replies = submit(driver, [1])
    env.run(10_000)
    assert replies[0].message.startswith(b"WRONGTYPE")
    assert node.requests == 1


def test_an_answer_that_is_lost_makes_the_script_run_twice():
    env, (node,), driver = system(threads=1)
    replies = submit(driver, [1])
    env.run(200)  # the node has run it, the answer is on its way
    assert stored(node) == [1]
    driver.lose(0)
    env.run(20_000)
    assert stored(node) == [1, 1]
    assert replies == [2]
    assert driver.repeated == 1


def test_a_connection_that_breaks_after_the_answer_repeats_nothing():
    env, (node,), driver = system(threads=1)
    replies = submit(driver, [1])
    env.run(1000)
    driver.lose(0)
    env.run(20_000)
    assert stored(node) == [1]
    assert replies == [1]


def test_a_command_that_takes_too_long_is_given_up_after_its_attempts():
    env, (node,), driver = system(command_timeout_us=10_000, attempts=2)
    node.stall(10_000_000)
    replies = submit(driver, [1])
    env.run(14_000)
    assert replies == []
    env.run(40_000)
    assert isinstance(replies[0], ErrorReply)
    assert driver.timeouts == 2
    assert not driver.is_busy


def test_a_command_that_takes_almost_too_long_is_not_given_up():
    env, (node,), driver = system(command_timeout_us=10_000)
    node.stall(9_000)
    replies = submit(driver, [1])
    env.run(40_000)
    assert replies == [1]
    assert driver.timeouts == 0


def test_a_node_that_is_down_refuses_until_it_is_back():
    env, (node,), driver = system()
    node.crash()
    replies = submit(driver, [1])
    env.run(7_000)
    assert replies == []
    node.restart()
    env.run(20_000)
    assert replies == [1]


def test_threads_and_the_node_share_the_cores_of_one_machine():
    def answered(cores):
        env, (node,), driver = system(threads=8, connections=8)
        host = Station(cores)
        driver.cpu, node.cpu = Tenant(host), Tenant(host)
        submit(driver, range(1000))
        env.run(10_000)
        return node.requests, host.busy_us

    (few, busy), (many, _) = answered(1), answered(8)
    assert many > 1.5 * few
    assert busy == pytest.approx(10_000, rel=0.1)
