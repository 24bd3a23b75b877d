"""The consumer of a node: poll a pack, submit its save, commit the offset when the save is answered."""

from __future__ import annotations

from orderlab.model.pipeline.delivering import answer_fetch, hand_over
from orderlab.model.pipeline.driving import readable, write
from orderlab.model.pipeline.protocol import Protocol, Scope
from orderlab.model.pipeline.state import Answer, Command, Node, State
from orderlab.model.pipeline.step import Step, Steps, node_name, with_node


def consuming(state: State, protocol: Protocol, scope: Scope) -> Steps:
    """Poll records below the high watermark; take in the oldest answer of the connection."""
    for index, node in enumerate(state.nodes):
        if state.owner == index and len(node.packs) < protocol.packs_in_flight and node.position < state.replicated:
            pack = state.log[node.position : min(state.replicated, node.position + scope.pack_size)]
            online = any(other.session is not None for other in state.nodes)
            command = Command("save", node.position, pack, online=online, generation=node.generation)
            polled = node._replace(position=node.position + len(pack), packs=(*node.packs, command))
            detail = ", ".join(f"m{message}" for message in pack)
            yield (
                Step(node_name(index), "poll and save", detail),
                with_node(state, index, write(polled, command, scope)),
            )
        if readable(state, protocol, node):
            yield take_answer(state, protocol, scope, index, node)


def take_answer(state: State, protocol: Protocol, scope: Scope, index: int, node: Node) -> tuple[Step, State]:
    """The node reads the oldest answer. NOSCRIPT: load the script and send the command again, behind all others."""
    answer, *rest = node.answers
    node = node._replace(answers=tuple(rest))
    actor, command = node_name(index), answer.command
    if answer.status == "noscript":
        again = with_node(state, index, write(node, command, scope))
        return Step(actor, "load script, send again", command.kind), again._replace(script_loaded=True)
    if answer.status == "error":
        return Step(actor, "save failed, send again"), with_node(state, index, write(node, command, scope))
    state = with_node(state, index, node)
    if answer.saved:
        exposed = max(state.exposed_sequence, answer.saved[-1].sequence)
        state = state._replace(exposed_sequence=exposed)
    if command.kind == "save":
        return Step(actor, "save answered, commit offset"), save_answered(state, protocol, scope, index, answer)
    if command.kind == "fetch":
        return Step(actor, "fetch answered", names(answer)), answer_fetch(state, protocol, scope, index, answer)
    return Step(actor, "remove answered"), state


def save_answered(state: State, protocol: Protocol, scope: Scope, index: int, answer: Answer) -> State:
    """Commit the offset and tell the session."""
    node, command = state.nodes[index], answer.command
    if command in node.packs:
        place = node.packs.index(command)
        node = node._replace(packs=node.packs[:place] + node.packs[place + 1 :])
        state = with_node(state, index, node)
        if not protocol.fenced_commit or command.generation == state.generation:
            state = state._replace(committed=command.offset + len(command.messages))
    return hand_over(state, protocol, scope, answer)


def names(answer: Answer) -> str:
    """The messages of an answer."""
    return ", ".join(f"m{saved.message}" for saved in answer.saved) or "nothing"
