"""Sweep files: what is wrong is said with the file, the key and the cure, in one line."""

import pytest

from orderlab.model.errors import InputError
from orderlab.spark_sweeps.runs.job import folder_of, load
from orderlab.spark_sweeps.sweep_file.plan import Plan
from orderlab.spark_sweeps.sweep_file.specification import read_sweep

SOUND = """
system = "tests.spark_sweeps.subjects:product"
output = "out"
seed = 7
[base]
b = 10
[axes]
a = [1, 2, 3]
[derived]
c = "a * b"
[replications]
count = 2
"""


def written(tmp_path, text):
    path = tmp_path / "s.toml"
    path.write_text(text)
    return path


def test_a_sound_file(tmp_path):
    sweep, plan = load(written(tmp_path, SOUND))
    assert (len(plan), plan.points, sweep.limits.wall_s) == (6, 3, 600.0)
    run = plan.run(3)
    assert (run.point, run.replication, run.parameters) == (1, 1, {"b": 10, "a": 2, "c": 20})
    assert plan.parameter_names == ("a", "c")


def test_the_folder_stands_in_the_file_or_on_the_command_line(tmp_path):
    path = written(tmp_path, SOUND.replace('output = "out"', ""))
    assert load(path, output="elsewhere")[0].folder.name == "elsewhere"
    with pytest.raises(InputError, match='output: missing; add output = "FOLDER" to the sweep file, or --output'):
        folder_of(load(path)[0])


