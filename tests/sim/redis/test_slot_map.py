"""What a node answers by hash slot, case by case; the real cluster's opinion is in ``test_cluster_conformance``."""

from __future__ import annotations

from orderlab.sim.redis.hash_slots import SLOT_COUNT, hash_slot
from orderlab.sim.redis.slot_map import Reason, Refusal, SlotMap, ranges

ME, OTHER = b"me", b"other"
SLOT = hash_slot(b"{a}")


class Held:
    """A keyspace that has the given keys."""

    def __init__(self, *keys: bytes) -> None:
        self.keys = keys

    def lookup(self, key: bytes) -> object | None:
        return key if key in self.keys else None


def slot_map(owner: bytes | None = ME) -> SlotMap:
    return SlotMap(ME, {ME: b"here:1", OTHER: b"there:2"}, [owner] * SLOT_COUNT, epochs={ME: 1, OTHER: 2})


def refusal(slots: SlotMap, *keys: bytes, held: Held = Held(), asking: bool = False) -> bytes | None:  # noqa: B008
    found = slots.refusal(held, keys, asking)
    return None if found is None else found.to_client()


def test_an_owned_slot_is_served_and_another_is_moved() -> None:
    assert refusal(slot_map(), b"{a}1", b"{a}2") is None
    assert refusal(slot_map(OTHER), b"{a}1") == b"MOVED %d there:2" % SLOT
    assert refusal(slot_map(OTHER)) is None, "a command without keys goes anywhere"


def test_keys_of_two_slots_are_refused_wherever_they_live() -> None:
    message = b"CROSSSLOT Keys in request don't hash to the same slot"
    assert refusal(slot_map(), b"{a}1", b"{b}1") == message
    assert refusal(slot_map(OTHER), b"{a}1", b"{b}1") == message


def test_a_migrating_slot_serves_what_it_still_has() -> None:
    slots = slot_map()
    slots.migrating[SLOT] = OTHER
    held = Held(b"{a}1", b"{a}2")
    assert refusal(slots, b"{a}1", b"{a}2", held=held) is None
    assert refusal(slots, b"{a}3", held=held) == b"ASK %d there:2" % SLOT
    assert refusal(slots, b"{a}1", b"{a}3", held=held) == b"TRYAGAIN Multiple keys request during rehashing of slot"
    assert refusal(slots, b"{b}1", held=held) is None, "other slots stay as they are"


def test_an_importing_slot_serves_only_those_who_ask() -> None:
    slots = slot_map(OTHER)
    slots.importing[SLOT] = OTHER
    assert refusal(slots, b"{a}1") == b"MOVED %d there:2" % SLOT
    assert refusal(slots, b"{a}1", asking=True) is None
    assert refusal(slots, b"{a}1", b"{a}1", asking=True) is None, "the same key twice is one key"
    assert refusal(slots, b"{a}1", b"{a}2", held=Held(b"{a}1"), asking=True) == (
        b"TRYAGAIN Multiple keys request during rehashing of slot"
    )
    assert refusal(slots, b"{a}1", b"{a}2", held=Held(b"{a}1", b"{a}2"), asking=True) is None
    assert refusal(slots, b"{b}1", asking=True) == b"MOVED %d there:2" % hash_slot(b"{b}")


def test_a_cluster_that_is_down_serves_no_keys() -> None:
    slots = slot_map()
    slots.is_up = False
    assert refusal(slots, b"{a}1") == b"CLUSTERDOWN The cluster is down"
    assert refusal(slots) is None
    assert refusal(slot_map(None), b"{a}1") == b"CLUSTERDOWN Hash slot not served"


def test_a_script_hears_of_it_in_other_words() -> None:
    for reason in (Reason.MOVED, Reason.ASK, Reason.UNSTABLE, Reason.UNBOUND, Reason.CROSS_SLOT):
        assert Refusal(reason, 1, b"there:2").to_script() == (
            b"ERR Script attempted to access a non local key in a cluster node"
        )
    assert Refusal(Reason.DOWN).to_script() == (b"ERR Script attempted to execute a command while the cluster is down")


def test_runs_of_slots() -> None:
    assert ranges([ME, ME, None, OTHER, ME]) == [(0, 1, ME), (3, 3, OTHER), (4, 4, ME)]
    assert ranges([None] * 3) == []
