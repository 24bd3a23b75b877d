"""What a specification is written with, and what explores it: see ``notes/specifications.md``.

>>> from orderlab.specification import Specification, action, explore, integer, invariant, require
>>> class Jug(Specification):
...     name = "jug"
...     size: int = 3
...
...     def variables(self):
...         return {"litres": integer(0, self.size)}
...
...     @action(actor="hand")
...     def fill(self, s):
...         require(s.litres < self.size)
...         s.litres += 1
...
...     @action(actor="hand")
...     def empty(self, s):
...         require(s.litres > 0)
...         s.litres = 0
...
...     @invariant()
...     def never_full(self, s):
...         "There is always room."
...         return s.litres < self.size
>>> found = explore(Jug(size=2))
>>> [(one.law, str(one.outcome)) for one in found.verdicts if one.law == "never-full"]
[('never-full', 'violated')]

A class with variables, actions and laws is a `Specification`. Where control flow matters more than state, a
`ProcessSystem` has processes that say which `Move` comes next, and laws as values (`Invariant`, `LeadsTo`, ...). A
`TransitionSystem` is what both are. On the command line: ``orderlab explore FILE.py``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from orderlab.extras import told_of
from orderlab.model.spec.compounds import record, sequence_of, set_of
from orderlab.model.spec.declarations import (
    Action,
    LeadsToDeclaration,
    action,
    constraint,
    eventually,
    invariant,
    leads_to,
    require,
    sometimes,
    step_invariant,
    strong_fairness,
    weak_fairness,
)
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.processes import Move, Process, ProcessSystem, Shared, Situation
from orderlab.model.spec.transition_system import (
    Constraint,
    Expansion,
    Footprint,
    Invariant,
    Label,
    Law,
    LeadsTo,
    Place,
    Sometimes,
    StepInvariant,
    StrongFairness,
    TransitionSystem,
    WeakFairness,
)
from orderlab.model.spec.variables import (
    NOBODY,
    Array,
    Domain,
    IndexSet,
    SpecificationError,
    State,
    boolean,
    choice,
    element,
    integer,
)

if TYPE_CHECKING:
    from orderlab.model.explorer.exploration import Exploration, explore
    from orderlab.model.explorer.search import Budget, Options

__all__ = [
    "NOBODY",
    "Action",
    "Array",
    "Budget",
    "Constraint",
    "Domain",
    "Expansion",
    "Exploration",
    "Footprint",
    "IndexSet",
    "Invariant",
    "Label",
    "Law",
    "LeadsTo",
    "LeadsToDeclaration",
    "Move",
    "Options",
    "Place",
    "Process",
    "ProcessSystem",
    "Shared",
    "Situation",
    "Sometimes",
    "Specification",
    "SpecificationError",
    "State",
    "StepInvariant",
    "StrongFairness",
    "TransitionSystem",
    "WeakFairness",
    "action",
    "boolean",
    "choice",
    "constraint",
    "element",
    "eventually",
    "explore",
    "integer",
    "invariant",
    "leads_to",
    "record",
    "require",
    "sequence_of",
    "set_of",
    "sometimes",
    "step_invariant",
    "strong_fairness",
    "weak_fairness",
]

_EXPLORER = {"explore": "exploration", "Exploration": "exploration", "Options": "search", "Budget": "search"}


def __getattr__(name: str) -> Any:
    """The explorer, imported when it is asked for: a specification is read without it."""
    if name not in _EXPLORER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with told_of(f"{__name__}.{name}"):
        return getattr(import_module(f"orderlab.model.explorer.{_EXPLORER[name]}"), name)
