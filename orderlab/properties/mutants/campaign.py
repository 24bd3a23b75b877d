"""Many mutants, judged in parallel, each in a process of its own; what is known is kept and not judged again; the
score.

Two rounds: every mutant through the quick analyses; then, if any are left, the original is tabulated once and they are
compared with it and looked at for longer. A mutant's result is a file of its own in the output folder."""

from __future__ import annotations

import hashlib
import json
import statistics
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from orderlab.model.errors import InputError
from orderlab.model.files import read_json, write_whole
from orderlab.model.laws import STORE_LAWS
from orderlab.properties.contracts.kind import Kind, kind_of, trace_from_json
from orderlab.properties.mutants.mutant import OUTCOMES, Mutant, Result
from orderlab.properties.validation.effort import STANDARD
from orderlab.properties.validation.isolated import SCRIPT_SECONDS_MAX
from orderlab.properties.validation.verdict_cache import program_digest
from orderlab.sim.redis.lua.watchdog import CANCELLED, Unfinished, watch
from orderlab.sim.stores.binding.binding import Binding

BUDGETS_MAX = 30
"""Wall time of a judgement, in budgets: machines are shared."""
JUDGE_FAILED = "the judge failed"
"""How the text of a result begins that is none: the mutant counts as survived, and is judged again the next time."""

T = TypeVar("T")
Progress = Callable[[int, int, str], None]
"""Told how many are done, of how many, and what is going on."""


@dataclass(frozen=True)
class Judged:
    """A mutant and what became of it."""

    mutant: Mutant
    result: Result

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**self.mutant.to_json(), **self.result.to_json()}


@dataclass
class Campaign:
    """The mutants of one store."""

    binding: Binding
    mutants: Sequence[Mutant]
    seed: int
    budget_s: float
    jobs: int
    folder: Path | None = None
    """Where results are kept; None: nowhere."""
    effort: float = STANDARD
    """Work on each mutant, in the unit of ``orderlab validate``."""
    results: dict[Mutant, Result] = field(default_factory=dict)
    scope: list[str] = field(default_factory=list)
    """What mutants were compared with the original in, if any were."""
    interrupted: bool = False

    def run(self, progress: Progress = lambda done, of, text: None) -> list[Judged]:
        """Judge all of them; those that are judged when Ctrl-C comes.

        Raises InputError when the store itself breaks a law, for then a broken law says nothing of a mutant.
        """
        self._resume()
        try:
            self._judge_what_is_left(progress)
        except KeyboardInterrupt:  # while the original was looked at: what is known already is told all the same
            self.interrupted = True
        return [Judged(one, self.results[one]) for one in self.mutants if one in self.results]

    def _judge_what_is_left(self, progress: Progress) -> None:
        left = [mutant for mutant in self.mutants if mutant not in self.results]
        if left:
            progress(0, len(self.mutants), "the original")
            self._check_original()
            self._round(left, lambda one: self._quickly(one), progress, keeps_survivors=False)
            left = [mutant for mutant in left if mutant not in self.results]
        if left and not self.interrupted:
            table = self._watched(partial(self._kind.tabulate, self.binding), seconds_max=None)
            if isinstance(table, Unfinished):
                raise InputError(f"{self.binding.place}: the store itself cannot be explored: {table.reason}; fix it")
            self.scope = [] if table is None else table.scope
            self._round(left, lambda one: self._thoroughly(one, table), progress)

    @property
    def _kind(self) -> Kind:
        return kind_of(self.binding)

    def _check_original(self) -> None:
        work = partial(self._kind.judge_original, self.binding, self.seed, self.budget_s, self.effort)
        found = self._watched(work, seconds_max=None)
        if isinstance(found, Result) and found.outcome != "survived":
            raise InputError(
                f"{self.binding.place}: the store itself breaks {found.law} ({found.text}); "
                "run orderlab validate on it and fix it first"
            )

    # -- one mutant, in a process of its own ---------------------------------------------------------------------------

    def _quickly(self, mutant: Mutant) -> Result | None:
        return self._judged(
            partial(self._kind.judge_quickly, mutant.of(self.binding), self.seed, self.budget_s, self.effort)
        )

    def _thoroughly(self, mutant: Mutant, table: Any) -> Result | None:
        mutated = mutant.of(self.binding)
        given = self.seed, self.budget_s, self.effort
        return self._judged(partial(self._kind.judge_thoroughly, mutated, mutant.script, table, *given))

    def _judged(self, work: Callable[[], Result]) -> Result | None:
        """None when there was no time to end."""
        try:
            answer = self._watched(work, BUDGETS_MAX * max(self.budget_s, 10.0))
        except Exception as error:  # the judge itself stumbled over what the mutant does: that is for its authors
            return Result("survived", text=f"{JUDGE_FAILED}: {type(error).__name__}: {error}")
        if isinstance(answer, Unfinished):
            if answer.reason == CANCELLED:
                return None
            return Result("timed out", "bounded", answer.reason, None, "the watchdog", answer.seconds)
        return answer

    def _watched(self, work: Callable[[], T], seconds_max: float | None) -> T | Unfinished:
        answer = watch(
            work,
            script_seconds_max=SCRIPT_SECONDS_MAX,
            seconds_max=seconds_max,
            is_cancelled=lambda: self.interrupted,
        )
        return answer if isinstance(answer, Unfinished) else answer.value

    # -- all of them ---------------------------------------------------------------------------------------------------

    def _round(
        self,
        left: Sequence[Mutant],
        judge: Callable[[Mutant], Result | None],
        progress: Progress,
        keeps_survivors: bool = True,
    ) -> None:
        """Threads that wait for processes. A result is kept as soon as it is there."""
        lock = threading.Lock()
        before = len(self.mutants) - len(left)
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                futures: dict[Future[Result | None], Mutant] = {pool.submit(judge, one): one for one in left}
                for done, future in enumerate(as_completed(futures), 1):
                    result, mutant = future.result(), futures[future]
                    if result is not None and (keeps_survivors or result.outcome != "survived"):
                        with lock:
                            self.results[mutant] = result
                            self._keep(mutant, result)
                    progress(before + done, len(self.mutants), f"{mutant.place} {mutant.operator}")
            except KeyboardInterrupt:
                self.interrupted = True
                pool.shutdown(wait=True, cancel_futures=True)

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def context(self) -> bytes:
        """Everything that a result depends on beside its mutant: the store, the judge, effort, budget and seed."""
        told = hashlib.sha256(repr((self.seed, self.budget_s, self.effort, self.binding.store)).encode())
        for file in sorted(self.binding.path.glob("*.py")):  # a contract of the store's owner
            told.update(file.name.encode() + file.read_bytes())
        for script in self.binding.scripts:
            told.update(script.name.encode() + script.source)
        told.update(program_digest())
        return told.digest()

    def _file(self, context: bytes, mutant: Mutant) -> Path:
        assert self.folder is not None
        return self.folder / f"{mutant.digest(context)}.json"

    def _resume(self) -> None:
        if self.folder is None:
            return
        self._context = self.context
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--out {self.folder}: {error.strerror}; name a folder that can be written") from None
        for mutant in self.mutants:
            file = self._file(self._context, mutant)
            if file.is_file():
                try:
                    self.results[mutant] = Result.from_json(read_json(file)["result"], str(file), trace_from_json)
                except (InputError, ValueError, KeyError, TypeError, OSError):
                    continue  # not a result of ours: judged again, and written anew

    def _keep(self, mutant: Mutant, result: Result) -> None:
        """Write a result for the next run. What made the judge stumble may have been the machine: that is judged
        again."""
        if self.folder is not None and not result.text.startswith(JUDGE_FAILED):
            content = {"mutant": mutant.to_json(), "result": result.to_json()}
            write_whole(self._file(self._context, mutant), json.dumps(content, indent=1).encode())


