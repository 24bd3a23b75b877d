"""The driver: one pipelined connection per node, optional batching, answers in order; and Redis behind it."""

from __future__ import annotations

from orderlab.model.pipeline import store
from orderlab.model.pipeline.protocol import Protocol, Scope
from orderlab.model.pipeline.state import Command, Node, State
from orderlab.model.pipeline.step import Step, Steps, node_name, with_node


def write(node: Node, command: Command, scope: Scope) -> Node:
    """The node writes ``command`` to its driver, which flushes when ``flush_at`` commands are buffered."""
    buffer, count = (*node.buffer, command), node.buffered_count + 1
    if count >= scope.flush_at:
        return node._replace(buffer=(), buffered_count=0, sent=node.sent + buffer)
    return node._replace(buffer=buffer, buffered_count=count)


def driving(state: State, protocol: Protocol, scope: Scope) -> Steps:
    """Flush by timer, execute the oldest command of a connection, copy to the replica."""
    for index, node in enumerate(state.nodes):
        yield from flushing(state, protocol, index, node)
        if node.sent:
            command, *rest = node.sent
            after, answer = store.run(state, protocol, command)
            busy = node._replace(sent=tuple(rest), answers=(*node.answers, answer))
            yield (
                Step("redis", command.kind, f"for {node_name(index)}: {describe(command)}"),
                with_node(after, index, busy),
            )
    if state.orphans:
        command, *left = state.orphans
        after, _ = store.run(state, protocol, command)
        yield (
            Step("redis", command.kind, f"left by a dead connection: {describe(command)}"),
            after._replace(orphans=tuple(left)),
        )
    if protocol.wait_for_replica and state.replica != state.store:
        yield replication(state)


def replication(state: State) -> tuple[Step, State]:
    """The replica catches up with the master."""
    return Step("redis", "replicate"), state._replace(replica=state.store)


def flushing(state: State, protocol: Protocol, index: int, node: Node) -> Steps:
    """The timer flushes what the counter says is waiting. Resetting the counter in a second step is specimen B11."""
    actor = node_name(index)
    if node.timer_midway:
        reset = node._replace(timer_midway=False, buffered_count=0)
        yield Step(actor, "reset flush counter"), with_node(state, index, reset)
    elif node.buffered_count:
        flushed = node._replace(buffer=(), sent=node.sent + node.buffer)
        flushed = flushed._replace(buffered_count=0) if protocol.atomic_flush else flushed._replace(timer_midway=True)
        yield Step(actor, "flush by timer"), with_node(state, index, flushed)


def readable(state: State, protocol: Protocol, node: Node) -> bool:
    """Whether the oldest answer of ``node`` may count: with WAIT, only when the replica has what it tells of."""
    if not node.answers:
        return False
    answer = node.answers[0]
    waits = protocol.wait_for_replica and answer.status == "ok"
    return not waits or state.replica.version >= answer.version


def describe(command: Command) -> str:
    """What a reader of a witness wants to know of a command."""
    if command.kind == "save":
        return f"offset {command.offset}, " + ", ".join(f"m{message}" for message in command.messages)
    return f"after {command.sequence}" if command.kind == "fetch" else f"sequence {command.sequence}"
