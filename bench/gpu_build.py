"""What compiling stand-in GPUs costs beside torch's own way to build an extension: python bench/gpu_build.py.

torch's way (torch.utils.cpp_extension) is one unit with torch/extension.h, optimized; here an empty module.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "standins" / "gpu")]

EMPTY = "#include <torch/extension.h>\nPYBIND11_MODULE(empty, m) {}\n"


def main() -> None:
    """Print seconds of wall time and of CPUs for both, and their ratios."""
    from trainjob_gpu import library

    torch = library.installed()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "empty.cpp")
        source.write_text(EMPTY)
        include = torch.folder / "include"
        folders = [include, include / "torch" / "csrc" / "api" / "include", sysconfig.get_paths()["include"]]
        words = ["g++", "-std=c++20", "-O3", "-w", "-fPIC", "-shared", str(source), "-o", f"{folder}/empty.so"]
        of_torch = seconds([*words, *(f"-I{path}" for path in folders)], {})
        ours = seconds([sys.executable, "-m", "trainjob_gpu"], {"XDG_CACHE_HOME": folder})
    sys.stdout.write(f"stand-in GPUs      {ours[0]:6.1f} s, {ours[1]:6.1f} s of CPUs\n")
    sys.stdout.write(f"an empty extension {of_torch[0]:6.1f} s, {of_torch[1]:6.1f} s of CPUs\n")
    sys.stdout.write(f"ratio              {ours[0] / of_torch[0]:6.2f}    {ours[1] / of_torch[1]:6.2f}\n")


def seconds(command: list[str], environ: dict[str, str]) -> tuple[float, float]:
    """Return the wall time of a command, and the CPU time of all its processes."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    path = str(ROOT / "standins" / "gpu")
    subprocess.run(command, env={**os.environ, "PYTHONPATH": path, **environ}, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
