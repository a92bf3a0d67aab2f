"""A machine with a real Apptainer and a real Slurm: Debian sid's, in a root file system that is made once."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import platformdirs

import trainjob
from tests.support.docker_engine import alone, base_archive
from tests.support.programs import TRAINJOB
from trainjob.rehearse.slurm import releases

_HERE = Path(__file__).parent
_CHECKOUT = Path(trainjob.__file__).parent.parent
_CACHE = platformdirs.user_cache_path("trainjob")
_PACKAGES = "apptainer,squashfuse,uidmap,mount,slurm-wlm,munge,python3,iproute2,procps,git"


@dataclass(frozen=True)
class ApptainerMachine:
    """Commands run there as an ordinary user, with this interpreter and this checkout."""

    root: Path
    base: Path  # the folder of base_archive's tar, the one thing of the cache that is seen there

    def run(self, *words: str | Path, timeout_s: float = 600.0) -> subprocess.CompletedProcess[str]:
        """Return what a command left, its errors after its output."""
        namespaces = ["--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
        seen = (sys.base_prefix, str(_CHECKOUT), str(self.base.parent))
        path = f"{Path(TRAINJOB).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        return subprocess.run(
            ["unshare", *namespaces, "sh", _HERE / "apptainer_machine.sh", self.root, *seen, "--", *words],
            env={"PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )


def apptainer_machine(mmdebstrap: Path) -> ApptainerMachine:
    """Return the machine, made now where the cache does not have it."""
    root = _CACHE / "apptainer" / "sid"
    with alone(_CACHE / "apptainer"):
        if not root.exists():
            _make(mmdebstrap, root)
        base = root.with_name("base") / "debian.tar"
        if not base.exists():
            base.parent.mkdir(exist_ok=True)
            os.link(base_archive(mmdebstrap), base)
    return ApptainerMachine(root, base)


def _make(mmdebstrap: Path, root: Path) -> None:
    part = root.with_name(f"part-{os.getpid()}")
    # sid's release file may be older than its validity allows.
    options = ["--quiet", "--variant=apt", '--aptopt=Acquire::Check-Valid-Until "false"']
    user = '--customize-hook=chroot "$1" useradd --create-home --uid 4321 somebody'
    mirror = releases.mirror()
    include = f"--include={_PACKAGES}"
    words: list[str | Path] = [mmdebstrap, *options, include, user, "sid", part, *([mirror] if mirror else [])]
    subprocess.run(words, check=True, timeout=900)
    part.replace(root)
