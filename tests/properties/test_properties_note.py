"""The examples of the note run, and find nothing wrong with a correct store."""

from __future__ import annotations

import re
import unittest
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["TestBurst", "TestImpatient"])
def test_the_example_subclasses_of_the_note_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (text,) = (
        one
        for one in re.findall(r"```python\n(.*?)```", (ROOT / "notes" / "properties.md").read_text(), re.DOTALL)
        if name in one
    )
    names: dict[str, object] = {"__name__": "note"}
    exec(compile(text, "notes/properties.md", "exec"), names)  # it is our own text
    case = names[name]
    assert isinstance(case, type)
    from orderlab.properties.profiles import PROFILES

    case.settings = PROFILES["dev"].settings(None)  # type: ignore[attr-defined]
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert result.testsRun == 1
    assert result.wasSuccessful(), result.failures + result.errors
