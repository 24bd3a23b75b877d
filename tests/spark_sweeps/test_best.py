"""The best configuration, against problems whose optimum is known."""

import json
import math

import numpy as np
import pytest

from orderlab.model.verdict import Outcome
from orderlab.spark_sweeps.questions.aims import Best, constraint_of
from orderlab.spark_sweeps.questions.answer import answer
from orderlab.spark_sweeps.questions.asking import AnsweredRun
from orderlab.spark_sweeps.questions.best import best, of_best
from orderlab.spark_sweeps.runs.job import load
from tests.in_process import orderlab

STATION = """
system = "tests.spark_sweeps.subjects:tuned"
{more}
[question]
kind = "best"
minimise = "ms"
subject_to = {subject_to}
runs = {runs}
batch = 8
[question.parameters]
producers = {{ from = 2, to = 12, integer = true }}
linger = {{ from = 0.1, to = 50.0, scale = "log" }}
cure = ["watch", "lua"]
"""


def station(more="", subject_to='["p99_ms <= 100", "violations == 0"]', runs=64):
    return STATION.format(more=more, subject_to=subject_to, runs=runs)


def ask_of(function):
    """Runs of ``function`` (parameters, rng) -> metrics, or None where it fails; the same seeds at every point."""

    def ask(name, points, replications, seeds=None):
        found = []
        for point, parameters in enumerate(points):
            for replication in range(replications):
                seed = replication if seeds is None else seeds[point]
                metrics = function(parameters, np.random.default_rng(seed))
                status = "failed" if metrics is None else "ok"
                found.append(
                    AnsweredRun(point, replication, dict(parameters), seed, status, "holds", metrics or {}, "replay")
                )
        return found

    return ask


SIX = {name: {"from": 0.0, "to": 1.0} for name in ("a", "b", "c")} | {
    "n": {"from": 1, "to": 16, "integer": True}, "size": [1, 10, 50, 150, 500], "mode": ["x", "y", "z"],
}  # fmt: skip


def _away(at):
    continuous = (at["a"] - 0.3) ** 2 + (at["b"] - 0.6) ** 2 + 0.5 * (at["c"] - 0.8) ** 2
    return continuous + ((at["n"] - 11) / 16) ** 2 + 0.2 * abs(math.log10(at["size"] / 50)) + 0.3 * (at["mode"] != "y")


def bowl(at, rng):
    return {"cost": 1 + _away(at) + 0.01 * rng.standard_normal(), "load": -1 + 0.01 * rng.standard_normal()}


def bound(at, rng):
    """Cheapest where a constraint ends: a + b >= 1.2."""
    away = 0.3 * (at["mode"] != "y") + ((at["n"] - 4) / 16) ** 2
    return {
        "cost": at["a"] + at["b"] + away + 0.005 * rng.standard_normal(),
        "load": 1.2 - at["a"] - at["b"] + 0.01 * rng.standard_normal(),
    }


def valley(at, rng):
    """Two parameters that only help together."""
    bent = 4 * (at["b"] - at["a"] ** 2) ** 2 + 0.5 * (1 - at["a"]) ** 2 + 0.2 * (at["mode"] != "z")
    return {"cost": 2 + bent + 0.01 * rng.standard_normal(), "load": at["n"] - 12.0}


PROBLEMS = [(bowl, 1.0), (bound, 1.2), (valley, 2.0)]


def found_by(problem, sampler, runs, seed):
    asked = Best.model_validate(
        {"kind": "best", "minimise": "cost", "subject_to": ["load <= 0.0"], "runs": runs, "sampler": sampler,
         "parameters": SIX}
    )  # fmt: skip
    return asked, best(asked, ask_of(problem), 1, seed)


@pytest.mark.parametrize(("problem", "optimum"), PROBLEMS, ids=lambda it: getattr(it, "__name__", ""))
def test_the_search_comes_near_a_known_optimum_and_never_breaks_a_constraint(problem, optimum):
    _, found = found_by(problem, "tpe", 120, 1)
    chosen = found.finalists[0]
    assert chosen.chosen
    assert problem(chosen.parameters, _Still())["load"] <= 0
    assert chosen.means[0] <= 1.2 * optimum
    assert found.runs <= 120


