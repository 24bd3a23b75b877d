"""The explorer: breadth-first search over any transition system, laws decided, work and gaps told, within a budget.

One loop drives one of two spaces (interpreted, compiled). It works level by level; a level in which a law breaks is
still finished, so that among all shortest witnesses the one with the fewest switches can be chosen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from orderlab.model.errors import EngineError, InputError
from orderlab.model.explorer.reduction import Reduction
from orderlab.model.explorer.space import (
    Checkpoint,
    InterpretedSpace,
    Space,
    identity,
    read_checkpoint,
    write_checkpoint,
)
from orderlab.model.explorer.workers import travels
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.transition_system import (
    COVERAGE,
    DEADLOCK,
    Constraint,
    Invariant,
    Law,
    StepInvariant,
    TransitionSystem,
)
from orderlab.platform import can_fork, rare_collections


@dataclass(frozen=True)
class Budget:
    """None is no limit. States and bytes may be passed by the successors of one chunk of states."""

    max_states: int | None = None
    max_seconds: float | None = None
    max_bytes: int | None = None


@dataclass
class Meter:
    """Measures one run against its budget. `spent_s` carries over what earlier, interrupted runs took."""

    budget: Budget
    spent_s: float = 0.0
    _began_s: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        """Seconds of this run alone: a resumed run gets the whole time budget again."""
        return time.monotonic() - self._began_s

    def total_seconds(self) -> float:
        return self.spent_s + self.seconds()

    def exhausted(self, states: int, bytes_held: int) -> str | None:
        """Which budget has run out, in words, or None."""
        budget = self.budget
        if budget.max_states is not None and states >= budget.max_states:
            return f"the budget of {budget.max_states:,} states"
        if budget.max_seconds is not None and self.seconds() >= budget.max_seconds:
            return f"the budget of {budget.max_seconds:g} seconds"
        if budget.max_bytes is not None and bytes_held >= budget.max_bytes:
            return f"the budget of {budget.max_bytes:,} bytes"
        return None


Engine = Literal["auto", "interpreted", "compiled"]

SHARE_FROM = 500
"""States after which several processes work."""
COMPILE_AFTER_STEPS = 200_000
"""Steps after which `auto` compiles: to interpret as many takes about as long as compiling. Steps, not seconds: a run
does the same on every machine."""
CHANGE_AFTER_STEPS = 5_000
"""Steps after which it goes over to machine code that is at hand: reading it takes half a second."""
REDUCE_IN_VAIN_UP_TO = 10_000
"""States after which a reduction that has left nothing out is switched off."""
COUNT_STATES_BY = 64
"""States expanded at most between two looks at a budget in states, so that it ends at the same state on either
engine."""
CHUNK = {"interpreted": COUNT_STATES_BY, "compiled": 4096}
"""States expanded between two looks at the other budgets."""
CHECKPOINT_EVERY_S = 60.0
ERRORS_OF_TEXT = (LookupError, ArithmeticError, TypeError, ValueError, AttributeError, RecursionError)
PROGRESS_EVERY_S = 0.2


@dataclass(frozen=True)
class Options:
    """`max_depth` stops after so many steps from the initial states.

    `keep_going` searches on after a violation; `laws` are the only ones to be judged (empty: all), `constraints` names
    predicates of the system that a state must meet to be gone on from; `allow_vacuous` lets a law hold that was not
    tested. `seed` draws the states on which what the system claims is checked. `workers` processes share the search.
    """

    budget: Budget = field(default_factory=Budget)
    symmetry: bool = False
    reduction: bool = False
    engine: Engine = "auto"
    checkpoint: Path | None = None
    max_depth: int | None = None
    keep_going: bool = False
    laws: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    allow_vacuous: bool = False
    seed: int = 0
    workers: int = 1


@dataclass(frozen=True)
class Progress:
    states: int
    steps: int
    queue: int
    depth: int
    seconds: float
    doing: str = ""
    """What takes long just now, if it is not the search."""


Tell = Callable[[Progress], None] | None
COMPILING = "compiling the specification (once for each scope, 5 to 30 s)"


@dataclass
class Search:
    """The state of one search. `levels[d]` is the number of the first state of depth d; the last entry closes the last
    level."""

    system: TransitionSystem[Any]
    options: Options
    space: Space
    meter: Meter
    levels: list[int]
    expanded: int
    notes: list[str]
    stopped_by: str | None = None
    reduction: Reduction | None = None
    resumed: bool = False
    may_compile: bool = True
    shared: bool = False
    """Whether several workers were set to work, or found to be of no use."""
    has_machine_code: bool | None = None
    """Whether the cache folder has it; None: not looked yet."""
    chosen: Chosen = field(kw_only=True)

    @property
    def safety(self) -> tuple[str, ...]:
        """The laws whose violation ends the search."""
        return self.chosen.safety

    @property
    def must_repeat(self) -> bool:
        """Whether a reduction has left out steps on the ground of footprints that turned out too small."""
        return self.reduction is not None and self.reduction.must_repeat

    @property
    def complete(self) -> bool:
        return self.stopped_by is None and self.expanded == self.space.count and not self.must_repeat

    @property
    def depth(self) -> int:
        """Depth of the deepest known state."""
        return len(self.closed_levels()) - 2

    def closed_levels(self) -> list[int]:
        """The levels with the unfinished last one closed at what is known."""
        return self.levels if self.space.count == self.levels[-1] else [*self.levels, self.space.count]

    @property
    def seen_before(self) -> Mapping[str, list[Any]]:
        """What earlier rounds of a reduction found: for each such law or goal the states on the way there."""
        return {} if self.reduction is None else self.reduction.seen_before

    def violated(self) -> list[str]:
        """The safety laws that end the search, absence of deadlock among them, and that some known state or step
        breaks.
        """
        return [name for name in self.safety if name in self.space.found]

    @property
    def distinct_states(self) -> int:
        """Known states that were or will be gone on from, as TLC counts them."""
        return self.space.count - len(self.space.cut)


@dataclass(frozen=True)
class Chosen:
    """What a search judges: laws, and whether deadlock and coverage."""

    laws: tuple[Law, ...]
    deadlock: bool
    coverage: bool
    unbound: tuple[str, ...]

    @property
    def safety(self) -> tuple[str, ...]:
        laws = [
            one.name
            for one in self.laws
            if isinstance(one, StepInvariant) or (isinstance(one, Invariant) and one.stops)
        ]
        return (*laws, DEADLOCK) if self.deadlock else tuple(laws)


def chosen_laws(system: TransitionSystem[Any], wanted: Sequence[str]) -> Chosen:
    """The laws of these names, all if none is named. A name without its binding means every binding.

    Raises InputError, with the nearest name, for one that the system does not have.
    """
    laws, unbound = tuple(system.laws()), tuple(system.unbound_laws())
    if not wanted:
        return Chosen(laws, system.deadlock_is_violation, True, unbound)
    known = dict.fromkeys(name for law in laws for name in (law.name, _family(law.name)))
    known |= dict.fromkeys([*unbound, COVERAGE, *([DEADLOCK] if system.deadlock_is_violation else [])])
    for name in wanted:
        if name not in known:
            near = get_close_matches(name, list(known), 1)
            cure = f'did you mean "{near[0]}"?' if near else f"it has {', '.join(known)}"
            raise InputError(f'--law {name}: {system.name} has no law "{name}"; {cure}')
    found = tuple(law for law in laws if law.name in wanted or _family(law.name) in wanted)
    return Chosen(found, DEADLOCK in wanted, COVERAGE in wanted, tuple(name for name in unbound if name in wanted))


def constraints_of(system: TransitionSystem[Any], options: Options) -> list[Constraint[Any]]:
    """What a state must meet to be gone on from: the system's own, and those that were named."""
    return [*system.constraints(), *(system.constraint_named(name) for name in options.constraints)]


