"""Whether a script of the user's own resumes: interrupted ≡ uninterrupted, and what was lost where it does not."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainjob.contract import clock, states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records import updates
from trainjob.requests.workbench import Workbench
from trainjob.verify.interruptions import KILL, MARGIN_S, PREEMPTION, TIME_LIMIT, InterruptionPlan, PlannedStop
from trainjob.verify.scripts import final_states, mistakes, update_log
from trainjob.verify.scripts.final_states import Apart, Compared
from trainjob.verify.scripts.interruptions import (
    Interrupted,
    ScriptInterruption,
    drawn,
    interrupted,
    is_of_one_step,
    most_attempts,
    recorded,
)
from trainjob.verify.scripts.lost import (
    OF_STATES,
    PROFILES,
    FirstApart,
    finding,
    first_apart,
    first_apart_from_itself,
    first_saved_apart,
    lost,
    lost_by_epochs,
    lost_counts,
    lost_later,
    name_of,
    seen_twice,
)
from trainjob.verify.scripts.update_log import AttemptLog, ScriptEvent, ScriptUpdate, padded, resumptions, starts_at
from trainjob.verify.tasks.diagnosis import NO_NUMBERS, NOISE, NOT_INTERRUPTED, UNSEEN, DiagnosedVerdict, LikelyCause

# A script that looks at its flag every few updates may finish those; one that looks between epochs makes many more.
_SOON = 3
# Runs that look for a single interruption that shows a fault, and as many for two; and how long they may begin.
_TRIES, _SHRINKING_S = 3, 90.0

_NOISE_CURES = {
    "seed": "Seed before the model is made: torch.manual_seed, random.seed, numpy.random.seed",
    "order": "Give the loader a seeded generator, or the sampler a seed; workers that share a queue have no order",
    "random": "Seed each rank's random numbers once, before the first update",
    "operations": "Call torch.use_deterministic_algorithms(True), and keep the number of threads",
}


@dataclass(frozen=True, kw_only=True)
class ScriptVerdict(DiagnosedVerdict):
    """Whether the interrupted script ended as the uninterrupted one. `notes`: what is no fault, or can't be judged."""

    updates: int = 0
    interruptions: Sequence[ScriptInterruption] = ()
    compared: Compared | None = None
    notes: Sequence[str] = ()
    stops: Sequence[str] = ()  # the interruptions; of a fault, the fewest that were found to show it
    judged_by: str = ""  # what the interrupted run was compared with
    infinite: str = ""  # the first loss or gradient that is not finite

    def as_json(self) -> dict[str, Any]:
        """Return the verdict for `--json`."""
        values = super().as_json()
        compared = values.pop("compared") or {"files": [], "values": 0, "apart": []}
        return {**values, **{name: compared[name] for name in ("files", "values", "apart")}}


