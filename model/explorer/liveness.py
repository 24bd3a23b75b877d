"""Liveness on the state graph: leads-to under weak fairness, decided by strongly connected components.

A law `when` leads to `then` fails exactly if, from a reachable state that meets `when` and not `then`, one can stay for
ever among states without `then` on a fair behaviour. Such a behaviour ends in a component of that region in which each
fair step is either taken or, somewhere, not enabled; with weak fairness the whole component is as good as any part of
it. Stuttering for ever counts as a behaviour, as in TLA+: so a state in which no fair step is enabled is a fair end. A
step that changes nothing is neither enabled nor taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from model.explorer.behaviour import Behaviour, behaviour
from model.explorer.space import Edges, Space
from model.transition_system import LeadsTo, WeakFairness

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class StateGraph:
    """The changing steps between all states, sorted by source; `begin[s]:begin[s+1]` are those out of state s."""

    states: int
    source: NDArray[np.int64]
    label: NDArray[np.int64]
    target: NDArray[np.int64]
    begin: NDArray[np.int64]
    edges: Edges

    @staticmethod
    def of(space: Space) -> StateGraph:
        edges = space.edges(0, space.count)
        moves = edges.source != edges.target
        source = edges.source[moves]
        begin = np.searchsorted(source, np.arange(space.count + 1))
        return StateGraph(space.count, source, edges.label[moves], edges.target[moves], begin, edges)

    def taking(self, fairness: WeakFairness) -> Bools:
        """Which steps belong to a fairness condition."""
        matching = np.fromiter(
            (fairness.matches(label) for label in self.edges.labels), np.bool_, len(self.edges.labels)
        )
        return matching[self.label] if len(matching) else np.zeros(len(self.label), np.bool_)

    def path(self, start: int, arrived: Callable[[int], bool], allowed: Bools) -> list[int]:
        """Steps (edge numbers) of a shortest path from `start` through allowed states; empty if it has arrived
        already.
        """
        if arrived(start):
            return []
        came_by: dict[int, int] = {start: -1}
        queue = deque([start])
        while queue:
            state = queue.popleft()
            for edge in range(int(self.begin[state]), int(self.begin[state + 1])):
                after = int(self.target[edge])
                if after in came_by or not allowed[after]:
                    continue
                came_by[after] = edge
                if arrived(after):
                    return self._back(came_by, after)
                queue.append(after)
        raise AssertionError("unreachable within the allowed states")

    def _back(self, came_by: dict[int, int], state: int) -> list[int]:
        steps: list[int] = []
        while came_by[state] >= 0:
            steps.insert(0, came_by[state])
            state = int(self.source[came_by[state]])
        return steps


def find_lasso(
    space: Space, graph: StateGraph, law: LeadsTo[Any], fairness: Sequence[WeakFairness]
) -> tuple[Behaviour | None, int]:
    """A fair behaviour that breaks the law, or None; and the number of states in which the obligation began."""
    without = ~space.truth(law, "then", 0, graph.states)
    initial = np.fromiter((space.parent(s) < 0 for s in range(graph.states)), np.bool_, graph.states)
    begins = initial if law.when is None else space.truth(law, "when", 0, graph.states)
    obliged = int(begins.sum())
    region = _reachable(graph, begins & without, without)
    component = _components(graph, region)
    fair = region.copy()
    for condition in fairness:
        fair &= _respecting(graph, region, component, graph.taking(condition))
    if not fair.any():
        return None, obliged
    return _lasso(space, graph, begins & without, without, fair, component, fairness), obliged


def _reachable(graph: StateGraph, start: Bools, allowed: Bools) -> Bools:
    seen = start.copy()
    usable = allowed[graph.source] & allowed[graph.target]
    source, target = graph.source[usable], graph.target[usable]
    begin = np.searchsorted(source, np.arange(graph.states + 1))
    frontier = np.flatnonzero(start)
    while len(frontier):
        spans = [target[begin[s] : begin[s + 1]] for s in frontier]
        after = np.unique(np.concatenate(spans))
        frontier = after[~seen[after]]
        seen[frontier] = True
    return seen


def _components(graph: StateGraph, region: Bools) -> NDArray[np.int64]:
    inside = region[graph.source] & region[graph.target]
    ones = np.ones(int(inside.sum()), np.int8)
    shape = (graph.states, graph.states)
    matrix = csr_array((ones, (graph.source[inside], graph.target[inside])), shape=shape)
    return np.asarray(connected_components(matrix, directed=True, connection="strong")[1], np.int64)


def _respecting(graph: StateGraph, region: Bools, component: NDArray[np.int64], taking: Bools) -> Bools:
    """The states whose component can go on for ever without neglecting one fairness condition."""
    enabled = np.zeros(graph.states, np.bool_)
    enabled[graph.source[taking]] = True
    good = np.zeros(int(component.max()) + 1, np.bool_)
    good[component[region & ~enabled]] = True
    good[component[graph.source[_internal(graph, region, component, taking)]]] = True
    return good[component]


def _internal(graph: StateGraph, region: Bools, component: NDArray[np.int64], taking: Bools) -> NDArray[np.int64]:
    same = component[graph.source] == component[graph.target]
    return np.flatnonzero(taking & same & region[graph.source] & region[graph.target])


def _lasso(
    space: Space,
    graph: StateGraph,
    begins: Bools,
    without: Bools,
    fair: Bools,
    component: NDArray[np.int64],
    fairness: Sequence[WeakFairness],
) -> Behaviour:
    """Stem to the earliest obligation that can be neglected, on to a fair component, and once around in it."""
    start = np.flatnonzero(begins & _leading_to(graph, fair, without))[0]
    inward = graph.path(int(start), lambda s: bool(fair[s]), without)
    entry = int(graph.target[inward[-1]]) if inward else int(start)
    around = _cycle(graph, entry, (component == component[entry]) & fair, fairness)
    first, stem = _stem(space, int(start))
    run = [(_label_between(graph, before, after), space.state(after)) for before, after in stem]
    for edge in [*inward, *around]:
        run.append((graph.edges.labels[int(graph.label[edge])], space.state(int(graph.target[edge]))))
    return behaviour(space.system, space.state(first), run, loop_start=len(run) - len(around))


def _leading_to(graph: StateGraph, goal: Bools, allowed: Bools) -> Bools:
    """The allowed states from which a goal can be reached through allowed states."""
    found = goal.copy()
    while True:
        earlier = graph.source[found[graph.target] & allowed[graph.source] & ~found[graph.source]]
        if not len(earlier):
            return found
        found[earlier] = True


def _cycle(graph: StateGraph, entry: int, inside: Bools, fairness: Iterable[WeakFairness]) -> list[int]:
    """A closed walk in a fair component that neglects no fairness condition; empty if stuttering neglects none."""
    walk: list[int] = []
    at = entry
    for condition in fairness:
        taking = graph.taking(condition)
        enabled = np.zeros(graph.states, np.bool_)
        enabled[graph.source[taking]] = True
        visited = [entry, *(int(graph.target[edge]) for edge in walk)]
        if any(taking[edge] for edge in walk) or not all(enabled[state] for state in visited):
            continue
        usable = np.zeros(graph.states, np.bool_)
        usable[graph.source[taking & inside[graph.source] & inside[graph.target]]] = True
        more = graph.path(at, lambda s, e=enabled, u=usable: bool(not e[s] or u[s]), inside)  # type: ignore[misc]
        walk += more
        at = int(graph.target[walk[-1]]) if walk else entry
        if enabled[at]:
            out = range(int(graph.begin[at]), int(graph.begin[at + 1]))
            walk.append(next(e for e in out if taking[e] and inside[graph.target[e]]))
            at = int(graph.target[walk[-1]])
    return walk + graph.path(at, lambda s: s == entry, inside)


def _stem(space: Space, state: int) -> tuple[int, list[tuple[int, int]]]:
    """The initial state and the pairs of states on the breadth-first path."""
    pairs: list[tuple[int, int]] = []
    while (before := space.parent(state)) >= 0:
        pairs.insert(0, (before, state))
        state = before
    return state, pairs


def _label_between(graph: StateGraph, before: int, after: int) -> Any:
    """The label of the first step between two states."""
    for edge in range(int(graph.begin[before]), int(graph.begin[before + 1])):
        if graph.target[edge] == after:
            return graph.edges.labels[int(graph.label[edge])]
    raise AssertionError(f"no step from state {before} to {after}")
