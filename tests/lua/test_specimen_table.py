"""The table of the specimens lists every one of them, with what it breaks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

SPECIMENS = Path(__file__).parents[2] / "lua" / "specimens"


def test_the_table_lists_every_specimen_with_what_it_breaks() -> None:
    rows = re.findall(
        r"^\| (\w+) \| \[([\w-]+)\]\(\2\)[^|]*\| ([^|]+) \| \[\w+\]\(([\w./]+)\) \|$",
        (SPECIMENS / "README.md").read_text(),
        re.MULTILINE,
    )
    told = {name: (number, set(broken.split(", ")), neighbour) for number, name, broken, neighbour in rows}
    for file in sorted(SPECIMENS.glob("*/store.toml")):
        name, table = file.parent.name, tomllib.loads(file.read_text())["specimen"]
        if table["id"] in ("published", "pending"):  # whole designs, with several flaws at once
            told.pop(name, None)
            continue
        number, broken, neighbour = told.pop(name)
        assert (number, (SPECIMENS / neighbour).resolve()) == (
            table["id"],
            (file.parent / table["neighbour"]).resolve(),
        )
        assert broken <= set(table["breaks"]), name
    assert not told
