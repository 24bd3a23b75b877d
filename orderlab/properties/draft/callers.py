"""What programs tell of scripts by calling them: names of keys and arguments, and how they spell them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from orderlab.model.errors import InputError
from orderlab.properties.draft.facts import DURATION_MS, DURATION_S, MOMENT_MS, MOMENT_S, Facts, Slot
from orderlab.properties.draft.guess import field_for
from orderlab.properties.lint.subjects import program_files
from orderlab.sim.stores.binding.loader import PROGRAM_SIZE_MAX, read_text_file
from orderlab.sim.stores.sources.calls import CallSite, Passed, calls_of
from orderlab.sim.stores.sources.scripts import parsed

_CALLS_MAX = 4
"""Sets of keys with which one script is called that are told apart."""


def with_callers(folder: Path, facts: Sequence[Facts]) -> list[Facts]:
    """The facts, with what calls of each script in the folder's programs pass; once for each set of keys that a script
    is called with."""
    by_name = {_called_as(each): each for each in facts}
    numbers = {name: int(match[1]) for name, each in by_name.items() if (match := _NUMBERED.search(each.script.name))}
    sites: dict[str, list[tuple[CallSite, str]]] = {}
    for file in program_files(folder):
        data = read_text_file(file, PROGRAM_SIZE_MAX)
        if not any(re.split(r"\.|::", name.removesuffix(".lua"))[-1].encode() in data for name in by_name):
            continue
        own = f"{file.relative_to(folder).as_posix()}#"
        inside = [each for each in facts if each.script.name.startswith(own)]
        known = {_called_as(each): each for each in inside}
        try:
            read = calls_of(parsed(str(file), data, {}), [*{**by_name, **known}], numbers)
            if holes := _constants_elsewhere(folder, read):
                read = calls_of(parsed(str(file), data, holes), [*{**by_name, **known}], numbers)
        except InputError:
            continue  # what cannot be parsed is told where its scripts are looked for
        for site in read:
            heard = known.get(site.script) or by_name[site.script]
            place = f"{file.relative_to(folder).as_posix()}:{site.line}"
            sites.setdefault(heard.label, []).append((site, place))
    return [heard for each in facts for heard in _called(each, sites.get(each.label, ()))]


_CONSTANT = re.compile(r"\{((?:\w+(?:\.|::))*([A-Z][A-Z0-9_]{2,}))\}")


def _constants_elsewhere(folder: Path, sites: Sequence[CallSite]) -> dict[str, str]:
    """What constants are that calls name and that other files of the folder hold, each where it is one text."""
    passed = [each for site in sites for each in (*site.keys, *site.arguments)]
    wanted = dict(_CONSTANT.findall(" ".join(each.text for each in passed)))
    values: dict[str, set[str]] = {hole: set() for hole in wanted}
    for file in program_files(folder) if wanted else ():
        data = read_text_file(file, PROGRAM_SIZE_MAX)
        named = [hole for hole, name in wanted.items() if re.search(rb"\b%s\b" % name.encode(), data)]
        if not named:
            continue
        try:
            constants = parsed(str(file), data, {})
            for hole in named:
                at = [value for path, value in constants.program.definitions if path[-1] == wanted[hole]]
                values[hole] |= {constants.value(value).characters for value in at}
        except InputError:
            continue
    return {hole: texts.pop() for hole, texts in values.items() if len(texts) == 1}


def _called(facts: Facts, sites: Sequence[tuple[CallSite, str]]) -> list[Facts]:
    """One for each set of keys, and for each word that makes the script do something else; one alone where the
    program's words do not tell whether two sets are the same."""
    sets: dict[tuple[tuple[str, ...], str], tuple[CallSite, str]] = {}
    for site, place in sites:
        sets.setdefault((tuple(key.shape for key in site.keys), _word_of(facts, site)), (site, place))
    if not sets:
        return [facts]
    many = {shapes for shapes, _ in sets}
    if len(sets) > _CALLS_MAX or (len(many) > 1 and not all(_is_telling(shape) for shapes in many for shape in shapes)):
        sets = dict([*sets.items()][:1])
    has_words = len({word for _, word in sets}) > 1
    results = []
    for (shapes, word), (site, place) in sets.items():
        keys = [replace(slot, types={*slot.types}, commands={*slot.commands}) for slot in facts.keys]
        arguments = [replace(slot, units={*slot.units}) for slot in facts.arguments]
        heard = replace(facts, keys=keys, arguments=arguments, called_on=", ".join(shapes) if len(many) > 1 else "")
        if has_words:
            heard.called_on, heard.called_in = " ".join(filter(None, (heard.called_on, word))), site.around
        _note(heard, site, place)
        results.append(heard)
    return results


