"""What a session store can do and promises, as far as a judge must know it."""

from __future__ import annotations

from typing import NamedTuple

from orderlab.model.protocol.packet_id import MODULUS


class Capabilities(NamedTuple):
    """What a judge must know of the kind of store before it: its terms, not its mechanism."""

    modulus: int = MODULUS
    has_tokens: bool = True
    """Acknowledge and release carry the token that came with the message, beside the packet identifier."""
    keeps_sent: bool = False
    """A message whose delivery has begun stays past its deadline (MQTT allows either)."""
    has_pages: bool = True
    """Fetch can go on behind the last message of the previous page."""
    has_counts: bool = True
    """Fetch takes a page size."""
    tells_each: bool = False
    """The reply to a save tells of each of its messages that is kept."""
    tells_unkept: bool = True
    """It also has a row for each that is not."""
    tells_ids: bool = False
    """It tells the packet identifier of each."""
    answers_again: bool = False
    """A save that comes again is promised the reply that was lost."""
    tells_presence: bool = False
    """The reply to an open tells whether a session waited (3.2.2.1.1)."""
    closed_word: str | None = None
    """The word that a record of a session that is gone is promised; None: none is."""
    older_word: str | None = None
    """The word that a batch older than its producer's last is promised."""
    tells_found: frozenset[str] = frozenset()
    """Operations whose reply is promised to be 1 exactly when what they are for was there, live."""
    tells_connects: bool = False
    """Open is given the number of the CONNECT and has a word to refuse one that comes too late."""
    checks_limit: bool = False
    """Callers may give any limit: a save with one outside 1..modulus is promised to be declined."""
    tells_ends: bool = False
    """Clear is given the number of the session's CONNECT, and can say that it ended none."""
    trims_later: bool = False
    """A queue is cut to the limit by the store's own upkeep: a save that is carried out leaves more."""
