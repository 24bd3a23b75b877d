"""Validation of scripts that nobody trusts: in a process of its own, which is ended if a script does not end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from orderlab import code_of_user
from orderlab.model.errors import InputError, WorkerDied
from orderlab.model.verdict import Outcome, Verdict
from orderlab.properties.validation.verdicts import LawResult
from orderlab.sim.redis.lua.watchdog import Finished, Unfinished, watch
from orderlab.sim.redis.unsupported import UnsupportedCommand
from orderlab.sim.stores.binding.binding import Binding

T = TypeVar("T")
SCRIPT_SECONDS_MAX = 40.0
"""Processor time of one script. The sandbox stops scripts sooner; this is for what it cannot stop."""


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


class RunawayScript(Exception):
    """A script could only be ended together with the process that it ran in."""

    def __init__(self, unfinished: Unfinished) -> None:
        super().__init__(unfinished)
        self.unfinished = unfinished


def isolated(
    binding: Binding,
    work: Callable[[], T],
    worlds: Callable[[], Sequence[Binding]],
    what: str = "validation",
    budget_s: float | None = None,
) -> T | Runaway:
    """What ``work`` on a store comes to in a process of its own, or the script that could only be ended together with
    it. Asked to end (Ctrl-C, SIGTERM), it comes to what is known by then.

    ``worlds``: the store as it is tried, scaled down too. ``budget_s`` is for ``work`` to keep to; a contract that does
    not let it is ended and named. Raises WorkerDied when the process ended by itself: that is
    no verdict on anything.
    """

    def within_budget() -> T:
        os.dup2(2, 1)  # what code of the user's prints is no part of the output
        if budget_s is not None and code_of_user.noted is not None:
            code_of_user.noted.set_deadline(time.monotonic() + budget_s)
        return work()

    try:
        answer: Finished[T] | Unfinished = watch(within_budget, script_seconds_max=SCRIPT_SECONDS_MAX, in_order=True)
    except RunawayScript as runaway_script:
        answer = runaway_script.unfinished
    except UnsupportedCommand as error:
        raise InputError(_unsupported(binding, error)) from None
    if isinstance(answer, Finished):
        found: T = answer.value
        return found
    runaway = runaway_of(worlds(), answer)
    if answer.died:
        doing = "" if answer.script is None else f" while {runaway.script or 'a script'} ran"
        raise WorkerDied(f"{binding.place}: {what} ended unfinished: {answer.reason}{doing}")
    return runaway


def unjudged(runaway: Runaway, laws: Sequence[str]) -> tuple[tuple[LawResult, ...], str]:
    """The verdicts where a script could not be ended otherwise: it breaks ``bounded``. And what is left out."""
    gap = f"nothing else could be judged: {runaway.text}"

    def result(law: str) -> LawResult:
        if law == "bounded":
            return LawResult(Verdict(law, Outcome.VIOLATED, runaway, {"antecedents": 1}))
        return LawResult(Verdict(law, Outcome.UNKNOWN, None, {}, (gap,)))

    return tuple(map(result, laws)), gap


def runaway_of(worlds: Sequence[Binding], answer: Unfinished) -> Runaway:
    """Which script of a store it was, in whichever of its worlds."""
    names = {script.sha1.encode(): str(script.path) for one in worlds for script in one.scripts}
    call = answer.script
    script = "" if call is None else names.get(call.name, call.name.decode("latin-1"))
    text = f"{script or 'a script'} does not end: {answer.reason}"
    return Runaway(text, script, _shown(call.keys if call else ()), _shown(call.args if call else ()))


def _shown(values: tuple[bytes, ...]) -> tuple[str, ...]:
    return tuple(value[:80].decode("latin-1") for value in values[:20])


def _unsupported(binding: Binding, error: UnsupportedCommand) -> str:
    """Why a store cannot be judged that calls what the kernel lacks."""
    return (
        f"{binding.place}: its scripts call {error.what}, which the kernel does not implement, so that the store "
        "cannot be judged; do without it (notes/kernel.md lists what is lacking)"
    )
