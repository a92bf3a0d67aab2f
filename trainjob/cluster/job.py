"""What to run: a task of our runtime, or a command of the user's own, and its settings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from trainjob.cluster import array
from trainjob.cluster.common import (
    JOB_NAME,
    Count,
    DirectiveName,
    Environment,
    Line,
    OptionName,
    PlainText,
    SlurmTime,
    Strict,
    WrittenText,
    breach,
)

Precision = Literal["64.64", "32.32", "16.32", "16.16", "bf16"]
# Pairs of which a job has one at most.
EXCLUSIVE = (
    ("task", "command"),
    ("accumulation", "global_batch"),
    ("epochs", "updates"),
    ("compile_first", "compile_only"),
)

ArrayText = Annotated[str, AfterValidator(array.checked)]
JobName = Annotated[str, StringConstraints(pattern=JOB_NAME)]


class Job(Strict):
    """As asked: None means that the plan works it out. Every key is a flag and a key of --job FILE."""

    name: JobName | None = Field(None, description="Name of the run. Absent: the task's or the command's.")
    task: Line | None = Field(
        None, description="A built-in task, or module:attribute of the user's own. Absent: digits-cnn."
    )
    set: dict[OptionName, PlainText | int | float | bool] = Field({}, description="The task's own options.")
    command: list[WrittenText] | None = Field(
        None, description="A command of the user's own, one word an item.", min_length=1
    )
    instances: int | None = Field(None, description="Processes that train.")
    replicas: int | None = Field(None, description="Copies of the model, over all instances.")
    ipus_per_replica: int | None = Field(None, description="IPUs one copy of the model is split over.")
    hosts: int | None = Field(None, description="Hosts to use.")
    micro_batch: int | None = Field(None, description="Samples one replica takes through the model at once.")
    accumulation: int | None = Field(None, description="Micro batches summed before one weight update.")
    global_batch: int | None = Field(None, description="Samples of one weight update; instead of accumulation.")
    device_iterations: int | None = Field(
        None, description="Weight updates an IPU makes between two returns to the host."
    )
    epochs: Count | None = Field(None, description="Passes over the data set.")
    updates: Count | None = Field(None, description="Weight updates; instead of epochs.")
    remainder: Literal["drop", "pad"] = Field(
        "drop", description="Samples that fill no whole block: dropped, or the block padded."
    )
    optimizer: Literal["sgd", "adamw"] | None = Field(None, description="Optimizer. Absent: the task's.")
    learning_rate: float | None = Field(None, gt=0, description="Learning rate. Absent: the task's.")
    scale_learning_rate: Literal["linear", "sqrt"] | None = Field(
        None, description="Multiply the learning rate by global batch ÷ base_batch, or by its square root."
    )
    base_batch: Count | None = Field(
        None, description="Global batch that the learning rate was chosen for. Absent: the micro batch."
    )
    init_from: Line | None = Field(
        None, description="First weights: a safetensors file with the model's names and shapes. Absent: by the seed."
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of sgd.")
    weight_decay: float = Field(0.0, ge=0, description="Weight decay.")
    schedule: Literal["constant", "cosine"] | None = Field(
        None, description="Learning-rate schedule. Absent: the task's."
    )
    warmup_updates: int = Field(0, ge=0, description="Updates over which the learning rate climbs to its value.")
    reduction: Literal["sum", "mean"] = Field("mean", description="Over micro batches and replicas.")
    precision: Precision = Field("32.32", description="input.model bits; 64.64 is for verification.")
    eight_bit_io: bool = Field(False, description="Send uint8 to the device and normalise there.")
    engine: Line | None = Field(
        None, description="How instances work together. Absent: as the cluster and the instances say."
    )
    bucket_mb: Count = Field(25, description="Size of a gradient bucket in MB; 25 is torch's own default.")
    data: Line | None = Field(None, description="Prepared data set. Absent: the task's.")
    workers: int = Field(0, ge=0, description="Loader processes of one instance, for a user's own Dataset.")
    samples: int | None = Field(None, description="Training samples of a user's own data set.")
    loss_is_summed: bool = Field(
        False, description="The task's loss sums over the samples of a micro batch instead of averaging."
    )
    seed: int = Field(
        0, ge=0, le=2**63 - 1, description="Seed of the weights, the order of samples, dropout and augmentation."
    )
    checkpoint_every: int = Field(100, ge=0, description="Updates between two checkpoints; 0: only at the end.")
    keep_checkpoints: Count = Field(3, description="Checkpoints kept.")
    log_every: Count = Field(10, description="Updates between two lines of metrics.jsonl.")
    allow_unused_parameters: bool = Field(False, description="Let parameters get no gradient.")
    clip_norm: float | None = Field(
        None, gt=0, description="Largest norm of the reduced gradient; a larger one is scaled down to it."
    )
    stall_timeout_s: float = Field(
        600.0, gt=0, description="Seconds after which a rank that does not go on is named and the run ended."
    )
    trace: Literal["samples", "full", "nudged"] | None = Field(
        None,
        description="Write digests of every update's samples; full: its gradients and weights, too; nudged: the same "
        "after moving the first weights by their last bit. Evaluates nothing.",
    )
    time_limit: SlurmTime | None = Field(
        None, description='Time limit under Slurm, as "04:00:00". Absent: the cluster file\'s.'
    )
    max_attempts: Count = Field(
        50, description="Starts that a job may have by itself under Slurm, the first and every requeue."
    )
    array: ArrayText | None = Field(
        None,
        description='Tasks of an array under Slurm, each a run of its own: "0-9", "0-9:2", "1,3,7"; "%3": 3 at once.',
    )
    sweep: Line | None = Field(
        None, description="A YAML list: item N holds the settings of task N of the array. Absent array: all items."
    )
    compile_first: bool | None = Field(
        None, description="On IPUs: compile in a step of its own, once, before instances start."
    )
    compile_only: bool | None = Field(None, description="On IPUs: compile, with no IPU attached, and end.")
    poprun: dict[DirectiveName, PlainText | int | bool] = Field(
        {}, description="Any poprun option by its long name, over the cluster file's."
    )
    env: Environment = Field({}, description="Environment of every rank, over the cluster file's.")

    @model_validator(mode="after")
    def _one_of_two(self) -> Job:
        for first, second in EXCLUSIVE:
            if getattr(self, first) is not None and getattr(self, second) is not None:
                raise breach(second, f"is given, and {first} is given too: take one of them out")
        return self
