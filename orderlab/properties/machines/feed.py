"""The feed: producers, a reader with a cursor, consumers with claims, retention. A walk through
``orderlab.model.contracts.feed.specification``."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from orderlab.model.contracts.feed.specification import Feed, Flaw
from orderlab.properties.machines.tally import rule
from orderlab.properties.machines.transition_system import SystemMachine

PARTIES = {
    "producers": ("post", "take_rank", "watch", "write"),
    "reader": ("receive", "find_place", "receive_at_place", "find_nothing"),
    "claims": ("claim", "claim_up_to"),
    "lapses": ("lapse",),
    "deletions": ("delete",),
    "clock": ("retention_ends", "sweep"),
    "mishaps": ("post_again", "failover"),
}
"""Who takes which actions. A variant of the feed that lacks an action passes it over."""
HANDOVER = "a claim passes on"
TURNS = st.sampled_from(
    [*PARTIES, "producers", "producers", "reader", "reader", "claims", "claims", HANDOVER, HANDOVER]
)
"""What brings messages and hands them about more often than what removes them: where nothing is left, nothing can go
wrong."""
MESSAGES = st.lists(st.one_of(st.integers(0, 2), st.integers(0, 7)), min_size=1, max_size=8)
"""Which messages, often some of few, so that parties meet. They are named, not counted off among those for which there
is a step: so whatever is left out when a failure shrinks, the others stay what they are. Many are named, for a name for
which there is no step costs nothing."""
READS = 3
"""Steps of the reader in one turn: it must not be through before others have had theirs."""


class FeedMachine(SystemMachine):
    """Parties take turns of several steps: what goes wrong needs few changes of turn, and some steps before it."""

    @rule(party=TURNS, messages=MESSAGES, consumer=st.integers(0, 1))
    def turn(self, party: str, messages: list[int], consumer: int) -> None:
        """One party's next step with each of these messages; what is not possible is passed over. Or the claim to one
        of them lapses, and a consumer has a try at the rest."""
        if party == HANDOVER:
            self.take(PARTIES["lapses"], m=messages[0])
            party, messages = "claims", messages[1:]
        for message in messages[:READS] if party == "reader" else messages:
            named = {"reader": {}, "claims": {"c": consumer, "m": message}}.get(party, {"m": message})
            self.take(PARTIES[party], **named)


def feed_machine(flaw: Flaw = "none", messages: int = 8, consumers: int = 2) -> type[FeedMachine]:
    """A feed larger than the explorer can visit. ``flaw`` puts one wrong step into it."""
    feed = Feed(messages=messages, consumers=consumers, flaw=flaw)
    name = f"Feed_{flaw.replace('-', '_')}"
    body: dict[str, Any] = {"system": feed, "laws": tuple(feed.laws()), "__module__": __name__, "__qualname__": name}
    return type(name, (FeedMachine,), body)
