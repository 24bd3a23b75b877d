"""Generated specifications: the explorer in every combination of its options, against a plain search."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest

from orderlab.model.errors import InputError
from orderlab.model.explorer import audit
from orderlab.model.explorer import search as search_module
from orderlab.model.explorer.compiled import space as compiled_space
from orderlab.model.explorer.exploration import Exploration, explore
from orderlab.model.explorer.search import Options
from orderlab.model.explorer.witness import Behaviour
from orderlab.model.spec import declarative
from orderlab.model.spec.declarations import law_name
from orderlab.model.verdict import Outcome, Verdict
from tests.model.explorer.engines import loaded_as_it_is
from tests.model.explorer.plain_search import Key, PlainSearch, TooLarge, specification

COMBINATIONS = [
    Options(),
    Options(reduction=True),
    Options(symmetry=True),
    Options(symmetry=True, reduction=True),
    Options(engine="compiled"),
    Options(engine="compiled", symmetry=True),
]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels as plain Python; engines and workers change over early; claims are checked on few states, for that took
    nine tenths of the time (`test_conviction.py` checks that they are)."""
    monkeypatch.setattr(compiled_space, "load_kernel", loaded_as_it_is)
    monkeypatch.setattr(search_module, "SHARE_FROM", 5)
    monkeypatch.setattr(search_module, "CHANGE_AFTER_STEPS", 30)
    monkeypatch.setattr(search_module, "COMPILE_AFTER_STEPS", 30)
    monkeypatch.setattr(search_module, "_has_machine_code", lambda *_: False)
    monkeypatch.setattr(audit, "TIMES_AT_MOST", 1)
    for name in ("FIRST", "DRAWN", "CLAIMED_FIRST", "CLAIMED_DRAWN", "WALK_STEPS"):
        monkeypatch.setattr(audit, name, 8)
    monkeypatch.setattr(audit, "WALKS", 2)


@lru_cache(maxsize=1)
def drawn(seed: int) -> PlainSearch | None:
    """The plain search of what a seed draws, None if that has too many states."""
    try:
        return PlainSearch(specification(seed))
    except TooLarge:
        return None


WALKERS = (1245, 1874, 0, 5)
"""Seeds; the first two draw specifications whose first round is too small."""


def told(verdict: Verdict) -> str:
    return "vacuous" if verdict.vacuous else str(verdict.outcome)


def compare(seed: int, options: Options) -> None:
    """Raises AssertionError where the explorer and the plain search differ."""
    plain = drawn(seed)
    if plain is None:
        return
    made = plain.made
    bounded = bool(made.constraints())
    if options.engine == "compiled" and bounded:
        return
    try:
        found = explore(made, options)
    except InputError as reason:
        if "cannot be compiled" not in str(reason):
            raise
        return
    verdicts = {verdict.law: verdict for verdict in found.verdicts}
    assert verdicts.keys() == plain.found.outcomes.keys()
    whole = options.keep_going or found.complete
    assert found.complete or not options.keep_going
    for law, verdict in verdicts.items():
        if whole or verdict.outcome is not Outcome.UNKNOWN:
            assert told(verdict) == plain.found.outcomes[law], law
        if isinstance(verdict.witness, Behaviour):
            replay(plain, law, verdict)
    open_ = [law for law, one in verdicts.items() if one.outcome is Outcome.UNKNOWN and law in liveness(plain)]
    assert not open_ or verdicts["coverage"].outcome is Outcome.UNKNOWN or whole
    safety = {law for law, end in plain.found.outcomes.items() if end == "violated" and is_safety(plain, law)}
    assert bool(safety) == any(verdicts[law].outcome is Outcome.VIOLATED for law in safety)
    if whole:
        counted(found, plain, options)


def liveness(plain: PlainSearch) -> set[str]:
    declared = plain.declared(declarative.LeadsToDeclaration)
    return {declarative.bound_name(one, given) for one in declared for given in plain.bindings(one)}


def is_safety(plain: PlainSearch, law: str) -> bool:
    kinds = (declarative.InvariantDeclaration, declarative.StepInvariantDeclaration)
    return law == "no-deadlock" or law in {law_name(one.name) for kind in kinds for one in plain.declared(kind)}


def counted(found: Exploration, plain: PlainSearch, options: Options) -> None:
    """What is reached is the same; without reductions, how often, too."""
    known = plain.found
    assert {a for a, times in found.actions.items() if times} == {a for a, times in known.fired.items() if times}
    assert {a: times > 0 for a, times in found.antecedents.items()} == {a: times > 0 for a, times in known.met.items()}
    for goal, depth in found.goals.items():
        assert (depth is None) == (known.outcomes[goal] != "holds")
        if depth is not None:
            assert depth >= known.depths[goal]
            assert depth == known.depths[goal] or options.reduction
    inside = known.states.keys() - known.cut
    if options.symmetry or options.reduction:
        states = plain.orbits(inside) if options.symmetry else len(inside)
        reduced = found.reductions["states_reduced"]
        assert found.distinct_states <= states if reduced else found.distinct_states == states
    else:
        assert found.distinct_states == len(inside)
        assert found.transitions == sum(map(len, known.steps.values()))
        assert dict(found.actions) == known.fired
        assert dict(found.antecedents) == known.met


