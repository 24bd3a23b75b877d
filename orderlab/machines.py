"""State machines over stores, for Hypothesis: see ``notes/properties.md``.

A machine is a class; a rule takes steps, and each is judged by every law. Any of the ready ones runs on a store:

>>> from orderlab.machines import PROFILES, SessionMachine, Subject, load_binding, on_kernel
>>> store = Subject(load_binding("lua/session"))
>>> TestSession = on_kernel(SessionMachine, store, "Session").TestCase
>>> TestSession.settings = PROFILES["dev"].settings(None)

and so does one with rules of your own:

>>> from orderlab.machines import Acknowledge, Fetch, Save, StoreMachine, rule, st
>>> class NewestFirst(StoreMachine):
...     @rule(size=st.integers(1, 4))
...     def save(self, size):
...         self.take(Save(self.batch([(None, 1)] * size), limit=100))
...
...     @rule()
...     def acknowledge(self):
...         self.take(Fetch())
...         for label in reversed(self.live(0)):
...             self.take(Acknowledge(label))
>>> TestNewestFirst = on_kernel(NewestFirst, store, "NewestFirst").TestCase

Feeds, job queues and stores with a contract of their owner's have one machine, which makes the calls of the contract;
rules of your own add to it:

>>> from orderlab.machines import ContractMachine, contract_machine
>>> TestJobs = contract_machine(load_binding("lua/job_queue")).TestCase
>>> class Impatient(ContractMachine):
...     @rule(client=st.integers(0, 2))
...     def fails_at_once(self, client):
...         match self.call(client, "take", token="t", lease_ms=1000):
...             case (job, token, *_):
...                 self.call(client, "fail", job=job, token=token)
>>> TestImpatient = contract_machine(load_binding("lua/job_queue"), Impatient, laws=["no-rerun", "order"]).TestCase

`on_backend` takes a backend instead (`open_backend("redis://127.0.0.1:6379")`); `machine_of` makes a machine of a
specification. `LawViolated` (`ContractViolated`) is what a failing step raises; its trace is for `orderlab replay`.
"""

from __future__ import annotations

from hypothesis import strategies as st

from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.traces import (
    Acknowledge,
    Answer,
    Churn,
    Clear,
    DrainQueue,
    Fetch,
    Interleave,
    Open,
    Publication,
    Quiesce,
    Release,
    Retry,
    Save,
    Step,
    Trace,
    Wait,
)
from orderlab.properties.contracts.session.machines.concurrent_writers import ConcurrentWriters, OperationsInTrouble
from orderlab.properties.contracts.session.machines.hostile_clients import HostileClients
from orderlab.properties.contracts.session.machines.on_store import on_backend, on_kernel
from orderlab.properties.contracts.session.machines.queue import PacketIdentifiers, TrimAndExpiry
from orderlab.properties.contracts.session.machines.session import SessionMachine, Sessions
from orderlab.properties.contracts.session.machines.store import LawViolated, StoreMachine
from orderlab.properties.contracts.session.subject import Subject
from orderlab.properties.engine.machine import ContractMachine, ContractViolated, contract_machine
from orderlab.properties.machines.feed import FeedMachine, feed_machine
from orderlab.properties.machines.handshake import HandshakeBothWays
from orderlab.properties.machines.tally import initialize, rule
from orderlab.properties.machines.transition_system import SpecificationViolated, machine_of
from orderlab.properties.profiles import PROFILES, Profile
from orderlab.sim.redis.backends import Backend, open_backend
from orderlab.sim.stores.binding import Binding, load_binding

__all__ = [
    "PROFILES",
    "Acknowledge",
    "Answer",
    "Backend",
    "Binding",
    "Churn",
    "Clear",
    "ConcurrentWriters",
    "ContractMachine",
    "ContractViolated",
    "DrainQueue",
    "Fault",
    "FeedMachine",
    "Fetch",
    "HandshakeBothWays",
    "HostileClients",
    "Interleave",
    "LawViolated",
    "Open",
    "OperationsInTrouble",
    "PacketIdentifiers",
    "Profile",
    "Publication",
    "Quiesce",
    "Release",
    "Retry",
    "Save",
    "SessionMachine",
    "Sessions",
    "SpecificationViolated",
    "Step",
    "StoreMachine",
    "Subject",
    "Trace",
    "TrimAndExpiry",
    "Wait",
    "contract_machine",
    "feed_machine",
    "initialize",
    "load_binding",
    "machine_of",
    "on_backend",
    "on_kernel",
    "open_backend",
    "rule",
    "st",
]