def _family(law: str) -> str:
    return law.partition("(")[0]


@rare_collections()
def search(
    system: TransitionSystem[Any],
    options: Options,
    progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Search:
    """Visit states until all are visited, a law breaks, a budget runs out or `should_stop` says so.

    Raises InputError for options that the system cannot honour and for an unusable checkpoint.
    """
    run = _begin(system, options, progress)
    try:
        _search(run, progress, should_stop)
    except BaseException:
        if isinstance(run.space, InterpretedSpace):
            run.space.close(gather=False)
        raise
    if isinstance(run.space, InterpretedSpace):
        run.space.close()
    if options.checkpoint is not None and run.stopped_by is not None:
        _save(run)
    return run


def _search(run: Search, progress: Callable[[Progress], None] | None, should_stop: Callable[[], bool]) -> None:
    while True:
        _visit(run, progress, should_stop)
        # A footprint turned out larger than the one that earlier choices relied on: choose again, and until a round
        # relied on nothing too small, believe only what it has seen.
        if not run.must_repeat or run.expanded < run.space.count or run.stopped_by is not None:
            return
        if run.violated() and not run.options.keep_going:
            return
        assert run.reduction is not None
        run.reduction.next_round(runs_to_findings(run.space))
        run.space = InterpretedSpace(run.system, run.options.symmetry, run.reduction, run.chosen.laws)
        run.space.start()
        run.levels, run.expanded = [0, run.space.count], 0


def runs_to_findings(space: Space) -> dict[str, list[Any]]:
    """For each law that was found broken, and each goal that was reached, the states on the way there."""
    found = {}
    for name, number in space.found.items():
        path = [number]
        while (before := space.parent(path[0])) >= 0:
            path.insert(0, before)
        found[name] = [space.state(one) for one in path]
    return found


def _begin(system: TransitionSystem[Any], options: Options, progress: Tell = None) -> Search:
    if options.checkpoint is not None and not system.resumable:
        raise InputError(
            f"{system.name}: keeps what it finds out in memory, so no checkpoint can be resumed; leave the"
            " option out and give more --budget"
        )
    meter = Meter(options.budget)
    notes: list[str] = []
    saved = None
    if options.checkpoint is not None and options.checkpoint.exists():
        saved = read_checkpoint(options.checkpoint, _identity(system, options), system)
    engine = saved.engine if saved else options.engine
    chosen = chosen_laws(system, options.laws)
    system.fairness()  # an error in it is told before the search, not after
    constraints = constraints_of(system, options)
    reduction = None
    if options.reduction:
        try:
            reduction = Reduction(system, chosen.laws, options.symmetry)
        except NotImplementedError as reason:
            notes.append(f"reduction: switched off under symmetry, for {reason}")
    if reduction is not None and (refused_by := [*reduction.refused_by, *(one.name for one in constraints)]):
        notes.append(
            f"reduction: switched off, for nothing can be left out because of {', '.join(refused_by)}"
            " (--law names the laws to judge)"
        )
        reduction = None
    if engine == "compiled" and progress is not None:
        progress(Progress(0, 0, 0, 0, 0.0, doing=COMPILING))
    space = _make_space(system, options, engine, reduction, chosen.laws, constraints)
    run = Search(system, options, space, meter, [0], 0, notes, reduction=reduction, chosen=chosen)
    if saved is None:
        _start(run)
    else:
        space.restore(saved.space)
        run.levels, run.expanded, run.resumed = list(saved.levels), saved.expanded, True
        meter.spent_s = saved.seconds
    return run


def _make_space(
    system: TransitionSystem[Any],
    options: Options,
    engine: str,
    reduction: Reduction | None,
    laws: Sequence[Law],
    constraints: Sequence[Constraint[Any]],
) -> Space:
    if reduction is not None or constraints or engine == "interpreted" or not isinstance(system, Specification):
        if engine == "compiled":
            raise InputError(
                f"{system.name}: only declarative specifications without --reduction and constraints compile;"
                " use --engine auto"
            )
        return InterpretedSpace(system, options.symmetry, reduction, laws, constraints)
    if engine == "compiled":
        return _compiled(system, options, laws)
    return InterpretedSpace(system, options.symmetry, laws=laws)


def _compiled(system: Specification, options: Options, laws: Sequence[Law]) -> Space:
    """The compiled space. Raises InputError with the reason if the text cannot be compiled."""
    from orderlab.model.explorer.compiled.space import CompiledSpace

    with _refusals_told(system):
        return CompiledSpace(system, options.symmetry, options.seed, laws if options.laws else None)


@contextmanager
def _refusals_told(system: Specification) -> Iterator[None]:
    """Turns the reason why a text cannot be compiled into an InputError."""
    from orderlab.model.explorer.compiled.program_text import NotCompilable

    try:
        yield
    except NotCompilable as reason:
        raise InputError(f"{system.name}: cannot be compiled ({reason}); use --engine interpreted") from None
    except ERRORS_OF_TEXT as error:
        # The translator evaluates what is constant. Where that fails, the interpreter tells, if it ever comes there.
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise InputError(f"{system.name}: cannot be compiled ({said}); use --engine interpreted") from None


def _start(run: Search) -> None:
    try:
        run.space.start()
    except NotImplementedError as reason:
        raise InputError(f"{reason}; leave the option out") from None
    run.levels, run.expanded = [0, run.space.count], 0


def _visit(run: Search, progress: Callable[[Progress], None] | None, should_stop: Callable[[], bool]) -> None:
    told_s = saved_s = time.monotonic()
    try:
        while run.options.keep_going or not run.violated() or run.expanded < run.levels[-1]:
            if run.expanded == run.levels[-1] and not _next_level(run):
                return
            run.stopped_by = run.meter.exhausted(run.space.count, run.space.bytes_held())
            if should_stop():
                run.stopped_by = "an interrupt"
            if run.stopped_by is not None:
                return
            _switch_engine(run, progress)
            run.expanded = _expand(run)
            now_s = time.monotonic()
            if progress is not None and now_s - told_s >= PROGRESS_EVERY_S:
                told_s = now_s
                queue = run.space.count - run.expanded
                progress(Progress(run.space.count, run.space.steps, queue, run.depth, run.meter.seconds()))
            if run.options.checkpoint is not None and now_s - saved_s > CHECKPOINT_EVERY_S:
                _save(run)
                saved_s = time.monotonic()
    except NotImplementedError as reason:
        raise InputError(f"{reason}; leave the option out") from None


def _expand(run: Search) -> int:
    """Expand the next states of the level; the first that is not expanded yet."""
    space, room = run.space, run.options.budget.max_states
    chunk = CHUNK[space.engine]
    if room is not None:
        chunk = max(1, min(COUNT_STATES_BY, (room - space.count) // 16))
    last = min(run.levels[-1], run.expanded + chunk)
    if not isinstance(space, InterpretedSpace) or not space.is_shared:
        return space.expand(run.expanded, last)
    # As long as chunks would be of full size, several at once end where they would have ended one by one.
    at_most = None if room is None else room - 16 * COUNT_STATES_BY
    if at_most is not None and space.count > at_most:
        return space.expand_shared(run.expanded, last, None)
    return space.expand_shared(run.expanded, run.levels[-1], at_most)


def _next_level(run: Search) -> bool:
    """Close the finished level. False when there is nothing beyond it to visit."""
    if run.space.count == run.levels[-1]:
        return False
    if run.options.max_depth is not None and len(run.levels) - 1 >= run.options.max_depth:
        run.stopped_by = f"the depth of {run.options.max_depth} steps"
        return False
    run.levels.append(run.space.count)
    return True


def _switch_engine(run: Search, progress: Tell) -> None:
    """Go over to the compiled engine, or to several processes, when the system proves large. Numbering is the same, so
    what is known stays known.
    """
    if run.options.workers > 1 and not run.shared and run.space.count >= SHARE_FROM:
        _share(run)
    if run.space.engine == "compiled":
        return
    in_vain = run.reduction is not None and not run.reduction.reduced_states
    if in_vain and run.space.count >= REDUCE_IN_VAIN_UP_TO and isinstance(run.space, InterpretedSpace):
        run.notes.append(f"reduction: switched off, for nothing could be left out in {run.space.count:,} states")
        run.space.stop_reducing()
        run.reduction = None
    if run.options.engine != "auto" or not run.space.compiles or run.space.steps < CHANGE_AFTER_STEPS:
        return
    if run.reduction is not None or not isinstance(run.system, Specification) or not run.may_compile:
        return
    try:
        if run.has_machine_code is None:
            run.has_machine_code = _has_machine_code(run.system, run.options, run.chosen.laws)
        if not run.has_machine_code and run.space.steps < COMPILE_AFTER_STEPS:
            return
        if not run.has_machine_code and progress is not None:
            queue = run.space.count - run.expanded
            seconds = run.meter.seconds()
            progress(Progress(run.space.count, run.space.steps, queue, run.depth, seconds, doing=COMPILING))
        space = _compiled(run.system, run.options, run.chosen.laws)
    except InputError as reason:
        run.may_compile = False
        run.notes.append(f"engine: interpreted; {reason}")
        return
    space.start()
    space.expand(0, run.expanded)
    _compare(run.space, space)
    run.space = space


def _share(run: Search) -> None:
    """Let other processes help, where that is possible; else say why not."""
    options, space = run.options, run.space
    reason = None
    if not isinstance(space, InterpretedSpace):
        reason = "the compiled engine works in one process"
    elif run.reduction is not None:
        reason = "a reduction chooses in order"
    elif not run.system.resumable:
        reason = "its states mean something in one process only"
    elif not travels(space.state(0)):
        reason = "its states cannot be sent to another process"
    elif not can_fork():
        reason = "this system cannot fork"
    elif options.engine == "auto" and space.compiles and isinstance(run.system, Specification) and run.may_compile:
        return  # to be compiled soon, or found to be impossible
    run.shared = True
    if reason is not None:
        run.notes.append(f"workers: one, for {reason}")
    elif isinstance(space, InterpretedSpace):
        space.share(options.workers)


def _has_machine_code(system: Specification, options: Options, laws: Sequence[Law]) -> bool:
    """Raises InputError with the reason if the text cannot be compiled."""
    from orderlab.model.explorer.compiled.kernel_text import is_cached

    with _refusals_told(system):
        return is_cached(system, options.symmetry, [law.name for law in laws] if options.laws else None)


def _compare(interpreted: Space, compiled: Space) -> None:
    """Raises EngineError unless both spaces tell the same of what has been seen so far."""
    for what in ("count", "steps", "found", "fired", "met"):
        one, other = (getattr(space, what) for space in (interpreted, compiled))
        one, other = (one(), other()) if callable(one) else (one, other)
        if one != other:
            raise EngineError(
                f"{interpreted.system.name}: the engines disagree on {what} of the first {interpreted.count:,} states:"
                f" interpreted, {one}; compiled, {other}; this is a defect of the compiled engine: report it, and use"
                " --engine interpreted"
            )


def _identity(system: TransitionSystem[Any], options: Options) -> str:
    return identity(system, options.symmetry, options.reduction, [*options.constraints, "", *options.laws])


def _save(run: Search) -> None:
    assert run.options.checkpoint is not None
    seconds = run.meter.total_seconds()
    state = Checkpoint(run.space.engine, run.levels, run.expanded, seconds, run.space.snapshot())
    write_checkpoint(run.options.checkpoint, _identity(run.system, run.options), run.system.name, state)


def unreduced_up_to(run: Search, law: str, depth: int) -> Search:
    """Search again for one law without reduction, no deeper than a violation that was found with it, in the budget that
    is left.
    """
    options = replace(
        run.options,
        reduction=False,
        engine="interpreted",
        checkpoint=None,
        max_depth=depth,
        budget=_left(run),
        laws=(law,),
    )
    return search(run.system, options)


def whole_graph(run: Search, laws: Sequence[str], progress: Tell, should_stop: Callable[[], bool]) -> Search:
    """All states, for laws that are not decided on representatives, in the budget that is left."""
    options = replace(
        run.options, symmetry=False, checkpoint=None, keep_going=True, budget=_left(run), laws=tuple(laws)
    )
    return search(run.system, options, progress, should_stop)


def _left(run: Search) -> Budget:
    budget = run.options.budget
    left = None if budget.max_seconds is None else max(0.0, budget.max_seconds - run.meter.seconds())
    return replace(budget, max_seconds=left)