def verify_script(
    workbench: Workbench,
    *,
    instances: int,
    plan: InterruptionPlan,
    profile: str,
) -> ScriptVerdict:
    """Return whether the job's command resumes. Raises UserError when it fails although nothing interrupts it.

    What fails here with interruptions that were drawn is tried again with fewer of them. A script that differs from
    itself is compared with what it did itself after the checkpoint, before it was interrupted; its losses may then
    differ as far as `profile` of PROFILES says.
    """
    request = recorded(workbench, instances=instances)
    whole = workbench.run(request)
    logs = update_log.read(whole)
    saved = [str(event.fields["path"]) for log in logs for event in log[0].named(updates.SAVED) if event.fields["path"]]
    if strays := final_states.stray(whole, saved):
        raise UserError(
            f"the script saves {strays[0]}, outside of its run, where an interrupted run would meet an uninterrupted "
            "one's files",
            "Have it save below its working folder, or in $TRAINJOB_RUN_DIR",
        )
    if not logs or not logs[0][0].updates:
        blind = [str(event.fields["why"]) for log in logs for event in log[0].named(updates.BLIND)]
        why = blind[0] if blind else "the ranks' Python made no step of a torch optimizer"
        return ScriptVerdict(findings=[finding(UNSEEN, why)], runs=[whole])
    asked = drawn(plan, logs[0][0])
    again = request
    if workbench.is_on_cluster:
        again = recorded(workbench, instances=instances, max_attempts=most_attempts(len(asked)))
    broken = interrupted(workbench, again, asked)
    theirs = update_log.read(broken.paths)
    evidence = ResumeEvidence(whole, broken, logs, theirs)
    are_here = workbench.remote is None  # the files that the ranks have written
    compared, found = evidence.judged(are_here=are_here)
    runs, judged_by = [whole, broken.paths], "an uninterrupted run"
    if any(one.code not in _OF_SIGNALS for one in found):
        first = first_apart(logs[0][0], theirs[0][:1]) if theirs else None  # before anything has interrupted it
        noise = None if first is None or first.expected is None else _noise_of(first)
        if noise is None:
            workbench.say("  they differ: does the script differ from itself when nothing interrupts it?")
            control = workbench.run(request)
            runs.append(control)
            noise = _noise(whole, control, logs, update_log.read(control), are_here=are_here)
        if noise is not None:
            evidence = ResumeEvidence(whole, broken, logs, theirs, tolerance=PROFILES[profile])
            compared, found = evidence.judged()
            judged_by = (
                f"itself, because {noise.evidence}: {evidence.overlap} updates that it had made before an interruption "
                f"and made again after it (profile {profile}: losses within {PROFILES[profile]:g})"
            )
            if not evidence.overlap and all(one.code in _OF_SIGNALS for one in found):
                found.append(noise)
    made = len(broken.interruptions)
    is_short = made < len(asked) and not found
    if is_short and (workbench.is_on_cluster or plan.stated is not None):
        found.append(finding(NOT_INTERRUPTED, f"{made} of {len(asked)}, before the run ended"))
    shrunk = list(asked)
    if plan.stated is None and not workbench.is_on_cluster and found and found[0].code not in (NOISE, "no-checkpoint"):

        def fails(fewer: Sequence[PlannedStop]) -> bool:
            once = interrupted(workbench, request, fewer)
            runs.append(once.paths)
            again = ResumeEvidence(whole, once, logs, update_log.read(once.paths), tolerance=evidence.tolerance)
            return found[0].code in [one.code for one in again.judged()[1]]

        workbench.say("  looking for the fewest interruptions that show it …")
        before = asked[: evidence.stops_before_it()]
        at_saves = [one for one in before if one.moment == updates.AT_SAVE]
        shrunk = fewest(at_saves if found[0].code == "torn-checkpoint" and at_saves else before, fails)
    mistaken = list(mistakes.in_ranks([log[0] for log in logs]))  # interrupted or not
    infinite = next((one.evidence for one in mistaken if one.code == mistakes.NOT_FINITE), "")
    if infinite and not found and mistakes.ends_infinite(logs[0][0]):
        found.append(finding(NO_NUMBERS, infinite))
    return ScriptVerdict(
        updates=len(logs[0][0].updates),
        stops=[str(one) for one in shrunk],
        interruptions=evidence.interruptions(),
        compared=compared,
        findings=found,
        notes=[
            *(f"{one.text} ({one.evidence}). {one.cure}" for one in mistaken),
            *evidence.notes(),
            *([f"{made} of {len(asked)} interruptions came before the run ended"] if is_short and not found else []),
            *_notes_of_states(compared, explained=bool(found)),
            *([] if are_here else ["final states stay on the cluster: updates and saves are compared"]),
        ],
        judged_by=judged_by,
        infinite=infinite,
        runs=runs,
    )


