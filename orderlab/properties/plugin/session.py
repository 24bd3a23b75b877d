"""What a pytest session does for the stores that it was given: collect a test for each law, head, summary."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orderlab.model.errors import InputError
from orderlab.model.laws import STORE_LAWS, law_named
from orderlab.properties.contracts.kind import kind_of
from orderlab.properties.plugin.items import StoreFile
from orderlab.properties.plugin.reporting import print_summary
from orderlab.properties.profiles import Profile, profile_named
from orderlab.properties.validation.effort import effort_named, name_of_effort
from orderlab.properties.validation.law_run import LawRun, LawsTogether
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import FILE_NAME, load_binding

OPTION = "--orderlab-store"


class LawSession:
    """The plugin proper; it is there only when a store is asked for."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._testers: dict[Path, Callable[[str], LawRun]] = {}
        here = config.invocation_params.dir
        given = [here / path for path in config.getoption(OPTION)]
        try:
            named = [_store_file(path) for path in [*given, *config.getini("orderlab_stores")]]
            self.stores = list(dict.fromkeys(named))
            self.profile = self._profile()
            given = config.getoption("--orderlab-effort")
            self.effort = None if given is None else effort_named(given, "--orderlab-effort")
            self.laws_of = {store: self._known(store) for store in self.stores}
            self._narrow(config.getoption("--orderlab-law"))
        except InputError as error:
            raise pytest.UsageError(str(error)) from None
        self.seed: int = config.getoption("--orderlab-seed")
        forced = config.getoption("--hypothesis-seed", None)
        if forced is not None and str(forced).lstrip("-").isdigit():
            self.seed = int(forced)
        self._add_to_arguments()

    def _known(self, store: Path) -> list[str]:
        """The laws that a store can be held to. One that cannot be loaded says so when it is collected."""
        try:
            binding = load_binding(store, trust_adapter=self.config.getoption("--orderlab-trust-adapter"))
            return list(kind_of(binding).terms(binding).laws)
        except InputError:
            return list(STORE_LAWS)

    def _narrow(self, wanted: list[str]) -> None:
        """Keep the laws that were asked for. Raises InputError for one that no store is held to."""
        known = {law for laws in self.laws_of.values() for law in laws}
        for name in wanted:
            if name not in known:
                if known <= set(STORE_LAWS):
                    law_named(name)  # says what may be meant
                raise InputError(f"--orderlab-law {name}: not a law of a store; one of {', '.join(sorted(known))}")
        if wanted:
            self.laws_of = {
                store: [law for law in dict.fromkeys(wanted) if law in laws] for store, laws in self.laws_of.items()
            }

    def tester_of(self, binding: Binding, examples: Any) -> Callable[[str], LawRun]:
        """What tests the laws of a store, one at a time; the same for all of them."""
        if binding.path not in self._testers:
            laws = self.laws_of[binding.path / FILE_NAME]
            kind, order = kind_of(binding), WorkOrder(seed=self.seed, laws=laws)
            self._testers[binding.path] = (
                kind.tester(binding, self.profile, order, examples)
                if self.effort is None
                else kind.tester_at_effort(binding, replace(order, effort=self.effort))
            )
        return self._testers[binding.path]

    @property
    def how(self) -> str:
        """The profile, or the effort that was given instead."""
        return f"profile {self.profile.name}" if self.effort is None else f"effort {name_of_effort(self.effort)}"

    def _profile(self) -> Profile:
        name = self.config.getoption("--orderlab-profile") or ("ci" if os.environ.get("CI") else "dev")
        seconds = self.config.getoption("--orderlab-seconds")
        if seconds is not None and not seconds > 0:
            raise InputError(f"--orderlab-seconds {seconds:g}: give a number above 0; inf goes on until Ctrl-C")
        profile = profile_named(name)
        return profile if seconds is None else replace(profile, seconds=seconds)

    def _add_to_arguments(self) -> None:
        """Stores are collected like files that were named. Stores named on the command line without any path of tests
        are all that is collected; stores of a configuration file come along with the rest."""
        config = self.config
        named_here = any(str(one).startswith(OPTION) for one in config.invocation_params.args)
        paths_given = config.args_source == pytest.Config.ArgsSource.ARGS
        own = [str(path) for path in self.stores]
        among = [argument for argument in config.args if argument.split("::")[0] in own]
        kept = config.args if paths_given or not named_here else []
        config.args = [*kept, *(path for path in own if not any(one.split("::")[0] == path for one in among))]

    def trace_name(self, store: Path, law: str) -> str:
        """What the trace of a law that a store breaks is called: a name of its own for each store of this run."""
        alike = [path for path in self.stores if path.parent.name == store.parent.name]
        number = f"-{alike.index(store) + 1}" if store in alike[1:] else ""
        return f"{store.parent.name}{number}-{law}"

    # -- hooks -------------------------------------------------------------------------------------------------------

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> StoreFile | None:
        """A store that was asked for."""
        if file_path in self.stores:
            store: StoreFile = StoreFile.from_parent(
                parent, path=file_path, nodeid=Path(os.path.relpath(file_path, self.config.rootpath)).as_posix()
            )
            store.session_of_laws = self
            return store
        return None

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """With xdist, one process for all laws of a store that are judged in one go: two would judge it twice."""
        together = {
            os.path.relpath(store, config.rootpath) for store in self.stores if self._is_judged_in_one_go(store)
        }
        if not together or config.getoption("dist") not in ("load", "worksteal", "loadgroup"):
            return None
        from orderlab.properties.plugin.distribution import scheduler_with

        return scheduler_with({Path(store).as_posix() for store in together}, config, log)

    def _is_judged_in_one_go(self, store: Path) -> bool:
        try:
            binding = load_binding(store, trust_adapter=self.config.getoption("--orderlab-trust-adapter"))
        except InputError:
            return False
        return isinstance(self.tester_of(binding, None), LawsTogether)

    def pytest_report_header(self) -> Iterator[str]:
        """Profile, time and seed: what is needed to run the same again."""
        profile, count = self.profile, sum(map(len, self.laws_of.values()))
        told = f"orderlab: {self.how}, seed {self.seed}, {count} laws to test"
        if profile.seconds is not None and self.effort is None:
            told += f", {profile.seconds:g} s each: about {count * profile.seconds / 60:.0f} min on one core"
        yield told

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """One line a law."""
        print_summary(terminalreporter, self.how, self.seed)


def _store_file(path: Path) -> Path:
    """The ``store.toml`` that a path names. Raises InputError."""
    found = path / "store.toml" if path.is_dir() else path
    if not found.is_file():
        raise InputError(f"{OPTION} {path}: no such file; name a store.toml or the folder that holds one")
    return found.resolve()