def _word_of(facts: Facts, site: CallSite) -> str:
    """What a call passes always the same where the script asks which of some words it is."""
    passed = zip(facts.arguments, site.arguments, strict=False)
    return " ".join(each.text for slot, each in passed if slot.words and each.is_constant)


_NUMBERED = re.compile(r"-(\d+)\.lua$")
"""The number of keys in a file's name, as BullMQ's has it."""


def _is_telling(shape: str) -> bool:
    return re.search(r"[A-Za-z]", shape) is not None


def _called_as(facts: Facts) -> str:
    """What programs call it: a function by its name."""
    if facts.function:
        return facts.function
    file, _, inner = facts.script.name.partition("#")
    return inner or re.sub(_NUMBERED, "", file.rpartition("/")[2]).removesuffix(".lua")


def _note(heard: Facts, site: CallSite, place: str) -> None:
    heard.is_called = True
    for slots, passed in ((heard.keys, site.keys), (heard.arguments, site.arguments)):
        names = _names(passed) if slots is heard.keys else [each.name for each in passed]
        taken = {slot.name for slot in slots}
        for slot, each, name in zip(slots, passed, names, strict=False):
            slot.spelled, slot.place, slot.is_constant, slot.moment = each.text, place, each.is_constant, each.moment
            if each.shape != "*" and (slots is heard.keys or not each.is_constant):
                slot.shape = each.shape
            if not slot.is_named and name and name not in taken:
                slot.name, slot.is_named = name, True
                taken.add(name)
            if each.moment is None and _IN_MS.search(each.text):
                is_moment = field_for(slot.name, (), ()) == "now_ms"
                slot.units.add(MOMENT_MS if is_moment else DURATION_MS)
    moments = {slot.moment.unit for slot in heard.arguments if slot.moment is not None}
    for slot in heard.arguments:
        if slot.moment is not None and slot.moment.unit in ("s", "ms"):
            slot.units.add(MOMENT_S if slot.moment.unit == "s" else MOMENT_MS)
        elif moments == {"s"} and not slot.units and not slot.is_constant and _LASTS.search(slot.name.lower()):
            slot.units.add(DURATION_S)  # what is added to a clock in seconds is in seconds


_IN_MS = re.compile(r"\*\s*1_?000\b")
"""Seconds that a program makes milliseconds of."""
_LASTS = re.compile(r"ttl|expir|lease|timeout|duration|window|interval|period|delay")


def _names(passed: Iterable[Passed]) -> list[str]:
    """Names of keys: the last word that stands in the spelling as it is, else the program's."""
    return [name_of_shape(each.shape) or each.name for each in passed]


def name_of_shape(shape: str) -> str:
    """The last word behind a key's variable parts, or of the function that spells it; empty where there is none."""
    called = re.fullmatch(r"(?:get|make|build)?_?(\w+?)_?(?:[Kk]ey)?\((?:.*[^\w])?(\w*)\)", shape)
    if called is not None:
        return called[2] or called[1][:1].lower() + called[1][1:]
    words = re.findall(r"[A-Za-z]\w*", shape.rpartition("*")[2])
    return words[-1] if words else ""


def told_by_callers(slot: Slot) -> str:
    """For a comment; nothing where no caller is known."""
    spelled = slot.spelled if len(slot.spelled) <= 60 else f"{slot.spelled[:60]}..."
    return f"; {slot.place} passes {spelled}" if slot.place else ""
