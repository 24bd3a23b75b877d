"""The example of the note runs, and finds nothing wrong with a correct store."""

from __future__ import annotations

import re
import unittest
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_example_subclass_of_the_note_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (text,) = re.findall(r"```python\n(.*?)```", (ROOT / "notes" / "properties.md").read_text(), re.DOTALL)
    names: dict[str, object] = {"__name__": "note"}
    exec(compile(text, "notes/properties.md", "exec"), names)  # it is our own text
    case = names["TestBurst"]
    assert isinstance(case, type)
    from orderlab.properties.profiles import PROFILES

    case.settings = PROFILES["dev"].settings(None)  # type: ignore[attr-defined]
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert result.testsRun == 1
    assert result.wasSuccessful(), result.failures + result.errors
