"""The page that compares the fixture with fakeredis says what both answer."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from tests.laboratory.beside_fakeredis import table

PAGE = Path(__file__).parents[4] / "notes" / "fixture-and-fakeredis.md"


@pytest.mark.server
def test_the_page_has_what_both_answer() -> None:
    if version("fakeredis") not in PAGE.read_text():
        pytest.skip("the page is of another fakeredis")
    assert table() in PAGE.read_text()
