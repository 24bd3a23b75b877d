"""A store on a Redis Cluster: slots migrate in every phase under its calls, and masters fail over to replicas that lag.

What is required while a client's slot moves: a call may be refused (ASK answered by TRYAGAIN, MOVED that is followed),
but it does all of its work or none of it, and what it touches beyond its KEYS must not stop it midway (B14). A client
whose slot stays, and everybody once the slot has arrived or returned, must be served. A failover to a replica that lags
loses the last operations (B9), whole ones and nothing else: the session goes on exactly where the replica had it. Keys
of two slots in one call (S14) are refused by any cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import precondition

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.refinement.account import Batch, RunState, names_of
from orderlab.model.contracts.session.traces import (
    Acknowledge,
    Clear,
    DrainQueue,
    Fetch,
    Open,
    Quiesce,
    Release,
    Retry,
    Save,
    Step,
    Wait,
    kind_of_step,
)
from orderlab.properties.contracts.session import strategies as given
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.inspection import Inspection
from orderlab.properties.contracts.session.machines.on_store import facts_of
from orderlab.properties.contracts.session.machines.store import LawViolated, StoreMachine, configured
from orderlab.properties.contracts.session.run import StepReport
from orderlab.properties.contracts.session.subject import DEFAULT_EXPIRY_MS, Subject
from orderlab.properties.contracts.session.witness.confirmation import SLACK_MS
from orderlab.properties.harness.recording import line_to_look_at
from orderlab.properties.machines.tally import initialize, rule
from orderlab.properties.witness.witness import lua_lines
from orderlab.sim.redis.error_conditions import SLOT_MIGRATES
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.results import Failed, Result
from tests.laboratory.cluster_store import (
    MASTERS,
    ClusterBackend,
    ClusterStore,
    KernelCluster,
    Migration,
    served,
)

CLIENTS = st.sampled_from([b"c", b"client-one", b"}x", b"a}b{c", b"{}", b"%"])
"""Two ordinary ones, then such as break hash tags."""
OPERATIONS = ("save", "save", "fetch", "acknowledge", "release", "connect", "clear")
MEANWHILE = st.sampled_from([*OPERATIONS, "a key moves", "a key moves", "arrives", "returns"])
BYSTANDER = b"bystander"
OPEN = Fault(SLOT_MIGRATES.name)
"""What befalls a call for a slot that is on its way: it may be refused."""


class SlotsOnTheMove(StoreMachine):
    """A client whose slot moves, and one beside it. ``subject``: the store, for the baseline of its keys."""

    subject: ClassVar[Subject]
    new_backend: ClassVar[Callable[[], ClusterBackend]]
    slack_ms: ClassVar[int] = 0
    prefix: ClassVar[tuple[Step, ...]] = ()

    @initialize(client=CLIENTS, meanwhile=st.lists(MEANWHILE, max_size=4))
    def connect_as(self, client: bytes, meanwhile: list[str]) -> None:
        """Any identifier. If anything is to happen meanwhile, the slot of the new session moves at once."""
        if self.ended:
            return
        store = ClusterStore(self.subject.binding, type(self).new_backend(), DEFAULT_EXPIRY_MS)
        store.capabilities = self.subject.store.capabilities
        clients = (client, BYSTANDER)
        baseline = self.subject.baselines_of(clients)
        self.store = store
        self.run = SessionRun(store, clients, slack_ms=self.slack_ms)
        self.run.inspector = Inspection(baseline) if baseline else None
        self.migration = Migration(store.cluster)
        self.replica: RunState = self.run.state
        self.last_result: Result | None = None
        self.story: list[str] = [f"client {client!r}"]
        self.catch_up()
        self.take(Fetch(0))
        if meanwhile:
            self.move_slot(0, 1, meanwhile)

    # -- the store -----------------------------------------------------------------------------------------------------

    def perform(self, step: Step) -> StepReport:
        """Judged as ever; an operation whose keys are in two slots is told by its law."""
        report = self.run.perform(step)
        self.last_result = report.result
        if report.result is not None:
            self.story.append(in_words(step))
        if isinstance(report.result, Failed) and report.result.error.startswith(b"CROSSSLOT"):
            text = f"the keys of one {kind_of_step(step)} are in several slots: {report.result.error.decode()}"
            report.discrepancies = [Discrepancy("one-slot", text)]
        return report

    def take(self, step: Step) -> None:
        """One step, judged; a violation tells what befell the cluster as well."""
        try:
            super().take(step)
        except LawViolated as violation:
            told = [f"  {number}. {text}" for number, text in enumerate(self.story, 1)]
            lua = line_to_look_at(self.store.last, self.store.binding, self.last_result)
            told += [line for line, _ in lua_lines(lua)]
            violation.story = "\n".join([violation.args[0], "on a cluster:", *told])
            raise

    def of_client(self, step: Any, client: int) -> None:
        """Take a step of a client; while its slot moves it may be refused."""
        moves = self.migration.slot in self.store.slots_of(self.run.clients[client])
        if moves:
            step = replace(step, fault=OPEN)
            self.tally.coverage["an operation while its slot moves"] += 1
        self.take(step)

    @rule(
        client=st.integers(0, 1),
        producer=st.integers(0, 1),
        size=st.integers(1, 3),
        limit=given.ordinary_limits,
        lags=st.booleans(),
    )
    def save(self, client: int, producer: int, size: int, limit: int, lags: bool) -> None:
        """A batch, some of it short-lived. Unless they lag, the replicas have what happened before it."""
        if not (self.ended or lags):
            self.catch_up()
        messages = [(None, 1), (1000, 2), (None, 2)][: min(size, self.largest_batch)]
        self.of_client(Save(self.batch(messages), client, producer, limit), client)

    @precondition(lambda self: self.migration.slot is None)
    @rule(producer=st.integers(0, 1))
    def repeat(self, producer: int) -> None:
        """What was refused, or lost with a master, or answered to nobody, comes again."""
        self.take(Retry(producer))

    @rule(client=st.integers(0, 1), count=st.sampled_from([None, 1, 2]))
    def fetch(self, client: int, count: int | None) -> None:
        """A page."""
        self.of_client(Fetch(client, count), client)

    @rule(back=st.integers(0, 4), release=st.booleans())
    def answer(self, back: int, release: bool) -> None:
        """PUBACK or PUBREC, however late."""
        label = max(self.labels - back, 1)
        if label in self.run.publications:
            client, _ = self.run.publications[label]
            self.of_client(Release(label) if release else Acknowledge(label), client)

    @rule(clean=st.booleans(), ends=st.booleans())
    def connect(self, clean: bool, ends: bool) -> None:
        """A session begins, goes on, or ends."""
        self.of_client(Clear() if ends else Open(0, clean), 0)

    @precondition(lambda self: self.can_wait)
    @rule(ms=st.sampled_from([999, 1000, 20_000]))
    def time_passes(self, ms: int) -> None:
        """Deadlines pass, wherever the keys are."""
        self.take(Wait(ms))

    # -- the cluster ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.ended and self.migration.slot is None)
    @rule(client=st.integers(0, 1), by=st.integers(1, MASTERS - 1), meanwhile=st.lists(MEANWHILE, max_size=5))
    def slot_begins_to_move(self, client: int, by: int, meanwhile: list[str]) -> None:
        """That of a client's keys, to the master ``by`` places further on; and what happens to it on its way."""
        self.move_slot(client, by, meanwhile)

    def move_slot(self, client: int, by: int, meanwhile: list[str]) -> None:
        """From where it is; not to its end."""
        if self.ended:
            return
        slot = self.store.slots_of(self.run.clients[client])[0]
        self.migration.begin(slot, (self.store.cluster.masters.owner(slot) + by) % MASTERS)
        self.catch_up()
        self.happened("slot begins to move", f"the slot of client {client} begins to move")
        for what in meanwhile:
            if what == "a key moves":
                self.keys_of_it_move(1)
            elif what in ("arrives", "returns"):
                self.stop_moving(what == "returns")
                return
            else:
                self.of_client(self._step(what, client), client)

    def _step(self, what: str, client: int) -> Step:
        """One operation of a client, on its oldest message if it needs one."""
        oldest = next(iter(self.live(client)), 1)
        match what:
            case "save":
                return Save(self.batch([(None, 2)]), client, limit=3)
            case "acknowledge":
                return Acknowledge(oldest)
            case "release":
                return Release(oldest)
            case "connect":
                return Open(client)
            case "clear":
                return Clear(client)
            case _:
                return Fetch(client)

    @precondition(lambda self: not self.ended and self.migration.slot is not None)
    @rule(count=st.integers(1, 2))
    def keys_move(self, count: int) -> None:
        """Some of them."""
        self.keys_of_it_move(count)

    def keys_of_it_move(self, count: int) -> None:
        """As many as there are, at most ``count``."""
        moved = self.migration.move(count)
        if moved:
            self.happened("keys move", f"{moved} of its keys move")

    @precondition(lambda self: not self.ended and self.migration.slot is not None)
    @rule(returns=st.booleans())
    def slot_stops_moving(self, returns: bool) -> None:
        """It has arrived, or the operator thinks again."""
        self.stop_moving(returns)

    def stop_moving(self, returns: bool) -> None:
        """One way or the other."""
        if returns:
            self.migration.turn_back()
        else:
            self.migration.end()
        self.catch_up()
        self.happened(
            "slot returns" if returns else "slot arrives", "the slot is back" if returns else "it has arrived"
        )

    @property
    def can_fail_over(self) -> bool:
        """Not in the middle of a migration, which no replica knows of: then keys are stranded whatever the store is."""
        return not self.ended and isinstance(self.store.cluster, KernelCluster) and self.migration.slot is None

    @precondition(lambda self: self.can_fail_over)
    @rule(client=st.integers(0, 1))
    def master_fails(self, client: int) -> None:
        """That of a client's keys. What its replica had not heard of has never been."""
        backend = self.store.cluster
        assert isinstance(backend, KernelCluster)
        nodes = {backend.masters.owner(slot) for slot in self.store.slots_of(self.run.clients[client])}
        before = self.run.state
        for node in nodes:
            backend.fail_over(node)
        for at, name in enumerate(self.run.clients):
            if {backend.masters.owner(slot) for slot in self.store.slots_of(name)} <= nodes:
                self.run.state = self._reverted(self.run.state, at)
        self.happened("failover", f"the master of client {client} fails, a replica takes over")
        if self.run.state != before:
            self.tally.coverage["a failover loses operations"] += 1
            self.take(Wait(0))

    @rule(client=st.integers(0, 1))
    def comes_to_rest(self, client: int) -> None:
        """The slot arrives, the client takes everything, nothing stays behind. A rule, for it makes failures short."""
        if not self.ended:
            self.migration.end()
            self.catch_up()
            self.take(DrainQueue(client))
            self.take(Quiesce(client))

    def catch_up(self) -> None:
        """The replicas have what their masters have."""
        if isinstance(self.store.cluster, KernelCluster):
            self.store.cluster.catch_up()
            self.replica = self.run.state

    def happened(self, name: str, text: str) -> None:
        """Something befell the cluster."""
        self.tally.steps[name] += 1
        self.story.append(text)

    def _reverted(self, now: RunState, client: int) -> RunState:
        """``now`` with one client's session, and what was told of it, as the replica has it. CONNECTs go on
        counting."""
        then, now_ms = self.replica, now.accounts[client].session.now_ms
        account = then.accounts[client]
        account = account._replace(session=account.session._replace(now_ms=now_ms))
        connection = then.connections[client]._replace(connects=now.connections[client].connects, answer=None)
        owner = {label: of for label, (of, _) in self.run.publications.items()}
        sendings = [one for one in now.sendings if owner[one[0]] != client]
        sendings += [one for one in then.sendings if owner[one[0]] == client]
        batches = list(now.batches)
        for at, (batch, old) in enumerate(zip(now.batches, then.batches, strict=True)):
            if batch.step is not None and batch.step.client == client:
                known = old if old.number == batch.number else Batch()
                batches[at] = batch._replace(was_done=known.was_done, told=known.told)
        return now._replace(
            accounts=_with(now.accounts, client, account),
            connections=_with(now.connections, client, connection),
            cursors=_with(now.cursors, client, then.cursors[client]),
            sendings=tuple(sorted(sendings)),
            batches=tuple(batches),
        )

    def teardown(self) -> None:
        """The slot arrives; then everything comes out in the end and nothing stays behind."""
        if hasattr(self, "migration"):
            self.migration.end()
            self.tally.coverage.update(served(self.store.cluster.coverage))
        super().teardown()


