"""The two tables in a real PostgreSQL: the simulated ones agree with it operation by operation, and both are judged
alike.

Needs a server's programs (`apt-get install postgresql`) and psycopg, and fails where they are not there.
"""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.pq import Trace

from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.traces import Clear, Fetch, Publication, Retry, Save, Upkeep
from orderlab.model.errors import InputError
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.sim.costs.cost_model import load_costs
from orderlab.sim.servers.postgres import StatementError
from orderlab.sim.servers.session_tables import Incoming, SimulatedTables, disk_bytes
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.bound import BoundStore
from orderlab.sim.stores.tables import TablesBackend
from tests.laboratory import live_postgres
from tests.laboratory.live_postgres import PostgresProcess
from tests.laboratory.overlaps import PAIRS, Operation, anomalies
from tests.laboratory.real_tables import RealTables
from tests.laboratory.tables import LIMIT, MODULUS, Step, disagreement, draw_run

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("postgres")]


@pytest.fixture(scope="module")
def process():
    with PostgresProcess() as running:
        yield running


@pytest.fixture
def real(process):
    made = []

    def make(synchronous_commit=True):
        made.append(RealTables(process, LIMIT, synchronous_commit, MODULUS))
        return made[-1]

    yield make
    for tables in made:
        tables.close()


def agree(process, seed, length, simulated=SimulatedTables):
    is_synchronous = seed % 2 == 0
    tables = RealTables(process, LIMIT, is_synchronous, MODULUS)
    try:
        return disagreement(simulated(LIMIT, is_synchronous, MODULUS), tables, draw_run(random.Random(seed), length))
    finally:
        tables.close()


SOME = settings(
    max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@SOME
@given(st.integers(0, 2**32))
def test_the_simulated_tables_agree_with_the_real_ones(process, seed):
    assert agree(process, seed, 10) is None


@pytest.mark.exhaustive
@settings(SOME, max_examples=1500)
@given(st.integers(0, 2**32))
def test_they_agree_in_many_long_runs(process, seed):
    assert agree(process, seed, 30) is None


@pytest.mark.parametrize(
    ("count", "payload", "interval_s"),
    [(1, 62, None), (52, 62, None), (53, 62, None), (204, 62, 7), (1000, 62, None), (1000, 126, 7), (1000, 127, None)],
)
def test_the_layout_of_the_tables_on_disk_is_the_servers(process, count, payload, interval_s):
    tables = RealTables(process, 10_000, payload_bytes=payload)
    try:
        assert not isinstance(
            tables.save(b"plain-client", [Incoming(number, interval_s=interval_s) for number in range(1, count + 1)]),
            StatementError,
        )
        sizes = "SELECT pg_total_relation_size('device_publish_msg') + pg_total_relation_size('device_session_ctx')"
        assert disk_bytes(tables.contents()[1]) == tables._watcher.execute(sizes).fetchone()[0]
    finally:
        tables.close()


def test_the_bytes_between_client_and_server_are_those_that_libpq_traces(real, tmp_path):
    tables, costs = real(), load_costs("prototype").postgres
    # A time of these days takes 8 bytes.
    client, connection, tables.now_ms = (b"plain-client", tables._connection.pgconn, 1_700_000_000_000)
    for number in range(1, 7):  # statements are prepared when they come for the sixth time
        tables.save(client, [Incoming(number)])
        tables.fetch(client)
        tables.acknowledge(client, number)
    tables.save(client, [Incoming(7)])

    def traced(operate):
        with (tmp_path / "trace").open("wb+") as file:
            connection.trace(file.fileno())
            connection.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)
            reply = operate()
            connection.untrace()
            file.seek(0)
            return sum(1 + int(line.split(b"\t")[1]) for line in file if line[:2] in (b"F\t", b"B\t")), reply

    assert traced(lambda: tables.save(client, [Incoming(8)]))[0] == pytest.approx(costs.wire_save_bytes, rel=0.01)
    size, rows = traced(lambda: tables.fetch(client))
    assert len(rows) == 2
    assert size == pytest.approx(costs.wire_fetch_bytes + 2 * costs.wire_row_bytes, rel=0.01)
    assert traced(lambda: tables.acknowledge(client, rows[0].packet_id))[0] == pytest.approx(
        costs.wire_acknowledge_bytes, rel=0.01
    )


