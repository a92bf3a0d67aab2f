"""Where ranks meet: a store that other users of the machine can't reach, or as few of them as possible.

torch's own store listens on every interface and authenticates nobody. On one host, a file in the run directory replaces
it, which only the owner can open. Across hosts, the store listens on the address that the cluster file chooses.
"""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import os
from pathlib import Path
from typing import Any, Mapping, Optional

import torch

from trainjob.contract import environment, ports

# Not every torch says what it exports.
_distributed: Any = torch.distributed


def store(rank: int, size: int, environ: Mapping[str, str], timeout: datetime.timedelta) -> Optional[Any]:
    """Return the store in which `size` ranks meet; None for torch's own, found by the environment.

    Its keys begin with a digest of the run's token, so they can't be confused with those of another run.
    """
    token = environ.get(environment.TOKEN)
    if not token:
        return None
    digest = hashlib.sha256(token.encode()).hexdigest()[:32]
    is_one_host = environ.get(environment.LOCAL_WORLD_SIZE) == str(size)
    path = Path(environ.get(environment.RUN_DIR) or ".") / (".store-%s" % digest)
    if is_one_host and _can_lock(path):
        shared = _distributed.FileStore(str(path), size)
    else:
        shared = _listening(rank, size, environ, timeout)
    shared.set_timeout(timeout)
    return _distributed.PrefixStore(digest, shared)


def _can_lock(path: Path) -> bool:
    """Return whether the file system has the locks that a store needs. Lustre and NFS may be mounted without them."""
    try:
        descriptor = os.open(str(path), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True


def _listening(rank: int, size: int, environ: Mapping[str, str], timeout: datetime.timedelta) -> Any:
    address, port = environ[environment.MASTER_ADDR], int(environ[environment.MASTER_PORT])
    options = {"host_name": address, "port": port, "world_size": size, "is_master": rank == 0, "timeout": timeout}
    listening = ports.listen_at(address, port, max(128, 2 * size)) if rank == 0 else None
    if listening is None:
        return _distributed.TCPStore(**options)
    try:
        return _distributed.TCPStore(**options, master_listen_fd=listening.fileno())
    except TypeError:  # an old torch, which opens its socket itself
        listening.close()
        return _distributed.TCPStore(**options)
    finally:
        # The store closes the socket, unless it has refused it.
        if listening.fileno() != -1:
            listening.detach()
