"""Validation of scripts that nobody trusts: in a process of its own, which is ended if a script does not end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orderlab.model.errors import InputError, WorkerDied
from orderlab.model.laws import STORE_LAWS
from orderlab.model.verdict import Outcome, Verdict
from orderlab.properties.contracts.kind import SCRIPT_SECONDS_MAX, unsupported
from orderlab.properties.contracts.session.validation.exploration import MODULUS
from orderlab.properties.contracts.session.validation.footprint import Footprint
from orderlab.properties.contracts.session.validation.subject import REHEARSAL_MODULUS
from orderlab.properties.contracts.session.validation.validation import LawResult, Progress, Validation, validate
from orderlab.sim.redis.backends import Backend
from orderlab.sim.redis.lua.watchdog import Finished, Unfinished, watch
from orderlab.sim.redis.unsupported import UnsupportedCommand
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.lua_text import scale


@dataclass(frozen=True)
class Runaway:
    """The witness of a script that had to be ended together with its process."""

    text: str
    script: str
    keys: tuple[str, ...]
    args: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Which call it was."""
        return {"text": self.text, "script": self.script, "keys": list(self.keys), "args": list(self.args)}


def validate_isolated(
    binding: Binding,
    effort: float,
    seed: int,
    laws: list[str],
    backend: Backend | None,
    progress: Progress,
    budget_s: float | None = None,
) -> Validation:
    """As ``validate``. A script that cannot be ended otherwise breaks the law ``bounded``.

    Raises WorkerDied when the process ended by itself: that is no verdict on anything.
    """
    try:
        answer = watch(
            lambda: validate(binding, effort, seed, laws, backend, progress, budget_s),
            script_seconds_max=SCRIPT_SECONDS_MAX,
        )
    except UnsupportedCommand as error:
        raise InputError(unsupported(binding, error)) from None
    if isinstance(answer, Finished):
        return answer.value
    if answer.died:
        raise WorkerDied(f"{binding.place}: validation ended unfinished: {death_of(binding, answer)}")
    return _unfinished(binding, seed, laws, answer, effort)


def death_of(binding: Binding, answer: Unfinished) -> str:
    """How the worker ended, and what it was doing."""
    if answer.script is None:
        return answer.reason
    runaway = runaway_of(binding, answer)
    return f"{answer.reason} while {runaway.script or 'a script'} ran"


def _unfinished(binding: Binding, seed: int, laws: list[str], answer: Unfinished, effort: float) -> Validation:
    runaway = runaway_of(binding, answer)
    gap = f"nothing else could be judged: {runaway.text}"

    def result(law: str) -> LawResult:
        if law == "bounded":
            return LawResult(Verdict(law, Outcome.VIOLATED, runaway, {"antecedents": 1}))
        return LawResult(Verdict(law, Outcome.UNKNOWN, None, {}, (gap,)))

    judged = tuple(result(law) for law in STORE_LAWS if law in {*laws, "bounded"})
    return Validation(binding, judged, Footprint(), (), (), (gap,), {}, seed, effort)


def runaway_of(binding: Binding, answer: Unfinished) -> Runaway:
    """Which script of a store it was, scaled down or as it is."""
    scaled = [binding, *(scale(binding, modulus)[0] for modulus in (MODULUS, REHEARSAL_MODULUS))]
    names = {script.sha1.encode(): str(script.path) for one in scaled for script in one.scripts}
    call = answer.script
    script = "" if call is None else names.get(call.name, call.name.decode("latin-1"))
    text = f"{script or 'a script'} does not end: {answer.reason}"
    return Runaway(text, script, _shown(call.keys if call else ()), _shown(call.args if call else ()))


def _shown(values: tuple[bytes, ...]) -> tuple[str, ...]:
    return tuple(value[:80].decode("latin-1") for value in values[:20])
