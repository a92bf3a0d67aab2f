"""The compiled library: one for each version of torch, whichever virtualenv has it."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from tests.support.gpu_scripts import environment
from tests.support.programs import ran
from trainjob.rehearse import gpus

pytestmark = pytest.mark.timeout(300, func_only=True)

TELLS = """
import json, sys
from trainjob_gpu import library
libraries = library.build(library.installed())
import torch
print(json.dumps([torch.__file__, torch.ones(2, device="cuda").sum().item(), *map(str, libraries.values())]))
"""


def reported(folder: Path, path: str) -> list[str]:
    environ = environment(folder)
    environ["PYTHONPATH"] = os.pathsep.join([str(gpus.FOLDER), path])
    ended = ran([sys.executable, "-c", TELLS], environ=environ, code=0)
    return ended.stdout.strip().strip("[]").split(", ")


def test_two_installations_of_one_torch_share_what_is_compiled(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "torch").symlink_to(Path(spec.origin).parent)
    here, other = reported(tmp_path, ""), reported(tmp_path, str(tmp_path / "other"))
    assert here[0] != other[0]
    assert here[1:] == other[1:]
    for library in here[2:]:
        dynamic = ran(["readelf", "-d", library.strip('"')], code=0).stdout
        assert "libtorch_cpu.so" in dynamic
        assert "RUNPATH" not in dynamic
        assert "RPATH" not in dynamic
