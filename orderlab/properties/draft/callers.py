"""What programs tell of scripts by calling them: names of keys and arguments, and how they spell them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from orderlab.model.errors import InputError
from orderlab.properties.draft.facts import Facts, Slot
from orderlab.properties.lint.subjects import program_files
from orderlab.sim.stores.binding.loader import PROGRAM_SIZE_MAX, read_text_file
from orderlab.sim.stores.sources.calls import CallSite, Passed, calls_of
from orderlab.sim.stores.sources.scripts import parsed


def hear_callers(folder: Path, facts: Sequence[Facts]) -> None:
    """Note in ``facts`` what the first call of each script that is found in the folder's programs passes."""
    by_name = {_stem(each.script.name): each for each in facts}
    for file in program_files(folder):
        data = read_text_file(file, PROGRAM_SIZE_MAX)
        if not any(re.split(r"\.|::", name.removesuffix(".lua"))[-1].encode() in data for name in by_name):
            continue
        own = f"{file.relative_to(folder).as_posix()}#"
        inside = [each for each in facts if each.script.name.startswith(own)]
        known = {_stem(each.script.name): each for each in inside}
        try:
            sites = calls_of(parsed(str(file), data, {}), [*{**by_name, **known}])
        except InputError:
            continue  # what cannot be parsed is told where its scripts are looked for
        for site in sites:
            heard = known.get(site.script) or by_name[site.script]
            place = f"{file.relative_to(folder).as_posix()}:{site.line}"
            if not heard.is_called:
                _note(heard, site, place)


def _stem(name: str) -> str:
    file, _, inner = name.partition("#")
    return inner or file.rpartition("/")[2].removesuffix(".lua")


def _note(heard: Facts, site: CallSite, place: str) -> None:
    heard.is_called = True
    for slots, passed in ((heard.keys, site.keys), (heard.arguments, site.arguments)):
        names = _names(passed) if slots is heard.keys else [each.name for each in passed]
        taken = {slot.name for slot in slots}
        for slot, each, name in zip(slots, passed, names, strict=False):
            slot.spelled, slot.place, slot.is_constant = each.text, place, each.is_constant
            if not slot.is_named and name and name not in taken:
                slot.name, slot.is_named = name, True
                taken.add(name)


def _names(passed: Iterable[Passed]) -> list[str]:
    """Names of keys: the last word that stands in the spelling as it is, else the program's."""
    names = []
    for each in passed:
        words = re.findall(r"[A-Za-z]\w*", re.sub(r"\{.*?\}", "{}", each.text).rpartition("{}")[2])
        names.append(words[-1] if words else each.name)
    return names


def told_by_callers(slot: Slot) -> str:
    """For a comment; nothing where no caller is known."""
    spelled = slot.spelled if len(slot.spelled) <= 60 else f"{slot.spelled[:60]}..."
    return f"; {slot.place} passes {spelled}" if slot.place else ""
