"""The server: group commit, crash and recovery; the pool in front of it; the session store upon it."""

import pytest

from orderlab.sim.costs.cost_model import load_costs
from orderlab.sim.drivers.jdbc import ConnectionPool, JdbcDriver
from orderlab.sim.engine.clock import Clock, Station
from orderlab.sim.servers.postgres import CleanUp, PostgresServer, PostgresSessions, StatementError

COSTS = load_costs("prototype").postgres


def system(synchronous=True, **pool):
    env = Clock()
    server = PostgresServer(env, COSTS, Station(4), synchronous_commit=synchronous)
    driver = JdbcDriver(env, server, ConnectionPool(**pool), lambda: 20, Station(4), 10.0)
    return env, server, driver, PostgresSessions(limit=3, qos=1, payload_bytes=20)


def save(driver, store, *clients, number=1, count=1):
    got = []
    messages = [(number + at, b"t", 0) for at in range(count)]
    driver.submit([0] * len(clients), [store.save(client, messages, 0, 1) for client in clients], got.extend)
    return got


def stored(server, client=b"s1"):
    return [(row.serial_number, row.packet_id) for row in server.tables.of_client(client)]


def test_serial_numbers_keep_the_order_across_the_wrap_of_packet_identifiers():
    env, _server, driver, store = system()
    save(driver, store, b"s1", count=65_534)
    env.run(5_000_000)
    got = save(driver, store, b"s1", number=70_000, count=3)
    env.run(10_000_000)
    assert got == [[(65_535, 65_535), (1, 65_536), (2, 65_537)]]
    rows = []
    driver.submit([0], [store.fetch(b"s1")], rows.extend)
    env.run(20_000_000)
    fetched = store.fetched(rows[0])
    assert [number for number, *_ in fetched[-3:]] == [70_000, 70_001, 70_002]
    assert [serial for _, _, serial, _ in fetched] == list(range(1, 65_538))


def test_an_acknowledgement_after_the_wrap_deletes_both_rows_of_its_identifier():
    """Why identifiers must not come again while one is live: the index says nothing against it."""
    env, _server, driver, store = system()
    save(driver, store, b"s1", count=65_536)
    env.run(5_000_000)
    got = []
    driver.submit([0, 0], [store.acknowledge(b"s1", 1, 1), store.acknowledge(b"s1", 2, 2)], got.extend)
    env.run(10_000_000)
    assert got == [2, 1]


def test_commits_that_wait_together_share_a_flush():
    env, server, driver, store = system()
    save(driver, store, *(b"s%d" % i for i in range(40)))
    env.run(100_000)
    assert server.rows_inserted == 40
    assert server.log.flushes < 20
    alone_env, alone, alone_driver, alone_store = system(maximum_pool_size=1)
    save(alone_driver, alone_store, *(b"s%d" % i for i in range(40)))
    alone_env.run(100_000)
    assert alone.log.flushes == alone.rows_inserted == 40


def test_saves_that_share_a_transaction_are_one_commit():
    env, server, driver, store = system(batch=10)
    got = save(driver, store, *(b"s%d" % i for i in range(25)))
    env.run(100_000)
    assert server.transactions == 3
    assert got == [[(1, 1)]] * 25


def test_reading_waits_for_no_flush():
    env, server, driver, store = system()
    driver.submit([0], [store.fetch(b"s1")], lambda replies: None)
    env.run(10_000)
    assert server.log.flushes == 0
    assert server.transactions == 1


def run_until(env, condition):
    while not condition():
        env.step()


def test_a_crash_before_the_flush_undoes_the_transaction():
    env, server, driver, store = system()
    got = save(driver, store, b"s1")
    run_until(env, lambda: server.log.flushes)
    assert stored(server) == [(1, 1)]
    assert server.crash() == 1
    assert stored(server) == []
    assert not server.tables.sessions
    server.restart()
    env.run(1_000_000)
    assert isinstance(got[0], StatementError)
    assert store.assigned(got[0], 1) is None


