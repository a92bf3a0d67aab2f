"""The verdict on a batch file that ran: what was right, what was wrong, and what became of doctor's findings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from batchfiles.rehearsal.attempt import OWN_NAME, RehearsedAttempt
from batchfiles.rehearsal.recording import RecordedProcess, Recording
from batchfiles.rules.codes import Finding
from trainjob.contract.environment import RANK
from trainjob.contract.programs.helpers import CONTAINERS, ENVIRONMENTS
from trainjob.contract.programs.ranks import SLURM_RANK
from trainjob.planning.words import quantity
from trainjob.rehearse.slurm import configuration


@dataclass(frozen=True)
class Confirmation:
    """A finding of doctor's, and whether the rehearsal has shown it or its opposite; None if it shows neither."""

    finding: Finding
    is_confirmed: bool | None

    @property
    def shown_by(self) -> str | None:
        """The fault to inject (--inject) that shows it; None if none does."""
        look = _LOOKS.get(self.finding.code)
        return _SHOWN_BY.get(look) if look is not None else None


@dataclass(frozen=True)
class BatchVerdict:
    """The verdict of a rehearsal about a batch file."""

    problems: Sequence[str]
    facts: Sequence[str]
    confirmations: Sequence[Confirmation]
    recording: Recording

    @property
    def passed(self) -> bool:
        """Whether the file does what its author wants, as far as it was seen."""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """Return the verdict for `--json`."""
        words = {True: "confirmed", False: "cleared", None: "not shown"}
        return {
            "passed": self.passed,
            "problems": list(self.problems),
            "facts": list(self.facts),
            "findings": [one.finding.as_json() | {"rehearsal": words[one.is_confirmed]} for one in self.confirmations],
            "stopped": self.recording.stopped,
            "jobs": [
                {
                    "id": job.id,
                    "state": job.state,
                    "exit_code": job.exit_code,
                    "restarts": job.restarts,
                    "nodes": list(job.nodes),
                    "ranks": [rank.as_json() for rank in self.recording.ranks(job.id, job.restarts + 1)],
                }
                for job in self.recording.jobs
            ],
            "steps": [{**vars(step), "nodes": list(step.nodes)} for step in self.recording.steps],
            "launches": [list(call.words) for call in self.recording.calls if not call.is_stood_in_for],
            "stood_in_for": [list(call.words) for call in self.recording.calls if call.is_stood_in_for],
        }


def judge(recording: Recording, findings: Sequence[Finding] = (), inject: str | None = None) -> BatchVerdict:
    """Return the verdict on a record; `findings` are doctor's."""
    parts = [part for job in recording.jobs for part in RehearsedAttempt(recording, job).parts]
    seen = _Seen(recording, parts, inject)
    confirmations = [Confirmation(one, _is_confirmed(one.code, seen)) for one in findings]
    problems = _counted(_with_line(problem, findings) for problem in _problems(seen))
    interrupted = next((one for one in findings if one.code == "wait-interrupted"), None)
    if killed := _killed_while_saving(seen, interrupted is not None):
        where = f" (line {interrupted.line}: {interrupted.text})" if interrupted else ""
        ranks = quantity(len(killed), "rank")
        problems.append(f"the end of the batch shell killed {ranks} that had been asked to save{where}")
    return BatchVerdict(problems, _counted(_facts(seen)), confirmations, recording)


def _counted(lines: Iterable[str]) -> list[str]:
    """Return each line once: trainings one after another have much in common."""
    return [f"{line} ({count} times)" if count > 1 else line for line, count in Counter(lines).items()]


def _with_line(problem: str, findings: Sequence[Finding]) -> str:
    """Return a problem; one about a lost exit code names the line that lost it."""
    lost = next((one for one in findings if one.code == "exit-code-lost"), None)
    return problem if lost is None or not problem.endswith("is lost") else f"{problem} (line {lost.line}: {lost.text})"


class _Seen(NamedTuple):
    recording: Recording
    attempts: Sequence[RehearsedAttempt]  # the first of each job
    inject: str | None

    @property
    def ranks(self) -> list[RecordedProcess]:
        """The ranks of all jobs."""
        return [rank for attempt in self.attempts for rank in attempt.ranks]


def _problems(seen: _Seen) -> Iterator[str]:
    recording, attempts, inject = seen
    if recording.refused is not None:
        yield f"sbatch refuses the file: {recording.refused}"
    elif not attempts:
        yield f"the controller knows nothing of the job: {recording.stopped or 'it is gone'}"
    for attempt in attempts:
        of = f"job {attempt.job.id}: " if len(recording.jobs) > 1 else ""
        found = [*_of_attempt(attempt), *(_of_end(attempt) if inject is None else ())]
        yield from (of + problem for problem in found)
        if inject is not None and not found and (problem := _of_fault(attempt, inject)):
            yield problem


