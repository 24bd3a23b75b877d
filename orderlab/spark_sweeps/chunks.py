"""Chunks: runs grouped so that handing them out costs little and all cores end together.

Guided self-scheduling (Polychronopoulos, Kuck 1987) over runs sorted by estimated cost, the longest first: a chunk
holds what costs ``max(floor, remaining / (2 * cores))``.
"""

from __future__ import annotations

import numpy as np

FLOOR_S = 0.5
CHUNKS_MAX = 10_000


def chunks_of(runs: np.ndarray, costs_s: np.ndarray, cores: int) -> list[np.ndarray]:
    """Run numbers in chunks, costliest first; equal costs in the order of their numbers."""
    if len(runs) == 0:
        return []
    order = np.argsort(-costs_s, kind="stable")
    runs, ends = runs[order], np.cumsum(costs_s[order])
    total = float(ends[-1])
    floor = max(FLOOR_S, total / CHUNKS_MAX)
    chunks, start, done = [], 0, 0.0
    while start < len(runs):
        size = max(floor, (total - done) / (2 * cores))
        stop = max(start + 1, int(np.searchsorted(ends, done + size, side="right")))
        chunks.append(runs[start:stop])
        start, done = stop, float(ends[stop - 1])
    return chunks
