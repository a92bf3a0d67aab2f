import argparse, os, random, shutil, time, warnings
from enum import Enum
import torch, torch.backends.cudnn as cudnn, torch.distributed as dist, torch.multiprocessing as mp, torch.nn as nn, torch.nn.parallel, torch.optim, torch.utils.data, torch.utils.data.distributed
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import Subset

parser = argparse.ArgumentParser()
parser.add_argument("-j", "--workers", default=2, type=int)
parser.add_argument("--epochs", default=2, type=int)
parser.add_argument("-b", "--batch-size", default=16, type=int)
parser.add_argument("--world-size", default=-1, type=int)
parser.add_argument("--rank", default=-1, type=int)
parser.add_argument("--dist-url", default="env://")
parser.add_argument("--dist-backend", default="nccl")
parser.add_argument("--gpu", default=None, type=int)
parser.add_argument("--multiprocessing-distributed", action="store_true")
parser.add_argument("--resume", default="")
parser.add_argument("--seed", default=None, type=int)
parser.add_argument("--no-accel", action="store_true")
best_acc1 = 0


def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        nn.AdaptiveAvgPool2d((1, 1)),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


def main():
    args = parser.parse_args()
    if args.seed is not None:
        random.seed(args.seed)
        torch.manual_seed(args.seed)
        cudnn.deterministic = True
        cudnn.benchmark = False
    if args.dist_url == "env://" and args.world_size == -1:
        args.world_size = int(os.environ["WORLD_SIZE"])
    args.distributed = args.world_size > 1 or args.multiprocessing_distributed
    use_accel = not args.no_accel and torch.accelerator.is_available()
    device = torch.accelerator.current_accelerator() if use_accel else torch.device("cpu")
    print(f"Using device: {device}")
    ngpus_per_node = torch.accelerator.device_count() if device.type == "cuda" else 1
    if args.multiprocessing_distributed:
        args.world_size = ngpus_per_node * args.world_size
        mp.spawn(main_worker, nprocs=ngpus_per_node, args=(ngpus_per_node, args))
    else:
        if args.distributed and args.gpu is None:
            args.gpu = int(os.environ.get("LOCAL_RANK", 0))
        main_worker(args.gpu, ngpus_per_node, args)


def main_worker(gpu, ngpus_per_node, args):
    global best_acc1
    args.gpu = gpu
    if args.gpu is not None:
        print("Use GPU: {} for training".format(args.gpu))
    if args.distributed:
        if args.dist_url == "env://" and args.rank == -1:
            args.rank = int(os.environ["RANK"])
        if args.multiprocessing_distributed:
            args.rank = args.rank * ngpus_per_node + gpu
        dist.init_process_group(
            backend=args.dist_backend, init_method=args.dist_url, world_size=args.world_size, rank=args.rank
        )
    model = resnet()
    if args.distributed:
        torch.cuda.set_device(args.gpu)
        model.cuda(args.gpu)
        args.batch_size = int(args.batch_size / ngpus_per_node)
        args.workers = int((args.workers + ngpus_per_node - 1) / ngpus_per_node)
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])
    else:
        model = torch.nn.DataParallel(model).cuda()
    device = torch.device("cuda:{}".format(args.gpu)) if args.gpu is not None else torch.device("cuda")
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=30, gamma=0.1)
    if args.resume and os.path.isfile(args.resume):
        checkpoint = torch.load(args.resume, map_location="cuda:{}".format(args.gpu))
        best_acc1 = checkpoint["best_acc1"].to(args.gpu)
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
    ds = torch.utils.data.TensorDataset(torch.randn(60, 3, 32, 32), torch.randint(0, 10, (60,)))
    vs = torch.utils.data.TensorDataset(torch.randn(31, 3, 32, 32), torch.randint(0, 10, (31,)))
    sampler = torch.utils.data.distributed.DistributedSampler(ds) if args.distributed else None
    vsampler = (
        torch.utils.data.distributed.DistributedSampler(vs, shuffle=False, drop_last=True) if args.distributed else None
    )
    loader = torch.utils.data.DataLoader(
        ds,
        batch_size=args.batch_size,
        shuffle=(sampler is None),
        num_workers=args.workers,
        pin_memory=True,
        sampler=sampler,
    )
    vloader = torch.utils.data.DataLoader(
        vs, batch_size=args.batch_size, shuffle=False, num_workers=args.workers, pin_memory=True, sampler=vsampler
    )
    for epoch in range(args.epochs):
        if args.distributed:
            sampler.set_epoch(epoch)
        model.train()
        for i, (images, target) in enumerate(loader):
            images = images.to(device, non_blocking=True)
            target = target.to(device, non_blocking=True)
            output = model(images)
            loss = criterion(output, target)
            acc1, acc5 = accuracy(output, target, topk=(1, 5))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        acc1 = validate(vloader, vs, model, criterion, args, device)
        scheduler.step()
        best_acc1 = max(acc1, best_acc1)
        if not args.multiprocessing_distributed or (
            args.multiprocessing_distributed and args.rank % ngpus_per_node == 0
        ):
            if args.rank <= 0:
                torch.save(
                    {
                        "epoch": epoch + 1,
                        "state_dict": model.state_dict(),
                        "best_acc1": best_acc1,
                        "optimizer": optimizer.state_dict(),
                        "scheduler": scheduler.state_dict(),
                    },
                    "checkpoint.pth.tar",
                )
    print("done", float(best_acc1))


def validate(loader, vs, model, criterion, args, device):
    top1 = [0.0, 0]
    model.eval()

    def run(loader):
        with torch.no_grad():
            for images, target in loader:
                images = images.cuda(args.gpu, non_blocking=True)
                target = target.cuda(args.gpu, non_blocking=True)
                a, _ = accuracy(model(images), target, topk=(1, 5))
                top1[0] += a[0] * len(images)
                top1[1] += len(images)

    run(loader)
    if args.distributed:
        total = torch.tensor([top1[0], top1[1]], dtype=torch.float32, device=device)
        dist.all_reduce(total, dist.ReduceOp.SUM, async_op=False)
        top1[:] = total.tolist()
        aux = Subset(vs, range(len(loader.sampler) * args.world_size, len(vs)))
        run(
            torch.utils.data.DataLoader(
                aux, batch_size=args.batch_size, shuffle=False, num_workers=args.workers, pin_memory=True
            )
        )
    return torch.as_tensor(top1[0] / top1[1])


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        maxk = max(topk)
        batch_size = target.size(0)
        _, pred = output.topk(maxk, 1, True, True)
        pred = pred.t()
        correct = pred.eq(target.view(1, -1).expand_as(pred))
        return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / batch_size) for k in topk]


if __name__ == "__main__":
    main()
