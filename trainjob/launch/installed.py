"""The software of this host that matters for training, read without importing any of it."""

from __future__ import annotations

import os
import re
import sys
from typing import Dict, Optional, Tuple

_DISTRIBUTIONS = ("torch", "numpy", "horovod", "poptorch")
_OF_NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
_DRIVER_FILES = ("/sys/module/nvidia/version", "/proc/driver/nvidia/version")
_DRIVER_VERSION = r"\b(\d+\.\d+(?:\.\d+)?)\b"
_CUDA_VERSION = r"(?m)^cuda(?:\s*:[^=]*)?\s*=\s*['\"]([^'\"]+)['\"]"
# Folders beside a distribution, and the files in them that state its version.
_METADATA = {".dist-info": "METADATA", ".egg-info": "PKG-INFO", ".egg": os.path.join("EGG-INFO", "PKG-INFO")}
_KINDS = tuple(_METADATA)


def installed() -> Dict[str, str]:
    """Return the versions that matter for training on this host, by name."""
    found = distributions((*_DISTRIBUTIONS, *_OF_NCCL))
    versions: Dict[str, Optional[str]] = {"python": "%d.%d.%d" % sys.version_info[:3]}
    versions.update((name, found.get(name)) for name in _DISTRIBUTIONS)
    nccl = next((found[name] for name in _OF_NCCL if name in found), None)
    versions.update(cuda=_cuda(), nccl=nccl, driver=_driver())
    return {name: version for name, version in versions.items() if version}


def distributions(names: Tuple[str, ...]) -> Dict[str, str]:
    """Return the version of each distribution that is installed.

    By one listing of each folder: importlib.metadata, which lists it too, takes as long to load as Python to start.
    """
    found: Dict[str, str] = {}
    for folder in sys.path:
        try:
            entries = [os.path.join(folder, name) for name in os.listdir(folder or os.curdir) if name.endswith(_KINDS)]
        except OSError:  # not there, or a file: python311.zip
            continue
        for entry in (folder, *entries):
            stem, kind = os.path.splitext(os.path.basename(entry))
            name, _, version = stem.partition("-")
            name = name.replace("_", "-").lower()
            if name in names and name not in found and kind in _METADATA:
                found[name] = _stated(os.path.join(entry, _METADATA[kind])) or version.partition("-")[0]
    return found


def _stated(file: str) -> str:
    """Return the version in a file of metadata; nothing if it can't be read, or says none."""
    try:
        with open(file, encoding="utf-8", errors="replace") as lines:
            return next((line[8:].strip() for line in lines if line.startswith("Version:")), "")
    except OSError:
        return ""


def _cuda() -> Optional[str]:
    """Return the CUDA that torch was built for, from the file in which torch keeps it."""
    for folder in sys.path:
        text = _text(os.path.join(folder, "torch", "version.py"))
        if text is not None:
            found = re.search(_CUDA_VERSION, text)
            return found.group(1) if found else None
    return None


def _driver() -> Optional[str]:
    for text in filter(None, map(_text, _DRIVER_FILES)):
        found = re.search(_DRIVER_VERSION, text)
        return found.group(1) if found else None
    return None


def _text(file: str) -> Optional[str]:
    try:
        with open(file, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return None