def replay(plain: PlainSearch, law: str, verdict: Verdict) -> None:
    """The witness step by step, in the plain search; its end breaks the law; no run that does is shorter."""
    witness = verdict.witness
    first = [key for key in plain.initial() if plain.described(key) == dict(witness.initial)]
    assert len(first) == 1
    run: list[Key] = first
    taken: list[tuple[str, tuple[int, ...], Key]] = []
    for step in witness.steps:
        wanted = (step.action, tuple(step.arguments.values()))
        taken.append(next(one for one in plain.offered(run[-1]) if one[:2] == wanted))
        run.append(taken[-1][2])
    assert not plain.found.cut & set(run[:-1])
    named: dict[str, Any] = {law_name(one.name): one for one in plain.declared(declarative.Declaration)}
    one = named.get(law)
    if witness.loop_start is not None:
        check_lasso(plain, law, run, taken, witness.loop_start)
        return
    if isinstance(one, declarative.StepInvariantDeclaration):
        assert plain.step_breaks(one, run[-2], run[-1])
    elif law == "no-deadlock":
        assert plain.is_stuck(run[-1])
    else:
        assert plain.breaks(one, run[-1])
    steps = len(taken) - isinstance(one, declarative.StepInvariantDeclaration)
    assert steps == plain.found.depths[law] or any("shorter witness" in gap for gap in verdict.not_covered)


def check_lasso(plain: PlainSearch, law: str, run: list[Key], taken: list[Any], loop: int) -> None:
    declared = plain.declared(declarative.LeadsToDeclaration)
    one, given = next(
        (one, given) for one in declared for given in plain.bindings(one) if declarative.bound_name(one, given) == law
    )
    assert run[loop] == run[-1]
    owed = [at for at, key in enumerate(run) if (at == 0 if one.when is None else plain.says(one.when, key, *given))]
    assert any(not any(plain.says(one.then, key, *given) for key in run[at:]) for at in owed if at <= loop)
    around = list(zip(run[loop:], taken[loop:], strict=False))
    for strong, condition in plain.conditions():
        offered = [plain.enabled(condition, key) for key in run[loop:]]
        is_taken = any(condition(step) and step[2] != before for before, step in around)
        assert is_taken or not (any(offered) if strong else all(offered))


@pytest.mark.parametrize("keep_going", [True, False], ids=["continue", "stop"])
@pytest.mark.parametrize("options", COMBINATIONS, ids=str)
def test_the_explorer_agrees_with_a_plain_search(options: Options, keep_going: bool) -> None:
    for seed in range(3 if options.engine == "auto" else 1):
        compare(seed, replace(options, keep_going=keep_going))


@pytest.mark.parametrize("keep_going", [True, False], ids=["continue", "stop"])
def test_workers_agree_with_a_plain_search(keep_going: bool) -> None:
    for seed in range(2):
        compare(seed, Options(workers=2, engine="interpreted", symmetry=bool(seed % 2), keep_going=keep_going))


def test_reduced_searches_agree_with_a_plain_search() -> None:
    """Processes that mostly work for themselves: without the repetition until no footprint grows, laws hold that are
    broken."""
    for seed in WALKERS:
        compare(seed, Options(reduction=True, keep_going=True))
        compare(seed, Options(reduction=True))


def test_a_witness_takes_no_step_from_beyond_a_constraint() -> None:
    """In this one an initial state beyond the constraint has a step that breaks a law, and so has one within it."""
    compare(7770222, Options())


FIRST_SEED = 1000
SEEDS_PER_PART = 100


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(40))
def test_thousands_of_specifications_agree_with_a_plain_search(part: int, request: pytest.FixtureRequest) -> None:
    """With `ORDERLAB_FRESH_EXAMPLES=1` (`make exhaustive`) of seeds that nobody has seen, which the head of the output
    tells."""
    fresh = request.config.getoption("hypothesis_seed")
    first = (FIRST_SEED if fresh is None else int(fresh) * 10_000) + SEEDS_PER_PART * part
    for seed in range(first, first + SEEDS_PER_PART):
        try:
            compare_in_every_way(seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def compare_in_every_way(seed: int) -> None:
    for options in COMBINATIONS:
        compare(seed, replace(options, keep_going=True))
        if options.engine == "auto":
            compare(seed, options)
    compare(seed, Options(workers=2, engine="interpreted", symmetry=bool(seed % 2), keep_going=True))
