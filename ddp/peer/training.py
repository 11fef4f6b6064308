"""What trainer.cc does, with Python's DistributedDataParallel, and in one process without it."""

import contextlib
import datetime

import nets
import torch
import torch.distributed as dist
import torch.distributed.optim

LR, MOMENTUM, PATIENCE = 0.05, 0.9, 60


def train_rank(
    net_name, rank, world_size, steps, init_method, initial, output, accumulate, buckets=3, zero=False, **options
):
    """One rank over Gloo. `buckets`: how many there must be at the end, at least. `zero`: AdamW in parts, not SGD."""
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=PATIENCE)
    dist.init_process_group("gloo", init_method=init_method, rank=rank, world_size=world_size, timeout=timeout)
    make, draw = nets.NETS[net_name]
    net = make()
    if rank == 0:
        net.load_state_dict(torch.load(initial, weights_only=True))
    ddp = torch.nn.parallel.DistributedDataParallel(net, **options)
    if zero:
        optimizer = dist.optim.ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.AdamW, lr=LR)
    else:
        optimizer = torch.optim.SGD(ddp.parameters(), lr=LR, momentum=MOMENTUM)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        for part in range(accumulate):
            inputs, targets, branch = draw(step * accumulate + part, rank)
            with contextlib.nullcontext() if part == accumulate - 1 else ddp.no_sync():
                loss = torch.nn.functional.cross_entropy(ddp(inputs, branch), targets)
                losses.append(loss.item())
                loss.backward()
        optimizer.step()
    facts = ddp._get_ddp_logging_data()
    sizes = facts.get("rebuilt_bucket_sizes") or facts["bucket_sizes"]
    assert len(sizes.split(",")) >= buckets, sizes
    torch.save({"losses": losses, "state_dict": net.state_dict()}, output)
    dist.destroy_process_group()


def train_alone(net_name, world_size, steps, initial, outputs, accumulate):
    """All ranks' training in this process: the gradient is rank 0's / world_size + rank 1's / world_size + ..., added in that order.

    A sparse one is summed as Gloo sums it.
    """
    torch.set_num_threads(1)
    make, draw = nets.NETS[net_name]
    net = make()
    net.load_state_dict(torch.load(initial, weights_only=True))
    parameters = list(net.parameters())
    optimizer = torch.optim.SGD(parameters, lr=LR, momentum=MOMENTUM)
    losses = [[] for _ in range(world_size)]
    rank_buffers = [[b.clone() for b in net.buffers()] for _ in range(world_size)]
    for step in range(steps):
        sums = [None] * len(parameters)
        from_rank_0 = [b.clone() for b in rank_buffers[0]]
        for rank in range(world_size):
            optimizer.zero_grad()
            set_buffers(net, from_rank_0)
            for part in range(accumulate):
                inputs, targets, branch = draw(step * accumulate + part, rank)
                loss = torch.nn.functional.cross_entropy(net(inputs, branch), targets)
                losses[rank].append(loss.item())
                loss.backward()
            rank_buffers[rank] = [b.clone() for b in net.buffers()]
            for i, parameter in enumerate(parameters):
                if parameter.grad is not None:
                    share = parameter.grad
                    share = sparse_share(share / world_size) if share.is_sparse else share * (1 / world_size)
                    sums[i] = share if sums[i] is None else sums[i] + share
        for parameter, total in zip(parameters, sums):
            parameter.grad = total.coalesce() if total is not None and total.is_sparse else total
        optimizer.step()
    for rank in range(world_size):
        set_buffers(net, rank_buffers[rank])
        torch.save({"losses": losses[rank], "state_dict": net.state_dict()}, outputs[rank])


def sparse_share(gradient):
    """A rank's part, as Gloo has it from the others: its indices are not known to be sorted and unique."""
    once = gradient.coalesce()
    return torch.sparse_coo_tensor(once.indices(), once.values(), once.shape)


def set_buffers(net, values):
    for buffer, value in zip(net.buffers(), values):
        buffer.copy_(value)
