"""The state graph as a networkx graph, written as DOT, GraphML or JSON."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import networkx as nx

from orderlab.model.errors import InputError
from orderlab.model.explorer.behaviour import shown
from orderlab.model.explorer.space import Space
from orderlab.model.files import write_whole

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