def _of_attempt(attempt: RehearsedAttempt) -> Iterator[str]:
    if not attempt.ranks:
        yield from _of_no_ranks(attempt)
    elif attempt.not_here is None or attempt.worlds:
        yield from attempt.world_problems()
        yield from attempt.gpu_problems()


def _of_no_ranks(attempt: RehearsedAttempt) -> Iterator[str]:
    job, nodes = attempt.job, list(dict.fromkeys(one.node for one in attempt.launchers))
    if job.state == "FAILED" and not job.output and job.signal:
        yield f"Slurm can't write the job's output to {job.output_file}: the folder must exist before sbatch"
    elif nodes and attempt.recording.stopped:
        missing = f", and nothing was started on {', '.join(attempt.idle_nodes)}" if attempt.idle_nodes else ""
        yield f"no rank started: the launcher on {', '.join(nodes)} waited for others{missing}"
    else:
        yield f"no training started: {attempt.recording.stopped or _ended(attempt)}"


def _of_end(attempt: RehearsedAttempt) -> Iterator[str]:
    job, not_here, stopped = attempt.job, attempt.not_here, attempt.recording.stopped
    failed = next((rank for rank in attempt.ranks if rank.error), None)
    if stopped and "training" not in stopped and not attempt.waiting and attempt.ranks:
        yield f"the rehearsal ended it: {stopped}"
    if stopped is not None and not_here is None and attempt.absent is not None:
        yield _error_of(attempt.absent)
    if stopped is None and not_here is None:
        if failed is not None:
            yield _error_of(failed)
            if job.state == "COMPLETED":
                yield "the job is COMPLETED all the same: its exit code is lost"
        elif job.state == "COMPLETED" and (
            codes := Counter(rank.exit_code for rank in attempt.ranks if rank.exit_code)
        ):
            ranks = "1 rank" if len(attempt.ranks) == 1 else f"{codes.total()} of {len(attempt.ranks)} ranks"
            yield f"{ranks} ended with exit code {', '.join(str(code) for code in sorted(codes))}"
            yield "the job is COMPLETED all the same: its exit code is lost"
        elif job.state != "COMPLETED" and attempt.ranks:
            yield _ended(attempt)


def _ended(attempt: RehearsedAttempt) -> str:
    """Return how the job ended, and the first error of a process of it, else the last that its output names."""
    job = attempt.job
    own = (one for one in attempt.recording.processes if one.job == job.id)
    # Of a launcher whose ranks failed, their own output tells more.
    errors = [one.error.splitlines()[0] for one in own if one.error and "ChildFailedError" not in one.error]
    if not errors:
        errors = [found[1] for found in _ERRORS.finditer(job.output)][-1:]
    return f"the job is {job.state}, with exit code {job.exit_code}" + "".join(f"; {one[:300]}" for one in errors[:1])


# Of bash, which names the line, of what finds no file, and of Slurm, but for the codes with which tasks ended.
_ERRORS = re.compile(
    r"^(?:.*/slurm_script: |\S+: (?=error: |fatal: ))?"
    r"(line \d+: .*|(?:error|fatal): (?!.*Exited with exit code).*|.*(?:: not found|No such file or directory))$",
    re.MULTILINE,
)


def _error_of(failed: RecordedProcess) -> str:
    where = f" at {failed.line}" if failed.line else ""
    who = "a process" if failed.rank is None else f"rank {failed.rank}"
    return f"{who} ended with {(failed.error or '').splitlines()[0][:300]}{where}"


def _of_fault(attempt: RehearsedAttempt, inject: str) -> str | None:
    """Return what is wrong with the effect of an injected fault; None if nothing is."""
    job, stopped = attempt.job, attempt.recording.stopped
    if inject == "rank-death":
        hangs = f"a rank was killed, and the job did not end: {stopped}. It would wait until its time limit"
        return hangs if stopped else None
    if inject == "cancel":
        return None if job.state == "CANCELLED" and not job.restarts else f"the job was cancelled, and is {job.state}"
    if attempt.was_restarted:
        return None
    return f"the job did not start again: it is {job.state}" + (f", {stopped}" if stopped else "")


