"""Compiles the stand-in's C++ once for each torch, and keeps it in the user's cache."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import List, NamedTuple, Tuple

CORE = Path(__file__).resolve().parent / "core"
OLDEST = (2, 1)
_TORCH_VERSION = re.compile(r"^__version__ = '([^']+)'", re.M)
_CUDA_VERSION = re.compile(r"^cuda(?:: [^=]+)? = (?:'([^']+)'|None)", re.M)


class StandInError(RuntimeError):
    """Stand-in GPUs can't be had here; the message gives the cure."""


class Torch(NamedTuple):
    """A torch that is installed, looked at without importing it."""

    folder: Path
    version: str
    cuda: "str | None"

    @property
    def release(self) -> Tuple[int, int]:
        """Return the first two numbers of the version."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)


def installed() -> Torch:
    """Return the torch that `import torch` would load. Raises StandInError if there is none."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise StandInError("no torch is installed for %s" % sys.executable)
    folder = Path(spec.origin).parent
    text = (folder / "version.py").read_text()
    version, cuda = _TORCH_VERSION.search(text), _CUDA_VERSION.search(text)
    if version is None:
        raise StandInError("%s names no version" % (folder / "version.py"))
    return Torch(folder, version.group(1), cuda.group(1) if cuda else None)


def refuse_unsuitable(torch: Torch) -> None:
    """Raise StandInError, with the cure, where stand-in GPUs can't be put under `torch`."""
    if torch.cuda is not None:
        plain = torch.version.split("+")[0]
        raise StandInError(
            "torch %s is a CUDA build, and stand-in GPUs need a CPU build of the same version: install torch==%s+cpu "
            "into a folder of its own (pip install --no-deps --target FOLDER, from PyTorch's index of CPU builds), and "
            "set TRAINJOB_STANDIN_TORCH=FOLDER" % (torch.version, plain)
        )
    if torch.release < OLDEST:
        raise StandInError(
            "torch %s is older than %d.%d, the oldest that stand-in GPUs can be put under: rehearse with a newer torch"
            % (torch.version, *OLDEST)
        )


def cpu_builds(torch: Torch) -> List[str]:
    """Return what pip must install beside a CUDA build: torch, and what is compiled against it."""
    names = ["torch==%s+cpu" % torch.version.split("+")[0]]
    for name in ("torchvision", "torchaudio"):
        try:
            names.append("%s==%s+cpu" % (name, metadata.version(name).split("+")[0]))
        except metadata.PackageNotFoundError:
            continue
    return names


def build(torch: Torch, name: str) -> Path:
    """Return the compiled library `name` ("core" or "group") for `torch`, compiling it where that was never done."""
    target = _cache() / ("%s-%s" % (torch.version, _digest(torch))) / (name + ".so")
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / (name + ".lock")).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _compile(torch, name, target)
    return target


def load_core() -> ctypes.CDLL:
    """Load the library that torch takes for CUDA; before torch itself, which asks for it once."""
    torch = installed()
    refuse_unsuitable(torch)
    return ctypes.CDLL(str(build(torch, "core")), ctypes.RTLD_GLOBAL)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainjob" / "gpu-standin"


def _digest(torch: Torch) -> str:
    digest = hashlib.sha256(sys.version.encode() + str(torch.folder).encode())
    for source in sorted(CORE.iterdir()):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _compile(torch: Torch, name: str, target: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise StandInError(
            "stand-in GPUs are compiled once for each torch, and no C++ compiler is on PATH: install g++ (Debian, "
            "Ubuntu: apt install g++), or name one in CXX"
        )
    staging = target.with_name(".%s.%d.part" % (target.name, os.getpid()))
    ended = subprocess.run(_command(torch, name, compiler, staging), capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise StandInError("%s can't compile stand-in GPUs for torch %s:\n%s" % (compiler, torch.version, ended.stderr))
    os.replace(staging, target)


def _command(torch: Torch, name: str, compiler: str, target: Path) -> List[str]:
    include, libraries = torch.folder / "include", torch.folder / "lib"
    # torch's headers want C++20 since 2.12; older ones were written for C++17.
    standard = "c++20" if torch.release >= (2, 10) else "c++17"
    words = [compiler, "-std=" + standard, "-O1", "-w", "-fPIC", "-shared", "-D_GLIBCXX_USE_CXX11_ABI=%d" % _abi(torch)]
    words += ["-I%s" % folder for folder in (include, include / "torch" / "csrc" / "api" / "include")]
    linked = ["-lc10", "-ltorch_cpu"]
    if name == "group":
        words += ["-I%s" % sysconfig.get_paths()["include"], "-DTORCH_EXTENSION_NAME=trainjob_gpu_group"]
        linked += ["-ltorch", "-ltorch_python"]
    words += [str(CORE / (name + ".cpp")), "-o", str(target), "-L%s" % libraries, *linked]
    return [*words, "-Wl,--no-as-needed,-rpath,%s" % libraries]


def _abi(torch: Torch) -> int:
    # Which std::string torch was built with shows in the names of what it exports.
    return int(b"St7__cxx1112basic_string" in (torch.folder / "lib" / "libc10.so").read_bytes())
