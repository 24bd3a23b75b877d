"""The suite's own contracts of a feed and of a job queue: stores that keep them, flaws that do not, and what promises
may say."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from orderlab.model.contracts.base import AnyOf, Call, Failed, Reply
from orderlab.model.contracts.client_steps import Begin
from orderlab.model.contracts.feed.contract import FeedStore
from orderlab.model.contracts.feed.promises import BAD_MARKERS, Promises
from orderlab.model.contracts.job_queue.contract import JobQueue
from orderlab.model.contracts.job_queue.promises import DEAD, DELAYED, LEASED, Job, Queue
from orderlab.model.contracts.job_queue.promises import Promises as QueuePromises
from orderlab.model.contracts.sequential import BOUNDED, NO_RESIDUE, SequentialTerms
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.properties.engine import growth
from orderlab.properties.engine.crowds import crowd
from orderlab.properties.engine.growth import measure
from orderlab.properties.engine.run import ContractRun
from orderlab.properties.engine.search import Search, opened
from orderlab.properties.engine.validation import contract_of, note_growth, run_of, validate_contract
from orderlab.properties.engine.witness import ContractReruns
from orderlab.properties.validation.findings import Findings
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding

LUA = Path(__file__).parents[4] / "lua"
FLAWED = sorted(path.name for path in (LUA / "specimens").iterdir() if path.name.startswith(("feed-", "job-")))
SEEN_SOON = (
    "feed-deleted-by-any",
    "feed-released-to-the-end",
    "job-attempt-counted-twice",
    "job-resumed-in-silence",
    "job-moves-all-at-once",
    "job-taken-is-popped",
)
FEW = 0.1


def broken(name: str, effort: float, laws: Iterable[str] | None = None) -> set[str]:
    """Of ``laws``, with a search that ends once each is broken; else of all."""
    found = validate_contract(load_binding(LUA / name), WorkOrder(effort, laws=laws, only_first=laws is not None))
    return {one.law for one in found.results if one.outcome is Outcome.VIOLATED}


@pytest.mark.parametrize("name", ["feed", "job_queue", "job_queue_blocking"])
def test_the_bundled_stores_keep_every_law_and_put_each_to_the_test(name: str) -> None:
    found = validate_contract(load_binding(LUA / name), WorkOrder(FEW))
    judged = [one for one in found.results if not one.not_applicable]
    assert {one.law: (one.outcome, one.tested > 0) for one in judged} == {
        one.law: (Outcome.HOLDS, True) for one in judged
    }
    assert [one.law for one in found.results if one.not_applicable] == (["wake-up"] if name == "job_queue" else [])


@pytest.mark.parametrize("name", SEEN_SOON)
def test_a_flaw_that_shows_soon_is_caught_by_the_law_that_it_breaks(name: str) -> None:
    specimen = load_binding(LUA / "specimens" / name).specimen
    assert specimen is not None
    assert set(specimen.breaks) <= broken(f"specimens/{name}", FEW, specimen.breaks)


LISTED = "if #line < 200 then"
FOR_KEYS = "for key = 2, 5 do"
REPEATED = "until alive >= count or #found == 0"


NEIGHBOURS = (
    ("list.lua", LISTED, "if #line < 199 then"),
    ("claim.lua", REPEATED, "until #found == 0"),
    ("delete.lua", FOR_KEYS, "for key = 5, 2, -1 do"),
)
"""Of the edits that break something at length: as like them as can be, and lawful."""


READ = "messages that are read"


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Of a feed's crowds those in which something shows: the lawful neighbours meet all of them."""
    crowds = FeedStore.crowds
    monkeypatch.setattr(FeedStore, "crowds", lambda contract: [one for one in crowds(contract) if one.name in names])


def feed_with(*edits: tuple[str, str, str]) -> Binding:
    """The bundled feed with pieces of its scripts replaced."""
    binding = load_binding(LUA / "feed")
    sources = {one.name: one.source.decode() for one in binding.scripts}
    for script, find, replace in edits:
        assert sources[script].count(find) == 1
        sources[script] = sources[script].replace(find, replace)
    return binding.with_sources({script: sources[script].encode() for script, _, _ in edits})


