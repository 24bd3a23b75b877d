"""Retained messages, clause by clause, and against a list that is searched with the matching rule."""

import random

import pytest

from orderlab.model.errors import InputError
from orderlab.sim.mqtt.topics import RetainedMessages, RetainHandling, matches


def kept(*pairs):
    store = RetainedMessages()
    for topic, message in pairs:
        store.publish(topic, message)
    return store


def test_a_new_subscription_gets_the_last_message_of_every_topic_that_it_matches():
    store = kept(("a/b", 1), ("a/c", 2), ("a/b", 3), ("x", 4))
    assert store.on_subscribe("a/+", 0) == [("a/b", 3), ("a/c", 2)]
    assert store.on_subscribe("a/b", 0) == [("a/b", 3)]
    assert store.on_subscribe("a", 0) == []
    assert len(store) == 3


def test_an_empty_payload_removes_the_message_and_is_not_kept():
    store = kept(("a/b", 1), ("a", 2))
    store.publish("a/b", 3, is_empty=True)
    store.publish("never/there", 4, is_empty=True)
    assert store.on_subscribe("#", 0) == [("a", 2)]
    assert len(store) == 1


@pytest.mark.parametrize(("handling", "is_new", "answered"), [
    (RetainHandling.ALWAYS, True, True), (RetainHandling.ALWAYS, False, True),
    (RetainHandling.IF_NEW, True, True), (RetainHandling.IF_NEW, False, False),
    (RetainHandling.NEVER, True, False), (RetainHandling.NEVER, False, False),
])  # fmt: skip
def test_retain_handling(handling, is_new, answered):
    assert bool(kept(("t", 1)).on_subscribe("t", 0, handling, is_new)) == answered


def test_a_shared_subscription_gets_none():
    store = kept(("t", 1))
    assert store.on_subscribe("$share/g/t", 0) == []
    assert store.on_subscribe("t", 0) == [("t", 1)]


def test_a_message_is_gone_at_its_deadline_and_not_before():
    store = RetainedMessages()
    store.publish("t", 1, expires_us=100)
    assert store.on_subscribe("t", 99) == [("t", 1)]
    assert store.on_subscribe("t", 100) == []
    assert len(store) == 0
    store.publish("t", 2)
    assert store.on_subscribe("t", 10**12) == [("t", 2)], "the next message has no deadline of the one before"


def test_a_leading_wildcard_gets_no_topic_with_a_dollar():
    store = kept(("$SYS/x", 1), ("a", 2), ("a/$b", 3))
    assert store.on_subscribe("#", 0) == [("a", 2), ("a/$b", 3)]
    assert store.on_subscribe("+/x", 0) == []
    assert store.on_subscribe("$SYS/#", 0) == [("$SYS/x", 1)]


def test_what_is_invalid_is_refused():
    store = RetainedMessages()
    for topic in ("a/+", ""):
        with pytest.raises(InputError, match="MQTT-"):
            store.publish(topic, 1)
    for topic_filter in ("a#", "$share/g"):
        with pytest.raises(InputError, match="MQTT-"):
            store.on_subscribe(topic_filter, 0)


def test_the_tree_agrees_with_a_list_that_is_searched():
    rng = random.Random(7)
    names = ["a", "b", "$c", ""]
    for _ in range(300):
        store, plain = RetainedMessages(), {}
        for number in range(rng.randrange(12)):
            topic = "/".join(rng.choice(names) for _ in range(rng.randrange(1, 4))) or "a"
            deadline, is_empty = rng.choice([None, 5, 15]), rng.random() < 0.2
            store.publish(topic, number, is_empty, deadline)
            plain[topic] = (number, deadline)
            if is_empty:
                del plain[topic]
        wanted = "/".join(rng.choice([*names, "+"]) for _ in range(rng.randrange(1, 4))) or "+"
        wanted = rng.choice([wanted, f"{wanted}/#", "#"])
        expected = sorted(
            (topic, number) for topic, (number, deadline) in plain.items()
            if matches(wanted, topic) and (deadline is None or deadline > 10)
        )  # fmt: skip
        assert store.on_subscribe(wanted, 10) == expected
