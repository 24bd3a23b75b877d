"""Two stores side by side: does a client ever see which of them it has?

A mutant may leave other keys than the original and still answer every client alike: a hint in a head that is set too
cautiously costs a call and changes no reply. So both are taken through the same steps, each on a keyspace of its own,
and a state of the search is the pair of keyspaces. As long as no reply differs, callers cannot differ either: what they
ask next is a function of the replies. If none differs on any path of the scope, no client within the scope can tell the
two apart, whatever the keys hold (a bisimulation on pairs, found by going forward). Errors are alike when their codes
are; their words are for people. How much work a reply cost is not compared: that is the law ``bounded``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from orderlab.model.contracts.session.contract import SCOPES
from orderlab.properties.comparison.differences import REPLY
from orderlab.properties.contracts.session.product import ComparedSubject
from orderlab.properties.contracts.session.validation.exploration import applies, explore_scope, fitted
from orderlab.properties.contracts.session.validation.scenarios import run_scenarios
from orderlab.properties.contracts.session.validation.walks import walk_about
from orderlab.properties.validation.findings import Findings
from orderlab.sim.stores.binding.binding import Binding

STATES_MAX = 300
"""Pairs of keyspaces in each scope."""
WALKS = 80


def difference_to_clients(
    original: Binding, mutated: Binding, modulus: int, states_max: int = STATES_MAX, walks: int = WALKS
) -> str:
    """A reply of ``mutated`` that is not the original's in scenarios, walks and scopes of a small world; or nothing.

    For stores whose operations are single calls: between the calls of one that takes several, others could come.
    """
    if any(not bound.is_atomic for bound in original.operations.values()):
        return "operations of several calls are not compared by their replies"
    small = ComparedSubject(mutated, remembers=True, old=original).scaled(min(modulus, original.modulus))
    findings = Findings(frozenset([REPLY]))

    def searches() -> Iterator[Callable[[], object]]:
        yield lambda: run_scenarios(small, findings)
        yield lambda: walk_about(small, findings, walks)
        for scope in SCOPES:
            if applies(scope, small):
                yield lambda scope=scope: explore_scope(  # type: ignore[misc]
                    small, fitted(scope, small), findings, states=states_max
                )

    for search in searches():
        search()
        if findings.by_law:
            return findings.by_law[REPLY][0].text
    return ""
