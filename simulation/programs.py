"""The programs of Slurm in a simulated world: what they print of it, and what can be wrong with an answer.

They print what the documentation of sbatch, squeue, scontrol, scancel, sacct and sinfo says, for what trainjob asks.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from simulation.commands import Answer, Command
from simulation.jobs import Controller, Job
from trainjob.machines.process import Completed

MIN_JOB_AGE_S = 300.0
ASKED_AGAIN_S = 60.0
_LOST = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
_NOT_SENT = "slurm_load_jobs error: Socket timed out on send/recv operation"
_RATE = "slurm_load_jobs error: Zero Bytes were transmitted or received"
_GARBAGE = ("<html>502 Bad Gateway</html>\n", "Welcome to the cluster! Maintenance on Friday.\n", "\x00\x01\xff\n")


class Programs:
    """What job scripts and commands call. Answers are late, lost, repeated or no answers as often as the site says."""

    def __init__(self, slurm: Controller) -> None:
        self._slurm, self.world = slurm, slurm.world
        self.calls: list[tuple[float, str, str]] = []  # when, who, what
        self.troubles: list[tuple[float, str, str]] = []  # answers that were not as they should be: when, who, what
        self._told_wrong: dict[str, float] = {}  # when a caller last got what is no answer, and looks like one
        self._answers = self.world.random("answers")

    def nodes(self) -> str:
        """Return what sinfo prints."""
        return "".join(f"{name} {state} (null)\n" for name, state in self._slurm.states.items())

    def answer(self, command: Command, arguments: Sequence[str], timeout_s: float, folder: Path | None) -> Answer:
        """Answer a program that a command calls in `folder`."""
        words = _slurm_words(arguments)
        if words is None:
            return 0.05, Completed(tuple(arguments), 0, b"", "")
        command.calls += 1
        delay_s, code, printed = self.reply(command.name, words, folder or self.world.folder)
        limit_s = timeout_s - 5.0
        if delay_s > limit_s:
            delay_s, code, printed = limit_s, 124, ""
        self.world.note(command.name, shlex.join(words[:4])[:60], f"→ {code} {printed.strip()}")
        out, err = (printed, "") if code == 0 else ("", printed)
        return delay_s, Completed(tuple(arguments), code, out.encode(), err)

    def reply(self, who: str, words: Sequence[str], folder: Path) -> tuple[float, int, str]:
        """Return after how long a program that `who` calls answers, its exit code, and what it prints."""
        if "--format=%F|%E" in words:  # no job of these histories waits for another run
            return 0.0, 0, ""
        delay_s = self._answers.uniform(0.02, 0.4)
        program = words[0]
        self.calls.append((self.world.now, who, program))
        if self._slurm.is_down:
            self.troubles.append((self.world.now, who, program))
            return delay_s, 1, f"{program}: error: Unable to contact slurm controller (connect failure)\n"
        trouble = self._trouble(who, program)
        if trouble in ("rate", "lost before"):
            return delay_s, 1, f"{_RATE if trouble == 'rate' else _NOT_SENT}\n"
        if trouble == "arrives late":  # the controller was busy, and nobody waits for its answer any more

            def arrive() -> None:
                self._do(words, folder)

            self.world.after(self._answers.uniform(0.5, 3.0), arrive)
            return delay_s, 1, f"{_LOST}\n"
        if trouble == "garbage" and program != "scancel":
            return delay_s, 0, self._answers.choice(_GARBAGE)
        code, printed = self._do(words, folder)
        if trouble == "late":
            return self._answers.uniform(2.0, 30.0), code, printed
        if trouble == "lost":
            return min(60.0, delay_s * 20), 1, f"{_LOST}\n"
        if trouble == "empty":  # of a controller that has just started; of sbatch, that of a wrapper
            return delay_s, 0, ""
        if trouble == "twice" and code == 0:
            return (
                delay_s,
                code,
                f"sbatch: welcome, job 7\n{printed}sbatch: 3 of your jobs wait\n"
                if program == "sbatch"
                else printed + printed,
            )
        return delay_s, code, printed

    def _trouble(self, who: str, program: str) -> str:
        if self._slurm.site.troubled and program not in self._slurm.site.troubled:
            return ""
        if self.world.is_calm or program == "sinfo" or self._answers.random() >= self._slurm.site.trouble:
            return ""
        kinds = [
            "late",
            "lost",
            "lost before",
            "rate",
            "twice",
            *(["lost", "twice", "arrives late"] if program == "sbatch" else []),
        ]
        # What says nothing wrong but is not true comes once: who asks again learns better.
        if (
            program in ("squeue", "sbatch", "sacct")
            and self.world.now - self._told_wrong.get(who, -1e9) > ASKED_AGAIN_S
        ):
            kinds += ["empty", "garbage"] * 2
        if self._slurm.site.answers:
            kinds = [kind for kind in kinds if kind in self._slurm.site.answers]
        if not kinds:
            return ""
        self.troubles.append((self.world.now, who, program))
        kind = self._answers.choice(kinds)
        if kind in ("empty", "garbage"):
            self._told_wrong[who] = self.world.now
        return kind

    def _do(self, words: Sequence[str], folder: Path) -> tuple[int, str]:
        program, *rest = words
        if program == "sbatch":
            job = self._slurm.submit(rest, folder)
            return (1, job) if isinstance(job, str) else (0, f"{job.id}\n")
        if program == "squeue":
            if len(rest) > 0:
                return 0, self._waiting_of_script(rest)
            return 0, "".join(self._line(job) for job in self._known())
        if program == "sacct":
            return self._sacct(rest)
        if program == "sinfo":
            return 0, self.nodes()
        if program == "scancel":
            return self._scancel(rest)
        return self._scontrol(rest)

    def _known(self) -> list[Job]:
        return [
            job
            for job in self._slurm.jobs.values()
            if job.ended_at is None or self.world.now - job.ended_at < MIN_JOB_AGE_S
        ]

    def _find(self, word: str) -> Job | None:
        return next((job for job in self._known() if str(job.id) == word), None)

    def _line(self, job: Job) -> str:
        elapsed = _clock(self.world.now - job.started_at) if job.state != "PENDING" else "0:00"
        left = _clock(max(0.0, job.time_limit_s - (self.world.now - job.started_at)))
        return (
            f"{job.id}|{job.id}|N/A|{job.state}|{job.reason}|N/A|{elapsed}|{_clock(job.time_limit_s)}|"
            f"{left}|{','.join(job.nodes)}|{job.folder}\n"
        )

    def _waiting_of_script(self, words: Sequence[str]) -> str:
        """Return what requeue.sh asks: jobs of a name that wait, as number|element|folder."""
        name = next(word.partition("=")[2] for word in words if word.startswith("--name="))
        jobs = [job for job in self._known() if job.name == name and job.state == "PENDING"]
        return "".join(f"{job.id}|N/A|{job.folder}\n" for job in jobs)

    def _sacct(self, words: Sequence[str]) -> tuple[int, str]:
        if not self._slurm.site.has_accounting:
            return 1, "Slurm accounting storage is disabled\n"
        wanted = next(word for word in words if word.startswith("--jobs=")).partition("=")[2].split(",")
        known = [job for job in self._slurm.jobs.values() if str(job.id) in wanted]
        return 0, "".join(f"{job.id}|{job.state}\n" for job in known)

    def _scancel(self, words: Sequence[str]) -> tuple[int, str]:
        options = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
        name, state = options.get("name"), options.get("state")
        for word in [word for word in words if not word.startswith("--")]:
            job = self._find(word)
            if job is None or (name is not None and job.name != name):
                return 1, f"scancel: error: Kill job error on job id {word}: Invalid job id specified\n"
            if state is not None and job.state != state:
                return 1, "scancel: error: No active jobs match ALL job filters\n"
            if job.has_ended:
                return 1, f"scancel: error: Kill job error on job id {word}: Job/step already completing or completed\n"
            self.world.note("slurm", "scancel", word)
            self._slurm.cancel(job)
        return 0, ""

    def _scontrol(self, words: Sequence[str]) -> tuple[int, str]:
        if words[:2] == ["show", "job"]:
            named = words[3:]
            jobs = self._known() if not named else [job for job in [self._find(named[0])] if job]
            if not jobs:
                return (
                    (1, "slurm_load_jobs error: Invalid job id specified\n")
                    if named
                    else (0, "No jobs in the system\n")
                )
            return 0, "".join(map(self._shown, jobs))
        if words[0] == "requeue":
            refusal = self._slurm.requeue(self._find(words[1]))
            return (1, f"slurm_requeue error: {refusal}\n") if refusal else (0, "")
        if words[:2] == ["show", "hostnames"]:
            return 0, words[2].replace(",", "\n") + "\n"
        if words[0] == "update":
            self._slurm.update(self._find(words[1].partition("=")[2]), *words[2].split("=", 1))
            return 0, ""
        return 0, f"NodeName={words[-1]} NodeAddr={words[-1]}\n"

    def _shown(self, job: Job) -> str:
        preempted = "2026-11-23T10:00:00" if job.was_preempted else "None"
        return (
            f"JobId={job.id} JobName={job.name} JobState={job.state} Reason={job.reason} Dependency=(null) "
            f"Requeue={int(job.can_requeue)} Restarts={job.restarts} BatchFlag=1 ExitCode=0:0 RunTime=00:01:00 "
            f"TimeLimit={_clock(job.time_limit_s)} StartTime=Unknown PreemptTime={preempted} Partition=main "
            f"ReqNodeList=(null) ExcNodeList={','.join(job.excluded) or '(null)'} "
            f"NodeList={','.join(job.nodes) or '(null)'} "
            f"Features=(null) WorkDir={job.folder} StdErr={job.folder}/logs/scheduler.out\n"
        )


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02}:{int(seconds) % 60:02}"


def _slurm_words(arguments: Sequence[str]) -> list[str] | None:
    """Return the words of the Slurm command in what `commands.call` runs; None for another program."""
    if len(arguments) < 6 or arguments[3] != "call.sh":
        return None
    program, words = arguments[5], list(arguments[6:])
    return ["squeue"] if program == "squeue" else [program, *words[1:]]
