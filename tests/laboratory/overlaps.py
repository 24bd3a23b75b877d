"""Two transactions on the real tables, in every order of their statements: does each end as if one had come after the
other?

The simulated tables carry transactions out one after the other. So every interleaving on the server, each carried out
anew on the same rows, is held against the simulated tables with the transactions that were committed, in either order:
the rows must be those of one of them. A transaction that the server refuses (SQLSTATE) must leave nothing. One that
waits for a lock of the other takes its turn when the other is over.

``python -m tests.laboratory.overlaps`` tells it of the pairs in ``PAIRS`` at each isolation level, on a server that it
starts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple

from orderlab.model.protocol.packet_id import MODULUS
from orderlab.sim.servers.postgres_rows import MessageRow, SessionRow
from orderlab.sim.servers.session_tables import Incoming, SessionTables, SimulatedTables
from tests.laboratory.live_postgres import PostgresProcess
from tests.laboratory.real_tables import (
    DELETE_PACKET,
    INSERT_MESSAGE,
    RELEASE_PACKET,
    SELECT_SESSION,
    UPSERT_SESSION,
    RealTables,
)

if TYPE_CHECKING:
    import psycopg

CLIENT = b"s1"
ISOLATION = ("read committed", "repeatable read", "serializable")
"""The first is the server's default."""
Sql = tuple[str, tuple[Any, ...]]
Rows = tuple[list[SessionRow], list[MessageRow]]


class Operation(NamedTuple):
    """An operation of the client: a save of a message, or what a packet identifier or the whole session is asked
    for."""

    do: str
    number: int = 0
    """Of the message, or the packet identifier."""

    def __str__(self) -> str:
        return f"{self.do} {self.number}" if self.number else self.do

    def statements(self, tables: RealTables) -> Generator[Sql, Any, None]:
        """What ``RealTables`` sends within the transaction, one at a time; each is answered with its cursor."""
        name = CLIENT.decode()
        if self.do == "save":
            cursor = yield SELECT_SESSION, (name,)
            serial, packet_id = cursor.fetchone() or (0, 0)
            serial, packet_id = serial + 1, packet_id % MODULUS + 1
            yield INSERT_MESSAGE, (name, serial, "t", tables.now_ms, packet_id, 1, tables.payload(self.number), None)
            yield UPSERT_SESSION, (name, tables.now_ms, serial, packet_id)
        else:
            yield "SELECT 1", ()
            if self.do == "clear":
                yield "DELETE FROM device_session_ctx WHERE client_id = %s", (name,)
                yield "DELETE FROM device_publish_msg WHERE client_id = %s", (name,)
            else:
                yield DELETE_PACKET if self.do == "acknowledge" else RELEASE_PACKET, (name, self.number)
        yield "COMMIT", ()

    def on(self, tables: SessionTables) -> None:
        """The same at once."""
        match self.do:
            case "save":
                tables.save(CLIENT, [Incoming(self.number)])
            case "acknowledge":
                tables.acknowledge(CLIENT, self.number)
            case "release":
                tables.release(CLIENT, self.number)
            case _:
                tables.clear(CLIENT)


Pair = tuple[Operation, Operation]
SAVED, CLEAR = (Operation("save", 1),), Operation("clear")
PAIRS: Sequence[tuple[Sequence[Operation], Pair]] = (
    ((), (Operation("save", 1), Operation("save", 2))),
    (SAVED, (Operation("save", 2), Operation("save", 3))),
    (SAVED, (Operation("save", 2), Operation("acknowledge", 1))),
    ((), (Operation("save", 1), CLEAR)),
    (SAVED, (Operation("save", 2), CLEAR)),
    (SAVED, (Operation("acknowledge", 1), Operation("acknowledge", 1))),
    (SAVED, (Operation("acknowledge", 1), Operation("release", 1))),
    (SAVED, (Operation("release", 1), CLEAR)),
    (SAVED, (CLEAR, CLEAR)),
)
"""What is there before, and which two overlap."""


class Ended(NamedTuple):
    """One interleaving: who took each statement, how either ended (``ok``, or an SQLSTATE), and the rows."""

    turns: tuple[int, ...]
    how: tuple[str, ...]
    rows: Rows


