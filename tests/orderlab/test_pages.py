"""Pages in a browser: no script fails, nothing is wider than a telephone, keyboards reach what can be worked, nothing
is loaded."""

from __future__ import annotations

import html
import json
import shutil
import subprocess
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orderlab.model.verdict import Outcome
from orderlab.report.answer_page import drawn, write_answer_page
from orderlab.report.report import Change, ChangedFile, ChangedLine, Report, Step
from orderlab.report.report_page import page, template
from orderlab.report.sweep_page import RunsOfPoint, drawings, heat_maps
from orderlab.report.words import harmless
from orderlab.spark_sweeps.questions.answer import Answer
from orderlab.spark_sweeps.results.rows import PointRows
from orderlab.spark_sweeps.sweep_file.specification import SweepFile
from tests.orderlab.test_reports import HOSTILE, finding, made

LONG = "x" * 10_000
NARROW, WIDE = 420, 1200

PROBE = """<script>
const errors = [];
addEventListener("error", event => errors.push(event.message));
addEventListener("unhandledrejection", event => errors.push(String(event.reason)));
window.probe = () => {
  const root = document.documentElement, wide = [];
  for (const one of document.querySelectorAll("body *"))
    if (one.getBoundingClientRect().right > root.clientWidth + 1 && !one.closest(".scrolls, svg") && wide.length < 3) wide.push(one.outerHTML.slice(0, 120));
  const drawn = document.querySelector("figure svg"), lines = word => word.getClientRects().length;
  const broken = [...document.querySelectorAll("th .word")].filter(one => lines(one) > 1).map(one => one.textContent);
  const told = { broken, share: drawn ? drawn.getBoundingClientRect().width / document.body.clientWidth : 1, overflow: root.scrollWidth - root.clientWidth, wide };
  for (const button of document.querySelectorAll("th button")) { button.click(); button.click(); }
  told.sorted = document.querySelectorAll("th[aria-sort=descending]").length;
  for (const box of document.querySelectorAll("[data-filter]")) { box.value = "no such thing"; box.dispatchEvent(new Event("input")); }
  told.filtered = [...document.querySelectorAll(".filter output")].map(one => one.textContent);
  for (const box of document.querySelectorAll("[data-filter]")) { box.value = ""; box.dispatchEvent(new Event("input")); }
  const chart = document.querySelector("svg[data-zoom]");
  if (chart) {
    const box = chart.getBoundingClientRect(), ticks = () => [...chart.querySelectorAll(".ticks text")].map(one => one.textContent).join(" ");
    const point = (kind, share) => chart.dispatchEvent(new PointerEvent(kind, { clientX: box.left + share * box.width, clientY: box.top + 40, button: 0, bubbles: true }));
    chart.setPointerCapture = () => {};
    told.ticks = [ticks()];
    point("pointerdown", 0.4); point("pointermove", 0.5); point("pointermove", 0.6); point("pointerup", 0.6);
    told.ticks.push(ticks());
    chart.dispatchEvent(new MouseEvent("dblclick"));
    told.ticks.push(ticks());
  }
  const tipped = document.querySelector("[data-tip]");
  if (tipped) { tipped.dispatchEvent(new PointerEvent("pointerover", { bubbles: true })); told.tip = document.getElementById("tip").textContent; }
  const reached = [...document.querySelectorAll("summary, button, input")].filter(one => one.checkVisibility());
  told.unreached = reached.filter(one => { one.focus(); return document.activeElement !== one; }).length;
  told.bare = document.querySelectorAll("input:not(label input)").length;
  for (const one of document.querySelectorAll("details")) one.open = true;
  told.overflow_open = root.scrollWidth - root.clientWidth;
  return { ...told, errors };
};
</script>"""  # noqa: E501


