"""What must be able to happen next in the abstract session, and what must not: laws of enabledness.

Laws of states and of steps are silent about a step that is never offered: a model in which nobody acknowledges, or in
which a record is late before anything was cleared, breaks none of them and proves nothing. These say for each kind of
step when it is due, without the text of the system.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from orderlab.model.contracts.session.step_laws import AGAIN, LATE
from orderlab.model.spec.transition_system import Label

if TYPE_CHECKING:
    from orderlab.model.contracts.session.spec import Scope, Session, Situation

Offer = tuple[str, str, int | None]
"""Who, what, and for which message."""


def offered(steps: Iterable[tuple[Label, Situation]]) -> list[Offer]:
    """The labels of steps, as offers."""
    return sorted(((label.actor, label.action, dict(label.arguments).get("message")) for label, _ in steps), key=repr)


def answers_are_due(session: Session) -> Iterator[Offer]:
    """Whatever is in flight is answered: QoS 1 by a PUBACK; QoS 2 by a PUBREC, then by a PUBCOMP (4.3.2, 4.3.3)."""
    for entry in session.queue:
        if entry.sent:
            is_released = entry.qos == 2 and entry.kind == "PUBLISH"
            yield "reader", "release" if is_released else "acknowledge", entry.label


def saves_are_due(state: Situation, scope: Scope) -> Iterator[Offer]:
    """Each writer saves in order; its record may be late once a session was cleared; what was accepted may come again."""
    for writer, (program, sent) in enumerate(zip(scope.programs, state.positions, strict=True)):
        actor = f"writer {writer + 1}"
        if program[sent:]:
            yield actor, "save", program[sent].label
            if state.session.epoch >= 1:
                yield actor, LATE, None
        if 1 <= sent == state.session.mark(writer):
            yield actor, AGAIN, None


def is_offered_what_is_due(state: Situation, scope: Scope, steps: Iterable[tuple[Label, Situation]]) -> bool:
    """Every step that is due is offered once, and no other is."""
    due: list[Offer] = [("reader", "fetch", None), *answers_are_due(state.session), *saves_are_due(state, scope)]
    if scope.horizon_ms - state.session.now_ms > 0:
        due.append(("time", "expire", None))
    if scope.clears - state.session.epoch > 0:
        due.append(("reader", "clear", None))
    return offered(steps) == sorted(due, key=repr)


def marks_follow_saves(state: Situation) -> bool:
    """A producer's mark is the number of a batch that it has sent, and batches are numbered one by one."""
    return all(0 <= state.session.mark(writer) <= sent for writer, sent in enumerate(state.positions))
