"""Every fault that doctor knows in a batch file, one row a code: how bad it is, what happens, the cure. And a fault, found."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple, Protocol


class Severity(Enum):
    """The severity of a fault. Error: the script does not do what its author wants."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Code(NamedTuple):
    """A fault: its name, how bad it is, what happens, and what to write instead."""

    name: str
    severity: Severity
    happens: str
    cure: str

    def __str__(self) -> str:
        return f"{self.name} ({self.severity.value})\n{self.happens}\nCure: {self.cure}"


_ERRORS = {
    "nnodes-missing": (
        "torchrun is started on several nodes without --nnodes, whose default is 1: each node is, or waits for, a world of its own.",
        "Add --nnodes=$SLURM_NNODES.",
    ),
    "rank-expanded-early": (
        "The batch shell expands $SLURM_PROCID, $SLURM_NODEID or $SLURM_LOCALID, before srun starts anything: all ranks are rank 0.",
        "Let the rank's own shell expand it: srun bash -c '… --node_rank $SLURM_NODEID …' in single quotes.",
    ),
    "tasks-times-torchrun": (
        "srun starts one task a GPU, and each task's launcher starts one process a GPU: N times N processes.",
        "Start one launcher a node (--ntasks-per-node=1), or one process a task without a launcher.",
    ),
    "script-dir-is-spool": (
        "sbatch runs a copy of the file: $0 and BASH_SOURCE name slurmd's spool folder on the node, not the folder of the file.",
        "Use $SLURM_SUBMIT_DIR, or an absolute path.",
    ),
    "signal-kills-batch": (
        "--signal=B:… goes to the batch shell, which has no trap for it and dies at once. The ranks are killed after it.",
        "Set a trap for this signal, start the work in the background and wait for it; or leave out B: and handle it in the ranks.",
    ),
    "signal-never-arrives": (
        "--signal without B: goes to job steps only. The batch shell's trap never runs, and without srun there is no step.",
        "Write --signal=B:… , or start the work with srun and handle the signal there.",
    ),
    "trap-deferred": (
        "bash runs a trap only when the command in the foreground has ended: here, after the training.",
        "Start the command with & and wait for it: srun … & wait $!",
    ),
    "more-processes-than-gpus": (
        "More processes are started on a node than it has GPUs for: two share one, or the last ones find none.",
        "Start as many processes as GPUs, or ask for more GPUs.",
    ),
    "gpus-unused": (
        "Fewer processes are started on a node than the job has GPUs there. The others stay idle, and are paid for.",
        "Start one process a GPU, for example with --nproc-per-node=$SLURM_GPUS_ON_NODE, or ask for fewer GPUs.",
    ),
    "addr-undefined": (
        "The address where ranks meet comes from a variable that is never set: it is empty, and no rank finds the others.",
        "Set it: MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1).",
    ),
    "addr-localhost": (
        "The ranks of several nodes meet at localhost, which is another machine on each node.",
        "MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1).",
    ),
    "no-such-option": (
        "sbatch refuses the file: it has no option of this name, or knows two that begin so.",
        "Write the name that the manual has; give srun's own options to srun.",
    ),
    "directive-ignored": (
        "This line is a comment to sbatch, and its options have no effect.",
        "Write #SBATCH exactly, at the start of the line, above the first command. Write ##SBATCH for one that you switch off.",
    ),
    "shebang-not-first": (
        'sbatch refuses the file: "This does not look like a batch script". Its first line must begin with #!.',
        "Make #!/bin/bash the first line.",
    ),
    "crlf": (
        'sbatch refuses the file: "Batch script contains DOS line breaks".',
        "Convert it: dos2unix FILE, or sed -i 's/\\r$//' FILE.",
    ),
    "array-quoted": (
        'nodes=("$list") has a single element, which contains all lines: element 1 and all others are empty.',
        "mapfile -t nodes < <(scontrol show hostnames $SLURM_JOB_NODELIST)",
    ),
    "job-never-ends": (
        "wait waits for every background process, and this one never ends: the job runs until its time limit.",
        "Wait for the training alone (wait $PID), then kill the other; or leave out wait.",
    ),
    "command-not-found": (
        "bash finds no such command, says so, and goes on with the next line.",
        "Check the line: a broken continuation, spaces around =, or a typing error. set -e would have ended the job here.",
    ),
    "unset-variable": (
        "A variable is used that is not set there, and is empty.",
        "Use the name that is set, and export what other processes need. set -u would have ended the job here.",
    ),
    "no-srun": (
        "The job has several nodes, and everything runs on the first: commands of a batch file run there alone.",
        "Start the work with srun, or ask for one node.",
    ),
    "tilde-in-output": (
        "sbatch expands neither ~ nor variables in directives: it takes the text as it is.",
        "Write an absolute path. sbatch knows %j, %x, %u and the like; or give the option on its command line.",
    ),
    "directive-cut": (
        "sbatch takes a # inside a word for the beginning of a comment: it reads the value up to there.",
        "Quote the value: --container-image='nvcr.io#nvidia/pytorch:25.01-py3'.",
    ),
    "cpu-bind-beyond": (
        "--cpu-bind names CPUs beyond those of the job: srun refuses, or ranks share CPUs.",
        "Name CPUs that the job has, or let Slurm bind: --cpu-bind=cores.",
    ),
    "beyond-cluster": (
        "The job asks for more than the cluster of --cluster has or allows, or leaves out what it requires: sbatch refuses it, or it waits for ever.",
        "Ask for what the cluster has.",
    ),
}

