"""The run directory, which is all that the submitting side and the running side share, and its file names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List, Optional, Union

from trainjob.contract.errors import UserError

# The version of what is agreed on, which job.json and checkpoints state.
CONTRACT = 1
# Below a run directory: one folder for each element of an array, a run directory itself.
ELEMENTS = "tasks"
# The same of each server of a job with roles.
ROLES = "roles"


# In a cluster file: the user's data folder, which the environment variable of that name moves.
USER_DATA = "$XDG_DATA_HOME"


def user_data() -> Path:
    """Return the folder under which this user keeps data of all programs, as the XDG specification has it."""
    return Path(os.environ.get("XDG_DATA_HOME") or with_home("~/.local/share"))


def with_home(path: Union[str, Path]) -> Path:
    """Return a path whose leading `~` or `~NAME` is the home of this user, or of that one. Raises UserError for none.

    A HOME that is empty or relative is none: the system's list of users counts then.
    """
    first, _, rest = str(path).partition("/")
    if not first.startswith("~"):
        return Path(path)
    found = os.environ.get("HOME", "") if first == "~" else ""
    if not os.path.isabs(found):
        import pwd  # seldom needed

        try:
            found = (pwd.getpwuid(os.getuid()) if first == "~" else pwd.getpwnam(first[1:])).pw_dir
        except KeyError:
            who = "user %d has no home: HOME is not set, and the system knows no such user" % os.getuid()
            raise UserError(
                who if first == "~" else "%s: there is no user %s" % (path, first[1:]),
                "set HOME to a folder that you may write in, or write a path without ~",
            ) from None
    return Path(found, rest)


def home() -> Path:
    """Return this user's data folder for trainjob."""
    return user_data() / "trainjob"


def expanded(path: str) -> Path:
    """Return a cluster file's path as one of this machine: `~/` and `$XDG_DATA_HOME/` begin with the user's folders."""
    if path.startswith(USER_DATA + "/"):
        return user_data() / path[len(USER_DATA) + 1 :]
    return with_home(path)


