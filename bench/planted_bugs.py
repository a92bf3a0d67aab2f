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
_SHELL = "launch/shell"


class Bug(NamedTuple):
    """A text in a file of trainjob/ that is there once, and what stands in its place.

    `seed` is a history that is tried first, and that keeps every invariant without the bug.
    """

    name: str
    file: str
    text: str
    instead: str
    seed: int | None = None


# What the histories that are tried first are about, and the bugs.
BUGS = {
    "lost nodes": [
        Bug(
            "no script is stale",
            f"{_SHELL}/record.sh",
            '[[ "$(number_in attempt 2>/dev/null)" != "${TRAINJOB_ATTEMPT:-none}" ]]',
            "return 1",
        ),
        Bug("* srun's 0 is believed", f"{_SHELL}/requeue.sh", "&& job_is_ending; then", "&& false; then"),
        Bug(
            "ranks compare attempts the wrong way",
            "records/attempts.py",
            "return current(paths) > attempt",
            "return current(paths) < attempt",
        ),
        Bug(
            "a stale rank writes its checkpoint",
            "train/stopping.py",
            "        if is_stale(self._paths, self._attempt):\n            raise",
            "        if False:\n            raise",
            seed=40334,
        ),
    ],
    "again": [
        Bug(
            "the marker is not removed",
            f"{_SHELL}/record.sh",
            "rm -f state requeue .terminated",
            "rm -f state .terminated",
        ),
        Bug(
            "the last failure is not removed",
            f"{_SHELL}/record.sh",
            ".terminated failure.json exit_code",
            ".terminated exit_code",
        ),
        Bug(
            "* ranks are asked for their code, not marks",
            f"{_SHELL}/step.sh",
            "if ((code == 0)); then code=$((10#${word:-0})); fi",
            ":",
        ),
        Bug(
            "* an srun without ranks is waited for",
            f"{_SHELL}/step.sh",
            "((waited_s >= step_grace_s))",
            "((waited_s < 0))",
        ),
        Bug("more marks than ranks are waited for", f"{_SHELL}/step.sh", '-ge "$ranks_of_job"', '-gt "$ranks_of_job"'),
        Bug(
            "* a forgotten job has failed",
            f"{_SHELL}/requeue.sh",
            '("$1" == 137 || "$1" == 143) ]] && job_waits',
            '("$1" == 137 || "$1" == 143) ]] && false',
        ),
        Bug(
            "the controller is not asked why",
            f"{_SHELL}/requeue.sh",
            'if [[ -n "$cancelled" ]]; then\n    state_by_controller',
            'if [[ -n "$cancelled" ]]; then\n    printf "REQUEUED\\n"',
        ),
        Bug(
            "a requeue is taken for a cancel",
            f"{_SHELL}/requeue.sh",
            "((10#${BASH_REMATCH[1]} > restarts)); then\n    printf 'REQUEUED",
            "((10#${BASH_REMATCH[1]} < restarts)); then\n    printf 'REQUEUED",
        ),
        Bug(
            "the last start is the first",
            f"{_SHELL}/requeue.sh",
            "((10#$starts >= max_attempts))",
            "((10#$starts < max_attempts))",
        ),
    ],
    "the end": [
        Bug(
            "* ranks that were asked to stop have completed the run",
            f"{_SHELL}/step.sh",
            "[[ ! -e .terminated && ! -e requeue ]] &&",
            "[[ ! -e .terminated ]] &&",
        ),
        Bug(
            "* a job that waits again gets a follow-up job",
            f"{_SHELL}/requeue.sh",
            "*@('is pending execution'",
            "*@('was pending execution'",
        ),
        Bug(
            "* a complete run begins again",
            f"{_SHELL}/requeue.sh",
            'if [[ -n "$automatic" ]]; then refuse_needless_start "$last_job"; fi',
            ":",
        ),
        Bug("a cancelled job is brought back", f"{_SHELL}/requeue.sh", "|'already completing or completed')*", ")*"),
    ],
    "follow-up jobs": [
        Bug(
            "a run that goes on exits with 0",
            f"{_SHELL}/requeue.sh",
            "!= COMPLETED ]]; then exit 75; fi",
            "== NEVER ]]; then exit 75; fi",
        ),
        Bug(
            "a refused requeue is the end",
            f"{_SHELL}/requeue.sh",
            "follow_up=$(submit_follow_up afterany) || follow_up=''",
            "follow_up=''",
        ),
        Bug(
            "* sbatch's number may be in a message",
            f"{_SHELL}/requeue.sh",
            "grep -E -m1 '^[0-9]+(;[A-Za-z0-9_.-]+)?$'",
            "grep -oE -m1 '[0-9]+'",
        ),
        Bug(
            "* a lost follow-up is not looked for",
            f"{_SHELL}/requeue.sh",
            '    sleep 5\n    waiting_job_of_run "$run" "$element"',
            "    return 1",
        ),
        Bug(
            "* a follow-up is not announced",
            f"{_SHELL}/requeue.sh",
            "  write_word .follow_up unknown\n  if",
            "  if",
            seed=40232,
        ),
        Bug("* two follow-ups wait", f"{_SHELL}/requeue.sh", '! follow_up_has_ended "$follow_up"; then', "false; then"),
        Bug(
            "a follow-up stays",
            f"{_SHELL}/requeue.sh",
            "!= REQUEUED ]]; then drop_follow_up; fi",
            "== NEVER ]]; then drop_follow_up; fi",
        ),
        Bug(
            "* a follow-up stays where scancel is not answered",
            f"{_SHELL}/requeue.sh",
            "((tries == 4))",
            "((tries == 1))",
        ),
        Bug(
            "the follow-up that waits is not dropped for another",
            f"{_SHELL}/requeue.sh",
            "    drop_follow_up\n    # Killed",
            "    # Killed",
        ),
        Bug(
            "a job that has ended is this attempt's",
            "backends/slurm/backend.py",
            "(self.is_first or not job.has_ended)",
            "True",
            seed=21242,
        ),
        Bug(
            "cancel leaves the run's other jobs",
            "backends/slurm/backend.py",
            "        if new := told - cancelled:\n            _scancel(machine, sorted(new), timeout_s)",
            "        if new := told - cancelled:",
            seed=101097,
        ),
        Bug(
            "* a follow-up is not asked for",
            "backends/slurm/asking.py",
            "not isinstance(jobs, UserError) and all(one.has_ended for one in jobs)]",
            "False]",
        ),
        Bug(
            "* a plain return within a trap",
            f"{_SHELL}/requeue.sh",
            '<<<"$listed"; then\n      return 0',
            '<<<"$listed"; then\n      return',
        ),
        Bug(
            "* a follow-up job does not know what it follows",
            f"{_SHELL}/requeue.sh",
            'job.sbatch "$job")',
            "job.sbatch)",
        ),
        Bug(
            "* a follow-up job continues a cancelled run",
            f"{_SHELL}/requeue.sh",
            '"$state" == CANCELLED ]] &&',
            '"$state" == X ]] &&',
        ),
        Bug(
            "* a follow-up that can't be dropped is forgotten",
            f"{_SHELL}/requeue.sh",
            "if ((tries == 4)); then return 0; fi",
            "if ((tries == 4)); then break; fi",
            seed=100750,
        ),
        Bug("* Slurm keeps a follow-up that is not needed", f"{_SHELL}/requeue.sh", " --kill-on-invalid-dep=yes", ""),
        Bug(
            "* a follow-up is submitted although the job was cancelled",
            f"{_SHELL}/requeue.sh",
            '[[ "$(state_by_controller)" == CANCELLED ]]',
            "false",
        ),
        Bug(
            "* accounting speaks for a run's other jobs",
            "backends/slurm/asking.py",
            "    if isinstance(second, UserError):\n",
            "    if isinstance(second, UserError) and not accounted:\n",
        ),
    ],
    "stopping": [
        Bug("a stop is not the last", f"{_SHELL}/requeue.sh", "if [[ -e stop ]]; then return 1; fi", ":"),
        Bug("the stop file stays", "lifecycle/resume.py", "    paths.stop.unlink(missing_ok=True)\n", ""),
        Bug(
            "ranks do not see the stop file",
            "train/stopping.py",
            "Flags(self._paths.stop.exists(), is_stale",
            "Flags(False, is_stale",
        ),
    ],
    "submitting": [
        Bug(
            "* no job of an earlier try is looked for",
            "backends/slurm/backend.py",
            '                if job_id is not None:\n                    return job_id, ""\n                if lost',
            "                if lost",
        ),
        Bug(
            "* a lost answer is a refusal",
            "backends/slurm/backend.py",
            "may_have_arrived = error.is_lost if isinstance(error, ControllerDownError) else error.reached",
            "may_have_arrived = False",
        ),
        Bug(
            "sbatch is called once more",
            "backends/slurm/backend.py",
            "                if lost is None:\n                    return self._call_sbatch()",
            "                return self._call_sbatch()",
        ),
        Bug(
            "an empty list is believed after a lost answer",
            "backends/slurm/backend.py",
            "asks_twice=lost is not None",
            "asks_twice=False",
        ),
        Bug(
            "* sbatch's id may be in a message",
            "backends/slurm/queue.py",
            "_SUBMITTED_ID.fullmatch(line.strip())",
            "_SUBMITTED_ID.search(line)",
        ),
        Bug(
            "* a submission has no record at first",
            "lifecycle/start.py",
            "files={**handover.rendered.files, paths.submission.name: record}",
            "files={**handover.rendered.files}",
        ),
        Bug(
            "* the index forgets what is being submitted",
            "observe/index.py",
            "run_id not in present and _indexed_at(run_id) < latest",
            "run_id not in present",
        ),
        Bug(
            "* a resume finds a submission that is under way",
            "lifecycle/start.py",
            'held.enter_context(locked(paths, "trainjob submit", wait_s=_LOCK_S))',
            "pass",
        ),
        Bug(
            "* a job in the run directory is not adopted",
            "backends/slurm/backend.py",
            'if begun is not None and begun.partition("_")[0] not in _earlier(paths):',
            "if False:",
        ),
        Bug(
            "* an interrupted submission is LOST before Slurm has answered",
            "observe/seen.py",
            "if self.submission.native is None and unanswered is not None:",
            "if False:",
        ),
    ],
    "two clients": [
        Bug(
            "an earlier attempt's job is this one's",
            "backends/slurm/backend.py",
            "if job.array_id not in self.earlier and (",
            "if (",
        ),
        Bug(
            "earlier jobs are forgotten",
            "lifecycle/resume.py",
            "[*last.earlier, *([] if last.native is None else [last.native])]",
            "[*last.earlier]",
        ),
        Bug(
            "* two resumes at once",
            "requests/submission.py",
            'with locked(paths.whole, "trainjob resume"):',
            "with contextlib.nullcontext():",
        ),
        Bug(
            "a live lock is taken for a dead one",
            "lifecycle/lock.py",
            '    return _started(pid) != holder.get("started")',
            "    return True",
        ),
        Bug(
            "a dead lock is taken for a live one",
            "lifecycle/lock.py",
            "    except ProcessLookupError:\n        return True",
            "    except ProcessLookupError:\n        return False",
        ),
        Bug(
            "the lock is not given back",
            "lifecycle/lock.py",
            '            if _holder(lock).get("token") == mine["token"]:',
            '            if _holder(lock).get("token") != mine["token"]:',
        ),
        Bug("a run at work is resumed", "requests/submission.py", "        resuming.refuse_unless_ended(now)\n", ""),
        Bug(
            "* prune removes what is being resumed",
            "lifecycle/prune.py",
            'held.enter_context(locked(paths, "trainjob prune"))',
            "held.close()",
        ),
        Bug(
            "* a run that is being removed is forgotten first",
            "lifecycle/prune.py",
            "        if gone.is_symlink():",
            "        index.forget(paths.id)\n        if gone.is_symlink():",
        ),
        Bug("runs at work are removed", "lifecycle/prune.py", "if now.state in states.ENDED]", "if now.state]"),
        Bug(
            "a removed run stays in the index",
            "lifecycle/prune.py",
            "would never be found.\n        index.forget(paths.id)",
            "would never be found.",
        ),
        Bug("* an empty list is believed of a resume", "backends/slurm/backend.py", " or bool(self.earlier)", ""),
        Bug("* cancel leaves a job alone that Slurm requeues", "lifecycle/cancel.py", " and not before.is_held", ""),
    ],
    "looking": [
        Bug(
            "cancel does not wait",
            "backends/slurm/backend.py",
            "    while left := _unfinished(paths, recorded, timeout_s):",
            "    while left := []:",
        ),
        Bug(
            "cancel believes an empty list",
            "backends/slurm/backend.py",
            "    if ours or (not recorded and unanswered is None):",
            "    if True:",
        ),
        Bug("cancel is not recorded", "lifecycle/cancel.py", "submission.replace(**changes).write", "submission.write"),
        Bug(
            "* an empty list is the end",
            "backends/slurm/asking.py",
            "    missing = [job.id for job in jobs if not job.among(by_folder)]",
            "    missing: list[str] = []",
        ),
        Bug(
            "* anything that is printed is an answer",
            "backends/slurm/queue.py",
            "    if text.strip() and not found:",
            "    if False:",
        ),
        Bug(
            "an older job counts",
            "backends/slurm/asking.py",
            "int(one.array_id) >= int(self.array_id)",
            "int(one.array_id) <= int(self.array_id)",
        ),
        Bug(
            "* a job that Slurm holds is not seen",
            "observe/seen.py",
            "return is_kept and submissions",
            "return False and submissions",
        ),
        Bug(
            "an attempt that waits is the last one",
            "observe/seen.py",
            "return self.submission.native is not None or self.word != states.COMPLETED",
            "return False",
        ),
        Bug(
            "what has gone is at work",
            "observe/seen.py",
            "if answer is not None and answer.liveness is Liveness.GONE:\n            return self._gone",
            "if answer is not None and answer.liveness is None:\n            return self._gone",
        ),
        Bug(
            "a job that completes has ended",
            "backends/slurm/queue.py",
            "        return self.state in _ENDED\n",
            '        return self.state in _ENDED or self.state == "COMPLETING"\n',
        ),
    ],
    "": [
        Bug(
            "the attempt is not counted on",
            f"{_SHELL}/record.sh",
            "TRAINJOB_ATTEMPT=$((last + 1))",
            "TRAINJOB_ATTEMPT=$((last > 0 ? last : 1))",
        ),
        Bug("a write is not synced", f"{_SHELL}/record.sh", '{ sync ".$1.part" 2>/dev/null || true; } && ', ""),
        Bug("the end is not recorded", f"{_SHELL}/slurm.sh", "trap 'end_run $?' EXIT", ":"),
        Bug(
            "* how a job ended is forgotten",
            "observe/seen.py",
            "if settled is not None and settled.state is not None:",
            "if False:",
        ),
    ],
}


