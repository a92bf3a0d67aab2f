"""Every setting of a job, declared once.

A row is a typed field with its default, its help and where it applies. From these rows come the keys of a job file, the
flags of the command line, what the runtime reads from job.json, the JSON schema and the reference page. A new setting
is one new row, and the code that uses it.

`RuntimeSettings` reach the ranks exactly as the job states them. The others are consumed by the plan or the job script;
what the ranks need of those is worked out, and stands in `contract.job.TrainSettings`.
"""

import dataclasses
import functools
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Literal, Optional, Tuple

from trainjob.contract.runtime_settings import RuntimeSettings
from trainjob.contract.setting_row import (
    BATCH,
    DATA,
    GROUPS,
    IPU,
    NUMERICS,
    RUN,
    SIZE,
    SLURM,
    TRAINING,
    Row,
    Scalar,
    row_of,
    setting,
)
from trainjob.contract.tasks import DEFAULT_TASK

# A range of hosts, as a job file and --hosts have it: 2-8.
HOST_RANGE = re.compile(r"(?P<least>[0-9]{1,6})-(?P<most>[0-9]{1,6})")

# Pairs of settings of which a job has at most one.
EXCLUSIVE = (
    ("task", "command"),
    ("accumulation", "global_batch"),
    ("epochs", "updates"),
    ("compile_first", "compile_only"),
)


@dataclass(frozen=True)
class JobSettings(RuntimeSettings):
    """All settings of a job. None means that the plan works it out."""

    name: Optional[str] = setting(
        None,
        "Name of the run.",
        group=RUN,
        absent="that of the task or command",
        shared=True,
        form="job-name",
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
    env: Dict[str, str] = setting(
        {}, "An environment variable of every rank; overrides the cluster file's.", group=RUN, form="environment"
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
        "Hosts to use; under Slurm also a range, 2-8, of which Slurm gives as many as it can.",
        group=SIZE,
        absent="as few as hold the instances; on a pod all",
        shared=True,
        form="host-count",
    )
    least_hosts: Optional[int] = setting(
        None,
        "Fewest hosts with which a job under Slurm may start. --hosts 2-8 sets it as well.",
        group=SIZE,
        absent="those of --hosts",
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
        None,
        "Weight updates that an IPU makes between two returns to the host.",
        group=IPU,
        absent="1",
        task_only=True,
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
    time_limit: Optional[str] = setting(
        None,
        'Time limit under Slurm, for example "04:00:00".',
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
    array: Optional[str] = setting(
        None,
        'Elements of a Slurm array, each a run of its own: "0-9", "0-9:2", "1,3,7"; "%3" runs 3 at once.',
        group=SLURM,
        absent="no array; with a sweep, all its items",
        shared=True,
        form="array",
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
        None, "Compile once, in a step of its own, before instances start.", group=IPU, absent="no", shared=True
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


@functools.lru_cache(maxsize=None)
def rows(table: Any = JobSettings) -> Dict[str, Row]:
    """Return the rows of `table` by name, in the order of their groups."""
    listed = [row_of(field) for field in dataclasses.fields(table) if "setting" in field.metadata]
    return {row.name: row for row in sorted(listed, key=lambda row: GROUPS.index(row.facts.group))}


def names(table: Any) -> Tuple[str, ...]:
    """Return the names of the settings that `table` declares."""
    return tuple(field.name for field in dataclasses.fields(table) if "setting" in field.metadata)


def flag(name: str) -> str:
    """Return the command line's name of the setting `name`: --micro-batch; of an unknown one, what it would be."""
    return rows()[name].flag if name in rows() else "--" + name.replace("_", "-")
