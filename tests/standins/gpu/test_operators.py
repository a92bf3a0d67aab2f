"""Operators that a GPU has, or does otherwise, than a CPU: 16 bits, inference mode, fused optimizers, products."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.gpu_scripts import alone, environment, ranks, values

pytestmark = pytest.mark.timeout(300, func_only=True)

BEGIN = """
import json, torch
from torch.nn import functional
torch.manual_seed(0)
def show(*answers): print(json.dumps(answers))
def near(a, b, within=2e-2): return bool(torch.allclose(a.float().cpu(), b.float().cpu(), atol=within, rtol=within))
"""


def shown(folder: Path, script: str) -> list[object]:
    """Return what a script shows that goes on from BEGIN."""
    return values(alone(folder, BEGIN + script))


def test_attention_under_autocast_to_16_bits(tmp_path: Path) -> None:
    script = """
attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
x = torch.randn(2, 3, 8)
wanted, _ = attention(x, x, x)
wanted.square().sum().backward()
gradient = attention.in_proj_weight.grad.clone()
attention.zero_grad(); attention.cuda(); x = x.cuda()
for dtype in (torch.float16, torch.bfloat16):
    with torch.autocast("cuda", dtype=dtype):
        out, _ = attention(x, x, x)
        scores = x @ x.mT
        probabilities, logs = torch.softmax(scores, -1), torch.log_softmax(scores, -1)
    attention.zero_grad(); out.float().square().sum().backward()
    show(str(scores.dtype), str(probabilities.dtype), str(logs.dtype), near(out, wanted),
         near(attention.in_proj_weight.grad, gradient, 0.1), near(probabilities, torch.softmax(x @ x.mT, -1)))
half = torch.randn(3, 4).cuda().half().requires_grad_()
for take in (torch.softmax, torch.log_softmax):
    half.grad = None
    out = take(half, -1, dtype=torch.float32); out.square().sum().backward()
    single = half.detach().float().requires_grad_(); take(single, -1).square().sum().backward()
    show(str(out.dtype), str(half.grad.dtype), near(half.grad, single.grad, 2e-3))
"""
    answers = shown(tmp_path, script)
    assert answers[:2] == [
        [f"torch.{dtype}", "torch.float32", "torch.float32", True, True, True] for dtype in ("float16", "bfloat16")
    ]
    assert answers[2:] == [["torch.float32", "torch.float16", True]] * 2


# The CPU has none of these in float16, and a GPU has all.
IN_HALF = {
    "avg_pool3d": "functional.avg_pool3d(x.view(1, 1, 4, 4, 4), 2)",
    "antialiased bilinear": "functional.interpolate(x.view(1, 1, 8, 8), (5, 5), mode='bilinear', antialias=True)",
    "multi_margin_loss": "functional.multi_margin_loss(x.view(16, 4), torch.arange(16, device=x.device) % 4)",
    "fft": "torch.view_as_real(torch.fft.rfft(x.view(4, 16))).float()",
    "in place": "functional.rrelu_(x.clone().mul_(1), 0.25, 0.25)",
    "out=": "torch.renorm(x.view(8, 8), 2, 0, 1.0)",
}


def test_operators_that_cpus_lack_in_16_bits(tmp_path: Path) -> None:
    script = f"""
for name, line in {IN_HALF!r}.items():
    torch.manual_seed(1)
    x = torch.randn(64); wanted = eval(line)
    x = x.cuda().half().requires_grad_(); out = eval(line.replace("x.clone().mul_(1)", "x.mul(1)"))
    out.sum().backward()
    show(name, near(out, wanted), str(out.dtype), str(x.grad.dtype))
try: torch.randn(2, 2).cuda().half() @ torch.randn(2, 2).cuda()
except RuntimeError as error: show(str(error))
"""
    *answers, refused = shown(tmp_path, script)
    assert answers == [
        [name, True, "torch.float32" if name == "fft" else "torch.float16", "torch.float16"] for name in IN_HALF
    ]
    assert isinstance(refused, list)
    assert "same dtype" in refused[0]  # a mixture is the script's mistake on a GPU, too


def test_gradients_that_are_known_to_be_zero(tmp_path: Path) -> None:
    """torch makes them without memory, which the CPU's kernels must not read."""
    script = """
x = torch.randn(3).cuda().requires_grad_()
torch.sgn(x).sum().backward()
show(x.grad.tolist(), (x.grad + 1).tolist(), str(x.grad.device))
"""
    assert shown(tmp_path, script) == [[[0.0] * 3, [1.0] * 3, "cuda:0"]]


