"""Plants bugs into copies of the code, one in each, for the simulation to find: `python -m bench.planted_bugs`.

Each is a mistake as people make them: a comparison turned round, a marker not removed, a lock not taken. It says by
which history each is caught, and which are not. Those with a star take back the mending of a fault that was found on a
real Slurm, or by the simulation.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

_ROOT = Path(__file__).resolve().parent.parent
_COPIED = ("trainjob", "templates", "standins", "simulation")


class Bug(NamedTuple):
    """A text in a file of trainjob/ that is there once, and what stands in its place."""

    name: str
    text: str
    instead: str
    file: str


# Of each file of trainjob/: a name, a text that is there once, and what stands in its place.
BUGS = [
    Bug(*row, file)
    for file, rows in {
        "launch/shell/record.sh": [
            (
                "no script is stale",
                '[[ "$(number_in attempt 2>/dev/null)" != "${TRAINJOB_ATTEMPT:-none}" ]]',
                "return 1",
            ),
            (
                "the attempt is not counted on",
                "TRAINJOB_ATTEMPT=$((last + 1))",
                "TRAINJOB_ATTEMPT=$((last > 0 ? last : 1))",
            ),
            ("the marker is not removed", "rm -f state requeue .terminated", "rm -f state .terminated"),
            ("the last failure is not removed", ".terminated failure.json exit_code", ".terminated exit_code"),
            ("a write is not synced", '{ sync ".$1.part" 2>/dev/null || true; } && ', ""),
        ],
        "launch/shell/slurm.sh": [
            ("the end is not recorded", "trap 'end_run $?' EXIT", ":"),
            (
                "TERM is not noted",
                "trap 'note_event signal TERM; cancelled=1' TERM",
                "trap 'note_event signal TERM' TERM",
            ),
        ],
        "launch/shell/requeue.sh": [
            ("* a complete run begins again", 'if [[ -n "$automatic" ]]; then refuse_complete_run; fi', ":"),
            ("* srun's 0 is believed", "&& job_is_ending; then", "&& false; then"),
            (
                "* a forgotten job has failed",
                '("$1" == 137 || "$1" == 143) ]] && job_waits',
                '("$1" == 137 || "$1" == 143) ]] && false',
            ),
            (
                "the controller is not asked why",
                'if [[ -n "$cancelled" ]]; then\n    state_by_controller',
                'if [[ -n "$cancelled" ]]; then\n    printf "REQUEUED\\n"',
            ),
            (
                "a requeue is taken for a cancel",
                "((10#${BASH_REMATCH[1]} > restarts)); then\n    printf 'REQUEUED",
                "((10#${BASH_REMATCH[1]} < restarts)); then\n    printf 'REQUEUED",
            ),
            ("a stop is not the last", "if [[ -e stop ]]; then return 1; fi", ":"),
            ("the last start is the first", "((10#$starts >= max_attempts))", "((10#$starts < max_attempts))"),
            ("a cancelled job is brought back", "if ! still_runs; then", "if false; then"),
            ("a run that goes on exits with 0", "!= COMPLETED ]]; then exit 75; fi", "== NEVER ]]; then exit 75; fi"),
            ("a refused requeue is the end", "follow_up=$(submit_follow_up afterany) || follow_up=''", "follow_up=''"),
            (
                "* sbatch's number may be in a message",
                "grep -E -m1 '^[0-9]+(;[A-Za-z0-9_.-]+)?$'",
                "grep -oE -m1 '[0-9]+'",
            ),
            (
                "* a lost follow-up is not looked for",
                '    sleep 5\n    waiting_job_of_run "$run" "$element"',
                "    return 1",
            ),
            ("* a follow-up is not announced", "  write_word .follow_up unknown\n", ""),
            ("* two follow-ups wait", '! follow_up_has_ended "$follow_up"; then', "false; then"),
            ("a follow-up stays", "!= REQUEUED ]]; then drop_follow_up; fi", "== NEVER ]]; then drop_follow_up; fi"),
            ("* a follow-up stays where scancel is not answered", "tries < 4", "tries < 1"),
            (
                "the follow-up that waits is not dropped for another",
                "    drop_follow_up\n    follow_up=$(submit",
                "    follow_up=$(submit",
            ),
        ],
        "launch/shell/step.sh": [
            ("* ranks are asked for their code, not marks", "if ((code == 0)); then code=$((10#${word:-0})); fi", ":"),
            ("* an srun without ranks is waited for", "((waited_s >= step_grace_s))", "((waited_s < 0))"),
            ("more marks than ranks are waited for", '-ge "$ranks_of_job"', '-gt "$ranks_of_job"'),
        ],
        "backends/slurm/backend.py": [
            (
                "* no job of an earlier try is looked for",
                '                    return job_id, ""\n                if lost',
                "                    pass\n                if lost",
            ),
            (
                "* a lost answer is a refusal",
                "may_have_arrived = error.is_lost if isinstance(error, ControllerDownError) else error.reached",
                "may_have_arrived = False",
            ),
            (
                "sbatch is called once more",
                "                if lost is None:\n                    return self._call_sbatch()",
                "                return self._call_sbatch()",
            ),
            ("an empty list is believed after a lost answer", "asks_twice=lost is not None", "asks_twice=False"),
            ("an earlier attempt's job is this one's", "if job.array_id not in self.earlier and (", "if ("),
            ("a job that has ended is this attempt's", "(self.is_first or not job.has_ended)", "True"),
            (
                "cancel does not wait",
                "    while left := _unfinished(paths, recorded, timeout_s):",
                "    while left := []:",
            ),
            (
                "cancel leaves the run's other jobs",
                "        if new := told - cancelled:\n            _scancel(machine, sorted(new), timeout_s)",
                "        if new := told - cancelled:",
            ),
            ("cancel believes an empty list", "    if ours or (not recorded and unanswered is None):", "    if True:"),
        ],
        "lifecycle/resume.py": [
            (
                "earlier jobs are forgotten",
                "[*last.earlier, *([] if last.native is None else [last.native])]",
                "[*last.earlier]",
            ),
            ("the stop file stays", "    paths.stop.unlink(missing_ok=True)\n", ""),
        ],
        "backends/slurm/queue.py": [
            (
                "* sbatch's id may be in a message",
                "_SUBMITTED_ID.fullmatch(line.strip())",
                "_SUBMITTED_ID.search(line)",
            ),
            ("* anything that is printed is an answer", "    if text.strip() and not found:", "    if False:"),
            (
                "a job that completes has ended",
                "        return self.state in _ENDED\n",
                '        return self.state in _ENDED or self.state == "COMPLETING"\n',
            ),
        ],
        "lifecycle/start.py": [
            (
                "* a submission has no record at first",
                "files={**handover.rendered.files, paths.submission.name: record}",
                "files={**handover.rendered.files}",
            ),
        ],
        "observe/index.py": [
            (
                "* the index forgets what is being submitted",
                "run_id not in present and _indexed_at(run_id) < latest",
                "run_id not in present",
            ),
        ],
        "requests/submission.py": [
            ("* two resumes at once", 'with locked(paths.whole, "trainjob resume"):', "with contextlib.nullcontext():"),
            ("a run at work is resumed", "        resuming.refuse_unless_ended(now)\n", ""),
        ],
        "lifecycle/lock.py": [
            (
                "a live lock is taken for a dead one",
                '    return _started(pid) != holder.get("started")',
                "    return True",
            ),
            (
                "a dead lock is taken for a live one",
                "    except ProcessLookupError:\n        return True",
                "    except ProcessLookupError:\n        return False",
            ),
            (
                "the lock is not given back",
                '            if _holder(lock).get("token") == mine["token"]:',
                '            if _holder(lock).get("token") != mine["token"]:',
            ),
        ],
        "lifecycle/cancel.py": [
            ("cancel is not recorded", "is_cancelled=True) for one", "is_cancelled=False) for one"),
        ],
        "backends/slurm/asking.py": [
            (
                "* a follow-up is not asked for",
                "    ended = [job for job in missing if _has_ended(second[job.id])]",
                "    ended: list[JobOfRun] = []",
            ),
            (
                "* an empty list is the end",
                "    missing = [job.id for job in jobs if not job.among(by_folder)]",
                "    missing: list[str] = []",
            ),
            (
                "an older job counts",
                "int(one.array_id) >= int(self.array_id)",
                "int(one.array_id) <= int(self.array_id)",
            ),
        ],
        "observe/seen.py": [
            ("* a job that Slurm holds is not seen", "return is_kept and submissions", "return False and submissions"),
            (
                "an attempt that waits is the last one",
                "self.attempt < self.submission.attempt\n\n    @property\n    def has_waited",
                "False\n\n    @property\n    def has_waited",
            ),
            (
                "what has gone is at work",
                "if answer is not None and answer.liveness is Liveness.GONE:\n            return self._gone",
                "if answer is not None and answer.liveness is None:\n            return self._gone",
            ),
        ],
        "records/attempts.py": [
            (
                "ranks compare attempts the wrong way",
                "return current(paths) > attempt",
                "return current(paths) < attempt",
            ),
        ],
        "train/stopping.py": [
            (
                "a stale rank writes its checkpoint",
                "        if is_stale(self._paths, self._attempt):\n            raise",
                "        if False:\n            raise",
            ),
            ("ranks do not see the stop file", "Flags(self._paths.stop.exists(), is_stale", "Flags(False, is_stale"),
        ],
        "lifecycle/prune.py": [
            (
                "* prune removes what is being resumed",
                'held.enter_context(locked(paths, "trainjob prune"))',
                "held.close()",
            ),
            ("runs at work are removed", "if now.state in states.ENDED]", "if now.state]"),
            ("a removed run stays in the index", "        index.forget(paths.id)\n        if gone", "        if gone"),
        ],
    }.items()
    for row in rows
]


def main() -> int:
    """Return 1 if fewer than nine in ten of the bugs are caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=150, help="histories that a bug survives if it is not caught")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--only", default="", help="bugs whose name contains this")
    asked = parser.parse_args()
    chosen = [bug for bug in BUGS if asked.only in bug.name]
    for bug in chosen:
        if (_ROOT / "trainjob" / bug.file).read_text().count(bug.text) != 1:
            sys.exit(f"{bug.name}: {bug.file} should have this once: {bug.text}")
    with ThreadPoolExecutor(max_workers=2) as pool:
        found = pool.map(lambda bug: _caught(bug, asked.seeds, asked.first), chosen)
        caught = 0
        for bug, line in zip(chosen, found, strict=True):
            caught += line is not None
            print(f"{'caught' if line else 'MISSED':6}  {bug.name}: {line or ''}", flush=True)
    print(f"{caught} of {len(chosen)} planted bugs caught")
    return int(caught < 0.9 * len(chosen))


def _caught(bug: Bug, seeds: int, first: int) -> str | None:
    """Return the seed and what it broke; None where no history broke an invariant."""
    with tempfile.TemporaryDirectory() as folder:
        for name in _COPIED:
            shutil.copytree(_ROOT / name, Path(folder, name), ignore=shutil.ignore_patterns("__pycache__"))
        file = Path(folder, "trainjob", bug.file)
        file.write_text(file.read_text().replace(bug.text, bug.instead))
        words = ["--seeds", str(seeds), "--first", str(first), "--until-found", "--processes", "1"]
        command = [sys.executable, "-m", "simulation", *words]
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    line = re.search(r"^seed \d+: .*$", ended.stdout, re.MULTILINE)
    if line is None and "every invariant holds" not in ended.stdout:
        raise RuntimeError(f"{bug.name}: {ended.stdout} {ended.stderr}")
    return line[0][:150] if line else None


if __name__ == "__main__":
    sys.exit(main())
