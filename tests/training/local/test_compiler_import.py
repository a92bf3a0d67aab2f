"""torch's compiler is not imported by a rank that doesn't compile, and nothing else tells that it is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.waiting import LIMIT_S

HOOK = Path(__file__).resolve().parents[3] / "trainjob/launch/hooks"
BEGINS = """\
import json, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
told = {}
def tell(name, value): told[name] = value
def imported(): return "torch._dynamo.eval_frame" in sys.modules
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(1)
"""
TRAINS = """\
ddp = DistributedDataParallel(torch.nn.Linear(8, 3))
optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    ddp(torch.randn(4, 8)).square().sum().backward()
    optimizer.step()
tell("imported", imported())
tell("weights", [weight.double().sum().item().hex() for weight in ddp.parameters()])
"""
COMPILES = """\
step = torch.compile(optimizer.step, backend="eager")
for _ in range(2):
    torch.compile(ddp, backend="eager")(torch.randn(4, 8)).square().sum().backward()
    step()
tell("compiled", [weight.double().sum().item().hex() for weight in ddp.parameters()])
kept_out = torch.optim.Optimizer.add_param_group.__wrapped__.__dynamo_disable
tell("kept out", vars(kept_out).get("_torchdynamo_disable"))
tell("frames", torch._dynamo.utils.counters["frames"]["ok"])
tell("file", sys.modules["torch._dynamo"].__file__)
"""
# gloo's threads may end a process that leaves its group to the interpreter's end.
ENDS = "print(json.dumps(told), flush=True)\ndist.destroy_process_group()\n"


def reported(script: str, *, hook: bool) -> dict[str, Any]:
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "TRAINJOB_STACKS": os.devnull, "PYTHONPATH": str(HOOK)}
    if not hook:
        del environ["PYTHONPATH"]
    words = [sys.executable, "-c", BEGINS + script + ENDS]
    ended = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=10 * LIMIT_S, check=False)
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def test_training_does_not_import_the_compiler_and_gives_the_same_weights() -> None:
    with_hook, without = reported(TRAINS, hook=True), reported(TRAINS, hook=False)
    assert (with_hook.pop("imported"), without.pop("imported")) == (False, True)
    assert with_hook == without


def test_what_is_compiled_later_is_compiled_as_ever() -> None:
    with_hook, without = reported(TRAINS + COMPILES, hook=True), reported(TRAINS + COMPILES, hook=False)
    assert (with_hook.pop("imported"), without.pop("imported")) == (False, True)
    assert with_hook["kept out"] is True
    assert with_hook["frames"] > 0
    assert with_hook == without


def test_who_uses_the_compiler_gets_it() -> None:
    before = "import torch._dynamo\ntell('real', imported())\n"
    assert reported(before, hook=True) == {"real": True}
    after = (
        "from torch._dynamo import config\nimport torch._dynamo.utils\ntell('real', [imported(), config.__name__])\n"
    )
    assert reported(TRAINS + after, hook=True)["real"] == [True, "torch._dynamo.config"]


def test_a_submodule_that_is_asked_for_first_is_there_once() -> None:
    first = (
        "import torch._dynamo.config\nimport torch._dynamo.eval_frame\nreal = sys.modules['torch._dynamo']\n"
        "loaded = [getattr(real, one) is sys.modules['torch._dynamo.' + one] for one in ('config', 'eval_frame')]\n"
        "tell('same', loaded)\ntell('spec', real.eval_frame.__spec__.name)\n"
        "tell('used', sys.modules['torch._dynamo.convert_frame'].config is real.config)\n"
    )
    found = reported(TRAINS + first, hook=True)
    assert (found["same"], found["spec"], found["used"]) == ([True, True], "torch._dynamo.eval_frame", True)


def test_who_goes_through_all_modules_imports_no_compiler() -> None:
    """As inspect does while torch registers operators, amid imports that the compiler itself needs to be complete."""
    goes = "for module in list(sys.modules.values()): hasattr(module, '__file__')\n"
    assert reported(TRAINS + goes + "tell('imported', imported())\n", hook=True)["imported"] is False
