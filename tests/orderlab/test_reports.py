"""Reports: one model of a finding, each form read back by somebody else's reader."""

from __future__ import annotations

import html
import io
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator
from rich.console import Console
from typer.testing import CliRunner

from orderlab.application import make
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.report.forms import FORMS
from orderlab.report.markdown import markdown
from orderlab.report.output import WRITERS, made_report
from orderlab.report.report import SCHEMA, Finding, JudgedLaw, Line, Report, Step, Subject, fingerprint_of
from orderlab.report.report_page import drawing, key_rows, page
from orderlab.report.sarif import FINGERPRINT, sarif_log
from orderlab.report.terminal import print_subject, summary

SPECIMEN = "lua/specimens/published"


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(make(), arguments)
    assert not done.exception or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every form of the report on one flawed store, by one run."""
    folder = tmp_path_factory.mktemp("reports")
    asked = [f"--report={form}={folder / form}" for form in FORMS]
    code, _ = run(
        "validate", SPECIMEN, "--effort=0.2", "--backend=kernel", "--law=all-or-nothing", "--law=counter", *asked
    )
    assert code == 1
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    return Report.model_validate_json((folder / "json").read_bytes())


def finding(**changes: object) -> Finding:
    told = {
        "law": "no-loss", "headline": "m1 is gone", "cause": "a", "fingerprint": "f",
        "steps": (Step(lane="client 1", action="client 1 saves", answer="ok", keys={"k": "string 1"}),),
        "line": Line(path="a.lua", line=3, source="redis.call('DEL', KEYS[1])"),
    }  # fmt: skip
    return Finding.model_validate({**told, **changes})


def made(*findings: Finding, name: str = "a store", because: str = "") -> Report:
    outcome = Outcome.VIOLATED if findings else Outcome.UNKNOWN if because else Outcome.HOLDS
    law = JudgedLaw(law="no-loss", statement="nothing is lost", outcome=outcome, because=because, tested=1)
    subject = Subject(name=name, path="store.toml", kind="store", outcome=outcome, laws=(law,), findings=findings)
    return made_report("validate", outcome, [subject], seed=7)


SCHEMA_IN_PACKAGE = json.loads(files("orderlab.report").joinpath(SCHEMA).read_text())


def test_the_schema_in_the_package_is_that_of_the_model() -> None:
    assert Report.model_json_schema() == SCHEMA_IN_PACKAGE


def test_the_json_fits_the_schema_and_something_else_does_not(folder: Path) -> None:
    validator = Draft202012Validator(SCHEMA_IN_PACKAGE)
    data = json.loads((folder / "json").read_bytes())
    assert not list(validator.iter_errors(data))
    data["subjects"][0]["findings"][0].pop("headline")
    assert list(validator.iter_errors(data))


def test_the_answer_comes_first_and_tells_the_plainest_finding(report: Report) -> None:
    assert report.outcome is Outcome.VIOLATED
    assert report.exit_code == 1
    assert report.sentence.startswith("published: all-or-nothing is violated, 1 of 2 laws, by ")
    assert "save.lua:23" in report.sentence


@pytest.mark.parametrize(
    ("outcomes", "told"),
    [
        ("v", "a is violated"),
        ("h", "a holds"),
        ("u", "a is undecided"),
        ("hhh", "all 3 laws hold"),
        ("vhh", "a is violated, 1 of 3 laws"),
        ("vvh", "a and b are violated, 2 of 3 laws"),
        ("uuuh", "a, b and c are undecided, 3 of 4 laws"),
        ("vvvvh", "4 of 5 laws are violated"),
        ("uuuu", "all 4 laws are undecided"),
        ("", "no law was tested"),
    ],
)
def test_the_answer_names_few_laws_and_counts_many(outcomes: str, told: str) -> None:
    of = {"v": Outcome.VIOLATED, "u": Outcome.UNKNOWN, "h": Outcome.HOLDS}
    laws = tuple(
        JudgedLaw(law=name, statement="", outcome=of[one]) for name, one in zip("abcdefg", outcomes, strict=False)
    )
    worst = next((of[one] for one in "vuh" if one in outcomes), Outcome.UNKNOWN)
    assert Subject(name="s", kind="store", outcome=worst, laws=laws).answer == f"s: {told}"


def test_laws_that_are_undecided_for_one_reason_are_told_together() -> None:
    laws = [
        JudgedLaw(law=name, statement="", outcome=Outcome.UNKNOWN, because=why)
        for name, why in (("a", "x"), ("b", "y"), ("c", "x"))
    ]
    subject = Subject(name="s", kind="store", outcome=Outcome.UNKNOWN, laws=tuple(laws))
    lines = [line for line, _ in summary(subject)]
    assert lines == [
        "s: a, b and c are undecided, 3 of 3 laws (exit code 3)",
        "  undecided: a, c: x",
        "  undecided: b: y",
    ]


def test_each_finding_has_its_line_and_the_command_that_shows_it_again(report: Report, folder: Path) -> None:
    lines = Path(SPECIMEN, "save.lua").read_text().splitlines()
    findings = report.subjects[0].findings
    for one in findings:
        assert one.line is not None
        assert lines[one.line.line - 1].strip() == one.line.source
        assert one.replay.split()[:2] == ["orderlab", "replay"]
        code, told = run(*one.replay.split()[1:])
        assert code == 1, told
        assert f"{one.law} is violated" in told
    assert findings
    with pytest.raises(InputError, match="it has"):
        CliRunner().invoke(
            make(), ["replay", str(folder / "json"), "--finding", str(len(findings) + 1)], catch_exceptions=False
        )


def test_findings_of_one_root_are_told_under_it() -> None:
    both = made(finding(), finding(law="no-loss", headline="m2 is gone"), finding(cause="b", headline="other"))
    assert [len(root) for root in both.subjects[0].roots] == [2, 1]
    assert page(both).count("<article") == 2


def test_sarif_is_valid_and_puts_each_result_on_its_line(report: Report) -> None:
    sarif_pydantic = pytest.importorskip("sarif_pydantic")
    log = sarif_log(report, Path.cwd())
    sarif_pydantic.Sarif.model_validate(log)
    (made_run,) = log["runs"]
    rules = [rule["id"] for rule in made_run["tool"]["driver"]["rules"]]
    for result, one in zip(made_run["results"], report.subjects[0].findings, strict=False):
        place = result["locations"][0]["physicalLocation"]
        assert rules[result["ruleIndex"]] == result["ruleId"] == one.law
        assert Path(place["artifactLocation"]["uri"]).is_file()
        assert place["region"]["startLine"] == one.line.line
    written = [result for result in made_run["results"] if "relatedLocations" in result]
    assert written, "a script that fails after it has written names the line of the write"


def test_fingerprints_differ_among_findings_and_do_not_depend_on_numbers_of_lines(report: Report) -> None:
    prints = [one.fingerprint for one in report.subjects[0].findings]
    assert len(set(prints)) == len(prints)
    moved = made(finding(line=Line(path="a.lua", line=40, source="redis.call('DEL', KEYS[1])")))
    results = [sarif_log(one, Path.cwd())["runs"][0]["results"][0] for one in (made(finding()), moved)]
    assert results[0]["partialFingerprints"][FINGERPRINT] == results[1]["partialFingerprints"][FINGERPRINT]
    assert fingerprint_of("a", "bc") != fingerprint_of("ab", "c")


def test_junit_counts_what_failed_and_what_is_undecided(folder: Path) -> None:
    suite = ElementTree.parse(folder / "junit").getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "0")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "replay: orderlab replay" in (failure.text or "")
    text = WRITERS["junit"](made(because="the effort ended"))
    assert ElementTree.fromstring(text).find("testsuite/testcase/skipped") is not None


class Page(HTMLParser):
    """Counts what is opened and closed, and what is loaded from elsewhere."""

    VOID = ("meta", "br", "input")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


HOSTILE = (
    "<script>alert(1)</script> \"'` ``` </details> @someone \x1b[31m\x00\x85\x9b2J\x7f | # ]]> --> <![CDATA[ &amp; "
    "{{ 7*7 }} "
    "\u202egpj\u2066\u200f\u2028\ufeff\ud800\r\n2. FORGED\n\n# FORGED\n"
)
"""As a name: markup of every form, orders to terminals, marks that turn the direction of writing, lines that look like
ours."""
MOVES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def hostile_report(name: str) -> Report:
    """With the name wherever one can be."""
    line = Line(path=name, line=1, source=name, role=name)
    step = Step(lane=name, action=name, answer=name, state=name, fault=name, before=name, keys={name: name})
    one = finding(
        law=name,
        headline=name,
        steps=(step,),
        call=name,
        line=line,
        related=(line,),
        initial={name: name},
        before={name: name},
        after={f"{name}2": name},
        found_by=name,
        confirmation=name,
        replay=name,
        witness={name: [name]},
    )
    laws = [JudgedLaw(law=name, statement=name, clauses=(name,), outcome=Outcome.VIOLATED, because=name)]
    laws += [
        JudgedLaw(law=f"{name}{n}", statement="", outcome=outcome, because=name, is_applicable=bool(n % 2))
        for n, outcome in enumerate([*Outcome] * 2)
    ]
    subject = Subject(
        name=name,
        path=name,
        kind="store",
        outcome=Outcome.VIOLATED,
        laws=tuple(laws),
        findings=(one,),
        facts={"a fact": name},
        assumptions=(name,),
        notes=(name,),
        not_covered=(name,),
        scope=(name, name),
        base=name,
    )
    return made_report("validate", Outcome.VIOLATED, [subject], seed=7, effort=name)


def on_terminal(report: Report, is_verbose: bool) -> str:
    """What a terminal is sent."""
    out = io.StringIO()
    for subject in report.subjects:
        print_subject(Console(file=out, width=100), subject, report.seed, "quick", is_verbose)
    return out.getvalue()


@pytest.mark.parametrize("form", [*FORMS, "terminal"])
@pytest.mark.parametrize("length", [1, 10_000], ids=["short", "long"])
def test_what_a_script_says_moves_no_form(form: str, length: int) -> None:
    """Errors, keys and names come from scripts that nobody trusts."""
    name = HOSTILE + "x" * length
    hostile = hostile_report(name)
    text = on_terminal(hostile, is_verbose=True) if form == "terminal" else WRITERS[form](hostile)
    assert MOVES.search(text) is None
    if form == "json":
        assert Report.model_validate_json(text) == hostile
        assert Report.model_validate_json(text).subjects[0].name == name.replace("\ud800", "\\ud800")
    elif form == "sarif":
        (made_run,) = json.loads(text)["runs"]
        assert made_run["results"][0]["ruleId"] == name.replace("\ud800", "\\ud800")
    elif form == "junit":
        suite = ElementTree.fromstring(text).find("testsuite")
        assert suite is not None
        assert "<script>alert(1)</script>" in suite.get("name", "")
        assert not re.search(r"(?m)^\s*(2\. |# )FORGED", suite.findtext("testcase/failure") or "")
    elif form == "html":
        read = Page()
        read.feed(text)
        assert read.open == []
        assert "<script>alert" not in text
        assert text.count("</script>") == 1
        assert read.loaded == []
    elif form == "markdown":
        outside = re.sub(r"  (`{3,})\n.*?\n  \1\n", "", text, flags=re.S)
        assert "<script>" not in re.sub(r"(`+) .*? \1", "", outside)
        assert "@someone" not in re.sub(r"(`+) .*? \1", "", outside)
        assert not re.search(r"(?m)^\s*(2\. |# )FORGED", text)
        assert len(text) < 65_536
    else:
        assert not re.search(r"(?m)^\s*(2\. |# )FORGED", text)
        assert len(text) < 100_000


def test_a_file_whose_name_is_no_text_is_told_and_breaks_nothing(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"\xff\n")
    shutil.copytree(SPECIMEN, odd)
    asked = [f"--report={form}={tmp_path / form}" for form in FORMS]
    code, told = run("validate", str(odd), "--effort=0.05", "--backend=kernel", "--law=one-slot", *asked)
    assert code == 1
    assert "\\udcff\\n" in told
    for form in FORMS:
        assert "\\udcff" in (tmp_path / form).read_text() or form == "sarif"
    history = odd / os.fsdecode(b"\xfe.csv")
    history.write_text("event_id\n")
    with pytest.raises(InputError, match="no UTF-8; rename it"):
        CliRunner().invoke(make(), ["check", str(history)], catch_exceptions=False)


def test_the_page_needs_nothing_from_elsewhere(folder: Path) -> None:
    read = Page()
    read.feed((folder / "html").read_text())
    assert read.open == []
    assert read.loaded == []


def test_fifty_findings_make_a_page_of_less_than_two_megabytes() -> None:
    keys = {f"{{client}}:message:{number}": "string " + "x" * 200 for number in range(40)}
    steps = tuple(Step(lane=f"client {n % 3}", action="saves " + "y" * 80, answer="saved", keys=keys) for n in range(6))
    many = [finding(cause=str(number), steps=steps) for number in range(50)]
    assert len(page(made(*many)).encode()) < 2_000_000


def test_a_comment_stays_below_its_limit_and_says_what_it_leaves_out() -> None:
    many = [finding(cause=str(number), headline="h" * 900) for number in range(200)]
    text = markdown(made(*many))
    assert len(text) < 65_536
    assert "did not fit here" in text
    assert "did not fit" not in markdown(made(finding()))


def test_changed_keys_are_marked_by_a_sign() -> None:
    rows = key_rows({"a": "1", "b": "1", "c": "1"}, {"b": "2", "c": "1", "d": "1"})
    assert [(row.sign, row.key) for row in rows] == [("-", "a"), ("~", "b"), ("+", "d"), ("", "c")]
    drawn = drawing(finding())
    assert drawn.lanes == ["client 1", "store"]
    assert drawn.rows[0].to == 1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("pdf=x", "no FORM=FILE"),
        ("json", "no FORM=FILE"),
        ("json=", "no FORM=FILE"),
        ("json=/no/such/folder/x", "no folder"),
        ("json=.", "is a folder"),
    ],
)
def test_a_report_that_cannot_be_is_refused_before_any_work(given: str, told: str) -> None:
    done = CliRunner().invoke(make(), ["validate", SPECIMEN, "--report", given], standalone_mode=False)
    assert told in str(done.exception)


def test_the_same_run_gives_the_same_bytes_whatever_the_hash_seed(folder: Path, tmp_path: Path) -> None:
    asked = [f"--report={form}={tmp_path / form}" for form in FORMS]
    command = [
        "validate",
        SPECIMEN,
        "--effort=0.2",
        "--backend=kernel",
        "--law=all-or-nothing",
        "--law=counter",
        *asked,
    ]
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    subprocess.run([sys.executable, "-m", "orderlab.cli", *command], env=environment, capture_output=True, timeout=600)
    for form in FORMS:
        first, again = (one.joinpath(form).read_text().replace(str(one), "") for one in (folder, tmp_path))
        assert first == again, form


def test_each_form_says_how_far_was_looked_and_what_was_not(report: Report, folder: Path) -> None:
    subject = report.subjects[0]
    assert subject.scope
    assert subject.not_covered
    for form in FORMS:
        told = html.unescape((folder / form).read_text()).replace("\\", "")
        for line in (*subject.scope, *subject.not_covered, report.effort, f"{report.seed}", *report.versions.values()):
            assert line.replace("\\", "") in told or form == "json", (form, line)


@pytest.mark.parametrize("form", FORMS)
def test_explore_and_simulate_and_check_report_too(form: str, tmp_path: Path) -> None:
    file = tmp_path / form
    assert run("explore", "increment", "--set", "lock=false", "--report", f"{form}={file}")[0] == 1
    assert "no-lost-update" in file.read_text()
    log = tmp_path / "log.edn"
    log.write_text(
        "{:process 0, :type :invoke, :f :write, :value 1}\n{:process 0, :type :ok, :f :write, :value 1}\n"
        "{:process 1, :type :invoke, :f :read, :value nil}\n{:process 1, :type :ok, :f :read, :value 2}\n"
    )
    assert run("check", str(log), "--model", "register", "--report", f"{form}={file}")[0] == 1
    assert "linearizab" in file.read_text()


def test_what_was_broken_before_is_not_called_inapplicable() -> None:
    judged = [
        ("exclusive-lease", Outcome.VIOLATED, "broken before as well"),
        ("order", Outcome.UNKNOWN, "undecided before as well: the steps ran out"),
        ("wake-up", Outcome.UNKNOWN, "no client waits"),
    ]
    laws = tuple(
        JudgedLaw(law=law, statement="", outcome=outcome, because=because, is_applicable=False)
        for law, outcome, because in judged
    )
    subject = Subject(name="queue", kind="comparison", outcome=Outcome.HOLDS, laws=laws)
    told = [line for line, _ in summary(subject)]
    assert "  exclusive-lease: broken before as well" in told
    assert "  order: undecided before as well: the steps ran out" in told
    assert [line for line in told if "not applicable" in line] == ["  not applicable: wake-up (no client waits)"]
    console = Console(file=io.StringIO(), width=140)
    print_subject(console, subject, 0, "quick", verbose=True)
    rows = [line for line in console.file.getvalue().splitlines() if "exclusive-lease" in line]
    assert any("violated before" in row for row in rows)
