"""A step of the pipeline: who did what, and the state after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from orderlab.model.pipeline.state import Node, State


class Step(NamedTuple):
    """``actor`` is a process (``publisher``, ``node A``, ``redis``, ``fault``...); ``detail`` is for the reader."""

    actor: str
    action: str
    detail: str = ""


Steps = Iterator[tuple[Step, State]]


def node_name(index: int) -> str:
    """``node A``, ``node B``."""
    return "node " + "ABCDEFGH"[index]


def with_node(state: State, index: int, node: Node) -> State:
    """``state`` with one node replaced."""
    nodes = state.nodes
    return state._replace(nodes=(*nodes[:index], node, *nodes[index + 1 :]))
