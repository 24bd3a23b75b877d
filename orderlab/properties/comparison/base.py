"""The old scripts: a folder, a single file, or a revision of the git repository that the store lies in."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from orderlab.model.errors import InputError

if TYPE_CHECKING:
    from orderlab.sim.stores.binding.binding import Binding

KINDS = ("*.lua", "*.toml", "*.py")
"""What a store is made of."""


@contextmanager
def old_store(path: Path, base: str, trust_adapter: bool = False) -> Iterator[Binding]:
    """The old store, loaded. What has to be made of it is gone afterwards. Raises InputError that says that it is the old one."""
    from orderlab.sim.stores.binding.loader import load_binding

    with tempfile.TemporaryDirectory() as scratch:
        place = base_of(path, base, Path(scratch))
        try:
            old = load_binding(place, trust_adapter=trust_adapter)
        except InputError as error:
            raise InputError(f"--base {base}, the old store: {error}") from None
        yield old


def base_of(path: Path, base: str, scratch: Path) -> Path:
    """Where the old store lies; what has to be made of it is made in ``scratch``, and the work tree is not touched.

    ``base`` is a path if there is one of that name, else a revision. Raises InputError where it is neither.
    """
    old = Path(base)
    if old.suffix == ".lua" and old.is_file():
        return _with_script(path, old, scratch)
    if old.exists():
        return old
    return _at_revision(path, base, scratch)


def _with_script(path: Path, script: Path, scratch: Path) -> Path:
    """The store with one script as it was."""
    from orderlab.sim.stores.binding.loader import load_binding

    folder = path if path.is_dir() else path.parent
    names = sorted(one.path.name for one in load_binding(path).scripts)
    if script.name not in names:
        raise InputError(f"--base {script}: {path} has no script of that name; its scripts are {', '.join(names)}")
    copy = scratch / folder.resolve().name
    shutil.copytree(folder, copy, ignore=lambda _, found: [one for one in found if not (folder / one).is_file()])
    if not (copy / script.name).is_file():
        raise InputError(f"--base {script}: {script.name} lies outside {folder}; name the folder of the old store instead")
    shutil.copyfile(script, copy / script.name)
    return copy / path.name if path.is_file() else copy


def _at_revision(path: Path, revision: str, scratch: Path) -> Path:
    """The store as it was at a revision, with all that it may refer to."""
    real = path.resolve()
    folder = real if real.is_dir() else real.parent
    if revision.startswith("-"):
        raise InputError(f"--base {revision}: neither a path nor a revision; name one")
    top = Path(_git(folder, "rev-parse", "--show-toplevel", place=revision).decode().strip())
    _git(folder, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", place=revision)
    packed = _git(top, "archive", "--format=tar", revision, place=revision)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        wanted = [one for one in archive.getmembers() if one.isdir() or one.name.endswith(tuple(kind[1:] for kind in KINDS))]
        try:
            archive.extractall(scratch, members=wanted, filter="data")
        except tarfile.FilterError as error:
            raise InputError(f"--base {revision}: {error}; give the folder of the old store instead") from None
    old = scratch / real.relative_to(top.resolve())
    if not (old / "store.toml" if real.is_dir() else old).is_file():
        raise InputError(f"--base {revision}: there was no {real.relative_to(top.resolve())} then; name a later revision")
    return old


def _git(folder: Path, *arguments: str, place: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        raise InputError(f"--base {place}: there is no such path, and no git to look for a revision; install git") from None
    if done.returncode:
        told = done.stderr.decode(errors="replace").strip().splitlines()
        if told and "not a git repository" in told[-1]:
            raise InputError(f"--base {place}: there is no such path, and {folder} lies in no git repository; name the folder of the old store")
        why = f" ({told[-1]})" if told else ""
        raise InputError(f"--base {place}: neither a path nor a revision of the repository of {folder}{why}; name one")
    return done.stdout
