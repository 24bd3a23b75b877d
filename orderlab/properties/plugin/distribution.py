"""How pytest-xdist hands out the laws of stores. Imported only where pytest-xdist is at work."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]


def scheduler_with(stores: set[str], config: pytest.Config, log: Any) -> LoadGroupScheduling:
    """Return a scheduler that gives all tests of one of ``stores`` (paths in node identifiers) to one process.

    Every other test goes wherever there is room, as with ``--dist load``; the marker ``xdist_group`` counts under
    ``--dist loadgroup``, as ever.
    """

    class StoreScheduling(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if file in stores else str(super()._split_scope(nodeid))

    return StoreScheduling(config, log)
