"""The table of laws: complete, each named once, and a slip of the pen is met with the nearest name."""

from __future__ import annotations

import pytest

from orderlab.model.errors import InputError
from orderlab.model.laws import LAWS, STORE_LAWS, law_named


def test_every_law_has_a_statement_and_is_found_by_its_name() -> None:
    assert len(LAWS) == 27
    for name, law in LAWS.items():
        assert law.name == name
        assert law.statement.endswith(".")
        assert law_named(name) is law


def test_a_store_is_judged_by_the_session_laws_and_by_three_of_the_pipeline() -> None:
    assert len([law for law in LAWS.values() if law.subject == "session"]) == 10
    assert STORE_LAWS[-3:] == ("retransmission", "no-phantom", "drain")


def test_an_unknown_law_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"law 'no-los': unknown; did you mean no-loss\?"):
        law_named("no-los")