def in_words(step: Step) -> str:
    """A step of this machine, as one line of its story."""
    name = kind_of_step(step)
    match step:
        case Save():
            told = (
                f"producer {step.producer} saves {names_of([one.label for one in step.messages])} for client "
                f"{step.client}"
            )
            told += f", limit {step.limit}"
        case Acknowledge() | Release():
            told = f"{name} m{step.label}"
        case Wait():
            told = f"{step.ms} ms pass"
        case Retry():
            told = f"producer {step.producer} repeats {'an older' if step.older else 'its last'} save"
        case Open():
            told = f"client {step.client} connects" + (" with a clean start" if step.clean_start else "")
        case _:
            told = f"{name} of client {getattr(step, 'client', 0)}"
    return told + (", while its slot moves" if getattr(step, "fault", None) else "")


def _with(items: tuple[Any, ...], at: int, item: Any) -> tuple[Any, ...]:
    return (*items[:at], item, *items[at + 1 :])


def on_cluster(
    subject: Subject, name: str, new_backend: Callable[[], ClusterBackend] = KernelCluster, **attributes: Any
) -> type[SlotsOnTheMove]:
    """The machine on a store. ``new_backend`` gives each example a cluster without keys."""
    binding: Binding = subject.binding
    is_real = new_backend is not KernelCluster
    facts = facts_of(binding, subject.store.largest_batch) | {"subject": subject, "make_run": lambda: _nothing(subject)}
    facts |= {"new_backend": new_backend, "can_wait": not is_real, "slack_ms": SLACK_MS if is_real else 0}
    made: type[SlotsOnTheMove] = configured(SlotsOnTheMove, name, facts | attributes)
    return made


def _nothing(subject: Subject) -> SessionRun:
    """What an example has before it knows its client."""
    return subject.run()
