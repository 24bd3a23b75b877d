"""The Verdict: what was decided about one law, on what evidence, and what the decision leaves out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from enum import StrEnum
from typing import Any

UNFINISHED = "unfinished"
"""Work of a verdict whose budget ran out: what it did not meet may still come."""


class Outcome(StrEnum):
    """Three-valued: a search or a recording that ends early must be able to say that it does not know."""

    HOLDS = "holds"
    VIOLATED = "violated"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Verdict:
    """One law judged.

    law: a name of the table of laws, spelt the same in every report.
    witness: what shows the violation, shortest known; None unless the law is violated.
    work: what the decision cost and rests on, by name with its unit (`rows`, `states`, `seconds`); `antecedents`
        counts how often the law had something to say.
    not_covered: one sentence for each thing that the decision leaves out.
    how: how the law was decided where that is otherwise than asked for.
    """

    law: str
    outcome: Outcome
    witness: Any = None
    work: Mapping[str, float | int] = field(default_factory=dict)
    not_covered: tuple[str, ...] = ()
    how: str = ""

    def __post_init__(self) -> None:
        if (self.witness is None) == (self.outcome is Outcome.VIOLATED):
            raise ValueError(f"{self.law}: a witness belongs to a violated law and to no other ({self.outcome})")

    @property
    def vacuous(self) -> bool:
        """True if the law was never tested: its antecedent was counted and never met, to the very end."""
        ended = self.outcome is not Outcome.VIOLATED and not self.work.get(UNFINISHED)
        return ended and self.work.get("antecedents") == 0

    def to_json(self) -> dict[str, Any]:
        """The verdict as plain dictionaries, lists, numbers and strings."""
        return {
            "law": self.law,
            "outcome": str(self.outcome),
            "witness": to_plain(self.witness),
            "work": dict(self.work),
            "vacuous": self.vacuous,
            "not_covered": list(self.not_covered),
            **({"how": self.how} if self.how else {}),
        }


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome of several laws together: violated before unknown before holds; nothing judged holds."""
    found = set(outcomes)
    for outcome in (Outcome.VIOLATED, Outcome.UNKNOWN):
        if outcome in found:
            return outcome
    return Outcome.HOLDS


def overall(verdicts: Iterable[Verdict], named: Collection[str] = (), allow_vacuous: bool = False) -> Outcome:
    """The outcome of laws that were judged together, in one run or in several: one rule for whoever judges histories.

    Violated if one is; unknown if one is undecided, or nothing was tested, or a law of `named` (asked for by
    name) never was. A law that nobody asked for by name and that the history has nothing of (no QoS 2, no reconnect)
    stays `unknown`, vacuous, itself and does not stand in the way of the others. `allow_vacuous` forgives all that.
    """
    tested = [verdict for verdict in verdicts if not verdict.vacuous]
    found = worst(verdict.outcome for verdict in tested)
    if found is not Outcome.HOLDS or allow_vacuous:
        return found
    return Outcome.HOLDS if tested and {verdict.law for verdict in tested}.issuperset(named) else Outcome.UNKNOWN


def joint_verdicts(runs: Sequence[tuple[int, Sequence[Verdict]]]) -> list[dict[str, Any]]:
    """Per law the worst outcome over the runs that test it, how often each came ("vacuous" where it was
    not), and the first run that has that outcome, unless it holds, by its seed. A law that no run tests is unknown,
    vacuous.
    """
    by_law: dict[str, list[tuple[int, Verdict]]] = {}
    for seed, verdicts in runs:
        for verdict in verdicts:
            by_law.setdefault(verdict.law, []).append((seed, verdict))
    joint = []
    for law, told in by_law.items():
        outcome = overall(verdict for _, verdict in told)
        vacuous = all(verdict.vacuous for _, verdict in told)
        first = next(
            (seed for seed, verdict in told if verdict.outcome is outcome and verdict.vacuous == vacuous), None
        )
        joint.append({
            "law": law, "outcome": str(outcome), "vacuous": vacuous,
            "runs": dict(Counter("vacuous" if verdict.vacuous else str(verdict.outcome) for _, verdict in told)),
            "seed": None if outcome is Outcome.HOLDS else first,
        })  # fmt: skip
    return joint


def to_plain(value: Any) -> Any:
    """A witness as JSON can carry it: `to_json` where the value has one, dataclasses by field, bytes as Latin-1."""
    if hasattr(value, "to_json"):
        return to_plain(value.to_json())
    if is_dataclass(value) and not isinstance(value, type):
        return to_plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((to_plain(item) for item in value), key=repr)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)
