"""The benchmark of the served kernel carries its own load."""

import pytest

from benchmarks import serve


def test_saves_go_to_a_served_node_in_pipelines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their words hold zero bytes: redis-benchmark cannot carry them."""
    monkeypatch.setattr(serve, "SAVES", 2 * serve.PIPELINE)
    with serve.ServedProcess() as served:
        assert serve.saves_per_s(served.port) > 0
