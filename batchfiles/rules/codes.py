"""Every fault that doctor knows in a batch file, one row a code: how bad it is, what happens, the cure. And a fault, found."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from batchfiles.bash.values import HOLE


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


_NO_FACTS: Mapping[str, str] = MappingProxyType({})
_TIME_LIMIT = (
    "trainjob doctor --unsafe-fixes --fix writes it where the training is one plain command of the batch shell: --signal=B:USR1@120, "
    "a trap that passes the signal on to the training, a wait that is repeated, scontrol requeue (20 times at most; once where nothing in the file speaks of resuming)."
)
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
        "Start one launcher a node (#SBATCH --ntasks-per-node=1, or srun --nodes=$SLURM_NNODES --ntasks-per-node=1: srun ignores the latter alone), or one process a task without a launcher.",
    ),
    "script-dir-is-spool": (
        "sbatch runs a copy of the file: $0 and BASH_SOURCE name slurmd's spool folder on the node, not the folder of the file.",
        "Use $SLURM_SUBMIT_DIR, or an absolute path.",
    ),
    "signal-kills-batch": (
        "--signal=B:… goes to the batch shell, which has no trap for it and dies at once. The ranks are killed after it.",
        _TIME_LIMIT,
    ),
    "signal-never-arrives": (
        "--signal without B: goes to job steps only. The batch shell's trap never runs, and without srun there is no step.",
        _TIME_LIMIT,
    ),
    "trap-deferred": (
        "bash runs a trap only when the command in the foreground has ended: here, after the training.",
        "Start the command with & and wait for it, again when the trap has ended wait: srun … & PID=$!; while wait $PID && code=0 || code=$?; kill -0 $PID 2>/dev/null; do :; done",
    ),
    "more-processes-than-gpus": (
        "More processes are started on a node than it has GPUs for: two share one, or the last ones find none.",
        "Start as many processes as GPUs, or ask for more GPUs.",
    ),
    "gpus-unused": (
        "Fewer processes are started on a node than the job has GPUs there. The others stay idle, and are paid for.",
        "Start one process a GPU, by torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE or #SBATCH --ntasks-per-node, or ask for fewer GPUs.",
    ),
    "addr-undefined": (
        "The address where ranks meet comes from a variable that is never set: it is empty, and no rank finds the others.",
        "Set it: MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1).",
    ),
    "addr-localhost": (
        "The ranks of several nodes meet at localhost, or in a container's own network, which is another one on each node.",
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
        "bash finds no such command, reports it, and continues with the next line.",
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
    "beyond-cluster": (
        "The job asks for more than the cluster of --cluster has or allows, or leaves out what it requires: sbatch refuses it, or it waits for ever.",
        "Ask for what the cluster has.",
    ),
    "directive-refused": (
        "sbatch refuses the file: a directive has a value that it does not take, or a word that is neither an option nor a value.",
        "Write the value as the manual shows it: a number, HH:MM:SS, 64G. Variables are for the command line: sbatch --time=$LIMIT FILE.",
    ),
    "time-too-short": (
        "The time limit ends before a training has begun, or before the signal of --signal could be sent.",
        "#SBATCH --time=HH:MM:SS: two numbers are minutes and seconds, and the last of three is seconds.",
    ),
    "count-with-type": (
        "SLURM_GPUS_PER_NODE and SLURM_GPUS hold what the directive says, the type included (a100:4), and a number is needed: the launcher refuses it, and bash can't calculate with it.",
        "${SLURM_GPUS_PER_NODE##*:}, or $SLURM_GPUS_ON_NODE.",
    ),
    "not-a-batch-file": (
        "sbatch refuses it, or reads none of its options: it is empty, a program of Python without #!, or a file for another scheduler.",
        "Give doctor a batch file for Slurm: #!/bin/bash, then #SBATCH lines, then commands.",
    ),
    "shebang-wrong": (
        "The first line names an interpreter that does not exist, or gives it an unknown option: the job ends at once.",
        "Write #!/bin/bash, or #!/bin/bash -l for a login shell, with an ordinary minus sign.",
    ),
    "broken-continuation": (
        "A backslash that is not the last character of its line continues nothing: the blank after it becomes an argument, and the next line a command.",
        "End the line with the backslash; put comments on separate lines above the command.",
    ),
    "nothing-waits": (
        "The training runs in the background, and the file ends: Slurm ends the job at once, and the training with it.",
        "Leave out &, or end the file with: wait $!",
    ),
    "wait-interrupted": (
        "A trap ends wait with 128 + the number of the signal. The script continues, or set -e ends it, while the training still saves, and Slurm kills the training with it.",
        "Wait again until it has ended: while wait $PID && code=0 || code=$?; kill -0 $PID 2>/dev/null; do :; done",
    ),
    "mpirun-beyond-tasks": (
        'Open MPI takes one slot a task of the job, and refuses to start more processes: "There are not enough slots available".',
        "Ask for as many tasks (--ntasks or --ntasks-per-node), or start fewer.",
    ),
    "variable-in-quotes": (
        "A variable stands in single quotes or behind a backslash, and the program that gets it is no shell: it gets the name, not the value.",
        "Write it in double quotes, without the backslash. $SLURM_PROCID, $SLURM_NODEID and $SLURM_LOCALID differ between ranks, so only a shell that srun starts can expand them: srun bash -c '…'.",
    ),
    "option-before-script": (
        "An option of the training, or Python itself, stands before its script: the launcher takes it for its own, or for the script, and ends.",
        "Write it after the script: torchrun --nproc-per-node=4 train.py --epochs 10.",
    ),
    "nodes-not-given": (
        "Slurm starts at least one task on each node: with fewer tasks than nodes it gives the job fewer nodes.",
        "Ask for as many tasks as nodes (--ntasks-per-node=1), or for one node.",
    ),
    "nodes-disagree": (
        "What is started counts on another number of nodes or ranks than there are: ranks wait for others that never come, until the rendezvous gives up or the time limit ends the job.",
        "--nnodes=$SLURM_NNODES, and one task of srun on each node.",
    ),
    "node-rank-same": (
        "Without a c10d rendezvous a launcher needs the number of its node, and here all nodes have the same: each waits for the others, or is refused.",
        "--rdzv-backend=c10d with --rdzv-endpoint; or let each node's own shell expand it: srun bash -c '… --node_rank $SLURM_NODEID …'.",
    ),
    "addr-differs": (
        "Each node works out where ranks meet for itself, and gets another address or port than the others: they never meet.",
        "Set it once, in the batch shell, before srun: export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1).",
    ),
    "hosts-by-name": (
        "The file names hosts, and Slurm gives the job those that are free: ranks start where the job has no nodes, or wait for a host that is not theirs.",
        "MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1); a list of hosts is made of the same names.",
    ),
    "step-beyond-job": (
        "srun refuses: a step can't have more nodes or GPUs than its job.",
        "Ask for them in the directives, or leave out srun's option.",
    ),
    "step-waits": (
        "From Slurm 20.11 a step has the CPUs of its nodes, and the job's GPUs and memory, to itself: this one waits until another has ended, or the time limit.",
        "srun --overlap, for both steps.",
    ),
    "argument-swallowed": (
        "A backslash without a blank before it joins the last word of a command with the next line: bash finds no program of that name.",
        "Leave out the backslash behind the last argument.",
    ),
    "sbatch-of-a-program": (
        "sbatch takes a batch file, and is given a program: it finds no file of this name, or none with #! in it.",
        "srun PROGRAM within the job; sbatch --wrap='PROGRAM …' for another one.",
    ),
    "device-beyond-gpus": (
        "The job's own GPUs begin with number 0: CUDA ignores one that does not exist and all behind it, and on nodes that are not confined these are other jobs' GPUs.",
        "Leave CUDA_VISIBLE_DEVICES to Slurm.",
    ),
    "not-bash": (
        "bash can't read the file beyond this line: a quote, a bracket or an if is not closed, and nothing after it runs.",
        "bash -n FILE",
    ),
}

_WARNINGS = {
    "time-limit-unhandled": (
        "Neither --signal nor --requeue, and no resubmission: at its time limit the job is killed, and all since the last checkpoint is lost.",
        _TIME_LIMIT,
    ),
    "port-fixed": (
        "The port is the same in every job: a second job on the first node, yours or another's, can't start, or joins this one.",
        "MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)); or --rdzv-endpoint with port 0, or --standalone, on one node.",
    ),
    "no-kill-on-bad-exit": (
        "When a rank dies, srun leaves the others waiting in a collective: until NCCL gives up after ten minutes, or the time limit ends the job.",
        "srun --kill-on-bad-exit=1",
    ),
    "kill-on-bad-exit-0": (
        "--kill-on-bad-exit=0 tells srun to leave the other ranks running when one dies: until NCCL gives up after ten minutes, or the time limit ends the job.",
        "srun --kill-on-bad-exit=1",
    ),
    "no-mem": (
        "No memory is requested: the job gets the site's default, often a few GB a CPU, and is killed when it needs more.",
        "#SBATCH --mem=… or --mem-per-gpu=… ; --mem=0 is all of the node.",
    ),
    "no-time": (
        "No time limit: the partition's default, which is minutes at some sites, or so long that the job waits behind all others.",
        "#SBATCH --time=HH:MM:SS",
    ),
    "no-cpus": (
        "No CPUs are requested: most sites give one per task, on which data loading and all threads run.",
        "#SBATCH --cpus-per-task=… (the node's CPUs ÷ its GPUs, for one process a GPU).",
    ),
    "log-folder-must-exist": (
        "The folder of the log must exist before sbatch: before Slurm 23.02 nothing makes it, and without it the job fails at once, without a log.",
        "mkdir -p it before sbatch. In the file it is too late.",
    ),
    "srun-loses-cpus": (
        "From Slurm 22.05 to 24.05, srun does not take over --cpus-per-task: each task may get one CPU.",
        "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK, or srun --cpus-per-task=$SLURM_CPUS_PER_TASK",
    ),
    "exit-code-lost": (
        "The job ends with 0 although the training failed: Slurm says COMPLETED, and jobs that depend on it start.",
        "set -eo pipefail at the top of the file (or of what bash -c runs), or keep the code at once (code=$?) and end with exit $code",
    ),
    "addr-hostname-ip": (
        "hostname -i may print 127.0.1.1, several addresses, or IPv6: in each case ranks don't find each other.",
        "Use the name: $(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1).",
    ),
    "output-overwritten": (
        "The log's name is the same for every job: the next one overwrites this one's, and two at once share it.",
        "Put %j into it: --output=train-%j.log; %A_%a in an array.",
    ),
    "requeue-truncates-log": (
        "A requeued job overwrites its log: the output of the first attempt is lost.",
        "#SBATCH --open-mode=append",
    ),
    "requeue-without-signal": (
        "--requeue alone starts the job again after a node failure or preemption, not at its time limit, and nothing asks it to save first.",
        _TIME_LIMIT,
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
        "A fixed sleep waits for Ray's start: on a slow day the workers or the training find no head.",
        "A role with ray: true (trainjob adopt writes it) starts Ray and waits for its nodes; or: until ray status; do sleep 1; done, with a limit.",
    ),
    "server-sleep-ready": (
        "A fixed sleep waits for a server's start: on a slow day the training finds nobody, and on others it waits for nothing.",
        "A job with roles (trainjob adopt writes it) waits until the server is ready; or: until curl -sf http://localhost:$PORT/health; do sleep 1; done, with a limit.",
    ),
    "sets-visible-devices": (
        "GPUs are chosen by hand. Slurm has already chosen this job's, which may be others on a shared node.",
        "Leave CUDA_VISIBLE_DEVICES to Slurm; choose by local rank in the program.",
    ),
    "secret-in-script": (
        "The file contains a key or token. It is also in the repository and in Slurm's records, where many can read it.",
        "Revoke it, and read the new one from a file of mode 0600 or the program's own login.",
    ),
    "nodelist-pinned": (
        "The job waits for nodes by name, also when they are down or busy and others are free.",
        "Ask for a property instead: --constraint or --gres with a type.",
    ),
    "nodelist-longer-than-nodes": (
        "More nodes are named than requested. All named nodes are required: Slurm before 23.02 refuses, and later ones give more than the script counts on.",
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
        'Make it on each: srun --nodes=$SLURM_NNODES --ntasks-per-node=1 mkdir -p "$DIR"',
    ),
    "workdir-on-first-node-only": (
        "The batch shell puts files on a disk of the first node. The ranks of other nodes don't find them.",
        "Do it on each node: srun --nodes=$SLURM_NNODES --ntasks-per-node=1 … , or sbcast.",
    ),
    "gpus-per-task-hides-peers": (
        "With --gpus-per-task each task sees its own GPU alone, as device 0: cuda:LOCAL_RANK fails, and NCCL may not use NVLink.",
        "--gpus-per-node (or --gres) with --gpu-bind=none, and choose the device by local rank.",
    ),
    "lightning-under-torchrun": (
        "Lightning saves and requeues its job at the signal only where srun starts each rank: under torchrun it does neither.",
        "Start one rank a task, without torchrun: srun python … , with --ntasks-per-node as devices has it.",
    ),
    "lightning-ranks-may-hang": (
        "Each rank of Lightning saves at the signal, at whatever update it has reached. If the ranks are at different updates, they hang until the time limit, and may lose what they have not saved.",
        'Keep checkpoints as well: ModelCheckpoint(every_n_train_steps=N, save_last=True), and trainer.fit(…, ckpt_path="last").',
    ),
    "cancels-itself": (
        "The job cancels itself: Slurm records CANCELLED, not COMPLETED, and dependent jobs don't start.",
        "End with exit, and kill background processes by their id.",
    ),
    "hostfile-name-shared": (
        "Jobs that run at the same time write the same hostfile: one of them starts on the other's nodes.",
        "Name it hostfile.$SLURM_JOB_ID.",
    ),
    "cleanup-skipped-by-set-e": (
        "set -e ends the script when the training fails, and the lines after it never run.",
        "Put it into a function, and: trap cleanup EXIT",
    ),
    "nnodes-range-on-one-node": (
        "--nnodes is a range, for elastic training, but the job has one node: no other node ever joins.",
        "--standalone, or --nnodes=1.",
    ),
    "srun-may-fan-out": (
        "srun runs this once for each task of the job: a preparation runs several times at once, on the same files.",
        "srun --ntasks=1 --nodes=1 … , or without srun.",
    ),
    "no-gpus": (
        "Processes for GPUs are started, but no directive requests GPUs or whole nodes: where GPUs must be requested, the job gets none.",
        "#SBATCH --gpus-per-node=… or --gres=gpu:… , as the site has it.",
    ),
    "bash-under-sh": (
        "The file names /bin/sh and is written for bash: where sh is dash, as on Debian and Ubuntu, these lines are errors.",
        "#!/bin/bash",
    ),
    "mem-in-megabytes": (
        "A number without a unit is megabytes, and this is very little for a training.",
        "Write the unit: --mem=64G.",
    ),
    "install-races": (
        "One rank installs packages, and the others start at once: they import half-installed packages, and other nodes may never get them.",
        "Install before srun, in a separate step: srun --nodes=$SLURM_NNODES --ntasks-per-node=1 pip install … , or once, into an environment or an image.",
    ),
    "container-without-gpus": (
        "The container is started without its option for GPUs, which the job asks for: unless the site's configuration adds it, the training finds none.",
        "apptainer exec --nv (AMD: --rocm); docker run --gpus=all.",
    ),
    "conda-without-hook": (
        "conda activate needs a function that only a set-up shell has, and a batch job's has not: it fails, and the job goes on with another Python.",
        'source …/etc/profile.d/conda.sh, or eval "$(conda shell.bash hook)", before it.',
    ),
    "exports-kept-back": (
        "srun inherits the --export of sbatch (SLURM_EXPORT_ENV): the ranks get those variables that it names, and nothing else that the file exports.",
        "export SLURM_EXPORT_ENV=ALL above the first srun, or srun --export=ALL.",
    ),
    "kills-by-name": (
        "Programs are ended by their name: those of your other jobs on this node end, too.",
        "Keep the id (PID=$!) and kill it: kill $PID.",
    ),
}

_NOTES = {
    "no-set-e": (
        "The script continues after a failed module load, cd or activate, and trains with the wrong Python or in the wrong folder.",
        "set -eo pipefail below the directives.",
    ),
    "threads-unset": (
        "OMP_NUM_THREADS is left alone: 1 under torchrun, and all CPUs of the node for every rank elsewhere.",
        "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK (divided by the processes of a task).",
    ),
    "signal-without-requeue": (
        "The job is asked to save before its time limit, and nothing in the file starts it again: --requeue acts on preemption and dead nodes, not at a time limit.",
        "scontrol requeue $SLURM_JOB_ID when the training has saved, unless the training does so itself, as Lightning does.",
    ),
    "rdzv-id-fixed": ("The rendezvous has the same id in every job.", "--rdzv-id=$SLURM_JOB_ID"),
    "rdzv-id-random": ("A random rendezvous id can't be found again in logs, and differs where each node expands it.", "--rdzv-id=$SLURM_JOB_ID"),
    "addr-batch-host": (
        "$(hostname) is the first node of the job only in the batch shell, and not in every srun or heterogeneous job.",
        "scontrol show hostnames $SLURM_JOB_NODELIST | head -n1",
    ),
    "nccl-old-variable": ("torch renamed this variable (2.2), and later releases ignore the old name.", "TORCH_NCCL_ASYNC_ERROR_HANDLING, TORCH_NCCL_BLOCKING_WAIT, …"),
    "nccl-interface-pinned": ("NCCL uses this interface, and fails on a cluster without an interface of this name.", "Leave the choice to NCCL, or set it in a file of the site."),
    "debug-left-on": ("Debugging output or synchronous launches are on: long logs, slower training.", "Take it out of the file that trains."),
    "tasks-unused": ("The job has several tasks, and no srun starts them: they only reserve CPUs.", "--ntasks-per-node=1 with --cpus-per-task, for a launcher that starts its own processes."),
    "sources-bashrc": ("~/.bashrc is for interactive shells: most return at once in a batch job, and others change what runs.", "Source conda.sh or the virtualenv itself."),
    "source-activate": ("source activate is conda's old way, and needs conda on the PATH.", "source …/etc/profile.d/conda.sh; conda activate NAME"),
    "export-all": ("--export=ALL takes over whatever the submitting shell has set.", "--export=NONE, export SLURM_EXPORT_ENV=ALL for srun, and set what the job needs in the file."),
    "old-launcher": ("torch.distributed.launch is deprecated.", "torchrun"),
    "placeholders": (
        "A value is a placeholder that has to be filled in.",
        "Fill it in.",
    ),
    "exclude-pinned": ("Nodes are excluded by name, also when they have long been repaired.", "Report them, and take it out."),
    "directive-commented": (
        "A directive is commented out with # SBATCH, which looks like a mistake.",
        "Nothing to do if this is intended; ##SBATCH makes that clear.",
    ),
    "unused-launcher-variables": ("Variables for ranks are set, and the launcher sets or ignores them.", "Take them out."),
    "time-in-minutes": (
        "Two numbers are minutes and seconds: 24:00 is 24 minutes.",
        "Hours are HH:MM:SS: 24:00:00.",
    ),
    "logs-swapped": (
        "--output ends in .err, and --error in .log or .out.",
        "Swap them.",
    ),
    "setting-unread": (
        "Nothing reads this variable.",
        "init_process_group(timeout=…), or the option of the program.",
    ),
    "nodes-idle": (
        "The last command runs on one node, and all nodes are held for it.",
        "Put it into a separate job: sbatch --dependency=afterok:$SLURM_JOB_ID evaluate.sbatch.",
    ),
    "ignore-unused": (
        "A comment ignores a fault that this file does not have, or that doctor does not know.",
        "Take it out, or correct its name: trainjob doctor --explain CODE.",
    ),
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
    column: int = 0  # from 1; 0: unknown
    own_cure: str = ""  # where the code's own does not help
    facts: Mapping[str, str] = _NO_FACTS  # names and values of which the text speaks, for mending

    @property
    def link(self) -> str:
        """The link to its explanation in the documentation."""
        return f"docs/reference/batch-codes.md#{self.code}"

    @property
    def row(self) -> Code:
        """The code's row of the table."""
        return CODES[self.code]

    @property
    def severity(self) -> Severity:
        """The severity of the fault here."""
        return self.lighter or self.row.severity

    @property
    def cure(self) -> str:
        """What to do about it."""
        return self.own_cure or self.row.cure

    def as_json(self) -> dict[str, Any]:
        """Return the finding for `--json`."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "where": f"{self.path}:{self.line}" if self.path else f"line {self.line}",
            "line": self.line,
            "column": self.column,
            "text": self.text,
            "happens": self.row.happens,
            "cure": self.cure,
        }


class _Place(Protocol):
    """A command, a launch or a variable: the line where it stands, and the script if that is another one."""

    @property
    def line(self) -> int: ...
    @property
    def source(self) -> str: ...


def found(
    code: str,
    place: _Place,
    text: str,
    lighter: Severity | None = None,
    cure: str = "",
    facts: Mapping[str, str] = _NO_FACTS,
) -> Finding:
    """Return a fault where `place` stands; what only a run knows of the text is shown as "…"."""
    return Finding(code, place.line, text.replace(HOLE, "…"), lighter, place.source, own_cure=cure, facts=facts)