@pytest.mark.parametrize(
    ("edit", "by_crowd"),
    [
        (("claim.lua", REPEATED, "until true"), {"messages before the last that have lapsed": "specification"}),
        # One of each 501 is left out, and passed over by a claim.
        (
            ("post.lua", "for first = 1, #new, 500 do", "for first = 1, #new, 501 do"),
            {READ: "retention", "messages under one claim": "fifo"},
        ),
    ],
)
def test_what_shows_in_a_crowd_alone(
    edit: tuple[str, str, str], by_crowd: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, *by_crowd)
    assert set(at_length(feed_with(edit), grown=False).by_law) == {*by_crowd.values()}


def test_what_shows_in_many_rounds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "ROUNDS", growth.ROUNDS[:1])
    assert set(at_length(feed_with(("delete.lua", FOR_KEYS, "for key = 3, 5 do")), crowded=False).by_law) == {
        "no-residue"
    }


def test_what_shows_at_length_alone_has_a_short_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, READ)
    found = validate_contract(feed_with(("list.lua", LISTED, "if #line <= 200 then")), WorkOrder(0.01, any_law=True))
    assert {one.law for one in found.results if one.outcome is Outcome.VIOLATED} == {"progress"}


def test_their_lawful_neighbours_break_nothing_at_length() -> None:
    assert at_length(feed_with(*NEIGHBOURS)).by_law == {}


@pytest.mark.parametrize(
    "names",
    [(READ, "messages", "messages before the last that have lapsed"), pytest.param((), marks=pytest.mark.exhaustive)],
    ids=["some", "all"],
)
def test_a_feed_of_transactions_breaks_nothing_in_a_crowd(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if names:
        only(monkeypatch, *names)
    assert at_length(load_binding(LUA / "feed_watched"), grown=False).by_law == {}


def at_length(binding: Binding, crowded: bool = True, grown: bool = True, counts_lua: bool = False) -> Findings:
    """What a store does wrong with many things, or after many rounds."""
    contract = contract_of(binding)

    def make(clients: int = 3) -> ContractRun:
        return ContractRun(binding, contract, KernelBackend(), clients)

    reruns, findings = ContractReruns(make), Findings(frozenset(SequentialTerms(contract).laws))
    if crowded:
        crowd(make, Search(reruns, findings), counts_lua)
    if grown:
        note_growth(measure(make, lambda: False), reruns, findings)
    return findings


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FLAWED)
def test_every_flaw_is_caught_by_the_law_that_it_breaks(name: str) -> None:
    specimen = load_binding(LUA / "specimens" / name).specimen
    assert specimen is not None
    assert set(specimen.breaks) <= broken(f"specimens/{name}", 10.0)


@pytest.mark.parametrize(
    ("promises", "told"),
    [
        ("atempts_max = 2", 'promises: unknown key "atempts_max"; did you mean "attempts_max"?'),
        ('priority = "fifo"', 'promises.priority: unknown value "fifo"'),
        ("attempts_max = -1", "promises.attempts_max: input should be greater than or equal to 0, not -1"),
    ],
)
def test_a_promise_that_is_none_is_one_line(tmp_path: Path, promises: str, told: str) -> None:
    (tmp_path / "store.toml").write_text(
        f'specification = "job_queue"\n[promises]\n{promises}\n[operations.add]\ncommand = ["PING"]\n'
    )
    with pytest.raises(InputError) as refused:
        load_binding(tmp_path)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("promise", "replies"), [("any", {"duplicate", "added"}), ("free", {"added"}), ("held", {"duplicate"})]
)
def test_whether_a_dead_job_holds_its_key_is_the_stores_to_say(promise: str, replies: set[str]) -> None:
    contract = JobQueue(QueuePromises.model_validate({"dead_key": promise}))
    dead = contract.initial()._replace(jobs=(Job("j1", DEAD, key="k"),))
    again = Call.of("add", job="j2", payload="p", delay_ms=0, priority=0, key="k")
    assert {reply for reply, _ in contract.outcomes(dead, again, 0)} == replies
    assert [
        reply
        for reply, _ in contract.outcomes(
            dead, Call.of("add", job="j2", payload="p", delay_ms=0, priority=0, key=""), 0
        )
    ] == ["added"]


