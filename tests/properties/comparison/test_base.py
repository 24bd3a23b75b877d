"""The old store, whatever state the repository is in that it lies in: as of then, and nothing of the repository is
touched."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from orderlab.model.errors import InputError
from orderlab.properties.comparison.base_revision import old_store
from orderlab.properties.comparison.differences import has_same_text
from orderlab.sim.stores.binding.loader import load_binding

BINDING = """
[keys]
queue = "{<client>}:queue"

[operations.save]
script = "save.lua"
keys = ["queue"]
args = ["<limit>", { each = "messages", items = ["<payload>"] }]

[operations.fetch]
command = ["LRANGE", "<key.queue>", "0", "-1"]
reply = { shape = "strings", fields = { payload = "value" } }
"""
FIRST, SECOND, DIRTY = b"return 1 -- first\n", b"return 2 -- second\n", b"return 3 -- not committed\n"


def git(folder: Path, *arguments: str | bytes) -> bytes:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True).stdout


def put(folder: Path, source: bytes, binding: str = BINDING) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "store.toml").write_text(binding)
    (folder / "save.lua").write_bytes(source)
    return folder


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "a change")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a store in a folder below, changed since its first commit, and once more in the work tree."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for source in (FIRST, SECOND):
        put(folder / "stores" / "queue", source)
        commit(folder)
    put(folder / "stores" / "queue", DIRTY)
    return folder


def source_of(store: Path, base: str, name: str = "save.lua") -> bytes:
    with old_store(store, base) as old:
        return {one.name: one.source for one in old.scripts}[name]


def told(store: Path, base: str) -> str:
    with pytest.raises(InputError) as raised, old_store(store, base):
        pass
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_the_work_tree_and_the_index_stay_as_they_are(project: Path) -> None:
    (project / "stores" / "queue" / "new.lua").write_bytes(b"return 4")
    git(project, "add", "stores/queue/new.lua")
    before = (
        git(project, "status", "--porcelain"),
        (project / ".git" / "index").read_bytes(),
        sorted(project.rglob("*")),
    )
    assert source_of(project / "stores" / "queue", "HEAD") == SECOND
    assert source_of(project / "stores" / "queue", "HEAD~1") == FIRST
    assert (project / "stores" / "queue" / "save.lua").read_bytes() == DIRTY
    assert (
        git(project, "status", "--porcelain"),
        (project / ".git" / "index").read_bytes(),
        sorted(project.rglob("*")),
    ) == before


@pytest.mark.parametrize("revision", ["HEAD~0", "main", "v1", "light", "@", "HEAD@{0}", "main^0", ":/a change"])
def test_every_name_of_a_revision(revision: str, project: Path) -> None:
    git(project, "tag", "-a", "v1", "-m", "an annotated tag")
    git(project, "tag", "light")
    assert source_of(project / "stores" / "queue", revision) == SECOND


@pytest.mark.parametrize(
    "revision",
    [
        "-x",
        "--all",
        "HEAD..main",
        "HEAD:stores",
        "main~9",
        "",
        " ",
        "x" * 5000,
        "a\nb",
        "ü\udcff",
        "HEAD:stores/queue/save.lua",
    ],
)
def test_what_is_no_revision_is_one_line(revision: str, project: Path) -> None:
    assert "--base" in told(project / "stores" / "queue", revision)


def test_export_attributes_leave_nothing_out_and_change_nothing(project: Path) -> None:
    (project / ".gitattributes").write_text("*.lua export-ignore\nstore.toml export-subst\n")
    put(project / "stores" / "queue", b"return 5 -- $Format:%H$\n")
    commit(project)
    assert source_of(project / "stores" / "queue", "HEAD") == b"return 5 -- $Format:%H$\n"


def test_a_link_elsewhere_in_the_repository_is_no_matter(project: Path) -> None:
    (project / "away.lua").symlink_to("/etc/passwd")
    commit(project)
    assert source_of(project / "stores" / "queue", "HEAD") == DIRTY


def test_a_script_that_was_a_link_is_read_in_the_old_tree(project: Path) -> None:
    store = project / "stores" / "queue"
    (store / "real.lua").write_bytes(FIRST)
    (store / "save.lua").unlink()
    (store / "save.lua").symlink_to("real.lua")
    commit(project)
    (store / "real.lua").write_bytes(DIRTY)
    assert source_of(store, "HEAD") == FIRST
    (store / "save.lua").unlink()
    (store / "save.lua").symlink_to("/etc/passwd")
    commit(project)
    (store / "save.lua").unlink()
    (store / "save.lua").write_bytes(FIRST)
    assert "lies outside the store's folder" in told(store, "HEAD")


def test_a_store_behind_a_link_is_where_the_link_led_then(project: Path) -> None:
    put(project / "stores" / "v1", FIRST)
    put(project / "stores" / "v2", SECOND)
    link = project / "stores" / "current"
    link.symlink_to("v1")
    commit(project)
    link.unlink()
    link.symlink_to("v2")
    assert source_of(link, "HEAD") == FIRST
    link.unlink()
    link.symlink_to("/etc")
    commit(project)
    link.unlink()
    link.symlink_to("v2")
    assert "a link out of the repository" in told(link, "HEAD")


def test_a_link_to_the_repository_is_the_repository(project: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project)
    assert source_of(tmp_path / "link" / "stores" / "queue", "HEAD~1") == FIRST
    (tmp_path / "store").symlink_to(project / "stores" / "queue")
    assert source_of(tmp_path / "store", "HEAD~1") == FIRST


def test_a_store_that_lay_elsewhere_or_had_other_scripts(project: Path) -> None:
    git(project, "checkout", "-q", ".")
    git(project, "mv", "stores/queue", "stores/renamed")
    assert "there was no stores/renamed then" in told(project / "stores" / "renamed", "HEAD")
    other = project / "stores" / "renamed"
    put(other, FIRST, BINDING.replace("save.lua", "append.lua"))
    (other / "save.lua").rename(other / "append.lua")
    commit(project)
    put(other, SECOND)
    assert source_of(other, "HEAD", "append.lua") == FIRST
    (other / "store.toml").unlink()
    commit(project)
    put(other, SECOND)
    assert "there was no stores/renamed then" in told(other, "HEAD")
    (other / "store.toml").write_text("[keys\n")
    commit(project)
    put(other, SECOND)
    assert "the old store: " in told(other, "HEAD")


def test_submodules_shallow_clones_work_trees_and_sparse_ones(project: Path, tmp_path: Path) -> None:
    git(project, "checkout", "-q", ".")
    whole = tmp_path / "whole"
    whole.mkdir()
    git(whole, "init", "-q")
    git(whole, "submodule", "add", "-q", str(project), "module")
    commit(whole)
    assert source_of(whole / "module" / "stores" / "queue", "HEAD~1") == FIRST
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{project}", "shallow")
    assert source_of(tmp_path / "shallow" / "stores" / "queue", "HEAD") == SECOND
    assert "neither a path nor a revision" in told(tmp_path / "shallow" / "stores" / "queue", "HEAD~1")
    git(project, "worktree", "add", "-q", str(tmp_path / "beside"))
    assert source_of(tmp_path / "beside" / "stores" / "queue", "HEAD~1") == FIRST
    git(tmp_path, "clone", "-q", str(project), "sparse")
    store = tmp_path / "sparse" / "stores" / "queue"
    git(tmp_path / "sparse", "sparse-checkout", "set", "--no-cone", "nothing-of-it")
    put(store, DIRTY)
    assert source_of(store, "HEAD") == SECOND


def test_in_a_bare_repository_a_folder_is_asked_for(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(project), "bare.git")
    assert "lies in no git work tree" in told(put(tmp_path / "bare.git" / "store", FIRST), "HEAD")
    monkeypatch.chdir(tmp_path / "bare.git")  # where the command is called is no matter
    assert source_of(project / "stores" / "queue", "HEAD~1") == FIRST


def test_a_shallow_clone_says_how_the_rest_is_fetched(project: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", project.as_uri(), "shallow")
    assert told(tmp_path / "shallow" / "stores" / "queue", "HEAD~1").endswith(
        "or fetch the others: git fetch --unshallow"
    )
    assert told(project / "stores" / "queue", "nowhere").endswith("; name one")


def test_what_git_tells_its_hooks_is_not_of_the_store(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    for name, value in (
        ("GIT_DIR", ".git"),
        ("GIT_INDEX_FILE", str(other / ".git" / "index")),
        ("GIT_WORK_TREE", str(other)),
        ("GIT_PREFIX", "x/"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LANGUAGE", "de")
    assert source_of(project / "stores" / "queue", "HEAD~1") == FIRST
    assert not (other / ".git" / "index").exists()


def test_paths_that_are_no_utf8(project: Path, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9 \xff") / "a\nb"
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    store = put(folder / os.fsdecode(b"st\xf8re"), FIRST)
    commit(folder)
    put(store, SECOND)
    assert source_of(store, "HEAD") == FIRST


def test_one_script_as_it_was_takes_the_place_of_the_right_one(tmp_path: Path) -> None:
    binding = (
        BINDING.replace("save.lua", "one/save.lua")
        + '\n[operations.clear]\nscript = "two/save.lua"\nkeys = ["queue"]\n'
    )
    store = put(tmp_path / "store", FIRST, binding)
    for name in ("one", "two"):
        (store / name).mkdir()
        (store / name / "save.lua").write_bytes(FIRST)
    (tmp_path / "old" / "two").mkdir(parents=True)
    (tmp_path / "old" / "two" / "save.lua").write_bytes(SECOND)
    shutil.copy(tmp_path / "old" / "two" / "save.lua", tmp_path / "save.lua")
    with old_store(store, str(tmp_path / "old" / "two" / "save.lua")) as old:
        assert {one.name: one.source for one in old.scripts} == {"one/save.lua": FIRST, "two/save.lua": SECOND}
        assert not has_same_text(old, load_binding(store))
    assert "may be one/save.lua or two/save.lua" in told(store, str(tmp_path / "save.lua"))
    (tmp_path / "other.lua").write_bytes(FIRST)
    assert "has no script of that name" in told(store, str(tmp_path / "other.lua"))
