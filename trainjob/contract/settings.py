"""Every setting of a job, declared once.

A row is a typed field with its default, its help and where it applies. From these rows come the keys of a job file, the
flags of the command line, what the runtime reads from job.json, the JSON schema and the reference page. A new setting
is one new row, and the code that uses it.

`RuntimeSettings` reach the ranks exactly as the job states them. The others are consumed by the plan or the job script;
what the ranks need of those is worked out, and stands in `records.job.TrainSettings`.
"""

import dataclasses
import functools
import re
from typing import Any, Dict, List, Literal, NamedTuple, Optional, Tuple, Union

from trainjob.contract.tasks import DEFAULT_TASK

Scalar = Union[str, int, float, bool]

# A range of hosts, as a job file and --hosts have it: 2-8.
HOST_RANGE = re.compile(r"(?P<least>[0-9]{1,6})-(?P<most>[0-9]{1,6})")

# Pairs of settings of which a job has at most one.
EXCLUSIVE = (
    ("task", "command"),
    ("accumulation", "global_batch"),
    ("epochs", "updates"),
    ("compile_first", "compile_only"),
)

# Groups, in the order in which help and reference list them.
RUN, SIZE, BATCH, TRAINING, NUMERICS, DATA, RECORDS, SLURM, IPU = GROUPS = (
    "What runs",
    "How many",
    "Batch and length",
    "Optimizer",
    "Engine and precision",
    "Data",
    "Checkpoints and logs",
    "Slurm",
    "IPU",
)


class Setting(NamedTuple):
    """The facts of a row besides its type and default. Bounds and forms are checked when a job is read."""

    help: str
    group: str
    absent: str = ""  # in words, what stands in for a default of None
    task_only: bool = False  # means nothing beside a command of the user's own
    shared: bool = False  # the same for all elements of an array
    form: str = ""  # the name of a form of text or mapping: see cluster.job.FORMS
    flag: str = ""  # where it is not the setting's own name
    file_only: bool = False  # no flag could state it
    at_least: Optional[float] = None
    above: Optional[float] = None
    at_most: Optional[float] = None
    below: Optional[float] = None


