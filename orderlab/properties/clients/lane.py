"""A lane: a client of a scenario, or a thread of one. What it will do next, what it has done, and how it may end."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from orderlab.sim.redis.keyspace import FrozenKeyspace
from orderlab.sim.redis.replies import Reply

Choice = tuple[str, str]
"""A lane by its name, and what befalls its step (nothing: empty)."""


class Killed(BaseException):
    """Raised in a lane that ends before its code does."""


class Unstable(Exception):
    """The same choices led elsewhere: the step at which they did."""


@dataclass(slots=True)
class Op:
    """What a lane will do next."""

    kind: str
    """``start``, ``command``, ``sleep``, ``wait`` or ``mark``."""
    what: Any = None
    """The command with its arguments, or a word."""
    ready: Callable[[], bool] | None = None
    """Whether it can be done; None: now."""
    until_us: int | None = None
    """When it can be done in any case."""
    gives_up: bool = False
    """At that moment it goes on without what other clients did not send, and no exception is raised."""
    is_pause: bool = False
    """A wait with a timeout that no other client ends."""

    def is_ready(self, now_us: int) -> bool:
        """Whether it can be done at that moment."""
        return self.ready is None or (self.until_us is not None and now_us >= self.until_us) or self.ready()


@dataclass(frozen=True, slots=True)
class LaneStep:
    """One step as a witness shows it."""

    lane: str
    trouble: str
    kind: str
    what: Any
    reply: Any
    now_ms: int
    line: str
    """Where in the user's file."""
    beneath: str
    """Where in the library beneath, where that is another file."""
    before: FrozenKeyspace
    after: FrozenKeyspace


class Lane:
    """A client, or a thread of one."""

    def __init__(self, name: str, client: str, run: Callable[[], Any], daemon: bool = False) -> None:
        self.name = name
        self.client = client
        self.run = run
        self.daemon = daemon
        self.op = Op("start")
        self.trouble = ""
        self.sent: tuple[Sequence[bytes], Reply] | None = None
        """A command whose step has been made, and its reply if there is one: it is on its way through redis-py."""
        self.is_done = False
        self.is_killed = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.children = 0
        self.calls = 0
        """Calls of a pool that this thread of it has done: no two of them are one piece."""
        self.polls = 0
        """How often it has asked the same before, and was answered the same, since anybody got on."""
        self.asked: dict[Any, tuple[Any, int]] = {}
        """Commands that it gave since then, each with its last reply and how often that was the same in a row."""
        self.kills = 0
        self.choice: Choice = (name, "")
        self.seed: str = name
        self._rng: random.Random | None = None
        self.greenlet: Any = None
        self.loop: Any = None
        """Its event loop, if one runs in it."""
        self.place: tuple[str, str] | None = None
        """Where in its files it was asked for its step, if not by itself."""
        self.follower: Lane | None = None
        """Who goes on within the same step, if that lets it."""
        self.locals: dict[int, dict[str, Any]] = {}
        self.opens: Callable[[], None] | None = None
        """Called when its next step is made: an operation of a contract begins."""

    @property
    def rng(self) -> random.Random:
        """Its draws."""
        if self._rng is None:
            self._rng = random.Random(self.seed)
        return self._rng