def main() -> int:
    """Return 1 if fewer than nine in ten of the bugs are caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=150, help="histories that a bug survives if it is not caught")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--only", default="", help="bugs whose name contains this")
    asked = parser.parse_args()
    chosen = [(theme, bug) for theme, bugs in BUGS.items() for bug in bugs if asked.only in bug.name]
    for _, bug in chosen:
        if (_ROOT / "trainjob" / bug.file).read_text().count(bug.text) != 1:
            sys.exit(f"{bug.name}: {bug.file} should have this once: {bug.text}")
    with ThreadPoolExecutor(max_workers=2) as pool:
        found = pool.map(lambda pair: _caught(pair[0], pair[1], asked.seeds, asked.first), chosen)
        caught = 0
        for (_, bug), line in zip(chosen, found, strict=True):
            caught += line is not None
            print(f"{'caught' if line else 'MISSED':6}  {bug.name}: {line or ''}", flush=True)
    print(f"{caught} of {len(chosen)} planted bugs caught")
    return int(caught < 0.9 * len(chosen))


def _caught(theme: str, bug: Bug, seeds: int, first: int) -> str | None:
    """Return the seed and what it broke; None where no history broke an invariant."""
    with tempfile.TemporaryDirectory() as folder:
        for name in _COPIED:
            shutil.copytree(_ROOT / name, Path(folder, name), ignore=shutil.ignore_patterns("__pycache__"))
        file = Path(folder, "trainjob", bug.file)
        file.write_text(file.read_text().replace(bug.text, bug.instead))
        words = ["--seeds", str(seeds), "--first", str(first), "--until-found", "--processes", "1", "--about", theme]
        for tried in [*([["--seed", str(bug.seed)]] if bug.seed else []), words]:
            command = [sys.executable, "-m", "simulation", *tried]
            ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            line = re.search(r"^seed \d+: (?!every invariant holds).*$", ended.stdout, re.MULTILINE)
            if line is not None:
                return line[0][:150]
            if "every invariant holds" not in ended.stdout:
                raise RuntimeError(f"{bug.name}: {ended.stdout} {ended.stderr}")
    return None


if __name__ == "__main__":
    sys.exit(main())
