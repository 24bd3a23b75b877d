"""Rare events by importance splitting: subset simulation over the random inputs of a run (Au, Beck 2001).

P(score > bound) is a product of conditional probabilities of rising levels, each about ``share``. From the inputs above
a level, Markov chains (modified Metropolis on standard normal variables) draw more of them. The score must be a function
of the inputs and grow towards the event. The interval takes levels as independent and chains at face value, with the
estimated autocorrelation; it is checked against plain Monte Carlo where both are feasible.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from model.errors import InputError
from sim.random_streams import RandomStreams

LEVELS_MAX = 30
STEP = 1.0

Score = Callable[[np.ndarray], np.ndarray]
"""Rows of uniform inputs in [0, 1) -> a score for each; asked for whole batches, so that they can run side by side."""


@dataclass(frozen=True)
class Rarity:
    """The probability, its interval of 95 %, and the levels that led there."""

    probability: float
    low: float
    high: float
    levels: tuple[float, ...]
    evaluations: int


def plain_monte_carlo(score: Score, dimensions: int, bound: float, samples: int, seed: int) -> Rarity:
    """The same by counting: the check, and the better choice above about one in a hundred."""
    from spark_sweeps.questions.intervals import clopper_pearson

    inputs = RandomStreams(seed).vector_stream("plain-monte-carlo").random((samples, dimensions))
    found = clopper_pearson(int((score(inputs) > bound).sum()), samples)
    return Rarity(found.estimate, found.low, found.high, (), samples)


def splitting(score: Score, dimensions: int, bound: float, samples: int, seed: int, share: float = 0.1) -> Rarity:
    """P(score > bound). Raises InputError if the levels stop rising before the bound is reached."""
    keep = round(samples * share)
    if keep < 10 or samples % keep:
        raise InputError(
            f"splitting: {samples} samples with a share of {share:g}: take a multiple of {round(1 / share)}, 100 or more"
        )
    from scipy.special import ndtr

    rng = RandomStreams(seed).vector_stream("splitting")
    inputs = rng.standard_normal((samples, dimensions))
    scores = np.asarray(score(ndtr(inputs)), float)
    evaluations, probability, variance = samples, 1.0, 0.0
    levels: list[float] = []
    chains = np.arange(samples)
    while True:
        above = scores > bound
        if above.mean() >= share or len(levels) == LEVELS_MAX:
            part = float(above.mean())
            if part == 0:
                raise InputError(
                    f"splitting: no score above {bound:g} after {len(levels)} levels; does it grow towards the event?"
                )
            probability *= part
            variance += (1 - part) / (part * samples) * _inflation(above, chains)
            half = 1.96 * math.sqrt(variance)
            return Rarity(
                probability,
                probability * math.exp(-half),
                min(1.0, probability * math.exp(half)),
                tuple(levels),
                evaluations,
            )
        level = float(np.partition(scores, samples - keep - 1)[samples - keep - 1])
        if (levels and level <= levels[-1]) or not (scores > level).any():
            raise InputError(f"splitting: the score stays at {level:g}; it must tell how near a run comes to the event")
        above = scores > level
        part = float(above.mean())
        probability *= part
        variance += (1 - part) / (part * samples) * _inflation(above, chains)
        levels.append(level)
        inputs, scores, chains, asked = _continued(score, inputs[above], scores[above], level, samples, rng)
        evaluations += asked


def _continued(
    score: Score, seeds: np.ndarray, scores: np.ndarray, level: float, samples: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """As many inputs above the level as before, by a chain from each seed; all chains move in step."""
    from scipy.special import ndtr

    lengths = math.ceil(samples / len(seeds))
    at, at_scores = seeds.copy(), scores.copy()
    kept, kept_scores, asked = [at.copy()], [at_scores.copy()], 0
    for _ in range(lengths - 1):
        proposed = at + STEP * rng.standard_normal(at.shape)
        accepted = rng.random(at.shape) < np.exp(np.minimum(0.0, (at**2 - proposed**2) / 2))
        moved = np.where(accepted, proposed, at)
        moved_scores = np.asarray(score(ndtr(moved)), float)
        asked += len(moved)
        inside = moved_scores > level
        at = np.where(inside[:, None], moved, at)
        at_scores = np.where(inside, moved_scores, at_scores)
        kept.append(at.copy())
        kept_scores.append(at_scores.copy())
    chains = np.tile(np.arange(len(seeds)), lengths)[:samples]
    return np.concatenate(kept)[:samples], np.concatenate(kept_scores)[:samples], chains, asked


def _inflation(above: np.ndarray, chains: np.ndarray) -> float:
    """How much more a proportion varies because samples of a chain resemble each other (batch means over chains)."""
    counts = np.bincount(chains)
    if counts.max() == 1 or len(counts) < 2:
        return 1.0
    p = float(above.mean())
    within = p * (1 - p)
    if within == 0:
        return 1.0
    sums = np.bincount(chains, above - p)
    return max(1.0, float((sums**2).sum() / (len(above) * within)))
