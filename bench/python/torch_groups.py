"""Sets PyTorch's process groups over ringpipe beside those over gloo.

    bazel run //bench/python:torch_groups -- [--ranks 2 4] [--pairs 9]

For each number of ranks: all_reduce of float32 from 8 B to 64 MiB; steps a second of
DistributedDataParallel with ResNet-18's parameters, whose gradients cost next to nothing
to compute; and where the time of a short call goes. Both groups are in the same
processes, and take turns: a line has the median ratio of the pairs.
"""

import argparse
import datetime
import multiprocessing
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ringpipe
import ringpipe.torch

BACKENDS = ("ringpipe", "gloo")
# Bytes, and calls of one sample.
SIZES = ((8, 300), (64 << 10, 200), (1 << 20, 40), (4 << 20, 16), (16 << 20, 6), (64 << 20, 3))
STEPS = 5


def resnet_18():
    """The shapes of its 62 parameters: 11.7 million elements."""
    shapes = [(64, 3, 7, 7), (64,), (64,)]
    before = 64
    for width in (64, 128, 256, 512):
        for block in range(2):
            shapes += [(width, before, 3, 3), (width,), (width,),
                       (width, width, 3, 3), (width,), (width,)]
            if block == 0 and before != width:
                shapes += [(width, before, 1, 1), (width,), (width,)]
            before = width
    return shapes + [(1000, 512), (1000,)]


class Parameters(torch.nn.Module):
    """Nothing but parameters; the gradient of each element is what it is called with."""

    def __init__(self):
        super().__init__()
        self.list = torch.nn.ParameterList(
            [torch.nn.Parameter(torch.zeros(shape)) for shape in resnet_18()])

    def forward(self, factor):
        return sum(parameter.sum() for parameter in self.list) * factor


def seconds_of(function, calls):
    """Of one call, on the slowest rank."""
    dist.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        function()
    taken = torch.tensor([(time.perf_counter() - began) / calls], dtype=torch.float64)
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return taken.item()


def pairs_of(functions, calls, pairs):
    """Medians by backend, and of the ratios gloo / ringpipe of pairs, which take turns."""
    samples = {backend: [] for backend in BACKENDS}
    for function in functions.values():  # to warm up
        function()
    for pair in range(pairs):
        for backend in BACKENDS if pair % 2 == 0 else reversed(BACKENDS):
            samples[backend].append(seconds_of(functions[backend], calls))
    ratio = statistics.median(gloo / own for own, gloo in zip(samples["ringpipe"],
                                                              samples["gloo"]))
    return {backend: statistics.median(samples[backend]) for backend in BACKENDS}, ratio


def say(words):
    if dist.get_rank() == 0:
        print(words, flush=True)


def compare_all_reduce(groups, pairs):
    for size, calls in SIZES:
        x = torch.zeros(size // 4)
        functions = {backend: lambda group=group: dist.all_reduce(x, group=group)
                     for backend, group in groups.items()}
        medians, ratio = pairs_of(functions, calls, pairs)
        say(f"all_reduce {size:>9} B   ringpipe {1e6 * medians['ringpipe']:>10.1f} us   "
            f"gloo {1e6 * medians['gloo']:>10.1f} us   ratio {ratio:.2f}")


def compare_ddp(groups, pairs):
    functions = {}
    for backend, group in groups.items():
        model = DistributedDataParallel(Parameters(), process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def step(model=model, optimizer=optimizer):
            optimizer.zero_grad()
            model(1.0).backward()
            optimizer.step()
        functions[backend] = step
    medians, ratio = pairs_of(functions, STEPS, pairs)
    say(f"DDP, ResNet-18's shapes  ringpipe {1 / medians['ringpipe']:>10.2f} steps/s   "
        f"gloo {1 / medians['gloo']:>10.2f} steps/s   ratio {ratio:.2f}")


def take_apart(path, pairs):
    """Where the time of an all_reduce of 8 B goes: each line has more than the one
    before."""
    x = torch.zeros(2)
    array = x.numpy()
    rank, size = dist.get_rank(), dist.get_world_size()
    with ringpipe.Communicator(rank, size, f"unix:@{path}") as comm:
        group = dist.group.WORLD
        lines = (("the engine, on the caller's thread (Communicator.allreduce)",
                  lambda: comm.allreduce(array)),
                 ("on the engine's thread (iallreduce, wait)",
                  lambda: comm.iallreduce(array).wait()),
                 ("as a work of torch's (group.allreduce, wait)",
                  lambda: group.allreduce(x).wait()),
                 ("with Python's part (torch.distributed.all_reduce)",
                  lambda: dist.all_reduce(x)))
        samples = [[] for _ in lines]
        for _ in range(pairs):
            for (_, function), taken in zip(lines, samples):
                taken.append(seconds_of(function, SIZES[0][1]))
    before = 0.0
    for (words, _), taken in zip(lines, samples):
        median = 1e6 * statistics.median(taken)
        say(f"  {words:<62} {median:>7.1f} us   {median - before:>+7.1f}")
        before = median


def rank_main(rank, size, path, pairs):
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=60)
    dist.init_process_group("ringpipe", init_method=f"file://{path}", rank=rank, world_size=size,
                            timeout=timeout)
    groups = {"ringpipe": dist.group.WORLD, "gloo": dist.new_group(backend="gloo",
                                                                   timeout=timeout)}
    say(f"{size} ranks, median of {pairs} pairs")
    compare_all_reduce(groups, pairs)
    compare_ddp(groups, pairs)
    say("an all_reduce of 8 B, in parts:")
    take_apart(path, pairs)
    dist.destroy_process_group()


def main(options):
    context = multiprocessing.get_context("fork")
    for size in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            ranks = [context.Process(target=rank_main,
                                     args=(rank, size, f"{folder}/store", options.pairs))
                     for rank in range(size)]
            for process in ranks:
                process.start()
            for process in ranks:
                process.join()
            if any(process.exitcode for process in ranks):
                raise SystemExit("torch_groups: a rank failed, see above")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--pairs", type=int, default=9)
    main(parser.parse_args())
