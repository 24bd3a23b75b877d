"""Topic filters, and the trie against the plain rule as a second algorithm."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orderlab.model.errors import InputError
from orderlab.model.history.topics import check_topic_filter, check_topic_name, split_shared
from orderlab.sim.mqtt.topics import SubscriptionTrie, matches

MATCHES = [
    ("sport/tennis/player1/#", "sport/tennis/player1", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
    ("sport/#", "sport", True),
    ("#", "a/b", True),
    ("#", "$SYS/a", False),
    ("+/monitor/Clients", "$SYS/monitor/Clients", False),
    ("$SYS/#", "$SYS/monitor", True),
    ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
    ("sport/tennis/+", "sport/tennis/player1", True),
    ("sport/tennis/+", "sport/tennis/player1/ranking", False),
    ("sport/+", "sport", False),
    ("sport/+", "sport/", True),
    ("+/+", "/finance", True),
    ("/+", "/finance", True),
    ("+", "/finance", False),
    ("a/b", "a/B", False),
]


@pytest.mark.parametrize(("topic_filter", "topic", "expected"), MATCHES)
def test_the_examples_of_the_standard(topic_filter: str, topic: str, expected: bool) -> None:
    assert matches(topic_filter, topic) is expected


@pytest.mark.parametrize("bad", ["", "a#", "a/#/b", "a+/b", "#/a", "a\0b", "x" * 65536])
def test_an_invalid_filter_is_refused(bad: str) -> None:
    with pytest.raises(InputError):
        check_topic_filter(bad)


@pytest.mark.parametrize("bad", ["", "a/+", "#", "a\0", "\ud800"])
def test_an_invalid_topic_is_refused(bad: str) -> None:
    with pytest.raises(InputError):
        check_topic_name(bad)


def test_shared_subscriptions_are_split() -> None:
    assert split_shared("$share/g/a/+") == ("g", "a/+")
    assert split_shared("a/$share") == (None, "a/$share")
    for bad in ("$share/g", "$share//a", "$share/g+/a", "$share/g/"):
        with pytest.raises(InputError):
            split_shared(bad)


def test_an_invalid_shared_filter_is_no_filter() -> None:
    for bad in ("$share/g", "$share//a", "$share/g+/a", "$share/g/", "$share/g/a#"):
        with pytest.raises(InputError):
            check_topic_filter(bad)


@pytest.mark.parametrize("shared", ["a/b", "a/+", "#"])
def test_of_those_that_share_a_subscription_one_gets_each_message_in_turn(shared: str) -> None:
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    for number, name in enumerate("xyz"):
        assert trie.subscribe(f"$share/g/{shared}", name, number)
    assert trie.subscribe(f"$share/h/{shared}", "x", 7)
    assert trie.subscribe(shared, "x", 8)
    got = [sorted(trie.matching("a/b")) for _ in range(3)]
    assert got == [sorted([("x", 8), ("x", 7), one]) for one in (("x", 0), ("y", 1), ("z", 2))]
    assert trie.unsubscribe(f"$share/g/{shared}", "y")
    assert [[found for found in trie.matching("a/b") if found[1] < 7] for _ in range(2)] == [[("x", 0)], [("z", 2)]]
    assert not trie.unsubscribe(f"$share/g/{shared}", "y")
    for name, group in (("x", "$share/g/"), ("z", "$share/g/"), ("x", "$share/h/"), ("x", "")):
        assert trie.unsubscribe(group + shared, name)
    assert len(trie) == 0
    assert not trie._root.children


LEVELS = st.sampled_from(["a", "b", "", "$x", "+"])
FILTERS = st.lists(LEVELS, min_size=1, max_size=4).flatmap(
    lambda levels: st.sampled_from(["/".join(levels), "/".join([*levels, "#"])])
)
TOPICS = st.lists(st.sampled_from(["a", "b", "", "$x"]), min_size=1, max_size=5).map("/".join)


@settings(suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(st.dictionaries(st.tuples(FILTERS.filter(bool), st.sampled_from("st")), st.integers(), max_size=8), TOPICS)
def test_the_trie_agrees_with_the_rule(subscriptions: dict[tuple[str, str], int], topic: str) -> None:
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    for (topic_filter, subscriber), value in subscriptions.items():
        assert trie.subscribe(topic_filter, subscriber, value)
    expected = sorted((s, v) for (f, s), v in subscriptions.items() if matches(f, topic))
    assert sorted(trie.matching(topic)) == expected
    for topic_filter, subscriber in subscriptions:
        assert trie.unsubscribe(topic_filter, subscriber)
    assert len(trie) == 0
    assert not trie._root.children
