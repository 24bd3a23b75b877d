"""The state graph: liveness decided on it, and its export as DOT, GraphML or JSON.

Leads-to under weak and strong fairness is decided by strongly connected components.

A law `when` leads to `then` fails exactly if, from a reachable state that meets `when` and not `then`, one can stay for
ever among states without `then` on a fair behaviour. Such a behaviour ends in a strongly connected set of that region
in which each weakly fair step is taken or, somewhere, not enabled, and each strongly fair step is taken or nowhere
enabled. The largest such sets are found by refinement (emptiness of Streett automata): a component that neglects a
strongly fair step loses the states that enable it, and what is left is split into components again; one that neglects a
weakly fair step has no part that does better. Stuttering for ever counts as a behaviour, as in TLA+: a single state is
a set that can be stayed in. A step that changes nothing is neither enabled nor taken.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from orderlab.model.errors import InputError
from orderlab.model.explorer.space import Edges, Space
from orderlab.model.explorer.witness import SystemRun
from orderlab.model.files import write_whole
from orderlab.model.spec.transition_system import Fairness, LeadsTo, StrongFairness
from orderlab.model.spec.variables import shown

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


class FairnessCondition:
    """A fairness condition on one graph: which steps belong to it, and which states have such a step."""

    def __init__(self, graph: StateGraph, fairness: Fairness):
        self.strong = isinstance(fairness, StrongFairness)
        labels = graph.edges.labels
        self._matching = np.fromiter((fairness.matches(label) for label in labels), np.bool_, len(labels))
        self._label = graph.label
        self.enabled = np.zeros(graph.states, np.bool_)
        self.enabled[graph.source[self.taking()]] = True

    def taking(self) -> Bools:
        """Whether each step belongs to the condition."""
        return self._matching[self._label] if len(self._matching) else np.zeros(len(self._label), np.bool_)

    def takes(self, edge: int) -> bool:
        return bool(self._matching[self._label[edge]])

    def is_respected(self, states: Sequence[int], edges: Sequence[int]) -> bool:
        """Whether going round through these states by these steps for ever is fair."""
        if any(self.takes(edge) for edge in edges):
            return True
        return not any(self.enabled[s] for s in states) if self.strong else not all(self.enabled[s] for s in states)


def find_lasso(
    space: Space, graph: StateGraph, law: LeadsTo[Any], conditions: Sequence[FairnessCondition]
) -> tuple[SystemRun | None, int]:
    """A fair behaviour that breaks the law, or None; and the number of states in which the obligation began.

    A behaviour that comes to a state beyond a constraint is not followed, for what can happen there is not known.
    """
    without = ~space.truth(law, "then", 0, graph.states)
    without[list(space.cut)] = False
    initial = np.fromiter((space.parent(s) < 0 for s in range(graph.states)), np.bool_, graph.states)
    begins = initial if law.when is None else space.truth(law, "when", 0, graph.states)
    obliged = int(begins.sum())
    region = _reachable(graph, begins & without, without)
    fair, component = _fair_part(graph, region, conditions)
    if not fair.any():
        return None, obliged
    return _lasso(space, graph, begins & without, without, fair, component, conditions), obliged


def _fair_part(
    graph: StateGraph, region: Bools, conditions: Sequence[FairnessCondition]
) -> tuple[Bools, NDArray[np.int64]]:
    """The states of the region's fair components, and the component of each state."""
    fair = region.copy()
    while True:
        component = _components(graph, fair)
        kept = fair.copy()
        inside = fair[graph.source] & fair[graph.target] & (component[graph.source] == component[graph.target])
        for condition in conditions:
            taken = np.zeros(int(component.max()) + 1, np.bool_)
            taken[component[graph.source[inside & condition.taking()]]] = True
            if condition.strong:
                kept &= taken[component] | ~condition.enabled
            else:
                taken[component[fair & ~condition.enabled]] = True
                kept &= taken[component]
        if (kept == fair).all():
            return fair, component
        fair = kept


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


def _lasso(
    space: Space,
    graph: StateGraph,
    begins: Bools,
    without: Bools,
    fair: Bools,
    component: NDArray[np.int64],
    conditions: Sequence[FairnessCondition],
) -> SystemRun:
    """Stem to the earliest obligation that can be neglected, on to a fair component, and once around in it."""
    start = np.flatnonzero(begins & _leading_to(graph, fair, without))[0]
    inward = graph.path(int(start), lambda s: bool(fair[s]), without)
    entry = int(graph.target[inward[-1]]) if inward else int(start)
    around = _cycle(graph, entry, (component == component[entry]) & fair, conditions)
    first, stem = _stem(space, int(start))
    run = [(_label_between(graph, before, after), space.state(after)) for before, after in stem]
    for edge in [*inward, *around]:
        run.append((graph.edges.labels[int(graph.label[edge])], space.state(int(graph.target[edge]))))
    return SystemRun(space.state(first), run, len(run) - len(around), len(stem))


