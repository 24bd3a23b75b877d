"""A run that is killed goes on from its last checkpoint and ends as if nothing had happened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from orderlab.model.classics.two_phase_commit import TwoPhaseCommit
from orderlab.model.explorer.exploration import explore
from orderlab.model.explorer.search import Options

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from pathlib import Path
from orderlab.model.explorer import search
from orderlab.model.explorer.exploration import explore
from orderlab.model.classics.two_phase_commit import TwoPhaseCommit

search.CHECKPOINT_EVERY_S = 0.0
save = search._save

def save_and_tell(run):
    save(run)
    print(run.expanded, flush=True)
    sys.stdin.read()  # until it is killed

search._save = save_and_tell
explore(TwoPhaseCommit(resource_managers=5), search.Options(engine="interpreted", checkpoint=Path(sys.argv[1])))
"""


def test_a_killed_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    command = [sys.executable, "-c", PROGRAM, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        expanded = int(process.stdout.readline())
        process.kill()
    whole = explore(TwoPhaseCommit(resource_managers=5), Options(engine="interpreted"))
    assert 0 < expanded < whole.distinct_states, "killed on the way"
    resumed = explore(TwoPhaseCommit(resource_managers=5), Options(engine="interpreted", checkpoint=path))
    found, wanted = resumed.to_json(), whole.to_json()
    assert found["run"]["resumed"]
    del found["run"], wanted["run"]
    assert found == wanted
    assert resumed.distinct_states == 8832