def fewest(stops: Sequence[PlannedStop], fails: Callable[[Sequence[PlannedStop]], bool]) -> list[PlannedStop]:
    """Return one of the last few stops that fails alone, else two of which the last is one; all of them if none do.

    Tries end after a while, whatever they have found.
    """
    if len(stops) > 1:
        singles = [[stop] for stop in reversed(stops[-_TRIES:])]
        pairs = [[stop, stops[-1]] for stop in reversed(stops[-_TRIES - 1 : -1])] if len(stops) > 2 else []
        deadline = clock.monotonic() + _SHRINKING_S
        for fewer in (*singles, *pairs):
            if clock.monotonic() > deadline:
                break
            if fails(fewer):
                return fewer
    return list(stops)


# Findings that no noise can cause.
_OF_SIGNALS = (
    "complete-too-early",
    "torn-checkpoint",
    "crashed",
    "between-epochs",
    "nothing-saved",
    "workers-killed",
    "no-checkpoint",
)


class ResumeEvidence:
    """What the two runs recorded, and what follows from it.

    With a `tolerance` of losses the uninterrupted run is of no use, and the interrupted one is compared with itself.
    """

    def __init__(
        self,
        whole: RunPaths,
        broken: Interrupted,
        expected: Sequence[Sequence[AttemptLog]],
        found: Sequence[Sequence[AttemptLog]],
        tolerance: float | None = None,
    ) -> None:
        self._whole_run, self._broken = whole, broken
        self._whole = expected[0][0]
        self._all, self._found = expected, found
        self._attempts = found[0] if found else []
        self._by_number = {one.number: one for one in self._attempts}
        self.tolerance, self._is_alone = tolerance, tolerance is not None
        self._resumed = list(resumptions(self._attempts))
        self.overlap = sum(min(len(one.attempt.updates), len(one.expected)) for one in self._resumed)
        if tolerance is None:
            self._starts = {one.number: starts_at(one, self._whole) for one in self._attempts}
            self.first = first_apart(self._whole, self._attempts)
        else:
            self._starts = {one.attempt.number: one.start for one in self._resumed}
            self.first = first_apart_from_itself(self._resumed, tolerance)

    def interruptions(self) -> list[ScriptInterruption]:
        """Return the interruptions, each with the update after which the script continued."""
        return [replace(one, continued_at=self._continued_after(one.attempt)) for one in self._broken.interruptions]

    def stops_before_it(self) -> int:
        """Return how many interruptions there were before the first update that differs; all where none does."""
        number = self.first.attempt.number if self.first is not None else None
        return sum(number is None or one.attempt < number for one in self._broken.interruptions)

    def _continued_after(self, attempt: int) -> int | None:
        later = (one.number for one in self._attempts if one.number > attempt and one.updates)
        return self._starts.get(next(later, 0))

    def judged(self, *, are_here: bool = True) -> tuple[Compared | None, list[LikelyCause]]:
        """Return how the final states differ, where they `are_here` and of use, and all that was lost."""
        compared = None
        if are_here and not self._is_alone and not self._broken.crashed:
            compared = final_states.compare(self._whole_run, self._broken.paths)
        found = list(self.findings())
        return compared, [*found, *by_states(compared, self, found)]

    def findings(self) -> Iterator[LikelyCause]:
        """Yield what was lost, the most telling first."""
        yield from self._crash()
        yield from self._complete_too_early()
        total = len(self._whole.updates)
        is_saved = any(0 < event.update < total for event in self._whole.named(updates.SAVED))
        if not is_saved and not any(one.start for one in self._resumed[1:]):
            yield finding("no-checkpoint", f"{total} updates, and nothing saved before the last")
            return
        begun_again = list(self._not_resumed())
        yield from begun_again
        shards = list(self._shards())
        yield from shards
        found: list[LikelyCause] = []
        if self.first is not None and not shards:
            way = AttemptLog(0, tuple(self._way()), self._whole.events) if self._is_alone else self._whole
            found += lost(
                self.first, way, longer=self._is_longer(), saves=self._saves_before(self.first.attempt.number)
            )
            counts = lost_counts(
                self._whole, [(one.attempt, one.start) for one in self._resumed if one.start is not None]
            )
            known = {one.code for one in (*found, *counts)}
            for one in lost_later(self._resumed, self.first.attempt.number, self._whole):
                # A rate that follows a lost count is no lost schedule.
                if one.code not in known and not (one.code == "scheduler" and "step-counter" in known):
                    found.append(one)
                    known.add(one.code)
            if not known & {"scheduler", "step-counter", "optimizer"}:
                found += lost_by_epochs(self._resumed, self._whole)
        elif self.first is None and self._is_alone and not shards:
            found += seen_twice(self._resumed, self._whole)
        elif self.first is None and not self._broken.crashed and not shards:
            found += self._too_short()
        yield from (one for one in found if not (begun_again and one.code == "not-resumed"))
        codes = {one.code for one in found}
        apart = [one for one in self._saved_apart() if one.code not in codes and not shards]
        if "scheduler" in codes | {one.code for one in apart}:
            codes.add("optimizer")  # its state holds the rates that the schedule sets
        yield from (one for one in apart if one.code not in codes)
        yield from self._of_signals()

    def _way(self) -> Sequence[ScriptUpdate]:
        """Return what the attempts before the one that differs have done, in the order of updates."""
        number = self.first.attempt.number if self.first is not None else 0
        return next((one.way for one in self._resumed if one.attempt.number == number), ())

    def _saves_before(self, number: int) -> list[ScriptEvent]:
        return [event for one in self._attempts if one.number < number for event in one.named(updates.SAVES)]

    def _saved_apart(self) -> Iterator[LikelyCause]:
        """Look at the values of saves: at counts, and at what several attempts saved after the same update."""
        mine = [(one, start) for one in self._attempts if (start := self._starts[one.number]) is not None]
        counts = list(lost_counts(self._whole, mine)) if self.first is None else []
        yield from counts
        logs = mine if self._is_alone else [(self._whole, 0), *mine]
        # Kernels that are not deterministic leave other bits where losses are as near as they have to be.
        apart_at = first_apart_from_itself(self._resumed, 0.0) if self._is_alone else self.first
        apart = first_saved_apart(logs, apart_at.update if apart_at is not None else None)
        yield from (one for one in apart if not counts or one.code != "step-counter")

    def _complete_too_early(self) -> Iterator[LikelyCause]:
        total = len(self._whole.updates)
        for one in self._broken.interruptions:
            attempt, start = self._by_number.get(one.attempt), self._starts.get(one.attempt)
            if one.state != states.COMPLETED or attempt is None or start is None:
                continue
            if (made := start + len(attempt.updates)) < total:
                text = (
                    f"attempt {one.attempt} ended with 0 after {one.way}, at update {made} of {total}, and is COMPLETED"
                )
                yield finding("complete-too-early", text)
                return

    def _crash(self) -> Iterator[LikelyCause]:
        for one in self._broken.torn:
            last = "\n  | ".join([f"attempt {one.attempt} failed", *one.tail])
            yield self._torn(one.path, f"killed while it saved {one.path.name}\n  | {last}")
        crashed = self._broken.crashed
        if crashed is None:
            return
        tail = crashed.failure.tail[-6:] if crashed.failure else []
        last = "\n  | ".join([f"attempt {crashed.attempt} is {crashed.state}", *tail])
        torn = final_states.torn(self._broken.paths)
        before = self._broken.interruptions[-1] if self._broken.interruptions else None
        if before is not None and before.attempt == crashed.attempt - 1 and before.moment == updates.AT_SAVE:
            named = [f"{state.path.name} {why}" for state, why in torn[:1]] or ["some of its files are missing"]
            yield self._torn(torn[0][0].path if torn else None, f"killed while it saved: {named[0]}\n  | {last}")
        elif torn:
            yield self._torn(torn[0][0].path, f"{torn[0][0].path.name} {torn[0][1]}\n  | {last}")
        elif self.first is None:
            yield finding("crashed", last)

    def _torn(self, path: Path | None, evidence: str) -> LikelyCause:
        found = finding("torn-checkpoint", evidence)
        if path is not None and is_of_one_step(path.parent):
            cure = (
                f"Continue from the newest folder that is complete: {path.parent.name} lacks files that the others "
                "have. A file that is written last says so"
            )
            return replace(found, cure=cure)
        files = self._parts_of_checkpoint(path) if path is not None else []
        if path is None or not files:
            return found
        cure = f"continue from the newest step whose files are all complete ({', '.join(files)})"
        if not re.search(r"\d", path.name):
            cure = f"name the files of a checkpoint by their step, as a kill may come between them, and {cure}"
        return replace(found, cure=f"{cure[0].upper()}{cure[1:]}. A file that is written last says so")

    def _parts_of_checkpoint(self, path: Path) -> list[str]:
        """Return the files that are saved together, this one among them; none where it has all that the others have."""
        kinds: dict[int, dict[str, set[str]]] = {}  # update: file: the kinds of its values
        for event in self._whole.named(updates.SAVES):
            name, keys = Path(str(event.fields["path"])).name, {*event.fields["content"]}
            inside = {final_states.kind_of(name, (key,), is_tensor=True) for key in keys}
            is_optimizer = keys == {"state", "param_groups"}  # under whatever name
            kinds.setdefault(event.update, {})[name] = {final_states.OPTIMIZER} if is_optimizer else inside
        together = next((files for files in kinds.values() if path.name in files), {})
        is_part = any(inside - together[path.name] for inside in together.values())
        return list(together) if is_part else []

    def _not_resumed(self) -> Iterator[LikelyCause]:
        saved: dict[str, int] = {}  # path: after so many updates
        for one in self._attempts:
            start, newest = self._starts[one.number], max(saved.values(), default=0)
            if newest and one.updates and start == 0:
                yield self._begun_again(one, saved)
                return
            for event in one.named(updates.SAVED):
                saved[str(event.fields["path"])] = (start or 0) + event.update

    def _begun_again(self, attempt: AttemptLog, saved: Mapping[str, int]) -> LikelyCause:
        newest = max(saved, key=lambda path: saved[path])
        found = finding(
            "not-resumed", f"attempt {attempt.number} began at update 1; {saved[newest]} updates were saved"
        )
        again = {str(event.fields["path"]): event.update for event in attempt.named(updates.SAVED)}
        over = [path for path in again if path in saved]
        if over:
            path = max(over, key=lambda one: saved[one])
            return replace(
                found,
                evidence=f"{found.evidence}, and {self._shown(path)}, saved after update {saved[path]}, was then "
                "written over by the training that began again",
                cure="Load the newest checkpoint whatever else has been loaded (base weights, say), before anything is "
                "saved",
            )
        folders = {Path(path).parent for path in again}
        if folders and not folders & {Path(path).parent for path in saved}:
            return replace(
                found,
                evidence=f"{found.evidence} in {self._shown(str(Path(newest).parent))}, and this attempt saves in "
                f"{self._shown(str(min(folders)))}",
                cure="Save in a folder that is the same in each attempt (without the time in its name), or look for "
                "the newest checkpoint in all of them",
            )
        return found

    def _shown(self, path: str) -> str:
        place, project = Path(path).parent / name_of(path), self._broken.paths.project
        return str(place.relative_to(project) if place.is_relative_to(project) else place)

    def _shards(self) -> Iterator[LikelyCause]:
        """Look at what the other ranks of a sharded model began with."""
        savers = {rank for rank, log in enumerate(self._found) for one in log if one.named(updates.SAVED)}
        if savers != {0}:
            return
        for rank, (log, whole) in enumerate(zip(self._found, self._all, strict=False)):
            of_rank = {one.attempt.number: one.start for one in resumptions(log)}
            for attempt in log[1:]:
                ours = of_rank[attempt.number] if self._is_alone else starts_at(attempt, whole[0])
                first = self._starts.get(attempt.number)
                if rank and attempt.updates and first is not None and ours != first:
                    yield finding(
                        "rank-0-only",
                        f"attempt {attempt.number}: rank 0 began as after update {first}, and rank {rank} did not",
                    )
                    return

    def _is_longer(self) -> bool:
        ends = [(self._starts[one.number] or 0) + len(one.updates) for one in self._attempts]
        return max(ends, default=0) > len(self._whole.updates)

    def _too_short(self) -> Iterator[LikelyCause]:
        total = len(self._whole.updates)
        ends = [start + len(one.updates) for one in self._attempts if (start := self._starts[one.number]) is not None]
        if max(ends, default=0) < total:
            yield finding("fewer-updates", f"{max(ends, default=0)} of {total} updates")

    def _of_signals(self) -> Iterator[LikelyCause]:
        """Look at what the script did between each signal and its end."""
        for one in self._broken.interruptions:
            log = self._by_number.get(one.attempt)
            if one.way == KILL or log is None or not log.updates or not one.handles:
                continue
            saved = log.after_wait(updates.SAVED)
            last = saved[0].update if saved else len(log.updates)
            more = last - one.after
            if one.way == PREEMPTION:
                if not saved and (line := self._death_of_worker(one.attempt)):
                    yield finding("workers-killed", f"attempt {one.attempt}, TERM after update {one.after}: {line}")
            elif "USR1" in one.handles and more > _SOON and self._ends_pass(log, last):
                yield finding(
                    "between-epochs",
                    f"attempt {one.attempt}: USR1 after update {one.after}, and {more} more updates, to the end of the "
                    "epoch, before it saved",
                )
            elif "USR1" in one.handles and not saved:
                made = f"{more} more updates" if more else "none of its files was written"
                yield finding(
                    "nothing-saved",
                    f"attempt {one.attempt}: USR1 after update {one.after}, {MARGIN_S:.0f} s until TERM, and {made}",
                )

    def _ends_pass(self, log: AttemptLog, update: int) -> bool:
        """Return whether a pass over the data ended with this update of an attempt, or after the interruption."""
        if any(event.update <= update for event in log.after_wait(updates.PASS_ENDED)):
            return True
        # Lightning counts batches, and asks for none after the last.
        around = self._whole.updates[(self._starts[log.number] or 0) + update - 1 :][:2]
        passes = {one.batches[-1].loader_pass for one in around if one.batches}
        return len(passes) == 2

    def _death_of_worker(self, attempt: int) -> str | None:
        lines = self._log_lines(attempt)
        for number, line in enumerate(lines):
            if "DataLoader worker" in line and ("killed by signal" in line or "exited unexpectedly" in line):
                return line.strip()
            if ", in rebuild_storage_f" in line:  # of a batch whose worker is no longer there
                error = next((one for one in lines[number:] if one[:1].isalpha()), "the loader died")
                return f"{error}, from a worker of the DataLoader"
        return None

    def _log_lines(self, attempt: int) -> list[str]:
        try:
            text = self._broken.paths.rank_log(0).read_text(errors="replace")
        except OSError:
            return []
        _, _, mine = text.partition(f"--- attempt {attempt} ")
        return mine.partition(f"--- attempt {attempt + 1} ")[0].splitlines()

    def notes(self) -> Iterator[str]:
        """Yield what a reader should know and is no fault."""
        saved = 0
        for attempt in self._attempts:
            start = self._starts[attempt.number]
            if start is not None and 0 < start < saved:
                yield (
                    f"attempt {attempt.number} resumed from an older checkpoint: from update {start}, though files "
                    f"were written after update {saved}"
                )
            saved = max([saved, *((start or 0) + event.update for event in attempt.named(updates.SAVED))])
        for one in self._broken.interruptions:
            if one.way == TIME_LIMIT and "USR1" not in one.handles and one.moment != updates.AT_START:
                log = self._by_number.get(one.attempt)
                in_time = log is not None and log.after_wait(updates.SAVED)
                late = "saves at TERM, after which Slurm waits for KillWait, often 30 s"
                what = late if in_time else "saves nothing before the limit"
                yield f"attempt {one.attempt}: the script does not handle USR1, and {what}"
        total = len(self._whole.updates)
        if not any(event.update < total for event in self._whole.named(updates.SAVED)) and any(self._starts.values()):
            yield "the script saves only when a signal asks it to: a kill, or a node that fails, loses everything"
        if not any(one.batches for one in self._whole.updates):
            yield "samples were not compared: no DataLoader delivers them, and no module is called with them"
        elif all(not batch.loader_pass for one in self._whole.updates for batch in one.batches):
            yield "samples are compared by what the model is called with: no DataLoader delivers them"
        yield from padded(log[0] for log in self._all)[:1]
        if any(log[0].named(updates.BLIND) for log in self._all):
            yield "the hook in the ranks failed, so not every update was seen"