def test_common_random_numbers_are_common_to_all_points(tmp_path):
    _, plan = load(written(tmp_path, SOUND))
    seeds = [plan.run(number).seed for number in range(6)]
    assert seeds[0::2] == [seeds[0]] * 3
    assert seeds[0] != seeds[1]
    _, own = load(written(tmp_path, SOUND + "common_random_numbers = false\n"))
    assert len({own.run(number).seed for number in range(6)}) == 6
    _, other = load(written(tmp_path, SOUND.replace("seed = 7", "seed = 8")))
    assert other.run(0).seed != seeds[0]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("seed = 7", "sead = 7"), 'sead: unknown key; did you mean "seed"?'),
        (("count = 2", 'count = "2"'), "replications.count: Input should be a valid integer (given: '2')"),
        (("count = 2", "count = true"), "replications.count: Input should be a valid integer (given: True)"),
        (("seed = 7", "seed = -7"), "seed: Input should be greater than or equal to 0 (given: -7)"),
        (("a = [1, 2, 3]", "a = 1"), "axes.a: 1 is one value; a fixed parameter belongs into [base]"),
        (("a = [1, 2, 3]", "a = { form = 1, to = 3 }"), 'axes.a.form: unknown key; did you mean "from"?'),
        (("a = [1, 2, 3]", "a = { from = 3, to = 1 }"), "axes.a: from 3 is not below to 1"),
        (("a = [1, 2, 3]", "a = { from = 1, to = 3.5 }"), "axes.a: a grid needs values"),
        (("a = [1, 2, 3]", 'a = { from = 0, to = 3, count = 3, scale = "log" }'), "axes.a: a log range begins above 0"),
        (("b = 10", "b = [10]"), "base: b is [10]; [base] holds one value for each parameter"),
        (('c = "a * b"', 'c = "a * d"'), 'derived.c: unknown name "d"'),
        (('c = "a * b"', 'a = "b"'), "derived.a: a is an axis already"),
        (("count = 2", "count = 0"), "replications.count"),
        (("count = 2", "cuont = 2"), 'replications.cuont: unknown key; did you mean "count"?'),
        (("[replications]", '[design]\nkind = "sobol"\n[replications]'), "design: a sobol design needs samples"),
        (("[replications]", '[design]\nkind = "table"\n[replications]'), "design: a table design needs rows"),
        (("[replications]", "[design]\nsamples = 4\n[replications]"), "design: a grid design has no samples"),
        (("[replications]", '[design]\nkind = "lhs"\n[replications]'), "design.kind: Input should be 'grid'"),
        (
            ("[replications]", '[limits]\nwall_s = "long"\n[replications]'),
            "limits.wall_s: Input should be a valid number",
        ),
        (("[replications]", '[record]\nhistories = "some"\n[replications]'), "record.histories"),
        (("[replications]", "[stop]\nmax_failures = 0\n[replications]"), "stop.max_failures"),
        (("seed = 7", "seed ="), "not TOML"),
        (("seed = 7", "seed = " + "9" * 5000), "not TOML"),
        (("seed = 7", "seed = " + "[" * 5000), "nested too deeply"),
        (
            ("a = [1, 2, 3]", "a = [2024-01-31]"),
            'axes.a.values.0: 2024-01-31 is not a number, a text or a truth value; write it as text, "2024-01-31"',
        ),
        (("a = [1, 2, 3]", "a = [[1], 2]"), "axes.a.values.0: [1] is not a number, a text or a truth value"),
        (('c = "a * b"', 'c = "a\\n* b"'), "derived.c: 2 lines; write an expression on one"),
        (('"tests.spark_sweeps.subjects:product"', '"..:f"'), "cannot import .. (TypeError"),
        (('"tests.spark_sweeps.subjects:product"', '":f"'), "cannot import  (ValueError"),
        (('"tests.spark_sweeps.subjects:product"', '"tests.spark_sweeps.subjects:produkt"'), "has no produkt"),
        (('"tests.spark_sweeps.subjects:product"', '"no_such_module:f"'), "cannot import no_such_module"),
        (('"tests.spark_sweeps.subjects:product"', '"tbmq-p3p"'), 'did you mean "tbmq-p2p"?'),
        (
            ("a = [1, 2, 3]", "a = { from = 1, to = 20000, step = 1 }\nz = { from = 1, to = 20000, step = 1 }"),
            "runs; at most",
        ),
        (
            ("a = [1, 2, 3]", "\n".join(f"{x} = {{ from = 1, to = 2, count = 1000 }}" for x in "adefghijkl")),
            "more than 10^30 runs; at most",
        ),
        (
            ("a = [1, 2, 3]", "a = { from = 1, to = 1" + "0" * 400 + ", count = 3 }"),
            "a whole number of more than 308 digits",
        ),
        (("[base]\n", "[base]\nq = nan\n"), "base: q is nan, which is not finite; give a finite number"),
        (("[base]\n", "[base]\nq = -inf\n"), "base: q is -inf, which is not finite"),
        (("a = [1, 2, 3]", "a = { from = 1, count = 3 }"), "axes.a: a range with from and without to; add to = ..."),
        (('output = "out"', 'output = " "'), "output: empty; name a folder of its own"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(change, complaint, tmp_path):
    assert change[0] in SOUND
    with pytest.raises(InputError) as caught:
        load(written(tmp_path, SOUND.replace(*change)))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_settings_of_a_system_are_checked_axis_by_axis(tmp_path):
    text = 'system = "tbmq-p2p"\noutput = "o"\n[axes]\n{}\n'
    for line, complaint in (
        ("brokers = [1, 0]", "axes.brokers: 0 is refused: tbmq-p2p: brokers: "),
        ("brokers = [1]\n[base]\npublishers = -1", "base: tbmq-p2p: publishers: "),
        ("lettuce_bath = [1]", 'did you mean "lettuce_batch"?'),
        ('row = ["200k", "3m"]', "axes.row: '3m' is refused"),
    ):
        with pytest.raises(InputError) as caught:
            load(written(tmp_path, text.format(line)))
        assert complaint in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_sweep(tmp_path / "none.toml")


def test_limits_and_stop_rules_may_change_on_a_resume_and_nothing_else(tmp_path):
    sweep = read_sweep(written(tmp_path, SOUND))
    longer = read_sweep(written(tmp_path, SOUND + "[limits]\nwall_s = 1\n[stop]\nmax_failures = 3\n"))
    other = read_sweep(written(tmp_path, SOUND + "[record]\nmetrics = ['p*']\n"))
    assert sweep.identity == longer.identity
    assert sweep.identity != other.identity
    assert len(Plan(sweep)) == len(Plan(other))
