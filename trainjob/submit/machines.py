"""Which machine is meant."""

from __future__ import annotations

import functools

from trainjob.submit.machine import Machine
from trainjob.submit.ssh.machine import SshMachine
from trainjob.submit.this_machine import ThisMachine

HERE: Machine = ThisMachine()


@functools.cache
def reached(host: str | None, user: str | None = None) -> Machine:
    """Return the machine called `host`, as ssh knows it; None is this one."""
    return HERE if host is None else SshMachine(host, user)