@pytest.mark.parametrize(
    ("promise", "replies"), [("any", {"duplicate", "added"}), ("free", {"duplicate", "added"}), ("held", {"duplicate"})]
)
def test_a_job_whose_last_lease_has_lapsed_may_be_dead_already_and_so_its_key_free(
    promise: str, replies: set[str]
) -> None:
    contract = JobQueue(QueuePromises.model_validate({"dead_key": promise, "attempts_max": 2}))
    again = Call.of("add", job="j2", payload="p", delay_ms=0, priority=0, key="k")

    def told(**job: Any) -> set[Reply]:
        state = contract.initial()._replace(jobs=(Job("j1", LEASED, key="k", until_ms=10, **job),))
        return {reply for reply, _ in contract.outcomes(state, again, 11)}

    assert told(attempts=2, is_over=True) == replies
    assert told(attempts=1, is_over=True) == {"duplicate"}
    assert told(attempts=2) == {"duplicate"}


def test_a_contract_that_leaves_nothing_open_takes_no_promises(tmp_path: Path) -> None:
    (tmp_path / "lease.py").write_text((LUA / "lock" / "lease.py").read_text())
    (tmp_path / "store.toml").write_text(
        'specification = "lease.py:Lease"\n[promises]\nfast = 1\n[operations.acquire]\ncommand = ["PING"]\n'
    )
    with pytest.raises(InputError, match="leaves nothing to settle; remove the table"):
        load_binding(tmp_path, trust_adapter=True)


MARKED = "if not string.find(marker, '^%d+$') then"


@pytest.mark.parametrize(
    ("replace", "promise", "told"),
    [
        ("if not tonumber(marker) then", "", "list(marker='-1', count=2)"),
        ("if not tonumber(marker) then", "start", ""),
        ("if not string.find(marker, '^%-?%d+$') then", "end", "list(marker='-1', count=2)"),
        ("if false then", "any", ""),
    ],
)
@pytest.mark.usefixtures("smallest_scopes")  # such markers are tried where there are few messages
def test_a_marker_that_nobody_was_told_is_answered_as_the_store_says(replace: str, promise: str, told: str) -> None:
    binding = feed_with(("list.lua", MARKED, replace))
    contract = binding.contract
    assert isinstance(contract, FeedStore)
    if promise:
        contract.promises = contract.promises.model_copy(update={"marker_negative": promise})
    found = validate_contract(
        binding, WorkOrder(0.01, laws=SequentialTerms(contract).laws.keys() - {NO_RESIDUE, BOUNDED}, any_law=True)
    )
    broken = {one.law: one.witnesses[0].finding.text for one in found.results if one.witnesses}
    assert set(broken) == ({"specification"} if told else set())
    assert all(told in text for text in broken.values())


def test_each_kind_of_bad_marker_is_put_to_the_test() -> None:
    for promise in BAD_MARKERS.values():
        binding = load_binding(LUA / "feed")
        contract = binding.contract
        assert isinstance(contract, FeedStore)
        wrong = "start" if getattr(contract.promises, promise) == "refused" else "refused"
        contract.promises = contract.promises.model_copy(update={promise: wrong})
        found = validate_contract(binding, WorkOrder(FEW, any_law=True))
        assert [one.law for one in found.results if one.witnesses] == ["specification"], promise


