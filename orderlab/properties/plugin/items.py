"""The tests of a store: one pytest item for each law, with the same identifier in every process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import pytest

from orderlab.model.errors import InputError, WorkerDied
from orderlab.properties.machines.tally import tally_of
from orderlab.properties.plugin.reporting import home_of, keep_trace
from orderlab.properties.plugin.stash import TOLD
from orderlab.properties.profiles import Profile, kept_examples
from orderlab.properties.validation.effort import name_of_effort
from orderlab.properties.validation.law_run import LawRun
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding

EXAMPLES = Path(".hypothesis") / "orderlab"


class Laws(Protocol):
    """What tests ask the session for: which laws, how they are tested, and what their traces are called."""

    profile: Profile
    effort: float | None
    seed: int
    laws_of: dict[Path, list[str]]

    def tester_of(self, binding: Binding, examples: Any) -> Callable[[str], LawRun]:
        """Tests the laws of a store, one at a time; the same for all of them."""
        ...

    def trace_name(self, store: Path, law: str) -> str:
        """The name of the trace of a law that a store breaks."""
        ...


class StoreFile(pytest.File):
    """A ``store.toml``."""

    session_of_laws: Laws

    def collect(self) -> Iterable[LawItem]:
        """A test for each law, in the order of the reports. A store that cannot be run is one error, not one for
        each."""
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

    laws: Laws

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.add_marker(pytest.mark.orderlab)
        self.add_marker(pytest.mark.orderlab_law(self.name))

    def runtest(self) -> None:
        """Run the scenarios and the machines in a process of their own: a script that hangs must not hang the run."""
        laws = self.laws
        by_profile = ("orderlab-profile", laws.profile.name)
        how = by_profile if laws.effort is None else ("orderlab-effort", name_of_effort(laws.effort))
        self.user_properties += [("orderlab-seed", laws.seed), how]
        try:
            binding = load_binding(self.path, trust_adapter=self.config.getoption("--orderlab-trust-adapter"))
            run = laws.tester_of(binding, kept_examples(home_of(self.config) / EXAMPLES))(self.name)
        except (InputError, WorkerDied) as error:
            raise LawBroken(f"the store cannot be tested: {error}") from None
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