class _Transaction:
    """One of the two, on a connection of its own."""

    def __init__(self, tables: RealTables, operation: Operation, isolation: str) -> None:
        self.connection: psycopg.Connection[Any] = tables.session()
        self.pid = self.connection.info.backend_pid
        self.pool = ThreadPoolExecutor(1)
        self.tables = tables
        self.statements = operation.statements(tables)
        self.next: Sql | None = next(self.statements)
        self.asked: Future[Any] | None = None
        self.how = ""
        self.connection.execute(f"BEGIN ISOLATION LEVEL {isolation}")

    def step(self) -> None:
        """Send the next statement; come back when it is answered, or waits for a lock."""
        assert self.next is not None
        sql, values = self.next
        self.asked = self.pool.submit(self.connection.execute, sql, values or None)
        while not self.settle() and not self._waits():
            pass

    def settle(self) -> bool:
        """Take the answer in, if it is there; whether no statement is under way."""
        import psycopg

        if self.asked is None:
            return True
        try:
            cursor = self.asked.result(timeout=0.001)
        except TimeoutError:
            return False
        except psycopg.Error as error:
            self.connection.rollback()
            self.how, self.next = str(error.sqlstate), None
        else:
            try:
                self.next = self.statements.send(cursor)
            except StopIteration:
                self.how, self.next = "ok", None
        self.asked = None
        return True

    def _waits(self) -> bool:
        found: tuple[bool] = self.tables.watch("SELECT cardinality(pg_blocking_pids(%s)) > 0", self.pid)
        return found[0]

    def close(self) -> None:
        """End its connection."""
        self.pool.shutdown()
        self.connection.close()


def interleavings(
    make: Callable[[], RealTables], before: Sequence[Operation], pair: Pair, isolation: str
) -> Iterator[Ended]:
    """Every order of the statements of the two, each from the rows that ``before`` leaves on new tables."""
    ways: list[tuple[int, ...]] = [()]
    while ways:
        chosen = ways.pop()
        tables = make()
        for one in before:
            one.on(tables)
        both = [_Transaction(tables, one, isolation) for one in pair]
        turns: list[int] = []
        try:
            while True:
                ready = [number for number, one in enumerate(both) if one.settle() and one.next is not None]
                if not ready:
                    if all(one.next is None for one in both):
                        break
                    continue  # whom one of them waited for is over: the answer is on its way
                turn = chosen[len(turns)] if len(turns) < len(chosen) else ready[0]
                if len(turns) >= len(chosen):
                    ways += [(*turns, later) for later in ready[1:]]
                turns.append(turn)
                both[turn].step()
                if both[turn].next is None:  # its locks are free: the other goes on, or waits for nothing any more
                    while not both[1 - turn].settle():
                        pass
            yield Ended(tuple(turns), tuple(one.how for one in both), tables.contents())
        finally:
            for other in both:
                other.close()
            tables.close()


def one_after_the_other(before: Sequence[Operation], committed: Sequence[Operation]) -> list[Rows]:
    """The rows of the simulated tables after each order of these."""
    found = []
    for order in permutations(committed):
        tables = SimulatedTables()
        for one in (*before, *order):
            one.on(tables)
        found.append(tables.contents())
    return found


def anomalies(
    make: Callable[[], RealTables], before: Sequence[Operation], pair: Pair, isolation: str
) -> tuple[list[Ended], list[Ended]]:
    """(all interleavings, those that end as no order of the committed transactions does)."""
    ends = list(interleavings(make, before, pair, isolation))
    orders = {
        how: one_after_the_other(before, [one for one, said in zip(pair, how, strict=True) if said == "ok"])
        for how in {one.how for one in ends}
    }
    return ends, [one for one in ends if one.rows not in orders[one.how]]


def main() -> None:
    """A line for each isolation level and pair: interleavings, how they ended, and one that ends as no order does."""
    with PostgresProcess() as process:
        for isolation in ISOLATION:
            for before, pair in PAIRS:
                ends, odd = anomalies(lambda: RealTables(process), before, pair, isolation)
                how = ", ".join(sorted({" and ".join(one.how) for one in ends}))
                print(
                    f"{isolation}: {' and '.join(map(str, pair))}{', one message there' if before else ''}: "
                    f"{len(ends)} interleavings ({how}), {len(odd)} as no order"
                )
                if odd:
                    print(f"  turns {odd[0].turns} leave {odd[0].rows}")


if __name__ == "__main__":
    from orderlab import exit_codes

    exit_codes.run(main, "overlaps")
