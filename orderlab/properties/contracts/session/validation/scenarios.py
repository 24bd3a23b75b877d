"""A few runs that test every law before the searches begin: none may hold because nothing happened."""

from __future__ import annotations

from collections.abc import Iterable

from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.refinement.account import forbidden_in
from orderlab.model.contracts.session.traces import (
    PRODUCERS,
    Acknowledge,
    Answer,
    Clear,
    DrainQueue,
    Fetch,
    Open,
    Publication,
    Quiesce,
    Release,
    Retry,
    Save,
    Step,
    Wait,
)
from orderlab.model.protocol.packet_id import MODULUS
from orderlab.properties.contracts.session.subject import (
    CLIENTS,
    DEFAULT_EXPIRY_MS,
    Subject,
    fitted_step,
    take_steps,
)
from orderlab.properties.contracts.session.validation.walks import NUMBERED
from orderlab.properties.validation.findings import Findings
from orderlab.sim.stores.trace_faults import NODE_CONDITIONS


def one(label: int, interval_ms: float | None = None, qos: int = 1) -> Publication:
    """A message with a payload of its own."""
    return Publication(label, b"<%d>payload" % label, b"t", qos, interval_ms)


def saves(*labels: int, limit: int = 3, client: int = 0) -> list[Step]:
    """Messages saved one by one."""
    return [Save((one(label),), client, limit=limit) for label in labels]


def quick(*messages: Publication, limit: int = 3) -> Save:
    """One save of several."""
    return Save(messages, limit=limit)


def in_trouble(number: int, kind: str) -> list[Step]:
    """Every operation while the node is in one kind of trouble, and the retry of the save afterwards."""
    label, fault = 3 * number + 1, Fault(kind)
    save = Save((one(label), one(label + 1, 1000, 2)), limit=2, fault=fault)
    answers: list[Step] = [Acknowledge(label, fault), Release(label + 1, fault)]
    return [save, Retry(), Fetch(), Fetch(fault=fault), *answers]


LONG_INTERVALS = (86_400_000, 2_147_483_647_000, 2_147_483_648_000, 4_294_967_295_000)
"""The last is the longest of MQTT; what Redis takes as a relative EX ends sooner in some versions."""
FORBIDDEN_INTERVALS = (-1, 500, 1e18, 1e19)

CONTENTS = (
    (b"before\0after", b"t"),
    (bytes(range(256)), b"t/\xc3\xa9/{x}"),
    (b'"quoted\\" %d %s \r\n[]{},:;|', b"a b/$c"),
    (b"12", b"1"),
    (b"1e3", b"0x10"),
    (b" \t trimmed? \n", b"/"),
    (b"long" * 17_000, b"l"),
)
"""Payloads and topics that a careless encoding would change: MQTT payloads are any bytes, up to 256 MB of them."""