def test_exponentials_of_matrices_in_16_bits(tmp_path: Path) -> None:
    script = """
x = torch.randn(4, 4)
for dtype in (torch.float16, torch.bfloat16):
    out = torch.matrix_exp(x.cuda().to(dtype))
    show(near(out, torch.matrix_exp(x), 0.05), str(out.dtype), str(out.device))
"""
    assert shown(tmp_path, script) == [[True, f"torch.{dtype}", "cuda:0"] for dtype in ("float16", "bfloat16")]


def test_results_that_are_left_conjugated(tmp_path: Path) -> None:
    script = """
a, b = torch.randn(3, 3, dtype=torch.complex64), torch.randn(2, 3, dtype=torch.complex64)
factors = torch.linalg.lu_factor(a)
for adjoint in (False, True):
    wanted = torch.linalg.lu_solve(*factors, b, left=False, adjoint=adjoint)
    out = torch.linalg.lu_solve(*(one.cuda() for one in factors), b.cuda(), left=False, adjoint=adjoint)
    show(bool(torch.allclose(out.cpu(), wanted)), out.is_conj() == wanted.is_conj())
"""
    assert shown(tmp_path, script) == [[True, True]] * 2


def test_what_torch_has_on_cpus_alone_is_refused(tmp_path: Path) -> None:
    script = """
try: torch.sparse.mm(torch.eye(3).to_sparse_csr().cuda(), torch.ones(3, 3).cuda(), "sum")
except NotImplementedError as error: show(str(error)[:70])
"""
    assert shown(tmp_path, script) == [["Could not run 'aten::_sparse_mm_reduce_impl' with arguments from the '"]]


def test_inference_mode_with_tensors_made_outside(tmp_path: Path) -> None:
    script = """
model = torch.nn.Sequential(torch.nn.Conv1d(2, 4, 3), torch.nn.Flatten(), torch.nn.Linear(8, 3)).cuda()
outside = torch.arange(12.0, device="cuda").view(3, 2, 2)
with torch.inference_mode():
    view, part = outside.view(3, 4), outside[1:].transpose(1, 2)
    made = torch.ones(4, device="cuda"); seen = made.view(2, 2)
    outside.add_(1); view.mul_(2); seen.add_(1)
    out = model(torch.randn(5, 2, 4, device="cuda"))
    show(view.is_inference(), part.is_inference(), made.is_inference(), seen.is_inference(), out.is_inference())
show(outside._version, outside.flatten().tolist()[:3], made.tolist(), torch.eye(3).to_sparse().cuda().is_inference())
try: (torch.ones(4, device="cuda", requires_grad=True) * made).sum().backward()
except RuntimeError as error: show(str(error).split("computation")[0])
"""
    assert shown(tmp_path, script) == [
        [False, False, True, True, True],
        [2, [2.0, 4.0, 6.0], [2.0] * 4, False],
        ["Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "],
    ]


def test_products_with_a_wider_result(tmp_path: Path) -> None:
    script = """
a, b, c = torch.randn(3, 64), torch.randn(64, 5), torch.randn(3, 5)
x, y = a.cuda().bfloat16(), b.cuda().bfloat16()
exact = x.float() @ y.float()
for out in (
    torch.mm(x, y, out_dtype=torch.float32),
    torch.bmm(x[None], y[None], out_dtype=torch.float32)[0],
    torch.addmm(c.cuda(), x, y, out_dtype=torch.float32, beta=0),
    torch.baddbmm(c.cuda()[None], x[None], y[None], out_dtype=torch.float32, alpha=2, beta=0)[0] / 2,
):
    show(str(out.dtype), torch.equal(out, exact))
try: torch.mm(x, y, out_dtype=torch.float64)
except RuntimeError as error: show(str(error))
"""
    assert shown(tmp_path, script) == [
        *[["torch.float32", True]] * 4,
        ["out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs"],
    ]


def test_fused_optimizers_make_of_a_scaler_what_others_do(tmp_path: Path) -> None:
    script = """
def weights(make, fused, dtype, scaled):
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(33, device="cuda").to(dtype))
    optimizer = make([weight], lr=0.125, fused=fused)
    found = [0.0, 1.0, 0.0] if scaled else [0.0] * 3
    for step, is_inf in enumerate(found):
        weight.grad = torch.randn(33, device="cuda").to(dtype)
        if fused and scaled:
            weight.grad.mul_(64); unscaled = weight.grad / 64
            optimizer.grad_scale, optimizer.found_inf = (torch.tensor(v, device="cuda") for v in (64.0, is_inf))
        if fused or not is_inf: optimizer.step()
        if fused and scaled and not is_inf: assert torch.equal(weight.grad, unscaled)
    return weight.detach()
for make in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad):
    for dtype, within in ((torch.float32, 1e-5), (torch.float64, 1e-5), (torch.float16, 2e-2), (torch.bfloat16, 1e-1)):
        for scaled in (False, True):
            one, other = weights(make, True, dtype, scaled), weights(make, False, dtype, scaled)
            if not near(one, other, within): show(make.__name__, str(dtype), scaled, float((one - other).abs().max()))
"""
    assert shown(tmp_path, script) == []


