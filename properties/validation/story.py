"""One violation as a numbered story in plain lines: for a terminal, a test report, a file."""

from __future__ import annotations

from collections.abc import Iterator

from model.trace_words import told_step
from properties.validation.explanation import shown_keyspace
from properties.validation.validation import Witness


def story_lines(law: str, witness: Witness) -> Iterator[tuple[str, str]]:
    """Lines with the style that a terminal gives them: the steps, the keys around the last one, the Lua line."""
    trace, explanation = witness.finding.trace, witness.explanation
    yield f"{law} is violated: {witness.finding.text}", "bold"
    for number, step in enumerate(trace.steps, 1):
        yield f"  {number}. {told_step(step, trace)}", ""
        if explanation.told[number - 1]:
            yield f"     {explanation.told[number - 1]}; live: {explanation.queues[number - 1]}", "dim"
    for name, keyspace in (("before", explanation.before), ("after", explanation.after)):
        yield f"  keys {name} the last step:", ""
        shown = shown_keyspace(keyspace)
        for key, value in shown.items():
            yield f"     {key} = {value}", "dim"
        if not shown:
            yield "     none", "dim"
    if explanation.place:
        yield f"  {explanation.place}: {explanation.source}", ""
        if explanation.call:
            yield f"     redis.call: {explanation.call}", "dim"
    yield f"  found by {witness.finding.analysis}; {witness.confirmation}", ""
