"""The two tables: keys, the second index, and transactions that leave nothing behind."""

import random

import pytest

from orderlab.sim.costs.cost_model import load_costs
from orderlab.sim.servers.postgres import Transaction
from orderlab.sim.servers.postgres_rows import MessageRow, SessionRow, Tables

COSTS = load_costs("prototype").postgres


def row(serial, packet_id=None, client=b"s1", **more):
    return MessageRow(client, serial, b"t", 0, packet_id or serial, "PUBLISH", 1, b"%09d" % serial, **more)


def held(tables):
    return dict(tables.sessions), {client: dict(rows) for client, rows in tables.messages.items()}, {
        key: list(serials) for key, serials in tables.by_packet_id.items()
    }  # fmt: skip


def test_rows_of_a_client_come_in_the_order_of_serial_numbers():
    tables = Tables()
    transaction = Transaction(tables, COSTS)
    for serial in (3, 1, 2):
        transaction.insert_message(row(serial))
    transaction.insert_message(row(1, client=b"s2"))
    assert [each.serial_number for each in transaction.select_messages(b"s1")] == [1, 2, 3]


def test_the_primary_key_is_unique_and_the_packet_identifier_is_not():
    tables = Tables()
    transaction = Transaction(tables, COSTS)
    transaction.insert_message(row(1, packet_id=7))
    transaction.insert_message(row(65536, packet_id=7))
    with pytest.raises(ValueError, match="duplicate key"):
        transaction.insert_message(row(1, packet_id=8))
    assert transaction.delete_packet(b"s1", 7) == 2
    assert not tables.messages
    assert not tables.by_packet_id


def test_a_delete_of_another_packet_identifier_removes_nothing():
    tables = Tables()
    transaction = Transaction(tables, COSTS)
    transaction.insert_message(row(1, packet_id=7))
    assert transaction.delete_packet(b"s1", 8) == 0
    assert transaction.delete_packet(b"s2", 7) == 0
    assert len(tables.messages[b"s1"]) == 1


@pytest.mark.parametrize("seed", range(20))
def test_a_rollback_leaves_everything_as_it_was(seed):
    draw, tables = random.Random(seed), Tables()
    before = Transaction(tables, COSTS)
    for serial in range(1, 20):
        before.insert_message(row(serial, packet_id=serial % 7 + 1, client=b"s%d" % (serial % 3)))
    before.upsert_session(SessionRow(b"s0", 1, 19, 5))
    kept = held(tables)
    transaction = Transaction(tables, COSTS)
    for step in range(15):
        client = b"s%d" % draw.randrange(4)
        draw.choice([
            lambda client=client, step=step: transaction.insert_message(row(100 + step, draw.randint(1, 7), client)),
            lambda client=client: transaction.delete_packet(client, draw.randint(1, 7)),
            lambda client=client: transaction.release_packet(client, draw.randint(1, 7)),
            lambda client=client, step=step: transaction.upsert_session(SessionRow(client, step, step, step)),
            lambda client=client: transaction.delete_session(client),
        ])()  # fmt: skip
    transaction.rollback()
    assert held(tables) == kept


def test_statements_cost_what_the_model_says():
    transaction = Transaction(Tables(), COSTS)
    transaction.select_session(b"s1")
    transaction.insert_message(row(1))
    transaction.upsert_session(SessionRow(b"s1", 1, 1, 1))
    transaction.delete_packet(b"s1", 1)
    assert transaction.work_us == (
        COSTS.transaction_us + COSTS.select_us + COSTS.insert_us + COSTS.upsert_us + COSTS.delete_us
    )
    assert transaction.log_bytes == COSTS.insert_bytes + COSTS.upsert_bytes + COSTS.delete_bytes
    assert transaction.dead_rows == 1


@pytest.mark.parametrize(("own", "default", "now_ms", "gone"), [
    (None, 10, 9_999, False), (None, 10, 10_000, True), (5, 10, 5_000, True), (20, 10, 15_000, False),
])  # fmt: skip
def test_a_row_expires_by_its_own_interval_or_the_default(own, default, now_ms, gone):
    assert row(1, msg_expiry_interval=own).has_expired(now_ms, default) is gone
