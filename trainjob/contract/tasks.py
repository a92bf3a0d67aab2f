"""Facts of the built-in tasks that the plan needs and must not import torch for."""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple


class TaskFacts(NamedTuple):
    """What a task brings when the job does not say. `samples` is the training split's size."""

    entry: str
    data: Optional[str]
    samples: Optional[int]
    micro_batch: int
    epochs: int
    optimizer: str
    learning_rate: float
    schedule: str
    stages: Tuple[int, ...]  # IPUs one copy of the model can be split over, the usual number first
    loss_is_summed: bool = False
    has_batch_norm: bool = False


BUILT_IN: Dict[str, TaskFacts] = {
    # Micro batch 4: 256 replicas of pod256 take 1,024 of 1,437 samples, so one update an epoch.
    "digits-cnn": TaskFacts(
        entry="trainjob.train.tasks.digits_cnn:DigitsCnn",
        data="digits",
        samples=1437,
        micro_batch=4,
        epochs=14,
        optimizer="sgd",
        learning_rate=0.01,
        schedule="cosine",
        stages=(1,),
    ),
    "ffnet-toy": TaskFacts(
        entry="trainjob.train.tasks.ffnet_toy:FfnetToy",
        data=None,
        samples=4096,
        micro_batch=4,
        epochs=2,
        optimizer="sgd",
        learning_rate=0.01,
        schedule="constant",
        stages=(1,),
    ),
    "tiny-gpt": TaskFacts(
        entry="trainjob.train.tasks.tiny_gpt:TinyGpt",
        data="python-docs",
        samples=None,
        micro_batch=16,
        epochs=3,
        optimizer="adamw",
        learning_rate=0.002,
        schedule="cosine",
        stages=(1,),
    ),
    # The classic recipe, for a global batch of 256; weight decay 0.0001 is the job's to give.
    "imagenet-resnet50": TaskFacts(
        entry="trainjob.train.tasks.resnets:ImageNetResNet50",
        data="imagenet",
        samples=1281167,
        micro_batch=32,
        epochs=90,
        optimizer="sgd",
        learning_rate=0.1,
        schedule="step",
        stages=(1, 2),
        has_batch_norm=True,
    ),
    # The lessons' settings. On one IPU a ResNet-101 leaves little room for images, so that it is split over two.
    "cifar10-resnet50": TaskFacts(
        entry="trainjob.train.tasks.resnets:Cifar10ResNet50",
        data="cifar10",
        samples=50000,
        micro_batch=32,
        epochs=5,
        optimizer="adamw",
        learning_rate=0.001,
        schedule="constant",
        stages=(1, 2),
        has_batch_norm=True,
    ),
    "cifar10-resnet101": TaskFacts(
        entry="trainjob.train.tasks.resnets:Cifar10ResNet101",
        data="cifar10",
        samples=50000,
        micro_batch=32,
        epochs=5,
        optimizer="adamw",
        learning_rate=0.001,
        schedule="constant",
        stages=(2, 1),
        has_batch_norm=True,
    ),
}

# The task of a job that names neither a task nor a command.
DEFAULT_TASK = "digits-cnn"

# A user's own `module:attribute`, of which nothing is known before it runs.
UNKNOWN = TaskFacts(
    entry="",
    data=None,
    samples=None,
    micro_batch=32,
    epochs=1,
    optimizer="sgd",
    learning_rate=0.01,
    schedule="constant",
    stages=(1,),
)


def facts(task: str) -> Optional[TaskFacts]:
    """Return the facts of `task`; UNKNOWN for `module:attribute`; None if there is no such task."""
    if ":" in task:
        return UNKNOWN._replace(entry=task)
    return BUILT_IN.get(task)
