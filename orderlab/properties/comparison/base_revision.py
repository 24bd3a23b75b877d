"""The old scripts: a folder, a single file, or a revision of the git repository that the store lies in."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from orderlab.model.errors import InputError
from orderlab.sim.stores.sources import SUFFIXES

if TYPE_CHECKING:
    from orderlab.sim.stores.binding.binding import Binding

OF_A_COMMAND = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
"""What git tells its hooks of the repository that it works on, which need not be that of the store."""
SHOWN_MAX = 200
"""Characters of a name."""
OF_A_STORE = (b".lua", b".toml", *(suffix.encode() for suffix in SUFFIXES))
"""What stores are made of."""
LINK = b"120000 "
"""With this begins what git tells of a link."""


@contextmanager
def old_store(path: Path, base: str, trust_adapter: bool = False) -> Iterator[Binding]:
    """The old store, loaded: ``base`` is a folder or a script if there is one of that name, else a revision. What has
    to be made of it is gone afterwards. Raises InputError that says that it is the old one."""
    from orderlab.sim.stores.binding.loader import load_binding

    with tempfile.TemporaryDirectory() as scratch:
        instead: dict[str, Path] = {}
        place = path
        if base.endswith((".lua", *SUFFIXES)) and _is_there(Path(base), Path.is_file):
            instead[_file_named(load_binding(path, trust_adapter=trust_adapter), Path(base))] = Path(base)
        else:
            place = base_of(path, base, Path(scratch))
        try:
            old = load_binding(place, trust_adapter=trust_adapter, instead=instead)
        except InputError as error:
            raise InputError(f"--base {shown(base)}, the old store: {error}") from None
        yield old


def base_of(path: Path, base: str, scratch: Path, is_store: bool = True) -> Path:
    """Where the old store lies; what has to be made of it is made in ``scratch``, and the work tree is not touched.

    ``base`` is a path if there is one of that name, else a revision. ``is_store``: a folder must have been a store's
    then. Raises InputError where it is neither.
    """
    if not base:
        raise InputError("--base: empty; name a revision, a folder or a script")
    return Path(base) if _is_there(Path(base), Path.exists) else _at_revision(path, base, scratch, is_store)


def shown(name: str) -> str:
    """A name in one line, and not without end."""
    told = name if name.isprintable() else ascii(name)[1:-1]
    return told if len(told) <= SHOWN_MAX else f"{told[:SHOWN_MAX]}..."


def _is_there(path: Path, asked: Callable[[Path], bool]) -> bool:
    try:
        return asked(path)
    except (OSError, ValueError):  # a name that no file can have
        return False


def _file_named(new: Binding, script: Path) -> str:
    """The store's file that ``script`` is a version of: the one of its name, and of the same folder where there are
    several. Raises InputError where there is none, or no saying which."""
    names = sorted({name.partition("#")[0] for one in new.scripts for name in one.files})
    parts = script.absolute().parts
    alike = {name: _ends_alike(Path(name).parts, parts) for name in names}
    best = max(alike.values(), default=0)
    found = [name for name in names if alike[name] == best]
    if not best:
        raise InputError(
            f"--base {shown(str(script))}: {new.path} has no script of that name; its scripts are {', '.join(names)}"
        )
    if len(found) > 1:
        raise InputError(f"--base {shown(str(script))}: may be {' or '.join(found)}; name the folder of the old store")
    return found[0]


def _ends_alike(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    return next(
        (n for n, (a, b) in enumerate(zip(one[::-1], other[::-1], strict=False)) if a != b), min(len(one), len(other))
    )


def _at_revision(path: Path, revision: str, scratch: Path, is_store: bool) -> Path:
    """The store as it was at a revision, with all that it may refer to."""
    real = path.resolve()
    folder = real if real.is_dir() else real.parent
    if revision.startswith("-"):
        raise InputError(f"--base {shown(revision)}: neither a path nor a revision; name one")
    top = Path(os.fsdecode(_git(folder, "rev-parse", "--show-toplevel", place=revision)).removesuffix("\n"))
    named = _git(folder, "rev-parse", "--verify", "--quiet", revision, place=revision).decode().strip()
    commit = _git(folder, "rev-parse", "--verify", "--quiet", f"{named}^{{commit}}", place=revision).decode().strip()
    # An index of its own beside the repository's: the files are laid out as a checkout would, export attributes
    # notwithstanding.
    tree, index = scratch / "tree", scratch / "index"
    tree.mkdir()
    git_folder = os.fsdecode(_git(folder, "rev-parse", "--absolute-git-dir", place=revision)).removesuffix("\n")
    beside = (
        "--git-dir",
        git_folder,
        "--work-tree",
        str(tree),
        "-c",
        "core.sparseCheckout=false",
        "-c",
        "core.splitIndex=false",
        "-c",
        "core.fsmonitor=false",
    )
    _git(tree, *beside, "read-tree", commit, place=revision, index=index)
    entries = _git(tree, *beside, "ls-files", "-s", "-z", place=revision, index=index).split(b"\0")
    files = [entry.partition(b"\t")[2] for entry in entries if entry.startswith(LINK) or entry.endswith(OF_A_STORE)]
    _git(
        tree,
        *beside,
        "checkout-index",
        "--quiet",
        "-z",
        "--stdin",
        place=revision,
        index=index,
        given=b"\0".join(files),
    )
    within = _within(path, top.resolve())
    old = tree / within
    if _is_there(old, Path.exists) and not old.resolve().is_relative_to(tree.resolve()):
        raise InputError(
            f"--base {shown(revision)}: {within} was a link out of the repository then; give the folder of the old "
            "store instead"
        )
    wanted = old / "store.toml" if is_store and real.is_dir() else old
    if not _is_there(wanted, Path.is_file if is_store else Path.exists):
        raise InputError(
            f"--base {shown(revision)}: there was no {within} then; name a later revision, or a folder with the "
            "old store"
        )
    return old


def _within(path: Path, top: Path) -> Path:
    """Where ``path`` lies in the repository, by its name: a link of the repository's may have led elsewhere then."""
    named = Path(os.path.abspath(path))
    for above in reversed(named.parents):
        if above.resolve() == top:
            return named.relative_to(above)
    return path.resolve().relative_to(top)


def _git(folder: Path, *arguments: str, place: str, index: Path | None = None, given: bytes = b"") -> bytes:
    """What git prints, run in ``folder``; ``index`` stands in for that of the repository, which stays as it is."""
    environment = {name: value for name, value in os.environ.items() if name not in OF_A_COMMAND}
    environment |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], input=given, capture_output=True, check=False, env=environment
        )
    except FileNotFoundError:
        raise InputError(
            f"--base {shown(place)}: there is no such path, and no git to look for a revision; install git"
        ) from None
    except (OSError, ValueError):
        raise InputError(f"--base {shown(place)}: neither a path nor a revision; name one") from None
    if done.returncode:
        told = done.stderr.decode(errors="replace").strip().splitlines()
        if told and ("not a git repository" in told[-1] or "must be run in a work tree" in told[-1]):
            raise InputError(
                f"--base {shown(place)}: there is no such path, and {folder} lies in no git work tree; name the "
                "folder of the old store"
            )
        why = f" ({told[-1]})" if told else ""
        cure = "name one"
        if (
            "--verify" in arguments
            and _git(folder, "rev-parse", "--is-shallow-repository", place=place).strip() == b"true"
        ):
            cure += " that this shallow clone has, or fetch the others: git fetch --unshallow"
        raise InputError(
            f"--base {shown(place)}: neither a path nor a revision of the repository of {folder}{why}; {cure}"
        )
    return done.stdout
