"""What users import: a few modules that teach by examples that run; the papers import from nowhere else."""

from __future__ import annotations

import ast
import doctest
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PUBLIC = ("specification", "contract", "adapter", "machines", "history")
PAPERS = [ROOT / "README.md", *sorted((ROOT / "notes").glob("*.md"))]
EXAMPLES = [
    ROOT / "orderlab/commands/explore_template.py", *sorted((ROOT / "orderlab/lua").rglob("*.py")),
    *sorted((ROOT / "orderlab/spark_sweeps/examples").rglob("*.py")),
]  # fmt: skip


def snippets(paper: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", paper.read_text(), re.DOTALL)


def imports(text: str) -> list[ast.ImportFrom | ast.Import]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom | ast.Import)]


def inner(text: str) -> list[str]:
    """What a text imports of orderlab past the public modules."""
    names = [
        one.module or "" if isinstance(one, ast.ImportFrom) else alias.name
        for one in imports(text)
        for alias in one.names
    ]
    return [
        name for name in names if name.split(".")[0] == "orderlab" and name not in {f"orderlab.{one}" for one in PUBLIC}
    ]


@pytest.mark.parametrize("name", PUBLIC)
def test_its_examples_run_and_it_names_what_it_has(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    module = import_module(f"orderlab.{name}")
    told = doctest.testmod(module)
    assert told.attempted >= 2
    assert told.failed == 0
    assert all(hasattr(module, one) for one in module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)
    with pytest.raises(AttributeError):
        _ = module.nothing_of_the_kind


def test_papers_templates_and_examples_import_public_modules_only() -> None:
    texts: dict[Path, list[str]] = {paper: snippets(paper) for paper in PAPERS}
    texts |= {example: [example.read_text()] for example in EXAMPLES}
    assert sum(bool(imports(text)) for several in texts.values() for text in several) >= 4
    assert not {str(place): found for place, several in texts.items() for text in several if (found := inner(text))}


def test_what_papers_import_is_there() -> None:
    for paper in PAPERS:
        for text in snippets(paper):
            names: dict[str, Any] = {}
            for one in imports(text):
                exec(ast.unparse(one), names)  # it is our own text


def test_papers_name_no_inner_path_as_something_to_import() -> None:
    """`orderlab.model.…` in running text is an invitation; paths of files say where to read."""
    invited = re.compile(r"\borderlab\.(?:model|sim|properties|spark_sweeps)\.\w+")
    found = {}
    for paper in PAPERS:
        lines = [line for line in paper.read_text().splitlines() if invited.search(line) and "python -m" not in line]
        # For who changes orderlab.
        if lines and paper.name not in ("CONTRIBUTING.md", "ARCHITECTURE.md", "decisions.md"):
            found[paper.name] = lines
    assert not found


def test_a_specification_or_a_contract_is_written_without_anything_of_weight() -> None:
    heavy = {"numba", "pyarrow", "scipy", "lupa", "hypothesis", "simpy", "networkx"}
    program = "import sys, orderlab.contract, orderlab.specification; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not heavy & set(done.stdout.split())
