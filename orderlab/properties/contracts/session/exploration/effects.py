"""What an operation does to one session: found out once on the kernel, judged once, and looked up from then on.

The outcome depends on the session's keys, the moment, the judge's account, what the caller puts into the request, and on
nothing else. So it is remembered by these, and every step of an exploration has been judged. All readers' sessions are
looked up as if they had the same name; that is right as long as no key is shared between clients, which is checked.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from orderlab.model.contracts.contract import Discrepancy
from orderlab.model.contracts.session.refinement import Account
from orderlab.model.contracts.session.refinement.account import Batch, Cursor, RunState, Sending
from orderlab.model.contracts.session.steps import Quiesce, Save, Step, Wait
from orderlab.model.errors import InputError
from orderlab.properties.contracts.session.exploration.scope import Broken, Core, Interned, Scope
from orderlab.properties.contracts.session.inspection import Inspection, measure_baseline
from orderlab.properties.contracts.session.steps import SessionRun
from orderlab.sim.redis.backends.backend import FIRST_MS
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.bound import CLIENT_DIED, CRASHED, keeps_sent
from orderlab.sim.stores.memo import MemoStore

CLIENT = b"client-one"
DEFAULT_EXPIRY_MS = 20_000
LATER_BATCH = 10_000
"""Where a check of its own begins to number batches: behind all that writers can have used."""

Sendings = tuple[tuple[int, Sending], ...]


class Effect(NamedTuple):
    """What one operation did."""

    core: int
    told: Sendings
    is_done: bool
    """Whether the reply was that it has been done."""
    was_stopped: bool
    """The node crashed, or the client died, on the way."""
    broken: Broken
    diverges: bool


class SessionEffects:
    """The sessions of one store within a scope. ``remembers`` False carries out every step anew, for comparison."""

    def __init__(self, binding: Binding, scope: Scope, remembers: bool = True) -> None:
        self.scope = scope
        self.remembers = remembers
        self.cores: Interned[Core] = Interned()
        self.store = MemoStore(binding, DEFAULT_EXPIRY_MS)
        self.store.capabilities = self.store.capabilities._replace(keeps_sent=keeps_sent(self.store))
        self._effects: dict[Hashable, Effect | None] = {}
        self._deadlines_ms: dict[int, tuple[int, ...]] = {}
        names = max(scope.writers, 2)
        producers = tuple(b"p%d" % at for at in range(names))
        baseline = measure_baseline(lambda: SessionRun(self._restarted(), (CLIENT,), producers), names)
        self.run = SessionRun(self._restarted(), (CLIENT,), producers)
        self.run.inspector = Inspection([baseline])
        for label in range(1, scope.messages + 1):
            self.run.register(Save((scope.publication(label, 0),)))
        self._no_batches = (Batch(),) * names
        self._later_batches = (Batch(LATER_BATCH),) * names
        self.first = self._core_now()
        self.minds_lost_scripts = scope.has_lost_scripts and not self.store.finds_scripts_again(CLIENT)
        """Whether it makes a difference that the node has no scripts when an operation begins."""

    def _restarted(self) -> MemoStore:
        self.store.restart(FIRST_MS)
        return self.store

    def _core_now(self) -> int:
        state = self.run.state
        core = Core(self.store.keyspace, self.store.now_ms, state.accounts[0], state.connections[0])
        return self.cores.number(core)

    # -- operations ----------------------------------------------------------------------------------------------------

    def perform(
        self,
        core: int,
        step: Step,
        sendings: Sendings = (),
        batches: tuple[Batch, ...] = (),
        without_scripts: bool = False,
    ) -> Effect | None:
        """One step on one session, judged; None if it has no meaning there. ``batches``: the last save of each writer,
        by its name. ``without_scripts``: the node has none loaded when the step begins.
        """
        if not self.remembers:
            self.store.forget()
            return self._carry_out(core, step, sendings, batches, without_scripts)
        asked = core, step, sendings, batches, without_scripts
        if asked not in self._effects:
            self._effects[asked] = self._carry_out(core, step, sendings, batches, without_scripts)
        return self._effects[asked]

    def _go_to(self, core: int, sendings: Sendings, batches: tuple[Batch, ...]) -> None:
        at = self.cores[core]
        self.store.keyspace = at.keyspace
        self.store.set_now(at.now_ms)
        self.run.state = RunState((at.account,), sendings, batches or self._no_batches, (Cursor(),), (at.connection,))

    def _carry_out(
        self, core: int, step: Step, sendings: Sendings, batches: tuple[Batch, ...], without_scripts: bool
    ) -> Effect | None:
        self._go_to(core, sendings, batches)
        self.store.has_lost_scripts = without_scripts
        report = self.run.perform(step)
        self.store.has_lost_scripts = False
        if report.result is None:
            return None
        self._refuse_shared_keys()
        told = tuple(one for one in self.run.state.sendings if one not in sendings)
        is_done = self.run.reply_of(report.result).status == "done"
        was_stopped = report.result in (CRASHED, CLIENT_DIED)
        broken = _told_once(report.discrepancies)
        return Effect(self._core_now(), told, is_done, was_stopped, broken, report.diverges)

    def _refuse_shared_keys(self) -> None:
        if self.scope.readers == 1:
            return
        for key in self.store.frozen(self.store.keyspace):
            if CLIENT not in key:
                raise InputError(
                    f"{self.store.binding.place}: key {key.decode('latin-1')} does not bear the client's name, so that"
                    " sessions are not independent of each other; explore it with --set readers=1"
                )

    def wait(self, core: int, ms: int) -> Effect:
        """Time passes."""
        found = self.perform(core, Wait(ms))
        assert found is not None
        return found

    def settle(self, core: int) -> Broken:
        """What a session without live messages has left behind, after one more message has come and gone.

        Other laws that this one message may break are left to the steps that it takes.
        """
        at = self.cores[core]
        if at.account.queue or not at.connection.is_open:
            return ()
        found = self.perform(core, Quiesce(), (), self._later_batches)
        return tuple(one for one in found.broken if one[0] == "no-residue") if found is not None else ()

    # -- looking -------------------------------------------------------------------------------------------------------

    def deadlines_ms(self, core: int) -> tuple[int, ...]:
        """From when on messages, and keys of Redis, are gone: absolute, in order. A key outlives its deadline by 1 ms."""
        known = self._deadlines_ms.get(core)
        if known is None:
            at = self.cores[core]
            found = {entry.latest_ms for entry in at.account.queue}
            keys = self.store.frozen(at.keyspace).values()
            found |= {deadline + 1 for _, _, deadline in keys if deadline is not None}
            known = self._deadlines_ms[core] = tuple(sorted(found))
        return known

    def is_saved(self, core: int, label: int) -> bool:
        """Whether the session has had a message: to save it once more would be to save it twice."""
        account = self.cores[core].account
        return account.session.entry(label) is not None or account.fate(label) not in (None, "refused")

    def fail_over(self, now: int, replica: int) -> tuple[int, Broken]:
        """The session as the replica has it takes the place of the present one: its number, and what is broken by it.

        The client knows of its last CONNECT whatever happens to the node.
        """
        present, lagging = self.cores[now], self.cores[replica]
        restored = self.cores.number(lagging._replace(connection=present.connection))
        self._go_to(now, (), ())
        self.store.keyspace = lagging.keyspace
        broken = list(self.run.compare())
        broken += _counter_gone_back(present.account, lagging.account)
        return restored, _told_once(broken)


def _counter_gone_back(before: Account, after: Account) -> list[Discrepancy]:
    if after.last_ids == before.last_ids:
        return []
    was, now = ("/".join(map(str, sorted(one.last_ids))) for one in (before, after))
    return [Discrepancy("counter", f"the packet-identifier counter was at {was} and is at {now}")]


def _told_once(found: list[Discrepancy]) -> Broken:
    """The first discrepancy of each law."""
    first: dict[str, str] = {}
    for one in found:
        first.setdefault(one.law, one.text)
    return tuple(first.items())