def _facts(seen: _Seen) -> Iterator[str]:
    recording, attempts, inject = seen
    for attempt in attempts:
        of = f"job {attempt.job.id}: " if len(recording.jobs) > 1 else ""
        found = [attempt.worlds_in_words(), attempt.gpus_in_words(), *_shown(attempt)]
        yield from (of + fact for fact in found if fact)
        if inject is not None:
            yield f"{of}{inject}: {_effect(attempt)}"
        elif recording.stopped and "training" in recording.stopped:
            yield f"{of}stopped {recording.stopped}"
    yield from _stood_in_for(recording)
    yield from recording.notes


def _shown(attempt: RehearsedAttempt) -> Iterator[str]:
    first = next(iter(attempt.ranks), None)
    if first is None:
        return
    # What torchrun tells its ranks is a name that it has looked up here.
    places = {rank.address for rank in attempt.ranks if rank.address and "TORCHELASTIC_RUN_ID" not in rank.environment}
    if len(places) == 1 and len(attempt.ranks) > 1 and not attempt.at_localhost:
        yield f"they meet at {places.pop()}"
    if (attempt.at_localhost or "").startswith(OWN_NAME):
        yield f"they meet at {OWN_NAME}, the own name of a node here: whether a cluster's mean that was not shown"
    address = re.match(r"(?!127\.)\d+(\.\d+){3}", attempt.meeting_place or "")
    if address is not None and address[0] != configuration.ADDRESS:
        yield f"this machine answers at {address[0]}, too: whose address that is on the cluster was not shown"
    threads, cpus = (
        {rank.environment.get(name) for rank in attempt.ranks} for name in ("OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK")
    )
    if len(threads) == 1 and len(cpus) == 1:
        # Not torch's own figure: it depends on the CPUs of this machine.
        value, per_task = threads.pop(), cpus.pop()
        yield f"OMP_NUM_THREADS is {value or 'not set'} in each rank" + (
            f", and a task has {quantity(int(per_task), 'CPU')}" if per_task else ""
        )
    if (not_here := attempt.not_here) is not None:
        what = not_here.missing or (not_here.error or "").splitlines()[0][:120]
        where = f" (at {not_here.line})" if not_here.line else ""
        because = f"because {what} is missing on this machine"
        yield f"training stopped{where} {because}; nothing after that point was rehearsed"


def _effect(attempt: RehearsedAttempt) -> str:
    job, recording = attempt.job, attempt.recording
    received = sorted({signal for rank in attempt.ranks for signal in rank.signals})
    signals = f"; the ranks' signal handlers received {', '.join(received)}" if received else ""
    if job.restarts:
        ranks = recording.ranks(job.id, job.restarts + 1)
        nodes = quantity(len({rank.node for rank in ranks}), "node")
        back = f"attempt {job.restarts + 1} has {quantity(len(ranks), 'rank')} on {nodes}"
        return f"Slurm started the job again, and {back}{signals}"
    if attempt.was_restarted:
        return f"the file submitted a job of its own{signals}"
    return "the job " + (f"did not end: {recording.stopped}" if recording.stopped else f"is {job.state}") + signals


def _stood_in_for(recording: Recording) -> Iterator[str]:
    calls = dict.fromkeys((call.name, call.words) for call in recording.calls if not call.in_step)
    environment = [" ".join(words) for name, words in calls if name in (*ENVIRONMENTS, "source", "git")]
    if environment:
        yield f"replaced by the programs on this machine's PATH: {'; '.join(environment)}"
    if folders := dict.fromkeys(words[1] for name, words in calls if name == "cd"):
        cure = f"--map {next(iter(folders))}=FOLDER provides it"
        yield f"skipped, because it does not exist here: {', '.join(folders)} ({cure})"
    if data := dict.fromkeys(call.words[1] for call in recording.calls if call.name == "copy"):
        yield f"not copied, because it does not exist here: {', '.join(data)}"
    if interfaces := dict.fromkeys(one.interface for one in recording.processes if one.interface):
        yield f"network interface {', '.join(interfaces)} does not exist here; lo was used instead"
    options = (word.partition("=")[0] for call in recording.calls if call.name == "srun" for word in call.words)
    containers = dict.fromkeys(
        [call.name for call in recording.calls if call.name in CONTAINERS]
        + [f"srun {option}" for option in options if option in ("--container-image", "--environment", "--uenv")]
    )
    if containers:
        yield f"no container: what {', '.join(containers)} would start ran on this machine"
    if profilers := dict.fromkeys(call.name for call in recording.calls if call.name in ("nsys", "ncu")):
        yield f"no profile: what {', '.join(profilers)} would start ran alone"
    if launchers := dict.fromkeys(call.words[1] for call in recording.calls if call.name == "stand-in"):
        yield f"torchrun started the ranks of {', '.join(launchers)}, which PATH does not have here"


