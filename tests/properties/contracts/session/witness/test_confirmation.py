"""Confirmation on a real server: what must not happen there, and what a server that goes away takes with it."""

from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path

import pytest

from orderlab.model.contracts.session.traces import Fetch, Publication, Save, Trace
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.validation.validation import validate
from orderlab.properties.contracts.session.witness.confirmation import SessionPerformer
from orderlab.properties.validation.effort import QUICK
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.properties.witness.confirmation import Confirmer, refuse_company
from orderlab.properties.witness.witness import Witness
from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.backends import open_backend
from orderlab.sim.redis.backends.backend import KernelBackend
from orderlab.sim.redis.wire import Connection
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.bound import BoundStore, CpuBudget

LUA = Path(__file__).parents[5] / "lua"


def changed(file: str, code: bytes) -> Binding:
    """The bundled store with ``code`` at the beginning of one script."""
    binding = load_binding(LUA / "session")
    source = next(script.source for script in binding.scripts if script.name == file)
    return binding.with_sources({file: code + source})


class Vanishing(KernelBackend):
    """A server that goes away as soon as it is used."""

    def flush(self) -> None:
        raise InputError("redis://nowhere: the server went away midway")


def witness(binding: Binding, law: str) -> Witness:
    (result,) = validate(binding, WorkOrder(QUICK, laws=[law], backend=Vanishing(), only_first=True)).results
    assert result.outcome is Outcome.VIOLATED
    assert isinstance(result.verdict.witness, Witness)
    return result.verdict.witness


def test_a_server_that_goes_away_takes_no_verdict_with_it() -> None:
    found = witness(load_binding(LUA / "specimens" / "limit-unchecked"), "legal-trim")
    assert found.confirmation == "not confirmed: redis://nowhere: the server went away midway"


@pytest.mark.parametrize(
    ("looks", "words"), [(1000, "confirmed on "), (3, "not confirmed: the cap on the time was reached")]
)
def test_a_confirmation_ends_where_the_time_does(looks: int, words: str) -> None:
    """Within its steps as well: one of 65,535 messages takes a server seconds."""
    clock = CpuBudget()
    clock.set(looks, partial(next, count()))  # a clock that each look moves on
    confirmer = Confirmer(
        KernelBackend(), SessionPerformer(changed("fetch.lua", b"do return {} end "), lambda *_: None), clock
    )
    saved = Save(tuple(Publication(number, b"m%d" % number) for number in range(1, 3)), limit=10)
    trace = Trace((saved, Fetch(), Fetch()), (b"c",))
    assert confirmer.words(trace, "no-loss", False).startswith(words)


@pytest.mark.parametrize(
    "code",
    [pytest.param(b"while true do end ", marks=pytest.mark.exhaustive), b"local s = 'x' while true do s = s .. s end "],
    ids=["time", "memory"],
)
def test_a_script_without_end_is_bounded_by_the_sandbox_and_never_sent_to_a_server(code: bytes) -> None:
    found = witness(changed("acknowledge.lua", code), "bounded")
    assert found.explanation.exhausts
    assert "went away" not in found.confirmation


@pytest.mark.server
def test_only_a_server_without_any_keys_is_used() -> None:
    with ServerProcess() as process:
        owner = Connection(process.host, process.port)
        owner.execute(b"SET", b"precious", b"1")
        with (
            open_backend(f"redis://{process.address}/7") as backend,
            pytest.raises(InputError, match="db0 of this server hold keys that scripts could reach"),
        ):
            refuse_company(backend)
        assert owner.execute(b"GET", b"precious") == b"1"
        owner.execute(b"DEL", b"precious")
        with open_backend(f"redis://{process.address}/7") as backend:
            refuse_company(backend)
        owner.close()


@pytest.mark.parametrize(("slack_ms", "accused"), [(150, False), (0, True)], ids=["its lag is known", "near miss"])
def test_what_expired_while_a_server_was_slow_is_not_held_against_the_store(slack_ms: int, accused: bool) -> None:
    backend = KernelBackend()
    store = BoundStore(load_binding(LUA / "specimens" / "published"), backend)
    run = SessionRun(store, (b"c",), slack_ms=slack_ms)
    assert not run.perform(Save((Publication(1, b"m1", interval_ms=1000),))).discrepancies
    backend.advance(1500)  # the callers' clock stands still
    assert bool(run.perform(Save((Publication(2, b"m2"),))).discrepancies) is accused
