"""The witness of a law that needs no contract, as JSON, and its steps taken again.

The scripts are those that lie at its path now: where they were repaired, the same steps break no law any more. On a
server a step breaks a law where it does on the kernel, and the server replies and keeps the like.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orderlab.model.errors import InputError
from orderlab.properties.draft.contractless import (
    PAGE_MAX,
    SMALL_PAGE,
    Breach,
    Examination,
    FirstVerdict,
    ProbeStep,
    StoredState,
)
from orderlab.properties.draft.facts import Facts, all_facts
from orderlab.properties.draft.probing import Bench, Foreign, ProbeCall, Probed, ProbeRun, probed, shape_of, source_run
from orderlab.properties.export.transcript import Move, commands_between, shown_keys
from orderlab.properties.harness.recording import shown_bytes
from orderlab.properties.lint.subjects import scripts_at
from orderlab.sim.redis.backends import Backend, KernelBackend
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.redis.versions import DEFAULT, ServerVersion
from orderlab.sim.stores.binding.lua_text import pages_in, with_pages


def witness_of(breach: Breach, path: str, version: str, is_read_only: bool) -> dict[str, Any]:
    """Plain values; bytes as Latin-1 text."""
    return {
        "scripts": path,
        "server": version,
        "law": breach.law,
        "read_only": is_read_only,
        "steps": [_step_to_json(step, breach) for step in _steps_of(breach)],
    }


def _steps_of(breach: Breach) -> Iterator[ProbeStep]:
    if not breach.growth:
        if len(breach.calls) == 1:
            yield from commands_between({}, breach.run.before)
        yield from breach.calls
        return
    kept: FrozenKeyspace = {}
    for run in breach.growth:
        yield from commands_between(kept, run.before)
        yield run.call
        kept = run.after


def _step_to_json(step: ProbeStep, breach: Breach) -> dict[str, Any]:
    if isinstance(step, int):
        return {"passes_ms": step}
    if not isinstance(step, ProbeCall):
        return {"command": _texts(step)}
    told: dict[str, Any] = {"call": step.script.name, "keys": _texts(step.keys), "arguments": _texts(step.arguments)}
    if step.function:
        told["function"] = step.function
    if breach.foreign is not None and step is breach.calls[-1]:
        told["foreign"] = [*_texts([breach.foreign.key]), breach.foreign.type]
    return told


def _texts(values: Sequence[bytes]) -> list[str]:
    return [value.decode("latin-1") for value in values]


@dataclass
class Rerun:
    """The steps of a witness on the scripts that lie at its path now, and beside the kernel on ``server``. Raises
    InputError where a script is not there any more."""

    path: Path
    law: str
    steps: Sequence[Mapping[str, Any]]
    version: ServerVersion = DEFAULT
    is_read_only: bool = False
    """The scripts are said to write nothing."""
    server: Backend | None = None
    facts: dict[tuple[str, str], Facts] = field(default_factory=dict)
    runs: list[ProbeRun] = field(default_factory=list)

    def __post_init__(self) -> None:
        scripts, _ = scripts_at([self.path], is_binding_ignored=True)
        self.facts = {(each.script.name, each.function): each for each in all_facts(scripts)}
        self.bench = Bench(KernelBackend(version=self.version))
        self.verdict = FirstVerdict((), self.version)

    def moves(self) -> Iterator[Move]:
        """What there was before, then each step as it is taken."""
        start_ms = self.bench.backend.now_ms
        state = StoredState({}, start_ms)
        if self.server is not None:
            self.server.flush()
        yield Move("", "the store is empty")
        for number, step in enumerate(self.steps, 1):
            move, state = self._taken(step, state, number)
            yield replace(move, state=shown_keys(state.keyspace, start_ms), keys=state.keyspace)
        if self.server is not None:
            self.server.flush()

    def _taken(self, step: Mapping[str, Any], state: StoredState, number: int) -> tuple[Move, StoredState]:
        try:
            if "passes_ms" in step:
                return self._wait(int(step["passes_ms"]), state)
            if "command" in step:
                return self._command(_bytes(step["command"]), state)
            name = (str(step["call"]), str(step.get("function", "")))
            keys, arguments = _bytes(step["keys"]), _bytes(step["arguments"])
            planted = [str(text) for text in step.get("foreign", ())]
            foreign = Foreign(planted[0].encode("latin-1"), planted[1]) if planted else None
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise InputError(
                f"steps[{number - 1}]: no step ({type(error).__name__}: {error}); write the witness again"
            ) from None
        facts = self.facts.get(name)
        if facts is None:
            raise InputError(
                f"{self.path}: no script {' '.join(filter(None, name))} there, which step {number} calls; "
                "name the folder or file that has it with --store"
            )
        return self._call(facts, ProbeCall(facts.script, keys, arguments, facts.function), foreign, state)

    def _wait(self, ms: int, state: StoredState) -> tuple[Move, StoredState]:
        if self.server is not None:
            self.server.advance(ms)
        return Move("", f"{ms:,} ms pass", passed_ms=ms), StoredState(state.keyspace, state.now_ms + ms)

    def _command(self, argv: tuple[bytes, ...], state: StoredState) -> tuple[Move, StoredState]:
        backend = self.bench.backend
        backend.set_now(state.now_ms)
        backend.load(state.keyspace)
        backend.execute(*argv)
        if self.server is not None:
            self.server.execute(*argv)
        shown = " ".join(map(shown_bytes, argv))
        return Move("client", shown if len(shown) <= 160 else f"{shown[:160]}..."), StoredState(
            backend.keyspace(), state.now_ms
        )

    def _call(
        self, facts: Facts, call: ProbeCall, foreign: Foreign | None, state: StoredState
    ) -> tuple[Move, StoredState]:
        """One call, with the laws that it breaks."""
        carry_out = self.bench.counted if self.law == "bounded" else self.bench.run
        run = carry_out(call, state.keyspace, state.now_ms)
        self.verdict.violations.clear()
        names = frozenset({call.name} if self.is_read_only else ())
        judge = Examination(self.verdict, self.bench, names, 0, None)
        if foreign is None:
            judge.look_at(Probed(facts, call.keys, replace(run, error="")), run, state)
        else:
            for effect in [each for each in run.effects if each.keys == (foreign.key,)][:1]:
                judge.stop_at(run, state, effect)
            run = self.bench.run(call, state.keyspace, state.now_ms, foreign)
        self.runs = [*[each for each in self.runs if each.call.name == call.name][-2:], run]
        if self.law == "bounded" and len(self.runs) == 3 and self._grows_past_pages(call):
            judge.compare(self.runs)
        broken = tuple((breach.law, breach.headline) for breach in self.verdict.violations)
        answer = answer_of(run.reply, run.error)
        if self.server is not None and (otherwise := self._otherwise(run, foreign)):
            answer, broken = f"{otherwise} (on the kernel: {answer})", ()
        fault = f"{shown_bytes(foreign.key)} holds a {foreign.type}" if foreign else ""
        return Move("client", call.told, answer, fault, broken), StoredState(run.after, state.now_ms)

    def _grows_past_pages(self, call: ProbeCall) -> bool:
        """Whether more is stored in the three runs than the script takes at once, or validation finds that it grows
        past its largest page all the same."""
        source = call.script.source
        if not pages_in({source}) and with_pages(source, PAGE_MAX, SMALL_PAGE) == source:
            return True
        bench = Bench(KernelBackend(version=self.version))
        verdict = FirstVerdict(probed([*self.facts.values()], bench), self.version)
        Examination(verdict, bench, frozenset(), 0, None).grow()
        return any(breach.run.call.name == call.name for breach in verdict.violations)

    def _otherwise(self, run: ProbeRun, foreign: Foreign | None) -> str:
        """What the server replied or kept, where that is another thing than on the kernel."""
        server, call = self.server, run.call
        assert server is not None
        if run.is_endless:
            raise InputError(f"{call.name} does not end, and would keep the server busy; leave out --backend")
        if foreign is not None:
            server.execute(b"SET" if foreign.type == "string" else b"RPUSH", foreign.key, b"planted")
        if call.function:
            server.execute(b"FUNCTION", b"LOAD", b"REPLACE", source_run(call.script))
        reply = server.execute(*call.argv)
        if foreign is not None:
            server.execute(b"DEL", foreign.key)
        error = reply.message.decode("utf-8", "replace") if isinstance(reply, ErrorReply) else ""
        if shape_of(reply) != shape_of(run.reply) or error.split(" ")[0] != run.error.split(" ")[0]:
            return answer_of(reply, error)
        kept, known = (
            {key: (kind, until is not None) for key, (kind, _, until) in keys.items()}
            for keys in (server.keyspace(), {key: kept for key, kept in run.after.items() if not _is_over(kept, run)})
        )
        if kept != known:
            return f"{answer_of(reply, error)}, and keeps {', '.join(map(shown_bytes, sorted(kept))) or 'no keys'}"
        return ""


def _is_over(kept: tuple[str, Any, int | None], run: ProbeRun) -> bool:
    return kept[2] is not None and kept[2] <= run.now_ms


def _bytes(values: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(str(value).encode("latin-1") for value in values)


def answer_of(reply: Reply, error: str) -> str:
    """A reply in words, or the error."""
    return error or f"{shape_of(reply)} {_reply(reply)}".rstrip()


def _reply(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_reply, value))}]"[:200]
    return shown_bytes(value)[:200] if isinstance(value, bytes) else "" if value is None else str(value)