def setting(default: object, help: str, **facts: Any) -> Any:  # noqa: A002 - the word every command line uses
    """Return the dataclass field of one row; each job gets its own list or mapping if the default is an empty one."""
    metadata = {"setting": Setting(help, **facts)}
    if isinstance(default, (dict, list)):
        return dataclasses.field(default_factory=type(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


# Rows and no values: the methods of values would take longer to make than a job takes to plan.
_table = dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False)


@_table
class RuntimeSettings:
    """Settings that ranks take as the job states them."""

    momentum: float = setting(0.9, "Momentum of sgd and lars.", group=TRAINING, at_least=0, below=1)
    weight_decay: float = setting(0.0, "Weight decay.", group=TRAINING, at_least=0)
    optimizer_options: Dict[str, Scalar] = setting(
        {},
        "An option of the optimizer: nesterov=true, beta2=0.95.",
        group=TRAINING,
        form="options",
        flag="--optimizer-option",
    )
    schedule_options: Dict[str, Scalar] = setting(
        {},
        "An option of the schedule: end=0.1, every_epochs=30.",
        group=TRAINING,
        form="options",
        flag="--schedule-option",
    )
    warmup_updates: int = setting(
        0, "Updates over which the learning rate rises to its value.", group=TRAINING, at_least=0
    )
    average_decay: Optional[float] = setting(
        None,
        "Keep an exponential moving average of the weights with this decay, such as 0.999, and evaluate it.",
        group=TRAINING,
        absent="no average",
        above=0,
        below=1,
        task_only=True,
    )
    clip_norm: Optional[float] = setting(
        None,
        "Largest norm of the reduced gradient; a larger gradient is scaled down to it.",
        group=TRAINING,
        absent="no clipping",
        above=0,
    )
    reduction: Literal["sum", "mean"] = setting(
        "mean", "How gradients are combined over micro batches and replicas.", group=TRAINING
    )
    allow_unused_parameters: bool = setting(False, "Accept parameters that receive no gradient.", group=TRAINING)
    init_from: Optional[str] = setting(
        None,
        "First weights: a safetensors file with the model's names and shapes.",
        group=TRAINING,
        absent="drawn from the seed",
        task_only=True,
        shared=True,
        form="line",
    )
    precision: Literal["64.64", "32.32", "16.32", "16.16", "bf16"] = setting(
        "32.32", "Precision: INPUT.MODEL in bits, or bf16. 64.64 is for verify.", group=NUMERICS
    )
    eight_bit_io: bool = setting(False, "Send uint8 to the device and normalise there.", group=NUMERICS)
    bucket_mb: int = setting(25, "Size of a gradient bucket in MB.", group=NUMERICS, at_least=1)
    shard_group: Optional[int] = setting(
        None,
        "Instances that hold one copy of the model in parts; engine fsdp. Groups train as replicas.",
        group=NUMERICS,
        absent="all instances",
        task_only=True,
        at_least=1,
    )
    recompute: bool = setting(
        False,
        "Keep only the inputs of each unit of the model, and compute it again in the backward pass.",
        group=NUMERICS,
    )
    offload: bool = setting(
        False, "Keep weights, gradients and optimizer state in the host's memory; engine fsdp on GPUs.", group=NUMERICS
    )
    sum_order: Literal["any", "fixed"] = setting(
        "any", "Order of sums of gradients. Fixed: the same bits on any number of instances.", group=NUMERICS
    )
    compile: bool = setting(
        False,
        "Compile the model with torch.compile before the first update; evaluation stays as it is.",
        group=NUMERICS,
    )
    memory_format: Literal["contiguous", "channels-last"] = setting(
        "contiguous",
        "Order of the dimensions of images and convolution weights in memory; engines single and ddp.",
        group=NUMERICS,
    )
    optimizer_implementation: Literal["auto", "fused", "foreach", "for-loop"] = setting(
        "auto",
        "Which of torch's implementations of sgd or adamw makes the step. Auto: fused where this torch can.",
        group=TRAINING,
    )
    workers: int = setting(
        0, "Data loader processes of one instance, for a Dataset of your own.", group=DATA, at_least=0
    )
    stage: Optional[str] = setting(
        None,
        "Folder on a disk of every host, to which the data set is copied once, before training.",
        group=DATA,
        absent="read in place",
        task_only=True,
        form="line",
    )
    remove_staged: bool = setting(
        False, "Remove the copy when the run has completed, unless another run uses it.", group=DATA
    )
    seed: int = setting(
        0, "Seed of weights, order of samples, dropout, augmentation.", group=TRAINING, at_least=0, at_most=2**63 - 1
    )
    checkpoint_every: Union[int, Literal["auto"]] = setting(
        100,
        "Updates between two checkpoints; 0: only at the end; auto: from what one costs and how often hosts fail.",
        group=RECORDS,
        form="updates-or-auto",
    )
    keep_checkpoints: int = setting(3, "Number of checkpoints kept.", group=RECORDS, at_least=1)
    log_every: int = setting(10, "Updates between two lines of metrics.jsonl.", group=RECORDS, at_least=1)
    stall_timeout_s: float = setting(
        600.0, "Seconds without progress before the run is ended and the hanging rank is named.", group=RECORDS, above=0
    )
    profile: Optional[str] = setting(
        None,
        'Updates to profile with torch.profiler, the first and the last: "20:30".',
        group=RECORDS,
        absent="none",
        task_only=True,
        form="update-range",
    )
    profile_ranks: str = setting("0", 'Ranks that are profiled: "0,3".', group=RECORDS, form="ranks", flag="--ranks")
    trace: Optional[Literal["samples", "full", "nudged"]] = setting(
        None,
        "Record every update: samples writes digests of its samples, full adds gradients and weights, nudged does "
        "the same after changing the last bit of the first weights. The run evaluates nothing.",
        group=RECORDS,
        absent="no trace",
    )


@_table
class JobSettings(RuntimeSettings):
    """All settings of a job. None means that the plan works it out."""

    name: Optional[str] = setting(
        None, "Name of the run.", group=RUN, absent="that of the task or command", shared=True, form="job-name"
    )
    task: Optional[str] = setting(
        None,
        "A built-in task, or module:attribute of your own.",
        group=RUN,
        absent=DEFAULT_TASK,
        shared=True,
        form="line",
    )
    set: Dict[str, Scalar] = setting({}, "An option of the task.", group=RUN, form="options")
    command: Optional[List[str]] = setting(
        None,
        "A command of your own instead of a task, one word an item.",
        group=RUN,
        absent="the task runs",
        shared=True,
        form="words",
    )
    command_per: Optional[Literal["rank", "node"]] = setting(
        None,
        "Start the command once per rank, or once per node if it starts the ranks of its node itself.",
        group=RUN,
        absent="node for torchrun, accelerate launch, deepspeed, composer and tune run, else rank",
        shared=True,
    )
    environment: Dict[str, str] = setting(
        {},
        "The Python environment of the ranks, brought to a disk of each node before they start: archive=FILE (tar or "
        "squashfs), venv=FOLDER or uv=pyproject.toml; folder=FOLDER names the disk.",
        group=RUN,
        shared=True,
        form="python-environment",
    )
    env: Dict[str, str] = setting(
        {}, "An environment variable of every rank; overrides the cluster file's.", group=RUN, form="environment"
    )
    once: Dict[str, List[Dict[str, Any]]] = setting(
        {},
        "Steps that run before ranks start: job: once for the run, node: on each node. Each has run: words, or shell: "
        "a line for bash, and name, timeout_s (3600) and lock, a folder that runs share. Job files only.",
        group=RUN,
        absent="no steps",
        shared=True,
        form="once",
        file_only=True,
    )
    roles: Dict[str, Dict[str, Any]] = setting(
        {},
        "Servers that run beside the command, and the role that needs them. Each server has command, hosts (1), ready: "
        "an address with {host} and {port}, or file:NAME; ready_timeout_s (600), restarts (0), env and needs, names "
        "of other roles. The role that no other needs has command, hosts and instances of the job. ray: true starts "
        "a Ray cluster on a role's hosts, which its command drives; gpus: a server takes so many of each of the job's "
        "hosts, or with 0 none, instead of hosts of its own. Job files only.",
        group=RUN,
        absent="the command alone",
        shared=True,
        form="roles",
        file_only=True,
    )
    instances: Optional[int] = setting(
        None, "Processes that train.", group=SIZE, absent="worked out from the cluster", shared=True
    )
    replicas: Optional[int] = setting(
        None, "Copies of the model over all instances.", group=SIZE, absent="as many as the devices hold", shared=True
    )
    ipus_per_replica: Optional[int] = setting(
        None, "IPUs that one copy of the model is split over.", group=IPU, absent="the task's", shared=True
    )
    hosts: Optional[int] = setting(
        None,
        "Number of hosts; under Slurm also a range such as 2-8, of which Slurm allocates as many as possible.",
        group=SIZE,
        absent="as few as hold the instances; on a pod all",
        shared=True,
        form="host-count",
    )
    least_hosts: Optional[int] = setting(
        None,
        "Fewest hosts with which a job under Slurm may start. --hosts 2-8 sets it as well.",
        group=SIZE,
        absent="the lower end of --hosts",
        shared=True,
    )
    micro_batch: Optional[int] = setting(
        None,
        "Samples that one replica takes through the model at once.",
        group=BATCH,
        absent="the task's",
        task_only=True,
    )
    accumulation: Optional[int] = setting(
        None,
        "Micro batches summed before one weight update.",
        group=BATCH,
        absent="1, or enough to fill the pipeline of a split model",
        task_only=True,
    )
    global_batch: Optional[int] = setting(
        None,
        "Samples of one weight update; instead of accumulation.",
        group=BATCH,
        absent="micro batch × accumulation × replicas",
        task_only=True,
    )
    device_iterations: Optional[int] = setting(
        None, "Weight updates that an IPU makes between two returns to the host.", group=IPU, absent="1", task_only=True
    )
    epochs: Optional[int] = setting(
        None, "Passes over the data set.", group=BATCH, absent="the task's", task_only=True, at_least=1
    )
    updates: Optional[int] = setting(
        None, "Weight updates; instead of epochs.", group=BATCH, absent="from the epochs", task_only=True, at_least=1
    )
    remainder: Literal["drop", "pad"] = setting(
        "drop", "What happens to samples that do not fill a whole block: dropped, or the block is padded.", group=BATCH
    )
    optimizer: Optional[str] = setting(
        None,
        "sgd, adamw, lamb, lars, or module:attribute of your own, such as torch.optim:RMSprop.",
        group=TRAINING,
        absent="the task's",
        task_only=True,
        form="line",
    )
    learning_rate: Optional[float] = setting(
        None, "Learning rate.", group=TRAINING, absent="the task's", task_only=True, above=0
    )
    scale_learning_rate: Optional[Literal["linear", "sqrt"]] = setting(
        None,
        "Multiply the learning rate by global batch ÷ base batch, or by the square root of that.",
        group=TRAINING,
        absent="not scaled",
        task_only=True,
    )
    base_batch: Optional[int] = setting(
        None,
        "Global batch that the learning rate was chosen for.",
        group=TRAINING,
        absent="the micro batch",
        task_only=True,
        at_least=1,
    )
    schedule: Optional[Literal["constant", "linear", "cosine", "step", "warmup-stable-decay", "one-cycle"]] = setting(
        None, "Learning-rate schedule.", group=TRAINING, absent="the task's", task_only=True
    )
    loss_is_summed: bool = setting(
        False, "The task's loss is a sum over the samples of a micro batch, not a mean.", group=TRAINING
    )
    engine: Optional[str] = setting(
        None,
        "How instances work together: single, ddp, fsdp, naive, horovod, parameter-averaging or ipu.",
        group=NUMERICS,
        absent="chosen from the cluster and the number of instances",
        task_only=True,
        shared=True,
        form="line",
    )
    data: Optional[str] = setting(
        None, "Prepared data set.", group=DATA, absent="the task's", task_only=True, shared=True, form="line"
    )
    samples: Optional[int] = setting(
        None,
        "Number of training samples in a data set of your own.",
        group=DATA,
        absent="known when it runs",
        task_only=True,
    )
    progress: Optional[str] = setting(
        None,
        "A regular expression that finds a command's progress in a line that it prints, by its groups: "
        "'step (?P<update>\\d+)'. Others: total, epoch, epochs, loss, accuracy, learning_rate, samples_per_s.",
        group=RECORDS,
        absent="read from what frameworks print and write",
        shared=True,
        form="progress",
    )
    on_stall: Literal["tell", "end"] = setting(
        "tell",
        "What to do with a command that has stopped making progress: report it, or end it.",
        group=RECORDS,
        shared=True,
    )
    exit_grace_s: float = setting(
        60.0,
        "Seconds to wait for a rank that is idle after all others have ended, or after the last update was saved; "
        "commands only.",
        group=RECORDS,
        shared=True,
        above=0,
    )
    idle_timeout_s: float = setting(
        600.0,
        "Seconds of unused GPUs after which the log warns; commands only.",
        group=RECORDS,
        shared=True,
        above=0,
    )
    time_limit: Optional[str] = setting(
        None,
        'Time limit of an attempt, for example "04:00:00".',
        group=SLURM,
        absent="the cluster file's",
        shared=True,
        form="slurm-time",
    )
    time_min: Optional[str] = setting(
        None,
        "Shortest time limit to which Slurm may cut the job's to start it earlier.",
        group=SLURM,
        absent="the time limit is not cut",
        shared=True,
        form="slurm-time",
    )
    hint: Optional[Literal["compute_bound", "memory_bound", "multithread", "nomultithread"]] = setting(
        None,
        "How Slurm places ranks on cores; nomultithread gives each core to one thread, and fewer CPUs to a rank.",
        group=SLURM,
        absent="the site's",
        shared=True,
    )
    directives: Dict[str, Scalar] = setting(
        {},
        "Any sbatch option by its long name (qos=long, exclusive=true); overrides the cluster file's.",
        group=SLURM,
        shared=True,
        form="directives",
        flag="--directive",
    )
    max_attempts: int = setting(
        50,
        "How often a job may start by itself under Slurm, counting the first start and every requeue.",
        group=SLURM,
        shared=True,
        at_least=1,
    )
    retry: Dict[str, Scalar] = setting(
        {},
        "Resources to increase for the next attempt: mem=+50% after an out-of-memory failure, time=+50% after a "
        "time-out; attempts=2: for how many attempts (1).",
        group=SLURM,
        absent="every attempt asks for the same",
        shared=True,
        form="retry",
    )
    array: Optional[str] = setting(
        None,
        'Elements of a Slurm array, each of which is a run: "0-9", "0-9:2", "1,3,7"; "%3" runs 3 at once.',
        group=SLURM,
        absent="no array; with a sweep, all its items",
        shared=True,
        form="array",
    )
    pack: Optional[int] = setting(
        None,
        "Run the elements of an array as steps of one job that has so many whole nodes; several share a node.",
        group=SLURM,
        absent="each element is a job of its own",
        shared=True,
        at_least=1,
    )
    sweep: Optional[str] = setting(
        None,
        "A YAML list whose item N holds the settings of array element N.",
        group=SLURM,
        absent="no sweep",
        shared=True,
        form="line",
    )
    compile_first: Optional[bool] = setting(
        None, "Compile once, in a separate step, before instances start.", group=IPU, absent="no", shared=True
    )
    compile_only: Optional[bool] = setting(
        None, "Compile without any IPU attached, and end.", group=IPU, absent="no", shared=True
    )
    poprun: Dict[str, Scalar] = setting(
        {},
        "Any poprun option by its long name; overrides the cluster file's.",
        group=IPU,
        shared=True,
        form="poprun-options",
    )


class SettingRow(NamedTuple):
    """One setting, as lists of settings show it."""

    name: str
    type: Any  # of the value where it is given: without Optional
    default: Any
    facts: Setting
    is_optional: bool

    @property
    def choices(self) -> Tuple[str, ...]:
        """The words the setting may have; none where any value of its type may be given."""
        return tuple(self.type.__args__) if getattr(self.type, "__origin__", None) is Literal else ()

    @property
    def type_in_words(self) -> str:
        """The type as the reference shows it: int, sgd | adamw, int | auto."""
        kinds = self.type.__args__ if getattr(self.type, "__origin__", None) is Union else (self.type,)
        return " | ".join(word for kind in kinds for word in getattr(kind, "__args__", (kind.__name__,)))

    @property
    def is_mapping(self) -> bool:
        """True if the setting holds names with values, given one NAME=VALUE at a time."""
        return getattr(self.type, "__origin__", None) is dict

    @property
    def flag(self) -> str:
        """The command line's name of the setting: --micro-batch."""
        return self.facts.flag or "--" + self.name.replace("_", "-")

    @property
    def default_in_words(self) -> str:
        """The default as help shows it."""
        if self.default is None or self.default in ({}, []):
            return self.facts.absent or "none"
        return str(self.default).lower() if isinstance(self.default, bool) else "%s" % (self.default,)


@functools.lru_cache(maxsize=None)
def rows(table: type = JobSettings) -> Dict[str, SettingRow]:
    """Return the rows of `table` by name: group by group, and those that the plan works out before the others."""
    listed: List[SettingRow] = []
    for field in dataclasses.fields(table):
        if "setting" in field.metadata:
            kinds = getattr(field.type, "__args__", ()) if getattr(field.type, "__origin__", None) is Union else ()
            plain = [kind for kind in kinds if kind is not type(None)]
            is_optional = len(plain) == 1 and len(kinds) == 2
            default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
            kind = plain[0] if is_optional else field.type
            listed.append(SettingRow(field.name, kind, default, field.metadata["setting"], is_optional))
    as_stated = names(RuntimeSettings)
    return {
        row.name: row for row in sorted(listed, key=lambda row: (GROUPS.index(row.facts.group), row.name in as_stated))
    }


def names(table: type) -> Tuple[str, ...]:
    """Return the names of the settings that `table` declares."""
    return tuple(field.name for field in dataclasses.fields(table) if "setting" in field.metadata)


def flag(name: str) -> str:
    """Return the command line's name of the setting `name`: --micro-batch; of an unknown one, what it would be."""
    return rows()[name].flag if name in rows() else "--" + name.replace("_", "-")
