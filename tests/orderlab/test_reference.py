"""The pages of reference say what the code says, and the gallery what its specimens are."""

from __future__ import annotations

import json
import re

import pytest

from orderlab.sim.stores.binding.json_schema import schema_of_stores
from tests.laboratory.gallery import DEFECTS, NOTE, PICTURES, judged, part_of, parts_in
from tests.laboratory.reference import NOTES, TITLES, pages

PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_makes(name: str) -> None:
    assert (NOTES / name).read_text() == PAGES[name], "run `make pages`"


@pytest.mark.parametrize("kind", TITLES)
def test_every_key_of_a_store_is_on_its_page_with_what_it_means(kind: str) -> None:
    text = PAGES[f"reference-{kind.replace('_', '-')}.md"]
    schema = schema_of_stores()["$defs"]
    tables = [schema[kind], *(table for name, table in schema.items() if name.startswith(f"{kind}."))]
    tables.append(schema[kind]["properties"].get("promises", {}))
    keys = {
        key for table in tables for key, inner in table.get("properties", {}).items() if inner.get("type") != "null"
    }
    assert keys <= set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    said = dict(re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", text, re.MULTILINE))
    assert [key for key in keys if not said.get(key)] == [], "each needs a sentence below it in its table's text"


def test_every_law_of_the_gallery_is_that_of_its_specimen() -> None:
    known = parts_in(NOTE.read_text())
    assert [*known] == [defect.title for defect in DEFECTS]
    assert len({defect.specimen for defect in DEFECTS}) == 10
    for defect in DEFECTS:
        verdict = re.findall(r"```console\n\$ [^\n]+\n(.*?)\n```", known[defect.title], re.DOTALL)[0].splitlines()
        assert f": {defect.law} is violated" in verdict[0]
        assert known[defect.title] == part_of(defect, verdict), "run `make pages`"
        assert (PICTURES / f"{defect.specimen}.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    "defect",
    [*DEFECTS[2:3], *(pytest.param(one, marks=pytest.mark.exhaustive) for one in (*DEFECTS[:2], *DEFECTS[3:]))],
    ids=lambda one: one.specimen,
)
def test_the_verdict_is_found_again(defect) -> None:
    assert part_of(defect, judged(defect, None)) == parts_in(NOTE.read_text())[defect.title], "run `make pages`"


def test_the_schema_is_the_same_for_editors() -> None:
    json.dumps(schema_of_stores())
