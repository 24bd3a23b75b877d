"""The feed: producers, a reader with a cursor, consumers with claims, retention. A walk through ``model.feed``."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from model.feed import Feed, Flaw
from properties.machines.tally import rule
from properties.machines.transition_system import WHICH, SystemMachine

PARTIES = {
    "producers": ("post", "take_rank", "watch", "write"),
    "reader": ("receive", "find_place", "receive_at_place", "find_nothing"),
    "claims": ("claim", "claim_up_to"),
    "deletions": ("delete",),
    "lapses": ("lapse",),
    "clock": ("retention_ends", "sweep"),
    "mishaps": ("post_again", "failover"),
}
"""Who takes which actions. A variant of the feed that lacks an action passes it over."""
TURNS = st.sampled_from([*PARTIES, "claims", "reader"])
"""Claims and reads more often than what removes messages: where nothing is left, nothing can go wrong."""
PICKS = st.lists(WHICH, min_size=1, max_size=6)


class FeedMachine(SystemMachine):
    """Parties take turns of several steps: what goes wrong needs few changes of turn, and some steps before it."""

    @rule(party=TURNS, picks=PICKS)
    def turn(self, party: str, picks: list[int]) -> None:
        """One party's steps, as far as there are any; then, if there were none, a producer's."""
        before = len(self.taken)
        self.several(PARTIES[party], picks)
        if len(self.taken) == before:
            self.several(PARTIES["producers"], picks)


def feed_machine(flaw: Flaw = "none", messages: int = 12, consumers: int = 2) -> type[FeedMachine]:
    """A feed larger than the explorer can visit. ``flaw`` puts one wrong step into it."""
    feed = Feed(messages=messages, consumers=consumers, flaw=flaw)
    name = f"Feed_{flaw.replace('-', '_')}"
    body: dict[str, Any] = {"system": feed, "laws": tuple(feed.laws()), "__module__": __name__, "__qualname__": name}
    return type(name, (FeedMachine,), body)
