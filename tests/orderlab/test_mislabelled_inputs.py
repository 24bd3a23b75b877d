"""Files that are whole but not what their names say, or cut short: a verdict on what stands in them, or one line that
says what they are."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from orderlab.model.errors import InputError
from orderlab.model.files import refuse_compressed
from orderlab.model.history.disk import write_history
from orderlab.model.history.notation import parse_history
from tests.in_process import orderlab

FORMS = ("jsonl", "csv", "parquet")
KEPT = "S + P1 A1 P2 A2 D1#1 D2#2 K#1 K#2"
TURNED = "S + P1 A1 P2 A2 D2#2 D1#1 K#2 K#1"


def zipped(content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("h", content)
    return packed.getvalue()


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda content: bytes(pa.Codec("zstd").compress(content, asbytes=True)),
    "lz4": lambda content: bytes(pa.Codec("lz4").compress(content, asbytes=True)),
    "zip": zipped,
}


def written(folder: Path, notation: str, form: str) -> bytes:
    write_history(parse_history(notation), folder / f"h.{form}")
    return (folder / f"h.{form}").read_bytes()


@pytest.mark.parametrize("by", COMPRESSED)
def test_a_compressed_file_is_called_so_whatever_its_name(by: str, tmp_path: Path) -> None:
    content = COMPRESSED[by](written(tmp_path, KEPT, "jsonl"))
    for name in ("h.jsonl", "h.csv", "h.parquet", "h.edn", "h.log", "h", "h.jsonl.packed"):
        (tmp_path / name).write_bytes(content)
        found = orderlab("check", tmp_path / name)
        assert (found.returncode, found.stdout) == (2, "")
        assert found.stderr == f"orderlab: {tmp_path / name}: compressed with {by}; decompress it first\n"


@pytest.mark.parametrize(
    "command", [["replay"], ["certify"], ["sweep"], ["simulate", "tbmq-p2p", "--config"], ["validate"]], ids=str
)
def test_every_command_calls_a_compressed_file_so(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(gzip.compress(b"a = 1"))
    found = orderlab(*command, tmp_path / "a.toml")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == f"orderlab: {tmp_path / 'a.toml'}: compressed with gzip; decompress it first\n"


@pytest.mark.parametrize("form", FORMS)
def test_a_history_under_another_name_is_judged_as_what_it_is_or_refused(form: str, tmp_path: Path) -> None:
    codes = set()
    for notation, right in ((KEPT, 0), (TURNED, 1)):
        content = written(tmp_path, notation, form)
        for suffix in (".jsonl", ".ndjson", ".json", ".csv", ".parquet", ".edn", ".log", ".txt", ""):
            other = tmp_path / f"other{suffix}"
            other.write_bytes(content)
            found = orderlab("check", other)
            assert found.returncode in (right, 2), (suffix, found.stdout, found.stderr)
            codes.add(found.returncode)
            if found.returncode == 2:
                assert (found.stdout, found.stderr.count("\n")) == ("", 1), found.stderr
    assert codes >= {0, 1}


@pytest.mark.parametrize("form", FORMS)
def test_a_history_that_was_cut_is_refused_unless_between_rows(form: str, tmp_path: Path) -> None:
    content = written(tmp_path, KEPT, form)
    cut = tmp_path / f"cut.{form}"
    for length in (*range(0, len(content), max(len(content) // 12, 1)), len(content) - 2):
        cut.write_bytes(content[:length])
        found = orderlab("check", cut)
        # text that ends with a row is a shorter history; all that Parquet holds is told at its end
        is_whole_rows = form != "parquet" and content[length - 1 : length + 1].find(b"\n") >= 0 and length > 1
        assert found.returncode == 2 or is_whole_rows, (length, found.stdout)
        assert found.returncode != 2 or found.stderr.count("\n") == 1


def test_text_in_another_encoding_is_told_with_its_cure(tmp_path: Path) -> None:
    for form in ("jsonl", "csv"):
        text = written(tmp_path, KEPT, form).decode()
        (tmp_path / f"u.{form}").write_bytes(text.encode("utf-16"))
        found = orderlab("check", tmp_path / f"u.{form}")
        assert (found.returncode, found.stdout) == (2, "")
        assert "not UTF-8 text" in found.stderr
        assert found.stderr.endswith("save it as UTF-8\n")


@pytest.mark.usefixtures("smallest_scopes")
def test_reports_for_other_programs_are_not_replayed(tmp_path: Path) -> None:
    forms = {"sarif": "a SARIF log, which has no steps"} | dict.fromkeys(("junit", "markdown", "html"), "not JSON")
    written = [word for form in forms for word in ("--report", f"{form}={tmp_path / form}")]
    judged = ["validate", "lua/specimens/fetch-removes", "--law", "no-loss", "--effort", "0.01", *written]
    assert orderlab(*judged).returncode == 1
    for form, told in forms.items():
        found = orderlab("replay", tmp_path / form)
        assert (found.returncode, found.stdout, found.stderr.count("\n")) == (2, "", 1)
        assert told in found.stderr


def test_three_letters_do_not_make_a_file_compressed() -> None:
    refuse_compressed(b"BZhours,kind\n", "hours.csv")
    with pytest.raises(InputError, match="bzip2"):
        refuse_compressed(bz2.compress(b"")[:4] + b"1A", "h")