def _leading_to(graph: StateGraph, goal: Bools, allowed: Bools) -> Bools:
    """The allowed states from which a goal can be reached through allowed states."""
    found = goal.copy()
    while True:
        earlier = graph.source[found[graph.target] & allowed[graph.source] & ~found[graph.source]]
        if not len(earlier):
            return found
        found[earlier] = True


def _cycle(graph: StateGraph, entry: int, inside: Bools, conditions: Sequence[FairnessCondition]) -> list[int]:
    """A closed walk in a fair component that neglects no condition; empty if stuttering neglects none.

    Each round adds what one neglected condition asks for, which no later round undoes.
    """
    walk: list[int] = []
    while True:
        at = int(graph.target[walk[-1]]) if walk else entry
        closed = walk + graph.path(at, lambda s: s == entry, inside)
        states = [entry, *(int(graph.target[edge]) for edge in closed)]
        neglected = next((c for c in conditions if not c.is_respected(states, closed)), None)
        if neglected is None:
            return closed
        taking = neglected.taking() & inside[graph.source] & inside[graph.target]
        usable = np.zeros(graph.states, np.bool_)
        usable[graph.source[taking]] = True
        rests = np.zeros(graph.states, np.bool_) if neglected.strong else ~neglected.enabled
        walk += graph.path(at, lambda s, r=rests, u=usable: bool(r[s] or u[s]), inside)  # type: ignore[misc]
        at = int(graph.target[walk[-1]]) if walk else entry
        if not rests[at]:
            walk.append(next(e for e in range(int(graph.begin[at]), int(graph.begin[at + 1])) if taking[e]))


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


FORMS = (".dot", ".graphml", ".json")


def state_graph(space: Space, expanded: int) -> Any:
    """A MultiDiGraph of the known states: nodes carry `state` (described) and `initial`, edges `actor`, `action`,
    `arguments`. States that were not expanded (numbers from `expanded` on) have no outgoing edges and `open` set."""
    graph = nx.MultiDiGraph(name=space.system.name)
    for number in range(space.count):
        described = dict(space.system.describe(space.state(number)))
        initial = space.parent(number) < 0
        graph.add_node(number, state=described, initial=initial, open=number >= expanded)
    edges = space.edges(0, expanded)
    for source, kind, target in zip(edges.source, edges.label, edges.target, strict=True):
        label = edges.labels[int(kind)]
        graph.add_edge(
            int(source), int(target), actor=label.actor, action=label.action, arguments=dict(label.arguments)
        )
    return graph


def check_form(path: Path) -> None:
    """Raises InputError for a file name whose ending is none of the known forms."""
    if path.suffix not in FORMS:
        raise InputError(f"{path}: unknown form of graph; end the name in {', '.join(FORMS)}")


def write_graph(graph: Any, path: Path) -> None:
    """Write the graph in the form that the name's ending tells; the file appears whole or not at all."""
    check_form(path)
    if path.suffix == ".dot":
        data = dot_text(graph).encode()
    elif path.suffix == ".json":
        data = (json.dumps(nx.node_link_data(graph, edges="edges"), default=str) + "\n").encode()
    else:
        data = graphml(graph)
    write_whole(path, data)


def graphml(graph: Any) -> bytes:
    """GraphML knows no nested values: states and arguments become text."""
    flat = nx.MultiDiGraph(name=graph.name)
    for number, node in graph.nodes(data=True):
        flat.add_node(number, **{**node, "state": json.dumps(node["state"], default=str)})
    for source, target, edge in graph.edges(data=True):
        flat.add_edge(source, target, **{**edge, "arguments": json.dumps(edge["arguments"], default=str)})
    out = BytesIO()
    nx.write_graphml(flat, out)
    return out.getvalue()


def dot_text(graph: Any) -> str:
    lines = [f"digraph {_quoted(graph.name)} {{"]
    for number, node in graph.nodes(data=True):
        text = "\n".join(f"{name} = {shown(value)}" for name, value in node["state"].items())
        marks = (" penwidth=2" if node["initial"] else "") + (" style=dashed" if node["open"] else "")
        lines.append(f"  {number} [label={_quoted(text)}{marks}];")
    for source, target, edge in graph.edges(data=True):
        given = ", ".join(f"{name}={value}" for name, value in edge["arguments"].items())
        label = f"{edge['action']}({given})" if given else edge["action"]
        lines.append(f"  {source} -> {target} [label={_quoted(label)}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\l")
    return f'"{escaped}"'
