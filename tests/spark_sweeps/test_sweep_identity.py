"""Rows belong to one sweep and one program: what was changed, or copied from elsewhere, is refused in one line."""

import importlib
import shutil
import sys
import tomllib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orderlab.model.errors import InputError
from orderlab.report.sweep_page import write_report
from orderlab.spark_sweeps.questions.answer import answer
from orderlab.spark_sweeps.results.folder import ResultFolder
from orderlab.spark_sweeps.runs.digests import _files_behind, module_digest, subject_digest
from orderlab.spark_sweeps.runs.job import SweepOptions, load, run_sweep
from orderlab.spark_sweeps.runs.workers import PoolEngine
from orderlab.spark_sweeps.sweep_file.specification import sweep_of
from tests.spark_sweeps.test_result_folder import forged


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write files of a user's beside each other, as a start of its own would import them."""
    monkeypatch.syspath_prepend(str(tmp_path))
    written = set()

    def write(**texts):
        for name, text in texts.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            written.add(name.partition("/")[0])
        for name in [name for name in sys.modules if name.partition(".")[0] in written]:
            del sys.modules[name]
        module_digest.cache_clear()

    yield write
    write()
    module_digest.cache_clear()


@pytest.fixture
def one_process():
    """An engine maker: a process that has imported nothing of the user's before."""
    return lambda folder: PoolEngine(1)


def test_two_questions_do_not_share_a_folder(sweep_file, backwards):
    """Neither one after the other nor one while the other is answered."""
    text = (
        'system = "tests.spark_sweeps.subjects:product"\n[axes]\na = [1]\n[base]\nb = 2\n[replications]\ncount = 2\n'
        "[question]\n"
    )
    path = sweep_file(f'{text}kind = "capacity"\nparameter = "b"\nfrom = 1\nto = 64\nmetric = "product"\nbelow = 30\n')
    again = []

    def maker(folder):
        with pytest.raises(InputError, match="another sweep writes here now"):
            answer(path, *load(path), backwards, None)
        again.append(folder)
        return backwards(folder)

    found = answer(path, *load(path), maker, None)
    assert len(again) == 1
    assert answer(path, *load(path), backwards, None).rows == found.rows
    other = sweep_file(f'{text}kind = "sensitivity"\nmetric = "product"\nsamples = 4\n', "other.toml")
    with pytest.raises(InputError, match=r'made by a different question \(question.kind: there "capacity"'):
        answer(other, *load(other), backwards, None)


TEXT = 'system = "user_module:run"\n[axes]\na = [1, 2, 3, 4, 5, 6]\n'


def test_a_changed_function_does_not_go_on_in_the_folder_of_the_old_one(module, sweep_file, one_process):
    module(user_module="def run(parameters, seed):\n    return {'x': 1}\n")
    path = sweep_file(TEXT)
    folder = run_sweep(path, one_process).folder
    ResultFolder(folder).files()[0].unlink()
    module(user_module="def run(parameters, seed):\n    return {'x': 2.5}\n")
    with pytest.raises(InputError, match=r"different sweep \(the module of its system, what that imports") as caught:
        run_sweep(path, one_process)
    assert "\n" not in str(caught.value)
    module(user_module="def run(parameters, seed):\n    return {'x': 1}\n")
    assert run_sweep(path, one_process).counts.rows == 6


@pytest.mark.parametrize(("importing", "imported"), [
    ("import user_part", "user_part"), ("def f():\n    from user_part import g", "user_part"),
    ("from user_package import part", "user_package/part"), ("import user_package.part as p", "user_package/part"),
    ("from user_package.inner import *", "user_package/part"),
    ("import importlib\nimportlib.import_module('user_part')", "user_part"),
])  # fmt: skip
def test_what_a_module_imports_from_beside_it_is_part_of_it(importing, imported, module, tmp_path):
    others = {
        "user_package/__init__": "",
        "user_package/part": "",
        "user_part": "",
        "user_package/inner": "from . import part\n",
    }
    module(user_module=f"{importing}\nimport numpy, json\n", **others)
    before = module_digest("user_module")
    module(user_elsewhere="y = 1")
    assert module_digest("user_module") == before
    module(**{imported: "x = 1\n"})
    assert module_digest("user_module") != before


def test_a_row_file_of_another_sweep_is_refused(module, sweep_file, one_process, tmp_path):
    module(user_module="def run(parameters, seed):\n    return {'x': seed % 10}\n")
    path = sweep_file(TEXT)
    mine = run_sweep(path, one_process).folder
    other = run_sweep(path, one_process, SweepOptions(output=str(tmp_path / "other"), seed=1)).folder
    for file in ResultFolder(mine).files():
        file.unlink()
    (copied, *_) = ResultFolder(other).files()
    shutil.copy(copied, mine / "rows" / copied.name)
    for use in (lambda: run_sweep(path, one_process), lambda: write_report(mine)):
        with pytest.raises(
            InputError, match="rows of another sweep; remove it: its runs are then done again"
        ) as caught:
            use()
        assert "\n" not in str(caught.value)