@pytest.mark.parametrize(
    ("script", "find", "replace"),
    [
        # A job that failed comes back too late: only the situation "with a job that has failed once" waits for so long.
        ("settle.lua", "2 ^ (job[3] - 1)", "2 ^ (job[3] + 1)"),
        # One that comes back joins the line by another number than its priority.
        ("take.lua", "redis.call('ZADD', KEYS[2], job[2], member)", "redis.call('ZADD', KEYS[2], job[1], member)"),
    ],
)
def test_a_job_that_comes_back_does_so_in_time_and_by_its_priority(script: str, find: str, replace: str) -> None:
    binding = load_binding(LUA / "job_queue")
    source = next(one.source for one in binding.scripts if one.name == script).decode()
    assert source.count(find) == 1
    found = validate_contract(
        binding.with_sources({script: source.replace(find, replace).encode()}), WorkOrder(0.02, any_law=True)
    )
    assert [one.law for one in found.results if one.witnesses] == ["order"]


def test_the_end_is_told_by_a_flag_and_by_nothing_else() -> None:
    contract = FeedStore(Promises(tells_end=True))
    told = {flag: contract.page(("m", flag, ("a", "pa"))) for flag in (0, "0", None, 1, "1")}
    assert [page and page.is_end for page in told.values()] == [False, False, False, True, True]
    assert [contract.page(("m", flag, ("a", "pa"))) for flag in (2, "end", -1, ("b", "pb"))] == [None] * 4


def test_a_store_that_refuses_to_be_asked_for_so_many_says_so() -> None:
    few, many = (Call.of("list", marker="", count=count) for count in (10, 11))
    for count_max, call, is_refused in [(10, many, True), (10, few, False), (0, many, False)]:
        contract = FeedStore(Promises(count_max=count_max))
        (outcome, _), *_ = contract.outcomes(contract.initial(), call, 0)
        assert isinstance(outcome, AnyOf)
        assert outcome.accepts(Failed("ERR too many")) == is_refused


def test_of_claims_that_have_lapsed_none_is_forgotten_when_another_is_handed_out() -> None:
    binding = load_binding(LUA / "feed")
    source = next(one.source for one in binding.scripts if one.name == "claim.lua").decode()
    forgets = source.replace("redis.call('ZADD', KEYS[4], unpack(back))", "redis.call('ZADD', KEYS[2], unpack(back))")
    assert forgets != source
    for edited, is_wrong in [(source, False), (forgets, True)]:
        run = ContractRun(
            binding.with_sources({"claim.lua": edited.encode()}), contract_of(binding), KernelBackend(), 2
        )
        opening = next(one for one in run.contract.openings() if one.name == "with claims that have lapsed")
        assert opened(run, opening, lambda steps, report: None) is not None
        for token in ("a", "b"):
            found = run.perform(Begin(0, Call.of("claim", token=token, count=1, ttl_ms=1000))).violation
            assert (found is not None) == (is_wrong and token == "b")


def test_a_store_is_asked_only_for_what_it_is_told() -> None:
    queue = JobQueue(QueuePromises(lease_ms=30_000), {"add": {"job"}, "take": set(), "recover": set()})
    calls = list(queue.calls(0, ()))
    assert {(one["delay_ms"], one["key"]) for one in calls if one.name == "add"} == {(0, "")}
    assert {one["lease_ms"] for one in calls if one.name == "take"} == {30_000}
    assert not any("delay" in one.name for one in queue.crowds())
    feed = FeedStore(Promises(retention_ms=60_000), {"post": {"posts"}, "list": {"marker"}})
    calls = list(feed.calls(0, ()))
    assert {one["ttl_ms"] for one in calls if one.name == "post"} == {60_000}
    assert {one["count"] for one in calls if one.name == "list"} == {1000}
    all_of_it = JobQueue().calls(0, ())  # of a store whose adapter alone knows, everything
    assert {(one["delay_ms"], one["key"]) for one in all_of_it if one.name == "add"} == {(0, ""), (0, "k"), (500, "k")}


@pytest.mark.parametrize(("promise", "replies"), [("lost", ["lost"]), ("ok", ["ok"]), ("any", ["lost", "ok"])])
def test_what_a_delete_says_of_a_message_that_is_gone_is_the_stores_to_say(promise: str, replies: list[str]) -> None:
    feed = FeedStore(Promises.model_validate({"gone": promise}))
    again = Call.of("delete", message="z0", token="")
    assert [reply for reply, _ in feed.outcomes(feed.initial(), again, 0)] == replies


