"""What tests of several commands share."""

from __future__ import annotations

import pytest

from orderlab.model.contracts.sequential import SequentialTerms
from orderlab.properties.engine import validation


@pytest.fixture
def smallest_scopes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with a sequential contract is judged in the smallest scopes and on walks alone. What is larger is
    tried by the contracts' own tests."""
    scopes_at = SequentialTerms.scopes_at
    monkeypatch.setattr(
        SequentialTerms, "scopes_at", lambda terms, effort: [one for one in scopes_at(terms, effort) if one.is_smallest]
    )
    monkeypatch.setattr(validation, "crowd", lambda make, search: None)
