"""The seeds with which a specimen was missed while all examples of a machine were drawn in one run."""

from __future__ import annotations

from pathlib import Path

import pytest

from orderlab.model.errors import InputError
from orderlab.properties.profiles import PROFILES
from orderlab.properties.validation.specimens import find_specimens
from tests.laboratory.steadiness import measure, stores


@pytest.mark.parametrize("number", [9, 41])
def test_examples_are_not_all_made_from_one_another(number: int) -> None:
    specimen = next(one for one in find_specimens() if one.name == "late-acknowledgement")
    assert measure(specimen, range(number, number + 1), PROFILES["ci"]).wrong == 0


def test_stores_are_named_or_lie_in_a_folder_and_a_wrong_name_is_not_steady() -> None:
    folder = Path(__file__).parents[2] / "stores" / "listed"
    assert [one.name for one in stores(["pending", str(folder)])] == ["pending", "listed"]
    assert len(stores([])) == 19
    with pytest.raises(InputError, match="no-such-store"):
        stores(["no-such-store"])
