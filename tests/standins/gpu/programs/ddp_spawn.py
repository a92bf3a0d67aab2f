import os, sys, torch, torch.distributed as dist, torch.nn as nn, torch.optim as optim, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world_size, name):
    acc = torch.accelerator.current_accelerator()
    backend = torch.distributed.get_default_backend_for_device(acc)
    init_method = f"file://{os.path.abspath(name)}"  # the tutorial's other way to meet, which needs no port
    dist.init_process_group(backend, init_method=init_method, rank=rank, world_size=world_size)


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def demo_checkpoint(rank, world_size):
    setup(rank, world_size, "checkpoint.store")
    model = ToyModel().to(rank)
    ddp_model = DDP(model, device_ids=[rank])
    P = "model.checkpoint"
    if rank == 0:
        torch.save(ddp_model.state_dict(), P)
    dist.barrier()
    acc = torch.accelerator.current_accelerator()
    map_location = {f"{acc}:0": f"{acc}:{rank}"}
    ddp_model.load_state_dict(torch.load(P, map_location=map_location, weights_only=True))
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
    optimizer.zero_grad()
    outputs = ddp_model(torch.randn(20, 10))
    labels = torch.randn(20, 5).to(rank)
    loss_fn(outputs, labels).backward()
    optimizer.step()
    dist.barrier()
    if rank == 0:
        os.remove(P)
    dist.destroy_process_group()
    print(f"checkpoint ok {rank}\n", end="")


class ToyMpModel(nn.Module):
    def __init__(self, dev0, dev1):
        super().__init__()
        self.dev0 = dev0
        self.dev1 = dev1
        self.net1 = nn.Linear(10, 10).to(dev0)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5).to(dev1)

    def forward(self, x):
        x = x.to(self.dev0)
        x = self.relu(self.net1(x))
        x = x.to(self.dev1)
        return self.net2(x)


def demo_model_parallel(rank, world_size):
    setup(rank, world_size, "model_parallel.store")
    dev0, dev1 = rank * 2, rank * 2 + 1
    ddp_mp_model = DDP(ToyMpModel(dev0, dev1))
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_mp_model.parameters(), lr=0.001)
    optimizer.zero_grad()
    outputs = ddp_mp_model(torch.randn(20, 10))
    labels = torch.randn(20, 5).to(dev1)
    loss_fn(outputs, labels).backward()
    optimizer.step()
    dist.destroy_process_group()
    print(f"mp ok {rank}\n", end="")  # one write, which no other rank's can cut in two


if __name__ == "__main__":
    n = torch.accelerator.device_count()
    assert n >= 2
    mp.spawn(demo_checkpoint, args=(2,), nprocs=2, join=True)
    mp.spawn(demo_model_parallel, args=(n // 2,), nprocs=n // 2, join=True)