# -- what became of doctor's findings -----------------------------------------------------------

_Look = Callable[[_Seen], bool | None]


# What sbatch itself refuses.
_REFUSED = ("shebang-not-first", "crlf", "no-such-option", "directive-refused", "not-a-batch-file")


def _is_confirmed(code: str, seen: _Seen) -> bool | None:
    if seen.recording.refused is not None:
        return True if code in _REFUSED else None
    look = _LOOKS.get(code)
    return look(seen) if look is not None else None


def _worlds(seen: _Seen) -> bool | None:
    started = [attempt for attempt in seen.attempts if attempt.ranks]
    if any(attempt.idle_nodes or any(attempt.world_problems()) for attempt in started):
        return True
    # Ranks are one world as well where a second launcher failed, which would have started others.
    clear = all(attempt.is_one_world and not any(one.error for one in attempt.launchers) for attempt in started)
    return False if started and clear else None


def _gpus_shared(seen: _Seen) -> bool | None:
    if any(rank.visible_gpus == () for rank in seen.ranks) or any(
        attempt.shared_gpus or attempt.crowded_nodes for attempt in seen.attempts
    ):
        return True
    return False if any(attempt.users for attempt in seen.attempts) else None


def _gpus_idle(seen: _Seen) -> bool | None:
    if any(attempt.idle_gpus for attempt in seen.attempts):
        return True
    used = any(attempt.users for attempt in seen.attempts)
    return any(attempt.idle_nodes for attempt in seen.attempts) if used else None


def _nodes_idle(seen: _Seen) -> bool | None:
    started = [attempt for attempt in seen.attempts if attempt.ranks or attempt.launchers]
    return any(attempt.idle_nodes for attempt in started) if started else None


def _printed(text: str) -> _Look:
    # Only the last lines are known: that it is not there says nothing.
    return lambda seen: True if any(text in job.output for job in seen.recording.jobs) else None


def _not_back(seen: _Seen) -> bool | None:
    if seen.inject != "timeout" or not seen.attempts:
        return None
    return not all(attempt.was_restarted for attempt in seen.attempts)


def _saves_nothing(seen: _Seen) -> bool | None:
    # One that comes back by its trap has saved nothing all the same.
    return True if _not_back(seen) else None


def _hangs(seen: _Seen) -> bool | None:
    return seen.recording.stopped is not None if seen.inject == "rank-death" else None


def _asked_to_save(seen: _Seen) -> list[RecordedProcess]:
    return [rank for rank in seen.ranks if rank.signals] if seen.inject in ("timeout", "preempt") else []


def _killed_while_saving(seen: _Seen, is_interrupted: bool) -> list[RecordedProcess]:
    """Return the ranks that a signal reached, and that did not end by themselves before the batch shell did."""
    # A shell whose wait a trap ended has 128 and the signal's number; what goes on behind that wait has any code.
    ended = is_interrupted or any(job.exit_code > _SIGNALLED for job in seen.recording.jobs)
    return [rank for rank in _asked_to_save(seen) if not rank.has_ended] if ended else []


_SIGNALLED = 128


def _wait_interrupted(seen: _Seen) -> bool | None:
    asked = _asked_to_save(seen)
    return any(not rank.has_ended for rank in asked) if asked else None


def _numbered_early(seen: _Seen) -> bool | None:
    """Return whether all ranks have the number that the batch shell gave to them; by their worlds, if none has one."""
    launchers = [one for attempt in seen.attempts for one in attempt.launchers]
    given = {one.node: match[1] for one in launchers if (match := _NODE_RANK.search(" ".join(one.words)))}
    if len(given) > 1:
        return len(set(given.values())) == 1
    tasks = [rank.environment for rank in seen.ranks if "TORCHELASTIC_RUN_ID" not in rank.environment]
    own = {(one[SLURM_RANK], one.get(RANK, "")) for one in tasks if one.get(SLURM_RANK)}
    stated = {rank for _, rank in own}
    return True if len(own) > 1 and len(stated) == 1 and "" not in stated else _worlds(seen)


_NODE_RANK = re.compile(r"--(?:node|machine)[-_]rank[= ](\d+)")


def _met_at_no_name(seen: _Seen) -> bool | None:
    """Return True for an address that hostname -i gives and that no rank finds: several, or those of loopback."""
    found = [rank.environment.get("MASTER_ADDR", "").strip() for rank in seen.ranks]
    return True if any(re.search(r"\s|^127\.|^\[?[0-9a-f]*::", one) for one in found) else None