@pytest.mark.parametrize("sampler", ["random", "grid"])
def test_the_baselines_stay_within_their_runs(sampler):
    _, found = found_by(bowl, sampler, 120, 1)
    assert found.runs <= 120
    assert found.finalists[0].chosen
    assert len(found.tried) > 45


def test_failed_runs_and_values_that_are_no_number_are_no_measurement():
    def broken(at, rng):
        if at["mode"] == "y":
            return None
        return {"cost": math.nan if at["mode"] == "x" else 5 + at["a"], "load": -1 + 0.01 * rng.standard_normal()}

    asked, found = found_by(broken, "tpe", 100, 1)
    assert {one.parameters["mode"] for one in found.finalists} == {"z"}
    unmeasured = sum(tried.values is None for tried in found.tried.values())
    assert unmeasured
    assert any(
        note.startswith(f"{unmeasured} configurations were not measured") for note in of_best(asked, found).notes
    )


def test_no_configuration_meets_the_constraints():
    def far(at, rng):
        return {"cost": at["a"], "load": 1 + at["a"] + 0.01 * rng.standard_normal()}

    asked, found = found_by(far, "random", 60, 1)
    table = of_best(asked, found)
    assert table.outcome is Outcome.VIOLATED
    assert not any(row["chosen"] or row["meets"] or row["open"] for row in table.rows)


def test_what_lies_at_the_bound_stays_open():
    def near(at, rng):
        return {"cost": at["a"], "load": 0.01 * rng.standard_normal()}

    asked, found = found_by(near, "random", 60, 1)
    assert of_best(asked, found).outcome is Outcome.UNKNOWN


def test_a_count_that_was_0_in_every_run_is_at_most_0_and_what_that_leaves_unknown_is_told():
    def losing(at, rng):
        return {
            "cost": 1 + at["a"] + 0.01 * rng.standard_normal(),
            "load": float(at["mode"] == "x" and rng.random() < 0.5),
        }

    asked, found = found_by(losing, "random", 80, 1)
    table = of_best(asked, found)
    assert table.outcome is Outcome.HOLDS
    assert all(row["meets"] == (row["load <= 0"] == 0) for row in table.rows)
    (line,) = (note for note in table.notes if note.startswith("load <= 0: met, for each of "))
    runs, many = table.rows[0]["runs"], len(table.rows)
    share = 100 * (1 - (0.05 / many) ** (1 / runs))
    assert f"at most {share:.2g} % of all runs" in line
    assert constraint_of("load < 0").is_met_exactly([0.0]) is False


@pytest.mark.parametrize(("sampler", "why"), [("tpe", "the search found"), ("grid", "the grid has")])
def test_runs_that_a_search_has_no_use_for_are_counted(sampler, why):
    few = {"mode": ["x", "y"], "size": [1, 10, 50]}
    asked = Best.model_validate(
        {"kind": "best", "minimise": "cost", "runs": 100, "sampler": sampler, "parameters": few}
    )  # fmt: skip
    found = best(asked, ask_of(lambda at, rng: {"cost": at["size"] + rng.standard_normal()}), 1, 1)
    (line,) = (note for note in of_best(asked, found).notes if "left over" in note)
    assert line.startswith(f"{100 - found.runs} of 100 runs were left over: {why} no further configuration.")


def test_a_strict_bound_is_not_met_by_equality():
    assert constraint_of("a < 0").excess(0.0) > 0
    assert constraint_of("a <= 0").excess(0.0) == 0
    assert constraint_of("a >= 2").excess(1.5) == 0.5
    assert constraint_of("a == 2").excess(2.0) == 0


