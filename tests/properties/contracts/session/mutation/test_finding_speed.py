"""A flaw is found by each method that can, and not found in the store beside it."""

from __future__ import annotations

import pytest

from orderlab.properties.validation.specimens import find_specimens
from orderlab.sim.stores.binding.loader import load_binding
from tests.laboratory.finding_speed import (
    METHODS,
    by_exploration,
    by_simulation,
    by_walks,
    methods_for,
)


@pytest.mark.parametrize("method", METHODS)
def test_each_method_finds_a_fetch_that_removes(method: str) -> None:
    (specimen,) = find_specimens(["S10"])
    found = METHODS[method](specimen, 1, 20.0)
    assert found.law == "no-loss"
    assert found.searched >= 1


def test_the_same_seed_takes_the_same_number_of_walks() -> None:
    (specimen,) = find_specimens(["S5"])
    assert by_walks(specimen, 3, 20.0).searched == by_walks(specimen, 3, 20.0).searched


def test_the_published_store_is_found_in_a_whole_system_too() -> None:
    (published,) = find_specimens(["published"])
    (other,) = find_specimens(["S10"])
    assert by_simulation(published, 1, 60.0).law
    assert "simulation" in methods_for(published)
    assert "simulation" not in methods_for(other)


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    (specimen,) = find_specimens(["S10"])
    assert specimen.specimen is not None
    correct = load_binding(specimen.specimen.neighbour)
    assert by_exploration(correct, 1, 1.0).law == ""