def _exit_code_lost(seen: _Seen) -> bool | None:
    if seen.inject == "rank-death" and seen.attempts and not seen.recording.stopped:
        return any(attempt.job.state == "COMPLETED" for attempt in seen.attempts)
    failed = [attempt for attempt in seen.attempts if any(rank.error or rank.exit_code for rank in attempt.ranks)]
    if not failed or seen.inject is not None or seen.recording.stopped:
        return None
    return any(attempt.job.state == "COMPLETED" for attempt in failed)


def _threads(seen: _Seen) -> bool | None:
    threads = [rank.environment.get("OMP_NUM_THREADS") for rank in seen.ranks]
    # torchrun sets 1 unless a value is set.
    return all(value in (None, "1") for value in threads) if threads else None


def _log_folder(seen: _Seen) -> bool | None:
    if seen.ranks:
        moved = any(job.output_file.endswith(f"/slurm-{job.id}.out") for job in seen.recording.jobs)
        return None if moved else False
    return True if any(job.state == "FAILED" and not job.output for job in seen.recording.jobs) else None


def _cpus_lost(seen: _Seen) -> bool | None:
    """Return whether a task got fewer CPUs than the job asks for, on the release that was rehearsed on."""
    given = {step.id: step.cpus // max(1, step.tasks) for step in seen.recording.steps}
    found = [
        given[step] < int(asked)
        for rank in seen.ranks
        if (step := f"{rank.job}.{rank.environment.get('SLURM_STEP_ID')}") in given
        and (asked := rank.environment.get("SLURM_CPUS_PER_TASK", "")).isdigit()
    ]
    return any(found) if found else None


def _peers_hidden(seen: _Seen) -> bool | None:
    ranks = seen.ranks
    if len(ranks) < 2:  # the others have ended before they met
        ranks = [one for one in seen.recording.processes if "SLURM_STEP_ID" in one.environment]
    visible = [rank.visible_gpus for rank in ranks if rank.visible_gpus]
    return all(len(gpus) == 1 for gpus in visible) if len(visible) > 1 else None


def _installs(seen: _Seen) -> bool | None:
    calls = [call.words for call in seen.recording.calls if call.name in (*ENVIRONMENTS, "python", "python3")]
    return True if any({"install", "sync"} & set(words[1:4]) for words in calls) else None


def _in_spool(seen: _Seen) -> bool | None:
    texts = [text for one in seen.recording.processes for text in (one.folder, *one.words, *one.environment.values())]
    texts += [job.output for job in seen.recording.jobs]
    # The names of the file itself there say nothing: bash begins each of its messages with that.
    return True if any(re.search(r"/spool-(?!\S*/slurm_script\b)", text) for text in texts) else None


def _cancels(seen: _Seen) -> bool | None:
    if seen.inject is not None or seen.recording.stopped:
        return None
    return any(job.state.startswith("CANCELLED") for job in seen.recording.jobs)


# The fault that shows it.
_SHOWN_BY: Mapping[_Look, str] = {
    _not_back: "timeout",
    _wait_interrupted: "timeout",
    _saves_nothing: "timeout",
    _hangs: "rank-death",
    _exit_code_lost: "rank-death",
}
_LOOKS: Mapping[str, _Look] = {
    **dict.fromkeys(
        (
            *("nnodes-missing", "tasks-times-torchrun", "addr-undefined", "addr-localhost"),
            *("array-quoted", "world-size-fixed", "nodelist-longer-than-nodes"),
        ),
        _worlds,
    ),
    "more-processes-than-gpus": _gpus_shared,
    "gpus-unused": _gpus_idle,
    "no-srun": _nodes_idle,
    "rank-expanded-early": _numbered_early,
    "addr-hostname-ip": _met_at_no_name,
    "wait-interrupted": _wait_interrupted,
    **dict.fromkeys(("not-bash", "bash-under-sh"), _printed("yntax error")),
    "command-not-found": _printed("command not found"),
    "unset-variable": _printed("unbound variable"),
    **dict.fromkeys(("time-limit-unhandled", "signal-without-requeue", "requeue-without-signal"), _not_back),
    **dict.fromkeys(("trap-deferred", "signal-kills-batch", "signal-never-arrives"), _not_back),
    "lightning-under-torchrun": _saves_nothing,
    "no-kill-on-bad-exit": _hangs,
    "kill-on-bad-exit-0": _hangs,
    "exit-code-lost": _exit_code_lost,
    "threads-unset": _threads,
    "srun-loses-cpus": _cpus_lost,
    "gpus-per-task-hides-peers": _peers_hidden,
    "installs-in-job": _installs,
    "script-dir-is-spool": _in_spool,
    "cancels-itself": _cancels,
    "log-folder-must-exist": _log_folder,
}
