"""Named random streams: every draw of a simulation comes from a stream derived from (seed, name).

Adding a component adds a stream and disturbs no other; the same seed gives the same draws in every process, whatever
PYTHONHASHSEED is.
"""

from __future__ import annotations

import random
from hashlib import blake2b

import numpy as np


def replication_seed(seed: int, number: int) -> int:
    """The seed of replication ``number``. The first one is the run that ``seed`` alone gives."""
    if number == 0:
        return seed
    digest = blake2b(f"{seed}\0replication\0{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 11  # 53 bits: exact in JSON, whoever reads it


class RandomStreams:
    """The streams of one run. Asking twice for a name gives the same stream object, where it stands."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._scalar: dict[str, random.Random] = {}
        self._vector: dict[str, np.random.Generator] = {}

    def _derived(self, name: str) -> int:
        digest = blake2b(f"{self.seed}\0{name}".encode(), digest_size=16).digest()
        return int.from_bytes(digest, "big")

    def stream(self, name: str) -> random.Random:
        """The stream of single draws called ``name``."""
        found = self._scalar.get(name)
        if found is None:
            found = self._scalar[name] = random.Random(self._derived(name))
        return found

    def vector_stream(self, name: str) -> np.random.Generator:
        """The stream of whole arrays called ``name`` (PCG64); independent of the scalar stream of that name."""
        found = self._vector.get(name)
        if found is None:
            found = self._vector[name] = np.random.Generator(np.random.PCG64(self._derived("vector\0" + name)))
        return found
