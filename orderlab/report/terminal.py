"""The report of a store on a terminal: the answer first, each root cause once, and what was left out in a line."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orderlab.exit_codes import EXIT, TRUSTED
from orderlab.model.verdict import Outcome
from orderlab.properties.witness.telling import left_out, places_told
from orderlab.report.report import Change, Finding, Subject
from orderlab.report.words import AS_BEFORE, as_before, counted, holding, one_line, undecided, untested, why_untested

STYLE = {Outcome.HOLDS: "green", Outcome.VIOLATED: "bold red", Outcome.UNKNOWN: "yellow"}
WIDTH_IN_PIPE = 140
"""Columns of a table that goes to a file or to another program."""
KEYS_SHOWN, LINT_SHOWN = 8, 5
AROUND = ("before the last step", "after the last step")
NAMED_MAX = 3
"""Laws that are told by name at the end, where not all were asked for."""
CUT = ("the cap of", "interrupted")
"""How gaps begin that a user has asked for, so to speak: they are told without ``--verbose`` too."""


def print_subject(
    console: Console, subject: Subject, seed: int, effort: str, verbose: bool = False, is_trusted: bool = False
) -> None:
    """The whole report of one store, of which the Python was allowed to run if ``is_trusted``. In a pipe no line is
    broken, so that it can be searched."""
    soft = not console.is_terminal
    print_summary(console, subject)
    for number, root in enumerate(subject.roots, 1):
        if root[0].change in (Change.FIXED, Change.SAME) and not verbose:
            continue
        console.print(Text(""), *_lines(story(number, root)), sep="\n", soft_wrap=soft)
    if subject.lint:
        console.print(Text(""), *_lines(lint_told(subject, verbose)), sep="\n", soft_wrap=soft)
    if verbose:
        console.print(Text(""), law_table(subject))
    console.print(Text(""), *_lines(remarks(subject, seed, effort, verbose, is_trusted)), sep="\n", soft_wrap=soft)


def _lines(told: Iterator[tuple[str, str]]) -> list[Text]:
    return [Text(one_line(line), style) for line, style in told]


def summary(subject: Subject) -> Iterator[tuple[str, str]]:
    """The verdict with its exit code, a line for each root cause, one for all laws that hold, and the undecided
    ones."""
    where = f"{subject.path}; " if subject.path and subject.path != subject.name else ""
    yield f"{subject.answer} ({where}exit code {int(EXIT[subject.outcome])})", STYLE[subject.outcome]
    for number, root in enumerate(subject.roots, 1):
        laws = ", ".join(dict.fromkeys(one.law for one in root))
        change = f"{root[0].change}: " if root[0].change else ""
        steps = counted(len(root[0].steps), "step") if root[0].steps else "no steps"
        only = "" if root[0].is_certain else ", in the small scope only"
        yield f"  {number}. {change}{laws}: {root[0].headline} [{steps}{only}]", ""
    for laws, because in undecided(subject):
        yield f"  undecided: {laws}: {because}", "yellow"
    for law in subject.laws:
        if law.is_applicable and law.outcome is Outcome.VIOLATED and law.because:
            yield f"  {law.law}: {law.because}", ""
    if holds := holding(subject):
        yield f"  {holds}", "green"
    vacuous, apart = untested(subject)
    if vacuous:
        yield f"  vacuous, not tested: {', '.join(vacuous)}", "dim"
        for because, names in why_untested(subject).items():
            yield f"    {', '.join(names)}: {because}", "dim"
    for because, names in as_before(subject).items():
        yield f"  {', '.join(names)}: {because}", "dim"
    if apart:
        yield f"  not applicable: {', '.join(f'{law} ({because})' for law, because in apart)}", "dim"


def print_summary(console: Console, subject: Subject) -> None:
    """The first screen of a command."""
    console.print(*_lines(summary(subject)), sep="\n", soft_wrap=not console.is_terminal)


def story(number: int, root: list[Finding]) -> Iterator[tuple[str, str]]:
    """One cause: the steps, numbered, with what each answered; the keys around the last one; the line of Lua."""
    first = root[0]
    yield f"{number}. {first.law} {_said(first)}: {first.headline}", "bold"
    for other in root[1:]:
        yield f"   by the same cause {other.law}: {other.headline}", "bold"
    for at in places_told([(step.action, step.answer) for step in first.steps]):
        if isinstance(at, range):
            yield f"  {left_out(at)}", "dim"
            continue
        step = first.steps[at]
        yield f"  {at + 1}. {step.action}{step.by}", ""
        if step.answer:
            yield f"     {step.answer}", "dim"
        if step.before:
            yield f"     the old scripts: {step.before}", "dim"
        if step.state:
            yield f"     {step.state}", "dim"
    changed = {key for key in {*first.before, *first.after} if first.before.get(key) != first.after.get(key)}
    names = ("after the last step, by the old scripts", "by the new ones")
    for name, keys in zip(
        names if first.change is Change.BEHAVIOUR else AROUND, (first.before, first.after), strict=True
    ):
        yield f"  the store's keys {name}:", ""
        yield from _keys(keys, changed)
    if first.line is not None:
        yield f"  {first.line.told}: {first.line.source}", ""
    if first.call:
        yield f"     {'redis.call' if first.line is not None else 'called by no script'}: {first.call}", "dim"
    for line in first.related:
        yield f"  {line.role}: {line.path}:{line.line}: {line.source}", ""
    yield "  " + "; ".join(filter(None, (f"found by {first.found_by}", first.confirmation))), ""


def lint_told(subject: Subject, verbose: bool = False) -> Iterator[tuple[str, str]]:
    """What the text of the scripts shows: it changes no verdict and no exit code."""
    new = " that the change brings" if subject.base else ""
    yield (
        f"lint: {counted(len(subject.lint), 'finding')}{new}; orderlab lint {subject.path or subject.name} tells them "
        "alone, and they change no exit code here",
        "bold",
    )
    shown = subject.lint if verbose else subject.lint[:LINT_SHOWN]
    for one in shown:
        yield f"  {one.line.path}:{one.line.line}: {one.level} {one.rule}: {one.message}", ""
        yield f"     {one.line.source}", "dim"
    if len(shown) < len(subject.lint):
        yield f"  and {len(subject.lint) - len(shown):,} more; -v lists them", "dim"


def _said(finding: Finding) -> str:
    if finding.change is Change.BEHAVIOUR:
        return "differs" if finding.is_certain else "differs in the small scope"
    return "is violated" if finding.is_certain else "is broken in the small scope only"


def _keys(keys: dict[str, str], changed: set[str]) -> Iterator[tuple[str, str]]:
    """The keys that the last step changed, then others, as many as can be read."""
    shown = sorted(keys, key=lambda key: (key not in changed, key))[:KEYS_SHOWN]
    for key in shown:
        yield f"     {key} = {keys[key]}", "dim"
    if len(keys) > len(shown):
        yield f"     and {len(keys) - len(shown):,} more keys", "dim"
    if not keys:
        yield "     none", "dim"


def law_table(subject: Subject) -> Table:
    """One row a law: verdict, and how often it was tested."""
    table = Table(title=Text(one_line(f"{subject.name}  ({subject.path})")), title_justify="left")
    for heading in ("law", "verdict", "tested"):
        table.add_column(heading, no_wrap=True, justify="right" if "test" in heading else "left")
    for law in subject.laws:
        told = str(law.outcome) if law.is_applicable else f"{law.outcome} before" if AS_BEFORE in law.because else ""
        verdict = Text(told or "not applicable", STYLE[law.outcome] if law.is_applicable else "dim")
        table.add_row(one_line(law.law), verdict, "" if law.tested is None else f"{law.tested:,}")
    return table


def remarks(
    subject: Subject, seed: int, effort: str, verbose: bool = False, is_trusted: bool = False
) -> Iterator[tuple[str, str]]:
    """Assumptions and notes; effort and what it left out; how to replay; and at the end what was shown, in one
    sentence."""
    yield from ((f"assumed: {one}", "") for one in subject.assumptions)
    yield from ((f"note: {one}", "") for one in subject.notes)
    gaps = [one for one in subject.not_covered if not one.startswith(CUT)]
    for one in subject.not_covered:
        if one.startswith(CUT):
            cure = f"; without --budget the whole effort {effort} is done" if one.startswith(CUT[0]) else ""
            yield f"not covered: {one}{cure}", "yellow"
    if verbose:
        yield from ((f"{name}: {value}", "") for name, value in subject.facts.items())
        yield from ((one, "") for one in subject.scope[1:])
        yield from ((f"not covered: {one}", "") for one in gaps)
    elif gaps:
        yield (
            f"not covered: {counted(len(gaps), 'limit')} of what was looked at; -v lists them, a larger --effort "
            "looks further",
            "",
        )
    work = f": {subject.scope[0]}" if subject.scope else ""
    yield f"effort: {effort}{work}", ""
    yield f"seed: {seed}", ""
    yield shown(subject, effort, is_trusted), "bold"


def shown(subject: Subject, effort: str, is_trusted: bool = False) -> str:
    """What the run has shown, and no more than that."""
    if subject.kind == "change":
        return f"Shown: {subject.answer}, in all that was compared at effort {effort}."
    if subject.outcome is Outcome.VIOLATED:
        certain = [one for one in subject.findings if one.is_certain]
        confirmed = sum(one.confirmation.startswith("confirmed") for one in certain)
        server = f", {confirmed} of them confirmed by a real server" if confirmed else ""
        trusted = f" {TRUSTED}" if is_trusted else ""
        replay = (
            f"; to replay them: --report json=found.json, then orderlab replay found.json --finding N{trusted}"
            if any(one.witness is not None for one in certain)
            else ""
        )
        return f"Shown: {counted(len(certain), 'witness')} on the scripts as they are{server}{replay}."
    if subject.outcome is Outcome.UNKNOWN and subject.kind == "scripts":
        return f"Shown: nothing against {subject.name} that needs no contract; {subject.notes[-1]}."
    if subject.outcome is Outcome.UNKNOWN:
        is_cut = any(one.startswith(CUT[0]) for one in subject.not_covered)
        cure = "without --budget it would go on" if is_cut else f"a larger --effort than {effort} may decide"
        return f"Shown: nothing against {subject.name}, and not enough for it; {cure}."
    kept = subject.named(Outcome.HOLDS)
    laws = ", ".join(kept) if len(kept) <= NAMED_MAX else f"all {len(kept)} laws"
    seen = f"in all that was tried or closed at effort {effort}"
    return f"Shown: {subject.name} keeps {laws} {seen}, and nothing beyond that."
