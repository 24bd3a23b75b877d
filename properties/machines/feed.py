"""The feed: producers, a reader with a cursor, consumers with claims, retention. A walk through ``model.feed``."""

from __future__ import annotations

from model.feed import Feed, Flaw
from properties.machines.transition_system import SystemMachine, machine_of


def feed_machine(flaw: Flaw = "none", messages: int = 6, consumers: int = 3) -> type[SystemMachine]:
    """A feed larger than the explorer can visit. ``flaw`` puts one wrong step into it."""
    return machine_of(Feed(messages=messages, consumers=consumers, flaw=flaw), f"Feed_{flaw.replace('-', '_')}")