SCENARIOS: dict[str, list[Step]] = {
    "identifiers go round": [
        *saves(1, 2, 3, limit=2),
        Fetch(),
        *saves(4, 5, limit=2),
        Fetch(),
        DrainQueue(),
        Quiesce(),
    ],
    "an acknowledgement comes late": [
        *(*saves(1), Fetch(), Acknowledge(1), *saves(2, 3, 4), Acknowledge(1), Fetch()),
        *(Acknowledge(4), Acknowledge(1)),
    ],
    "an answer comes late and its identifier is that of a message with a deadline": [
        *(
            *saves(1, 2),
            Fetch(),
            Acknowledge(1),
            *saves(3),
            quick(one(4, 1000, 2)),
            Acknowledge(1),
            Release(1),
            Fetch(),
        ),
        *(Wait(1000), *saves(5), Fetch(), DrainQueue(), Quiesce()),
    ],
    "a PUBREC comes late": [
        *(quick(one(1, qos=2)), Fetch(), Acknowledge(1)),
        *(quick(one(label, qos=2)) for label in (2, 3, 4)),
        *(Fetch(), Release(1), Fetch(), DrainQueue(), Quiesce()),
    ],
    "an identifier is live when the counter comes round": [
        *(*saves(1), Fetch(), *saves(2), Acknowledge(2), Fetch(), Acknowledge(2), *saves(3, 4, 5), Fetch()),
        Acknowledge(1),
    ],
    "the queue runs empty": [
        *(*saves(1), Fetch(), Acknowledge(1), *saves(2), DrainQueue(count=1), Quiesce(), *saves(3)),
    ],
    "nothing of a batch lives": [
        *(*saves(1), Fetch(), Acknowledge(1), quick(one(2, 0)), Retry(), *saves(3), Fetch(), Acknowledge(3)),
        *(quick(one(4, 0), one(5, 0)), *saves(6), quick(one(7, 0)), *saves(8), Fetch(), DrainQueue(), Quiesce()),
    ],
    "a save that keeps nothing lowers the limit": [
        *(
            *saves(1, 2, 3),
            quick(one(4, 0), limit=2),
            Fetch(),
            *saves(5),
            quick(one(6, 0), one(7, 0), limit=1),
            Fetch(),
        ),
        *(Retry(), Fetch(), DrainQueue(), Quiesce()),
    ],
    "expired messages before a full queue": [
        *(quick(one(1, 40_000)), quick(one(2, 1000)), quick(one(3, 1000)), Wait(1000), *saves(4, 5)),
        *(Fetch(), DrainQueue(count=1), Quiesce()),
    ],
    "expired messages fill a page": [
        *(quick(one(1, 1000)), quick(one(2, 1000)), quick(one(3)), Wait(1000), Fetch(count=1), DrainQueue(count=1)),
    ],
    "a deadline passes before a save and a fetch": [
        *(quick(one(1, 1000)), quick(one(2, 40_000)), Wait(1000), Save((one(3),), limit=2), Fetch(), Wait(1), Fetch()),
    ],
    "deadlines pass": [
        *(quick(one(1, 2000), one(2), one(3, 5000)), Wait(1999), Fetch(count=1), Wait(1), Fetch(), Wait(18_000)),
        *(Fetch(), quick(one(4, 1000)), Fetch(), Wait(999), Fetch(), Wait(1), Fetch(), DrainQueue(), Quiesce()),
    ],
    "answers come after the deadline": [
        *(quick(one(1, 1000, 2), one(2, 1000), one(3, 40_000, 2)), Fetch(), Release(3), Wait(999), Release(3), Wait(1)),
        *(
            Release(1),
            Acknowledge(2),
            Acknowledge(1),
            Release(3),
            Fetch(),
            Acknowledge(3),
            Release(3),
            DrainQueue(),
            Quiesce(),
        ),
    ],
    "answers come in the millisecond of the deadline": [
        *(Wait(500), quick(one(1, 1000, 2), one(2, 1000)), Fetch(), Wait(1000), Release(1), Acknowledge(2), Fetch()),
        *(quick(one(3, 1000)), Wait(1000), *saves(4), Fetch(), DrainQueue(), Quiesce()),
    ],
    "answers come one millisecond before the deadline": [
        *(
            quick(one(1, 1000, 2), one(2, 1000)),
            Fetch(),
            Wait(999),
            Release(1),
            Acknowledge(2),
            *saves(3, limit=2),
            Fetch(),
        ),
        *(Wait(1), Acknowledge(1), Fetch(), DrainQueue(), Quiesce()),
    ],
    "a batch passes over an identifier and comes again": [
        *(*saves(1, 2, 3), Fetch(), Acknowledge(1), Acknowledge(3), quick(one(4), one(5)), Retry(), Fetch()),
        *(Acknowledge(4), Acknowledge(5), quick(one(6, 0), one(7), one(8)), Retry(), Fetch(), DrainQueue(), Quiesce()),
    ],
    "early deadlines one after the other": [
        *(quick(one(1, 40_000)), quick(one(2, 1000)), quick(one(3, 3000)), Wait(1000), quick(one(4, 5000)), Fetch()),
        *(Wait(2000), quick(one(5, 4000)), Fetch(), Wait(2000), quick(one(6, 40_000)), Fetch(), Wait(2000)),
        *(quick(one(7)), Fetch(), DrainQueue(), Quiesce()),
    ],
    "released messages": [
        *(quick(one(1, 3000, 2), one(2, None, 2), one(3)), Fetch(), Release(1), Release(2), Fetch(), Release(2)),
        *(Wait(1000), Fetch(), Acknowledge(2), Wait(1999), Fetch(), Wait(1), Fetch(), DrainQueue(), Quiesce()),
    ],
    "sessions end and begin": [
        *(
            *saves(1, 2),
            Fetch(),
            Clear(),
            Save((one(3),), stale=True),
            Acknowledge(1),
            Open(clean_start=True),
            *saves(4),
        ),
        *(Acknowledge(1), Save((one(5),), stale=True), Fetch(), Open(clean_start=False), Fetch()),
        *(Open(clean_start=True), *saves(6), Fetch(), Clear(), Clear()),
    ],
    "the end of a session comes late": [
        *(*saves(1), Clear(), Open(clean_start=True), *saves(2), Clear(stale=True), Fetch(), *saves(3)),
        *(
            Open(clean_start=True),
            Clear(stale=True),
            *saves(4),
            Fetch(),
            DrainQueue(),
            Quiesce(),
            Clear(),
            Clear(stale=True),
        ),
        *(Clear(), Open(), *saves(5), Clear(stale=True), Open(), Clear(stale=True), Fetch()),
    ],
    "answers come from an earlier session": [
        *(quick(one(1, qos=2)), Fetch(), Clear(), Open(clean_start=True), quick(one(2, qos=2)), Fetch(), Release(1)),
        *(Fetch(), Acknowledge(1), Fetch(), Release(2), Fetch(), Release(1), Acknowledge(1), Fetch()),
        *(Open(clean_start=True), quick(one(3, qos=2)), Fetch(), Release(2), Acknowledge(2), Fetch()),
    ],
    "a CONNECT comes late or twice": [
        *(Open(clean_start=True), *saves(1), Open(again=True), Open(clean_start=True, stale=True), Open(stale=True)),
        *(Fetch(), Open(), Open(again=True), *saves(2), Fetch(), Open(again=True), Acknowledge(1), Clear(), Open()),
        *(Open(again=True), Open(stale=True), *saves(3), Open(again=True), Fetch(), DrainQueue(), Open(again=True)),
    ],
    "a producer goes back": [
        *(*saves(1), Retry(older=True), *saves(2), Retry(older=True), Retry(), Fetch(), Acknowledge(1)),
        *(
            Retry(older=True),
            Fetch(),
            quick(one(3), one(4)),
            Retry(older=True),
            DrainQueue(),
            Retry(older=True),
            Quiesce(),
        ),
        *(*saves(5), Clear(), Retry(older=True), Open(clean_start=True), Retry(older=True), Retry(), *saves(6)),
        *(Retry(older=True), *saves(7), Retry(older=True), Fetch()),
    ],
    "a producer goes back behind a save that keeps nothing": [
        *(
            *saves(1),
            quick(one(2, 0)),
            Retry(older=True),
            Fetch(),
            *saves(3),
            Retry(older=True),
            Fetch(),
            DrainQueue(),
            Quiesce(),
        ),
    ],
    "replies are lost": [
        *(quick(one(1), one(2)), Retry(), Fetch(), Acknowledge(1), Retry(), Save((one(3),), producer=1), Retry()),
        *(Retry(1), *saves(4), Retry(), quick(one(5), one(6, 0), one(7)), Retry(), Acknowledge(5), Retry()),
        *(Save((one(8), one(9), one(10)), limit=2), Retry(), DrainQueue(), Retry(), Quiesce()),
    ],
    "the node is in trouble": [
        *(step for number, kind in enumerate(NODE_CONDITIONS) for step in in_trouble(number, kind)),
        *(Wait(1000), Clear(fault=Fault("out-of-memory"))),
    ],
    "the node is in trouble when a client connects": [
        *(step for at, kind in enumerate(NODE_CONDITIONS, 1) for step in (*saves(at), Open(0, True, Fault(kind)))),
        *(*saves(101), Fetch(), DrainQueue(), Quiesce()),
    ],
    "values at the edge of what MQTT knows": [
        *(quick(one(1), one(2, 0), one(3)), quick(one(23, 0)), Retry(), Fetch()),
        *(quick(one(4 + 2 * n), one(5 + 2 * n, value)) for n, value in enumerate(LONG_INTERVALS)),
        *(Fetch(), *saves(22, limit=1), DrainQueue(), Quiesce()),
    ],
    "numbers get a second digit": [
        *(Open(clean_start=True) for _ in range(8)),
        *(quick(one(1, qos=2)), Fetch(), Open(clean_start=True)),
        *(
            quick(one(2, qos=2)),
            Fetch(),
            Release(1),
            Acknowledge(1),
            Save((one(3),), stale=True),
            Clear(stale=True),
            Fetch(),
        ),
        *(Open(stale=True), Open(), *saves(*range(4, 12), limit=2), Fetch(), Retry(), *saves(12), Retry(older=True)),
        *(
            Retry(),
            Fetch(count=1),
            Fetch(onward=True),
            Acknowledge(12),
            Fetch(),
            DrainQueue(),
            Quiesce(),
            Clear(),
            Open(),
        ),
    ],
    "two clients": [
        *(*saves(1, 2), *saves(3, 4, client=1), Fetch(0, 1), Fetch(1, 1), Acknowledge(1), Clear(0), Fetch(1)),
    ],
    "pages": [
        *(*saves(1, 2, 3), Fetch(count=1), Fetch(count=1, onward=True), Acknowledge(1), Fetch(count=2, onward=True)),
        Fetch(count=0),
    ],
    "contents of any bytes": [
        *(quick(Publication(label, payload, topic)) for label, (payload, topic) in enumerate(CONTENTS, 1)),
        *(
            Fetch(),
            quick(*(Publication(10 + n, b"again" + one, topic) for n, (one, topic) in enumerate(CONTENTS[:3]))),
        ),
        *(Fetch(count=1), Fetch()),
    ],
    "equal messages": [
        quick(Publication(1, b"same"), Publication(2, b"same")),
        *(Fetch(), DrainQueue(), quick(Publication(3, b"b"), Publication(4, b"a")), Fetch()),
    ],
}
"""Steps by name. Identifiers go round after three in the small world."""


