"""``orderlab bench``: the table says what is reached and what is not, and an unknown name is one line."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from orderlab.commands.bench import bench, is_reached
from orderlab.model.errors import InputError

MEASURED = {
    "benchmark": "kernel",
    "figures": {"faster": 0.9, "smaller": 2.0, "other": 7.0},
    "detail": {"peers": {"server": "redis 7.0.15"}},
}


@pytest.fixture
def one_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(run=lambda: MEASURED, TO_REACH={"faster": (">=", 1.0), "smaller": ("<=", 3.0)})
    monkeypatch.setattr("orderlab.commands.bench.importlib.import_module", lambda name: module)


@pytest.mark.usefixtures("one_benchmark")
def test_the_table_names_the_peer_and_what_is_not_reached(capsys: pytest.CaptureFixture[str]) -> None:
    bench("kernel")
    text = capsys.readouterr().out
    assert "redis 7.0.15" in text
    lines = {line.split()[1]: line for line in text.splitlines() if line.count("│") >= 4}
    assert "not reached" in lines["faster"]
    assert "reached" in lines["smaller"]
    assert "not" not in lines["smaller"]
    assert "reached" not in lines["other"]


@pytest.mark.usefixtures("one_benchmark")
def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    bench("kernel", as_json=True)
    assert json.loads(capsys.readouterr().out) == MEASURED


def test_an_unknown_benchmark_is_one_line() -> None:
    with pytest.raises(InputError, match=r"^bench kernle: no such benchmark; did you mean .?kernel"):
        bench("kernle")


def test_only_a_benchmark_with_parts_has_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[str]] = []
    module = SimpleNamespace(run=lambda parts: asked.append(parts) or MEASURED, TO_REACH={})
    monkeypatch.setattr("orderlab.commands.bench.importlib.import_module", lambda name: module)
    bench("sweep", as_json=True, part=["efficiency_1s"])
    assert asked == [["efficiency_1s"]]
    with pytest.raises(InputError, match=r"^bench kernel: --part x: only sweep and validation have parts"):
        bench("kernel", part=["x"])


def test_bounds_have_two_sides() -> None:
    assert is_reached(1.0, (">=", 1.0))
    assert not is_reached(0.99, (">=", 1.0))
    assert is_reached(3.0, ("<=", 3.0))
    assert not is_reached(3.01, ("<=", 3.0))