@pytest.mark.parametrize(
    ("held", "laws"), [("is_held and holder ~= token or", set()), ("is_held and token == '' or", {"exclusive-claim"})]
)
def test_who_held_a_claim_before_tries_its_token_on_the_claim_of_another(held: str, laws: set[str]) -> None:
    binding = feed_with(("delete.lua", "is_held and holder ~= token or", held))
    run = ContractRun(binding, contract_of(binding), KernelBackend(), 2)
    (passed,) = (one for one in run.contract.openings() if one.name == "with a claim that has passed to another")
    assert opened(run, passed, lambda way, report: None) is not None
    (late,) = (one for one in run.contract.calls(0, run.clients[0].seen) if one.name == "delete" and one["token"])
    violation = run.perform(Begin(0, late)).violation
    assert laws == (set() if violation is None else set(violation.laws))


@pytest.mark.parametrize(("key", "laws"), [("KEYS[2]", {"no-loss"}), ("KEYS[1]", set())])
def test_nothing_of_a_job_that_was_cleaned_is_left(key: str, laws: set[str]) -> None:
    binding = load_binding(LUA / "job_queue")
    source = next(one.source for one in binding.scripts if one.name == "clean.lua")
    run = run_of(binding.with_sources({"clean.lua": source.replace(b"'HDEL', KEYS[1]", f"'HDEL', {key}".encode())}))
    (dead,) = (one for one in run.contract.openings() if one.name == "with a job that is dead")
    assert opened(run, dead, lambda way, report: None) is not None
    broken: set[str] = set()
    for at in range(2):  # a clean, and the name of what it removed once more
        violation = run.perform(Begin(0, run.contract.calls(0, run.clients[0].seen)[at])).violation
        broken |= set() if violation is None else set(violation.laws)
    assert broken == laws


@pytest.mark.parametrize(
    ("store", "laws"), [("specimens/job-renews-beside-the-score", {"exclusive-lease"}), ("job_queue", set())]
)
def test_one_call_shows_a_lease_that_was_renewed_for_nothing(store: str, laws: set[str]) -> None:
    run = run_of(load_binding(LUA / store))
    (renewed,) = (one for one in run.contract.openings() if "was renewed" in one.name)
    assert opened(run, renewed, lambda way, report: None) is not None
    then, broken = run.state, set[str]()
    for call in run.contract.calls(0, run.clients[0].seen):
        run.go_to(then)
        violation = run.perform(Begin(0, call)).violation
        broken |= set() if violation is None else set(violation.laws)
    assert broken == laws


@pytest.mark.parametrize(
    ("waits", "due", "promotes", "handed_out"),
    [
        (0, 1, "take", {"waits"}),  # a job that comes back is not better for it
        (1, 0, "take", {"due"}),
        (1, 0, "promote", {"waits", "due"}),  # nobody has let it join yet, or somebody did
        (0, 0, "take", {"waits", "due"}),
    ],
)
def test_a_delay_that_is_over_gives_no_precedence_and_takes_none(
    waits: int, due: int, promotes: Any, handed_out: set[str]
) -> None:
    queue = JobQueue(QueuePromises(priority="low first", promotes=promotes, tells=("job",), tokens="caller"))
    jobs = (Job("waits", priority=waits), Job("due", DELAYED, due, until_ms=5, is_over=True))
    state, take = Queue(jobs), Call.of("take", token="t", lease_ms=1000)
    fits = [reply for reply, _ in queue.outcomes(state, take, 9) if isinstance(reply, AnyOf)]
    assert {name for name in ("waits", "due") if any(one.accepts((name,)) for one in fits)} == handed_out
    if promotes == "take":
        assert {name for name in ("waits", "due") if queue.order(state, take, (name,), 9)} == handed_out