def test_what_is_measured_of_a_gpu_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(
        "class NVMLError_LibraryNotFound(Exception): pass\n"
        "def nvmlInit(): raise NVMLError_LibraryNotFound('NVML Shared Library Not Found')\n"
    )
    script = """
import pynvml
for ask in (torch.cuda.utilization, torch.cuda.temperature, torch.cuda.power_draw, torch.cuda.memory_usage):
    try: ask()
    except NotImplementedError as error: show("stand-in GPUs" in str(error), "torch.cuda." in str(error))
try: pynvml.nvmlInit()
except pynvml.NVMLError_LibraryNotFound as error: show("stand-in GPUs have no NVML" in str(error))
try: torch.cuda.jiterator._create_jit_fn("template <typename T> T f(T x) { return x; }")(torch.ones(2, device="cuda"))
except NotImplementedError as error: show("stand-in GPUs" in str(error))
"""
    assert shown(tmp_path, script) == [*[[True, True]] * 4, [True], [True]]


def test_a_collective_outside_inference_mode_takes_what_was_made_in_it(tmp_path: Path) -> None:
    script = """
import json, torch, torch.distributed as dist
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
with torch.inference_mode(): made, parts = torch.ones(2, device="cuda"), [torch.zeros(2, device="cuda")]
dist.all_reduce(made); dist.all_gather(parts, made)
generator = torch.Generator("cuda"); again = torch.Generator("cuda").manual_seed(5)
generator.graphsafe_set_state(again.graphsafe_get_state())
kept = torch.backends.cuda.cufft_plan_cache; kept.clear()
images, kernels = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3)
named = torch.cudnn_convolution(images.cuda(), kernels.cuda(), [0, 0], [1, 1], [1, 1], 1, False, False, False)
right = torch.allclose(named.cpu(), torch.conv2d(images, kernels), atol=1e-5)
print(json.dumps([parts[0].tolist(), generator.initial_seed(), kept.size, right]))
"""
    assert shown(tmp_path, script) == [[[1.0, 1.0], 5, 0, True]]


def test_losses_give_no_warning_that_a_gpu_would_not_give(tmp_path: Path) -> None:
    script = """
import warnings
x, y = torch.randn(4, 1).cuda(), torch.randn(4, 1).cuda()
for loss in (functional.mse_loss, functional.smooth_l1_loss):
    with warnings.catch_warnings(record=True) as seen:
        value = loss(x, y)
    show(near(value, loss(x.cpu(), y.cpu()), 1e-6), [str(one.message) for one in seen])
"""
    assert shown(tmp_path, script) == [[True, []]] * 2


def test_batch_norm_with_weights_of_16_bits_and_statistics_of_32(tmp_path: Path) -> None:
    """As under FSDP2's mixed precision; the backward of a GPU's kernel for channels that don't come last refuses it."""
    script = """
plain, last = torch.contiguous_format, torch.channels_last
for shape, form in (((6, 4), plain), ((3, 4, 2, 2), last), ((3, 4, 2, 2), plain)):
    for train in (True, False):
        for dtype in (torch.float16, torch.bfloat16):
            make = torch.nn.BatchNorm1d if len(shape) == 2 else torch.nn.BatchNorm2d
            right, norm = make(4).train(train), make(4).train(train).cuda()
            for weight in norm.parameters(): weight.data = weight.data.to(dtype)
            x = torch.randn(shape).to(memory_format=form).requires_grad_()
            y = x.detach().cuda().to(dtype).requires_grad_()
            wanted, out = right(x), norm(y)
            wanted.square().sum().backward()
            seen = [out.dtype == dtype, near(out, wanted), near(norm.running_var, right.running_var)]
            seen.append(str(norm.running_mean.dtype))
            try:
                out.float().square().sum().backward()
                seen += [near(y.grad, x.grad, 5e-2), near(norm.weight.grad, right.weight.grad, 5e-2)]
                seen.append(norm.bias.grad.dtype == dtype)
            except RuntimeError as error: seen.append(str(error)[:34])
            show(*seen)
"""
    forward = [True, True, True, "torch.float32"]
    refused = [[*forward, "Expected running_mean to have type"]] * 4
    assert shown(tmp_path, script) == [[*forward, True, True, True]] * 8 + refused


