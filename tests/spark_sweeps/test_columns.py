"""Planning by columns says of many runs what each says of itself."""

import numpy as np
import pytest

from orderlab.model.errors import InputError
from orderlab.spark_sweeps.runs.costs import CostModel, estimated
from orderlab.spark_sweeps.sweep_file.expressions import Expression
from orderlab.spark_sweeps.sweep_file.plan import Plan
from orderlab.spark_sweeps.sweep_file.specification import sweep_of

AXES = {
    "a": [1, 2, 0, 7],
    "b": {"from": 0.5, "to": 9, "count": 3, "scale": "log"},
    "t": ["x", "y", "log"],
    "f": [True, False],
}
DESIGNS = [{}, {"kind": "latin-hypercube", "samples": 40}, {"kind": "sobol", "samples": 32}, {"kind": "one-at-a-time"}]
EXPRESSIONS = [
    "a + b * 2 - 1 / (a + 1)",
    "a // 2 + a % 3 - a ** 2",
    "min(a, b, 3) + max(1, b)",
    "a if b > 1 else -b",
    "a > 1 and b",
    "a or b",
    "not a",
    "1 < a <= 7",
    "t == 'x'",
    "(a if f else b) + (1 if t != 'y' else 2)",
    "ceil(b) + floor(b) + abs(-a) + round(b)",
    "sqrt(b) + log(b) + log2(b) + exp(b) + int(b) + float(a)",
    "str(a)",
    "round(b, 1)",
    "t + 'z'",
    "1 / a",
]


def plan_of(design, **more):
    content = {
        "system": "tests.spark_sweeps.subjects:product",
        "output": "x",
        "base": {"m": 3, "s": "k"},
        "axes": AXES,
        "design": design,
    }
    return Plan(sweep_of({**content, "replications": {"count": 3}, **more}, "x"), "x")


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_over_columns_is_the_expression_over_each(text):
    plan = plan_of({})
    columns, expression = plan.columns(np.arange(plan.points)), Expression(text, "x")
    try:
        found = expression.column(columns, plan.points)
    except (TypeError, ValueError):
        assert text in ("str(a)", "round(b, 1)", "t + 'z'")  # `evaluate` says these
        return
    for point in range(plan.points):
        try:
            told = expression.evaluate(plan.design.point(point))
        except InputError:
            assert not np.isfinite(found[point])
        else:
            assert found[point] == pytest.approx(float(told))


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.get("kind", "grid"))
@pytest.mark.parametrize(
    "derived", [{}, {"c": "1 / a", "d": "t + str(a)", "e": "a * b if f else b"}], ids=["plain", "derived"]
)
def test_estimates_by_columns_are_those_run_by_run(design, derived):
    plan = plan_of(design, derived=derived)
    measured = [(number, 0.1 + number % 7) for number in range(0, len(plan), 4)]
    whole = []
    for number in range(len(plan)):
        try:
            whole.append(plan.run(number).parameters)
        except InputError:
            whole.append(None)
    model = CostModel([(whole[number], second) for number, second in measured if whole[number] is not None])
    found = estimated(plan, np.arange(len(plan)), measured, None)
    for number, parameters in enumerate(whole):
        if parameters is not None:
            assert found[number] == pytest.approx(model.seconds(parameters))
    assert (found > 0).all()


def test_a_stated_cost_by_columns_is_that_of_each_run_and_one_that_is_none_is_named():
    plan = plan_of({}, cost="a * b + 1", derived={"c": "1 / a"})
    runs = np.arange(len(plan))[5::2]
    found = estimated(plan, runs, [], None)
    told = np.array([plan._cost.evaluate(plan.undecided(int(number)).parameters) for number in runs])
    whole = np.array([plan.undecided(int(number)).parameters["a"] != 0 for number in runs])
    assert np.allclose(found[whole] / found[whole].sum(), told[whole] / told[whole].sum())
    with pytest.raises(InputError, match="cost: 0 for run"):
        estimated(plan_of({}, cost="a"), np.arange(216), [], None)
    big = plan_of({}, cost="10 ** 300 * 10 ** a * 10 ** a * 10 ** a", axes={"a": [1, 2]})
    assert np.isfinite(estimated(big, np.arange(6), [], None)).all()