def by_states(
    compared: Compared | None, evidence: ResumeEvidence, found: Sequence[LikelyCause]
) -> Iterator[LikelyCause]:
    """Yield what only the saved states show: an average of the weights, a count."""
    if compared is None:
        return
    if evidence.first is not None:
        counts_the_same = compared.counts and not any(one.kind == final_states.COUNTER for one in compared.apart)
        steps = [one for one in compared.apart if one.kind == final_states.SCHEDULER and one.has_grown]
        if counts_the_same and steps and all(one.code != "step-counter" for one in found):
            # Trainer's count says both which samples come next and when it is over.
            yield finding(
                "step-counter", f"every saved count is the same, and the scheduler's is not: {_described(steps)}"
            )
        return
    for kind, code in OF_STATES.items():
        apart = [one for one in compared.apart if one.kind == kind]
        if apart and all(one.code != code for one in found):
            yield finding(code, f"in the last {_described(apart)}")


def _described(apart: Sequence[Apart]) -> str:
    more = f", and {len(apart) - 1} more values" if len(apart) > 1 else ""
    return f"{apart[0].file}: {apart[0].name} {apart[0].difference}{more}"


def _notes_of_states(compared: Compared | None, *, explained: bool) -> Iterator[str]:
    if compared is None:
        return
    if not compared.files:
        yield "no final state was found among the files of both runs: only the updates are compared"
    yield from (f"not compared: {one}" for one in compared.unread)
    if explained:
        return
    random = [one for one in compared.apart if one.kind == final_states.RANDOM]
    if random:
        yield f"random numbers end in another state, which changed no update: {_described(random)}"
    for one in compared.apart:
        if one.kind == final_states.TRACKER:
            yield f"another run of the tracker was begun: {_described([one])}"