NO_DEFAULT: dict[str, list[Step]] = {
    "messages that never expire": [
        *(*saves(1), quick(one(2, 1000), one(3, qos=2)), Fetch(), Wait(1), Fetch(), Release(3), Wait(999), Fetch()),
        *(Wait(20_000), Fetch(), Wait(10_000_000_000), Fetch(), Acknowledge(1), *saves(4, 5, limit=2), Fetch(count=1)),
        *(Acknowledge(3), quick(one(6, 0), one(7)), Retry(), Fetch(), DrainQueue(), Quiesce()),
    ],
}
"""With a default interval of 0, where callers may give one."""
NUMBERED_PRODUCERS: dict[str, list[Step]] = {
    "producers called as identifiers are": [
        *(Save((one(1),)), Save((one(2),), producer=1), Fetch(), Retry(0), Retry(1), Acknowledge(1), Fetch()),
        *(Save((one(3, qos=2),), producer=1), Retry(0), Fetch(), Release(3), Acknowledge(2), Save((one(4),)), Fetch()),
        *(
            Retry(),
            Retry(1),
            DrainQueue(),
            Retry(),
            Quiesce(),
            Save((one(5),)),
            Clear(),
            Open(clean_start=True),
            *saves(6),
        ),
    ],
}


FORBIDDEN: dict[str, list[Step]] = {
    "an empty batch": [quick()],
    **{f"an interval of {ms / 1000:g} s": [quick(one(4), one(5, ms))] for ms in FORBIDDEN_INTERVALS},
    "limit 0": saves(4, limit=0),
    "limit -1": saves(4, limit=-1),
    "an answer to packet identifier 0": [Answer(0), Answer(0, release=True)],
    "an answer to packet identifier 65536": [Answer(MODULUS + 1), Answer(MODULUS + 1, release=True)],
}
"""Steps that no caller may take, unless the binding promises otherwise. Each comes after a few messages, in a run of
its own."""


