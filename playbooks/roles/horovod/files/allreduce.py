"""One of two processes: their sums must be right."""

import sys

import horovod.torch as hvd
import torch

hvd.init()
found = hvd.allreduce(torch.ones(3) * (hvd.rank() + 1), op=hvd.Sum, name="health")
if hvd.size() != 2 or found.tolist() != [3.0, 3.0, 3.0]:
    sys.exit("%d processes sum to %s, expected 2 processes and [3.0, 3.0, 3.0]" % (hvd.size(), found.tolist()))
