"""The gallery: ten classes of defect, each as script, verdict, picture and repair, made of the flawed stores of
``lua/specimens`` and of what the tool says of them.

``python -m tests.laboratory.gallery`` writes ``notes/gallery.md`` and a picture of each (some minutes); with names of
specimens it writes those pictures and parts alone.
"""

from __future__ import annotations

import difflib
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orderlab.model.files import write_whole

ROOT = Path(__file__).parents[2]
SPECIMENS = ROOT / "lua" / "specimens"
NOTE, PICTURES = ROOT / "notes" / "gallery.md", ROOT / "notes" / "gallery"
BEGIN, END = (
    "<!-- the table below is written by: python -m tests.laboratory.gallery -->",
    "<!-- end of the table -->",
)
EFFORT = "0.2"
"""Enough for most of them: `quick` is five times as much."""


@dataclass(frozen=True)
class Defect:
    """One class of defect, and the specimen that shows it."""

    specimen: str
    law: str
    title: str
    lesson: str
    effort: str = EFFORT


DEFECTS = (
    Defect(
        "lock-release-any", "own-release", "Released without asking whose it is",
        "A client that comes late releases a lock. Whether the lock is still its own, only the value of the key can "
        "tell: compare it within the script.",
    ),
    Defect(
        "lock-token-expires", "fencing", "A counter that lapses with what it counts",
        "A fencing token must grow for ever. A deadline on its counter, meant to tidy up, lets it begin again at 1, "
        "and a client of long ago looks like the newest.",
    ),
    Defect(
        "limiter-member-is-time", "at-most-n", "Two events, one member",
        "A sorted set keeps a member once. Where the member is the time, two hits of one millisecond count as one.",
    ),
    Defect(
        "limiter-fixed-window", "at-most-n", "A window that jumps",
        "Windows that begin at multiples of their length let twice the limit through around an edge. It is a fair "
        "choice, and no sliding window.",
    ),
    Defect(
        "job-taken-is-popped", "no-loss", "Popped, and nobody remembers",
        "A plain pop hands a job to a worker and forgets it. The worker dies, and the job is gone. Move it under a "
        "lease in the same script.",
    ),
    Defect(
        "job-settled-by-any", "exclusive-lease", "Settled by somebody else",
        "A worker whose lease has lapsed completes its job late. By then the job is another worker's: compare the "
        "token of the lease before you settle.",
    ),
    Defect(
        "job-double-marked-first", "no-loss", "A mark before the work",
        "The key that tells doubles is written first, an error stops the script, and every retry is told that the job "
        "is there. A script that fails keeps what it has written: write the mark last.",
    ),
    Defect(
        "feed-counter-starts-again", "cursor-safe", "A counter taken from what is left",
        "The next number is the last one plus one. Once everything is deleted it is 1 again, behind the markers that "
        "readers hold, and they never see what comes.",
        "quick",
    ),
    Defect(
        "lock-renew-revives", "mutual-exclusion", "Renewed after it had lapsed",
        "A holder that comes late renews, and has the lock back although another may have been granted it. What has "
        "lapsed is gone: renew only what is there and one's own.",
    ),
    Defect(
        "limiter-refused-counted", "refusal-when-full", "Refused, and counted all the same",
        "A refused hit is recorded as well, so that a client which goes on asking is never let in again. Decide first, "
        "then write.",
    ),
)  # fmt: skip


def scripts_of(specimen: str) -> tuple[str, str, str]:
    """(name, flawed text, sound text) of the script that a specimen's edits change."""
    folder = SPECIMENS / specimen
    told = tomllib.loads((folder / "store.toml").read_text())
    (name,) = {edit["script"] for edit in told["edits"]}
    sound = (folder / told["base"] / name).read_text()
    flawed = sound
    for edit in told["edits"]:
        assert flawed.count(edit["find"]) == 1, f"{specimen}: {edit['find']!r} stands in {name} once"
        flawed = flawed.replace(edit["find"], edit["replace"])
    return name, flawed, sound


