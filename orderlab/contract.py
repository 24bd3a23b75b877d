"""What a contract of one's own is written with: see ``notes/contracts.md``.

>>> from orderlab.contract import Call, Contract, law
>>> class Counter(Contract):
...     "add(n) -> the sum so far"
...     operations = {"add": ("n",)}
...
...     def initial(self):
...         return 0
...
...     def outcomes(self, state, call, now_ms):
...         yield state + call["n"], state + call["n"]
...
...     def calls(self, client, seen):
...         yield Call.of("add", n=1)
...
...     @law("grows", "the sum never goes back")
...     def grows(self, before, call, reply, now_ms):
...         return reply >= before
>>> list(Counter().outcomes(2, Call.of("add", n=3), 0))
[(5, 5)]

``specification = "counter.py:Counter"`` in a ``store.toml`` names it; `orderlab validate FOLDER --trust-adapter` judges
the store.
"""

from __future__ import annotations

from orderlab.model.contracts.base import AnyOf, Call, Contract, Exchange, Failed, above, law

__all__ = ["AnyOf", "Call", "Contract", "Exchange", "Failed", "above", "law"]
