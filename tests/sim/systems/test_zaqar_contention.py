"""A feed with real clients on a server: the cures keep ranks whole, and conflicts come as in the simulation."""

import pytest

from orderlab.sim.live import ServerProcess
from tests.laboratory.conformance.contention import agree, on_server, simulated


@pytest.mark.server
def test_conflicts_come_from_who_shares_a_queue() -> None:
    with ServerProcess() as server:
        alone = on_server(server, "watch", 1, 1, 5, pause_us=1000)
        crowd = on_server(server, "watch", 1, 4, 8, pause_us=3000)
        script = on_server(server, "lua", 1, 4, 8, pause_us=1000)
    assert alone.ranks_are_whole
    assert crowd.ranks_are_whole
    assert script.ranks_are_whole
    assert alone.conflicts == script.conflicts == 0
    assert crowd.conflicts > 0


def test_the_simulated_curve_has_the_shape() -> None:
    two, eight, spread = (
        simulated("watch", queues, producers, duration_s=2.0) for queues, producers in ((1, 2), (1, 8), (16, 8))
    )
    assert 0.2 < spread < two < eight
    assert simulated("lua", 1, 8, duration_s=0.5) == 0


def test_agreement_has_a_bound() -> None:
    assert agree(1.0, 1.2)
    assert agree(0.1, 0.3)
    assert not agree(1.0, 2.0)
