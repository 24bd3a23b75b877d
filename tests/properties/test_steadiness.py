"""The seeds with which a specimen was missed while all examples of a machine were drawn in one run."""

from __future__ import annotations

import pytest

from properties.profiles import PROFILES
from properties.steadiness import measure
from properties.validation.specimens import find_specimens


@pytest.mark.parametrize("number", [9, 41])
def test_examples_are_not_all_made_from_one_another(number: int) -> None:
    specimen = next(one for one in find_specimens() if one.name == "late-acknowledgement")
    assert measure(specimen, range(number, number + 1), PROFILES["ci"]).wrong == 0
