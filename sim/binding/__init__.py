"""Bindings: how a store's operations call its scripts, and what their replies mean (``store.toml``).

>>> from sim.binding import Message, load_binding
>>> binding = load_binding("lua/specimens/published")
>>> call = binding.call("fetch", client=b"dev-7")
>>> call.keys
(b'{dev-7}_messages',)
"""

from sim.binding.binding import Adapter, Binding, Specimen
from sim.binding.calls import Call, CommandCall, Script, ScriptCall
from sim.binding.loader import load_binding
from sim.binding.operations import OperationBinding, StepBinding
from sim.binding.replies import ReplyMismatch
from sim.binding.results import (
    Assigned,
    Cleared,
    Failed,
    Fetched,
    FetchedMessage,
    Fields,
    Message,
    Opened,
    Removed,
    Result,
    Saved,
)

__all__ = [
    "Adapter",
    "Assigned",
    "Binding",
    "Call",
    "Cleared",
    "CommandCall",
    "Failed",
    "Fetched",
    "FetchedMessage",
    "Fields",
    "Message",
    "Opened",
    "OperationBinding",
    "Removed",
    "ReplyMismatch",
    "Result",
    "Saved",
    "Script",
    "ScriptCall",
    "Specimen",
    "StepBinding",
    "load_binding",
]