def test_a_stopped_search_goes_on_with_the_same_proposals(sweep_file, pool, tmp_path):
    path = sweep_file(station(runs=32))
    sweep, plan = load(path)
    whole = answer(path, sweep, plan, pool, None)
    rounds = sorted(part.name for part in whole.folder.iterdir() if part.is_dir())
    assert rounds == [*(f"batch-{number:04d}" for number in range(3)), "final"]

    again = sweep.model_copy(update={"output": str(tmp_path / "again")})

    class Stopped(Exception):
        pass

    def stop(progress):
        if (tmp_path / "again" / "batch-0001").exists():
            raise Stopped

    with pytest.raises(Stopped):
        answer(path, again, plan, pool, stop)
    assert not (tmp_path / "again" / "answer.json").exists()
    resumed = answer(path, again, plan, pool, None)
    assert (resumed.rows, resumed.digest) == (whole.rows, whole.digest)
    for name in rounds:
        points = [json.loads((folder / name / "sweep.json").read_text())["sweep"] for folder in
                  (whole.folder, resumed.folder)]  # fmt: skip
        assert points[0] == points[1]
    chosen = whole.rows[0]
    assert (chosen["cure"], chosen["chosen"]) == ("lua", True)


@pytest.mark.parametrize(
    ("more", "change", "told"),
    [
        ("", ("minimise", "minimize"), "question.minimize: unknown key"),
        ("", ('minimise = "ms"', 'minimise = "ms"\nmaximise = "ms"'), "give either minimise"),
        ("", ('minimise = "ms"', "minimise = []"), "give either minimise"),
        ("", ('minimise = "ms"', 'minimise = ["ms", "violations"]'), "is a constraint, not an aim"),
        ("", ("violations == 0", "violations = 0"), "is no constraint"),
        ("", ("runs = 64", "runs = 3"), "question.runs"),
        ("", ("runs = 64", 'runs = "64"'), "question.runs: Input should be a valid integer"),
        ("", ('["watch", "lua"]', "[]"), "question.parameters.cure"),
        ("[axes]\nx = [1, 2]", ("", ""), "move them there"),
        ('[record]\nmetrics = ["ms"]', ("", ""), "p99_ms is not recorded"),
    ],
)
def test_a_question_that_makes_no_sense_is_one_line(more, change, told, sweep_file):
    text = station(more).replace(*change) if change[0] else station(more)
    ended = orderlab("sweep", sweep_file(text), "--engine", "pool")
    assert ended.returncode == 2
    assert told in " ".join(ended.stderr.split())


def test_a_metric_that_no_run_shows_is_told_after_the_first_of_them(sweep_file):
    text = station(runs=200).replace('minimise = "ms"', 'minimise = "mz"').replace("batch = 8", "batch = 150")
    path = sweep_file(text)
    known = "[base]\nproducers = 2\nlinger = 1.0\ncure = 'lua'"
    for told in (path, sweep_file(text.replace("[question]", f"{known}\n[question]", 1), "known.toml")):
        ended = orderlab(
            "sweep", told, *(["--engine", "pool"] if told == path else ["--dry-run", "--output", "elsewhere"])
        )
        assert ended.returncode == 2
        assert 'no metric "mz"; known here: ms, p99_ms (none of the first runs shows it)' in " ".join(
            ended.stderr.split()
        )
    (rows,) = path.parent.glob("out/batch-0000/rows")
    assert len(list(rows.glob("*.parquet"))) < 10


def test_the_command_line_and_the_page_tell_the_answer(sweep_file):
    path = sweep_file(station(runs=20))
    ended = orderlab("sweep", path, "--engine", "pool", "--report")
    assert ended.returncode == 0, ended.stderr
    assert "the least ms" in ended.stdout
    assert "cure lua" in " ".join(ended.stdout.split())


# -- several aims: the front ----------------------------------------------------------------------------------


def trade(at, rng):
    """a buys `cost` with `delay`, b and n are best in the middle: the front is b = 0.5, n = 8, any a."""
    away = (at["b"] - 0.5) ** 2 + ((at["n"] - 8) / 16) ** 2
    return {
        "cost": 1 + at["a"] + away + 0.01 * rng.standard_normal(),
        "speed": 2 * at["a"] ** 0.5 - away + 0.01 * rng.standard_normal(),
        "load": at["a"] - 0.9 + 0.001 * rng.standard_normal(),
    }


def front_of(problem=trade, runs=240, **more):
    asked = Best.model_validate(
        {"kind": "best", "minimise": ["cost"], "maximise": "speed", "subject_to": ["load <= 0"], "runs": runs,
         "parameters": {name: SIX[name] for name in ("a", "b", "n")}} | more
    )  # fmt: skip
    return asked, best(asked, ask_of(problem), 1, 3)


