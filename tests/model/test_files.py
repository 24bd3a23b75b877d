"""Files: what is there is replaced only where it is a plain file; what is read is refused in one line."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orderlab.model.errors import InputError, did_you_mean
from orderlab.model.files import (
    WholeFile,
    _remove_abandoned_folders,
    _remove_once,
    checked_place,
    read_json,
    read_toml,
    scratch_folder,
    write_whole,
)
from orderlab.model.history.disk import HistoryWriter
from orderlab.model.history.events import Names


def _device(path: Path, minor: int) -> Path:
    """A node made for the test: 7 is that of /dev/full, 3 that of /dev/null. A user without the right to make one gets
    a pipe."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
    except PermissionError:
        pytest.xfail("only root makes device nodes")
    return path


def test_a_device_stays_a_device_and_its_error_is_one_line(tmp_path: Path) -> None:
    full = _device(tmp_path / "full", 7)
    with pytest.raises(InputError, match=r"full: cannot be written \(No space left on device\)"):
        write_whole(full, b"text")
    assert stat.S_ISCHR(full.stat().st_mode)
    write_whole(_device(tmp_path / "null", 3), b"text")
    assert stat.S_ISCHR((tmp_path / "null").stat().st_mode)


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe, found = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"text")
    reader.join()
    assert found == [b"text"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_is_followed_and_stays(tmp_path: Path, is_there: bool) -> None:
    link, target = tmp_path / "link", tmp_path / "below" / "target"
    target.parent.mkdir()
    if is_there:
        target.write_text("before")
        target.chmod(0o640)
    link.symlink_to("below/target")
    write_whole(link, b"after")
    assert link.is_symlink()
    assert target.read_bytes() == b"after"
    assert stat.S_IMODE(target.stat().st_mode) == (0o640 if is_there else 0o644)
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["below", "link", "target"]


KILLED = """
import os, signal, sys
from pathlib import Path
from orderlab.model.files import WholeFile
out = WholeFile(Path(sys.argv[1]))
out.file.write(b"half")
out.file.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_run_left_goes_at_the_next_start_and_what_is_being_written_stays(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.write_bytes(b"before")
    subprocess.run([sys.executable, "-c", KILLED, str(out)], check=False)
    left = [one.name for one in tmp_path.iterdir() if one != out]
    assert len(left) == 1
    assert out.read_bytes() == b"before"
    under_way = WholeFile(tmp_path / "other.json")
    assert left[0] not in os.listdir(tmp_path)
    _remove_once.cache_clear()
    write_whole(out, b"after")
    assert sorted(os.listdir(tmp_path)) == sorted(["out.json", os.path.basename(under_way.file.name)])
    under_way.keep()
    assert sorted(os.listdir(tmp_path)) == ["other.json", "out.json"]
    assert out.read_bytes() == b"after"


def test_a_history_follows_a_link_and_refuses_a_pipe(tmp_path: Path) -> None:
    link = tmp_path / "link.jsonl"
    link.symlink_to("target.jsonl")
    with HistoryWriter(link, Names()):
        pass
    assert link.is_symlink()
    assert (tmp_path / "target.jsonl").is_file()
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(InputError, match="no plain file"):
        HistoryWriter(tmp_path / "pipe.jsonl", Names())
    assert stat.S_ISFIFO((tmp_path / "pipe.jsonl").stat().st_mode)


def test_a_place_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "to-folder").symlink_to(tmp_path)
    (tmp_path / "to-nothing").symlink_to("no/such")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("", "to-folder", "no/such", "to-nothing", "loop", "x" * 300, "nul\0"):
        with pytest.raises(InputError, match=r"^--out"):
            checked_place("--out", tmp_path / name)
    assert checked_place("--out", tmp_path / "new") == tmp_path / "new"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a = " + b"9" * 5000, "not TOML"),
        (b"a = " + b"[" * 200_000, "nested too deeply"),
        (b"a = 1\na = 2", "not TOML"),
        (b"\xff\xfe", "not UTF-8"),
        (b"a" + b".a" * 100 + b" = 1", "dotted key"),
        (b'"a\\"b"' + b' . "a\\"b"' * 100 + b" = 1", "dotted key"),
    ],
)
def test_toml_that_cannot_be_read_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.toml").write_bytes(content)
    with pytest.raises(InputError, match=said) as refused:
        read_toml(tmp_path / "x.toml")
    assert "x.toml: " in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"b": {"a": 1, "a": 2}}', "'a' stands twice"),
        (b"{%s}" % b",".join(b'"%d":1' % number for number in [*range(50_000), 49_999]), "'49999' stands twice"),
        (b"\xff\xfe\xff", "not JSON"),
        (b"", "not JSON"),
    ],
)
def test_json_that_cannot_be_read_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_json(tmp_path / "x.json")
    (tmp_path / "x.json").write_bytes(b'{"b": {"a": 1, "A": 2}, "a": 3}')
    assert read_json(tmp_path / "x.json") == {"b": {"a": 1, "A": 2}, "a": 3}


def test_characters_that_do_not_show_are_shown() -> None:
    assert "'shape\\u200b'" in did_you_mean("shape\u200b", ["shape"])
    assert did_you_mean("shpae", ["shape"]) == 'did you mean "shape"?'


KILLED_IN_SCRATCH = """
import os, signal
from orderlab.model.files import scratch_folder
with scratch_folder() as folder:
    (folder / "history.parquet").write_bytes(b"rows")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_scratch_folder_of_a_killed_process_goes_and_that_of_a_live_one_stays(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    _remove_abandoned_folders.cache_clear()
    with scratch_folder() as mine:
        environment = os.environ | {"TMPDIR": str(tmp_path)}
        subprocess.run([sys.executable, "-c", KILLED_IN_SCRATCH], env=environment, check=False)
        assert len(list(tmp_path.iterdir())) == 2
        _remove_abandoned_folders.cache_clear()
        with scratch_folder() as other:
            assert set(tmp_path.iterdir()) == {mine, other}
    assert not list(tmp_path.iterdir())
