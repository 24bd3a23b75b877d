"""A simulation as text: throughput, latencies, utilisation, what went wrong, the verdicts; the highest rate that is
sustained; measured costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orderlab.exit_codes import EXIT, printable
from orderlab.model.verdict import Outcome, Verdict
from orderlab.properties.simulation_witness import Shrunk
from orderlab.report.report import Subject
from orderlab.report.terminal import STYLE
from orderlab.report.timeline_page import VerdictsShown, compared, laws_changed
from orderlab.report.verdicts import print_verdicts, print_witness
from orderlab.report.words import counted
from orderlab.sim.costs.cost_model import load_costs
from orderlab.sim.costs.fit import Measured
from orderlab.sim.engine.few_runs import NOMINAL, nominal
from orderlab.sim.systems.progress import SimulationProgress
from orderlab.sim.systems.sustainable import RateTrial

BAR = 24
EACH_MAX = 12
"""Nodes whose utilisation is told one by one; --json tells it of all."""
CENSORED = 0.01
"""From this share on it is told how many messages are missing; below, it may be that the interval begins and ends
elsewhere for brokers than for publishers."""
BUSY = 0.9
"""From this utilisation on a processor is the limit."""


def print_simulation(
    console: Console,
    result: Mapping[str, Any],
    wall: Mapping[str, float],
    subject: Subject,
    verdicts: Sequence[Verdict],
    verbose: bool,
) -> None:
    """The verdict, then everything else that `--json` holds and a reader wants."""
    history = f"history of {result['history_rows']:,} rows, {result['history_digest']}"
    print_verdicts(console, history, subject, verdicts, verbose)
    through = result["throughput_per_s"]
    console.print(
        f"{result['system']}: {through['in']:,} msg/s in, {through['out']:,} msg/s out, "
        f"{result['measured_s']:g} s measured after warm-up"
    )
    console.print(warm_up_line(result["warm_up"]), highlight=False)
    console.print(latency_table(result["latency"]))
    if (censored := censored_line(result)) is not None:
        console.print(censored, highlight=False, soft_wrap=True)
    for line in what_decides(result):
        console.print(line, highlight=False, soft_wrap=True)
    console.print(usage_table(result))
    commands = result["redis_commands_per_s"]
    if commands["per_node"]:
        console.print(
            f"Redis: {commands['all']:,} commands/s in all, those of scripts included "
            f"({result['redis_requests_per_s']:,} calls/s, {result['driver_flushes_per_s']:,} flushes/s)"
        )
    for name in ("postgres", "lag_at_the_end"):
        if name in result:
            told = ", ".join(f"{what.replace('_', ' ')} {value:,}" for what, value in result[name].items())
            console.print(f"{name.replace('_', ' ')}: {told}")
    console.print("counted: " + ", ".join(f"{name} {count:,}" for name, count in result["counts"].items()))
    console.print(
        f"seed: {result['seed']}; {wall['assembling_s']:g} s to assemble, {wall['running_s']:g} s to run, "
        f"{wall['judging_s']:g} s to judge",
        highlight=False,
    )


def censored_line(result: Mapping[str, Any]) -> str | None:
    """Whether latencies lack what had not arrived when the run ended: the latest."""
    arrived, published = (
        (result["latency"].get("publish_to_delivery") or {}).get("count"),
        result["throughput_per_s"]["in"] * result["measured_s"],
    )
    counts = result["counts"]
    if (
        arrived is None
        or counts.get("delivered", 0) >= counts.get("published", 0)
        or arrived > (1 - CENSORED) * published
    ):
        return None
    return (
        f"publish to delivery is of {arrived / published:.1%} of what was published in that time: the rest did "
        "not arrive before the end of the run, and its latency is in no figure"
    )


def what_decides(result: Mapping[str, Any]) -> Iterator[str]:
    """Where the time goes: the parts of the way, packs of consumers, batches of producers; and how long faults hurt."""
    if result.get("stages_ms"):
        yield "on the way, ms: " + ", ".join(
            f"{name.replace('_', ' ')} {mean:g}" for name, mean in result["stages_ms"].items()
        )
    for kind, packs in result.get("packs", {}).items():
        sizes, cycles, busy = packs["records"], packs["cycle_ms"], packs["busy_ms"]
        yield (
            f"packs of {kind}: {_mean(sizes):.4g} records ({min(sizes):g} to {max(sizes):g} over {len(sizes)} "
            f"consumers), one in {_mean(cycles):.3g} ms "
            f"({min(cycles):g} to {max(cycles):g}), {_mean(busy):.3g} ms from poll to commit"
        )
    for kind, batch in result.get("batches", {}).items():
        yield (
            f"batches to {kind}: {batch['records']:g} records; {batch['full']:.0%} were full, "
            f"{1 - batch['full']:.0%} had lingered"
        )
    for one in result.get("recovery", ()):
        after = f"recovery not told: {one['why']}"
        if one["recovered_s"] is not None:
            after = f"recovered after {one['recovered_s']:g} s (in this run; --replications 10 tells an interval)"
        yield f"{one['fault']} on {one['node']} at {one['at_s']:g} s: {after}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def smaller_line(found: Shrunk, result: Mapping[str, Any]) -> str:
    """How small the run became, in how many runs."""
    size = found.size
    told = ", ".join(
        (
            counted(int(size["clients"]), "client"),
            counted(int(size["messages"]), "message"),
            counted(int(size["faults"]), "fault"),
            f"nobody publishes after {size['published_for_s']:g} s",
        )
    )
    more = "" if found.is_finished else "; a larger --shrink-runs may find a smaller one"
    return (
        f"smaller, by the same cause ({result['counts'].get('published', 0):,} messages before): {told}; found in "
        f"{counted(found.runs, 'run')}{more}"
    )


def print_shrunk(
    console: Console, found: Sequence[tuple[Shrunk, str]], result: Mapping[str, Any], was_asked: bool
) -> None:
    """The smaller runs, each with the command that makes it."""
    if not was_asked:
        console.print(
            "--shrink searches a smaller run that breaks the law by the same cause", highlight=False, soft_wrap=True
        )
    for each, command in found:
        console.print(f"\n{smaller_line(each, result)}", highlight=False, soft_wrap=True)
        print_witness(console, each.proved)
        console.print(f"  {proof(each)}", highlight=False, soft_wrap=True, markup=False)
        console.print(f"  again: {command}", highlight=False, soft_wrap=True, markup=False)


def proof(found: Shrunk) -> str:
    """What leaving out each fault that is left came to."""
    if not found.size["faults"]:
        return "no fault is needed: the law breaks in a run without any"
    if found.needed is None:
        return "which of its faults are needed was not tried: there are many; a larger --shrink-runs leaves fewer"
    if not found.needed:
        return "none of its faults is needed by itself: without any one of them the law still breaks, in another way"
    return f"needed: without {', and without '.join(found.needed)} the same run does not break the law"


def with_smaller(subject: Subject, found: Sequence[tuple[Shrunk, str]], result: Mapping[str, Any]) -> Subject:
    """The subject with a note of each smaller run: what it proves, and the command that makes it."""
    notes = [
        f"{each.verdict.law}: {smaller_line(each, result)}; {proof(each)}; again: {command}" for each, command in found
    ]
    return subject.model_copy(update={"notes": (*subject.notes, *notes)})


def judged_together(result: Mapping[str, Any]) -> VerdictsShown:
    """What the laws say of all replications."""
    rows = [joint_row(verdict) for verdict in result["verdicts"] if not verdict["vacuous"]]
    return VerdictsShown(result["outcome"], joint_answer(result), rows)


AGAINST_MAX = 60


def _set_to(run: Mapping[str, Any], key: str) -> str:
    value = run["settings"].get(key)
    return "none" if value is None or value == "" else str(value)


def print_comparison(console: Console, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """What another run, told before, has otherwise: settings, laws, then figures. Both with their verdicts."""
    others = before["settings"].keys() ^ now["settings"].keys()
    is_other = before["system"] != now["system"]  # whose own settings are no change
    changed = [f"system {before['system']} → {now['system']}"] if is_other else []
    changed += [
        f"{key} {_set_to(before, key)} → {_set_to(now, key)}"
        for key in {**before["settings"], **now["settings"]}
        if before["settings"].get(key) != now["settings"].get(key) and not (is_other and key in others)
    ]
    seeds = "" if before["seed"] == now["seed"] else f"; seed {before['seed']} → {now['seed']}"
    console.print(
        printable(f"against the other run: {', '.join(changed) or 'the same settings'}{seeds}"),
        highlight=False,
        soft_wrap=True,
        markup=False,
    )
    for line in laws_lines(before, now):
        console.print(printable(line), highlight=False, soft_wrap=True, markup=False)
    rows = compared(now, before)
    if not rows:
        console.print("no figure differs")
        return
    table = Table("figure", "before", "now", "change")
    for name, old, new in rows[:AGAINST_MAX]:
        change = f"{(new - old) / abs(old):+.1%}" if old and new is not None else ""
        table.add_row(
            escape(printable(name)), *("–" if each is None else f"{each:,.6g}" for each in (old, new)), change
        )
    console.print(table)
    if len(rows) > AGAINST_MAX:
        console.print(f"{len(rows) - AGAINST_MAX} more: --json tells them all")
    console.print("one run each: what differs by chance differs too; --replications tells intervals", highlight=False)


def laws_lines(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Which laws are newly violated, which no longer, and which differ otherwise; which are violated in both."""
    if "verdicts" not in before:
        yield "the other run tells no verdicts"
        return
    changed = laws_changed(now["verdicts"], before["verdicts"])
    for kind in dict.fromkeys(one["change"] for one in changed):
        named = [f"{one['law']} ({one['before']} → {one['now']})" for one in changed if one["change"] == kind]
        yield f"laws {kind}: {', '.join(named)}"
    broken = [{one["law"] for one in run["verdicts"] if one["outcome"] == Outcome.VIOLATED} for run in (before, now)]
    if both := sorted(broken[0] & broken[1]):
        yield f"laws violated in both: {', '.join(both)}"
    elif not changed:
        yield "no verdict differs"


