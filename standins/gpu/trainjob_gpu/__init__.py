"""Stand-in GPUs: a CPU build of torch believes in CUDA devices, so that scripts written for GPUs run unmodified.

Tensors bear the label of a GPU, and the CPU computes. What a script may get wrong about devices and collectives
is refused as torch and NCCL refuse it. Speed means nothing.
"""

from __future__ import annotations


def activate() -> None:
    """See to it that the first `import torch` finds stand-in GPUs; costs nothing if torch is never imported."""
    from trainjob_gpu import imports

    imports.install()
