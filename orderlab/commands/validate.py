"""`orderlab validate`: is a store safe? Every law, its verdict, and for a violation the shortest way there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from orderlab.commands.options import OtherServer, TrustAdapter, server_of
from orderlab.exit_codes import EXIT
from orderlab.model.errors import InputError
from orderlab.model.verdict import worst
from orderlab.report.forms import REPORT_HELP
from orderlab.sim.redis.versions import ServerVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orderlab.model.verdict import Outcome
    from orderlab.properties.contracts.kind import Kind
    from orderlab.properties.draft.unbound import Unbound
    from orderlab.report.report import LintMention, Subject
    from orderlab.sim.redis.backends import Backend
    from orderlab.sim.stores.binding.binding import Binding
    from orderlab.sim.stores.binding.results import Script

    _Judging = Callable[[Backend | None], tuple[Outcome, Subject]]


POLL_S = 0.3
"""Seconds between two looks at files, with --watch."""


@dataclass(frozen=True)
class Plan:
    """What the command line asks for: the parameters of `validate` by their names."""

    paths: list[Path]
    effort: str
    budget: float | None
    seed: int
    backend: str
    law: list[str] | None
    base: str | None
    strict: bool
    trust_adapter: bool
    as_json: bool
    verbose: bool
    report: list[str] | None
    cache: bool
    processes: int | None
    certificate: Path | None
    server: str | None = None

    def version(self, said: ServerVersion | None = None) -> ServerVersion:
        """The server that scripts run on; ``said``: what their store says. Raises InputError."""
        return server_of(self.server, said)

    def laws(self, kind: Kind, binding: Binding) -> list[str] | None:
        """Those that are judged alone, as the kind of store names them. Raises InputError."""
        return [kind.check_law(binding, name) for name in self.law] if self.law else None

    def cap(self) -> str:
        """The budget in words; empty where there is none."""
        return f"capped at {self.budget:g} s a store" if self.budget else ""


def validate(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Stores (folders, store.toml files), or scripts.")
    ],
    effort: Annotated[
        str | None,
        typer.Option(
            help="quick, standard, thorough, or a number (quick is 1): of work, the same on every machine. As it is "
            "standard, with --watch quick."
        ),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=0.1, max=1e6, help="Cap in seconds for each store; what it cuts off is told.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the random draws; printed.")] = 0,
    backend: Annotated[
        str,
        typer.Option(help="Where witnesses are confirmed: auto, redis://HOST:PORT, fakeredis, or kernel for nowhere."),
    ] = "auto",
    law: Annotated[list[str] | None, typer.Option(help="Judge this law only; may be given several times.")] = None,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="REV|PATH", help="Judge the change from these old scripts: a git revision, a folder, a script."
        ),
    ] = None,
    strict: Annotated[bool, typer.Option(help="With --base: fail for what was broken before as well.")] = False,
    trust_adapter: TrustAdapter = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per store.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also list what was not covered, and every law.")
    ] = False,
    report: Annotated[list[str] | None, typer.Option(metavar="FORM=FILE", help=REPORT_HELP)] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Judge each store again when it is saved; Ctrl-C ends.")
    ] = False,
    cache: Annotated[
        bool,
        typer.Option(
            envvar="ORDERLAB_CACHE", help="Where nothing has changed since an earlier run, tell what that one found."
        ),
    ] = True,
    processes: Annotated[
        int | None,
        typer.Option("--jobs", min=1, max=256, help="Processes that searches are shared among: as many as cores."),
    ] = None,
    server: OtherServer = None,
    certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Close a scope and write what `orderlab certify` checks without searching."),
    ] = None,
) -> None:
    """Judge stores by the laws of their contract: footprint, every interleaving of small scopes, random runs.

    Scripts without a binding, or with a draft of one, are judged by the laws that need no contract; then 0 is never
    the exit code. The text of scripts is linted besides, which changes no exit code.

    Exit code 0: every law holds; 1: one is violated; 2: the input is unusable; 3: unknown, or not tested.
    """
    asked = {**locals(), "effort": effort or ("quick" if watch else "standard")}
    del asked["watch"]
    (_watch if watch else _validate)(Plan(**asked))


def _validate(plan: Plan) -> NoReturn:
    """Check all that is asked for before any work, judge each store, and report."""
    from orderlab.properties.contracts.kind import kind_of
    from orderlab.properties.draft.unbound import unbound_at
    from orderlab.properties.validation.effort import effort_named, name_of_effort
    from orderlab.report.output import made_report, replayable, wanted_reports, write_reports
    from orderlab.report.terminal import WIDTH_IN_PIPE, print_subject
    from orderlab.sim.stores.binding.loader import load_binding

    work = effort_named(plan.effort)
    plan.version()
    wanted = wanted_reports(plan.report)
    if plan.certificate is not None:
        _check_certified(plan)
    asked: list[_Judging] = []
    for path in plan.paths:
        if (scripts := unbound_at(path)) is not None:
            asked.append(_scripts(plan, scripts, work))
            continue
        binding = load_binding(path, trust_adapter=plan.trust_adapter)
        binding = binding.on(plan.version(binding.said_server))
        asked.append(_store(plan, kind_of(binding), binding, work))
    console = Console(width=None if sys.stdout.isatty() else WIDTH_IN_PIPE)
    outcomes, subjects = [], []

    def show(subject: Subject) -> None:
        print_subject(console, subject, plan.seed, name_of_effort(work), plan.verbose, plan.trust_adapter)

    with confirming(plan.backend) as server:
        for judge in asked:
            outcome, subject = judge(server)
            outcomes.append(outcome)
            subjects.append(subject)
            if not plan.as_json and not wanted:
                show(subject)
    made = made_report("validate", worst(outcomes), subjects, plan.seed, name_of_effort(work), plan.cap())
    whole = replayable(made, wanted, plan.trust_adapter)
    if plan.base is not None and plan.as_json:
        print(whole.model_dump_json(), flush=True)
    write_reports(whole, wanted)
    if wanted and not plan.as_json:  # after the files, which are lost if the reader goes (`| head`)
        for subject in subjects:
            show(subject)
    raise typer.Exit(EXIT[worst(outcomes)])


def _check_certified(plan: Plan) -> None:
    """Raises InputError where a certificate is asked for of what has none."""
    from orderlab.model.files import checked_place

    if len(plan.paths) != 1 or plan.base is not None or plan.law:
        raise InputError("--certificate: of one store by all of its laws; leave out further stores, --base and --law")
    assert plan.certificate is not None
    checked_place("--certificate", plan.certificate, is_read_again=True)


def _certify(file: Path, binding: Binding, certificate: dict[str, Any] | None) -> None:
    """Write a certificate; where nothing was closed it is told that there is none."""
    from orderlab.model.files import write_whole

    if certificate is None:
        print(f"{binding.name}: no certificate, for no scope was closed; -v says why", file=sys.stderr, flush=True)
    else:
        write_whole(file, (json.dumps(certificate, indent=1) + "\n").encode())


def _watch(plan: Plan) -> NoReturn:
    """Judge what has changed, until Ctrl-C. A mistake in a file is told, and what is saved next is judged."""
    import time

    from orderlab.child import asked_to_end
    from orderlab.exit_codes import ExitCode, tell
    from orderlab.properties.validation.watching import Watched

    watched = [Watched(path, plan.trust_adapter) for path in plan.paths]
    code = int(ExitCode.HOLDS)
    try:
        while not asked_to_end:
            changed = [store.path for store in watched if store.has_changed()]
            for path in changed:
                try:
                    _validate(replace(plan, paths=[path]))
                except typer.Exit as ended:
                    code = ended.exit_code
                except InputError as error:
                    code = int(ExitCode.UNUSABLE)
                    tell("orderlab validate", str(error))
            if changed and not asked_to_end:
                print("watching; Ctrl-C ends", file=sys.stderr, flush=True)
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        pass
    raise typer.Exit(code)


def _store(plan: Plan, kind: Kind, binding: Binding, work: float) -> _Judging:
    """Judges a store; what cannot be asked of it is refused at once."""
    laws = plan.laws(kind, binding)
    judge = _judged if plan.base is None else _compared
    return lambda server: judge(plan, kind, binding, work, _of(plan, server, binding.server), laws)


def _scripts(plan: Plan, what: Unbound, work: float) -> _Judging:
    """Judges scripts without a contract, by the laws that need none."""
    from orderlab.model.errors import did_you_mean
    from orderlab.properties.draft.contractless import LAWS

    for name in plan.law or ():
        if name not in LAWS:
            cure = f"{did_you_mean(name, [*LAWS])}; every other law needs a contract: {what.gap}"
            raise InputError(f"{what.path}: --law {name}: {cure}")
    version = plan.version()
    return lambda server: _unbound(plan, what, work, _of(plan, server, version))


def _of(plan: Plan, server: Backend | None, version: ServerVersion) -> Backend | None:
    """The server that was found, unless it is another than the one that is meant: it could confirm nothing."""
    if server is None or plan.backend != "auto" or server.describe().startswith(version.family):
        return server
    return None


def _unbound(plan: Plan, what: Unbound, work: float, server: Backend | None) -> tuple[Outcome, Subject]:
    import tempfile

    from orderlab.properties.comparison.base_revision import base_of
    from orderlab.properties.draft.callers import with_callers
    from orderlab.properties.draft.contractless import first_verdict
    from orderlab.properties.draft.facts import all_facts
    from orderlab.properties.lint.subjects import scripts_at
    from orderlab.report.unbound import subject_of_scripts

    facts, version = all_facts(what.scripts), plan.version()
    called = with_callers(what.folder, facts) if what.folder else facts
    found = first_verdict(called, work, what.read_only, server, version)
    before = None
    if plan.base is not None:
        with tempfile.TemporaryDirectory() as scratch:
            old, _ = scripts_at([base_of(what.path, plan.base, Path(scratch), is_store=False)], is_binding_ignored=True)
            before = first_verdict(all_facts(old), work, what.read_only, version=version)
    subject = subject_of_scripts(
        what, found, plan.law or (), _lint(plan, what.path, what.scripts, plan.version()), before, plan.strict
    )  # fmt: skip
    if plan.as_json:
        print(subject.model_dump_json(), flush=True)
    return subject.outcome, subject


def _lint(plan: Plan, path: Path, scripts: Sequence[Script], version: ServerVersion) -> tuple[LintMention, ...]:
    """What the text of scripts shows; with ``--base`` what is new."""
    from orderlab.commands.lint import lint_of_base
    from orderlab.properties.lint.bindings import lint_bindings
    from orderlab.properties.lint.linter import lint_scripts, new_findings
    from orderlab.properties.lint.rule import NOTE, LintSettings
    from orderlab.properties.project_settings import silenced_at
    from orderlab.report.lint import mentions

    settings = LintSettings.of(version)
    findings = [*lint_scripts(scripts, settings), *lint_bindings([path], scripts)]
    if plan.base is not None:
        try:
            findings = new_findings(findings, lint_of_base(path, plan.base, settings, plan.trust_adapter))
        except InputError:
            return ()  # what the comparison itself says of it is enough
    silenced = silenced_at(Path.cwd())
    return mentions([one for one in findings if one.level != NOTE and one.rule not in silenced])


def _judged(
    plan: Plan, kind: Kind, binding: Binding, work: float, server: Backend | None, laws: list[str] | None
) -> tuple[Outcome, Subject]:
    """The store as it stands."""
    from orderlab.platform import cores
    from orderlab.properties.validation.work_order import WorkOrder
    from orderlab.report.progress import ProgressLine
    from orderlab.report.subjects import subject_of_store

    def judge() -> _Answer:
        asked = f"validate {binding.path} {work} {laws} {server is not None}"
        line = ProgressLine(binding.name, asked, plan.budget)
        processes = plan.processes or cores()
        certifies = plan.certificate is not None
        order = WorkOrder(work, plan.seed, laws, server, line.show, plan.budget, processes, certifies=certifies)
        found = kind.validate(binding, order)
        line.clear()
        if plan.certificate is not None:
            _certify(plan.certificate, binding, getattr(found, "certificate", None))
        return _Answer(found.outcome, subject_of_store(found), found.to_json(), not found.is_cut)

    answer = _kept_or_made(plan, [binding], (work, plan.seed, laws), server, judge)
    lint = _lint(plan, Path(binding.place), binding.scripts, binding.server)
    if plan.as_json:
        told = {"lint": [one.model_dump(mode="json") for one in lint]}
        print(json.dumps({**answer.plain, **told}), flush=True)
    return answer.outcome, answer.subject.model_copy(update={"lint": lint})


def _compared(
    plan: Plan, kind: Kind, binding: Binding, work: float, server: Backend | None, laws: list[str] | None
) -> tuple[Outcome, Subject]:
    """The store beside its old scripts."""
    from orderlab.platform import cores
    from orderlab.properties.comparison.base_revision import old_store
    from orderlab.properties.contracts.kind import kind_of
    from orderlab.properties.validation.work_order import WorkOrder
    from orderlab.report.progress import ProgressLine
    from orderlab.report.subjects import subject_of_comparison

    base = plan.base or ""
    with old_store(binding.path, base, plan.trust_adapter) as before:
        old = before.on(plan.version(before.said_server))
        if kind_of(old) is not kind:
            raise InputError(f"{binding.place}: --base: the old store has another contract; compare stores of one kind")

        def judge() -> _Answer:
            asked = f"validate {binding.path} --base {work} {laws} {server is not None}"
            line = ProgressLine(binding.name, asked, plan.budget)
            processes = plan.processes or cores()
            order = WorkOrder(work, plan.seed, laws, server, line.show, plan.budget, processes)
            found = kind.compare(old, binding, order)
            line.clear()
            subject = subject_of_comparison(found, base, plan.strict)
            return _Answer(found.outcome(plan.strict), subject, {}, not found.is_cut)

        asked = (work, plan.seed, laws, base, plan.strict)
        answer = _kept_or_made(plan, [binding, old], asked, server, judge)
    lint = _lint(plan, Path(binding.place), binding.scripts, binding.server)
    return answer.outcome, answer.subject.model_copy(update={"lint": lint})


@dataclass(frozen=True)
class _Answer:
    """What came of one store."""

    outcome: Outcome
    subject: Subject
    plain: dict[str, Any]
    """For ``--json``."""
    is_whole: bool
    """Neither a cap nor an interruption cut it off."""


def _kept_or_made(
    plan: Plan, stores: Sequence[Binding], asked: tuple[Any, ...], server: Backend | None, judge: Callable[[], _Answer]
) -> _Answer:
    """What an earlier run said if it was asked the same of the same; otherwise what ``judge`` comes to, which is kept.
    On a server of the user's own it is never the same."""
    from orderlab.model.verdict import Outcome
    from orderlab.properties.validation.verdict_cache import VerdictCache
    from orderlab.report.report import Subject

    if (
        not plan.cache
        or plan.certificate is not None
        or plan.budget is not None
        or plan.backend not in ("auto", "kernel")
    ):
        return judge()
    cache = VerdictCache()
    key = cache.key(stores, (*asked, stores[0].server.name, server and server.describe().partition(" at ")[0]))
    kept = cache.get(key)
    if kept is not None:
        with suppress(KeyError, ValueError):  # of another form: made anew
            answer = _Answer(Outcome(kept["outcome"]), Subject.model_validate(kept["subject"]), kept["plain"], True)
            told = f"{answer.subject.name}: nothing has changed since it was judged; --no-cache judges it again"
            print(told, file=sys.stderr, flush=True)
            return answer
    answer = judge()
    if answer.is_whole:
        subject = answer.subject.model_dump(mode="json")
        cache.put(key, {"outcome": str(answer.outcome), "subject": subject, "plain": answer.plain})
    return answer


@contextmanager
def confirming(spec: str) -> Iterator[Backend | None]:
    """The server for confirmations. ``auto`` is content with none; a server that is named must be there."""
    from orderlab.properties.witness.confirmation import refuse_company
    from orderlab.sim.redis.backends import open_backend

    if spec == "kernel":
        yield None
        return
    try:
        server = open_backend(spec)
    except InputError:
        if spec != "auto":
            raise
        yield None
        return
    with server:
        refuse_company(server)
        yield server
