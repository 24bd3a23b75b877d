"""A request is sent to the node of its first key, be it a script or a plain command."""

from orderlab.sim.drivers import slot_of
from orderlab.sim.redis.hash_slots import hash_slot
from orderlab.sim.servers.requests import Request


def test_the_key_of_a_script_comes_behind_its_digest_and_that_of_a_command_behind_its_name():
    keys = (b"{s:c1}:i", b"{s:c1}:b")
    assert slot_of(Request((b"EVALSHA", b"f" * 40, b"2", *keys, b"1"), "save")) == hash_slot(keys[0])
    assert slot_of(Request((b"HGET", keys[1], b"m"), "newest")) == hash_slot(keys[1]) == hash_slot(keys[0])
