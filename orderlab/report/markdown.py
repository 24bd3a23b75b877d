"""A report as Markdown, sized for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from orderlab.model.verdict import Outcome
from orderlab.report.report import Finding, Report, Subject
from orderlab.report.words import counted, holding, looked_at, one_line, story, undecided

SIZE_MAX = 60_000
"""Characters; what takes comments cuts them off, or refuses them, at 65,536."""
PART_MAX = 1_000
"""Characters of one name or line."""
MARK = {Outcome.HOLDS: "✅", Outcome.VIOLATED: "❌", Outcome.UNKNOWN: "❔"}


def markdown(report: Report, size_max: int = SIZE_MAX) -> str:
    """The text of the comment: the answer, then each root cause with its witness folded; the last ones are left out,
    and it is said, where they would not fit."""
    head = f"{MARK[report.outcome]} **orderlab {report.command}**: {_plain(report.sentence)}\n"
    foot = _foot(report)
    left = size_max - len(head) - len(foot) - 200
    parts: list[str] = []
    dropped = 0
    for part in (part for subject in report.subjects for part in _parts(subject)):
        if len(part) > left:
            dropped += 1
            continue
        parts.append(part)
        left -= len(part)
    if dropped:
        parts.append(f"\n_{dropped} more parts did not fit here; the JSON and HTML reports have all of them._\n")
    return head + "".join(parts) + foot


def _parts(subject: Subject) -> Iterator[str]:
    yield f"\n### {_plain(subject.name)}\n"
    for root in subject.roots:
        yield _root(root)
    if left := undecided(subject):
        yield "\n" + "".join(f"- ❔ undecided: {_plain(laws)}: {_plain(because)}\n" for laws, because in left)
    if holds := holding(subject):
        yield f"\n{_plain(holds)}.\n"
    if lines := looked_at(subject):
        listed = "".join(f"- {_plain(line)}\n" for line in lines)
        yield f"\n<details><summary>how far was looked, and what was not covered</summary>\n\n{listed}\n</details>\n"


def _root(root: list[Finding]) -> str:
    first = root[0]
    laws = ", ".join(_code(law) for law in dict.fromkeys(one.law for one in root))
    where = f" at {_code(f'{first.line.path}:{first.line.line}')}" if first.line is not None else ""
    change = f"{first.change}: " if first.change else ""
    lines = [f"\n- {change}**{laws}**{where}: {_plain(first.headline)}\n"]
    lines += [f"  - {_code(one.law)}: {_plain(one.headline)}\n" for one in root[1:]]
    told = "\n".join(f"  {one_line(line, PART_MAX)}" for line in story(first))
    fence = "`" * max(3, _longest_run(told) + 1)
    lines.append(
        f"\n  <details><summary>{counted(len(first.steps), 'step')}</summary>\n\n  {fence}\n{told}\n  {fence}\n\n  "
        "</details>\n"
    )
    return "".join(lines)


def _foot(report: Report) -> str:
    told = [f"seed {report.seed}"]
    told += [f"effort {report.effort}"] if report.effort else []
    told += [report.budget] if report.budget else []
    told += [f"{name} {version}" for name, version in report.versions.items()]
    return f"\n<sub>{_plain(', '.join(told))}</sub>\n"


def _plain(text: str) -> str:
    """Text that Markdown and HTML leave as it is, on one line."""
    text = one_line(" ".join(text.split()), PART_MAX)
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, f"\\{sign}" if sign not in "<>" else {"<": "&lt;", ">": "&gt;"}[sign])
    return text.replace("@", "@\u200b")  # nobody is called by name


def _code(text: str) -> str:
    """A name as code, whatever is in it."""
    text = one_line(text, PART_MAX)
    fence = "`" * (_longest_run(text) + 1)
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"


def _longest_run(text: str) -> int:
    import re

    return max((len(one) for one in re.findall("`+", text)), default=0)
