"""What a contract of one's own is written with: see ``notes/contracts.md``."""

from __future__ import annotations

from orderlab.model.contracts.contract import AnyOf, Call, Contract, Exchange, Failed, above, law

__all__ = ["AnyOf", "Call", "Contract", "Exchange", "Failed", "above", "law"]