def browser() -> str:
    """The program, or a loud skip."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        warnings.warn("no chromium on PATH: pages were NOT tried in a browser; apt-get install chromium", stacklevel=1)
        pytest.skip("NOT TRIED: no chromium on PATH; apt-get install chromium")
    return found


def probed(pages: dict[str, str], folder: Path) -> dict[str, dict[str, Any]]:
    """What each page does, told by itself, in frames of two widths of one browser."""
    frames = [
        f'<iframe id="{name}-{width}" width="{width}" height="900" '
        f'srcdoc="{html.escape(text.replace("<head>", "<head>" + PROBE, 1))}"></iframe>'
        for name, text in pages.items()
        for width in (NARROW, WIDE)
    ]
    told = """<script>onload = () => { document.title = "loaded";
      const told = {}; for (const one of document.querySelectorAll("iframe"))
        try { told[one.id] = one.contentWindow.probe(); } catch (error) { told[one.id] = { errors: [String(error)] }; }
      document.body.innerHTML = "<pre id=told></pre>"; document.getElementById("told").textContent = JSON.stringify(told); };</script>"""  # noqa: E501
    (folder / "frames.html").write_text(f"<!doctype html><meta charset=utf-8><body>{''.join(frames)}{told}</body>")
    command = [
        browser(),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--no-first-run",
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=20000",
        "--dump-dom",
        f"file://{folder / 'frames.html'}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert '<pre id="told">' in done.stdout, done.stderr[-2000:]
    found: dict[str, dict[str, Any]] = json.loads(
        html.unescape(done.stdout.split('<pre id="told">')[1].split("</pre>")[0])
    )
    return found


def of_findings() -> Report:
    """Findings of every kind: lanes and faults, what changed, texts side by side, names that are hostile or long."""
    steps = (
        Step(lane="client 1", action="saves m1", answer="saved as 1", keys={"a": "string 1"}),
        Step(
            lane="faults",
            action="the node goes",
            fault="crashed before redis.call 2",
            answer="ERR",
            keys={"a": "string 2", LONG: LONG},
        ),
        *(Step(lane=f"client {n}", action=HOSTILE, state=LONG, keys={}) for n in range(2, 9)),
    )
    findings = [finding(cause=str(n), headline=f"{HOSTILE} {n}", steps=steps) for n in range(6)]
    findings += [finding(cause=f"c{one}", change=one, headline=LONG, steps=(), replay=LONG) for one in Change]
    report = made(*findings, name=HOSTILE)
    rows = (
        ChangedLine(old="local a = 1", new="local a = 2"),
        ChangedLine(old=None, new=LONG),
        ChangedLine(old=LONG, new=None),
    )
    subject = report.subjects[0].model_copy(
        update={"changed": (ChangedFile(path="a.lua", rows=rows),), "base": "HEAD", "not_covered": (LONG,)}
    )
    return report.model_copy(update={"subjects": (subject,)})


def of_sweep(parameters: tuple[str, str], metric: str) -> str:
    """The page of a sweep over two parameters."""
    one, other = parameters
    points = [
        PointRows(n, {one: n % 5, other: f"{other} {n // 5}"}, {metric: [float(n), n + 1.0]}, runs=2, failed=n == 3)
        for n in range(20)
    ]
    behind = {n: RunsOfPoint("orderlab sweep s.toml --only 1", "run 1") for n in range(20)}
    panels, undrawn = drawings(points, [one], [metric], behind)
    assert panels
    answered = SimpleNamespace(
        kind="risk", settings=(), replays=(), rows=[{"probability": 0.1, "low": 0.0, "high": 0.4, "runs": 9}]
    )
    panels.append(drawn(answered, SimpleNamespace(question={"acceptable": 0.05, "unacceptable": 0.2})))
    return harmless(
        template("sweep.html.j2").render(
            warnings=[],
            nominal="",
            title=one,
            description=other,
            outcome=Outcome.VIOLATED,
            sentence=LONG,
            runs=40,
            counts=SimpleNamespace(rows=39, failed=1, violated=1),
            spared=0,
            until=None,
            seed=1,
            versions={"orderlab": "1"},
            cliffs=[{other: "y", "last_below": 1}],
            cliff_axis=one,
            cliff_metric=metric,
            panels=panels,
            undrawn=undrawn,
            heats=heat_maps(points, list(parameters), [metric]),
            varied=list(parameters),
            replications=2,
            shown=[{"run": 3, "point": 1, "told": LONG, "replay": LONG}],
            hidden=1,
            behind=behind,
            points_hidden=0,
            left_out=[LONG],
            points=[
                {
                    "point": (p.point, p.point),
                    one: (str(p.parameters[one]), p.parameters[one]),
                    metric: (LONG if p.point == 3 else "1 ± 2", 1.0),
                }
                for p in points
            ],
            fixed=[{"parameter": "p", "value": LONG}],
            digests=[{"": "code", "digest": LONG}],
        )
    )


def of_cheapest(folder: Path) -> str:
    """The page of a question: short names of columns beside long ones."""
    metric = "latency.publish_to_delivery.p99_ms"
    question = {"kind": "cheapest", "price": "redis_nodes", "targets": {metric: 120.0}}
    rows = [
        {"lettuce_batch": 10, "linger_ms": 1, "redis_nodes": price, metric: 391.2 / price, f"{metric}.high": 411.4,
         "price": price, "sound": True, "meets": price > 4, "open": False, "on_front": True}
        for price in (1, 3, 6)
    ]  # fmt: skip
    answer = Answer("cheapest", 1, folder, rows, ["a note"], Outcome.HOLDS, ("lettuce_batch", "linger_ms"))
    sweep = SweepFile.model_validate({"system": "tbmq-p2p", "output": str(folder), "question": question})
    return write_answer_page(replace(answer, replays=("orderlab sweep s.toml --only 1",) * 3), sweep).read_text()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    pages = {
        "findings": page(of_findings()),
        "none": page(made()),
        "answer": of_cheapest(tmp_path_factory.mktemp("answer")),
        "sweep": of_sweep(("rate", "mode"), "latency.publish_to_delivery.mean_ms"),
        "hostile": of_sweep((HOSTILE, LONG), f"{HOSTILE}_ms"),
        "wrong": page(made()).replace(
            "</body>", "<script>nothing.there()</script><div style='width:2000px'>x</div></body>"
        ),
    }
    return probed(pages, tmp_path_factory.mktemp("pages"))


@pytest.mark.parametrize("width", [NARROW, WIDE])
@pytest.mark.parametrize("name", ["findings", "none", "answer", "sweep", "hostile"])
def test_a_page_works_in_a_browser(name: str, width: int, told: dict[str, dict[str, Any]]) -> None:
    found = told[f"{name}-{width}"]
    assert found["errors"] == []
    assert found["overflow"] <= 0, found["wide"]
    assert found["overflow_open"] <= 0
    assert (found["unreached"], found["bare"]) == (0, 0)


def test_a_drawing_fills_the_page_and_no_word_of_a_head_is_broken(told: dict[str, dict[str, Any]]) -> None:
    assert told[f"answer-{WIDE}"]["share"] > 0.9
    for name in ("answer", "sweep"):
        assert told[f"{name}-{WIDE}"]["broken"] == []


def test_a_page_is_sorted_filtered_and_hovered_over(told: dict[str, dict[str, Any]]) -> None:
    assert told[f"sweep-{WIDE}"]["sorted"] >= 1
    assert told[f"sweep-{WIDE}"]["filtered"] == ["0 of 20"]
    assert "orderlab sweep s.toml --only 1" in told[f"sweep-{WIDE}"]["tip"]
    assert told[f"findings-{WIDE}"]["filtered"][0].startswith("0 of ")


def test_a_range_drawn_over_a_chart_fills_it_until_a_double_click(told: dict[str, dict[str, Any]]) -> None:
    for width in (NARROW, WIDE):
        whole, zoomed, again = told[f"sweep-{width}"]["ticks"]
        assert whole == again == "0 1 2 3 4"
        low, high = (float(zoomed.split()[end]) for end in (0, -1))
        assert 0 < low < high < 4
        assert high - low < 2


def test_a_page_that_is_wrong_is_seen(told: dict[str, dict[str, Any]]) -> None:
    assert told[f"wrong-{NARROW}"]["errors"]
    assert told[f"wrong-{NARROW}"]["overflow"] > 0
