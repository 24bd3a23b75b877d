"""Each form is found again from what it makes, with little noise; and its nearest neighbour is not taken for it."""

from __future__ import annotations

import random
from math import log2

import pytest

from orderlab.properties.costs.forms import fitted

SIZES = (10, 30, 100, 300, 1000)


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("", lambda n: 21.0),
        ("log n", lambda n: 5 + 4 * log2(n)),
        ("n", lambda n: 21 + 6.1 * n),
        ("n log n", lambda n: 3 + 2 * n * log2(n)),
        ("n²", lambda n: 20 + 0.5 * n * n),
    ],
)
def test_a_form_is_found_again(form: str, value: object) -> None:
    draw = random.Random(f"1:{form}")
    measured = {n: value(n) * draw.uniform(0.99, 1.01) for n in SIZES}  # type: ignore[operator]
    found = fitted(measured)
    assert found.form == form
    assert found.error < 0.1
    assert found.at(10_000) == pytest.approx(value(10_000), rel=0.1)  # type: ignore[operator]


def test_what_stops_growing_is_constant_from_there_on() -> None:
    found = fitted({10: 10.0, 30: 30.0, 100: 100.0, 300: 100.5, 1000: 100.0})
    assert (found.form, found.begins) == ("", 100)
    assert found.at(10_000) == pytest.approx(100, rel=0.01)


def test_what_no_form_explains_has_a_large_error() -> None:
    assert fitted({10: 1.0, 30: 90.0, 100: 2.0, 300: 80.0, 1000: 1.0}).error > 0.5


def test_one_or_two_measurements_do_not_break_it() -> None:
    assert fitted({10: 3.0}).at(10) == pytest.approx(3)
    assert fitted({10: 3.0, 20: 6.0}).at(40) == pytest.approx(12, rel=0.5)
