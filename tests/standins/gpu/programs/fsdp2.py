import os, torch, torch.nn as nn, torch.distributed as dist
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy, FSDPModule, CPUOffloadPolicy
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor, DTensor, Shard
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    set_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
    StateDictOptions,
)

rank = int(os.environ["LOCAL_RANK"])
device_type = torch.accelerator.current_accelerator()
device = torch.device(f"{device_type}:{rank}")
torch.accelerator.set_device_index(rank)
print(f"Running on rank {rank} on device {device}")
backend = torch.distributed.get_default_backend_for_device(device)
torch.distributed.init_process_group(backend=backend, device_id=device)


class Block(nn.Module):
    def __init__(s, d):
        super().__init__()
        s.a = nn.MultiheadAttention(d, 2, batch_first=True)
        s.n = nn.LayerNorm(d)
        s.l = nn.Linear(d, d)
        s.d = nn.Dropout(0.1)

    def forward(s, x):
        y = s.n(x)
        return x + s.d(s.l(s.a(y, y, y, need_weights=False)[0]))


class M(nn.Module):
    def __init__(s):
        super().__init__()
        s.e = nn.Embedding(32, 16)
        s.layers = nn.ModuleList(Block(16) for _ in range(3))
        s.o = nn.Linear(16, 32)

    def forward(s, x):
        x = s.e(x)
        for l in s.layers:
            x = l(x)
        return s.o(x)


torch.manual_seed(0)
for prec in (False, True):
    with torch.device("meta"):
        model = M()
    kw = dict(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)) if prec else {}
    for layer in model.layers:
        fully_shard(layer, **kw)
    fully_shard(model, **kw)
    assert isinstance(model, FSDPModule)
    model.to_empty(device=device_type)
    for m in model.modules():
        if hasattr(m, "reset_parameters"):
            m.reset_parameters()
        elif hasattr(m, "_reset_parameters"):
            m._reset_parameters()
    for layer in model.layers:
        layer.set_modules_to_forward_prefetch([])
    optim = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(5):
        model.unshard()
        x = torch.randint(0, 32, (2, 8), device=device)
        loss = model(x).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optim.step()
        optim.zero_grad()
    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    osd = get_optimizer_state_dict(model, optim, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    set_model_state_dict(model, full, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    set_optimizer_state_dict(
        model, optim, osd, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    )
    # dtensor api
    sd = model.state_dict()
    out = {}
    for k, p in sd.items():
        f = p.full_tensor()
        if torch.distributed.get_rank() == 0:
            out[k] = f.cpu()
    new = {
        k: nn.Parameter(distribute_tensor(torch.ones(p.shape, device=device), p.device_mesh, p.placements))
        for k, p in sd.items()
    }
    model.load_state_dict(new, strict=False, assign=True)
mesh = init_device_mesh("cuda", (1, 2), mesh_dim_names=("r", "s"))
m = M().cuda()
for l in m.layers:
    fully_shard(l, mesh=mesh, reshard_after_forward=True)
fully_shard(m, mesh=mesh)
m(torch.randint(0, 32, (2, 8), device=device)).sum().backward()
m = M()
for l in m.layers:
    fully_shard(l, offload_policy=CPUOffloadPolicy())
fully_shard(m, offload_policy=CPUOffloadPolicy())
o = torch.optim.AdamW(m.parameters())
m(torch.randint(0, 32, (2, 8), device=device)).sum().backward()
o.step()
torch.distributed.destroy_process_group()
print("fsdp2 ok")