_WARNINGS = {
    "time-limit-unhandled": (
        "Neither --signal nor --requeue, and no resubmission: at its time limit the job is killed, and all since the last checkpoint is lost.",
        "#SBATCH --signal=USR1@120, save a checkpoint on it, and --requeue or sbatch the next job.",
    ),
    "port-fixed": (
        "The port is the same in every job: a second job on the first node, yours or another's, can't start, or joins this one.",
        "MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)); or --rdzv-endpoint with port 0, or --standalone, on one node.",
    ),
    "no-kill-on-bad-exit": (
        "When a rank dies, srun leaves the others waiting in a collective until the time limit.",
        "srun --kill-on-bad-exit=1",
    ),
    "kill-on-bad-exit-0": (
        "--kill-on-bad-exit=0 tells srun to leave the other ranks running when one dies: they wait until the time limit.",
        "srun --kill-on-bad-exit=1",
    ),
    "no-mem": (
        "No memory is asked for: the job gets the site's default, often a few GB a CPU, and is killed when it needs more.",
        "#SBATCH --mem=… or --mem-per-gpu=… ; --mem=0 is all of the node.",
    ),
    "no-time": (
        "No time limit: the partition's default, which is minutes at some sites, or so long that the job waits behind all others.",
        "#SBATCH --time=HH:MM:SS",
    ),
    "no-cpus": (
        "No CPUs are asked for: one a task at most sites, on which data loading and all threads run.",
        "#SBATCH --cpus-per-task=… (the node's CPUs ÷ its GPUs, for one process a GPU).",
    ),
    "log-folder-must-exist": (
        "The folder of the log must exist before sbatch: Slurm does not make it, and without it the job fails at once, without a log.",
        "mkdir -p it before sbatch. In the file it is too late.",
    ),
    "srun-loses-cpus": (
        "From Slurm 22.05 to 24.05, srun does not take over --cpus-per-task: each task gets one CPU.",
        "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK, or srun --cpus-per-task=$SLURM_CPUS_PER_TASK",
    ),
    "exit-code-lost": (
        "The job ends with 0 although the training failed: Slurm says COMPLETED, and jobs that depend on it start.",
        "set -eo pipefail at the top, or keep the code and end with: exit $code",
    ),
    "addr-hostname-ip": (
        "hostname -i may print 127.0.1.1, several addresses, or IPv6: whichever way, ranks don't find each other.",
        "Use the name: $(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1).",
    ),
    "output-overwritten": (
        "The log's name is the same for every job: the next one overwrites this one's, and two at once share it.",
        "Put %j into it: --output=train-%j.log; %A_%a in an array.",
    ),
    "requeue-truncates-log": (
        "A requeued job begins its log anew: what the first attempt said is gone.",
        "#SBATCH --open-mode=append",
    ),
    "requeue-without-signal": (
        "--requeue alone starts the job again after a node failure or preemption, not at its time limit, and nothing asks it to save first.",
        "#SBATCH --signal=USR1@120, save a checkpoint on it, then scontrol requeue $SLURM_JOB_ID.",
    ),
    "addr-from-compressed-list": (
        "SLURM_JOB_NODELIST is compressed (node[01-04]): cutting it at a comma gives no host name with several nodes.",
        "scontrol show hostnames $SLURM_JOB_NODELIST | head -n1",
    ),
    "addr-guessed-from-name": (
        "The address is put together from digits of the host's name, which holds until the site renumbers or names differently.",
        "Use the host's name itself: ranks resolve it.",
    ),
    "installs-in-job": (
        "Packages are installed while the GPUs wait, from a network that may fail, in versions that change; in several jobs at once, one breaks another.",
        "Install once, before sbatch, into an environment or an image.",
    ),
    "ray-sleep-ready": (
        "Ray's start is awaited by a fixed sleep: on a slow day the workers or the training find no head.",
        "Wait until it answers: until ray status …; do sleep 1; done, with a limit.",
    ),
    "sets-visible-devices": (
        "GPUs are chosen by hand. Slurm has already chosen this job's, which may be others on a shared node.",
        "Leave CUDA_VISIBLE_DEVICES to Slurm; choose by local rank in the program.",
    ),
    "secret-in-script": (
        "A key or token stands in the file. It is in the repository, in Slurm's records, and readable for many.",
        "Revoke it, and read the new one from a file of mode 0600 or the program's own login.",
    ),
    "nodelist-pinned": (
        "The job waits for nodes by name, also when they are down or busy and others are free.",
        "Ask for a property instead: --constraint or --gres with a type.",
    ),
    "nodelist-with-spaces": (
        "The node list has spaces: what stands after the first is not part of it.",
        "Separate names by commas alone.",
    ),
    "nodelist-longer-than-nodes": (
        "More nodes are named than asked for. All named nodes are required: Slurm refuses, or gives more than the script counts on.",
        "Make --nodes and --nodelist agree.",
    ),
    "nccl-slow-path": (
        "This switches off a fast path of NCCL. Multi-GPU training runs several times slower.",
        "Take it out once the problem behind it is found.",
    ),
    "world-size-fixed": (
        "WORLD_SIZE is a number: when nodes or tasks change, ranks wait for others that never come, or some train alone.",
        "export WORLD_SIZE=$SLURM_NTASKS",
    ),
    "temp-dir-on-first-node-only": (
        "The batch shell makes this folder on the first node. On the other nodes it does not exist.",
        'Make it on each: srun --ntasks-per-node=1 mkdir -p "$DIR"',
    ),
    "workdir-on-first-node-only": (
        "The batch shell puts files on a disk of the first node. The ranks of other nodes don't find them.",
        "Do it on each node: srun --ntasks-per-node=1 … , or sbcast.",
    ),
    "gpus-per-task-hides-peers": (
        "With --gpus-per-task each task sees its own GPU alone, as device 0: cuda:LOCAL_RANK fails, and NCCL may not use NVLink.",
        "--gpus-per-node (or --gres) with --gpu-bind=none, and choose the device by local rank.",
    ),
    "cancels-itself": (
        "The job cancels itself: Slurm records CANCELLED, not COMPLETED, and dependent jobs don't start.",
        "End with exit, and kill background processes by their id.",
    ),
    "hostfile-name-shared": (
        "Jobs that run at the same time write the same hostfile: one of them starts on the other's nodes.",
        "Name it hostfile.$SLURM_JOB_ID.",
    ),
    "empty-argument": (
        "A variable is empty here and not quoted: the option before it takes the next word for its value, or none.",
        'Add the option only if there is a value: ${resume:+--resume "$resume"}',
    ),
    "cleanup-skipped-by-set-e": (
        "set -e ends the script when the training fails, and what stands after it never runs.",
        "Put it into a function, and: trap cleanup EXIT",
    ),
    "nnodes-range-on-one-node": (
        "--nnodes is a range, for elastic training, and the job has one node: nobody ever joins.",
        "--standalone, or --nnodes=1.",
    ),
    "srun-may-fan-out": (
        "srun runs this once for each task of the job: a preparation runs several times at once, on the same files.",
        "srun --ntasks=1 --nodes=1 … , or without srun.",
    ),
}

