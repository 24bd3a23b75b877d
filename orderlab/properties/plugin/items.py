"""The tests of a store: one pytest item for each law, with the same identifier in every process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orderlab.model.errors import InputError
from orderlab.properties.contracts.sequential.witness import story_lines
from orderlab.properties.machines.tally import tally_of
from orderlab.properties.plugin import TOLD
from orderlab.properties.plugin.reporting import home_of, keep_trace
from orderlab.properties.profiles import kept_examples
from orderlab.properties.validation.effort import name_of_effort
from orderlab.properties.validation.isolated import runaway_of, unsupported
from orderlab.properties.validation.single_law import LawRun, law_run, run_law
from orderlab.sim.redis.lacking import UnsupportedCommand
from orderlab.sim.redis.lua.watchdog import Unfinished, watch
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding

if TYPE_CHECKING:
    from orderlab.properties.plugin.session import LawSession

SCRIPT_SECONDS_MAX = 40.0
"""Processor time of one script; the sandbox stops scripts sooner, this is for what it cannot stop."""
EXAMPLES = Path(".hypothesis") / "orderlab"


class StoreFile(pytest.File):
    """A ``store.toml``."""

    session_of_laws: LawSession

    def collect(self) -> Iterable[LawItem]:
        """A test for each law, in the order of the reports. A store that cannot be run is one error, not one for each."""
        try:
            load_binding(self.path, trust_adapter=self.config.getoption("--orderlab-trust-adapter"))
        except InputError as error:
            raise self.CollectError(str(error)) from None
        for law in self.session_of_laws.laws_of[self.path]:
            item: LawItem = LawItem.from_parent(self, name=law)
            item.laws = self.session_of_laws
            yield item


class LawBroken(Exception):
    """The law does not hold, or is not known to hold."""


class LawItem(pytest.Item):
    """One law of one store."""

    laws: LawSession

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.add_marker(pytest.mark.orderlab)
        self.add_marker(pytest.mark.orderlab_law(self.name))

    def runtest(self) -> None:
        """Run the scenarios and the machines in a process of their own: a script that hangs must not hang the run."""
        laws = self.laws
        self.user_properties += [("orderlab-seed", laws.seed), ("orderlab-profile", laws.profile.name)]
        try:
            binding = load_binding(self.path, trust_adapter=self.config.getoption("--orderlab-trust-adapter"))
            if binding.contract is not None:
                self._end(self._by_contract(binding))
                return
            if laws.effort is not None:
                self._end(self._by_validation(binding, laws.effort))
                return
            kept = kept_examples(home_of(self.config) / EXAMPLES)
            answer = watch(
                lambda: run_law(binding, self.name, laws.profile, laws.seed, kept), script_seconds_max=SCRIPT_SECONDS_MAX
            )
        except UnsupportedCommand as error:
            raise LawBroken(f"the store cannot be tested: {unsupported(binding, error)}") from None
        except InputError as error:
            raise LawBroken(f"the store cannot be tested: {error}") from None
        run = self._unfinished(binding, answer) if isinstance(answer, Unfinished) else answer.value
        self._end(run)

    def _end(self, run: LawRun) -> None:
        """Tell what became of the law: pass, fail, or skip."""
        for name, tally in run.tallies.items():
            tally_of(name).add(tally)
        self.user_properties.append(("orderlab-outcome", run.outcome))
        self.stash[TOLD]["summary"] = [run.outcome, run.because, run.tested, round(run.seconds, 1)]
        if run.outcome == "violated":
            raise LawBroken("\n".join(self._told(run)))
        if run.outcome == "unknown" and self.config.getoption("--orderlab-strict"):
            raise LawBroken(f"{self.name} is unknown: {run.because}")
        if run.outcome in ("unknown", "not applicable"):
            pytest.skip(f"{run.outcome}: {run.because}")

    def _by_contract(self, binding: Binding) -> LawRun:
        """The law's verdict by the contract that the store's owner wrote."""
        began = time.monotonic()
        found = self.laws.validation_of(binding)
        result = next(one for one in found.results if one.law == self.name)
        run = LawRun(str(self.path), self.name, self.laws.seed, str(result.outcome), tested=result.tested)
        run.because = "; ".join([one.text for one in result.witnesses] or result.gaps)
        run.story = [line for one in result.witnesses for line, _ in story_lines(one)] or [f"{self.name} is {run.outcome}: {run.because}"]
        run.witness = result.witnesses[0].trace.to_json() if result.witnesses else None
        run.seconds = time.monotonic() - began
        return run

    def _by_validation(self, binding: Binding, effort: float) -> LawRun:
        """The law's verdict as ``orderlab validate`` gives it, all laws of the store in one go."""
        began = time.monotonic()
        found = self.laws.validation_of_sessions(binding, effort)
        result = next(one for one in found.results if one.verdict.law == self.name)
        run = law_run(result, str(self.path), self.laws.seed)
        run.seconds = time.monotonic() - began
        return run

    def _unfinished(self, binding: Binding, answer: Unfinished) -> LawRun:
        """A script that had to be ended together with its process breaks ``bounded``; no other law could be judged."""
        runaway = runaway_of(binding, answer)
        outcome = "violated" if self.name == "bounded" else "unknown"
        story = [f"{self.name} is {outcome}: {runaway.text}", f"  KEYS: {', '.join(map(repr, runaway.keys)) or 'none'}"]
        story.append(f"  ARGV: {', '.join(map(repr, runaway.args)) or 'none'}")
        return LawRun(str(self.path), self.name, self.laws.seed, outcome, runaway.text, story)

    def _told(self, run: LawRun) -> Iterable[str]:
        """The story, where the trace lies, and what replays it."""
        yield from run.story
        if run.witness is not None:
            told = keep_trace(self.config, self.laws.trace_name(self.path, self.name), run.witness)
            yield f"  {told}{' --trust-adapter' if self._is_trusted else ''}"
        how = f"--orderlab-profile {self.laws.profile.name}"
        if self.laws.effort is not None:
            how = f"--orderlab-effort {name_of_effort(self.laws.effort)}"
        options = f"--orderlab-law {self.name} {how} --orderlab-seed {run.seed}"
        options += " --orderlab-trust-adapter" if self._is_trusted else ""
        yield f"  test it again: pytest --orderlab-store {self._shown(self.path)} {options}"
        if run.blob:
            yield f"  Hypothesis: {run.blob} on {run.machine}"

    @property
    def _is_trusted(self) -> bool:
        return bool(self.config.getoption("--orderlab-trust-adapter"))

    def _shown(self, path: Path) -> str:
        return os.path.relpath(path, self.config.invocation_params.dir)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The story and no traceback."""
        if isinstance(excinfo.value, LawBroken):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where it says it comes from."""
        return self.path, None, f"{self.path.parent.name}: {self.name}"