def _noise(
    whole: RunPaths,
    control: RunPaths,
    logs: Sequence[Sequence[AttemptLog]],
    others: Sequence[Sequence[AttemptLog]],
    *,
    are_here: bool,
) -> LikelyCause | None:
    """Return how the script differs from itself; None if it does not."""
    first = first_apart(logs[0][0], others[0]) if others else None
    if first is None or first.expected is None:
        if not are_here:
            return None
        compared = final_states.compare(whole, control)
        apart = [one for one in compared.apart if one.kind in OF_STATES]
        return replace(finding(NOISE, _described(apart)), cure=_NOISE_CURES["operations"]) if apart else None
    return _noise_of(first)


def _noise_of(first: FirstApart) -> LikelyCause:
    ours, expected = first.ours, first.expected
    assert expected is not None  # noqa: S101 - both callers have looked
    if first.update == 1 and ours.weights_before != expected.weights_before:
        cause, why = "seed", "the first weights differ"
    elif ours.samples != expected.samples:
        cause, why = "order", "the samples come in another order"
    elif not ours.draws_as(expected):
        cause, why = "random", "the random numbers differ"
    else:
        cause, why = "operations", "the same weights, samples and random numbers give another result"
    pairs = [(a, b) for a, b in zip(ours.losses, expected.losses, strict=False) if not math.isnan(a + b)]
    noise = max((abs(a - b) for a, b in pairs), default=math.nan)
    text = f"two uninterrupted runs, update {first.update}: {why}; losses {noise:.1e} apart"
    return replace(finding(NOISE, text), cure=_NOISE_CURES[cause])