_NOTES = {
    "no-set-e": (
        "The script goes on after a failed module load, cd or activate, and trains with the wrong Python or in the wrong folder.",
        "set -eo pipefail below the directives.",
    ),
    "threads-unset": (
        "OMP_NUM_THREADS is left alone: 1 under torchrun, and all CPUs of the node for every rank elsewhere.",
        "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK (divided by the processes of a task).",
    ),
    "signal-without-requeue": (
        "The job is asked to save before its time limit, and nothing starts it again.",
        "--requeue and scontrol requeue $SLURM_JOB_ID, or sbatch the next job.",
    ),
    "rdzv-id-fixed": ("The rendezvous has the same id in every job.", "--rdzv-id=$SLURM_JOB_ID"),
    "rdzv-id-random": ("A random rendezvous id can't be found again in logs, and differs where each node expands it.", "--rdzv-id=$SLURM_JOB_ID"),
    "addr-batch-host": (
        "$(hostname) is the first node of the job only in the batch shell, and not in every srun or heterogeneous job.",
        "scontrol show hostnames $SLURM_JOB_NODELIST | head -n1",
    ),
    "port-from-jobid": ("Two jobs whose ids end alike share a port, which is rare and hard to recognize.", "Check that it is free before the ranks start."),
    "nccl-old-variable": ("torch renamed this variable (2.2), and later releases ignore the old name.", "TORCH_NCCL_ASYNC_ERROR_HANDLING, TORCH_NCCL_BLOCKING_WAIT, …"),
    "nccl-interface-pinned": ("NCCL uses this interface, and fails on a cluster that has none of this name.", "Leave the choice to NCCL, or set it in a file of the site."),
    "debug-left-on": ("Debugging output or synchronous launches are on: long logs, slower training.", "Take it out of the file that trains."),
    "tasks-unused": ("The job has several tasks, and no srun starts them: they only reserve CPUs.", "--ntasks-per-node=1 with --cpus-per-task, for a launcher that starts its own processes."),
    "sources-bashrc": ("~/.bashrc is for interactive shells: most return at once in a batch job, and others change what runs.", "Source conda.sh or the virtualenv itself."),
    "source-activate": ("source activate is conda's old way, and needs conda on the PATH.", "source …/etc/profile.d/conda.sh; conda activate NAME"),
    "export-all": ("--export=ALL takes over whatever the submitting shell has set.", "--export=NONE, and set what the job needs in the file."),
    "old-launcher": ("torch.distributed.launch is deprecated.", "torchrun"),
    "old-option": ("An option is written in an old way.", "Write it as the manual does."),
    "placeholders": ("A value is a placeholder that somebody has to fill in.", "Fill it in."),
    "exclude-pinned": ("Nodes are excluded by name, also when they have long been repaired.", "Report them, and take it out."),
    "directive-commented": ("A directive is commented out.", "Nothing to do if it is meant so."),
    "unused-launcher-variables": ("Variables for ranks are set, and the launcher sets or ignores them.", "Take them out."),
    "not-bash": ("bash's grammar does not allow this line; what stands around it was read as well as possible.", "bash -n FILE"),
}  # fmt: skip

