"""What an adapter is written with, where templates of a ``store.toml`` do not do: see ``notes/bindings.md``.

>>> from orderlab.adapter import CommandCall, Removed
>>> class Adapter:
...     "Acknowledges by ZREM, and says how many went."
...
...     def __init__(self, binding):
...         self.binding = binding
...
...     def step(self, operation, fields, replies):
...         if operation != "acknowledge":
...             return None  # as the templates say
...         if replies:
...             return Removed(count=replies[0])
...         return CommandCall(operation, (b"ZREM", b"{%b}queue" % fields["client"], b"%d" % fields["packet_id"]))
"""

from __future__ import annotations

from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.stores.binding import (
    Assigned,
    Binding,
    Cleared,
    CommandCall,
    Failed,
    Fetched,
    FetchedMessage,
    Fields,
    Message,
    Opened,
    Removed,
    Result,
    Saved,
    ScriptCall,
)

__all__ = [
    "Assigned",
    "Binding",
    "Cleared",
    "CommandCall",
    "ErrorReply",
    "Failed",
    "Fetched",
    "FetchedMessage",
    "Fields",
    "Message",
    "Opened",
    "Removed",
    "Result",
    "Saved",
    "ScriptCall",
]
