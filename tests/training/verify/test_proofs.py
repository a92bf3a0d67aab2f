"""`verify --resume` keeps a proof, void once a file changes that the script imports; plan and submit show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.local_runs import PYTHON, Here
from tests.support.verdicts import verify
from trainjob.records import typed
from trainjob.requests.proofs import ResumeProof

SCRIPT = """\
import importlib
import os
import sys
import torch
import nets.small
from nets import losses
from pathlib import Path
sys.path.append("lib")
import far
plugins = [importlib.import_module(f"plugins.plugin_{number}") for number in range(6)]
torch.manual_seed(1)
model = nets.small.net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
done = 0
if Path("last.pt").exists():
    state = torch.load("last.pt")
    model.load_state_dict(state["model"])
    done = state["done"]
while done < 12:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(done))
    losses.mean(model(x)).backward()
    optimizer.step()
    optimizer.zero_grad()
    done += 1
    if done == 3:
        import late
    torch.save({"model": model.state_dict(), "done": done}, "new.pt")
    os.replace("new.pt", "last.pt")
import at_the_end
"""
_OTHERS = {
    "nets/__init__.py": "",
    "nets/small.py": "from .parts import blocks, heads\n\ndef net():\n    return blocks.net()\n",
    "nets/losses.py": "from nets import scale\n\ndef mean(y):\n    return y.square().mean() * scale.SCALE\n",
    "nets/scale.py": "SCALE = 1.0\n",
    "nets/parts/__init__.py": "",
    "nets/parts/blocks.py": "import torch\n\ndef net():\n    return torch.nn.Linear(8, 2)\n",
    "nets/parts/heads.py": "",
    "lib/far.py": "",
    "late.py": "import later_still\n",
    "later_still.py": "",
    "at_the_end.py": "",
    "plugins/__init__.py": "from .named_in_init import NAME\n",
    "plugins/named_in_init.py": "NAME = 1\n",
    **{f"plugins/plugin_{number}.py": "" for number in range(6)},
}
IMPORTED = {"train.py": SCRIPT, **_OTHERS}
NOT_IMPORTED = {
    **dict.fromkeys(("README.md", "LICENSE", "Makefile", "requirements.txt", ".gitignore", "data.csv"), "x\n"),
    **dict.fromkeys(("config.json", "config.yaml", "pyproject.toml", "job.sbatch", "notes.ipynb"), "{}\n"),
    **dict.fromkeys(("evaluate.py", "serve.py", "nets/large.py", "nets/parts/tails.py", "lib/near.py"), ""),
    **dict.fromkeys(("plugins/plugin_9.py", "tests/test_nets.py", "tools/plot.py", "conftest.py"), ""),
}


def test_a_proof_is_void_once_an_imported_file_changes_and_holds_when_others_do(here: Here) -> None:
    assert (len(IMPORTED), len(NOT_IMPORTED)) == (20, 20)
    for name, text in {**IMPORTED, **NOT_IMPORTED}.items():
        here.write(name, text)
    command = (PYTHON, "train.py")
    assert "resume_proof" not in plan(here, command)
    verify(here, "--resume", "--by", "kill", "--interruptions", "1", "--", *command)
    (path,) = (here.folder / "data" / "trainjob" / "proofs").iterdir()
    proof = typed.read(ResumeProof, path)
    assert proof is not None
    assert set(proof.files) == set(IMPORTED)
    assert proof.changed(here.project) == []
    for name in (*IMPORTED, *NOT_IMPORTED):
        assert proof.changed(changed(here, name)) == ([name] if name in IMPORTED else [])
        (here.project / name).write_text({**IMPORTED, **NOT_IMPORTED}[name])
    (here.project / "late.py").unlink()
    assert proof.changed(here.project) == ["late.py"]
    changed(here, "train.py")
    # Other words, and the same script.
    assert plan(here, (*command, "--epochs", "90"))["resume_proof"]["changed"] == ["late.py", "train.py"]
    said = here.run("submit", "--cluster", "local", "--instances", "1", "--", *command).stderr
    assert "resume proved on" in said
    assert "2 files changed since: late.py, train.py" in said


def changed(here: Here, name: str) -> Path:
    with (here.project / name).open("a") as stream:
        stream.write("# edited\n")
    return here.project


def plan(here: Here, command: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = here.json("plan", "--cluster", "local", "--instances", "1", "--", *command)
    return found


def test_a_resume_that_fails_is_told_as_well(here: Here) -> None:
    here.write("train.py", SCRIPT.replace("done = state", "done = 0 and state"))
    for name, text in _OTHERS.items():
        here.write(name, text)
    verify(here, "--resume", "--by", "kill", "--interruptions", "1", "--", PYTHON, "train.py", code=1)
    known = plan(here, (PYTHON, "train.py"))["resume_proof"]
    assert known["proof"]["codes"]
