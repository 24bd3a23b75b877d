"""What the plugin keeps with a test. Imports nothing of the suite: whoever has orderlab installed loads it."""

from __future__ import annotations

from typing import Any

import pytest

TOLD: pytest.StashKey[dict[str, Any]] = pytest.StashKey()
"""What a test has to tell at the end of the session; travels with its report, from workers too."""
