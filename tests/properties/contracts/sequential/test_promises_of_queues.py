"""What a job queue may promise of tokens, clocks, marks and replies: one queue in other projects' styles, and slips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from orderlab.model.contracts.base import Call
from orderlab.model.contracts.job_queue.contract import JobQueue
from orderlab.model.contracts.job_queue.promises import LEASED, WAITING, Job, Promises, Queue
from orderlab.model.contracts.judge import Judge
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.properties.engine.validation import SKEW_MS, never_passed, run_of, validate_contract
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.stores.binding.loader import load_binding

REGISTRY = Path(__file__).parent / "registry-queue"
FEW = 0.05
Edits = Mapping[str, Mapping[str, str]]
OWNER = "redis.call('HGET', KEYS[3], id) ~= ARGV[3] or "
UNOWNED: Edits = {"settle.lua": {OWNER: ""}, "store.toml": {'tokens = "caller"': 'tokens = "none"'}}
ANYBODY: Edits = {"settle.lua": {OWNER + "till < now": "redis.call('HEXISTS', KEYS[2], id) == 0"}}
WORKER: Edits = {"store.toml": {'tokens = "caller"': 'tokens = "worker"'}}
SILENT: Edits = {"settle.lua": {"return 'dead'": "return 0", "return 'retried'": "return 7"}}
TIME, NOW = "local t = redis.call('TIME')\n", "local now = t[1] * 1000 + math.floor(t[2] / 1000)"
ASKING = "local now = tonumber(ARGV[#ARGV])"
CLOCKS: Edits = {
    **{name: {TIME: "", NOW: ASKING} for name in ("settle.lua", "cleanup.lua", "dequeue.lua")},
    "store.toml": {
        '"<lease_ms>"]': '"<lease_ms>", "<now_ms>"]',
        '"<token>", "0"]': '"<token>", "0", "<now_ms>"]',
        'args = ["50"]': 'args = ["50", "<now_ms>"]',
    },
}
MARKS: Edits = {
    "cleanup.lua": {
        "for i, id in ipairs(ids) do\n": "for i, id in ipairs(ids) do\n"
        "  if redis.call('SADD', KEYS[6], id) == 0 then\n  redis.call('SREM', KEYS[6], id)\n",
        "else redis.call('RPUSH', KEYS[1], id) end\n": "else redis.call('RPUSH', KEYS[1], id) end\n  end\n",
    },
    "settle.lua": {"if what ==": "redis.call('SREM', KEYS[7], id)\nif what =="},
    "store.toml": {
        "[operations.add]": 'marked = "rq:{d}:marked"\n[operations.add]',
        '"failed", "tries"]': '"failed", "tries", "marked"]',
    },
}
UNTOKENED: Edits = {"store.toml": {'"complete", "<job>", "<token>"': '"complete", "<job>", ""'}}
APART: Edits = {
    "dequeue.lua": {"redis.call('HINCRBY', KEYS[5], id, 1)\n": ""},
    "settle.lua": {
        "if tries >= 2 then": "if redis.call('HINCRBY', KEYS[6], id, 1) >= 2 then",
        "redis.call('HDEL', KEYS[6], id)": "redis.call('HDEL', KEYS[6], id, id .. ':s')",
    },
    "cleanup.lua": {"if tries[i] >= 2 then": "if redis.call('HINCRBY', KEYS[5], id .. ':s', 1) > 1 then"},
}
TOGETHER: Edits = {"cleanup.lua": {"id .. ':s', 1": "id, 1"}}
COUNTED = 'attempts = "failed"\nstalls_max = 1'


def promising(text: str) -> Edits:
    return {"store.toml": {"[promises]\n": f"[promises]\n{text}\n"}}


def edited(folder: Path, *edits: Edits) -> None:
    """Write the queue with these edits."""
    for path in REGISTRY.iterdir():
        text = path.read_text()
        for edit in edits:
            for find, replace in edit.get(path.name, {}).items():
                assert find in text, find
                text = text.replace(find, replace, 1 if find == "if what ==" else -1)
        (folder / path.name).write_text(text)


def broken(folder: Path, *edits: Edits, laws: Sequence[str] | None = None) -> set[str]:
    """Of these laws, or of all, those that the queue with these edits breaks."""
    edited(folder, *edits)
    found = validate_contract(load_binding(folder), WorkOrder(FEW, laws=laws, only_first=laws is not None))
    return {one.law for one in found.results if one.outcome is Outcome.VIOLATED}


SOUND: Mapping[str, tuple[Edits, ...]] = {
    "worker": (WORKER,),
    "none": (UNOWNED,),
    "silent": (SILENT, promising('fails = "any"')),
    "clocks": (CLOCKS, promising('clocks = "agree"')),
    "marks": (MARKS, promising("recovers_after = 2")),
    "apart": (APART, promising(COUNTED)),
}
SLIPS: Mapping[str, tuple[tuple[Edits, ...], str]] = {
    "worker": ((WORKER, {"settle.lua": {OWNER: ""}}), "exclusive-lease"),
    "none": (({"store.toml": UNOWNED["store.toml"]}, ANYBODY), "exclusive-lease"),
    "silent": (
        (SILENT, promising('fails = "any"'), {"settle.lua": {"redis.call('RPUSH', KEYS[1], id)\n": ""}}),
        "no-loss",
    ),
    "untold": ((SILENT,), "specification"),
    "clocks": ((CLOCKS,), "exclusive-lease"),
    "marks": ((promising("recovers_after = 2"),), "exclusive-lease"),
    "apart": ((APART, promising(COUNTED), TOGETHER), "no-rerun"),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("promise", SOUND)
def test_a_queue_that_keeps_its_promise_breaks_nothing(promise: str, tmp_path: Path) -> None:
    assert broken(tmp_path, *SOUND[promise]) == set()


@pytest.mark.parametrize(
    "promise", [pytest.param(one, marks=[pytest.mark.exhaustive] if one == "clocks" else []) for one in SLIPS]
)
def test_a_queue_that_does_not_is_told(promise: str, tmp_path: Path) -> None:
    edits, law = SLIPS[promise]
    assert broken(tmp_path, *edits, laws=[law]) == {law}


@pytest.mark.parametrize(("text", "skews"), [('clocks = "agree"', {0}), ('clocks = "any"', {0, SKEW_MS})])
def test_a_clock_is_ahead_unless_clocks_agree(text: str, skews: set[int], tmp_path: Path) -> None:
    edited(tmp_path, CLOCKS, promising(text))
    binding = load_binding(tmp_path)
    assert set(run_of(binding).skews_ms) == skews


@pytest.mark.parametrize(("edits", "is_told"), [((UNOWNED,), False), ((), False), ((UNTOKENED,), True)])
def test_a_token_that_is_never_passed_is_told_where_there_is_one(
    edits: Sequence[Edits], is_told: bool, tmp_path: Path
) -> None:
    edited(tmp_path, *edits)
    binding = load_binding(tmp_path)
    assert binding.contract is not None
    assert any("never passes token" in gap for gap in never_passed(binding, binding.contract)) == is_told


def test_a_job_is_marked_first_and_then_brought_back() -> None:
    contract = JobQueue(Promises(recovers="recover", recovers_after=2))
    state = Queue((Job("j1", LEASED, until_ms=10, token="t", attempts=1),))
    told = []
    for _ in range(2):
        state = contract.elapse(state, 11)
        take = Call.of("take", token="u", lease_ms=10)
        told.append([reply for reply, _ in contract.outcomes(state, take, 11)])
        ((_, state),) = contract.outcomes(state, Call.of("recover"), 11)
    assert told == [[None], [None]]
    assert [one.status for one in state.jobs] == [WAITING]


def test_a_name_may_be_used_again_after_a_lease_of_which_nobody_heard() -> None:
    """Nobody heard of the second lease either, and its token is none of those that the name has had."""
    judge, add = (
        Judge(JobQueue(Promises(attempts_max=1)), 0),
        Call.of("add", job="j", payload="p", delay_ms=0, priority=0, key=""),
    )
    for round_ms in (0, 100, 200):
        judge.begin(0, add)
        assert judge.finish(0, "added") is None
        judge.begin(0, Call.of("take", token="t", lease_ms=10))
        judge.stop(0, "reply lost", part_way=False)
        judge.at(round_ms + 50)
        judge.begin(0, Call.of("recover"))
        assert judge.finish(0, 1) is None
        judge.begin(0, Call.of("clean", count=1))
        assert judge.finish(0, 1) is None


@pytest.mark.parametrize(("now_ms", "ends"), [(8999, False), (9001, True), (10_000, True)])
def test_in_whole_seconds_a_lease_may_end_up_to_a_second_early(now_ms: int, ends: bool) -> None:
    contract = JobQueue(Promises(recovers="recover", tokens="none", tells=("job",), resolution_ms=1000))
    state = Queue((Job("j1", LEASED, until_ms=10_000, token="", attempts=1),))
    call = Call.of("complete", job="j1", token="")
    assert ("lost" in [reply for reply, _ in contract.outcomes(state, call, now_ms)]) == ends
    law = next(law for law in contract.laws if law.name == "exclusive-lease")
    assert (law.check(contract, state, call, "lost", now_ms) is False) != ends


@pytest.mark.parametrize(
    "text", ['tokens = "none"\ntells = ["job", "token"]', "recovers_after = 2", 'recovers = "take"\nstalls_max = 1']
)
def test_promises_that_contradict_each_other_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "store.toml").write_text(
        f'specification = "job_queue"\n[promises]\n{text}\n[operations.add]\ncommand = ["PING"]\n'
    )
    with pytest.raises(InputError, match=r"tokens|recovers|stalls"):
        load_binding(tmp_path)


@pytest.mark.parametrize(("ties", "apart_ms", "first"), [("first", 0, "a"), ("any", 0, "ab"), ("any", 1, "a")])
def test_jobs_of_one_moment_go_in_any_order_where_that_is_promised(ties: str, apart_ms: int, first: str) -> None:
    contract = JobQueue(Promises(tokens="none", tells=("job",), ties=ties))  # type: ignore[arg-type]
    states = [contract.initial()]
    for at, name in enumerate("ab"):
        call = Call.of("add", job=name, payload="", delay_ms=0, priority=0, key="")
        states = [after for state in states for _, after in contract.outcomes(state, call, 1000 + at * apart_ms)]
    assert "".join(job.name for job in contract._handed_out(states[0])) == first
