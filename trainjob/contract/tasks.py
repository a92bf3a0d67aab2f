"""Facts of the built-in tasks that the plan needs and must not import torch for."""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple


class TaskFacts(NamedTuple):
    """The settings of a task where the job does not give them. `samples` is the training split's size."""

    entry: str
    data: Optional[str] = None
    samples: Optional[int] = None
    micro_batch: int = 32
    epochs: int = 1
    optimizer: str = "sgd"
    learning_rate: float = 0.01
    schedule: str = "constant"
    stages: Tuple[int, ...] = (1,)  # IPUs one copy of the model can be split over, the usual number first
    loss_is_summed: bool = False
    has_batch_norm: bool = False
    one_thread_up_to: int = 0  # samples of a micro batch that one thread of a CPU trains on as fast as several


# The lessons' settings.
_CIFAR10 = TaskFacts(
    entry="trainjob.train.tasks.resnets:Cifar10ResNet50",
    data="cifar10",
    samples=50000,
    epochs=5,
    optimizer="adamw",
    learning_rate=0.001,
    stages=(1, 2),
    has_batch_norm=True,
)
BUILT_IN: Dict[str, TaskFacts] = {
    # Micro batch 4: 256 replicas of pod256 take 1,024 of 1,437 samples, so one update an epoch.
    "digits-cnn": TaskFacts(
        entry="trainjob.train.tasks.digits_cnn:DigitsCnn",
        data="digits",
        samples=1437,
        micro_batch=4,
        epochs=14,
        schedule="cosine",
        one_thread_up_to=16,
    ),
    "ffnet-toy": TaskFacts(
        entry="trainjob.train.tasks.ffnet_toy:FfnetToy", samples=4096, micro_batch=4, epochs=2, one_thread_up_to=16
    ),
    "tiny-gpt": TaskFacts(
        entry="trainjob.train.tasks.tiny_gpt:TinyGpt",
        data="python-docs",
        micro_batch=16,
        epochs=3,
        optimizer="adamw",
        learning_rate=0.002,
        schedule="cosine",
    ),
    # The classic recipe, for a global batch of 256; weight decay 0.0001 is the job's to give.
    "imagenet-resnet50": TaskFacts(
        entry="trainjob.train.tasks.resnets:ImageNetResNet50",
        data="imagenet",
        samples=1281167,
        epochs=90,
        learning_rate=0.1,
        schedule="step",
        stages=(1, 2),
        has_batch_norm=True,
    ),
    "cifar10-resnet50": _CIFAR10,
    # On one IPU a ResNet-101 leaves little room for images, so that it is split over two.
    "cifar10-resnet101": _CIFAR10._replace(entry="trainjob.train.tasks.resnets:Cifar10ResNet101", stages=(2, 1)),
}

# The task of a job that names neither a task nor a command.
DEFAULT_TASK = "digits-cnn"

# A user's own `module:attribute`, of which nothing is known before it runs.
UNKNOWN = TaskFacts(entry="")


def facts(task: str) -> Optional[TaskFacts]:
    """Return the facts of `task`; UNKNOWN for `module:attribute`; None if there is no such task."""
    if ":" in task:
        return UNKNOWN._replace(entry=task)
    return BUILT_IN.get(task)