def test_of_two_aims_the_front_is_found_and_nothing_on_it_is_dominated():
    asked, found = front_of()
    table = of_best(asked, found)
    front = [row for row in table.rows if row["on_front"]]
    assert len(front) >= 5
    for one in front:
        assert one["meets"]
        assert not any(
            other["cost"] <= one["cost"] and other["speed"] >= one["speed"] and other != one for other in front
        )
        away = (one["b"] - 0.5) ** 2 + ((one["n"] - 8) / 16) ** 2
        assert away < 0.05
    costs = [row["cost"] for row in front]
    assert min(costs) < 1.15
    assert max(costs) > 1.6
    assert table.outcome is Outcome.HOLDS
    assert found.runs <= 240
    shares = [note for note in table.notes if "PED-ANOVA" in note]
    assert len(shares) == 2


def test_who_is_told_to_be_worse_in_every_aim_is_neither_on_the_front_nor_tied():
    def flat(at, rng):
        worse = float(at["mode"] != "y")
        noise = (0.01 + 0.02 * worse) * rng.standard_normal(2)
        return {"cost": 1 + worse + noise[0], "speed": 1 - worse + noise[1], "load": -1 + noise[0]}

    _, found = front_of(flat, 60, parameters={"mode": ["x", "y", "z"]}, sampler="grid")
    states = {one.parameters["mode"]: (one.chosen, one.is_tied) for one in found.finalists}
    assert states == {"y": (True, False), "x": (False, False), "z": (False, False)}


def test_the_aims_of_a_front_are_told_and_drawn(sweep_file):
    path = sweep_file(station(runs=40).replace('minimise = "ms"', 'minimise = ["ms", "p99_ms"]'))
    ended = orderlab("sweep", path, "--engine", "pool", "--report")
    assert ended.returncode == 0, ended.stderr
    said = " ".join(ended.stdout.split())
    assert "on the front" in said
    assert "the least p99_ms" in said
    page = next(path.parent.glob("out/report/index.html")).read_text()
    assert "p99_ms against ms" in page


@pytest.mark.exhaustive
@pytest.mark.parametrize(("problem", "optimum"), PROBLEMS, ids=lambda it: getattr(it, "__name__", ""))
def test_few_runs_end_near_the_optimum(problem, optimum):
    """400 runs, 20 seeds: within 3 % of the optimum, but for one seed at a constraint (3.1 % there)."""
    costs = [
        problem(found_by(problem, "tpe", 400, seed)[1].finalists[0].parameters, _Still())["cost"] for seed in range(20)
    ]
    assert sum(cost > 1.03 * optimum for cost in costs) <= (problem is bound)
    assert max(costs) <= 1.04 * optimum


@pytest.mark.exhaustive
@pytest.mark.parametrize("problem", [bowl, valley])
def test_importance_lies_within_its_interval(problem):
    """Of random configurations, what as many of them tell on average: held in 95 % of 60 searches times 6 shares."""
    told = [found_by(problem, "random", 400, seed)[1].importance["cost"] for seed in range(60)]
    mean = {name: np.mean([shares[name].estimate for shares in told]) for name in SIX}
    held = [shares[name].low <= mean[name] <= shares[name].high for shares in told for name in SIX]
    print(problem.__name__, np.mean(held))
    assert np.mean(held) > 0.92


class _Still:
    def standard_normal(self):
        return 0.0


def searched_short(function, runs=120, keep=0.5, **more):
    asked = Best.model_validate(
        {"kind": "best", "minimise": "cost", "subject_to": ["load <= 0.0"], "runs": runs, "parameters": SIX,
         "short": {"parameter": "seconds", "share": 0.25, "keep": keep}, **more}
    )  # fmt: skip
    rounds = {}

    def ask(name, points, replications, seeds=None):
        rounds[name] = [dict(point) for point in points]
        return ask_of(function)(name, points, replications, seeds)

    return asked, best(asked, ask, 2, 1, 8.0), rounds