class KeepsOneSurplus(SimulatedTables):
    """Clean-up leaves one row too many."""

    def __init__(self, limit, *rest):
        super().__init__(limit + 1, *rest)


class ExpiresLate(SimulatedTables):
    """A row is still fetched in the millisecond of its deadline."""

    def fetch(self, client):
        self.now_ms -= 1
        rows = super().fetch(client)
        self.now_ms += 1
        return rows


class FirstRowOnly(SimulatedTables):
    """An acknowledgement deletes the first of the rows that it names."""

    def acknowledge(self, client, packet_id, fault=None):
        rows = self.server.tables.of_packet_id(client, packet_id)
        if len(rows) < 2 or fault:
            return super().acknowledge(client, packet_id, fault)
        return self._submit(lambda transaction, _: transaction.delete(rows[:1]))


class LosesUnwritten(SimulatedTables):
    """A crash loses what it must not: commits wait for no log."""

    def __init__(self, limit, synchronous_commit, *rest):
        super().__init__(limit, False, *rest)


SAVE = Step("save", 0, (Incoming(1, interval_s=1), Incoming(2)))
MANY = (Step("save", 0, tuple(Incoming(n) for n in range(1, MODULUS + 2))), Step("fetch"))
PLANTED = [
    (KeepsOneSurplus, (Step("save", 0, tuple(Incoming(n) for n in range(1, LIMIT + 3))), Step("clean-up"))),
    (ExpiresLate, (SAVE, Step("wait", ms=1000), Step("fetch"))),
    (FirstRowOnly, (*MANY, Step("acknowledge", label=1))),
    (LosesUnwritten, (SAVE, Step("crash"))),
]


@pytest.mark.parametrize(("bad", "steps"), PLANTED)
def test_a_flaw_planted_in_the_simulated_tables_is_found(real, bad, steps):
    assert disagreement(bad(LIMIT, True, MODULUS), real(), steps) is not None
    assert disagreement(SimulatedTables(LIMIT, True, MODULUS), real(), steps) is None


def test_a_flaw_planted_in_the_real_tables_is_found(real):
    steps = (SAVE, Step("fetch"), Step("release", label=2), Step("fetch"))
    tables = real()
    tables._watcher.execute("CREATE RULE no_release AS ON UPDATE TO device_publish_msg DO INSTEAD NOTHING")
    assert disagreement(SimulatedTables(LIMIT, True, MODULUS), tables, steps) is not None


@pytest.mark.parametrize("fault", ["serialization", "deadlock", "lost-request"])
def test_what_the_server_undoes_leaves_nothing(real, fault):
    for tables in (SimulatedTables(LIMIT, True, MODULUS), real()):
        assert tables.save(b"s1", [Incoming(1)]) == [(1, 1)]
        before = tables.contents()
        code = {"serialization": "40001", "deadlock": "40P01"}.get(fault, "connection")
        assert tables.save(b"s1", [Incoming(2), Incoming(3)], fault) == StatementError(code)
        assert tables.contents() == before
        assert tables.save(b"s1", [Incoming(2), Incoming(3)]) == [(2, 2), (3, 3)]


def test_a_save_whose_reply_was_lost_is_there_twice_after_a_retry(real):
    for tables in (SimulatedTables(LIMIT, True, MODULUS), real()):
        assert tables.save(b"s1", [Incoming(1)], "lost-reply") == StatementError("connection")
        assert tables.save(b"s1", [Incoming(1)]) == [(2, 2)]
        assert len(tables.fetch(b"s1")) == 2