CODES: dict[str, Code] = {
    name: Code(name, severity, happens, cure)
    for severity, rows in ((Severity.ERROR, _ERRORS), (Severity.WARNING, _WARNINGS), (Severity.NOTE, _NOTES))
    for name, (happens, cure) in rows.items()
}


class Finding(NamedTuple):
    """A fault in one line of a file. `text` says what was read there."""

    code: str
    line: int
    text: str
    lighter: Severity | None = None  # where it matters less than usual
    path: str = ""  # of a script that the batch file calls; empty for the file itself

    @property
    def row(self) -> Code:
        """The code's row of the table."""
        return CODES[self.code]

    @property
    def severity(self) -> Severity:
        """The severity of the fault here."""
        return self.lighter or self.row.severity

    def as_json(self) -> dict[str, Any]:
        """Return the finding for `--json`."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "where": f"{self.path}:{self.line}" if self.path else f"line {self.line}",
            "line": self.line,
            "text": self.text,
            "happens": self.row.happens,
            "cure": self.row.cure,
        }


class _Place(Protocol):
    """A command, a launch or a variable: the line where it stands, and the script if that is another one."""

    @property
    def line(self) -> int: ...
    @property
    def source(self) -> str: ...


def found(code: str, place: _Place, text: str, lighter: Severity | None = None) -> Finding:
    """Return a fault where `place` stands."""
    return Finding(code, place.line, text, lighter, place.source)
