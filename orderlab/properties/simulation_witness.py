"""A simulated run judged, its witnesses told where the message was, and made shorter.

A run follows from its system, settings and seed, so what a history says is missing is looked for in the same run,
watched.

Made shorter (``shrunk``) means: fewer clients, messages, faults and nodes, faults that last less, an earlier end,
settings at their defaults, as long as the same law is broken by the same cause. That is: the same finding but for its
numbers, the fault of the same name to blame, the same stage that had the message last or turned the order, and lost or
withheld alike. Which fault is to blame is not asked where faults are left out: one that the violation does without
goes, though it was blamed; and at the end each that is left is taken away by itself, which proves it where the law is
not broken then. The search is greedy, tries what is smallest first, and is the same each time; what it ends
with can be shortened by no single change that it knows, or the runs that it may make are over.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orderlab.model.checkers.findings import Finding
from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.errors import InputError
from orderlab.model.history.events import EventBatch, EventKind
from orderlab.model.verdict import Outcome, Verdict
from orderlab.sim.faults import FAULTS
from orderlab.sim.systems.blame import FaultAt, FeedWatch, Wanted, Watch
from orderlab.sim.systems.catalogue import entry, settings_of
from orderlab.sim.systems.devices import DeviceSystem
from orderlab.sim.systems.settings import Settings

PROVED_MAX = 8
"""Faults that are taken away one by one, each in a run of its own."""
PROVED_ROWS = 160_000
"""Of the histories of all runs that are made again, each without one of its faults: they are over within seconds."""
Needed = Mapping[str, Sequence[FaultAt]]
"""By law that a run breaks: its faults without which it does not."""


def located(
    verdicts: Iterable[Verdict], system: str, settings: Settings, seed: int, needed: Needed | None = None
) -> list[Verdict]:
    """The verdicts of a run, their witnesses completed with what became of the message; the run is made once more if
    one names a message. A law that is in ``needed`` is blamed on a fault that stands there, or on none."""
    verdicts = list(verdicts)
    wanted: dict[Wanted, int] = {}
    asked: dict[int, list[int]] = {}
    topic_matters = entry(system).is_feed
    for index, verdict in enumerate(verdicts):
        finding = verdict.witness
        if not isinstance(finding, Finding) or finding.publisher is None or finding.subscriber is None:
            continue
        sequences = [number for number in (finding.sequence, finding.other_sequence) if number is not None]
        topic = finding.topic if topic_matters else None
        asked[index] = [
            wanted.setdefault(Wanted(finding.publisher, number, finding.subscriber, topic), len(wanted))
            for number in sequences
        ]
    watch = _watched(system, settings, seed, list(wanted)) if wanted else None
    if watch is None:
        return verdicts
    for index, numbers in asked.items():
        finding = verdicts[index].witness
        if not numbers:
            continue
        watch.suspects = (needed or {}).get(verdicts[index].law)
        # The row of which is of what came instead.
        never = finding.event_id is None or verdicts[index].law == "cursor-safe"
        told = _told(watch, numbers[0], not never, finding)
        if told is not None and len(numbers) > 1:
            in_order = sorted(numbers, key=lambda number: watch.wanted[number].sequence)
            turned = watch.turned(in_order[0], in_order[1], _published_us(finding))
            told["turned_stage"], told["turned_at"] = (turned.stage, turned.told) if turned else (None, None)
            told["fault"] = turned.fault if turned else told["fault"]
            told["other_way"] = (_told(watch, numbers[1], True, finding) or {}).get("way")
        _name_row(told, finding)
        if told is not None and told["fault"] and watch.suspects is not None:
            told["fault"]["is_proved"] = True
        verdicts[index] = replace(verdicts[index], witness=replace(finding, where=told))
    return verdicts


def needed_faults(
    verdicts: Sequence[Verdict], rows: int, system: str, settings: Settings, seed: int, question: Question
) -> dict[str, list[FaultAt]]:
    """By law that the run breaks, the faults of its schedule without which, one left out at a time, it holds; none
    where it breaks without all. A law that breaks without any one, but not without all, is left out: which of them is
    to blame is not known. Nothing is tried of faults at random, of more than PROVED_MAX, of two alike at an instant, or
    where ``rows``, those of the history, are too many.
    """
    words = settings.model_dump().get("faults", "").split()
    struck = [(name, round(at_s * 1e6)) for name, at_s, _ in _words(" ".join(words))]
    broken = {verdict.law for verdict in verdicts if verdict.outcome is Outcome.VIOLATED}
    is_random = bool(settings.model_dump().get("fault_rates"))
    is_tried = 2 <= len(words) <= PROVED_MAX and len(words) * rows <= PROVED_ROWS and len({*struck}) == len(words)
    if not broken or is_random or not is_tried:
        return {}

    def broken_by(faults: Sequence[str]) -> set[str]:
        batches: list[EventBatch] = []
        given = {**settings.model_dump(), "faults": " ".join(faults)}
        assembled = entry(system).assemble(settings_of(system, given), seed, [batches.append])
        assembled.run()
        found, _ = judge(in_memory(system, batches, assembled.names()), question)
        return {verdict.law for verdict in found if verdict.outcome is Outcome.VIOLATED}

    without = [broken_by([*words[:index], *words[index + 1 :]]) for index in range(len(words))]
    needed = {law: [fault for fault, left in zip(struck, without, strict=True) if law not in left] for law in broken}
    anyway = set() if all(needed.values()) else broken_by([])
    return {law: faults for law, faults in needed.items() if faults or law in anyway}


def _told(watch: Watch | FeedWatch, number: int, arrived: bool, finding: Finding) -> dict[str, Any] | None:
    if isinstance(watch, Watch):
        return watch.told(number, arrived, _broken_us(finding))
    return watch.told(number, arrived, _published_us(finding), _broken_us(finding))


def _published_us(finding: Finding) -> float:
    return next((event["time_us"] for event in finding.events if event["kind"] == "publish"), 0)


def _broken_us(finding: Finding) -> float:
    return next((event["time_us"] for event in finding.events if event["event_id"] == finding.event_id), math.inf)


def _name_row(told: dict[str, Any] | None, finding: Finding) -> None:
    """Complete the fault to blame by its row, if the witness shows it; rows of faults at a reader name no node,
    so that of two at once none is named."""
    if told is not None and told["fault"]:
        fault = told["fault"]
        rows = [
            event
            for event in finding.events
            if (event["kind"], event["time_us"], event.get("operation"), event.get("node", fault["node"]))
            == ("fault", fault["at_us"], fault["name"], fault["node"])
        ]
        fault["event_id"] = rows[0]["event_id"] if rows and ("node" in rows[0] or len(rows) == 1) else None


def _watched(system: str, settings: Settings, seed: int, wanted: Sequence[Wanted]) -> Watch | FeedWatch:
    """The run, watched for these messages."""
    assembled: Any = entry(system).assemble(settings, seed, [])
    if isinstance(assembled, DeviceSystem):
        watch = Watch(wanted)
        watch.attach(assembled.world, assembled.names(), assembled.groups())
        assembled.run()
        return watch
    of_feed = FeedWatch(wanted)
    of_feed.attach(assembled)
    assembled.run()
    return of_feed


# -- the shortest run
# ----------------------------------------------------------------------------------------------------------

SHRINK_RUNS = 150
CLIENTS = ("publishers", "producers")
COUNTS = (
    "queues",
    "readers",
    "messages",
    "applications",
    "shared_groups",
    "group_members",
    "brokers",
    "redis_nodes",
    "redis_processes",
    "kafka_brokers",
    "partitions",
    "application_partitions",
    "shared_partitions",
    "topics",
    "shards",
    "nodes",
)
SCALED = {*CLIENTS, *COUNTS, "rate", "warm_up_s", "duration_s", "drain_s", "faults", "fault_rates"}
"""What has a pass of its own; all else goes back to its default."""
LADDER = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500)
GRAIN_S = 0.005
"""By less nothing is made earlier."""
SECONDS = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
SEEDS = (0, 1, 2)
"""Fewer clients are other clients: which of them are hit is drawn anew, so a few seeds are tried beside the one
given."""


@dataclass(frozen=True)
class Cause:
    """What makes two violations the same one."""

    law: str
    why: str
    """Without the numbers of messages."""
    fault: str | None
    stage: str | None
    """Which had the message last, or turned the order."""
    state: str | None

    @classmethod
    def of(cls, verdict: Verdict) -> Cause:
        """The cause of a violation that was located."""
        finding = verdict.witness
        where: Mapping[str, Any] = finding.where or {}
        fault = where.get("fault")
        stage = where.get("turned_stage") or where.get("last_stage")
        return cls(verdict.law, re.sub(r"\d+", "", finding.why), fault and fault["name"], stage, where.get("state"))


@dataclass(frozen=True)
class Shrunk:
    """A run that breaks a law, and how many runs were made to find it."""

    system: str
    settings: Settings
    seed: int
    verdict: Verdict
    size: Mapping[str, float]
    """Clients, messages published, faults that struck, seconds until nobody publishes any more."""
    runs: int = 0
    is_finished: bool = True
    """Whether no change that is known shortens it further."""
    needed: tuple[str, ...] | None = None
    """Of its faults, as the schedule writes them, those without which the same run does not break the law; None if they
    are too many to try."""

    @property
    def proved(self) -> Verdict:
        """The verdict, whose witness says so if the fault that it blames is needed."""
        finding = self.verdict.witness
        fault = (finding.where or {}).get("fault")
        if fault is None or fault["name"] not in [word.partition("@")[0] for word in self.needed or ()]:
            return self.verdict
        where = {**finding.where, "fault": {**fault, "is_proved": True}}
        return replace(self.verdict, witness=replace(finding, where=where))

    def command(self, drain_bound_us: int | None = None) -> str:
        """The command line that makes the run again."""
        defaults = type(self.settings)().model_dump()
        changed = {
            key: value
            for key, value in self.settings.model_dump().items()
            if value != defaults[key] and value is not None
        }
        bound = [] if drain_bound_us is None else ["--drain-bound-ms", f"{drain_bound_us / 1000:g}"]
        told = (f"{key}={_written(value)}" for key, value in changed.items())
        return shlex.join(
            [
                "orderlab",
                "simulate",
                self.system,
                "--seed",
                str(self.seed),
                *bound,
                *(part for each in told for part in ("--set", each)),
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """All but the command, for which the question is needed."""
        return {
            "law": self.verdict.law,
            "seed": self.seed,
            "settings": self.settings.model_dump(),
            "size": dict(self.size),
            "runs": self.runs,
            "is_finished": self.is_finished,
            "needed_faults": None if self.needed is None else list(self.needed),
            "witness": self.verdict.to_json()["witness"],
        }


def shrunk(
    system: str, settings: Settings, seed: int, law: str, question: Question, runs_max: int = SHRINK_RUNS,
    on_run: Callable[[Shrunk], None] | None = None,
) -> Shrunk | None:  # fmt: skip
    """A run that breaks ``law`` by the same cause as the one given and is as small as a greedy search makes it; None if
    that one does not break it. ``on_run`` hears of the best so far after every run."""
    search = _Search(system, replace(question, laws=(law,)), runs_max, on_run)
    best = search.run(settings, seed)
    if best is None:
        return None
    search.begin(best)
    return search.shortest()


class _Search:
    def __init__(self, system: str, question: Question, runs_max: int, on_run: Callable[[Shrunk], None] | None) -> None:
        self.system, self.question, self.runs_max, self.on_run = system, question, runs_max, on_run
        self.runs = 0
        self._tried: set[tuple[str, int]] = set()
        self._is_cut = self._was_cut = False

    def begin(self, first: Shrunk) -> None:
        """Begin to shorten a run."""
        self.best, self.cause, self._was_cut = first, Cause.of(first.verdict), self._is_cut

    def shortest(self) -> Shrunk:
        """Go through all passes until none has found anything."""
        passes = (
            self._written_faults,
            self._fewer_clients,
            self._fewer_faults,
            self._closer_faults,
            self._shorter_faults,
            self._earlier_end,
            self._fewer_messages,
            self._fewer_nodes,
            self._plainer,
        )
        before = None
        while before is not self.best and self.runs < self.runs_max:
            before = self.best
            for each in passes:
                each()
        found = replace(self.best, runs=self.runs, is_finished=self.runs < self.runs_max)
        return replace(found, needed=self._needed(found))

    def _needed(self, found: Shrunk) -> tuple[str, ...] | None:
        """The faults that the run needs: each is left out by itself, and the law is not broken then."""
        words = found.settings.model_dump()["faults"].split()
        if len(words) > PROVED_MAX:
            return None
        without = {word: " ".join(words[:index] + words[index + 1 :]) for index, word in enumerate(words)}
        return tuple(word for word, faults in without.items() if not self._breaks(found, faults))

    def _breaks(self, found: Shrunk, faults: str) -> bool:
        settings = settings_of(self.system, {**found.settings.model_dump(), "faults": faults})
        return self.run(settings, found.seed) is not None

    # -- one run -----------------------------------------------------------------------------------------------

    def run(self, settings: Settings, seed: int) -> Shrunk | None:
        """The run, if it breaks the law."""
        self.runs += 1
        batches: list[EventBatch] = []
        assembled = entry(self.system).assemble(settings, seed, [batches.append])
        counts = assembled.run()["counts"]
        (verdict, *_), _ = judge(in_memory(self.system, batches, assembled.names()), self.question)
        self._is_cut = any((batch.kind == EventKind.CUT).any() for batch in batches)
        if verdict.outcome is not Outcome.VIOLATED:
            return None
        self._struck = _struck(assembled)
        given = settings.model_dump()
        size = {
            "clients": next(given[name] for name in CLIENTS if name in given),
            "messages": counts.get("published", 0),
            "faults": counts.get("faults", 0),
            "published_for_s": round(given["warm_up_s"] + given["duration_s"], 6),
        }
        (verdict,) = located([verdict], self.system, settings, seed)
        return Shrunk(self.system, settings, seed, verdict, size)

    def _try(self, changes: Mapping[str, Any], seed: int | None = None, by_any_fault: bool = False) -> bool:
        """Whether the best with these changes breaks the law by the same cause (``by_any_fault``: but for the fault to
        blame); it is the best then."""
        seed = self.best.seed if seed is None else seed
        given = {**self.best.settings.model_dump(), **changes}
        key = repr(sorted(given.items())), seed
        if (
            key in self._tried
            or self.runs >= self.runs_max
            or (given, seed) == (self.best.settings.model_dump(), self.best.seed)
        ):
            return False
        self._tried.add(key)
        try:
            found = self.run(settings_of(self.system, given), seed)
        except InputError:  # a system that cannot be, or a fault that strikes nothing there
            return False
        cause = None if found is None else Cause.of(found.verdict)
        if (
            cause is not None
            and by_any_fault
            and replace(cause, fault=self.cause.fault) == self.cause
            and self._is_cut <= self._was_cut
        ):
            self.cause = cause
        is_same = cause == self.cause and self._is_cut <= self._was_cut
        if found is not None and is_same:
            self.best = found
        if self.on_run is not None:
            self.on_run(replace(self.best, runs=self.runs))
        return is_same

    def _first(self, candidates: Iterable[Mapping[str, Any]], seeds: Sequence[int | None] = (None,)) -> None:
        """Take the first that is the same, if any."""
        for changes in candidates:
            for seed in seeds:
                if self._try(changes, seed):
                    return

    # -- passes ------------------------------------------------------------------------------------------------

    def _now(self, name: str) -> Any:
        return getattr(self.best.settings, name, None)

    def _written_faults(self) -> None:
        """What struck at random is written down, so that each can go by itself."""
        if self._now("fault_rates"):
            known = {_word(*each) for each in _words(self._now("faults"))}
            more = [word for word in self._struck if word not in known]
            self._try({"faults": " ".join([*known, *more]), "fault_rates": ""})

    def _fewer_clients(self) -> None:
        for name in CLIENTS:
            if self._now(name):
                self._first(_lower(name, self._now(name)))
                self._first(_lower(name, self._now(name)), SEEDS)

    def _fewer_faults(self) -> None:
        """Halves first, then one by one."""
        size = len(self._now("faults").split())
        while size >= 1:
            start = 0
            while start < len(words := self._now("faults").split()):
                if not self._try({"faults": " ".join(words[:start] + words[start + size :])}, by_any_fault=True):
                    start += size
            size //= 2

    def _shorter_faults(self) -> None:
        """By a few lengths first, then by bisection between the longest that was too short and what is enough."""
        for index in range(len(self._now("faults").split())):
            name, _, rest = list(_words(self._now("faults")))[index]
            lasts = rest.split(":")[2:]
            enough_s, too_short_s = float(lasts[0]) if lasts else _lasts_s(self.best.settings, name), 0.0
            for shorter_s in sorted(each for each in {*SECONDS, round(enough_s / 2, 3)} if each < enough_s):
                if self._try_lasting(index, shorter_s):
                    enough_s = shorter_s
                    break
                too_short_s = shorter_s
            while enough_s - too_short_s > GRAIN_S and self.runs < self.runs_max:
                middle_s = round((enough_s + too_short_s) / 2, 4)
                if self._try_lasting(index, middle_s):
                    enough_s = middle_s
                else:
                    too_short_s = middle_s

    def _try_lasting(self, index: int, lasts_s: float) -> bool:
        faults = list(_words(self._now("faults")))
        name, at_s, rest = faults[index]
        faults[index] = name, at_s, f":{rest.split(':')[1]}:{lasts_s:g}"
        return self._try({"faults": " ".join(_word(*each) for each in faults)})

    def _closer_faults(self) -> None:
        """Less time between a fault and the next: that one and all after it strike earlier."""
        for index in range(1, len(self._now("faults").split())):
            faults = sorted(_words(self._now("faults")), key=lambda each: each[1])
            gap_s = faults[index][1] - faults[index - 1][1]
            self._first(
                {
                    "faults": " ".join(
                        _word(name, at_s - (gap_s - closer_s if place >= index else 0.0), rest)
                        for place, (name, at_s, rest) in enumerate(faults)
                    )
                }
                for closer_s in sorted({*SECONDS, round(gap_s / 2, 3)})
                if closer_s <= gap_s - GRAIN_S
            )

    def _earlier_end(self) -> None:
        """Nobody publishes long after the last fault, nor long before the first; and the run is over soon after."""
        for drain_s in SECONDS:
            if drain_s < self._now("drain_s") and self._try({"drain_s": drain_s}):
                break
        end_s = self._now("warm_up_s") + self._now("duration_s")
        last_s = max((at_s for _, at_s, _ in _words(self._now("faults"))), default=0.0)
        ends = [round(last_s + more, 6) for more in SECONDS] + [round((last_s + end_s) / 2, 6), round(end_s, 6)]
        self._first({"warm_up_s": 0.0, "duration_s": each} for each in ends if each <= end_s - GRAIN_S or each == end_s)
        faults = list(_words(self._now("faults")))
        end_s, first_s = (
            self._now("warm_up_s") + self._now("duration_s"),
            min((at_s for _, at_s, _ in faults), default=0.0),
        )
        self._first(
            {
                "faults": " ".join(_word(name, at_s - first_s + start_s, rest) for name, at_s, rest in faults),
                "warm_up_s": 0.0,
                "duration_s": round(end_s - first_s + start_s, 6),
            }
            for start_s in (*SECONDS, round(first_s / 2, 3))
            if start_s <= first_s - GRAIN_S
        )

    def _fewer_messages(self) -> None:
        rate = self._now("rate")
        if rate is not None:
            self._first({"rate": float(each)} for each in LADDER if each < rate)

    def _fewer_nodes(self) -> None:
        for name in COUNTS:
            if self._now(name):
                self._first(_lower(name, self._now(name)))

    def _plainer(self) -> None:
        """Settings go back to their defaults: all at once, or one by one."""
        defaults = type(self.best.settings)().model_dump()
        given = self.best.settings.model_dump()
        changed = {key: defaults[key] for key, value in given.items() if key not in SCALED and value != defaults[key]}
        if len(changed) > 1 and self._try(changed):
            return
        for key, value in changed.items():
            self._try({key: value})


def _written(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.removesuffix(".0") if isinstance(value, float) else text


def _lower(name: str, now: int) -> Iterator[dict[str, int]]:
    yield from ({name: each} for each in sorted({*LADDER, now // 2}) if 0 < each < now)


def _lasts_s(settings: Settings, fault: str) -> float:
    """Unless the schedule says it."""
    return settings.lasts_s[fault] if settings.lasts_s else FAULTS[fault].duration_us / 1e6


_FAULT = re.compile(r"([a-z-]+)@([0-9.]+)(.*)")


def _words(faults: str) -> Iterator[tuple[str, float, str]]:
    """(name, seconds, the rest as written) of each fault of a schedule."""
    for word in faults.split():
        match = _FAULT.fullmatch(word)
        assert match is not None, "the settings were checked"
        yield match[1], float(match[2]), match[3] or ":0"


def _word(name: str, at_s: float, rest: str) -> str:
    return f"{name}@{at_s:.6f}".rstrip("0").rstrip(".") + rest


def _struck(assembled: Any) -> list[str]:
    """The faults that struck, as a schedule writes them."""
    if not isinstance(assembled, DeviceSystem):
        return []
    names = assembled.world.names.all()
    numbers = [(name, at_us, names[node].rpartition("-")[2]) for name, node, at_us in assembled.world.measured.faults]
    return [_word(name, at_us / 1e6, f":{number if number.isdecimal() else 0}") for name, at_us, number in numbers]
