"""A law broken by a store: what was found, what it looks like from within, who else saw it, and the story of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from orderlab.model.contracts.base import Terms
from orderlab.model.contracts.client_steps import fault_of
from orderlab.properties.harness.keyspace import shown_keyspace
from orderlab.properties.harness.recording import LuaLine
from orderlab.properties.validation.findings import Finding, wording
from orderlab.properties.witness.telling import changes_told, left_out, places_told
from orderlab.sim.redis.shard import FrozenKeyspace

_WHERE = re.compile(r" ?script: (?:[0-9a-f]{40}|\S+), on @?\S+:\d+\.?$|^ERR ")


@dataclass(frozen=True)
class Explanation:
    """A witness, ready to be shown."""

    told: tuple[str, ...]
    """What each step answered."""
    states: tuple[str, ...]
    """The abstract state after each step."""
    before: FrozenKeyspace
    after: FrozenKeyspace
    """The keys around the last step."""
    lua: LuaLine
    """Where the call stands that did it."""
    exhausts: bool = False
    """A script was stopped at its limit of instructions or memory."""
    error: str = ""
    """What the last step failed with, if it did."""
    keyspaces: tuple[FrozenKeyspace | None, ...] = ()
    """The keys after each step; None on the way to where many messages have passed."""
    ran: tuple[tuple[tuple[Path, int], ...], ...] = ()
    """The lines of scripts that each step came by, as far as calls show; nothing where that was not noted."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; bytes as Latin-1 text."""
        return {
            "told": list(self.told),
            "keys_before": shown_keyspace(self.before),
            "keys_after": shown_keyspace(self.after),
            "line": self.lua.place,
            "call": self.lua.call,
            "source": self.lua.source,
        }


class Cause(NamedTuple):
    """What makes two witnesses of one law tell of the same defect: the lines, the error, the kind of divergence."""

    place: str
    written: str
    error: str
    wording: str


@dataclass(frozen=True)
class Witness:
    """A law broken: the shortest trace that is known, on the scripts as they are."""

    finding: Finding
    explanation: Explanation
    confirmation: str
    terms: Terms
    """Of the kind of store, for its words."""
    round: int = 0
    """In which round of the validation it was found."""

    @property
    def headline(self) -> str:
        """The cause, then what is seen of it; the symptom alone where no line of a script can be named."""
        finding, explanation = self.finding, self.explanation
        lua = explanation.lua
        if not lua.place or finding.law in ("one-slot", "bounded"):
            return finding.text
        around = ", ".join(self.terms.circumstances(finding.trace))
        command = lua.call.split(" ", 1)[0].upper()
        place = lua.place.rpartition("/")[2]
        if explanation.error:
            cause = f"{command or 'the script'} fails at {place} ({_short(explanation.error)})"
            if lua.written:
                written = lua.written.split(": ")
                cause += f" after {written[1].split(' ', 1)[0].upper()} at {written[0].rpartition('/')[2]} has written"
        else:
            cause = f"{command} at {place}" if command else place
        return f"{cause}{f' ({around})' if around else ''}: {_without_error(finding.text, explanation.error)}"

    @property
    def cause(self) -> Cause:
        """What tells it from other witnesses of its law. Errors that are injected are all alike: what matters is the
        line that they strike, and what was written before."""
        finding, lua = self.finding, self.explanation.lua
        if finding.law == "one-slot":
            return Cause("", "", "", finding.kind.wording)
        steps = finding.trace.steps
        error = "a fault" if steps and fault_of(steps[-1]) else wording(_short(self.explanation.error))
        return Cause(
            lua.place, lua.written.split(": ")[0], error if self.explanation.error else "", wording(finding.text)
        )

    def to_json(self) -> dict[str, Any]:
        """The trace, what it did, and who confirmed it."""
        return {
            "law": self.finding.law,
            "headline": self.headline,
            "text": self.finding.text,
            "found_by": self.finding.analysis,
            "trace": self.finding.trace.to_json(),
            "confirmation": self.confirmation,
            self.terms.states_name: list(self.explanation.states),
            **self.explanation.to_json(),
        }


def _short(error: str) -> str:
    return _WHERE.sub("", _WHERE.sub("", error)).strip()


def _without_error(text: str, error: str) -> str:
    """The symptom without the error that the cause has told."""
    if not error or error not in text:
        return text
    return (
        text.replace(f"the error {error!r}", "this error").replace(f" ({error})", "").replace(error, "").rstrip(": ,")
    )


# -- the story
# -------------------------------------------------------------------------------------------------------------

KEYS_SHOWN = 8
_CONTROLS = {code: chr(code).encode("unicode_escape").decode() for code in (*range(32), *range(127, 160))}
"""What would move a terminal's cursor or colour it, if a script put it into an error or a comment."""


def without_controls(text: str) -> str:
    """The text with escapes for what is no character to be read."""
    return text.translate(_CONTROLS)


def story_lines(witness: Witness) -> Iterator[tuple[str, str]]:
    """Lines with the style that a terminal gives them: the steps, the keys around the last one, the Lua line."""
    return ((without_controls(line), style) for line, style in _story_lines(witness))


def _story_lines(witness: Witness) -> Iterator[tuple[str, str]]:
    trace, explanation, terms = witness.finding.trace, witness.explanation, witness.terms
    yield f"{witness.finding.law} is violated: {witness.headline}", "bold"
    sentences = [terms.told_step(step, trace) for step in trace.steps]
    states = tuple(changes_told(explanation.states))
    for place in places_told(list(zip(sentences, explanation.told, strict=True))):
        if isinstance(place, range):
            yield f"  {left_out(place)}", "dim"
            continue
        yield f"  {place + 1}. {sentences[place]}", ""
        if told := explanation.told[place]:
            yield f"     {told}", "dim"
            if states[place]:
                yield f"     {terms.state_words}: {states[place]}", "dim"
    changed = {
        key
        for key in {*explanation.before, *explanation.after}
        if explanation.before.get(key) != explanation.after.get(key)
    }
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