def warm_up_line(warm_up: Mapping[str, Any]) -> str:
    """The rule by which the warm-up was cut, and whether it was cut late enough."""
    cut_s, by_mser = warm_up["cut_s"], warm_up["mser_5_cut_s"]
    line = f"warm-up: the first {cut_s:g} s are cut (fixed); "
    if by_mser is None:
        return line + "MSER-5 finds no cut: the run has not settled, or is too short to tell"
    settled = "settled" if warm_up["has_settled"] else "NOT settled: set warm_up_s higher"
    return line + f"MSER-5 on the mean latency would cut {by_mser:g} s: {settled}"


SHOWN = ("throughput_per_s.", "latency.", "utilisation.", "redis_commands_per_s.all")
HIDDEN = ("half_width", "count", "p95", "p99.9", "p50", "p90")


def shown_means(means: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The figures that are printed of replications."""
    return {
        path: mean
        for path, mean in means.items()
        if path.startswith(SHOWN) and not any(part in path for part in HIDDEN)
    }


def print_replications(console: Console, result: Mapping[str, Any], outcome: Outcome) -> None:
    """The verdict of all, then means with intervals over the replications."""
    runs = result["replications"]
    console.print(
        f"{joint_answer(result)} (exit code {int(EXIT[outcome])})",
        style=STYLE[outcome],
        highlight=False,
        soft_wrap=not console.is_terminal,
    )
    for warning in result["warnings"]:
        console.print(f"warning: {warning}", style=STYLE[Outcome.UNKNOWN], highlight=False, soft_wrap=True)
    table = Table("figure", "mean", "±", "least", "greatest")
    table.columns[0].overflow = "fold"
    for path, mean in shown_means(result["means"]).items():
        half = mean["half_width"]
        cells = [mean["mean"], half, mean["min"], mean["max"]]
        table.add_row(path, *("" if cell is None else f"{cell:,g}" for cell in cells))
    console.print(
        f"{result['system']}: {len(runs)} independent replications; ±: the longer half of the {nominal()} interval of "
        "the mean",
        highlight=False,
    )
    for line in (NOMINAL, result["unseen"]):
        console.print(line, highlight=False, soft_wrap=True)
    warm_up = result["warm_up"]
    console.print(
        f"warm-up: the first {warm_up['cut_s']:g} s of each are cut (fixed); by MSER-5 on the mean latency "
        f"{warm_up['settled_runs']} of {len(runs)} had settled by then",
        highlight=False,
    )
    console.print(table)
    censored = next(((run["seed"], told) for run in runs if (told := censored_line(run)) is not None), None)
    if censored is not None:
        console.print(f"in the run of seed {censored[0]}, {censored[1]}", highlight=False, soft_wrap=True)
    for one in result["recovery"]:
        console.print(recovery_line(one), highlight=False, soft_wrap=True)
    rows = [joint_row(verdict) for verdict in result["verdicts"]]
    laws = Table(*rows[0])
    for row in rows:
        laws.add_row(*row.values())
    console.print(laws)
    console.print(
        f"seed: {result['seed']}; of the replications: {', '.join(str(run['seed']) for run in runs)}", highlight=False
    )


def joint_row(verdict: Mapping[str, Any]) -> dict[str, str]:
    """A law over all replications, by column."""
    return {
        "law": verdict["law"],
        "verdict of all": f"{verdict['outcome']}{' (vacuous)' if verdict['vacuous'] else ''}",
        "runs": ", ".join(f"{count} {outcome}" for outcome, count in verdict["runs"].items()),
        "first seed": "" if verdict["seed"] is None else str(verdict["seed"]),
    }


def recovery_line(one: Mapping[str, Any]) -> str:
    """What a fault came to over replications."""
    place = f" on {one['node']}" if one["node"] else ""
    when = f" at {one['at_s']:g} s" if one["at_s"] is not None else ", drawn at random"
    told = f"{one['fault']}{place}{when}: recovered in {one['recovered_runs']} of {counted(one['runs'], 'run')}"
    if one["recovered_s"] is not None:
        told += f", on average after {one['recovered_s']:g} s"
        if one["low_s"] is not None:
            told += (
                f" ({nominal()} interval {one['low_s']:g} to {one['high_s']:g}; {one['least_s']:g} to "
                f"{one['greatest_s']:g} in single runs)"
            )
    return told + (f"; {one['carried']}" if one["carried"] else "") + (f"; else: {one['why']}" if one["why"] else "")


def joint_answer(result: Mapping[str, Any]) -> str:
    """The verdict of all replications in a sentence."""
    named = {
        outcome: [one["law"] for one in result["verdicts"] if one["outcome"] == outcome and not one["vacuous"]]
        for outcome in Outcome
    }
    first = next((one for one in result["verdicts"] if one["outcome"] == Outcome.VIOLATED), None)
    told = [
        f"{', '.join(named[outcome])} {word}"
        for outcome, word in ((Outcome.VIOLATED, "violated"), (Outcome.UNKNOWN, "undecided"))
        if named[outcome]
    ]
    seed = f", first with seed {first['seed']}" if first is not None else ""
    held = (
        f"{len(named[Outcome.HOLDS])} laws hold in {len(result['replications'])} replications"
        if named[Outcome.HOLDS]
        else ""
    )
    return f"{result['system']}: {'; '.join(filter(None, (*told, held))) or 'no law was tested'}{seed}"


def latency_table(latencies: Mapping[str, Mapping[str, Any]]) -> Table:
    """One row per stage, milliseconds."""
    table = Table("latency, ms", *(["mean", "50 %", "90 %", "99 %", "max"]), caption_justify="left")
    table.caption = "no ±: one run is one draw of its clients; --replications 10 draws others, and tells intervals"
    for name, latency in latencies.items():
        if not latency["count"]:
            continue  # nothing goes that way: a PUBACK with QoS 0
        cells = [latency["mean_ms"], latency["p50_ms"], latency["p90_ms"], latency["p99_ms"], latency["max_ms"]]
        table.add_row(name.replace("_", " "), *("" if cell is None else f"{cell:g}" for cell in cells))
    return table


def usage_table(result: Mapping[str, Any]) -> Table:
    """One row per kind of node."""
    table = Table("node", "number", "utilisation, mean", "each", "max", "offered load, max", "waiting, mean")
    for kind, used in result["utilisation"].items():
        waiting = result["mean_queue_length"][kind]
        table.add_row(
            kind,
            str(len(used)),
            f"{sum(used) / len(used):.1%}",
            " ".join(f"{each:.0%}" for each in used[:EACH_MAX]) + (" …" if len(used) > EACH_MAX else ""),
            f"{max(used):.1%}",
            f"{max(result['offered_load'][kind]):.1%}",
            f"{sum(waiting) / len(waiting):.3g}",
        )
    return table


def progress_line(progress: SimulationProgress) -> str:
    """The simulated time, and the rate."""
    rate = progress.messages / progress.wall_s if progress.wall_s > 0 else 0.0
    return f"{progress.simulated_s:.2f} s simulated, {progress.messages:,} messages, {rate:,.0f} messages/s"


def step_line(step: RateTrial) -> str:
    """One run, while the search goes on."""
    return (
        f"{step.rate_per_s:,.0f} msg/s published: mean latency {step.mean_ms:.1f} ms, "
        f"growing by {step.growth_ms_per_s:.1f} ± {step.growth_half_width:.1f} ms/s: {_word(step.is_sustained)}"
    )


def print_ceiling(console: Console, result: Mapping[str, Any]) -> None:
    """Everything that `--json` holds and a reader wants."""
    table = Table("published/s", "delivered/s", "mean latency, ms", "growth, ms/s", "±, of this run", "measured, s", "")
    for run in result["runs"]:
        table.add_row(
            f"{run['rate_per_s']:,.0f}",
            f"{run['out_per_s']:,}",
            *(
                "–" if told is None else f"{told:.{digits}g}"
                for told, digits in (
                    (run["mean_ms"], 4),
                    (run["growth_ms_per_s"], 3),
                    (run["growth_half_width_ms_per_s"], 3),
                )
            ),
            f"{run['measured_s']:g}",
            _word(run["sustained"]),
        )
    console.print(table)
    sustained, overloaded = result["sustainable_per_s"], result["overloaded_per_s"]
    console.print(
        f"{result['system']}: {sustained['in_and_out']:,} msg/s in and out ({sustained['in']:,} published) keep "
        "the mean "
        f"latency under {result['below_ms']:g} ms; {overloaded['in_and_out']:,} do not"
    )
    report = result["at_the_ceiling"]
    busy = {kind: max(used) for kind, used in report["utilisation"].items()}
    console.print("busy there: " + ", ".join(f"{kind} {used:.0%}" for kind, used in busy.items()) + "; " + _limit(busy))
    commands = report["redis_commands_per_s"]
    if commands["per_node"]:
        console.print(
            f"Redis: {max(commands['per_node']):,} commands/s on the busiest node, {commands['all']:,} in all"
        )
    console.print(
        f"seed: {result['seed']}; the search draws its clients once, and another seed has another ceiling: try some, "
        "or ask a "
        "capacity question (orderlab sweep) for an interval",
        highlight=False,
        soft_wrap=True,
    )


def _limit(busy: Mapping[str, float]) -> str:
    limits = [kind for kind, used in busy.items() if used >= BUSY]
    return f"the limit is {' and '.join(limits)}" if limits else "no processor is the limit: threads wait for something"


def _word(is_sustained: bool) -> str:
    return "sustained" if is_sustained else "overloaded"


def print_calibration(console: Console, measured: Mapping[str, Measured], redis: Mapping[str, Any], base: str) -> None:
    """Inner commands, whole calls, and what the model makes of them. Microseconds."""
    before = load_costs(base).redis
    server = next(iter(measured.values())).server
    console.print(f"{server}; microseconds on its main thread, other work of the machine included", highlight=False)
    table = Table("inner command", *(f"lua/{name}" for name in measured), "calls", f"{base}.toml")
    for name in sorted({command for found in measured.values() for command in found.commands}):
        told = [found.commands.get(name) for found in measured.values()]
        cells = ["" if each is None else f"{each[0]:.2f}" for each in told]
        known = before.commands_us.get(name)
        calls = sum(each[1] for each in told if each is not None)
        table.add_row(name, *cells, f"{calls:,}", "" if known is None else f"{known:g}")
    console.print(table)
    table = Table("whole call", *(f"lua/{name}" for name in measured))
    for operation in next(iter(measured.values())).operations:
        table.add_row(operation, *(f"{found.operations[operation]:.2f}" for found in measured.values()))
    console.print(table)
    table = Table("cost model", "measured", f"{base}.toml")
    for name in ("evalsha_us", "lua_per_message_us", "io_us", "syscall_us"):
        table.add_row(name, f"{redis[name]:g}", f"{getattr(before, name):g}")
    console.print(table)
