"""`orderlab simulate`: outputs that cannot be written are refused before anything is."""

import pytest

from orderlab.commands.simulate import simulate
from orderlab.model.errors import InputError


def test_a_trace_does_not_overwrite_the_history(tmp_path):
    (tmp_path / "sub").mkdir()
    history, same = tmp_path / "run.jsonl", tmp_path / "sub" / ".." / "run.jsonl"
    with pytest.raises(InputError, match="a file of its own"):
        simulate("tbmq-p2p", ["publishers=5"], history=history, trace=same)
    assert not history.exists()


def test_a_trace_that_is_a_folder_is_refused_before_the_run(tmp_path):
    history = tmp_path / "run.jsonl"
    with pytest.raises(InputError, match="is a folder"):
        simulate("tbmq-p2p", ["publishers=5"], history=history, trace=tmp_path)
    assert not history.exists()
