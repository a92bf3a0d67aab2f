"""Compiles the stand-in's C++ once for each version of torch, and keeps it in the user's cache for all virtualenvs."""

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
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Tuple

CORE = Path(__file__).resolve().parent / "core"
OLDEST = (2, 4)
Say = Callable[[str], None]
# What is compiled, side by side: each unit's source, what it stands in for, and what it is linked with.
UNITS: Dict[str, Tuple[str, List[str]]] = {
    "core": ("the devices", ["-lc10", "-ltorch_cpu"]),
    "group": ("NCCL", ["-lc10", "-ltorch_cpu", "-ltorch_python"]),
}
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


def build(torch: Torch, say: Say = lambda _line: None) -> Dict[str, Path]:
    """Return the compiled libraries for `torch` by the names of UNITS, compiling those that never were.

    They name no folder of torch's, so that every virtualenv with this torch can load them. `say` is told of each step.
    """
    build_name = "%s-%s" % (torch.version, digest_of_sources(torch))
    # A job may set HOME and XDG_CACHE_HOME, and would compile for itself then.
    given = os.environ.get("TRAINJOB_STANDIN_CACHE") or os.environ.get("XDG_CACHE_HOME")
    folder = Path(given or Path.home() / ".cache") / "trainjob" / "gpu-standin" / build_name
    # Only what is bound to Python depends on its version.
    python = sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag
    targets = {"core": folder / "core.so", "group": folder / ("group.%s.so" % python)}
    if all(target.exists() for target in targets.values()):
        return targets
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = {name: target for name, target in targets.items() if not target.exists()}
        if missing:
            compile_sources(torch, missing, say)
    return targets


def load_core() -> ctypes.CDLL:
    """Load the library that torch takes for CUDA; before torch itself, which asks for it once."""
    torch = installed()
    refuse_unsuitable(torch)
    core = build(torch)["core"]
    for name in ("libtorch_cpu.so", "libc10.so"):  # what it is linked with, and has no path to
        ctypes.CDLL(str(torch.folder / "lib" / name))
    return ctypes.CDLL(str(core), ctypes.RTLD_GLOBAL)


def digest_of_sources(torch: Torch) -> str:
    """Return what the library depends on, in a few characters: its sources and the build of torch."""
    # Two builds of one commit lay out their classes alike, whichever virtualenv they are in.
    commit = re.search(r"^git_version = .*", (torch.folder / "version.py").read_text(), re.M)
    digest = hashlib.sha256(("%s %d" % (commit and commit.group(), _abi(torch))).encode())
    for source in sorted(CORE.iterdir()):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def compile_sources(torch: Torch, targets: Dict[str, Path], say: Say) -> None:
    """Compile the parts of the library that `targets` names, each into its file. Raises an error that has a cure."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise StandInError(
            "stand-in GPUs are compiled once for each torch, and no C++ compiler is on PATH: install g++ (Debian, "
            "Ubuntu: apt install g++), or name one in CXX"
        )
    say(
        "stand-in GPUs for torch %s are compiled by %s, once for all virtualenvs that have it: 15 s, or 2 min if busy"
        % (torch.version, os.path.basename(compiler))
    )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=str(next(iter(targets.values())).parent), prefix=".compiling-") as staging:
        running = {}
        for name in targets:
            with Path(staging, name + ".log").open("w") as log:
                command = _command(torch, name, compiler, Path(staging, name + ".so"))
                running[name] = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            for name, process in sorted(running.items()):
                if process.wait() != 0:
                    raise StandInError(
                        "%s can't compile stand-in GPUs for torch %s:\n%s"
                        % (compiler, torch.version, Path(staging, name + ".log").read_text())
                    )
                os.replace(str(Path(staging, name + ".so")), str(targets[name]))
                say("  %s: ready after %.0f s" % (UNITS[name][0], time.monotonic() - began))
        finally:
            for process in running.values():
                process.kill()
                process.wait()


def _command(torch: Torch, name: str, compiler: str, target: Path) -> List[str]:
    include = torch.folder / "include"
    folders = [include, include / "torch" / "csrc" / "api" / "include", sysconfig.get_paths()["include"]]
    # torch's headers want C++20 since 2.12; older ones were written for C++17.
    standard = "c++20" if torch.release >= (2, 10) else "c++17"
    # Optimizing takes the compiler longer than it saves: what is copied and computed is torch's own code.
    words = [compiler, "-std=" + standard, "-O0", "-w", "-pipe", "-fPIC", "-shared", "-DAT_PER_OPERATOR_HEADERS"]
    words += ["-D_GLIBCXX_USE_CXX11_ABI=%d" % _abi(torch), *("-I%s" % folder for folder in folders)]
    words += [str(CORE / (name + ".cpp")), "-o", str(target), "-L%s" % (torch.folder / "lib")]
    return [*words, "-Wl,--no-as-needed", *UNITS[name][1]]


def _abi(torch: Torch) -> int:
    # Which std::string torch was built with shows in the names of what it exports.
    return int(b"St7__cxx1112basic_string" in (torch.folder / "lib" / "libc10.so").read_bytes())
