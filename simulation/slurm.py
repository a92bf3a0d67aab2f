"""Slurm in a simulated world: one controller, a few nodes, jobs of one user, and what can go wrong with them.

What its programs say of it is in `programs.py`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from simulation.jobs import NEVER_SATISFIED, Job, Site
from simulation.programs import Programs
from simulation.ranks import TASK, Step
from simulation.scripts import Script, Scripts
from simulation.world import World
from trainjob.launch import ending

KILL_WAIT_S = 30.0
REQUEUE_HOLD_S = 120.0
NODE_TIMEOUT_S = 60.0
NODES = ("n1", "n2", "n3", "n4")


class Slurm:
    """The controller with its nodes. Fits `scripts.Around`."""

    def __init__(self, world: World, scripts: Scripts, site: Site) -> None:
        self.world, self.scripts, self.site = world, scripts, site
        scripts.around = self
        self.jobs: dict[int, Job] = {}
        self.down_until = 0.0
        self.is_held = False  # its partition is down: jobs run and wait, and none starts
        self.states = dict.fromkeys(NODES, "idle")
        self.programs = Programs(self)
        self.steps: list[Step] = []
        self.program = TASK  # of all ranks
        self.cut_off: list[tuple[Script, Step | None]] = []
        # Starts of jobs that Slurm takes for over, or never begun, while something of them runs: 568.1.
        self.out_of_reach: set[str] = set()
        self._times = world.random("times")
        self._next_id = 100 + world.random("ids").randrange(900)
        self.plan_start: Callable[[Job], tuple[list[int], int | None]] = lambda _job: ([], None)
        self.plan_step: Callable[[Job, Step], None] = lambda _job, _step: None
        self.wrote_file: Callable[[Script, Path, str | None], None] = lambda _script, _path, _text: None
        self.changed: Callable[[Job], None] = lambda _job: None
        self.asked_to_stop: Callable[[Job], None] = lambda _job: None
        self.job_ended: Callable[[Job, int], None] = lambda _job, _code: None

    # Jobs.

    def of_run(self, folder: Path) -> list[Job]:
        """Return the jobs that were submitted in `folder`."""
        return [job for job in self.jobs.values() if job.folder == folder]

    def submit(self, words: Sequence[str], folder: Path) -> Job | str:
        """Do what sbatch does; return the job, or why there is none."""
        options = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
        script, *arguments = (word for word in words if not word.startswith("--"))
        if not (folder / script).is_file():
            return f"sbatch: error: Unable to open file {script}\n"
        text = (folder / script).read_text()
        directives = dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", text, re.MULTILINE))
        self._next_id += 1
        copy = self.world.folder / "spool" / f"job{self._next_id}"
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(text)
        hours, minutes, seconds = map(int, directives["time"].split(":"))
        job = Job(
            self._next_id,
            options.get("job-name") or "job",
            folder,
            copy,
            int(directives["nodes"]),
            hours * 3600.0 + minutes * 60 + seconds,
            float(directives.get("signal", "@120").partition("@")[2]),
            directives.get("signal", "").startswith("B:"),
            "requeue" in directives,
            begin_at=self.world.now + (self._times.uniform(30.0, 250.0) if self.site.is_busy else 0.0),
            submitted_at=self.world.now,
            arguments=arguments,
        )
        if "dependency" in options:
            kind, _, after = options["dependency"].partition(":")
            job.after = (kind, int(after))
            job.is_killed_on_invalid_dependency = options.get("kill-on-invalid-dep") == "yes"
        job.excluded = [name for name in options.get("exclude", "").split(",") if name]
        self.jobs[job.id] = job
        self.changed(job)
        what = "takes follow-up job" if job.after else "takes job"
        self.world.note("slurm", what, f"{job.id} {options.get('dependency', '')}")
        self.world.after(job.begin_at - self.world.now, self._consider)
        return job

    def _consider(self) -> None:
        self.world.after(self._times.uniform(1.0, 10.0), self._schedule)

    def _schedule(self) -> None:
        if self.is_down:
            self.world.after(max(0.1, self.down_until - self.world.now), self._schedule)
            return
        if self.is_held:
            self.world.after(1.0, self._schedule)
            return
        for job in list(self.jobs.values()):
            if job.state != "PENDING" or job.begin_at > self.world.now or not self._may_start(job):
                continue
            busy = {name for one in self.jobs.values() if one.state in ("RUNNING", "COMPLETING") for name in one.nodes}
            free = [
                name for name in NODES if name not in busy and self.states[name] == "idle" and name not in job.excluded
            ]
            if len(free) >= job.needed:
                self._start(job, free[: job.needed])

    def _may_start(self, job: Job) -> bool:
        if job.script is not None or job.after is None:
            return job.script is None
        kind, number = job.after
        first = self.jobs[number]
        if not first.has_ended:
            job.reason = "Dependency"
            return False
        failed = first.state != "COMPLETED"
        if kind == "afterany" or failed == (kind == "afternotok"):
            return True
        job.reason = NEVER_SATISFIED
        if job.is_killed_on_invalid_dependency:
            self.cancel(job)
        return False

    def _start(self, job: Job, nodes: list[str]) -> None:
        job.state, job.reason, job.nodes, job.started_at = "RUNNING", "None", nodes, self.world.now
        job.starts += 1
        self.changed(job)
        job.was_preempted, job.ends_as, job.step, job.ending_at = False, "", None, float("inf")
        job.has_requeued_itself = False
        self.world.note("slurm", "starts job", f"{job.id} on {','.join(nodes)}, restart {job.restarts}")
        pauses, killed_at = self.plan_start(job)
        number = job.starts
        self.world.after(job.time_limit_s - job.margin_s, lambda: self.near_limit(job, number))
        self.world.after(job.time_limit_s, lambda: self._at_limit(job, number))
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.world.folder),
            "TMPDIR": str(self.world.folder),
            "SLURM_JOB_ID": str(job.id),
            "SLURM_JOB_NAME": job.name,
            "SLURM_JOB_NODELIST": ",".join(nodes),
            "SLURM_JOB_NUM_NODES": str(len(nodes)),
            "SLURM_NTASKS_PER_NODE": "1",
            "SLURM_NTASKS": str(len(nodes)),
            "SLURM_JOB_PARTITION": "main",
            "SLURM_CPUS_PER_TASK": "4",
            "SLURMD_NODENAME": nodes[0],
            **({"SLURM_RESTART_COUNT": str(job.restarts)} if job.restarts else {}),
        }
        if not (job.folder / "logs").is_dir():
            self.world.violate("a job has its run", str(job.id))
            self._ends(job, "FAILED", 1)
            return
        name = f"script {job.id}.{job.starts}"
        # Known by its name before it asks anything.
        job.script = Script(name, 0, job.folder, None)
        job.script = self.scripts.start(name, job.copy, job.folder, environment, pauses, killed_at, job.arguments)

    def _job_of(self, script: Script) -> Job | None:
        for job in self.jobs.values():
            if job.script is not None and job.script.name == script.name:
                job.script = script
                return job
        return None

    def near_limit(self, job: Job, number: int) -> None:
        if job.state == "RUNNING" and job.starts == number:
            self.ask_to_stop(job)

    def ask_to_stop(self, job: Job) -> None:
        """Send USR1, as before the time limit: to the job script alone, or to the ranks."""
        self.asked_to_stop(job)
        if job.state == "RUNNING" and job.signals_script and job.script is not None:
            self.scripts.signal(job.script, "USR1")
        elif job.state == "RUNNING" and job.step is not None:
            job.step.usr1()

    def _at_limit(self, job: Job, number: int) -> None:
        if job.state == "RUNNING" and job.starts == number:
            self._end(job, "TIMEOUT", "TimeLimit")

    def _end(self, job: Job, ends_as: str, reason: str = "None") -> None:
        """End a running job as Slurm does: TERM, KillWait, KILL."""
        self.world.note("slurm", "ends job", f"{job.id} as {ends_as}")
        job.state, job.ends_as, job.reason = "COMPLETING", ends_as, reason
        number = job.starts
        self._tell_to_end(job)
        self.world.after(KILL_WAIT_S, lambda: self._kill(job, number))

    def _tell_to_end(self, job: Job) -> None:
        """Send TERM to the ranks and to the script, which may come later there."""
        job.ending_at = self.world.now
        if job.step is not None:
            job.step.term()
        script = job.script
        if script is not None:
            later_s = self._times.choice([0.0, self._times.uniform(0.0, self.site.term_within_s)])
            self.world.after(later_s, lambda: self.scripts.signal(script, "TERM"))

    def _kill(self, job: Job, number: int) -> None:
        if job.starts == number and job.script is not None and job.state != "RUNNING":
            self.scripts.kill(job.script)
            self._ends(job, job.ends_as, 143)

    def _ends(self, job: Job, state: str, code: int) -> None:
        """End what is left of a job whose script is gone, and free its nodes."""
        if job.step is not None:
            job.step.kill()
        job.step = job.script = None
        if job.state == "COMPLETED" or job.has_ended:
            return
        if state == "REQUEUE":
            job.state, job.reason, job.begin_at = "PENDING", "BeginTime", self.world.now + REQUEUE_HOLD_S
            self.world.note("slurm", "job waits again", job.id)
            self.world.after(REQUEUE_HOLD_S, self._schedule)
        else:
            job.state, job.ended_at, job.exit_code = state, self.world.now, code
            self.job_ended(job, code)
            self.world.note("slurm", f"job is {state}", job.id)
        job.nodes = [] if state == "REQUEUE" else job.nodes
        self._consider()

    def _requeue(self, job: Job) -> None:
        """Start a running job again once its script is gone."""
        self.changed(job)
        job.restarts += 1
        self._end(job, "REQUEUE")

    def requeue(self, job: Job | None) -> str:
        """Do what `scontrol requeue` does for the job's user; return why it is refused, if it is."""
        if job is None or not self.site.requeues or not job.can_requeue:
            return "Requested operation is presently disabled"
        if job.state == "PENDING":
            return "Job is pending execution"
        if job.state == "COMPLETING":
            return "Job/step already completing or completed"
        self.world.note("slurm", "requeue", job.id)
        job.has_requeued_itself = True
        if job.has_ended:
            job.restarts += 1
            job.state, job.ended_at = "PENDING", None
            job.begin_at = self.world.now + REQUEUE_HOLD_S
            self.world.after(REQUEUE_HOLD_S, self._schedule)
        else:
            self._requeue(job)
        return ""

    def update(self, job: Job | None, name: str, value: str) -> None:
        """Do what `scontrol update` does."""
        if job is not None and name == "ExcNodeList":
            job.excluded = [one for one in value.split(",") if one]
        if job is not None and name == "StartTime" and job.state == "PENDING":
            job.begin_at = self.world.now + 5
            self.world.after(5.0, self._schedule)

    def cancel(self, job: Job) -> None:
        """Do what scancel does."""
        if job.state == "PENDING":
            job.state, job.ended_at = "CANCELLED", self.world.now
            self.world.note("slurm", "job is CANCELLED", f"{job.id}, which waited")
            if job.script is not None:
                self.scripts.signal(job.script, "TERM")
            self._consider()
        elif job.state == "RUNNING":
            self._end(job, "CANCELLED")
        elif job.state == "COMPLETING" and job.ends_as == "REQUEUE":
            job.ends_as, job.was_to_start_again = "CANCELLED", True

    # What goes wrong.

    @property
    def is_down(self) -> bool:
        """Whether the controller does not answer."""
        return self.world.now < self.down_until

    def preempt(self, job: Job) -> None:
        """Take the nodes of a running job away, as the site does."""
        if job.state != "RUNNING":
            return
        job.was_preempted = True
        if self.site.preemption == "requeue" and job.can_requeue:
            self._requeue(job)
        else:
            self._end(job, "PREEMPTED")

    def administrator_cancels(self, job: Job) -> None:
        """Do what an administrator's scancel does."""
        self.world.note("administrator", "scancel", job.id)
        job.is_cancelled_by_hand = job.state == "RUNNING"
        self.cancel(job)

    def requeue_by_hand(self, job: Job) -> None:
        """Do what an administrator's `scontrol requeue` does."""
        if job.state == "RUNNING":
            self._requeue(job)

    def forget_start(self, job: Job) -> None:
        """Kill the controller just after the job began, and restart it with what it had written before."""
        if job.state != "RUNNING" or job.script is None:
            return
        self.world.note("slurm", "forgets that a job has begun", job.id)
        self.out_of_reach.add(f"{job.id}.{job.starts}")
        job.state, job.reason, job.begin_at = "PENDING", "Priority", self.world.now + KILL_WAIT_S + 5
        if job.step is not None and self._times.random() < self.site.dies_of_term:
            job.step.dies_at_term = "Killed"
        number = job.starts
        self._tell_to_end(job)

        def end() -> None:
            if job.starts != number or job.script is None:
                return
            self.scripts.kill(job.script)
            if job.step is not None:
                job.step.kill()
            job.step = job.script = None
            self.world.after(6.0, self._schedule)

        self.world.after(KILL_WAIT_S, end)

    def fail_node(self, job: Job, index: int, *, is_cut: bool) -> None:
        """Lose a node of a running job: dead, or cut off with everything on it still at work for a while."""
        if job.state != "RUNNING" or index >= len(job.nodes):
            return
        node = job.nodes[index]
        self.world.note("node " + node, "is cut off" if is_cut else "dies")
        script, step, number = job.script, job.step, job.starts
        if not is_cut and index == 0 and script is not None:
            self._power_cut(script)
            self.scripts.kill(script)
        if not is_cut and step is not None:
            step.node_died(index)
        # slurmctld gives a node up after a while.
        self.world.after(NODE_TIMEOUT_S, lambda: self._give_up(job, number, node, index, script, step, is_cut=is_cut))

    def _power_cut(self, script: Script) -> None:
        for at, path in script.volatile:
            if self.world.now - at < 30.0 and path.is_file():
                self.world.note(script.name, "loses what was not on disk", path.name)
                path.write_text("")

    def _give_up(
        self, job: Job, number: int, node: str, index: int, script: Script | None, step: Step | None, *, is_cut: bool
    ) -> None:
        self.states[node] = "down*"
        self.world.note("slurm", "gives a node up", node)
        self.world.after(600.0, lambda: self._revive(node))
        if job.starts != number or job.state != "RUNNING":
            return
        if job.can_requeue:
            job.restarts += 1
        if index != 0 and script is not None and not script.is_over:
            # The job's first node is well: its script gets a signal, and is killed.
            self._end(job, "REQUEUE" if job.can_requeue else "NODE_FAIL")
            return
        if is_cut and script is not None and not script.is_over:
            step = job.step
            self.cut_off.append((script, step))
            self.out_of_reach.add(f"{job.id}.{number}")
            job.script = job.step = None
            learns_s = self._times.uniform(5.0, 400.0)
            self.world.after(learns_s, lambda: self._learn(script, step))
        self._ends(job, "REQUEUE" if job.can_requeue else "NODE_FAIL", 1)
        if job.can_requeue:
            # Nothing of it is left to complete, as far as Slurm knows.
            job.begin_at = self.world.now + self._times.choice([1.0, REQUEUE_HOLD_S])
            self.world.after(job.begin_at - self.world.now, self._schedule)

    def _learn(self, script: Script, step: Step | None) -> None:
        """Tell a node that was cut off that its job is over."""
        self.world.note(script.name, "is killed", "its node has learned that the job is over")
        self.scripts.kill(script)
        if step is not None:
            step.kill()

    def _revive(self, node: str) -> None:
        self.states[node] = "idle"
        self._consider()

    # What scripts ask: fits scripts.Around.

    def asked(self, script: Script, pid: int, words: Sequence[str], limit_s: float | None) -> None:
        """Answer a call of a job script."""
        if words[0] == "srun":
            self._srun(script, self._job_of(script), pid, words)
            return
        if words[0] == "ending":
            printed = ending.printed(Path(words[1]), words[2:])
            self.world.note(script.name, "ending", printed.replace("\n", " | "))
            self.world.after(self._times.uniform(0.02, 0.1), lambda: self.scripts.answer(script, pid, 0, printed))
            return
        delay_s, code, printed = self.programs.reply(script.name, words, script.folder)
        if limit_s is not None and delay_s > limit_s:
            delay_s, code, printed = limit_s, 124, ""
        self.world.note(script.name, shlex.join(words[:3]), f"→ {code} {printed.strip()}")
        self.world.after(delay_s, lambda: self.scripts.answer(script, pid, code, printed))

    def nodes(self) -> str:
        """Return what sinfo prints."""
        return self.programs.nodes()

    def _out_of_reach(self, script: Script) -> Step | None:
        """Return the ranks of a script whose node is cut off."""
        return next((step for one, step in self.cut_off if one is script), None)

    def _srun(self, script: Script, job: Job | None, pid: int, words: Sequence[str]) -> None:
        def refuse(message: str) -> None:
            self.world.note(script.name, "srun", message)
            self.world.after(1.0, lambda: self.scripts.answer(script, pid, 1, f"srun: error: {message}\n"))

        if self.is_down:
            refuse("Unable to confirm allocation for job: Unable to contact slurm controller (connect failure)")
        elif job is None or job.state != "RUNNING":
            refuse("Unable to confirm allocation for job: Job is pending execution")
        else:
            folder, attempt, token = words[1:4]
            step = Step(
                self.world,
                f"ranks {job.id}.{job.starts}",
                Path(folder),
                int(attempt),
                token,
                list(job.nodes),
                lambda code, printed: self.scripts.answer(script, pid, code, printed),
                self.program,
            )
            step.requeues = lambda answered: self._requeues(job, step, answered)
            self.scripts.read_input(script, pid)
            job.step = step
            self.steps.append(step)
            self.plan_step(job, step)
            step.start()

    def _requeues(self, job: Job, step: Step, answered: Callable[[bool], None]) -> None:
        """Have the ranks of a job call `scontrol requeue`."""
        delay_s, code, printed = self.programs.reply(step.name, ["scontrol", "requeue", str(job.id)], job.folder)
        self.world.note(step.name, "scontrol requeue", f"→ {code} {printed.strip()}")
        self.world.after(delay_s, lambda: answered(code == 0))

    def signalled(self, script: Script, pid: int, name: str) -> None:  # noqa: ARG002 - see Around
        """Hand a signal that srun got to its ranks."""
        job = self._job_of(script)
        step = job.step if job is not None else self._out_of_reach(script)
        if step is not None:
            step.usr1()

    def wrote(self, script: Script, path: Path, text: str | None) -> None:
        """Note what a script has written."""
        if text is not None:
            self.world.note(script.name, "writes", f"{path.name}={text[:60]}")
        self.wrote_file(script, path, text)

    def reached_its_end(self, script: Script) -> None:
        """Kill a script between two of its steps, as the death of its node does."""
        job = self._job_of(script)
        self.world.note(script.name, "is killed", "between two steps")
        if job is not None and job.state == "RUNNING":
            self.fail_node(job, 0, is_cut=False)
        else:
            self._power_cut(script)
            self.scripts.kill(script)
            if job is not None:
                self._ends(job, job.ends_as or "FAILED", 137)
            elif (step := self._out_of_reach(script)) is not None:
                step.kill()

    def ended(self, script: Script, code: int) -> None:
        """End the job with its script."""
        job = self._job_of(script)
        if job is None:
            if (step := self._out_of_reach(script)) is not None:
                step.kill()
        elif job.state == "PENDING" or job.has_ended:  # it was forgotten, and may have been cancelled since
            if job.step is not None:
                job.step.kill()
            job.step = job.script = None
            self.world.after(KILL_WAIT_S + 6.0, self._schedule)
        elif job.state == "COMPLETING" and not (self.site.epilogue_s and job.ends_as == "REQUEUE"):
            self._ends(job, job.ends_as, code)
        else:
            number, is_told = job.starts, job.state == "COMPLETING"
            if not is_told:
                job.state, job.ends_as = "COMPLETING", "COMPLETED" if code == 0 else "FAILED"

            def completed() -> None:
                if job.starts == number and job.state == "COMPLETING":
                    self._ends(job, job.ends_as, code)

            # An epilogue takes a while.
            if is_told:
                self.world.after(self.site.epilogue_s, completed)
                return
            self.world.after(self._times.uniform(0.0, self._times.choice([3.0, 3.0, 40.0])), completed)
