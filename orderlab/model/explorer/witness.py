"""The shortest witness with the fewest switches between processes, from a breadth-first numbering.

Backwards through the levels: which states lie on a shortest path to a target. Then forwards along these only, keeping
for each concrete state and each process that stepped last the path with the fewest switches. With symmetry the levels
hold representatives, while the path is rebuilt from concrete states, so that processes keep their names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from orderlab.model.explorer.behaviour import Run
from orderlab.model.explorer.space import Space
from orderlab.model.spec.transition_system import Label

CHUNK = 1 << 14


class Unconvicted(Exception):
    """A violation was found that no run of the system shows. The message says what is missing."""


class _Path(NamedTuple):
    """The best path to a state whose last step was one process's: its switches, and a chain back to the start."""

    switches: int
    state: Any
    label: Label | None
    before: _Path | None


def shortest_witness(
    space: Space, levels: Sequence[int], expanded: int, depth: int, is_target: Callable[[Any], bool]
) -> Run:
    """A shortest run to a target among the states of level `depth`, with the fewest switches.

    Level d holds the states levels[d] .. levels[d + 1] - 1, of which those from `expanded` on have not been expanded.
    Raises Unconvicted if no run of the system leads to a target there: what found it was wrong.
    """
    first, last = levels[depth], levels[depth + 1]
    targets = {number for number in range(first, last) if is_target(space.state(number))}
    if not targets:
        raise Unconvicted("no state of the level in which it was found breaks it when asked again")
    best = _fewest_switches(space, _layers(space, levels, expanded, depth, targets))
    return _told(_plainest(list(best.values())))


def shortest_step_witness(
    space: Space, levels: Sequence[int], expanded: int, depth: int, is_violated: Callable[[Any, Label, Any], bool]
) -> Run:
    """A shortest run that ends in a violating step out of a state of level `depth`."""
    system = space.system

    def bad_steps(state: Any) -> list[tuple[Label, Any]]:
        return [(label, after) for label, after in system.successors(state) if is_violated(state, label, after)]

    sources = {n for n in range(levels[depth], levels[depth + 1]) if bad_steps(space.state(n))}
    if not sources:
        raise Unconvicted("no step out of the level in which it was found breaks it when asked again")
    best = _fewest_switches(space, _layers(space, levels, expanded, depth, sources))
    ends: list[_Path] = []
    for path in best.values():
        ends += [_extended(path, label, after) for label, after in bad_steps(path.state)]
    return _told(_plainest(ends))


def _plainest(paths: Sequence[_Path]) -> _Path:
    if not paths:
        raise Unconvicted("no run leads there step by step")
    return min(paths, key=lambda path: path.switches)


def _layers(space: Space, levels: Sequence[int], expanded: int, depth: int, targets: set[int]) -> list[set[int]]:
    """For each level the states from which a target can be reached in just as many steps as are left."""
    layers = [targets]
    for level in range(depth - 1, -1, -1):
        wanted = np.zeros(levels[level + 2], np.bool_)
        wanted[list(layers[0])] = True
        on_the_way: set[int] = set()
        end = min(levels[level + 1], expanded)
        for first in range(levels[level], end, CHUNK):
            edges = space.edges(first, min(first + CHUNK, end))
            near = edges.target < len(wanted)
            hits = near.copy()
            hits[near] = wanted[edges.target[near]]
            on_the_way.update(np.unique(edges.source[hits]).tolist())
        layers.insert(0, on_the_way)
    return layers


def _fewest_switches(space: Space, layers: Sequence[set[int]]) -> dict[tuple[Any, str], _Path]:
    """The best path for each (last state, last process). Earlier found paths win ties, so the result is
    deterministic.
    """
    best: dict[tuple[Any, str], _Path] = {}
    for state in space.system.initial_states():
        if space.number_of(state) in layers[0]:
            best.setdefault((state, ""), _Path(0, state, None, None))
    for layer in layers[1:]:
        following: dict[tuple[Any, str], _Path] = {}
        steps: dict[Any, list[tuple[Label, Any]]] = {}
        for path in best.values():
            if path.state not in steps:
                offered = space.system.successors(path.state)
                steps[path.state] = [(label, after) for label, after in offered if space.number_of(after) in layer]
            for label, after in steps[path.state]:
                longer = _extended(path, label, after)
                known = following.get((after, label.actor))
                if known is None or longer.switches < known.switches:
                    following[after, label.actor] = longer
        best = following
    return best


def _extended(path: _Path, label: Label, after: Any) -> _Path:
    switched = path.label is not None and path.label.actor != label.actor
    return _Path(path.switches + switched, after, label, path)


def _told(path: _Path) -> Run:
    run: list[tuple[Label, Any]] = []
    while path.label is not None:
        run.insert(0, (path.label, path.state))
        assert path.before is not None
        path = path.before
    return Run(path.state, run)