def run_scenarios(small: Subject, findings: Findings) -> None:
    """Run each; what they break goes to ``findings``."""
    for name, steps in SCENARIOS.items():
        _run(small, findings, name, [fitted_step(step, small) for step in steps])
    for name, steps in NO_DEFAULT.items() if small.may_have_no_default else ():
        _run(small, findings, name, [fitted_step(step, small) for step in steps], default_expiry_ms=0)
    for name, steps in NUMBERED_PRODUCERS.items():
        _run(small, findings, name, [fitted_step(step, small) for step in steps], producers=NUMBERED)
    if small.store.capabilities.checks_limit and small.limit is None:
        _run(small, findings, "limits that no queue can keep", _wrong_limits(small.binding.modulus))
    if _beside(small, [quick(one(4), one(5))], findings):
        return  # it goes wrong with what callers do give
    for name, steps in FORBIDDEN.items():
        fitted = [fitted_step(step, small) for step in steps]
        if any(forbidden_in(step, small.store.capabilities) for step in fitted):
            _try_forbidden(small, findings, name, fitted)


def _run(
    small: Subject,
    findings: Findings,
    name: str,
    steps: Iterable[Step],
    default_expiry_ms: int = DEFAULT_EXPIRY_MS,
    producers: tuple[bytes, ...] = PRODUCERS,
) -> None:
    run = small.run(CLIENTS, default_expiry_ms, producers)
    run.coverage = findings.coverage
    take_steps(small, run, steps, findings, f"the scenario '{name}'")