def test_the_worse_half_of_a_batch_stops_after_a_short_run():
    asked, found, rounds = searched_short(bowl)
    first = rounds["short-0000"]
    assert {point["seconds"] for point in first} == {2.0}
    assert len(rounds["batch-0000"]) == len(first) / 2
    assert all("seconds" not in point for point in rounds["batch-0000"])
    costs = [bowl({**point}, _Still())["cost"] for point in first]
    going_on = [bowl(point, _Still())["cost"] for point in rounds["batch-0000"]]
    assert max(going_on) <= np.median(costs) + 0.05
    stopped = [tried for tried in found.tried.values() if tried.is_stopped]
    assert len(stopped) > 10
    assert found.cost <= 120
    assert found.runs > 120  # for short ones cost less
    assert found.finalists[0].chosen
    (line,) = (note for note in of_best(asked, found).notes if note.startswith("Stopped early"))
    assert float(line.split("by ")[1].split()[0]) > 0.9
    assert not any("were not measured" in note for note in of_best(asked, found).notes)


def test_short_runs_that_mislead_are_told():
    def turned(at, rng):
        found = bowl(at, rng)
        return {**found, "cost": -found["cost"]} if "seconds" in at else found

    asked, found, _ = searched_short(turned)
    (line,) = (note for note in of_best(asked, found).notes if note.startswith("Stopped early"))
    assert float(line.split("by ")[1].split()[0]) < -0.9


def test_a_short_run_that_fails_is_no_early_stop():
    def broken(at, rng):
        return None if at.get("seconds") and at["mode"] == "x" else bowl(at, rng)

    _, found, _ = searched_short(broken)
    assert all(tried.parameters["mode"] != "x" for tried in found.tried.values() if tried.is_stopped)


def test_a_search_with_looks_is_asked_of_one_aim_and_of_a_length_that_is_known(tmp_path):
    with pytest.raises(ValueError, match="of several aims"):
        Best.model_validate({"kind": "best", "minimise": ["a", "b"], "runs": 100, "parameters": {"n": [1, 2]},
                             "short": {"parameter": "seconds"}})  # fmt: skip
    file = tmp_path / "sweep.toml"
    text = station('output = "out"', runs=64) + '[question.short]\nparameter = "seconds"\n'
    file.write_text(text)
    refused = orderlab("sweep", file, "--dry-run")
    assert refused.returncode == 2
    assert "base.seconds is not there" in refused.stderr
    file.write_text(text.replace("[question]", "[base]\nseconds = 4.0\n[question]", 1))
    assert orderlab("sweep", file, "--dry-run").returncode == 0


def test_curves_of_each_parameter_follow_what_it_does():
    _, found = found_by(bowl, "random", 400, 1)
    (dependence,) = found.dependence
    assert dependence.explained > 0.8
    shares = found.importance["cost"]
    assert all(0 <= share.low < share.estimate < share.high <= 1 for share in shares.values())
    assert shares["mode"].high > shares["b"].low
    least = {name: min(curve, key=lambda effect: effect.mean).value for name, curve in dependence.effects.items()}
    assert abs(least["a"] - 0.3) <= 0.15
    assert abs(least["b"] - 0.6) <= 0.15
    assert (least["mode"], least["size"]) == ("y", 50)
    assert abs(least["n"] - 11) <= 2


def test_of_noise_no_curve_is_drawn():
    def noise(at, rng):
        return {"cost": float(np.random.default_rng(list(str(at).encode())).standard_normal()), "load": -1.0}

    asked, found = found_by(noise, "random", 200, 1)
    (dependence,) = found.dependence
    assert dependence.explained < 0.2
    assert not dependence.effects
    assert any("too little to say what" in note for note in of_best(asked, found).notes)


@pytest.mark.parametrize(
    ("subject_to", "sense"),
    [
        (("ms <= 5", "ms >= 9"), False),
        (("ms < 5", "ms >= 5"), False),
        (("lost == 0", "lost > 0"), False),
        (("lost == 0", "lost == 1"), False),
        (("ms <= 5", "ms >= 5", "lost >= 9"), True),
        (("ms <= 9", "ms >= 5"), True),
    ],
)
def test_constraints_that_exclude_each_other_are_refused_before_any_run(subject_to, sense):
    given = {"kind": "best", "minimise": "cost", "subject_to": subject_to, "runs": 40, "parameters": SIX}
    if sense:
        Best.model_validate(given)
    else:
        with pytest.raises(ValueError, match="exclude each other; correct one of them"):
            Best.model_validate(given)