def test_a_crash_after_the_flush_keeps_it_though_the_caller_hears_of_an_error():
    env, server, driver, store = system()
    got = save(driver, store, b"s1")
    run_until(env, lambda: server.rows_inserted)
    assert server.crash() == 0
    assert stored(server) == [(1, 1)]
    env.run(1_000_000)
    assert isinstance(got[0], StatementError)  # who tries again saves twice


@pytest.mark.parametrize(("synchronous", "kept"), [(True, [(1, 1)]), (False, [])])
def test_without_synchronous_commit_an_answered_save_can_be_lost(synchronous, kept):
    env, server, driver, store = system(synchronous)
    got = save(driver, store, b"s1")
    env.run(50_000)
    assert got == [[(1, 1)]]
    server.crash()
    assert stored(server) == kept


def test_without_synchronous_commit_the_log_is_written_in_the_end():
    env, server, driver, store = system(synchronous=False)
    save(driver, store, b"s1")
    env.run(500_000)
    server.crash()
    assert stored(server) == [(1, 1)]


def test_who_waits_too_long_for_a_connection_gets_an_error_and_just_in_time_does_not():
    def errors(timeout_us):
        env, _, driver, store = system(maximum_pool_size=1, connection_timeout_us=timeout_us)
        got = save(driver, store, *(b"s%d" % i for i in range(10)))
        env.run(1_000_000)
        return sum(isinstance(reply, StatementError) for reply in got)

    assert errors(1_000) > 0
    assert errors(100_000) == 0


def test_a_transaction_that_failed_is_under_way_until_its_caller_knows():
    env, _, driver, store = system()
    got = save(driver, store, b"s1")
    driver.lose(0)
    run_until(env, lambda: got or not driver.is_busy)
    assert isinstance(got[0], StatementError)
    assert not driver.is_busy


def test_a_server_that_is_down_refuses():
    env, server, driver, store = system()
    server.crash()
    got = save(driver, store, b"s1")
    env.run(1_000_000)
    assert isinstance(got[0], StatementError)
    server.restart()
    again = save(driver, store, b"s1")
    env.run(2_000_000)
    assert again == [[(1, 1)]]


def test_clean_up_removes_the_oldest_beyond_the_limit_and_what_has_expired():
    env, server, driver, store = system()
    removed = []
    env.process(
        CleanUp(server, store, 1_000_000, lambda row, expired: removed.append((row.serial_number, expired))).run()
    )
    save(driver, store, b"s1", count=5)
    env.run(900_000)
    assert len(stored(server)) == 5  # between two passes a session may hold more than its limit
    env.run(1_100_000)
    assert [serial for serial, _ in stored(server)] == [3, 4, 5]
    assert removed == [(1, False), (2, False)]
    store.default_expiry_s = 2
    env.run(3_100_000)
    assert stored(server) == []
    assert removed[2:] == [(3, True), (4, True), (5, True)]


def test_clearing_a_session_removes_its_rows_and_its_counters():
    env, server, driver, store = system()
    save(driver, store, b"s1", b"s2", count=2)
    env.run(100_000)
    driver.submit([0], [store.clear(b"s1")], lambda replies: None)
    env.run(200_000)
    assert stored(server) == []
    assert b"s1" not in server.tables.sessions
    assert len(stored(server, b"s2")) == 2


def test_a_release_keeps_the_place_and_drops_the_payload():
    env, _server, driver, store = system()
    save(driver, store, b"s1", count=2)
    env.run(100_000)
    rows = []
    driver.submit([0, 0], [store.release(b"s1", 1, 1), store.fetch(b"s1")], rows.extend)
    env.run(200_000)
    assert rows[0] == 1
    assert [(packet_id, is_release) for _, packet_id, _, is_release in store.fetched(rows[1])] == [
        (1, True),
        (2, False),
    ]