def test_the_longest_interval_of_mqtt_is_no_int(real):
    for tables in (SimulatedTables(LIMIT, True, MODULUS), real()):
        assert tables.save(b"s1", [Incoming(1), Incoming(2, interval_s=2**31)]) == StatementError("22003")
        assert tables.contents() == ([], [])
        assert tables.save(b"s1", [Incoming(1), Incoming(2, interval_s=2**31 - 1)]) == [(1, 1), (2, 2)]


@pytest.mark.parametrize(("synchronous_commit", "left"), [(True, 2), (False, 1)])
def test_a_crash_loses_acknowledged_work_only_where_commits_do_not_wait(real, synchronous_commit, left):
    for tables in (SimulatedTables(LIMIT, synchronous_commit, MODULUS), real(synchronous_commit)):
        tables.save(b"s1", [Incoming(1)])
        tables.settle()
        assert tables.save(b"s1", [Incoming(2)]) == [(2, 2)]
        tables.crash()
        assert len(tables.fetch(b"s1")) == left


def one(label):
    return Publication(label, b"m%d" % label)


JUDGED = [
    ("legal-trim", "postgres", (Save((one(1), one(2), one(3), one(4)), limit=3),)),
    ("all-or-nothing", "postgres", (Save((one(1),), limit=3, fault=Fault("lost-reply")), Retry())),
    ("no-loss", "postgres-async", (Save((one(1),), limit=3), Upkeep("crash"))),
    ("no-phantom", "postgres-async", (Save((one(1),), limit=3), Upkeep("settle"), Clear(), Upkeep("crash"), Fetch())),
]


@pytest.mark.parametrize(("law", "store", "steps"), JUDGED)
def test_the_same_judge_says_the_same_of_both(process, law, store, steps):
    def told(make):
        backend = TablesBackend(load_binding(store), make=make)
        run = SessionRun(BoundStore(load_binding(store), backend), (b"client-one",))
        return [discrepancy for step in steps for discrepancy in run.perform(step).discrepancies]

    made = []

    def real(*given):
        made.append(RealTables(process, *given))
        return made[-1]

    try:
        found = told(SimulatedTables)
        assert law in {one.law for one in found}
        assert told(real) == found
    finally:
        made[0].close()


SAVE_ONE, SAVE_TWO, CLEAR = Operation("save", 1), Operation("save", 2), Operation("clear")
OVERLAPS = [
    ((SAVE_ONE, SAVE_TWO), "read committed", 24, 0, {("ok", "ok"), ("ok", "23505"), ("23505", "ok")}),
    (
        (SAVE_ONE, CLEAR),
        "read committed",
        70,
        10,
        {("ok", "ok")},
    ),  # a message that was acknowledged goes, a session stays
]


@pytest.mark.parametrize(("pair", "isolation", "count", "odd", "how"), OVERLAPS)
def test_two_transactions_end_as_one_after_the_other_or_are_known_not_to(process, pair, isolation, count, odd, how):
    ends, anomalous = anomalies(lambda: RealTables(process), (), pair, isolation)
    assert (len(ends), len(anomalous), {one.how for one in ends}) == (count, odd, how)
    assert len({one.turns for one in ends}) == count
    assert all(sessions and not messages for sessions, messages in (one.rows for one in anomalous))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("isolation", "odd"), [("read committed", [10, 30]), ("repeatable read", [30]), ("serializable", [])]
)
def test_what_overlaps_a_clear_is_all_that_ends_as_no_order_does(process, isolation, odd):
    found = {pair: anomalies(lambda: RealTables(process), before, pair, isolation) for before, pair in PAIRS}
    assert [len(anomalous) for _, anomalous in found.values() if anomalous] == odd
    assert {one.do for pair, (_, anomalous) in found.items() if anomalous for one in pair} <= {"save", "clear"}


def test_where_there_is_no_server_the_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(live_postgres, "DEBIAN", tmp_path)
    with pytest.raises(InputError, match="apt-get install postgresql"):
        PostgresProcess()


def test_a_server_leaves_neither_processes_nor_files():
    with PostgresProcess() as running:
        children, folder = running._children(), running.folder
        assert children
    assert not any(map(live_postgres._is_running, children))
    assert not live_postgres.Path(folder).exists()
