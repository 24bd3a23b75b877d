"""Certificates of closed scopes: what was closed, as a file, and its check without any search.

A certificate holds every state as a step from another, so that each is reached by real steps from the empty store, with
the digest of its canonical form. To check one, each state is made again, its digest compared, and every step that is
possible in it taken: each reply must break no law, and lead into a state whose digest is there. Nothing is looked for,
and nothing of ``orderlab.properties.engine.closing`` is used. What the file says of bounds, domains and counters must
be what comes out, and the equivalences of the canonical form are tested again: a file that somebody has edited is
accepted only where the search would have closed the same scope.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orderlab.model.contracts.base import Contract, brief
from orderlab.model.contracts.client_steps import ClientStep, from_json, to_json
from orderlab.model.contracts.judge import TooManyStates
from orderlab.model.errors import InputError
from orderlab.properties.engine.canonical import WORDS, Equivalence, Form, canonical, digest
from orderlab.properties.engine.closed_scope import (
    NOT_CLOSED,
    Bounds,
    ScopeSteps,
    depends_on_more,
    note_passed,
    words_of,
)
from orderlab.properties.engine.equivalence_tests import Checked, EquivalenceTests, Refuted, Seen, drawn_for
from orderlab.properties.engine.run import ContractRun, RunState
from orderlab.sim.stores.binding.binding import Binding

if TYPE_CHECKING:
    from orderlab.properties.engine.closing import Closed

SCHEMA = 1
VALUES_SHOWN = 12
CHANGED_AGAIN = 500
"""States that are changed, each once under each equivalence, where the search has changed every one."""
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
        "counters": _listed(closed.form),
        "domains": _shown(closed.domains),
        "digests": digests_of(run.binding, run.contract),
        "states": states,
    }


def _listed(form: Form) -> list[list[object]]:
    return sorted((list(path) for path in form.counters), key=repr)


def _shown(domains: Mapping[tuple[str, str], set[object]]) -> dict[str, dict[str, list[str]]]:
    result: dict[str, dict[str, list[str]]] = {}
    for (operation, name), values in sorted(domains.items()):
        shown = sorted(map(brief, values))
        more = [f"and {len(shown) - VALUES_SHOWN:,} more"] if len(shown) > VALUES_SHOWN else []
        result.setdefault(operation, {})[name] = [*shown[:VALUES_SHOWN], *more]
    return result


def check_certificate(content: Mapping[str, Any], run: ContractRun, laws: list[str], place: str) -> str:
    """Check each state and every step out of it, and test the equivalences; what is shown, in words. Raises Refused,
    InputError."""
    bounds, used, seed, states = _read(content, place)
    _check_head(content, run, laws)
    try:
        return _Check(content, run, bounds, used, seed, place).shown(states)
    except Refuted as refuted:
        raise Refused(f"{WORDS[refuted.which]}: scripts can tell, {refuted}") from None
    except TooManyStates as error:
        raise Refused(str(error)) from None


class _Check:
    """What is made again of a certificate, and its tests."""

    def __init__(
        self,
        content: Mapping[str, Any],
        run: ContractRun,
        bounds: Bounds,
        used: frozenset[Equivalence],
        seed: int,
        place: str,
    ) -> None:
        self.content, self.place, self.first = content, place, run.state
        self.world, draw = ScopeSteps(run, Bounds()), drawn_for(seed)
        self.seen = Seen(self.world, draw)
        self.seen.walk(self.first)
        if self.seen.endless:
            raise Refused(f"clients go on giving new names ({self.seen.endless})")
        if bounds not in self.seen.bounds():
            raise Refused(f"its bounds are not such as a scope is closed for: {bounds._asdict()}")
        if not {Equivalence.INSTANTS} <= used <= {*self.seen.equivalences()}:
            raise Refused("its equivalences are not such as a scope is closed under")
        counters = self.seen.grown if Equivalence.COUNTERS in used else frozenset()
        self.world.bounds, self.form = bounds, Form(used, counters)
        self.tests = EquivalenceTests(self.world, draw)
        self.tests.form, self.tests.checked = self.form, {which: Checked() for which in used}
        self.made: list[RunState] = []

    def shown(self, states: list[dict[str, Any]]) -> str:
        """What the states show."""
        known = dict[str, int]()
        for at, item in enumerate(states):
            if known.setdefault(item["digest"], at) != at:
                raise Refused(f"states {known[item['digest']]} and {at} have one digest")
        self.tests.change_all(self.seen.states)
        steps, is_pruned = self._steps(states, known)
        self.tests.change_each(self.tests.draw.sample(self.made, min(CHANGED_AGAIN, len(self.made))))
        says = words_of(self.world.bounds, self.made, is_pruned, self.form.used)
        if self.content.get("says") != says:
            raise Refused(f"it says otherwise than what it shows: {says}")
        changes = sum(checked.changes for checked in self.tests.checked.values())
        return (
            f"{says}; checked: {len(self.made):,} states, {steps:,} steps; the equivalences tested again by a sample: "
            f"{changes:,} changed states"
        )

    def _steps(self, states: list[dict[str, Any]], known: Mapping[str, int]) -> tuple[int, bool]:
        """Make each state by a step from one before it, and take every step from it: how many, and whether some lead to
        more things than the scope has."""
        reached: dict[tuple[int, ClientStep | None], RunState | None] = {
            _origin(one, self.place): None for one in states
        }
        reached[ROOT, None] = self.first
        met: set[Any] = set()
        passed = dict[tuple[str, str], set[object]]()
        steps, is_pruned = 0, False
        for at, item in enumerate(states):
            state = reached[_origin(item, self.place)]
            if state is None:
                raise Refused(f"no step leads to state {at} from one before it as is told")
            if digest(self.tests.formed(state)) != item["digest"]:
                raise Refused(f"state {at} is another than its digest says")
            self.made.append(state)
            for step, report, after in self.world.all_taken(state):
                steps += 1
                note_passed(passed, step, self.seen.grown)
                if report.violation is not None:
                    raise Refused(f"from state {at}, {step}: {report.violation.text}")
                if depends_on_more(report, after):
                    raise Refused(f"from state {at}, {step}: a client waits or watches, which no scope is closed with")
                if (at, step) in reached:
                    reached[at, step] = after
                key = after.key
                if key in met:
                    continue
                if not self.world.is_within(after):
                    is_pruned = True
                    continue
                met.add(key)
                led = known.get(digest(self.tests.formed(after)))
                if led is None:
                    raise Refused(f"from state {at}, {step} leads to a state that is not there")
                if led < len(self.made):
                    self.tests.meet(self.made[led], after)
        for name, value in {"domains": _shown(passed), "counters": _listed(self.form)}.items():
            if self.content.get(name) != json.loads(json.dumps(value)):
                raise Refused(f"its {name} are not those that were met: {value}")
        return steps, is_pruned


def _origin(item: Mapping[str, Any], place: str) -> tuple[int, ClientStep | None]:
    """From which state a state is reached, by which step. Raises InputError."""
    return item["from"], None if item["step"] is None else from_json(item["step"], f"{place}: states")


def _read(content: Mapping[str, Any], place: str) -> tuple[Bounds, frozenset[Equivalence], int, list[dict[str, Any]]]:
    """Bounds, equivalences, seed, states. Raises InputError where the file is no certificate."""
    if not isinstance(content, Mapping) or content.get("schema") != SCHEMA:
        raise InputError(f"{place}: no certificate of schema {SCHEMA}; write one with validate --certificate")
    try:
        bounds = Bounds(**{name: int(value) for name, value in content["bounds"].items()})
        used = frozenset(Equivalence(name) for name, item in content["equivalences"].items() if item["used"])
        states = [
            {"digest": str(item["digest"]), "from": int(item["from"]), "step": item["step"]}
            for item in content["states"]
        ]
        seed = int(content["seed"])
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise InputError(
            f"{place}: {type(error).__name__}: {error}; write the certificate again with validate --certificate"
        ) from None
    if not states:
        raise InputError(f"{place}: no states; write it again with validate --certificate")
    return bounds, used, seed, states


def _check_head(content: Mapping[str, Any], run: ContractRun, laws: list[str]) -> None:
    """Whether the certificate is of this store."""
    now, then = digests_of(run.binding, run.contract), content.get("digests")
    then = then if isinstance(then, Mapping) else {}
    for name in sorted({*now, *then}):
        if now.get(name) != then.get(name):
            raise Refused(f"{name} is not what the certificate is of")
    wanted, given = [law for law in laws if law not in NOT_CLOSED], content.get("laws")
    if given != wanted:
        differ = sorted({*wanted} ^ {*map(str, given if isinstance(given, list) else ())}) or ["their order"]
        raise Refused(f"its laws are not those of the contract: {', '.join(differ)}")
    if content.get("contract") != type(run.contract).__name__:
        raise Refused("its contract has another name")
    if content.get("skews_ms") != list(run.skews_ms):
        raise Refused("its clients have other clocks")
    words = {str(which): WORDS[which] for which in WORDS}
    for name, item in content["equivalences"].items():
        if item.get("words") != words.get(name):
            raise Refused(f"its words of the equivalence {name} are others: {words.get(name)}")
        if item["used"] and item.get("taken_back"):
            raise Refused(f"its equivalence {name} was taken back, and is used")
