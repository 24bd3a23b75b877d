"""The judge of the two tables: which laws fall, with and without waiting for the log, and that it finds what is
planted."""

import pytest

from orderlab.model.verdict import Outcome
from orderlab.properties.contracts.session.tables import LAWS, LIMIT, MODULUS, Run, Step, validate_tables
from orderlab.sim.servers.session_tables import Incoming, SimulatedTables

AS_PUBLISHED = {"no-loss", "packet-id", "legal-trim", "all-or-nothing", "counter", "retransmission"}


def broken(make, runs=600):
    return {verdict.law for verdict in validate_tables(make, runs) if verdict.outcome is Outcome.VIOLATED}


def test_the_laws_that_the_tables_break_as_published():
    assert broken(lambda: SimulatedTables(LIMIT, True, MODULUS)) == AS_PUBLISHED


def test_a_crash_breaks_more_where_commits_do_not_wait():
    lost = broken(lambda: SimulatedTables(LIMIT, False, MODULUS))
    assert lost - AS_PUBLISHED == {"no-residue", "no-phantom"}


def test_verdicts_follow_the_seed():
    def told(seed):
        return [
            verdict.to_json() for verdict in validate_tables(lambda: SimulatedTables(LIMIT, True, MODULUS), 60, seed)
        ]

    assert told(1) == told(1)
    assert [verdict["law"] for verdict in told(2)] == list(LAWS)


class NewestFirst(SimulatedTables):
    def fetch(self, client):
        return super().fetch(client)[::-1]


class ExpiredToo(SimulatedTables):
    def fetch(self, client):
        before, self.now_ms = self.now_ms, 0
        try:
            return super().fetch(client)
        finally:
            self.now_ms = before


class HalfOfABatch(SimulatedTables):
    def save(self, client, messages, fault=None):
        if fault == "lost-request":
            super().save(client, messages[:1])
        return super().save(client, messages, fault)


class NeverDeletes(SimulatedTables):
    def acknowledge(self, client, packet_id, fault=None):
        return 1


class KeepsMessages(SimulatedTables):
    def clear(self, client, fault=None):
        return self._submit(lambda transaction, _: transaction.delete_session(client) or 0)


TWO = (Incoming(1, interval_s=5), Incoming(2))
FLAWS = [
    (NewestFirst, "store-order", (Step("save", 0, TWO),)),
    (ExpiredToo, "expiry", (Step("save", 0, TWO), Step("wait", ms=5000))),
    (HalfOfABatch, "all-or-nothing", (Step("save", 0, TWO, fault="lost-request"),)),
    (NeverDeletes, "packet-id", (Step("save", 0, TWO), Step("fetch"), Step("acknowledge", label=1))),
    (KeepsMessages, "no-residue", (Step("save", 0, TWO), Step("clear"))),
]


@pytest.mark.parametrize(("bad", "law", "steps"), FLAWS)
def test_a_flaw_is_found_and_its_neighbour_is_not(bad, law, steps):
    assert law in {one.law for one in Run(bad(LIMIT, True, MODULUS)).carry_out(steps).found}
    assert Run(SimulatedTables(LIMIT, True, MODULUS)).carry_out(steps).found == []


def test_a_dead_message_of_a_save_whose_reply_was_lost_may_have_used_an_identifier():
    steps = (Step("save", 0, (Incoming(1, interval_s=0),), fault="lost-reply"), Step("save", 0, (Incoming(2),)))
    assert Run(SimulatedTables(LIMIT, True, MODULUS)).carry_out(steps).found == []
