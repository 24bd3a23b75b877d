"""``[keys]`` of a draft, and arguments that are how keys begin: as programs spell them, or with an own hash tag.

A key of one thing (``jobs:{queue}:{job.id}``) holds the thing's field, as all things would share one key without it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from orderlab.properties.draft.callers import told_by_callers
from orderlab.properties.draft.facts import Facts, Slot
from orderlab.properties.draft.guess import CREATES, TAGS, field_for, known_field
from orderlab.properties.draft.guessed_promises import TODO
from orderlab.properties.draft.probing import key_names, shared_names

_SPELLED = re.compile(r"(?P<before>\*?[\w:./-]*)\{\*\}(?P<behind>[\w:./*-]*)")
_HOLE = re.compile(r"(?<!\{)\{([^{}]+)\}(?!\})")
"""What a program puts into a text; what stands in a hash tag has two braces."""


@dataclass(frozen=True)
class KeyLines:
    """The keys of the scripts of a store."""

    facts: Sequence[Facts]
    fields: Sequence[Sequence[str]]
    """Of each script the fields of its operation; empty where it is none."""
    contract: str | None

    @property
    def tag(self) -> str:
        """What keys of the store lie together by."""
        return TAGS.get(self.contract or "", "{store}")

    @cached_property
    def _slots(self) -> Mapping[str, Sequence[tuple[Slot, Facts, Sequence[str]]]]:
        """Name of a key -> where it is passed."""
        keys: dict[str, list[tuple[Slot, Facts, Sequence[str]]]] = {}
        for script, names, fields in zip(self.facts, key_names(self.facts), self.fields, strict=True):
            for slot, name in zip(script.keys, names, strict=True):
                keys.setdefault(name, []).append((slot, script, fields))
        return keys

    @cached_property
    def _is_as_spelled(self) -> bool:
        """Whether programs spell all keys, each with a hash tag around what varies."""
        return all(_SPELLED.fullmatch(passed[0][0].shape) for passed in self._slots.values())

    def lines(self) -> Iterator[str]:
        """The lines of ``[keys]``."""
        shared = shared_names(self.facts)
        yield "[keys]  # one hash tag: on a cluster a script's keys lie in one slot"
        for name, passed in self._slots.items():
            slots = [slot for slot, _, _ in passed]
            kind = " or ".join(sorted(set().union(*(slot.types for slot in slots))))
            callers = next(filter(None, map(told_by_callers, slots)), "; spell it as your clients do")
            commands = set().union(*(slot.commands for slot in slots))
            thing = self._thing(name)
            template, gap = self._template(name, thing or ""), ""
            if thing is None:
                gap = f"; {TODO}: the program puts more into it than the store's name: which field is that?"
                template = f"<{TODO} {name}>"
            elif commands and not commands & CREATES and not thing:
                if (made := self._made_of_a_beginning(name)) is not None:
                    template, gap = made, "; a guess: scripts make such keys of an argument that keys begin with"
                else:
                    gap = f"; {TODO}: no script here puts anything there: is it another of these keys?"
                    template = template if slots[0].shape else f"<{TODO} {name}>"
            elif slots[0].name in shared and not slots[0].shape:
                gap = f"; {TODO}: two KEYS of a script are called {slots[0].name}: which key is this?"
                template = f"<{TODO} {name}>"
            count = len({script.script.name for _, script, _ in passed})
            scripts = f"{count} script{'s' if count > 1 else ''}"
            kind = kind or "of a type that the scripts do not tell"
            yield f'{bare(name)} = "{template}"  # {kind}, in {scripts}{callers}{gap}'

    def beginning(self, slot: Slot) -> str | None:
        """What stands in a draft for an argument that keys begin with; None where it is none."""
        if not slot.is_beginning and not any(
            slot.shape and "*" in slot.shape and passed[0][0].shape.startswith(slot.shape)
            for passed in self._slots.values()
        ):
            return None
        match = _SPELLED.fullmatch(slot.shape)
        if match is None or not self._is_as_spelled or "*" in match["behind"]:
            return f"{self.tag}:" if slot.is_beginning else None
        return f"{match['before'].replace('*', 'store')}{self.tag}{match['behind']}"

    def _template(self, name: str, thing: str) -> str:
        match = _SPELLED.fullmatch(self._slots[name][0][0].shape)
        if match is None or not self._is_as_spelled:
            return f"{self.tag}:{name}" + (f":<{thing}>" if thing else "")
        before = match["before"].replace("*", "store")
        return f"{before}{self.tag}{match['behind'].replace('*', f'<{thing}>')}"

    def _thing(self, name: str) -> str | None:
        """The field that one key of many is told by: ``""`` of a key that the store has once, None where it is not
        known."""
        things = {_thing(*passed) for passed in self._slots[name]}
        behind = self._slots[name][0][0].shape.rpartition("}")[2].count("*")
        return things.pop() if len(things) == 1 and behind < 2 else None if things != {""} else ""

    def _made_of_a_beginning(self, name: str) -> str | None:
        """The template of a key that scripts make of an argument that keys begin with, where they put it there."""
        beginnings = {self.beginning(slot) for script in self.facts for slot in script.arguments if slot.is_beginning}
        things = {field_for(name, fields, ()) for _, _, fields in self._slots[name]}
        if len(beginnings) != 1 or len(things) != 1 or things & {None, "key"}:
            return None
        return f"{beginnings.pop()}<{things.pop()}>"


def _thing(slot: Slot, script: Facts, fields: Sequence[str]) -> str | None:
    """As a key of one script tells it: what it ends with is passed as an argument, too, or stands behind a hash tag."""
    holes = _HOLE.findall(slot.spelled)
    for hole in reversed(holes):
        given = next((each for each in script.arguments if each.spelled == f"{{{hole}}}"), None)
        if given is not None and (known := known_field(given, fields, ())) is not None:
            return known
    if not holes or not slot.shape.rpartition("}")[2].endswith("*") or "{*}" not in slot.shape:
        return ""
    words = re.findall(r"[A-Za-z]\w*", holes[-1])
    return field_for(words[-1], fields, ()) if words else None


def bare(name: str) -> str:
    """A name as a key of TOML."""
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)
