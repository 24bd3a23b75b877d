"""Variants of the bundled store: no lawful one is accused, each broken one is caught by a law that it breaks."""

from __future__ import annotations

import pytest

from orderlab.model.contracts.session.contract import SCOPES
from orderlab.model.laws import STORE_LAWS
from orderlab.model.verdict import Outcome
from orderlab.properties.contracts.session.subject import Subject
from orderlab.properties.contracts.session.validation.exploration import applies, explore_scope, fitted, small_world
from orderlab.properties.contracts.session.validation.scenarios import run_scenarios
from orderlab.properties.contracts.session.validation.validation import validate
from orderlab.properties.contracts.session.validation.walks import walk_about
from orderlab.properties.validation.findings import Findings
from orderlab.properties.validation.work_order import WorkOrder
from tests.properties.first_found import finds
from tests.properties.session_variants import BROKEN, LAWFUL, Variant


def name_of(variant: Variant) -> str:
    return f"{variant.file.removesuffix('.lua')}: {variant.name}"


def looked_at(variant: Variant, walks: int, states: int = 0) -> Findings:
    findings = Findings(frozenset(STORE_LAWS))
    look_at(variant, findings, walks, states)
    return findings


def look_at(variant: Variant, findings: Findings, walks: int = 0, states: int = 0) -> None:
    small = small_world(Subject(variant.binding()), findings)
    run_scenarios(small, findings)
    walk_about(small, findings, walks)
    for scope in SCOPES if states else ():
        if applies(scope, small):
            explore_scope(small, fitted(scope, small), findings, states=states)


@pytest.mark.parametrize("variant", LAWFUL, ids=name_of)
def test_a_lawful_variant_is_not_accused(variant: Variant) -> None:
    assert {law: found[0].text for law, found in looked_at(variant, 8).by_law.items()} == {}


@pytest.mark.parametrize("variant", BROKEN, ids=name_of)
def test_a_broken_variant_is_caught_by_a_law_that_it_breaks(variant: Variant) -> None:
    assert finds(variant.breaks, lambda findings: look_at(variant, findings))


@pytest.mark.exhaustive
@pytest.mark.parametrize("variant", LAWFUL, ids=name_of)
def test_a_lawful_variant_is_not_accused_however_long_one_looks(variant: Variant) -> None:
    assert {law: found[0].text for law, found in looked_at(variant, 300, 1000).by_law.items()} == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("variant", BROKEN, ids=name_of)
def test_a_broken_variant_is_violated_on_the_scripts_as_they_are(variant: Variant) -> None:
    results = validate(variant.binding(), WorkOrder(5, laws=variant.breaks, only_first=True)).results
    assert {one.verdict.law for one in results if one.outcome is Outcome.VIOLATED} & set(variant.breaks)
