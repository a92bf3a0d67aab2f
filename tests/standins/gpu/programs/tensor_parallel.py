import os, torch, torch.nn as nn, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    parallelize_module,
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    PrepareModuleInput,
    loss_parallel,
)
from torch.distributed.tensor import Shard, Replicate, DTensor
from torch.distributed.fsdp import fully_shard

n = int(os.environ["WORLD_SIZE"])
mesh = init_device_mesh("cuda", (n,))
assert mesh.size() == n


class MLP(nn.Module):
    def __init__(s):
        super().__init__()
        s.in_proj = nn.Linear(10, 32)
        s.relu = nn.ReLU()
        s.out_proj = nn.Linear(32, 8)

    def forward(s, x):
        return s.out_proj(s.relu(s.in_proj(x)))


m = MLP().to("cuda")
m = parallelize_module(m, mesh, {"in_proj": ColwiseParallel(), "out_proj": RowwiseParallel()})
opt = torch.optim.AdamW(m.parameters(), lr=0.25, foreach=True)
for i in range(3):
    torch.manual_seed(i)
    inp = torch.rand(20, 10, device="cuda")
    m(inp).sum().backward()
    opt.step()
sp = parallelize_module(
    MLP().to("cuda"),
    mesh,
    {"in_proj": ColwiseParallel(input_layouts=Shard(0)), "out_proj": RowwiseParallel(output_layouts=Shard(0))},
)
sp(torch.rand(4, 10, device="cuda")).sum().backward()
head = parallelize_module(
    nn.Linear(8, 16).cuda(), mesh, ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
)
with loss_parallel():
    l = nn.functional.cross_entropy(head(torch.rand(4, 8, device="cuda")), torch.randint(0, 16, (4,), device="cuda"))
    l.backward()
print("tp ok", float(l))
if n == 4:
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
    m = MLP().to("cuda")
    m = parallelize_module(m, mesh["tp"], {"in_proj": ColwiseParallel(), "out_proj": RowwiseParallel()})
    m = fully_shard(m, mesh=mesh["dp"])
    opt = torch.optim.AdamW(m.parameters())
    for i in range(2):
        m(torch.rand(2, 10, device="cuda")).sum().backward()
        opt.step()
        opt.zero_grad()
    print("2d ok")
    from torch.distributed.checkpoint.state_dict import get_state_dict
    import torch.distributed.checkpoint as dcp

    sd, od = get_state_dict(m, opt)
    dcp.save({"m": sd, "o": od}, checkpoint_id="dcp2d")
    dcp.load({"m": sd, "o": od}, checkpoint_id="dcp2d")
    print("2d dcp ok")
dist.destroy_process_group()
