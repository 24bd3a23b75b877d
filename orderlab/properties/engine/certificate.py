"""Certificates of closed scopes: what was closed, as a file, and its check without any search.

A certificate holds every state as a step from another, so that each is reached by real steps from the empty store, with
the digest of its canonical form. To check one, each state is made again, its digest compared, and every step that is
possible in it taken: each reply must break no law, and lead into a state whose digest is there. Nothing is looked for,
and nothing of ``orderlab.properties.engine.closing`` is used. How the equivalences of the canonical form were tested
stands in the file and is not repeated.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orderlab.model.contracts.base import Contract, brief
from orderlab.model.contracts.client_steps import from_json, to_json
from orderlab.model.errors import InputError
from orderlab.properties.engine.canonical import WORDS, Equivalence, Form, canonical, digest
from orderlab.properties.engine.closed_scope import NOT_CLOSED, Bounds, ScopeSteps, words_of
from orderlab.properties.engine.run import ContractRun, RunState
from orderlab.sim.stores.binding.binding import Binding

if TYPE_CHECKING:
    from orderlab.properties.engine.closing import Closed

SCHEMA = 1
VALUES_SHOWN = 12
ROOT = -1


class Refused(Exception):
    """The certificate does not show what it says; why, in one line."""


def digests_of(binding: Binding, contract: Contract) -> dict[str, str]:
    """Of all that the states depend on: scripts, the binding, the contract's text."""
    file = Path(binding.place)
    result = {f"script {script.name}": sha256(script.source).hexdigest() for script in binding.scripts}
    result["binding"] = sha256(file.read_bytes() if file.is_file() else b"").hexdigest()
    kinds = [kind for kind in type(contract).__mro__ if issubclass(kind, Contract) and kind is not Contract]
    for kind in kinds:
        result[f"contract {kind.__name__}"] = sha256(Path(inspect.getfile(kind)).read_bytes()).hexdigest()
    return result


def certificate_of(closed: Closed, run: ContractRun, laws: list[str], seed: int) -> dict[str, Any]:
    """The certificate as plain values."""
    phase = ScopeSteps(run, closed.bounds)
    phase.anchor_ms = closed.stored[0].state.core.now_ms
    states = []
    for item in closed.stored:
        form = canonical(item.state, closed.form, phase.phase(item.state.core.now_ms))
        step = None if item.step is None else to_json(item.step)
        states.append({"digest": digest(form), "from": item.parent, "step": step})
    domains: dict[str, dict[str, list[str]]] = {}
    for (operation, name), values in sorted(closed.domains.items()):
        shown = sorted(map(brief, values))
        more = [f"and {len(shown) - VALUES_SHOWN:,} more"] if len(shown) > VALUES_SHOWN else []
        domains.setdefault(operation, {})[name] = [*shown[:VALUES_SHOWN], *more]
    return {
        "schema": SCHEMA,
        "store": str(run.binding.path),
        "contract": type(run.contract).__name__,
        "says": closed.words,
        "laws": [law for law in laws if law not in NOT_CLOSED],
        "bounds": closed.bounds._asdict(),
        "skews_ms": list(run.skews_ms),
        "seed": seed,
        "equivalences": {
            str(which): {
                "words": WORDS[which],
                "used": which in closed.equivalences,
                "pairs": checked.pairs,
                "changed": checked.changes,
                "taken_back": checked.refuted,
            }
            for which, checked in closed.checked.items()
        },
        "counters": sorted((list(path) for path in closed.form.counters), key=repr),
        "domains": domains,
        "digests": digests_of(run.binding, run.contract),
        "states": states,
    }


def check_certificate(content: Mapping[str, Any], run: ContractRun, laws: list[str], place: str) -> str:
    """Check each state and every step out of it; what is shown, in words. Raises Refused, InputError."""
    bounds, form, states = _read(content, place)
    _check_head(content, run, laws)
    world, known = ScopeSteps(run, bounds), dict[str, int]()
    for at, item in enumerate(states):
        if known.setdefault(item["digest"], at) != at:
            raise Refused(f"states {known[item['digest']]} and {at} have one digest")
    made: list[RunState] = []
    for at, item in enumerate(states):
        state = _made(at, item, made, run, world, place)
        if _digest(world, form, state) != item["digest"]:
            raise Refused(f"state {at} is another than its digest says")
        made.append(state)
    seen: set[Any] = set()
    steps, is_pruned = 0, False
    for at, state in enumerate(made):
        for step, report, after in world.all_taken(state):
            steps += 1
            if report.violation is not None:
                raise Refused(f"from state {at}, {step}: {report.violation.text}")
            key = after.key
            if key in seen:
                continue
            if not world.is_within(after):
                is_pruned = True
                continue
            seen.add(key)
            if _digest(world, form, after) not in known:
                raise Refused(f"from state {at}, {step} leads to a state that is not there")
    says = words_of(bounds, made, is_pruned, form.used)
    if content.get("says") != says:
        raise Refused(f"it says otherwise than what it shows: {says}")
    return f"{says}; checked: {len(made):,} states, {steps:,} steps"


def _digest(world: ScopeSteps, form: Form, state: RunState) -> str:
    return digest(canonical(state, form, world.phase(state.core.now_ms)))


def _made(
    at: int, item: Mapping[str, Any], made: list[RunState], run: ContractRun, world: ScopeSteps, place: str
) -> RunState:
    """A state, from one before it by its step."""
    if item["from"] == ROOT:
        if at:
            raise Refused(f"state {at} is reached from nowhere")
        return run.state
    if not 0 <= item["from"] < at:
        raise Refused(f"state {at} is reached from state {item['from']}, which comes after it")
    report, after = world.taken(made[item["from"]], from_json(item["step"], f"{place}: states[{at}].step"))
    if report.violation is not None:
        raise Refused(f"the step to state {at}: {report.violation.text}")
    return after


def _read(content: Mapping[str, Any], place: str) -> tuple[Bounds, Form, list[dict[str, Any]]]:
    """Bounds, form, states. Raises InputError where the file is no certificate."""
    if not isinstance(content, Mapping) or content.get("schema") != SCHEMA:
        raise InputError(f"{place}: no certificate of schema {SCHEMA}; write one with validate --certificate")
    try:
        bounds = Bounds(**{name: int(value) for name, value in content["bounds"].items()})
        used = frozenset(Equivalence(name) for name, item in content["equivalences"].items() if item["used"])
        form = Form(used, frozenset(tuple(path) for path in content["counters"]))
        states = [
            {"digest": str(item["digest"]), "from": int(item["from"]), "step": item["step"]}
            for item in content["states"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{place}: {type(error).__name__}: {error}; write the certificate again with validate --certificate"
        ) from None
    if not states or bounds.grid_ms < 1:
        raise InputError(f"{place}: no states, or no steps of time; write it again with validate --certificate")
    return bounds, form, states


def _check_head(content: Mapping[str, Any], run: ContractRun, laws: list[str]) -> None:
    """Whether the certificate is of this store."""
    now, then = digests_of(run.binding, run.contract), content.get("digests")
    then = then if isinstance(then, Mapping) else {}
    for name in sorted({*now, *then}):
        if now.get(name) != then.get(name):
            raise Refused(f"{name} is not what the certificate is of")
    wanted = [law for law in laws if law not in NOT_CLOSED]
    if list(content.get("laws", ())) != wanted:
        differ = sorted({*wanted} ^ {*map(str, content.get("laws", ()))}) or ["their order"]
        raise Refused(f"its laws are not those of the contract: {', '.join(differ)}")
    if content.get("skews_ms") != list(run.skews_ms):
        raise Refused("its clients have other clocks")
