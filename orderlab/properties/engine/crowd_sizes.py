"""How large a crowd has to be: past the pages, batches and limits that the scripts of a store name themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from orderlab.model.contracts.base import Call, Contract, Crowd
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.lua_text import PAGE_MAX, PAGE_MIN, pages_in

STEPS_MAX = 700
"""Steps that make a crowd past a page; what a store does with each thing may grow with all of them."""


def pages_of(*stores: Binding) -> frozenset[int]:
    """The numbers that scripts and templates of stores may mean as a page, a batch or a limit.

    A number beside ``*``, ``/`` or ``%`` converts units, and is none."""
    versions = [version for store in stores for version in store.versions.values()]
    sources = {script.source for version in versions for script in version.scripts}
    tables = [version.store.model_dump(warnings=False)["operations"] for version in versions]
    numbers = {number for number in _numbers_in(tables) if PAGE_MIN <= number <= PAGE_MAX}
    return pages_in(sources) | numbers


def _numbers_in(template: object) -> Iterator[int]:
    if isinstance(template, dict):
        template = list(template.values())
    if isinstance(template, list | tuple):
        for part in template:
            yield from _numbers_in(part)
    elif isinstance(template, str) and template.isdecimal():
        yield int(template)


def sizes_of(one: Crowd, pages: Iterable[int]) -> tuple[int, ...]:
    """The sizes of a crowd; and one past the largest page at which both end, that is not too long to make."""
    further = (_past(page) for page in sorted(pages, reverse=True) if page >= max(one.sizes))
    return (*one.sizes, *islice((size for size in further if _is_short(one, size)), 1))


def crowding(contract: Contract, pages: Iterable[int]) -> frozenset[Call]:
    """Every call that makes a crowd, past whichever of the pages."""
    further = [*map(_past, pages)]
    return frozenset(
        given[1]
        for one in contract.crowds()
        for size in (*one.sizes, *(size for size in further if size > max(one.sizes) and _is_short(one, size)))
        for given in one.steps(size)
        if not isinstance(given, int)
    )


def _past(page: int) -> int:
    return page + page // 2 + 1


def _is_short(one: Crowd, size: int) -> bool:
    return next(islice(one.steps(size), STEPS_MAX, None), None) is None
