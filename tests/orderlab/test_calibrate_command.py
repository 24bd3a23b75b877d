"""`orderlab calibrate`: one line for what cannot be measured."""

import pytest

from orderlab.cli import main


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("redis://127.0.0.1:1",), "cannot connect"),
        (("somewhere",), "redis://HOST:PORT"),
        (("auto", "--calls", "5"), "at least 1000"),
        (("auto", "--out", "/nowhere/costs.toml"), "a folder that exists"),
        (("auto", "--base", "nope"), "one of cluster, prototype"),
    ],
)
def test_what_cannot_be_measured_is_one_line(arguments, complaint, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["orderlab", "calibrate", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    printed = capsys.readouterr()
    assert left.value.code == 2
    assert complaint in printed.err
    assert len(printed.err.strip().splitlines()) == 1
