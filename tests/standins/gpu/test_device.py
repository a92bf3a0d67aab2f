"""What a script that was written for one GPU finds: torch.cuda's own answers, and torch's own errors."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.gpu_scripts import alone, environment, values
from tests.support.programs import ran
from trainjob.rehearse import gpus

pytestmark = pytest.mark.timeout(300, func_only=True)

TRAINS = """
import json, sys, torch
device = sys.argv[1] if len(sys.argv) > 1 else DEVICE
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
    torch.nn.Conv2d(4, 4, 3, groups=4), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(36, 5))
inputs, targets = torch.randn(8, 1, 8, 8), torch.randint(0, 5, (8,))
model, inputs, targets = model.to(device), inputs.to(device), targets.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for _ in range(4):
    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    losses.append(loss.item().hex())
print(json.dumps([losses, str(loss.device)]))
"""


@pytest.mark.full
def test_training_gives_the_cpus_losses_to_the_last_digit(tmp_path: Path) -> None:
    seen = {
        device: values(alone(tmp_path, TRAINS.replace("DEVICE", repr(device))))[0]
        for device in ("cpu", "cuda", "cuda:2")
    }
    losses = {device: answer[0] for device, answer in seen.items() if isinstance(answer, list)}
    assert losses["cuda"] == losses["cpu"] == losses["cuda:2"]
    assert seen["cuda:2"] == [losses["cpu"], "cuda:2"]


def test_what_a_script_asks_of_torch_cuda(tmp_path: Path) -> None:
    script = """
import json, torch
cuda, show = torch.cuda, lambda *answers: print(json.dumps(answers))
show(cuda.is_available(), cuda.device_count(), cuda.current_device(), torch.accelerator.device_count())
cuda.set_device(1)
show(cuda.current_device(), str(torch.ones(1, device="cuda").device), str(torch.ones(1).cuda().device))
show(cuda.get_device_name(0), cuda.get_device_capability(0), cuda.get_device_properties(0).total_memory >> 30)
with cuda.device(3):
    show(str(torch.empty(1, device="cuda").device))
show(cuda.current_device(), torch.version.cuda is not None, torch.backends.cuda.is_built())
kept = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
show(cuda.memory_allocated(), cuda.max_memory_allocated() >= 1 << 20, cuda.mem_get_info()[1] >> 30)
del kept
show(cuda.memory_allocated())
start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
start.record(); end.record(); cuda.synchronize()
show(start.elapsed_time(end) >= 0)
stream = cuda.Stream()
with cuda.stream(stream):
    tensor = torch.ones(2, device="cuda"); tensor.record_stream(stream)
    show(cuda.current_stream() == stream)
show(torch.zeros(2).pin_memory().is_pinned(), torch.zeros(2).is_pinned())
"""
    assert values(alone(tmp_path, script)) == [
        [True, 4, 0, 4],
        [1, "cuda:1", "cuda:1"],
        ["NVIDIA A100-SXM4-80GB", [8, 0], 80],
        ["cuda:3"],
        [1, True, True],
        [1 << 20, True, 80],
        [0],
        [True],
        [True],
        [True, False],
    ]


def test_random_numbers_are_the_gpus_own_and_can_be_repeated(tmp_path: Path) -> None:
    script = """
import json, torch
def draw(): return torch.randn(2, device="cuda").tolist()
torch.cuda.manual_seed(1); first = draw()
state = torch.cuda.get_rng_state(); second = draw()
torch.cuda.set_rng_state(state); again = draw()
torch.cuda.manual_seed(1); torch.manual_seed; repeated = draw()
generator = torch.Generator("cuda").manual_seed(1)
own = torch.randn(2, device="cuda", generator=generator).tolist()
print(json.dumps([second == again, first == repeated, first == own, first != second]))
"""
    assert values(alone(tmp_path, script)) == [[True] * 4]


def test_layers_for_which_torch_has_kernels_on_gpus_alone(tmp_path: Path) -> None:
    script = """
import json, torch
def outcome(make, *inputs):
    torch.manual_seed(0); on_cpu = make(); torch.manual_seed(0); on_gpu = make().cuda()
    answers = []
    for model, device in ((on_cpu, "cpu"), (on_gpu, "cuda")):
        moved = [value.to(device, copy=True).detach().requires_grad_() for value in inputs]
        out = model(*moved); out = out[0] if isinstance(out, tuple) else out
        out.square().sum().backward()
        answers.append([out.detach().cpu(), moved[0].grad.cpu(), *(p.grad.cpu() for p in model.parameters())])
    return all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*answers))
