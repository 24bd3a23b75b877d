"""What an operation does to one session: found out once on the kernel, judged once, and looked up from then on.

The outcome depends on the session's keys, the moment, the judge's account, what the caller puts into the request, and
on nothing else. So it is remembered by these, and every step of an exploration has been judged. All readers' sessions
are looked up as if they had the same name; that is right as long as no key is shared between clients, which is checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.session.contract import Scope
from orderlab.model.contracts.session.refinement import Account
from orderlab.model.contracts.session.refinement.account import Batch, Connection, Cursor, RunState, Sending
from orderlab.model.contracts.session.traces import Quiesce, Step, Upkeep, Wait
from orderlab.model.errors import InputError
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.engine.memory import Interned, Memory
from orderlab.sim.stores.bound import CLIENT_DIED, CRASHED
from orderlab.sim.stores.memo import MemoStore

LATER_BATCH = 10_000
"""Where a check of its own begins to number batches: behind all that writers can have used."""
START = Cursor()
Sendings = tuple[tuple[int, Sending], ...]
Broken = tuple[tuple[str, str], ...]
"""Laws that a step has broken, each with what happened."""


class Core(NamedTuple):
    """One session: its keys (number of a frozen keyspace), the moment, and where the judge says that it stands."""

    keyspace: int
    now_ms: int
    account: Account
    connection: Connection
    forbidden: str


class Effect(NamedTuple):
    """What one operation did."""

    core: int
    told: Sendings
    cursor: Cursor
    batches: tuple[Batch, ...]
    is_done: bool
    """Whether the reply was that it has been done."""
    was_stopped: bool
    """The node crashed, or the client died, on the way."""
    discrepancies: tuple[Discrepancy, ...]
    diverges: bool

    def differs(self, other: Effect) -> bool:
        """Whether it can be told apart from another one of the same operation."""
        return (self.core, self.told, self.is_done, self.discrepancies, self.diverges) != (
            other.core, other.told, other.is_done, other.discrepancies, other.diverges
        )  # fmt: skip


class SessionEffects:
    """The sessions of ``store`` within a scope, tried by ``run`` on it, which has one client and has not begun.

    ``remembers`` False carries out every step anew, for comparison.
    """

    def __init__(self, store: MemoStore, run: SessionRun, scope: Scope, remembers: bool = True) -> None:
        self.run = run
        self.scope = scope
        self.remembers = remembers
        self.store = store
        self.cores: Interned[Core] = Interned()
        self._effects: Memory[int, Effect | None] = Memory()
        self._deadlines_ms: dict[int, tuple[int, ...]] = {}
        self._later_batches = (Batch(LATER_BATCH),) * len(run.producers)
        self.no_batches = (Batch(),) * len(run.producers)
        self.first = self._core_now()
        self.minds_lost_scripts = scope.has_lost_scripts and not self.store.finds_scripts_again(run.clients[0])
        """Whether it makes a difference that the node has no scripts when an operation begins."""

    def _core_now(self) -> int:
        state = self.run.state
        core = Core(self.store.keyspace, self.store.now_ms, state.accounts[0], state.connections[0], state.forbidden)
        return self.cores.number(core)

    # -- operations ----------------------------------------------------------------------------------------------------

    def perform(
        self,
        core: int,
        step: Step,
        sendings: Sendings = (),
        batches: tuple[Batch, ...] = (),
        without_scripts: bool = False,
        cursor: Cursor = START,
    ) -> Effect | None:
        """One step on one session, judged; None if it has no meaning there. ``batches``: the last save of each writer,
        by its name. ``without_scripts``: the node has none loaded when the step begins.
        """
        if not self.remembers:
            self.store.forget()
            return self._carry_out(core, step, sendings, batches, without_scripts, cursor)
        asked = core, step, sendings, batches, without_scripts, cursor
        if asked not in self._effects:
            self._effects.keep(asked, self._carry_out(*asked))
        return self._effects[asked]

    def _go_to(self, core: int, sendings: Sendings, batches: tuple[Batch, ...], cursor: Cursor = START) -> None:
        at = self.cores[core]
        self.store.keyspace = at.keyspace
        self.store.set_now(at.now_ms)
        self.run.state = RunState(
            (at.account,), sendings, batches or self.no_batches, (cursor,), (at.connection,), at.forbidden
        )

    def _carry_out(
        self,
        core: int,
        step: Step,
        sendings: Sendings,
        batches: tuple[Batch, ...],
        without_scripts: bool,
        cursor: Cursor,
    ) -> Effect | None:
        self._go_to(core, sendings, batches, cursor)
        self.store.has_lost_scripts = without_scripts
        report = self.run.perform(step)
        self.store.has_lost_scripts = False
        if report.result is None:
            return None
        self._refuse_shared_keys()
        state = self.run.state
        told = tuple(one for one in state.sendings if one not in sendings)
        is_done = self.run.reply_of(report.result).status == "done"
        was_stopped = report.result in (CRASHED, CLIENT_DIED)
        found = tuple(report.discrepancies)
        return Effect(
            self._core_now(), told, state.cursors[0], state.batches, is_done, was_stopped, found, report.diverges
        )

    def _refuse_shared_keys(self) -> None:
        if self.scope.readers == 1:
            return
        for key in self.store.frozen(self.store.keyspace):
            if self.run.clients[0] not in key:
                raise InputError(
                    f"{self.store.binding.place}: key {key.decode('latin-1')} does not bear the client's name, so that"
                    " sessions are not independent of each other; explore it with --set readers=1"
                )

    def of_nobody(self, core: int, step: Wait | Upkeep) -> Effect:
        """Time passes, or the store does what it does by itself."""
        found = self.perform(core, step)
        assert found is not None
        return found

    def settle(self, core: int) -> Effect | None:
        """What a session without live messages has left behind, after one more message has come and gone."""
        return self.perform(core, Quiesce(), (), self._later_batches)

    # -- looking -------------------------------------------------------------------------------------------------------

    def deadlines_ms(self, core: int) -> tuple[int, ...]:
        """From when on messages, and keys of Redis, are gone: absolute, in order. A key outlives its deadline by 1
        ms."""
        known = self._deadlines_ms.get(core)
        if known is None:
            at = self.cores[core]
            found = {entry.latest_ms for entry in at.account.queue}
            keys = self.store.frozen(at.keyspace).values()
            found |= {deadline + 1 for _, _, deadline in keys if deadline is not None}
            known = self._deadlines_ms[core] = tuple(sorted(found))
        return known

    def has_had(self, core: int, labels: Iterable[int]) -> bool:
        """Whether the session has had all of the messages: to save them once more would be to save them twice."""
        account = self.cores[core].account
        return all(
            account.session.entry(one) is not None or account.fate(one) not in (None, "refused") for one in labels
        )

    def fail_over(self, now: int, replica: int) -> tuple[int, Broken]:
        """The session as the replica has it takes the place of the present one: its number, and what is broken by it.

        The client knows of its last CONNECT whatever happens to the node.
        """
        present, lagging = self.cores[now], self.cores[replica]
        restored = self.cores.number(lagging._replace(connection=present.connection))
        self._go_to(now, (), ())
        self.store.keyspace = lagging.keyspace
        return restored, told_once([*self.run.compare(), *_counter_gone_back(present.account, lagging.account)])


def _counter_gone_back(before: Account, after: Account) -> list[Discrepancy]:
    if after.last_ids == before.last_ids:
        return []
    was, now = ("/".join(map(str, sorted(one.last_ids))) for one in (before, after))
    return [Discrepancy("counter", f"the packet-identifier counter was at {was} and is at {now}")]


def told_once(found: Iterable[Discrepancy]) -> Broken:
    """The first discrepancy of each law."""
    first: dict[str, str] = {}
    for one in found:
        first.setdefault(one.law, one.text)
    return tuple(first.items())
