"""A Poplar SDK's tar file with the documented layout and nothing inside that computes, and the wheels of its site."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

TORCH = "2.0.1"
MPI = "4.0.5"
HOROVOD_NEEDS = ("cloudpickle", "psutil", "pyyaml", "packaging")
TOP = "poplar_sdk-ubuntu_20_04-3.3.0+1403-208993bbb7"
ARCHIVE = "poplar_sdk-ubuntu_20_04-3.3.0-208993bbb7.tar.gz"
_POPLAR = "poplar-ubuntu_20_04-3.3.0+7857-b67b751185"
_POPART = "popart-ubuntu_20_04-3.3.0+7857-b67b751185"
_POPTORCH = "3.3.0+113432_960e9c294b_ubuntu_20_04"

# The vendor's script reads names that may be unset, and refuses to be sourced twice.
_ENABLE = """\
if [ -n "$POPLAR_SDK_ENABLED" ]; then
  echo "the Poplar SDK is already enabled: $POPLAR_SDK_ENABLED" >&2
  return 1
fi
_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$_here/%s/enable.sh"
. "$_here/%s/enable.sh"
""" % (_POPLAR, _POPART)  # noqa: UP031 - the script is full of braces
_ENABLE_POPLAR = """\
_poplar=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export POPLAR_SDK_ENABLED=$_poplar
export PATH=$_poplar/bin:$PATH LD_LIBRARY_PATH=$_poplar/lib:$LD_LIBRARY_PATH
export PYTHONPATH=$_poplar/python:$PYTHONPATH OPAL_PREFIX=$_poplar
"""
# Answers as Open MPI does, and starts nothing.
_MPIRUN = """\
#!/bin/sh
if [ "$1" = --version ]; then echo 'mpirun (Open MPI) %s'; else echo "$*" >>/srv/mpirun.calls; fi
"""
_ENABLE_POPART = 'export CPATH=$(dirname "${BASH_SOURCE[0]}")/include:$CPATH\n'

_TORCH_CODE = """\
class _Version:
    cuda = %r


class cuda:
    @staticmethod
    def is_available():
        return False


class Tensor:
    def __init__(self, values):
        self.values = values

    def __add__(self, other):
        return Tensor([mine + its for mine, its in zip(self.values, other.values)])

    def sum(self):
        return sum(self.values)


def ones(*sizes, device="cpu"):
    count = 1
    for size in sizes:
        count *= size
    return Tensor([1.0] * count)


version = _Version()
__version__ = "%s+cpu"
"""
_POPTORCH_CODE = """\
import os

import torch

assert torch.__version__.split("+")[0] == "%s", "poptorch was built for torch %s"
assert "POPLAR_SDK_ENABLED" in os.environ, "source the SDK's enable script first"
""" % (TORCH, TORCH)  # noqa: UP031


def write_wheelhouse(folder: Path, torch: str = TORCH, cuda: str | None = None) -> Path:
    """Return `folder` filled with a make-believe torch that sees no GPU, and the packages that come with it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_wheel(folder, "torch", torch, "py3-none-any", _TORCH_CODE % (cuda, torch))
    write_wheel(folder, "numpy", "1.24.4", "py3-none-any", "")
    write_wheel(folder, "tqdm", "4.66.1", "py3-none-any", "")
    for name in HOROVOD_NEEDS:
        write_wheel(folder, name, "1.0", "py3-none-any", "")
    return folder


def write_sdk(folder: Path, tag: str = "cp38", torch: str = TORCH) -> Path:
    """Return the SDK's tar file in `folder`; its poptorch wheel is for `tag` and names `torch` by an address."""
    folder.mkdir(parents=True, exist_ok=True)
    address = f"https://download.invalid/whl/cpu/torch-{torch}%2Bcpu-{tag}-{tag}-linux_x86_64.whl"
    platform = f"{tag}-{tag}-linux_x86_64"
    wheel = write_wheel(folder, "poptorch", _POPTORCH, platform, _POPTORCH_CODE, f"Requires-Dist: torch @ {address}\n")
    files = {
        "enable": _ENABLE,
        f"{_POPLAR}/enable.sh": _ENABLE_POPLAR,
        f"{_POPLAR}/python/popdist/__init__.py": "",
        f"{_POPLAR}/bin/popc": "#!/bin/sh\necho 'POPLAR version 3.3.0'\n",
        f"{_POPLAR}/bin/mpirun": _MPIRUN % MPI,
        f"{_POPART}/enable.sh": _ENABLE_POPART,
    }
    path = folder / ARCHIVE
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            _add(archive, f"{TOP}/{name}", content.encode())
        _add(archive, f"{TOP}/{wheel.name}", wheel.read_bytes())
    wheel.unlink()
    return path


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_wheel(folder: Path, name: str, version: str, platform: str, code: str, metadata: str = "") -> Path:
    """Return a wheel with one package of one module."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {platform}\n",
    }
    record = "".join(f"{path},sha256={_digest(content)},{len(content)}\n" for path, content in files.items())
    path = folder / f"{name}-{version}-{platform}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for member, content in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            wheel.writestr(member, content)
    return path


def _digest(content: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = 0o755
    archive.addfile(member, io.BytesIO(content))