torch.manual_seed(0)  # layer norm of few inputs amplifies the rounding of unlucky ones
x = torch.randn(3, 5, 4)
print(json.dumps([
    outcome(lambda: torch.nn.LSTM(4, 6, num_layers=2, batch_first=True), x),
    outcome(lambda: torch.nn.GRU(4, 6, batch_first=True), x),
    outcome(lambda: torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), x),
    outcome(lambda: torch.nn.Conv2d(4, 4, 3, groups=4), torch.randn(2, 4, 6, 6)),
    outcome(lambda: torch.nn.ConvTranspose2d(4, 2, 3), torch.randn(2, 4, 6, 6)),
]))
"""
    assert values(alone(tmp_path, script)) == [[True] * 5]


REFUSED = [
    ("torch.ones(1, device='cuda:9')", "AcceleratorError", "invalid device ordinal"),
    ("torch.cuda.set_device(4)", "AcceleratorError", "invalid device ordinal"),
    ("torch.ones(2, device='cuda:0') + torch.ones(2, device='cuda:1')", "RuntimeError", "cuda:0 and cuda:1"),
    ("torch.nn.Linear(2, 2).cuda()(torch.ones(1, 2))", "RuntimeError", "on the same device"),
    ("torch.empty(100 << 30, dtype=torch.uint8, device='cuda')", "OutOfMemoryError", "CUDA out of memory"),
    ("torch.cuda.CUDAGraph()", "NotImplementedError", "CUDA graphs"),
    ("torch._C._cuda_no_such_thing", "AttributeError", "_cuda_no_such_thing"),
    ("import flash_attn", "ModuleNotFoundError", "CUDA kernels of its own"),
]


def test_what_is_refused(tmp_path: Path) -> None:
    script = f"""
import json, torch
for line in {[line for line, _, _ in REFUSED]!r}:
    try:
        exec(line)
        print(json.dumps(["nothing was raised", line]))
    except Exception as error:
        print(json.dumps([type(error).__name__, str(error)]))
"""
    answers = values(alone(tmp_path, script))
    assert len(answers) == len(REFUSED)
    for (_, kind, words), answer in zip(REFUSED, answers, strict=True):
        assert isinstance(answer, list)
        assert answer[0] == kind
        assert words in answer[1]


def test_a_rank_sees_the_gpus_that_it_was_given(tmp_path: Path) -> None:
    script = "import json, torch; print(json.dumps([torch.cuda.device_count(), torch.cuda.is_available()]))"
    seen = [values(alone(tmp_path, script, CUDA_VISIBLE_DEVICES=listed)) for listed in ("2", "0,3", "", "NoDevFiles")]
    assert seen == [[[1, True]], [[2, True]], [[0, False]], [[0, False]]]


def test_gpus_are_looked_for_when_a_script_first_uses_one(tmp_path: Path) -> None:
    script = """
import json, os, torch
show = lambda *answers: print(json.dumps(answers))
show(torch.cuda.device_count(), len(torch.cuda.default_generators))
os.environ["CUDA_VISIBLE_DEVICES"] = "3"
show(torch.cuda.device_count(), torch.ones(1, device="cuda").tolist(), len(torch.cuda.default_generators))
os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
show(torch.cuda.device_count(), str(torch.cuda.get_device_properties(0).uuid)[-1])
"""
    assert values(alone(tmp_path, script)) == [[4, 0], [1, [1.0], 1], [1, "3"]]


def test_a_process_forked_after_the_first_use_has_no_gpus(tmp_path: Path) -> None:
    script = """
import json, os, torch
def forked(function):
    read, write = os.pipe()
    if os.fork() == 0:
        try: said = str(function())
        except RuntimeError as error: said = str(error)[:49]
        os.write(write, said.encode()); os._exit(0)
    os.wait()
    print(json.dumps(os.read(read, 100).decode()))
forked(lambda: torch.ones(1, device="cuda").item())
x = torch.ones(1).cuda()
forked(lambda: torch.ones(1, device="cuda"))
forked(lambda: x + 1)
forked(lambda: torch.manual_seed(1) and torch.ones(1).item())
"""
    refused = "Cannot re-initialize CUDA in forked subprocess. T"
    assert values(alone(tmp_path, script)) == ["1.0", refused, refused, "1.0"]


def test_what_scripts_set_and_read_back(tmp_path: Path) -> None:
    script = """
import json, torch
show = lambda *answers: print(json.dumps(answers))
with torch.backends.cudnn.flags(enabled=False, benchmark=True):
    show(torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark_limit)
