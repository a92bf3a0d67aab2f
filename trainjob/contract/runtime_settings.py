"""Settings that reach the ranks exactly as the job states them. `contract.settings` has the others."""

from dataclasses import dataclass
from typing import Dict, Literal, Optional, Union

from trainjob.contract.setting_row import DATA, NUMERICS, RECORDS, TRAINING, Scalar, setting


@dataclass(frozen=True)
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
        "32.32", "Bits of input.model; 64.64 is for verification.", group=NUMERICS
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
        absent="read where it lies",
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
        600.0, "Seconds without progress after which a rank is named and the run ends.", group=RECORDS, above=0
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
