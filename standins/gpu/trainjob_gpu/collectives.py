"""NCCL on gloo: what torch.distributed takes for ProcessGroupNCCL, and the count of what ranks send each other."""

from __future__ import annotations

import collections
import datetime
import functools
import importlib.util
import os
import socket
import sys
import types
from typing import Any, Counter, Tuple

from trainjob_gpu import library, notes, whereabouts
from trainjob_gpu.device import loaded

# (kind, dtype) -> calls, bytes
calls: "Counter[Tuple[str, str]]" = collections.Counter()
sent: "Counter[Tuple[str, str]]" = collections.Counter()

LIMIT = "TRAINJOB_STANDIN_HANG_S"  # how long ranks wait for one that does not call their collective
_LIMIT_S = 300.0


def put_into_torch() -> None:
    """Give torch.distributed the class that it takes for NCCL."""
    import torch

    distributed: Any = torch._C._distributed_c10d
    distributed.ProcessGroupNCCL = _module().ProcessGroupNCCL
    # What only NCCL reads may be set, and changes nothing.
    distributed.ProcessGroupNCCL.Options.config = functools.cached_property(lambda _options: types.SimpleNamespace())
    distributed.ProcessGroupNCCL.Options.config.__set_name__(distributed.ProcessGroupNCCL.Options, "config")
    distributed._hash_tensors = lambda tensors: hash(tuple(bytes(tensor.cpu().numpy()) for tensor in tensors))
    native: Any = torch._C
    distributed._DEFAULT_PG_NCCL_TIMEOUT = datetime.timedelta(minutes=10)
    native._nccl_version = lambda: (2 << 32) | (27 << 16) | 3
    native._nccl_version_suffix = lambda: b""


def split_by_new_groups(c10d: Any) -> None:
    """Make groups one by one where torch would split NCCL's communicator: a mesh with more than one dimension does."""
    if not hasattr(c10d, "split_group"):  # before torch 2.4
        return
    import torch

    def split_group(parent_pg: Any = None, split_ranks: Any = None, timeout: Any = None, **named: Any) -> Any:
        parent_pg = parent_pg or c10d.group.WORLD
        parent = c10d.get_process_group_ranks(parent_pg)
        count = parent_pg._get_backend(torch.device("cuda"))._count_split()
        desc = named.get("group_desc") or "%s:split:%d" % (parent_pg.group_desc, count)
        options = {"timeout": timeout, "group_desc": desc}
        made = [c10d.new_group([parent[rank] for rank in ranks], **options) for ranks in split_ranks]
        mine = c10d.get_rank(parent_pg)
        return next((group for group, ranks in zip(made, split_ranks) if mine in ranks), None)

    c10d.split_group = split_group


def _module() -> types.ModuleType:
    path = library.build(library.installed())["group"]
    spec = importlib.util.spec_from_file_location("trainjob_gpu_group", str(path))
    if spec is None or spec.loader is None:
        raise library.StandInError("%s can't be loaded" % path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gloo(store: Any, rank: int, size: int, timeout: Any) -> Any:
    """Return the gloo group that carries an NCCL group's collectives."""
    from torch.distributed import distributed_c10d as c10d

    whereabouts.begin(rank)
    # gloo's own limit must not come before ours, which says who is where.
    patient = timeout + datetime.timedelta(minutes=2)
    return c10d.ProcessGroupGloo(c10d.PrefixStore("trainjob_gpu/gloo/", store), rank, size, timeout=patient)


def where() -> str:
    """Return what tells this process's GPUs from other hosts', and from those that other processes see."""
    return "%s %s" % (os.environ.get("SLURMD_NODENAME") or socket.gethostname(), loaded().numbers)


def note(kind: str, size: int, dtype: str) -> str:
    """Count one collective; return the lines of the user's script that called it."""
    key = (kind.split()[0], dtype)
    calls[key] += 1
    sent[key] += size
    return notes.lines_of_script()


def limit_ms(timeout: datetime.timedelta) -> int:
    """Return how long the other ranks may stay away: the group's own timeout at most."""
    return int(min(float(os.environ.get(LIMIT) or _LIMIT_S), timeout.total_seconds()) * 1000)


def waiting(what: str, line: str, is_last: bool) -> str:
    """Return where all ranks are while this one waits; before the limit (`is_last`) it is said on standard error."""
    others = whereabouts.ask()
    text = "rank %d waits in %s at %s, and not every rank calls it:\n%s" % (
        whereabouts.rank() or 0,
        what,
        line,
        "".join("  %s\n" % other for other in others) or "  nothing is known of the other ranks\n",
    )
    if not is_last:
        sys.stderr.write("trainjob: %sIt waits on, up to the limit (%s).\n" % (text, LIMIT))
        sys.stderr.flush()
    return text.rstrip()