def test_a_cost_model_of_the_users_own_is_part_of_the_sweep(sweep_file, tmp_path):
    model = tmp_path / "mine.toml"
    model.write_text('base = "cluster"\n')
    sweep, _ = load(sweep_file(f'system = "tbmq-p2p"\n[axes]\ncosts = ["cluster", "{model} redis.speed=0.9"]\n'))
    before = subject_digest(sweep)
    model.write_text('base = "cluster"\n# another\n')
    assert subject_digest(sweep) != before


def test_a_cost_model_that_is_derived_is_part_of_the_sweep_too(sweep_file, tmp_path):
    model = tmp_path / "model-2.toml"
    model.write_text('base = "cluster"\n')
    text = f"""system = "tbmq-p2p"
    [axes]
    brokers = [1, 2]
    rate = [1, 2]
    [derived]
    kind = "'cluster' if brokers == 1 else '{tmp_path}/model-' + str(brokers) + '.toml'"
    costs = "kind"
    """.replace("kind = ", "limit = ").replace('"kind"', '"limit"')
    sweep = sweep_of({**tomllib.loads(text), "output": "x"}, "x")
    before = subject_digest(sweep)
    model.write_text('base = "cluster"\n# another\n')
    assert subject_digest(sweep) != before


def test_what_a_module_imports_from_elsewhere_is_part_of_it(module, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "other"))
    beside, elsewhere = tmp_path / "user_part.py", tmp_path / "other" / "user_part.py"
    module(user_module="import user_part\nimport numpy\n")
    digests = []
    for file, text in ((beside, "x = 1"), (elsewhere, "x = 1"), (elsewhere, "x = 2"), (beside, "x = 3")):
        file.write_text(text)
        importlib.invalidate_caches()
        module_digest.cache_clear()
        digests.append(module_digest("user_module"))
    assert digests[0] == digests[1] != digests[2] == digests[3]  # what is first on the path is what runs
    assert not [path for root, path in _files_behind("user_module") if "numpy" in path]


@pytest.mark.parametrize("edited", ["user_part", "user_module"])
def test_an_edit_while_the_sweep_runs_reaches_no_row(edited, module, sweep_file, one_process, tmp_path):
    text = (
        "import os\ndef run(parameters, seed):\n    if parameters['a'] == parameters['edit']:\n        "
        "open(r'{}', 'a').write('\\n')\n"
    )
    text = text.format(tmp_path / f"{edited}.py") + "    import user_part\n    return {'x': user_part.X}\n"
    module(user_module=text, user_part="X = 1\n")
    path = sweep_file('system = "user_module:run"\n[base]\nedit = 1\n[axes]\na = [1, 2, 3]\n')
    with pytest.raises(
        InputError, match="was edited while the sweep ran; what is committed is of the text before"
    ) as caught:
        run_sweep(path, one_process)
    assert "\n" not in str(caught.value)
    assert not ResultFolder(tmp_path / "out").files()
    module(user_module=text, user_part="X = 1\n")
    path.write_text(path.read_text().replace("edit = 1", "edit = 0").replace("/out", "/unedited"))
    assert run_sweep(path, one_process).counts.rows == 3


def test_a_start_that_was_overtaken_does_not_take_the_folder_of_the_first(tmp_path, monkeypatch):
    mine, other = {"sweep": {"seed": 1}}, {"sweep": {"seed": 2}}
    late, take = ResultFolder(tmp_path / "out"), ResultFolder._take_lock

    def overtaken(folder):
        monkeypatch.setattr(ResultFolder, "_take_lock", take)
        first = ResultFolder(tmp_path / "out")
        first.open(mine)
        first.close()
        take(folder)

    monkeypatch.setattr(ResultFolder, "_take_lock", overtaken)
    with pytest.raises(InputError, match="made by a different sweep"):
        late.open(other)
    assert ResultFolder(tmp_path / "out").manifest()["sweep"] == {"seed": 1}
    again = ResultFolder(tmp_path / "out")
    again.open(mine)
    again.close()


def test_a_row_that_does_not_say_whose_it_is_is_refused(module, sweep_file, one_process):
    module(user_module="def run(parameters, seed):\n    return {'x': 1}\n")
    path = sweep_file(TEXT)
    (file, *_) = ResultFolder(run_sweep(path, one_process).folder).files()
    table = pq.read_table(file)
    place = table.column_names.index("sweep_digest")
    field = table.schema.field("sweep_digest").with_nullable(True)
    file.unlink()
    forged(file.parent, table.set_column(place, field, pa.nulls(len(table), pa.string())))
    with pytest.raises(InputError, match="rows of another sweep"):
        run_sweep(path, one_process)


@pytest.mark.parametrize("name", ["math", "json", "os.path", "no_such_module"])
def test_a_module_that_is_nobodys_has_a_digest_too(name):
    assert module_digest(name) == module_digest(name)
