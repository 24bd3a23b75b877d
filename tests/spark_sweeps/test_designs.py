"""Axes and designs: each point is where the theory says."""

import math

import numpy as np
import pytest
from pydantic import ValidationError

from orderlab.spark_sweeps.sweep_file.plan import DesignRows, Grid, OneAtATime, latin_hypercube, sobol
from orderlab.spark_sweeps.sweep_file.specification import Axis


def axis(given):
    return Axis.model_validate(given)


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ([1, 2, 4], (1, 2, 4)),
        ({"choices": ["a", "b"]}, ("a", "b")),
        ({"from": 1, "to": 5, "step": 2}, (1, 3, 5)),
        ({"from": 1, "to": 6, "step": 2}, (1, 3, 5)),
        ({"from": 0.1, "to": 0.5, "step": 0.1}, (0.1, 0.2, 0.3, 0.4, 0.5)),
        ({"from": 0, "to": 1, "count": 3}, (0.0, 0.5, 1.0)),
        ({"from": 1, "to": 1000, "count": 4, "scale": "log"}, (1.0, 10.0, 100.0, 1000.0)),
        ({"from": 1, "to": 1000, "count": 4, "scale": "log", "integer": True}, (1, 10, 100, 1000)),
        ({"from": 1, "to": 3, "count": 9, "integer": True}, (1, 2, 3)),
    ],
)
def test_values_of_an_axis(given, values):
    assert axis(given).listed() == values


@pytest.mark.parametrize(
    "given",
    [
        [], [1, 1], {"from": 1}, {"from": 3, "to": 1}, {"from": 0, "to": 4, "scale": "log"}, {"values": [1], "to": 2},
        {"from": 1, "to": 2, "step": 1, "count": 2}, 3, {"from": 0, "to": 1, "step": 1e-9}, [float("nan")],
    ],
)  # fmt: skip
def test_axes_that_make_no_sense(given):
    with pytest.raises(ValidationError):
        axis(given)


def test_a_range_is_sampled_between_its_ends():
    assert axis({"from": 1, "to": 100, "scale": "log"}).at(0.5) == pytest.approx(10)
    whole = axis({"from": 1, "to": 4})
    assert [whole.at(share) for share in (0.0, 0.24, 0.25, 0.99)] == [1, 1, 2, 4]
    assert axis([5, 6, 7]).at(0.999) == 7


def test_a_grid_counts_like_an_odometer():
    grid = Grid({"a": axis([1, 2, 3]), "b": axis(["x", "y"])})
    points = [tuple(grid.point(number).values()) for number in range(len(grid))]
    assert points == [(1, "x"), (1, "y"), (2, "x"), (2, "y"), (3, "x"), (3, "y")]


def test_one_at_a_time_leaves_the_others_at_the_base():
    design = OneAtATime({"a": axis([1, 2, 3]), "b": axis([7, 8])}, {"a": 2, "b": 7})
    assert [tuple(design.point(number).values()) for number in range(len(design))] == [(2, 7), (1, 7), (3, 7), (2, 8)]


def test_a_table_is_what_it_lists():
    design = DesignRows([{"a": 1}, {"a": 2, "b": 3}])
    assert (len(design), design.point(1)) == (2, {"a": 2, "b": 3})


@pytest.mark.parametrize("build", [latin_hypercube, sobol])
def test_space_filling_designs_put_one_point_into_each_slice_of_every_axis(build):
    axes = {name: axis({"from": 0.0, "to": 1.0}) for name in "abc"}
    points = [build(axes, 32, 5).point(number) for number in range(32)]
    for name in axes:
        assert sorted(int(point[name] * 32) for point in points) == list(range(32))
    assert points == [build(axes, 32, 5).point(number) for number in range(32)]
    assert points != [build(axes, 32, 6).point(number) for number in range(32)]


def test_sobol_for_a_number_that_is_no_power_of_two_begins_as_the_larger_design():
    axes = {"a": axis({"from": 0.0, "to": 1.0}), "b": axis([1, 2])}
    smaller, larger = sobol(axes, 5, 1), sobol(axes, 8, 1)
    assert len(smaller) == 5
    assert all(smaller.point(number) == larger.point(number) for number in range(5))
    assert np.isfinite(list(smaller.point(4).values())).all()


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize(
    ("low", "high"), [(1e-300, 1e300), (1e-308, 1.7e308), (1, 1e300), (-1e308, 1e308), (-1.7e308, -1e-300)]
)
def test_a_range_wider_than_a_floating_point_number_stays_between_its_ends(low, high, scale):
    if scale == "log" and low < 0:
        return
    axis = Axis.model_validate({"from": low, "to": high, "count": 5, "scale": scale})
    found = axis.listed()
    assert (found[0], found[-1], len(found)) == (low, high, 5)
    assert list(found) == sorted(found)
    if scale == "log":
        assert found[2] == pytest.approx(math.sqrt(low) * math.sqrt(high), rel=1e-9)
    else:
        assert found[2] == pytest.approx(low / 2 + high / 2)
