"""A search that ends with the first finding that a test looks for: what is caught early is not searched for to the
end."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.session.traces import Trace
from orderlab.model.laws import STORE_LAWS
from orderlab.properties.validation.findings import Findings


class _Found(Exception):
    """It has been seen."""


@dataclass
class _FirstFound(Findings):
    enough: Collection[str] = ()
    text: str = ""

    def add(self, found: Iterable[Discrepancy], trace: Trace, analysis: str) -> None:
        found = list(found)
        super().add(found, trace, analysis)
        if any(one.law in self.enough and re.search(self.text, one.text) for one in found):
            raise _Found


def finds(laws: Collection[str], search: Callable[[Findings], object], text: str = "") -> bool:
    """Whether a search comes to a finding that breaks one of the laws, in words that match ``text``."""
    try:
        search(_FirstFound(frozenset(STORE_LAWS), enough=laws, text=text))
    except _Found:
        return True
    return False