class _Below:
    """An attribute of RunPaths: the path of a file below the run directory, made when it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, paths: "RunPaths", _: object = None) -> Path:
        return paths.folder / self._name


class RunPaths:
    """Every file of one run directory, by name. Changes nothing."""

    job = _Below("job.json")
    job_script = _Below("job.sh")
    batch_script = _Below("job.sbatch")
    submission = _Below("submission.json")
    code = _Below("code")
    project = _Below("code/project")
    attempt = _Below("attempt")
    state = _Below("state")
    exit_code = _Below("exit_code")
    progress = _Below("progress.json")
    outlived = _Below("outlived.json")
    failure = _Below("failure.json")
    metrics = _Below("metrics.jsonl")
    requeue = _Below("requeue")
    done = _Below("done")  # by the user's script: it is complete, although it was asked to stop
    starts = _Below(".starts")  # by the job script: how often it was started without being asked to
    stop = _Below("stop")
    # Under Slurm, the attempt that is to stop, where no input of its launchers can tell them.
    request = _Below(".request")
    step_gone = _Below("step_gone")  # under Slurm: all ranks have ended, and their srun has not
    token = _Below(".token")
    allocation = _Below(".allocation")  # what the submission saw of the job that the run is a step of
    job_id = _Below("job_id")  # the scheduler's, of the job that runs or comes next
    events = _Below("events")  # time, attempt, what, detail: a line each
    excluded_nodes = _Below("excluded_nodes")  # node, attempt, why: what the next attempt avoids
    bad_node = _Below(".bad_node")  # a node that the launcher blames for a failure, and why
    node_faults = _Below(".node_faults")  # what each node found wrong: a file each, ATTEMPT.NODE
    out_of_memory = _Below(".out_of_memory")  # this attempt ran out of its host's memory
    cancels = _Below(".cancel")  # of elements packed into one job: a file each, by its number
    end_marks = _Below(".ended")  # of ranks: see end_mark
    stacks_request = _Below(".stacks")  # a word: launchers write down their ranks' stacks for it
    role_record = _Below("role.json")  # of a server: where it is reached, and how it is
    logs = _Below("logs")
    scheduler_log = _Below("logs/scheduler.out")
    checkpoints = _Below("checkpoints")

    def __init__(self, folder: Union[str, Path]) -> None:
        self.folder = Path(folder)

    def __repr__(self) -> str:
        return "RunPaths(%r)" % str(self.folder)

    @property
    def id(self) -> str:
        """The run id: the folder's name; of an element of an array RUN:N, of a server RUN:ROLE."""
        if self.role is not None:
            return "%s:%s" % (self.run.id, self.role)
        if self.element is not None:
            return "%s:%d" % (self.whole.id, self.element)
        name = self.folder.name
        # Links above it leave its name as it is.
        is_its_own = name not in ("", "..") and not os.path.islink(str(self.folder))
        return name if is_its_own else self.folder.resolve().name

    @property
    def role(self) -> Optional[str]:
        """The server of a job with roles whose folder this is; None for that of a run."""
        above = self.folder.parent
        # Runs may lie in a folder of that name.
        return self.folder.name if above.name == ROLES and RunPaths(above.parent).job.exists() else None

    @property
    def run(self) -> "RunPaths":
        """The run that a server belongs to; of any other folder, itself."""
        return self if self.role is None else RunPaths(self.folder.parent.parent)

    def of_role(self, name: str) -> "RunPaths":
        """Return the folder of a server of a job with roles."""
        return RunPaths(self.folder / ROLES / name)

    @property
    def element(self) -> Optional[int]:
        """The number of the array element whose run directory this is; None for that of a whole run."""
        name = self.folder.name
        return int(name) if self.folder.parent.name == ELEMENTS and name.isdecimal() and name.isascii() else None

    @property
    def whole(self) -> "RunPaths":
        """The run that an element belongs to; of any other run, itself."""
        return self.run if self.element is None else RunPaths(self.folder.parent.parent)

    def of_element(self, number: int) -> "RunPaths":
        """Return the run directory of element `number` of an array."""
        return RunPaths(self.folder / ELEMENTS / str(number))

    def elements(self) -> List["RunPaths"]:
        """Return the elements of an array in the order of their numbers; empty if the run is not an array."""
        if self.element is not None:
            return []
        try:
            folders = [RunPaths(self.folder / ELEMENTS / name) for name in os.listdir(str(self.folder / ELEMENTS))]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted((paths for paths in folders if paths.element is not None), key=lambda paths: paths.element or 0)

    def asked(self, attempt: int) -> Path:
        """Return the file with the signal that a handler of one of the attempt's ranks got first, and when."""
        return self.folder / (".asked.%d" % attempt)

    @property
    def room_for_request(self) -> Path:
        """The file whose space a request takes where the disk has no more."""
        return self.folder / ".asked.room"

    def saved(self, attempt: int) -> Path:
        """Return the file whose presence says that something was written after that."""
        return self.folder / (".saved.%d" % attempt)

    def terminated(self, attempt: int) -> Path:
        """Return the file whose presence says that its ranks were told to end, which its job script may not know."""
        return self.folder / (".terminated.%d" % attempt)

    def bypassed(self, attempt: int, signal: str) -> Path:
        """Return the file that says which launcher got a signal of that name first, when, and from whom."""
        return self.folder / (".bypassed.%d.%s" % (attempt, signal))

    def end_mark(self, attempt: int, rank: Optional[int] = None) -> Path:
        """Return the file in which the launcher of a rank notes its exit code when the rank has ended.

        Without a rank that of whatever ran them all for the job script.
        """
        return self.end_marks / ("%d.%s" % (attempt, "all" if rank is None else "%04d" % rank))

    def packed_environment(self, state: str) -> Path:
        """Return the file from which the other nodes take the environment that the first one has."""
        return self.folder / ("environment-%s.tar" % state)

    def rank_log(self, rank: int) -> Path:
        """Return where rank `rank` writes all it prints."""
        return self.logs / ("rank-%04d.log" % rank)

    def step_log(self, scope: str, number: int, host: str = "") -> Path:
        """Return where a step that runs before ranks (once:) writes; one of a node by the host that it runs on."""
        return self.logs / ("once-%s-%d%s.log" % (scope, number, host and "-" + host))

    def rank_usage(self, rank: int) -> Path:
        """Return where the launcher of rank `rank` records what it uses: see records/usage.py."""
        return self.logs / ("usage-%04d.jsonl" % rank)

    def rank_times(self, rank: int) -> Path:
        """Return where rank `rank` of several records where its time went: see records/measures.py."""
        return self.logs / ("times-%04d.jsonl" % rank)

    def rank_stacks(self, rank: int) -> Path:
        """Return where the launcher of rank `rank` writes its stacks: see records/usage.py."""
        return self.logs / ("stacks-%04d.json" % rank)

    def checkpoint(self, update: int) -> Path:
        """Return the folder of the checkpoint taken after weight update `update`."""
        return self.checkpoints / ("update-%08d" % update)
