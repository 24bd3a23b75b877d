"""How often what the project works on comes back to a file that it has left. The numbers may only shrink."""

from orderlab.sim.mqtt.broker.node import BrokerSettings
from tests.laboratory.stays import Follower, walk_of_a_message, walk_of_a_sweep_file

RETURNS_OF_A_MESSAGE = 22
RETURNS_OF_A_SWEEP_FILE = 9


def test_a_message_comes_back_no_more_often() -> None:
    walk = walk_of_a_message()
    assert walk.files[0] == "sim/mqtt/broker/ingest.py"
    assert walk.files[-1] == "sim/mqtt/broker/delivery.py"
    assert walk.returns <= RETURNS_OF_A_MESSAGE, f"hand it on, and do not ask for it back:\n{walk}"


def test_a_sweep_file_comes_back_no_more_often() -> None:
    walk = walk_of_a_sweep_file()
    assert walk.files[0] == "spark_sweeps/runs/job.py"
    assert walk.returns <= RETURNS_OF_A_SWEEP_FILE, f"hand it on, and do not ask for it back:\n{walk}"


def test_what_nobody_is_handed_is_nowhere() -> None:
    follower = Follower([357])
    with follower.following():
        BrokerSettings(tick_us=356)
    assert not follower.walk.files
