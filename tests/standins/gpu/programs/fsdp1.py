import os, functools, torch, torch.nn as nn, torch.nn.functional as F, torch.optim as optim, torch.distributed as dist
from torch.optim.lr_scheduler import StepLR
from torch.utils.data.distributed import DistributedSampler
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
    CPUOffload,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
    FullStateDictConfig,
    BackwardPrefetch,
)
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 8, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.fc1 = nn.Linear(288, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


def train(model, rank, loader, optimizer, epoch, sampler):
    model.train()
    ddp_loss = torch.zeros(2).to(rank)
    sampler.set_epoch(epoch)
    for data, target in loader:
        data, target = data.to(rank), target.to(rank)
        optimizer.zero_grad()
        out = model(data)
        loss = F.nll_loss(out, target, reduction="sum")
        loss.backward()
        optimizer.step()
        ddp_loss[0] += loss.item()
        ddp_loss[1] += len(data)
    dist.all_reduce(ddp_loss, op=dist.ReduceOp.SUM)
    if rank == 0:
        print("Train Epoch: {} \tLoss: {:.6f}".format(epoch, ddp_loss[0] / ddp_loss[1]))


dist.init_process_group("nccl")
rank = dist.get_rank()
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
data = torch.utils.data.TensorDataset(torch.randn(64, 1, 16, 16), torch.randint(0, 10, (64,)))
sampler = DistributedSampler(data, shuffle=True)
loader = torch.utils.data.DataLoader(
    data, batch_size=16, sampler=sampler, num_workers=1, pin_memory=True, shuffle=False
)
policy = functools.partial(size_based_auto_wrap_policy, min_num_params=200)
a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
for kw in (
    {},
    dict(cpu_offload=CPUOffload(offload_params=True)),
    dict(
        mixed_precision=MixedPrecision(
            param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16
        )
    ),
    dict(
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        limit_all_gathers=True,
        use_orig_params=True,
        device_id=torch.cuda.current_device(),
    ),
    dict(sharding_strategy=ShardingStrategy.NO_SHARD),
    dict(device_id=local, sync_module_states=True),
):
    torch.manual_seed(0)
    model = Net() if "device_id" in kw else Net().to(local)
    model = FSDP(model, auto_wrap_policy=policy, **kw)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    a.record()
    for epoch in range(2):
        train(model, local, loader, optimizer, epoch, sampler)
        scheduler.step()
    b.record()
    torch.cuda.synchronize()
    if rank == 0:
        print(f"CUDA event elapsed time: {a.elapsed_time(b) / 1000}sec", kw)
    model.clip_grad_norm_(1.0)
    dist.barrier()
    with FSDP.state_dict_type(
        model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    ):
        states = model.state_dict()
    if rank == 0:
        torch.save(states, "mnist_cnn.pt")
        print(sorted(states)[:2])
    if "cpu_offload" not in kw:
        full = FSDP.optim_state_dict(model, optimizer)
scaler = ShardedGradScaler()
model = FSDP(Net().cuda(), mixed_precision=MixedPrecision(param_dtype=torch.float16))
optimizer = optim.AdamW(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 1, 16, 16).cuda()).float().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
with FSDP.summon_full_params(model):
    print(sum(p.numel() for p in model.parameters()))
with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
    model.state_dict()
with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
    model.state_dict()
dist.destroy_process_group()
print("fsdp1 ok")
