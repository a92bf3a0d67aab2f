import os, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.fsdp import fully_shard
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

dist.init_process_group("cpu:gloo,cuda:nccl")
rank = dist.get_rank()
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
for overlap in (False,):
    m = DDP(torch.nn.Sequential(*[torch.nn.Linear(20, 20).to(local) for _ in range(5)]), device_ids=[local])
    o = ZeroRedundancyOptimizer(m.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
    for _ in range(2):
        o.zero_grad()
        m(torch.randn(4, 20).to(local)).sum().backward()
        o.step()
    o.consolidate_state_dict(to=0)
    if rank == 0:
        s = o.state_dict()
        print("zero", len(s["state"]))
    print("peak", torch.cuda.max_memory_allocated() // 2**10, "KB")


class AppState(Stateful):
    def __init__(s, model, optimizer=None):
        s.model, s.optimizer = model, optimizer

    def state_dict(s):
        a, b = get_state_dict(s.model, s.optimizer)
        return {"model": a, "optim": b}

    def load_state_dict(s, d):
        set_state_dict(s.model, s.optimizer, model_state_dict=d["model"], optim_state_dict=d["optim"])


m = fully_shard(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)).cuda())
o = torch.optim.Adam(m.parameters(), lr=0.1)
o.zero_grad()
m(torch.rand(8, 8, device="cuda")).sum().backward()
o.step()
dcp.save({"app": AppState(m, o)}, checkpoint_id="dcp")
with torch.no_grad():
    want = [p.full_tensor().sum().item() for p in m.parameters()]
    for p in m.parameters():
        p.zero_()
dcp.load({"app": AppState(m, o)}, checkpoint_id="dcp")
got = [p.full_tensor().sum().item() for p in m.parameters()]
assert want == got, (want, got)
f = dcp.async_save({"app": AppState(m, o)}, checkpoint_id="dcp_async")
f.result()
x = torch.ones(2)
dist.all_reduce(x)
assert x[0] == dist.get_world_size()
y = torch.ones(2, device="cuda")
dist.all_reduce(y)
objs = [None] * dist.get_world_size()
dist.all_gather_object(objs, {"r": rank})
print(objs)
o2 = [rank]
dist.broadcast_object_list(o2, src=0)
assert o2 == [0]
dist.monitored_barrier() if False else dist.barrier(device_ids=[local])
# DDP extras
net = torch.nn.Sequential(torch.nn.Linear(20, 20), torch.nn.Linear(20, 2)).cuda()
m = DDP(
    net,
    device_ids=[local],
    output_device=local,
    find_unused_parameters=True,
    static_graph=False,
    gradient_as_bucket_view=True,
    bucket_cap_mb=1,
)
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as default, powerSGD_hook as powerSGD

m.register_comm_hook(None, default.fp16_compress_hook)
with m.no_sync():
    m(torch.randn(3, 20).cuda()).sum().backward()
m(torch.randn(3, 20).cuda()).sum().backward()
m2 = DDP(torch.nn.Linear(20, 20).cuda(), device_ids=[local])
m2.register_comm_hook(
    powerSGD.PowerSGDState(process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=2),
    powerSGD.powerSGD_hook,
)
for _ in range(4):
    m2(torch.randn(3, 20).cuda()).sum().backward()
from torch.distributed.algorithms.join import Join

m3 = DDP(torch.nn.Linear(1, 1).cuda(), device_ids=[local])
with Join([m3]):
    for _ in range(5 + rank):
        m3(torch.tensor([1.0]).cuda()).sum().backward()
m4 = DDP(torch.nn.Linear(4, 4).cuda(), device_ids=[local], static_graph=True)
for _ in range(3):
    m4(torch.randn(3, 4).cuda()).sum().backward()
g = dist.new_group([0, 1])
z = torch.ones(1).cuda()
dist.all_reduce(z, group=g)
sub = dist.new_subgroups(1)
dist.reduce(z, 0)
l = [torch.zeros(1).cuda() for _ in range(2)]
dist.gather(z, l if rank == 0 else None)
dist.scatter(z, l if rank == 0 else None)
r = torch.zeros(1).cuda()
dist.reduce_scatter(r, [torch.ones(1).cuda() for _ in range(2)])
dist.all_to_all(l, [torch.ones(1).cuda() for _ in range(2)])
w = dist.all_reduce(z, async_op=True)
w.wait()
assert w.is_completed()
w.get_future().wait()
from torch.distributed.nn.functional import all_reduce as ar

q = torch.ones(2, device="cuda", requires_grad=True)
ar(q).sum().backward()
import torch.distributed._functional_collectives as fc

fc.all_reduce(torch.ones(2, device="cuda"), "sum", dist.group.WORLD).wait()
if rank == 0:
    dist.send(torch.ones(2, device="cuda"), 1)
else:
    t = torch.zeros(2, device="cuda")
    dist.recv(t, 0)
    assert t.sum() == 2
dist.destroy_process_group()
print("zero_dcp ok")
