"""A witness from a scaled store on the store itself: the scripts unmodified, 65,535 packet identifiers.

Where the small world goes round after a few saves, the large one has tens of thousands of other messages pass first, or
wait in the queue. Where in the trace they do is found by trying: each plan is rehearsed in a world of medium size,
where a try costs milliseconds, and only what breaks the law there is carried out at full scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from orderlab.model.contracts.session.traces import Churn, Interleave, Publication, Quiesce, Save, Step, Trace
from orderlab.properties.contracts.session.subject import Reruns
from orderlab.properties.contracts.session.witness.plainer import renumbered, with_plain_payloads

LONG_MS = 604_800_000
"""A default interval that outlasts whatever passes."""
PERFORMANCES = 3
"""Plans that are carried out at full scale at most: each takes seconds, and the first usually breaks the law."""


def at_full_scale(trace: Trace, law: str, modulus: int, small: Reruns, large: Reruns) -> Trace | None:
    """The trace with the messages that must pass so that it breaks ``law`` on the unscaled store; None: it does not."""
    found = as_it_stands(trace, law, modulus, large)
    return found or with_passing(trace, law, modulus, small, large, is_short=False)


def as_it_stands(trace: Trace, law: str, modulus: int, large: Reruns) -> Trace | None:
    """The trace on the unscaled store, cut where it breaks ``law``; None when it takes more than its own steps."""
    return _first_broken(_unscaled(trace, modulus), law, large)


def with_passing(
    trace: Trace, law: str, modulus: int, small: Reruns, large: Reruns, is_short: bool = True
) -> Trace | None:
    """The trace with what must pass in it, or wait, for ``law`` to be broken on the unscaled store.

    It is made short in rehearsal (``is_short``), so that it is carried out at full scale once.
    """
    if trace.modulus == modulus:
        return None
    plans = _rehearsed(trace, law, modulus, small, large)
    made = (one for plan in plans for one in (_with_fewer_first(plan, law, large) if is_short else (plan,)))
    return _first_broken(made if large.rehearsal is None else islice(made, PERFORMANCES), law, large)


def _first_broken(candidates: Iterable[Trace], law: str, large: Reruns) -> Trace | None:
    for candidate in candidates:
        broken = large.law_broken(candidate, law)
        if broken is not None:
            return replace(candidate, steps=candidate.steps[: broken[0]])
    return None


def with_fewer_steps(trace: Trace, law: str, large: Reruns) -> Trace:
    """Without the steps that only took the small world's counter round: where messages pass, as many more may.

    Tried in rehearsal, and carried out at full scale once; the trace as it is if that does not break the law.
    """
    return next((one for one in _with_fewer_first(trace, law, large) if large.law_broken(one, law) is not None), trace)


def _with_fewer_first(trace: Trace, law: str, large: Reruns) -> Iterator[Trace]:
    """With as few steps as break the law in rehearsal, if that is fewer; then the trace as it is."""
    rehearsal = large.rehearsal
    if rehearsal is not None and sum(isinstance(step, Churn) for step in trace.steps) == 1:
        steps = _fewest(trace, law, rehearsal)
        if steps != trace.steps:
            fewer = replace(trace, steps=steps)
            plain = with_plain_payloads(renumbered(fewer))
            modulus = rehearsal.subject.binding.modulus
            is_as_good = rehearsal.law_broken(_in_rehearsal(plain, modulus), law) is not None
            yield plain if is_as_good else fewer
    yield trace


def _fewest(trace: Trace, law: str, rehearsal: Reruns) -> tuple[Step, ...]:
    """The steps of which none can be left out in rehearsal; all of them if they do not break the law there."""
    modulus = rehearsal.subject.binding.modulus

    def cut(steps: tuple[Step, ...]) -> tuple[Step, ...] | None:
        """As far as it takes in rehearsal, or None."""
        broken = rehearsal.law_broken(_in_rehearsal(replace(trace, steps=steps), modulus), law)
        return None if broken is None else steps[: broken[0]]

    best, at = trace.steps, 0
    if cut(best) is None:
        return best
    while at < len(best):
        shorter = next((taken for candidate in _without(best, at) if (taken := cut(candidate))), None)
        at = at + 1 if shorter is None else 0
        best = shorter or best
    return best


def _in_rehearsal(trace: Trace, modulus: int) -> Trace:
    """A trace at full scale with fewer identifiers."""
    return replace(
        trace, steps=tuple(_scaled_down(step, trace.modulus, modulus) for step in trace.steps), modulus=modulus
    )


def _without(steps: tuple[Step, ...], at: int) -> Iterator[tuple[Step, ...]]:
    """The steps but one: with as many messages more that pass as it saves, and without."""
    left = steps[at]
    if isinstance(left, Churn):
        return
    rest = (*steps[:at], *steps[at + 1 :])
    more = len(left.messages) if isinstance(left, Save) else int(isinstance(left, Quiesce))
    if more:
        yield tuple(replace(step, count=step.count + more) if isinstance(step, Churn) else step for step in rest)
    yield rest


def _scaled_down(step: Step, modulus: int, smaller: int) -> Step:
    """A step of a witness at full scale, in a world with fewer identifiers."""
    if isinstance(step, Churn):
        return replace(step, count=max(step.count - modulus + smaller, 0))
    if isinstance(step, Save) and smaller < step.limit <= modulus:
        return replace(step, limit=smaller)
    return step


def _unscaled(trace: Trace, modulus: int) -> Iterator[Trace]:
    yield replace(trace, modulus=modulus)
    raised = _raised(trace, modulus)
    if raised.steps != trace.steps:
        yield raised


def _raised(trace: Trace, modulus: int) -> Trace:
    """A limit of as many messages as there are identifiers stays one."""
    steps = tuple(
        replace(step, limit=modulus) if isinstance(step, Save) and step.limit == trace.modulus else step
        for step in trace.steps
    )
    return replace(trace, steps=steps, modulus=modulus)


def _rehearsed(trace: Trace, law: str, modulus: int, small: Reruns, large: Reruns) -> Iterator[Trace]:
    """The plans that break the law in rehearsal, as they are at full scale; all, when there can be no rehearsal."""
    counters = _counters(trace, small)
    rehearsal = large.rehearsal
    plans = _plans(trace, modulus, counters, small)
    if rehearsal is None:
        yield from plans
        return
    for tried, plan in zip(_plans(trace, rehearsal.subject.binding.modulus, counters, small), plans, strict=True):
        if rehearsal.law_broken(tried, law) is not None:
            yield plan


def _plans(trace: Trace, modulus: int, counters: list[int], small: Reruns) -> Iterator[Trace]:
    """The trace on ``modulus`` identifiers: with others passing, then with others waiting. The same for any modulus."""
    raised = _raised(trace, modulus)
    bases = [replace(trace, modulus=modulus)]
    if raised.steps != trace.steps:
        bases.append(raised)
    for base in bases:
        yield from _with_passing(base, modulus - trace.modulus, trace.modulus, counters, small)
    for base in bases:
        yield from _with_waiting(base, modulus - trace.modulus, small.subject.limit is None)


def _with_passing(trace: Trace, count: int, points: int, counters: list[int], small: Reruns) -> Iterator[Trace]:
    """``count`` messages pass whenever the counter stands at one point of its cycle, or before one step only.

    They are acknowledged, or, where the witness has no deadlines of its own, expire: some stores forget them otherwise.
    """
    places = [
        [
            at
            for at, (step, counter) in enumerate(zip(trace.steps, counters, strict=True))
            if counter == point and isinstance(step, Save | Interleave)
        ]
        for point in range(points, -1, -1)  # 0: before the first save, for a batch that goes round by itself
    ]
    places += [[at] for at in range(len(trace.steps)) if [at] not in places]
    fates = [False] if "acknowledge" in small.subject.binding.operations else []
    by_expiry = [*fates, True] if _lives_long(trace) and small.subject.store.largest_batch > 1 else fates
    for where in filter(None, places):
        for expire in by_expiry:
            steps: list[Step] = []
            for at, step in enumerate(trace.steps):
                if at in where:
                    steps.append(Churn(count, getattr(step, "client", 0), by_expiry=expire))
                steps.append(step)
            default_ms = LONG_MS if expire and trace.default_expiry_ms else trace.default_expiry_ms
            yield replace(trace, steps=tuple(steps), default_expiry_ms=default_ms)


def _with_waiting(trace: Trace, count: int, may_raise: bool) -> Iterator[Trace]:
    """One of the saves brings ``count`` messages more like its last one, under a limit that has room for them."""
    labels = [one.label for step in trace.steps if isinstance(step, Save) for one in step.messages]
    first = max(labels, default=0) + 1
    for at, step in enumerate(trace.steps):
        if not isinstance(step, Save) or not step.messages:
            continue
        last = step.messages[-1]
        more = tuple(
            Publication(label, b"<%d>" % label, last.topic, last.qos, last.interval_ms)
            for label in range(first, first + count)
        )
        limit = trace.modulus if may_raise else step.limit
        yield replace(
            trace,
            steps=(
                *trace.steps[:at],
                replace(step, messages=step.messages + more, limit=limit),
                *trace.steps[at + 1 :],
            ),
        )


def _lives_long(trace: Trace) -> bool:
    """Whether no message of the witness has an interval, so that time may pass."""
    return not any(
        one.interval_ms is not None for step in trace.steps if isinstance(step, Save) for one in step.messages
    )


def _counters(trace: Trace, small: Reruns) -> list[int]:
    """Where the identifier counter of the client concerned stands before each step."""
    run, _ = small.start(trace)
    counters: list[int] = []
    for step in trace.steps:
        client = getattr(step, "client", 0)
        counters.append(max(run.state.accounts[client].last_ids))
        run.perform(step)
    return counters