def _wrong_limits(modulus: int) -> list[Step]:
    """For a store that promises to decline them: a full queue, which none of them may touch."""
    steps = saves(1, 2, 3, limit=min(3, modulus))
    for label, limit in enumerate((0, -1, modulus + 1), 4):
        steps += [*saves(label, limit=limit), Fetch()]
    return [*steps, *saves(9, limit=2), DrainQueue(), Quiesce()]


def _try_forbidden(small: Subject, findings: Findings, name: str, steps: list[Step]) -> None:
    """What a store does with what no caller may give is worth a word, and accuses of little."""
    told = _beside(small, steps, findings, f"the scenario '{name}'")
    if told:
        findings.notes.append(f"with {name}, which no caller may give: {told}")


def _beside(small: Subject, steps: list[Step], findings: Findings, analysis: str = "") -> str:
    """What goes wrong when ``steps`` are taken among others; what any input may be blamed for goes to ``findings``."""
    run, taken = small.run(), []
    for step in (*saves(1, 2), Fetch(), *steps, Retry(), *saves(8), Fetch()):
        fitted = fitted_step(step, small)
        report = run.perform(fitted)
        if report.result is None:
            continue
        taken.append(fitted)
        if analysis:
            findings.add(report.discrepancies, small.trace(taken), analysis)
        found = report.beside or (report.discrepancies if not analysis else [])
        if found or report.diverges:
            return found[0].text if found else ""
    return ""
