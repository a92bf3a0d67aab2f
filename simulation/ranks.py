"""The ranks of one srun in a simulated world: a model of launcher and program that writes the files of the real ones.

It writes what they write, by the real `trainjob.records`, and asks `trainjob.train.stopping` whether it is to stop or
stale. Starting real Pythons would take a hundred times as long as all the rest of a history.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulation.world import World
from trainjob.contract import exits
from trainjob.contract.paths import CONTRACT, RunPaths
from trainjob.launch.witness import failing
from trainjob.records import attempts, checkpoints, progress, safetensors
from trainjob.records.attempts import StopRequest
from trainjob.records.failure import Failure, record_first
from trainjob.records.files import write_atomically, write_json
from trainjob.records.progress import ProgressRecord
from trainjob.train.stopping import Requests, StaleAttemptError

UPDATES = 12
EVERY = 2  # updates between two checkpoints
UPDATE_S = 12.0
_DURABLE_S = 4.0
_FIRST_LOOK_S = 90  # tries of on_each_node.sh, one a second
LOST_GPU = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
KILLED = "Killed"
BROKEN = "ValueError: the learning rate is negative"
NO_SPACE = "OSError: [Errno 28] No space left on device"
HUNG_SRUN_ENDS_WITHIN_S = 300.0
# A launcher asks by TERM what has taken TERM and not USR1 for so long.
_TERM_AFTER_S = 5.0
# By the clock of the file system.
_CLOCKS_S = 1.0
# What a handler of a signal does.
SAVES, ENDS, REQUEUES, BYPASSES = "saves and ends", "ends", "saves and requeues its job", "nothing"


@dataclass(frozen=True)
class Program:
    """What ranks run: what their handlers of USR1 and TERM do (none: ""), and with which code they end then."""

    name: str
    usr1: str = ""
    term: str = ""
    code: int = 0
    trains_on: bool = True  # after it has requeued its job
    shows_total: bool = True  # its output says how many updates there are
    is_task: bool = False  # of our runtime
    is_seen: bool = False  # its launcher finds its checkpoints
    shows_updates: bool = True


TASK = Program("task", SAVES, SAVES, is_task=True)
# As scripts of others do it: by hand, as Trainer (TERM alone), Lightning and submitit do, and as most do.
PROGRAMS = (
    TASK,
    Program("saves and ends with 0", SAVES, SAVES),
    Program("saves and ends with 0, and does not say of how many", SAVES, SAVES, shows_total=False),
    Program("saves at TERM alone", "", SAVES),
    Program("saves, and lets the signal end it", SAVES, SAVES, code=143),
    Program("ends with 0, and saves nothing", ENDS, ENDS, shows_total=False),
    Program("requeues itself, and trains on", REQUEUES, ENDS, code=143),
    Program("requeues itself, and ends", REQUEUES, BYPASSES, code=255, trains_on=False),
    Program("handles nothing"),
)
# Those that no seed draws.
NAMED_ONLY = (
    Program("ends with 0, and keeps checkpoints", ENDS, ENDS, shows_total=False, is_seen=True),
    Program("handles nothing, and keeps checkpoints", is_seen=True),
    Program("handles nothing, keeps checkpoints, and shows no update", is_seen=True, shows_updates=False),
)


class Step:
    """The ranks that one srun has started, one on each node. `on_end` gets srun's exit code and what it prints."""

    def __init__(
        self,
        world: World,
        name: str,
        folder: Path,
        attempt: int,
        token: str,
        nodes: Sequence[str],
        on_end: Callable[[int, str], None],
        program: Program = TASK,
    ) -> None:
        self.program = program
        self.world, self.name, self.attempt, self.token, self.nodes = world, name, attempt, token, nodes
        self.paths = RunPaths(folder)
        self._on_end = on_end
        self._requests = Requests(self.paths, attempt)
        self.is_over = False
        self.over_at = float("inf")
        self.is_ended_by_slurm = self.may_go_on = False
        self.is_complete = self.left_marker = self.saw_stop = self.has_failed = False
        self.began, self.began_at = False, 0.0
        self.has_lost_a_node = False
        self.update = 0
        self.durable = self.began_from = 0
        # What a handler was called for, and whether the launcher could note it, and found something written since.
        self.asked_at: float | None = None
        self.is_unrecorded = self.has_saved = False
        self._does = ""  # at its next look
        self._usr1_waits = False  # for ranks that begin
        self._wrote_at = -1e9
        self._was_told_to_end = False
        self._tries = 0
        # Faults: after which update a rank ends, and how.
        self.fails_at: int | None = None
        self.fails_as = LOST_GPU
        self.is_killed = False
        self.dies_at_term: str | None = None  # "" where no launcher records that, else the rank's last words
        # srun tells the ranks of other nodes to end: whether their launchers see why. None: they end at once.
        self.is_failure_seen: bool | None = None
        self.is_hung = False  # all ranks end, and srun stays
        self.sees_late_s = 0.0  # how old what its nodes see of the folder may be
        self.disk_is_full_until = 0.0
        self.on_train: Callable[[Step], None] = lambda _step: None
        self.on_durable: Callable[[Step], None] = lambda _step: None
        self.requeues: Callable[[Callable[[bool], None]], None] = lambda _answered: None

    def start(self) -> None:
        """Start the ranks."""
        self.world.after(self.world.random(self.name).uniform(0.5, 4.0) + self.sees_late_s, self._look)

    def _look(self) -> None:
        """Do what on_each_node.sh does: wait until the nodes see this script's own word."""
        if self.is_over:
            return
        self._tries += 1
        if attempts.token(self.paths) != self.token:
            if self._tries > _FIRST_LOOK_S:
                self._ended(
                    1, "trainjob: node does not see run directory\nsrun: error: task 0: Exited with exit code 1\n"
                )
            else:
                self.world.after(1.0, self._look)
            return
        (self.paths.folder / ".began").write_text(self.token + "\n")
        self.began, self.began_at = True, self.world.now
        self.update = self.durable = self.began_from = self._checkpoint()
        if self.program.is_task and attempts.is_stale(self.paths, self.attempt):
            self._rank_fails(76, "attempt is over")
            return
        self.world.note(self.name, "train", f"attempt {self.attempt} from update {self.update}")
        self._report()
        self.on_train(self)
        if self._usr1_waits:
            self.usr1()
        self.world.after(UPDATE_S, self._block)

    def _checkpoint(self) -> int:
        """Return the update of the newest checkpoint."""
        if self.program.is_task:
            newest = checkpoints.newest_sound(self.paths.checkpoints, lambda line: self.world.note(self.name, line))
            return newest.update if newest else 0
        return int(self._own.read_text()) if self._own.exists() else 0

    @property
    def has_written(self) -> bool:
        """Whether a script of others has written a checkpoint in this attempt."""
        return self._wrote_at >= self.began_at

    @property
    def _own(self) -> Path:
        return self.paths.folder / "own.ckpt"

    def _report(self) -> None:
        if self.world.now < self.disk_is_full_until:
            return
        if not self.program.is_task and attempts.is_stale(self.paths, self.attempt):  # its launcher reports
            return
        if not self.program.shows_updates:
            if self.has_written:
                record = ProgressRecord(attempt=self.attempt, checkpoint_at=self.world.epoch + self._wrote_at)
                progress.write(self.paths, record)
            return
        is_known = self.program.is_task or (self.program.is_seen and self.has_written)
        progress.write(
            self.paths,
            ProgressRecord(
                attempt=self.attempt,
                epoch=1,
                update=self.update,
                total_updates=UPDATES if self.program.shows_total else None,
                heartbeat=self.world.epoch + self.world.now,
                durable_update=self.durable if is_known else None,
            ),
        )

    def _block(self) -> None:
        """Train one update, then look whether to stop."""
        if self.is_over:
            return
        if self.fails_at is not None and self.update >= self.fails_at:
            self._rank_fails(137 if self.fails_as == KILLED else 1, self.fails_as)
            return
        stops = self._does == SAVES
        if self.program.is_task:
            flags = self._requests.now()
            if flags.stale:
                self._rank_fails(76, "attempt is over")
                return
            stops = stops or flags.stop
        if self.update < UPDATES:
            self.update += 1
            self.on_train(self)
            self._report()
        is_last = self.update >= UPDATES
        if self._does == ENDS:
            self._all_end(self.program.code, "")
        elif self._does == REQUEUES:
            self._does = ""
            self.world.after(_DURABLE_S, self._requeue)
        elif is_last or stops or self.update % EVERY == 0:
            self.world.after(_DURABLE_S, lambda: self._save(stops=stops and not is_last, is_last=is_last))
        else:
            self.world.after(UPDATE_S, self._block)

    def _save(self, *, stops: bool, is_last: bool) -> None:
        """Write a checkpoint as the runtime does: whole, then in its place, and by no stale attempt."""
        if self.is_over:
            return
        if not self.program.is_task:
            self._save_own(stops=stops, is_last=is_last)
            return
        folder = self.paths.checkpoint(self.update)
        staging = folder.with_name(f".{folder.name}.{self.attempt}.part")
        is_full = self.world.now < self.disk_is_full_until
        if folder.exists() or is_full:
            self._after_save(stops=stops, is_last=is_last, is_full=is_full)
            return
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        files = {}
        for name in (checkpoints.MODEL, checkpoints.TRAINING):
            content, _ = safetensors.header({}, {"update": str(self.update)})
            (staging / name).write_bytes(content)
            files[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        facts = {"contract": CONTRACT, "update": self.update, "run": self.paths.id, "files": files}
        write_json(staging / checkpoints.INDEX, facts, durable=False)
        try:
            self._requests.refuse_stale()
        except StaleAttemptError:
            shutil.rmtree(staging)
            self._rank_fails(76, "attempt is over")
            return
        os.rename(staging, folder)
        self.durable = self.update
        self.world.note(self.name, "checkpoint", f"attempt {self.attempt} update {self.update}")
        self.on_durable(self)
        self._report()
        self._after_save(stops=stops, is_last=is_last, is_full=False)

    def _save_own(self, *, stops: bool, is_last: bool) -> None:
        """Save as a script of others does, which knows nothing of attempts."""
        if not self._is_written():
            self._rank_fails(1, NO_SPACE)
        elif is_last or stops:
            # What came too late to be looked at changes nothing of how it ends.
            self._all_end(self.program.code if self._does == SAVES else 0, "")
        else:
            self.world.after(UPDATE_S, self._block)

    def _is_written(self) -> bool:
        """Write the script's own checkpoint; return whether there was space."""
        if self.world.now < self.disk_is_full_until:
            return False
        write_atomically(self._own, str(self.update), durable=False)
        self._wrote_at, self.durable = self.world.now, self.update
        self.world.note(self.name, "checkpoint", f"attempt {self.attempt} update {self.update}, its own")
        self.on_durable(self)
        self._report()
        return True

    def _requeue(self) -> None:
        """Save, and have the job requeued."""

        def answered(is_requeued: bool) -> None:
            if self.is_over or self.over_at != float("inf"):
                return
            if self.program.trains_on:
                self.world.after(UPDATE_S, self._block)
            elif is_requeued:
                self._rank_fails(self.program.code, "")
            else:
                self._rank_fails(1, "subprocess.CalledProcessError: scontrol")

        if self.is_over:
            return
        if self._is_written():
            self.requeues(answered)
        else:
            self._rank_fails(1, NO_SPACE)

    def _after_save(self, *, stops: bool, is_last: bool, is_full: bool) -> None:
        if is_last and is_full:
            self._rank_fails(1, NO_SPACE)
        elif is_last:
            self._all_end(0, "")
        elif stops and not is_full:
            if not attempts.is_stale(self.paths, self.attempt):
                attempts.ask_to_requeue(self.paths, self.update)
                self.world.note(self.name, "leaves the marker", self.update)
            self._all_end(0, "")
        else:
            self.world.after(UPDATE_S, self._block)

    def _rank_fails(self, code: int, last_words: str) -> None:
        """Do what a launcher does when its rank fails."""
        is_first, self.has_failed = not self.has_failed, True
        if not self._was_told_to_end and self.world.now >= self.disk_is_full_until:
            self.may_go_on = last_words == LOST_GPU and self.durable > 0 and self.program.is_task
            failed = Failure(self.attempt, 1, self.nodes[-1], code, ["python"], [last_words])
            if record_first(self.paths, failed):
                with contextlib.redirect_stderr(io.StringIO()):
                    failing.explain(self.paths, failed, True, self.nodes[-1])
        self.world.note(self.name, "fails", f"{code}: {last_words[:50]}")
        printed = f"srun: error: {self.nodes[-1]}: task 1: Exited with exit code {code}\n"
        if self.is_failure_seen is None or self.program.is_task or not (is_first and self.program.term):
            self._all_end(code, printed)
            return
        self.world.note(self.name, "srun tells the others", self.program.term)
        if not (self.is_failure_seen and self.paths.failure.exists()):
            self._handler_gets("TERM", self.program.term)
        self.world.after(_DURABLE_S, lambda: self._others_end(code, printed))

    def _others_end(self, code: int, printed: str) -> None:
        if self.is_over:
            return
        if self.program.term == SAVES:
            self._is_written()
        self._all_end(code, printed)

    def _all_end(self, code: int, printed: str) -> None:
        if self.asked_at is not None and code == 143:  # by the request, as its launcher knows
            code = exits.CHECKPOINTED
        if self.is_unrecorded and code in (exits.DONE, exits.CHECKPOINTED):
            code = exits.UNRECORDED_REQUEST
        self._note_what_was_saved()
        self.over_at = self.world.now
        self.left_marker, self.saw_stop = self.paths.requeue.exists(), self.paths.stop.exists()
        self.is_complete = code == 0 and not self.left_marker and self.update >= UPDATES
        folder = self.paths.folder / ".ended"
        folder.mkdir(exist_ok=True)
        for rank in range(len(self.nodes)):
            write_atomically(folder / f"{self.attempt}.{rank:04d}", f"{code}\n", durable=False)
        if self.is_hung:
            self.is_over = True
            self.world.note(self.name, "all ranks have ended, and srun stays")
            self.world.after(HUNG_SRUN_ENDS_WITHIN_S, self._is_still_hung)
            return
        self._ended(code, printed)

    def _note_what_was_saved(self) -> None:
        if self.asked_at is None or self.is_unrecorded or self.world.now < self.disk_is_full_until:
            return
        if self._wrote_at >= self.asked_at - _CLOCKS_S:
            self.has_saved = True
            self.paths.saved(self.attempt).touch()

    def _is_still_hung(self) -> None:
        if not self.is_killed:
            self.world.violate("nothing is left behind", f"{self.name}: an srun without ranks")

    def _ended(self, code: int, printed: str) -> None:
        if not self.is_over or self.is_hung:
            self.is_over = True
            self.world.note(self.name, "srun ends", f"with {code}")
            self.world.after(0.1, lambda: self._on_end(code, printed))

    # What happens to it.

    def usr1(self) -> None:
        """Ask the ranks to stop, once they have begun: by the signal that they handle."""
        self._usr1_waits = not self.began
        if not self.began or self.is_over:
            return
        if self.program.usr1:
            self._handler_gets("USR1", self.program.usr1)
        elif self.program.term:
            self.world.after(_TERM_AFTER_S, lambda: self._handler_gets("TERM", self.program.term))

    def _handler_gets(self, name: str, does: str) -> None:
        """Have a handler of the ranks called, which their launcher notes."""
        if self.is_over or self.over_at != float("inf"):
            return
        self._does = does
        if self.asked_at is not None:
            return
        self.asked_at = self.world.now
        self.world.note(self.name, "is asked", f"{name}: {does}")
        self.is_unrecorded = self.world.now < self.disk_is_full_until
        if not self.is_unrecorded:
            attempts.note_request(self.paths, self.attempt, StopRequest(name, self.world.epoch + self.world.now))

    def term(self) -> None:
        """Tell the ranks to end: they checkpoint and stop, if there is time."""
        if self.has_lost_a_node:
            self.has_lost_a_node = False
            # srun may say that all is well when a node fails under it.
            code = self.world.random(f"{self.name} node").choice([0, 1, 143])
            self.world.after(0.5, lambda: self._on_end(code, f"srun: error: Node failure on {self.nodes[-1]}\n"))
        self.is_ended_by_slurm = self.over_at == float("inf") and not self.has_failed
        if self.is_over:
            return
        if self.dies_at_term:
            # Slurm signals the ranks beside their launcher, which may see one end before it hears anything.
            self._rank_fails(143, self.dies_at_term)
            return
        self._was_told_to_end = True
        if self.world.now >= self.disk_is_full_until:
            self.paths.terminated(self.attempt).touch()
        if not self.began:
            self._ended(143, "")
        elif not self.program.is_task and self.program.term:
            self._handler_gets("TERM", self.program.term)
        elif not self.program.is_task:
            self._rank_fails(143, "")
        elif self.dies_at_term is None:
            self._handler_gets("TERM", SAVES)
        else:
            self._rank_fails(143, "")

    def node_died(self, index: int) -> None:
        """Lose a node with its rank; srun learns that when Slurm gives the node up."""
        if self.is_over:
            return
        if index == 0:
            self.is_over = True
            return
        self.is_over = self.has_lost_a_node = True
        self.world.note(self.name, "loses a node, and waits for it")

    def kill(self) -> None:
        """End every rank at once."""
        self.is_over = self.is_killed = True