def test_convolutions_and_products_of_16_bits_are_computed_as_float32_is_and_rounded(tmp_path: Path) -> None:
    script = """
calls = {
    "conv2d": ((2, 4, 8, 8), (6, 4, 3, 3), functional.conv2d),
    "transposed": ((2, 4, 8, 8), (4, 6, 3, 3), functional.conv_transpose2d),
    "linear": ((5, 7), (3, 7), functional.linear), "bmm": ((2, 3, 4), (2, 4, 5), torch.bmm),
}
for name, (one, two, call) in calls.items():
    x, w = torch.randn(one).half(), torch.randn(two).half()
    narrow = [t.cuda().requires_grad_() for t in (x, w)]
    wide = [t.float().requires_grad_() for t in (x, w)]
    for tensors in (narrow, wide): call(*tensors).sum().backward()
    kinds = [str(a.grad.dtype) for a, b in zip(narrow, wide) if near(a.grad, b.grad)]
    show(name, torch.equal(call(*narrow).cpu(), call(*wide).half()), *kinds)
"""
    half = "torch.float16"
    assert shown(tmp_path, script) == [[name, True, half, half] for name in ("conv2d", "transposed", "linear", "bmm")]


@pytest.mark.parametrize("norm", ["GroupNorm(2, 4)", "LayerNorm([4, 3])"])
def test_norms_refuse_float32_weights_beside_16_bits_as_a_gpu_does(norm: str, tmp_path: Path) -> None:
    script = f"""
model, x = torch.nn.{norm}.cuda(), torch.randn(2, 4, 3).cuda()
try: model(x.half())
except RuntimeError as error: show(str(error))
with torch.autocast("cuda", dtype=torch.float16): show(str(model(x.half()).dtype))
show(str(model.half()(x.half()).dtype))
"""
    refused = "expected scalar type Half but found Float"
    assert shown(tmp_path, script) == [[refused], ["torch.float32"], ["torch.float16"]]


def test_attention_of_dtensors_is_sharded_by_heads(tmp_path: Path) -> None:
    """By the kernel that real GPUs have: causal, grouped queries, 16 bits, and dropout that is the same backward."""
    script = """import os, torch
from torch.nn import functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (2,))
def attention(heads, dtype, **how):
    torch.manual_seed(0)
    plain = [torch.randn(2, count, 8, 16, dtype=dtype) for count in heads]
    sharded = [distribute_tensor(one.cuda(), mesh, [Shard(1)]).detach().requires_grad_() for one in plain]
    out = F.scaled_dot_product_attention(*sharded, **how)
    out.square().sum().backward()
    return plain, out, sharded
for dtype, near in ((torch.float32, 1e-4), (torch.bfloat16, 0.1)):
    for heads, how in (
        ((4, 4, 4), {"is_causal": True}), ((4, 4, 4), {}), ((4, 2, 2), {"is_causal": True, "enable_gqa": True})
    ):
        plain, out, sharded = attention(heads, dtype, **how)
        assert out.placements == (Shard(1),) and out.dtype is dtype
        exact = [one.float().requires_grad_() for one in plain]
        wanted = F.scaled_dot_product_attention(*exact, **how)
        wanted.square().sum().backward()
        assert (out.full_tensor().cpu().float() - wanted).abs().max() < near
        for one, its in zip(sharded, exact):
            assert (one.grad.full_tensor().cpu().float() - its.grad).abs().max() < near * 2, (dtype, how)
# With zeros for queries every weight is the same: what is dropped shows in the gradient of the values.
query, key = (distribute_tensor(torch.zeros(1, 2, 4, 8).cuda(), mesh, [Shard(1)]) for _ in range(2))
value = distribute_tensor(torch.ones(1, 2, 4, 8).cuda(), mesh, [Shard(1)]).detach().requires_grad_()
out = F.scaled_dot_product_attention(query, key, value, dropout_p=0.5)
out.sum().backward()
assert abs(out.sum().full_tensor().item() - value.grad.sum().full_tensor().item()) < 1e-4
print("sharded")
"""
    for rank in ranks(tmp_path, script):
        assert rank.code == 0, rank.err
        assert "sharded" in rank.out


def test_binding_to_numa_nodes_binds_nothing(tmp_path: Path) -> None:
    """torchrun's --numa-binding asks which CPUs are near a GPU: none is near a stand-in, and the ranks start."""
    script = tmp_path / "affinity.py"
    script.write_text(
        "import os, sys\n"
        "is_free = os.sched_getaffinity(0) == os.sched_getaffinity(os.getppid())\n"
        "sys.stdout.write('free\\n' if is_free else 'bound\\n')  # at once, as two ranks write to one pipe\n"
    )
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--numa-binding=node", str(script)]
    ended = subprocess.run(words, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["free", "free"]
    assert ended.stderr.count("--numa-binding=node binds nothing in a rehearsal") == 1
