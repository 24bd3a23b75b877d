"""What a run said is shown on one line and gives a terminal no orders."""

from orderlab.render.sweep import SAID_MAX, said


def test_what_a_run_said_is_one_printable_line():
    assert said("ValueError: first\n  second \x1b[31mred\x07") == "ValueError: first second  [31mred "
    assert said("ünïcode ☃ [red]") == "ünïcode ☃ \\[red]"
    assert len(said("e" * 10_000)) == SAID_MAX + 3
