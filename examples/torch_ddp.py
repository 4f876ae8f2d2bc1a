"""Trains a convolutional network with PyTorch's DistributedDataParallel over ringpipe.

    torchrun --nproc_per_node 4 -r 1 -t 1 examples/torch_ddp.py

Prints the loss of each step. With --checkpoint FILE, which all ranks see, it goes on
from FILE where that exists: after a rank was lost, too, if torchrun may start all again
(--max_restarts 3).
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn

import ringpipe.torch  # registers the backend "ringpipe"  # pylint: disable=unused-import


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 8))


def examples(step, rank, size):
    """Every size-th of the step's 64: noise, in which one of 8 patterns is hidden."""
    random = torch.Generator().manual_seed(step)
    classes = torch.randint(8, (64,), generator=random)
    patterns = torch.randn(8, 1, 16, 16, generator=torch.Generator().manual_seed(-1))
    images = torch.randn(64, 1, 16, 16, generator=random) + 0.5 * patterns[classes]
    return images[rank::size], classes[rank::size]


def save(path, step, model, optimizer):
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()},
               path + ".new")
    os.replace(path + ".new", path)  # whole, or the old one


def load(path, model, optimizer):
    """Returns the step; 0 if there is no checkpoint."""
    if not path or not os.path.exists(path):
        return 0
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return saved["step"]


def train(options):
    rank, size = dist.get_rank(), dist.get_world_size()
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    first = load(options.checkpoint, model, optimizer)
    if rank == 0 and first > 0:
        print(f"# goes on at step {first}", flush=True)
    for step in range(first, options.steps):
        images, classes = examples(step, rank, size)
        loss = nn.functional.cross_entropy(model(images), classes)
        optimizer.zero_grad()
        loss.backward()  # all gradients become those of all ranks
        optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        if rank == 0:
            print(step, mean.item(), flush=True)
            if options.checkpoint and (step + 1) % options.every == 0:
                save(options.checkpoint, step + 1, model, optimizer)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint", metavar="FILE")
    parser.add_argument("--every", type=int, default=50, help="steps between checkpoints")
    given = parser.parse_args()
    dist.init_process_group("ringpipe")
    train(given)
    dist.destroy_process_group()