torch.backends.cudnn.benchmark_limit = 3
show(torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark_limit)
for share in (0.0, 0.3):
    torch.cuda.set_per_process_memory_fraction(share)
    show(torch.cuda.get_per_process_memory_fraction())
    try: torch.empty(30 << 30, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as error: show(str(error)[:40])
try: torch.empty(1 << 60, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError as error: show(str(error)[20:])
host, runtime = torch.ones(20), torch.cuda.cudart()
show(runtime.cudaHostRegister(host.data_ptr(), 80, 0), host.is_pinned())
show(runtime.cudaHostUnregister(host.data_ptr()), host.is_pinned())
try: torch.cuda.check_error(2)
except torch.cuda.CudaError as error: show(str(error))
show(len(torch.cuda.get_device_properties(0).uuid.bytes))
from torch._C import _cuda_CUDAAllocator_AllocatorState  # what torch._dynamo.reset() imports
"""
    assert values(alone(tmp_path, script)) == [
        [False, 10],
        [True, 3],
        [0.0],
        ["CUDA out of memory. Tried to allocate 30"],
        [0.3],
        ["CUDA out of memory. Tried to allocate 30"],
        ["Tried to allocate more than 1EB memory."],
        [0, True],
        [0, False],
        ["out of memory (2)"],
        [16],
    ]


def test_a_checkpoint_of_a_gpu_loads_where_it_was_and_elsewhere(tmp_path: Path) -> None:
    script = """
import json, torch
torch.save({"a": torch.arange(3.0, device="cuda:1")}, "x.pt")
back, moved = torch.load("x.pt")["a"], torch.load("x.pt", map_location="cuda:2")["a"]
on_cpu = torch.load("x.pt", map_location="cpu")["a"]
print(json.dumps([str(back.device), back.tolist(), str(moved.device), str(on_cpu.device)]))
"""
    assert values(alone(tmp_path, script)) == [["cuda:1", [0.0, 1.0, 2.0], "cuda:2", "cpu"]]


def test_nvidia_smi_lists_the_nodes_gpus(tmp_path: Path) -> None:
    def output(*words: str) -> str:
        ended = ran(["nvidia-smi", *words], environ=environment(tmp_path, 2))
        return ended.stdout + ended.stderr

    assert output("-L").splitlines()[1].startswith("GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-")
    query = output("--query-gpu=index,memory.total,utilization.gpu", "--format=csv,noheader,nounits")
    assert query == "0, 81920, 0\n1, 81920, 0\n"
    assert "dmon is not among what it knows" in output("dmon")


def test_each_row_of_the_reference_page_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(gpus.FOLDER))
    from trainjob_gpu.reference import REFUSED as IS_REFUSED
    from trainjob_gpu.reference import ROWS

    script = f"""
import json, torch
for line in {[row.line for row in ROWS]!r}:
    try:
        exec(line)
        print(json.dumps("ran"))
    except (NotImplementedError, AttributeError, ModuleNotFoundError) as error:
        print(json.dumps(str(error)))
"""
    answers = values(alone(tmp_path, script))
    wrong = [
        (row.line, answer)
        for row, answer in zip(ROWS, answers, strict=True)
        if (answer != "ran") != (row.outcome == IS_REFUSED)
    ]
    assert wrong == []


THREADS_THAT_END_WITH_THE_INTERPRETER = """
#include "leaving.h"
#include <cstdio>
#include <thread>
extern "C" int Py_IsFinalizing() { return 1; }  // found by name, as the interpreter's own is
int main() {
  for (const char* name : {"python", "pt_autograd_0", "pt_autograd_12", "pt_gloo_runloop", "pt_data_worker"})
    std::thread([name] {
      pthread_setname_np(pthread_self(), name);
      std::printf("%s %d\\n", name, standin::waits_for_the_end());
    }).join();
}
"""


def test_of_the_threads_that_end_with_the_interpreter_those_of_autograd_and_gloo_wait(tmp_path: Path) -> None:
    program = tmp_path / "program.cpp"
    program.write_text(THREADS_THAT_END_WITH_THE_INTERPRETER)
    core = gpus.FOLDER / "trainjob_gpu" / "core"
    compiler = ["g++", "-std=c++17", f"-I{core}", str(program), "-o", str(tmp_path / "program")]
    subprocess.run([*compiler, "-rdynamic", "-pthread", "-ldl"], check=True)
    reported = ran([tmp_path / "program"], code=0).stdout
    assert reported.splitlines() == [
        "python 0",
        "pt_autograd_0 1",
        "pt_autograd_12 1",
        "pt_gloo_runloop 1",
        "pt_data_worker 0",
    ]
