"""Client code judged in every order of its commands: see ``notes/clients.md``.

A scenario is a function that several clients run at once; ``orderlab race FILE.py`` judges it.

>>> from orderlab.clients import race, scenario
>>> @scenario(clients=2)
... def count(redis):
...     value = int(redis.get("visits") or 0)
...     redis.set("visits", value + 1)
>>> verdict = race(count)
>>> str(verdict.outcome), verdict.law
('violated', 'serializable')
"""

from __future__ import annotations

from orderlab.extras import told_of

with told_of("orderlab.clients"):
    from orderlab.properties.clients.race import RaceVerdict
    from orderlab.properties.clients.race_decorator import race
    from orderlab.properties.clients.scenario import Scenario, scenario

__all__ = ["RaceVerdict", "Scenario", "race", "scenario"]
