"""Bindings: how a store's operations call its scripts, and what their replies mean (``store.toml``).

>>> from orderlab.sim.stores.binding import Message, load_binding
>>> binding = load_binding("lua/specimens/published")
>>> call = binding.call("fetch", client=b"dev-7")
>>> call.keys
(b'{dev-7}_messages',)
"""

from orderlab.sim.stores.binding.binding import Adapter, Binding, Specimen
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.binding.operations import OperationBinding, StepBinding
from orderlab.sim.stores.binding.replies import ReplyMismatch
from orderlab.sim.stores.binding.results import (
    Assigned,
    Call,
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
    Script,
    ScriptCall,
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