def shown(specimen: str) -> tuple[str, str]:
    """The part of the flawed script that matters, and its repair as a diff."""
    name, flawed, sound = scripts_of(specimen)
    lines = list(difflib.unified_diff(flawed.splitlines(), sound.splitlines(), name, name, n=3, lineterm=""))
    part = [line[1:] for line in lines[2:] if not line.startswith(("+", "@@"))]
    short = [
        line
        for line in difflib.unified_diff(flawed.splitlines(), sound.splitlines(), name, name, n=1, lineterm="")
        if not line.startswith(("---", "+++", "@@"))
    ]
    return "\n".join([f"-- {name}", *part]), "\n".join(short)


def judged(defect: Defect, picture: Path | None) -> list[str]:
    """The first lines of the verdict on a specimen by its law; its witness is drawn into ``picture``."""
    with tempfile.TemporaryDirectory() as place:
        found = Path(place) / "found.json"
        told = _orderlab(
            "validate", f"lua/specimens/{defect.specimen}", "--law", defect.law, "--effort", defect.effort, "--backend",
            "kernel", "--trust-adapter", "--report", f"json={found}",
        )  # fmt: skip
        if picture is not None:
            picture.parent.mkdir(exist_ok=True)
            _orderlab("replay", str(found), "--trust-adapter", "--backend", "kernel", "--export", f"svg={picture}")
    return told.splitlines()[:2]


def _orderlab(*arguments: str) -> str:
    program = "import sys; from orderlab.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, f"{' '.join(arguments)}: exit code {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def part_of(defect: Defect, verdict: Sequence[str]) -> str:
    """What the page says of one defect."""
    script, repair = shown(defect.specimen)
    told = "\n".join(verdict)
    return (
        f"## {defect.title}\n\n{textwrap.fill(defect.lesson, 100)}\n\n```lua\n{script}\n```\n\n"
        f"```console\n$ orderlab validate lua/specimens/{defect.specimen} --law {defect.law} --effort {defect.effort} "
        f"--trust-adapter\n{told}\n```\n\n"
        f"![The steps that break {defect.law}](gallery/{defect.specimen}.svg)\n\n"
        f"The repair:\n\n```diff\n{repair}\n```\n"
    )


def page(parts: Sequence[str]) -> str:
    """The whole page."""
    head = (
        "# Ten classes of defect\n\n"
        "Each is a script that looks right, what `orderlab` says of it, the steps that break it, and its repair.\n"
        "The scripts are in `lua/specimens/`, each beside its sound neighbour; `orderlab explain LAW` says\n"
        "what a law asks.\n"
    )
    return f"{head}\n{BEGIN}\n\n{chr(10).join(parts).strip()}\n\n{END}\n"


def main(names: Sequence[str]) -> None:
    """Write the page and the pictures; of ``names`` anew, else as they stand."""
    parts = parts_in(NOTE.read_text()) if NOTE.exists() else {}
    for defect in DEFECTS:
        if names and defect.specimen not in names and defect.title in parts:
            continue
        print(defect.specimen, file=sys.stderr)
        parts[defect.title] = part_of(defect, judged(defect, PICTURES / f"{defect.specimen}.svg"))
        write_whole(NOTE, page([parts[one.title] for one in DEFECTS if one.title in parts]).encode())


def parts_in(note: str) -> dict[str, str]:
    """Title -> part of a page that is there."""
    body = note.partition(BEGIN)[2].partition(END)[0]
    parts = [f"## {part.strip()}\n" for part in body.split("\n## ")[1:]]
    return {part.splitlines()[0].removeprefix("## "): part for part in parts}


if __name__ == "__main__":
    from orderlab import exit_codes

    exit_codes.run(lambda: main(sys.argv[1:]), "gallery")
