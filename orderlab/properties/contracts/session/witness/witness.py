"""A law broken by a store: what was found, what it looks like from within, and who else saw it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orderlab.model.contracts.session.steps import told_step
from orderlab.properties.contracts.session.witness.explanation import Explanation
from orderlab.properties.harness.keyspace import shown_keyspace
from orderlab.properties.harness.suspect_line import LuaLine
from orderlab.properties.validation.findings import Finding
from orderlab.properties.validation.headline import Cause, cause_of, headline
from orderlab.sim.redis.shard import FrozenKeyspace


@dataclass(frozen=True)
class Witness:
    """A law broken: the shortest trace that is known, on the scripts as they are."""

    finding: Finding
    explanation: Explanation
    confirmation: str
    round: int = 0
    """In which round of the validation it was found."""

    @property
    def headline(self) -> str:
        """The cause, then what is seen of it."""
        return headline(self.finding, self.explanation)

    @property
    def cause(self) -> Cause:
        """What tells it from other witnesses of its law."""
        return cause_of(self.finding, self.explanation)

    def to_json(self) -> dict[str, Any]:
        """The trace, what it did, and who confirmed it."""
        return {
            "headline": self.headline,
            "text": self.finding.text,
            "found_by": self.finding.analysis,
            "trace": self.finding.trace.to_json(),
            "confirmation": self.confirmation,
            **self.explanation.to_json(),
        }


KEYS_SHOWN = 8
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
"""What would move a terminal's cursor or colour it, if a script put it into an error or a comment."""


def without_controls(text: str) -> str:
    """The text with escapes for what is no character to be read."""
    return text.translate(_CONTROLS)


def story_lines(law: str, witness: Witness) -> Iterator[tuple[str, str]]:
    """Lines with the style that a terminal gives them: the steps, the keys around the last one, the Lua line."""
    return ((without_controls(line), style) for line, style in _story_lines(law, witness))


def _story_lines(law: str, witness: Witness) -> Iterator[tuple[str, str]]:
    trace, explanation = witness.finding.trace, witness.explanation
    yield f"{law} is violated: {witness.headline}", "bold"
    for number, step in enumerate(trace.steps, 1):
        yield f"  {number}. {told_step(step, trace)}", ""
        if explanation.told[number - 1]:
            yield f"     {explanation.told[number - 1]}", "dim"
            yield f"     the specification has live: {explanation.queues[number - 1]}", "dim"
    changed = {key for key in {*explanation.before, *explanation.after} if explanation.before.get(key) != explanation.after.get(key)}
    for name, keyspace in (("before", explanation.before), ("after", explanation.after)):
        yield f"  the store's keys {name} the last step:", ""
        yield from _keys(keyspace, changed)
    yield from lua_lines(explanation.lua)
    yield f"  found by {witness.finding.analysis}; {witness.confirmation}", ""


def _keys(keyspace: FrozenKeyspace, changed: set[bytes]) -> Iterator[tuple[str, str]]:
    """The keys that the last step changed, then others, as many as can be read."""
    first = sorted(key for key in keyspace if key in changed)[:KEYS_SHOWN]
    first += sorted(key for key in keyspace if key not in changed)[: max(KEYS_SHOWN - len(first), 0)]
    for key, value in shown_keyspace({key: keyspace[key] for key in first}).items():
        yield f"     {key} = {value}", "dim"
    if len(keyspace) > len(first):
        yield f"     and {len(keyspace) - len(first):,} more keys", "dim"
    if not keyspace:
        yield "     none", "dim"


def lua_lines(lua: LuaLine) -> Iterator[tuple[str, str]]:
    """The line and its call; nothing where none can be named."""
    if lua.place:
        yield f"  {lua.place}: {lua.source}", ""
        if lua.call:
            yield f"     redis.call: {lua.call}", "dim"
        if lua.written:
            yield f"  written before it failed: {lua.written}", ""
    elif lua.call:
        yield f"  called by no script: {lua.call}", ""