@dataclass(frozen=True)
class Score:
    """The sum of many judgements."""

    judged: Sequence[Judged]
    laws: tuple[str, ...] = tuple(STORE_LAWS)
    """That the store is held to."""

    @cached_property
    def outcomes(self) -> dict[str, int]:
        """How many met each fate."""
        found = Counter(one.result.outcome for one in self.judged)
        return {outcome: found[outcome] for outcome in OUTCOMES}

    @property
    def detected(self) -> int:
        """Killed, or timed out: a script that does not end breaks the law ``bounded``."""
        return self.outcomes["killed"] + self.outcomes["timed out"]

    @property
    def score(self) -> float:
        """Detected, of those that are not equivalent; 1 when there are none."""
        meant = len(self.judged) - self.outcomes["equivalent"]
        return self.detected / meant if meant else 1.0

    @property
    def median_s_to_kill(self) -> float:
        """Seconds of one core, from a warm process to the witness at full scale."""
        times = [one.result.cpu_s for one in self.judged if one.result.outcome == "killed"]
        return statistics.median(times) if times else 0.0

    @property
    def survivors(self) -> list[Judged]:
        """What nothing noticed and what is not the original."""
        return [one for one in self.judged if one.result.outcome == "survived"]

    @property
    def equivalents(self) -> list[Judged]:
        """What cannot be told from the original within the scope."""
        return [one for one in self.judged if one.result.outcome == "equivalent"]

    def by_operator(self) -> dict[str, dict[str, int]]:
        """Operator -> outcome -> how many."""
        found: dict[str, dict[str, int]] = {}
        for one in self.judged:
            row = found.setdefault(one.mutant.operator, dict.fromkeys(OUTCOMES, 0))
            row[one.result.outcome] += 1
        return found

    def by_law(self) -> dict[str, int]:
        """How many each law was the first to kill."""
        return dict(Counter(one.result.law for one in self.judged if one.result.law).most_common())

    @property
    def laws_beside(self) -> list[str]:
        """Laws that were never the first to break, and broke beside another."""
        first = self.by_law()
        seen = {law for one in self.judged for law in one.result.beside}
        return [law for law in self.laws if law in seen and law not in first]

    @property
    def idle_laws(self) -> list[str]:
        """Laws that no mutant was seen to break, first or beside another."""
        known = {*self.by_law(), *self.laws_beside}
        return [law for law in self.laws if law not in known]

    def to_json(self) -> dict[str, Any]:
        """Plain values, every mutant among them."""
        return {
            "mutants": len(self.judged),
            "score": round(self.score, 4),
            "outcomes": self.outcomes,
            "median_s_to_kill": round(self.median_s_to_kill, 3),
            "by_operator": self.by_operator(),
            "by_law": self.by_law(),
            "laws_only_beside_others": self.laws_beside,
            "laws_that_kill_nothing": self.idle_laws,
            "judged": [one.to_json() for one in self.judged],
        }
